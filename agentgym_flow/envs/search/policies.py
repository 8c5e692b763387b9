"""The expert of the generated questions, and a scripted policy, which reads only what the searches show.

The expert searches along the chain of articles that leads to the answer. It knows the chain, but acts as a competent
agent could: it searches only for names from the question or an earlier article, and answers only after all articles of
the chain have been shown.

The script is a baseline between random play and the expert. It searches for the name in the question, then for the name
that the passage gives for the first fact in the chain, and so on. It answers with the name in the last sentence. For
comparisons it looks up both entities. If it finds nothing, it searches for the whole question, and in the end it
guesses. `docs/policies.md` has its results.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from agentgym_flow.envs.search.game import SearchGame, read_action
from agentgym_flow.envs.search.notes import SearchNotes, notes_of, shape_of

if TYPE_CHECKING:
    from agentgym_flow.episodes import PolicyOutput
    from agentgym_flow.policies.base import PolicyInput


def next_action(game: SearchGame, steps_left: int, found_by: Callable[[str], Collection[str]] | None) -> str | None:
    """Return the next action on the path to the answer; None if every path takes more than `steps_left` steps.

    Args:
        game: the episode so far.
        steps_left: the remaining steps, including the answer.
        found_by: returns the ids of the passages that a query finds; None if searching is expensive. In that case each
            search is assumed to find its article, and the task is abandoned if it did not.
    """
    question = game.question
    if game.answered is not None or not question.supports:
        return None
    seen = set(game.seen)
    searches = []
    for query, wanted in question.supports:
        if wanted in seen:
            continue
        found = found_by(query) if found_by else () if query in game.queries else (wanted,)
        if wanted not in found:
            return None
        seen.update(found)
        searches.append(query)
    if len(searches) + 1 > steps_left:
        return None
    return f"search[{searches[0]}]" if searches else f"answer[{question.answers[0]}]"


class ChainReader:
    """Follows the chain of a question. It reads only observations, the goal and the candidates."""

    name = "scripted"

    def act(self, inputs: Sequence[PolicyInput]) -> list[PolicyOutput]:
        """Return one action per input; each is a function of the episode's observations."""
        from agentgym_flow.episodes import PolicyOutput  # not needed by the environment, which has the expert

        return [PolicyOutput(_action(policy_input)) for policy_input in inputs]


def _action(policy_input: PolicyInput) -> str:
    notes = notes_of(policy_input)
    answer = _answer(notes)
    if answer is not None:
        return f"answer[{answer}]"
    candidates = policy_input.candidates()
    if len(policy_input.episode.turns) + 1 < policy_input.episode.max_steps:
        tried = {query.casefold() for query in notes.tried}
        queries = []
        for number, chain in enumerate(notes.question.chains):  # each from its end
            for step in reversed(range(len(chain.cues) - 1)):
                queries += [name for name in _values(notes, number, step) if shape_of(name) == "name"]
            queries.append(chain.start)
        for query in (*queries, notes.question.text):
            if query.casefold() not in tried and f"search[{query}]" in candidates:
                return f"search[{query}]"
    # Guess: the first candidate answer of the wanted shape, or the first answer.
    answers = [action for action in candidates if action.startswith("answer[")]
    if notes.question.kind == "chain":
        fits = [action for action in answers if shape_of(read_action(action)[1]) == notes.question.wants]
        answers = fits or answers
    return answers[0]


def _answer(notes: SearchNotes) -> str | None:
    """Return the answer if it was found; None if more searches are needed."""
    question = notes.question
    if question.kind == "chain":
        found = [name for name in _values(notes, 0, -1) if shape_of(name) == question.wants]
        return found[0] if found else None
    verdict = notes.verdict()
    if verdict == "open":
        return None
    if question.kind == "polar":
        # The question is whether the first value is less, or for names whether both are the same.
        return "yes" if verdict in ("less", "same" if question.wants == "name" else "less") else "no"
    number = 1 if verdict == "more" else 0
    # The entity that the chain compares is the value before its last cue, or its start.
    ends = _values(notes, number, -2) if len(question.chains[number].cues) > 1 else [question.chains[number].start]
    return next(iter(ends), None)


def _values(notes: SearchNotes, chain: int, step: int) -> Iterator[str]:
    """Yield the names that the passages at a step of a chain give for its cue."""
    if not notes.question.chains or not notes.question.chains[chain].cues:
        return
    step %= len(notes.question.chains[chain].cues)
    for page in notes.paths[chain][step]:
        for sentence in page.sentences_about(notes.question.chains[chain].cues[step]):
            yield from (name for name in sentence.mentions if not page.is_own_name(name))

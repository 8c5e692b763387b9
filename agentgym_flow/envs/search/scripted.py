"""A script that follows a question from name to name: a careful reader, and a baseline between random play and expert.

It searches for the name in the question, then for what the passage says of the first thing that is asked of it, and so
on, and answers with what the last sentence names. Of two things it looks up both and compares. Where it is lost it
searches for the whole question, and at last it guesses. It reads what was shown and nothing else. `docs/policies.md`
has its figures.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agentgym_flow.envs.search.game import read_action
from agentgym_flow.envs.search.notes import SearchNotes, notes_of, shape_of
from agentgym_flow.policies.base import PolicyInput, PolicyOutput


class ChainReader:
    """Follows a question from name to name. Reads observations, goal and candidates only."""

    name = "scripted"

    def act(self, views: Sequence[PolicyInput]) -> list[PolicyOutput]:
        """Return one move per view, each a function of what its episode has shown."""
        return [PolicyOutput(_action(view)) for view in views]


def _action(view: PolicyInput) -> str:
    notes = notes_of(view)
    answer = _answer(notes)
    if answer is not None:
        return f"answer[{answer}]"
    candidates = view.candidates()
    if len(view.episode.turns) + 1 < view.episode.max_steps:
        tried = {query.casefold() for query in notes.tried}
        for query in (*_next_queries(notes), notes.asked.text):
            if query.casefold() not in tried and f"search[{query}]" in candidates:
                return f"search[{query}]"
    return _guess(notes, candidates)


def _answer(notes: SearchNotes) -> str | None:
    """Return the answer as far as it was read; None when there is more to look up."""
    asked = notes.asked
    if asked.kind == "chain":
        found = [name for name in _told(notes, 0, -1) if shape_of(name) == asked.wants]
        return found[0] if found else None
    verdict = notes.verdict()
    if verdict == "open":
        return None
    if asked.kind == "polar":
        # What is asked is whether the first comes before the second or is less, or whether both have the same.
        return "yes" if verdict in ("less", "same" if asked.wants == "name" else "less") else "no"
    return next(_ends(notes, 1 if verdict == "more" else 0), None)


def _told(notes: SearchNotes, chain: int, step: int) -> Iterator[str]:
    """Yield what the passages at a step of a chain name for its cue."""
    if not notes.asked.chains or not notes.asked.chains[chain].cues:
        return
    step %= len(notes.asked.chains[chain].cues)
    for page in notes.ways[chain][step]:
        for sentence in page.told(notes.asked.chains[chain].cues[step]):
            yield from (name for name in sentence.named if not page.is_part(name))


def _ends(notes: SearchNotes, chain: int) -> Iterator[str]:
    """Yield the names of the thing that is compared with another."""
    if len(notes.asked.chains[chain].cues) > 1:
        yield from _told(notes, chain, -2)
    else:
        yield notes.asked.chains[chain].start


def _next_queries(notes: SearchNotes) -> Iterator[str]:
    """Yield what to look up next, the farthest of each chain first."""
    for number, chain in enumerate(notes.asked.chains):
        for step in reversed(range(len(chain.cues) - 1)):
            yield from (name for name in _told(notes, number, step) if shape_of(name) == "name")
        yield chain.start


def _guess(notes: SearchNotes, candidates: Sequence[str]) -> str:
    """Return an answer that looks like what is wanted, or else any."""
    answers = [action for action in candidates if action.startswith("answer[")]
    if notes.asked.kind == "chain":
        fits = [action for action in answers if shape_of(read_action(action)[1]) == notes.asked.wants]
        answers = fits or answers
    return answers[0]

"""The compact prompt of the tiny policy: hand-made features of the observations as words, and an index as completion.

The features are computed only from the question, the queries and the observations (`agentgym_flow.envs.search.notes`):

1. The situation: the steps left, the kind of question, the number of lookups in its chains, the shape of the answer,
   and for comparisons which value is less, once both are known.
2. For each candidate its verb, the source of its text, and its relevance. The source of a `search` is `asked` (in the
   question), `near` (in a passage on the path from the question, as far as the notes can follow it) or `far` (in
   another passage). The relevance is what its sentence states: `hop1` the first fact of the chain, `hop2` the next,
   `end` the last, `cue` a fact asked elsewhere in the question, `plain` none; `self` is the subject of the passage. A
   last word says whether a passage about it was `shown`, the query was `tried`, or it is `new`. An `answer` has the
   same words, except that its shape is the last word.

Candidates with equal words are listed once, and their index stands for the first of them. If there are more than
`MOST`, the least relevant ones are dropped; the others keep the order of `candidates()`, which is independent of their
relevance. The policy learns when to search, when to answer, and which features to trust.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache

from agentgym_flow.envs.answers import normalise
from agentgym_flow.envs.search.game import read_action
from agentgym_flow.envs.search.notes import MOST_HOPS, NotedPassage, SearchNotes, notes_of, shape_of, words_of
from agentgym_flow.prompts import IndexedPrompt, IndexTemplate, PromptContext

MOST = 22
"""The largest number of candidates in a prompt."""

INDICES = tuple(str(index) for index in range(MOST))
"""The completions."""

_STEPS = (1, 2, 3, 4, 5, 6, 8)
STEPS_LEFT = tuple(f"left{least}" for least in _STEPS)
QUESTIONS = ("chain", "choice", "polar")
HOPS = tuple(f"hops{number}" for number in range(2 * MOST_HOPS + 1))
SHAPES = ("name", "year", "date", "number", "word")
VERDICTS = ("open", "less", "more", "same", "other")
VERBS = ("search", "answer")
SOURCES = ("asked", "near", "far")
CUES = ("end", *(f"hop{number}" for number in range(MOST_HOPS, 0, -1)), "cue", "self", "plain")
"""The relevance of a sentence to the question, highest first."""
STANDS = ("new", "tried", "shown")

_SITUATION = (*STEPS_LEFT, *QUESTIONS, *HOPS, *(f"wants-{shape}" for shape in SHAPES), *VERDICTS)
_CANDIDATE = (*VERBS, *SOURCES, *CUES, *STANDS, *SHAPES, "whole", "yes", "no")
VOCABULARY = tuple(dict.fromkeys((*INDICES, *_SITUATION, *_CANDIDATE, "choose")))
"""Every word of a compact prompt or of its completion."""


class SearchCompactPrompt(IndexTemplate):
    """The prompt of the tiny policy: words of `VOCABULARY` separated by spaces; the completion is one of `INDICES`.

    It has five words for the situation, up to five for each candidate including its index, and `choose`: at most
    `6 + 5 * MOST` words.
    """

    vocabulary = VOCABULARY

    def written(self, policy_input: PromptContext) -> IndexedPrompt:
        """Return the prompt for the current step."""
        left = policy_input.episode.max_steps - len(policy_input.episode.turns)
        return _written(
            notes_of(policy_input), STEPS_LEFT[max(bisect_right(_STEPS, left) - 1, 0)], tuple(policy_input.candidates())
        )

    def format_action(self, action: str, policy_input: PromptContext) -> str | None:
        """Return the index of the candidate that has the same words as `action`; None if there is none.

        An action that is not a candidate is mapped to one with the same verb: a search to the longest candidate that
        its query contains, an answer to a candidate that is equal after normalisation or has the same words, and
        otherwise to the most relevant candidate. A candidate that was dropped for lack of room has no index.
        """
        indices = self.written(policy_input).indices
        if action in indices or action in policy_input.candidates():
            return indices.get(action)
        verb, text = read_action(action)
        # The most relevant candidates come first.
        listed = {
            read_action(known)[1]: known
            for _, actions in _most_relevant(notes_of(policy_input), tuple(policy_input.candidates()))
            for known in actions
            if read_action(known)[0] == verb
        }
        if verb == "search":
            fitting = [known for known in listed if known.casefold() in text.casefold()]
            chosen = max(fitting, key=len) if fitting else next(iter(listed), None)
        else:
            equal = (known for known in listed if normalise(known) == normalise(text))
            alike = (known for known in listed if words_of(known) == words_of(text))
            chosen = next(equal, None) or next(alike, None) or next(iter(listed), None)
        return None if chosen is None else indices[listed[chosen]]


@lru_cache(maxsize=1 << 12)  # shared by prompt, completion, and all attempts with the same turns
def _written(notes: SearchNotes, left: str, actions: tuple[str, ...]) -> IndexedPrompt:
    question = notes.question
    listed = sorted(_most_relevant(notes, actions), key=lambda alike: actions.index(alike[1][0]))
    lookups = sum(len(chain.cues) for chain in question.chains)
    situation = [left, question.kind, HOPS[min(lookups, len(HOPS) - 1)], f"wants-{question.wants}", notes.verdict()]
    return IndexedPrompt.listing(situation, listed, INDICES)


@lru_cache(maxsize=1 << 12)
def _most_relevant(notes: SearchNotes, actions: tuple[str, ...]) -> list[tuple[tuple[str, ...], list[str]]]:
    """Return the `MOST` most relevant groups of candidates, each as (words, candidates with these words)."""
    known = _relevance(notes)
    alike: dict[tuple[str, ...], list[str]] = {}
    for action in actions:
        verb, text = read_action(action)
        words = _of_search(notes, known, text) if verb == "search" else _of_answer(notes, known, text)
        alike.setdefault(words, []).append(action)
    return sorted(alike.items(), key=lambda item: _rank(item[0]))[:MOST]


_Relevance = dict[str, tuple[str, str]]
"""Text in lower case -> its source and its cue."""


def _relevance(notes: SearchNotes) -> _Relevance:
    """Return the source and the best cue of every name in the question and the passages."""
    found: _Relevance = {}

    def note(text: str, source: str, cue: str) -> None:
        key = text.casefold()
        if key not in found or _source_rank(source, cue) < _source_rank(*found[key]):
            found[key] = source, cue

    for place, chain in enumerate(notes.question.chains):
        note(chain.start, "asked", "self" if place == 0 else "cue")
    cues = {cue for chain in notes.question.chains for cue in chain.cues}
    way = _steps(notes)
    for page in notes.pages:
        steps = way.get(page, {})
        source = "near" if steps else "far"
        note(page.title, source, "self")
        for sentence in page.sentences:
            cue = steps.get(sentence.cue, "cue" if sentence.cue in cues else "plain")
            for name in sentence.mentions:
                note(name, source, "self" if page.is_own_name(name) else cue)
    return found


def _steps(notes: SearchNotes) -> dict[NotedPassage, dict[str, str]]:
    """Return for each passage on a path: cue -> the word for its step in the chain."""
    way: dict[NotedPassage, dict[str, str]] = {}
    for chain, pages in zip(notes.question.chains, notes.paths, strict=True):
        for place, (cue, here) in enumerate(zip(chain.cues, pages, strict=False), 1):
            for page in here:
                way.setdefault(page, {})[cue] = "end" if place == len(chain.cues) else f"hop{place}"
    return way


def _source_rank(source: str, cue: str) -> tuple[int, int]:
    return CUES.index(cue), SOURCES.index(source)


def _rank(words: tuple[str, ...]) -> tuple[int, ...]:
    """Return the sort key of a candidate by relevance; searches come before answers."""
    cues = [CUES.index(word) for word in words if word in CUES]
    rest = [(*SOURCES, *STANDS, *SHAPES).index(word) for word in words[1:] if word in (*SOURCES, *STANDS, *SHAPES)]
    return (cues[0] if cues else -1, VERBS.index(words[0]), *rest)


def _of_search(notes: SearchNotes, known: _Relevance, text: str) -> tuple[str, ...]:
    if text == notes.question.text:
        return "search", "whole"
    stands = "shown" if notes.shows(text) else "tried" if text in notes.tried else "new"
    return "search", *known.get(text.casefold(), ("far", "plain")), stands


def _of_answer(notes: SearchNotes, known: _Relevance, text: str) -> tuple[str, ...]:
    if text in ("yes", "no"):
        return "answer", text
    return "answer", *known.get(text.casefold(), ("far", "plain")), shape_of(text)

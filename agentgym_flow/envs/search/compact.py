"""The word-token prompt of the tiny policy: hand-made features of what the episode has shown, and an index to choose.

It reads the question, the queries and the observations (`agentgym_flow.envs.search.notes`) and nothing else. It says

1. the steps left, what kind of question it is, how many names of its chain must be looked up, what the answer looks
   like, and of two things that are compared which one is less, once both were read,
2. of every candidate what it does and where its text is from. `search` a name: `asked` for in the question, or named
   in a passage: a `near` one, on the way from the question as far as the reader can follow it, or a `far` one. Then
   what the sentence says with regard to the question: `hop1` is what it asks of its name, `hop2` what it asks of that,
   `end` what it asks in the end, `cue` something that it asks elsewhere, `plain` nothing, and `self` is what the
   passage is about. Then whether a passage about it was `shown`, its words were `tried`, or it is `new`. `answer` is
   told likewise, and by its shape.

Candidates with equal words are shown once, and stand for the first of them. Where there are more than `MOST`, those
that bear least on the question are left out; the others are listed in the order of `candidates()`, which does not look
at what they tell. When to look further, when to answer, and what of all this to believe is left to learning.
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
"""What a sentence says with regard to the question, the most telling first."""
STANDS = ("new", "tried", "shown")

VOCABULARY = tuple(
    dict.fromkeys(
        (
            *INDICES,
            *STEPS_LEFT,
            *QUESTIONS,
            *HOPS,
            *(f"wants-{shape}" for shape in SHAPES),
            *VERDICTS,
            *VERBS,
            *SOURCES,
            *CUES,
            *STANDS,
            *SHAPES,
            "whole",
            "yes",
            "no",
            "choose",
        )
    )
)
"""Every word of a compact prompt or of its completion."""


class SearchCompactPrompt(IndexTemplate):
    """The prompt of the tiny policy: words of `VOCABULARY` separated by spaces; the completion is one of `INDICES`.

    Five words about the situation, up to five for each candidate with its index, and `choose`: at most `6 + 5 * MOST`.
    """

    vocabulary = VOCABULARY

    def written(self, view: PromptContext) -> IndexedPrompt:
        """Return the words for the present situation."""
        left = view.episode.max_steps - len(view.episode.turns)
        return _written(notes_of(view), STEPS_LEFT[max(bisect_right(_STEPS, left) - 1, 0)], tuple(view.candidates()))

    def format_action(self, action: str, view: PromptContext) -> str | None:
        """Return the index of the candidate that has the same words as `action`; None when there is none.

        A search in words that are not proposed is asked for as the candidate with most letters that it holds, and an
        answer as a candidate that the score takes for equal, or that has the same words. Where there is none, as the
        first one listed: of all searches, or of all answers, the one that bears most on the question. A candidate for
        which there is no room is not asked for.
        """
        indices = self.written(view).indices
        if action in indices or action in view.candidates():
            return indices.get(action)
        verb, text = read_action(action)
        # The most telling ones first.
        listed = {
            read_action(known)[1]: known
            for _, actions in _telling_most(notes_of(view), tuple(view.candidates()))
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


@lru_cache(maxsize=1 << 12)  # prompt, completion and all attempts that have seen the same so far share it
def _written(notes: SearchNotes, left: str, actions: tuple[str, ...]) -> IndexedPrompt:
    asked = notes.asked
    listed = sorted(_telling_most(notes, actions), key=lambda alike: actions.index(alike[1][0]))
    lookups = sum(len(chain.cues) for chain in asked.chains)
    situation = [left, asked.kind, HOPS[min(lookups, len(HOPS) - 1)], f"wants-{asked.wants}", notes.verdict()]
    return IndexedPrompt.listing(situation, listed, INDICES)


@lru_cache(maxsize=1 << 12)
def _telling_most(notes: SearchNotes, actions: tuple[str, ...]) -> list[tuple[tuple[str, ...], list[str]]]:
    """Return the `MOST` kinds of candidate that bear most on the question: their words, and which they are."""
    known = _where(notes)
    alike: dict[tuple[str, ...], list[str]] = {}
    for action in actions:
        verb, text = read_action(action)
        words = _of_search(notes, known, text) if verb == "search" else _of_answer(notes, known, text)
        alike.setdefault(words, []).append(action)
    return sorted(alike.items(), key=lambda item: _rank(item[0]))[:MOST]


_Where = dict[str, tuple[str, str]]
"""Text in lower case -> its source and its cue."""


def _where(notes: SearchNotes) -> _Where:
    """Return for every name in the question and the passages where it stands and what is said of it there."""
    found: _Where = {}

    def stands(text: str, source: str, cue: str) -> None:
        key = text.casefold()
        if key not in found or _telling(source, cue) < _telling(*found[key]):
            found[key] = source, cue

    for place, chain in enumerate(notes.asked.chains):
        stands(chain.start, "asked", "self" if place == 0 else "cue")
    cues = {cue for chain in notes.asked.chains for cue in chain.cues}
    way = _steps(notes)
    for page in notes.pages:
        steps = way.get(page, {})
        source = "near" if steps else "far"
        stands(page.title, source, "self")
        for sentence in page.sentences:
            cue = steps.get(sentence.cue, "cue" if sentence.cue in cues else "plain")
            for name in sentence.named:
                stands(name, source, "self" if page.is_part(name) else cue)
    return found


def _steps(notes: SearchNotes) -> dict[NotedPassage, dict[str, str]]:
    """Return for each passage on the way what its cues are to the question."""
    way: dict[NotedPassage, dict[str, str]] = {}
    for chain, pages in zip(notes.asked.chains, notes.ways, strict=True):
        for place, (cue, here) in enumerate(zip(chain.cues, pages, strict=False), 1):
            for page in here:
                way.setdefault(page, {})[cue] = "end" if place == len(chain.cues) else f"hop{place}"
    return way


def _telling(source: str, cue: str) -> tuple[int, int]:
    return CUES.index(cue), SOURCES.index(source)


def _rank(words: tuple[str, ...]) -> tuple[int, ...]:
    """Return what orders candidates by how much they tell, searches before answers."""
    cues = [CUES.index(word) for word in words if word in CUES]
    rest = [(*SOURCES, *STANDS, *SHAPES).index(word) for word in words[1:] if word in (*SOURCES, *STANDS, *SHAPES)]
    return (cues[0] if cues else -1, VERBS.index(words[0]), *rest)


def _of_search(notes: SearchNotes, known: _Where, text: str) -> tuple[str, ...]:
    if text == notes.asked.text:
        return "search", "whole"
    stands = "shown" if notes.shows(text) else "tried" if text in notes.tried else "new"
    return "search", *known.get(text.casefold(), ("far", "plain")), stands


def _of_answer(notes: SearchNotes, known: _Where, text: str) -> tuple[str, ...]:
    if text in ("yes", "no"):
        return "answer", text
    return "answer", *known.get(text.casefold(), ("far", "plain")), shape_of(text)

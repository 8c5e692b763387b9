"""What an episode has told so far: a memory that reads the question, the queries and the observations, nothing else.

A question is read as one or two *chains*: a name, and what is asked of it, from the inside out. `Who was the teacher of
the author of "Tarn"?` begins with Tarn and asks for its maker, and then for the teacher. How far a chain can be
followed in the passages is read from their sentences (`agentgym_flow.envs.search.lexicon`).

It is a reader's guess: it may take a sentence for something it does not say, and miss one in words it does not know.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from agentgym_flow.envs.search.candidates import begins_polar, proposed_queries, read_text
from agentgym_flow.envs.search.game import read_action
from agentgym_flow.envs.search.lexicon import WANTED, asked, told
from agentgym_flow.envs.search.months import MONTHS
from agentgym_flow.prompts import PromptContext

LONGEST_QUESTION = 2000
"""Characters of a question that are read."""

MOST_HOPS = 4
"""Only this many cues of a longer chain count."""

_DOCUMENT = re.compile(r"Doc \d+\(Title: ((?:[^()\n]|\([^()\n]*\))*)\) ?(.*)")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[\"A-Z0-9])")
_QUALIFIER = re.compile(r"^(.*?)\s*\(([^()]*)\)$")
_WORD = re.compile(r"[^\W_]+")
_HOP = re.compile(
    r"\bthe\b(?! (?:first (?:night|ascent|reliable|ceremony)|(?:smaller )?area|same)\b)|\bthis\b", re.IGNORECASE
)
_IN_TWO = re.compile(r"^(?:.*?)\b(?:of|about|consider) (.+?)\. (.+)$", re.IGNORECASE | re.DOTALL)
_IDLE = frozenset(("the", "of", "a", "an"))
_NUMBER = re.compile(r"\d[\d,.]*")
_NAME = "\0"


def words_of(text: str) -> frozenset[str]:
    """Return the words of a name in lower case, without `the` and `of`: `University of Tarn` has those of the other."""
    return frozenset(_WORD.findall(text.casefold())) - _IDLE


class QuestionChain(NamedTuple):
    """What a question asks of one name.

    Attributes:
        start: the name.
        cues: what is asked of it, and of what that is, and so on; the last one is what the question wants to know.
    """

    start: str
    cues: tuple[str, ...]


class ParsedQuestion(NamedTuple):
    """A question as it was read.

    Attributes:
        text: the question.
        kind: `chain`; of two chains `choice` (which of two) or `polar` (yes or no).
        chains: one or two; none where no name was found.
        wants: the shape of what the last cue asks for: `name`, `year`, `date`, `number` or `word`.
    """

    text: str
    kind: str
    chains: tuple[QuestionChain, ...]
    wants: str


@lru_cache(maxsize=4096)
def read_question(text: str) -> ParsedQuestion:
    """Return a question as it is read. Never raises: what is not understood is a chain without cues."""
    one = text[:LONGEST_QUESTION]
    two = _IN_TWO.match(one)
    if two and re.search(r"\bthis \w+", two[2]):
        one = re.sub(r"\bthis \w+", lambda _: two[1], two[2], count=1)
    masked, names = _masked(one, proposed_queries(one, ())[1:])
    pieces = masked.split(_NAME)
    polar = begins_polar(text)
    pair = len(names) > 1 and (polar or " or " in masked)
    if not names:
        return ParsedQuestion(text, "chain", (), "name")
    if not pair:
        pieces, names = [pieces[0], " ".join(pieces[1:])], names[:1]
    lefts = [_HOP.split(piece) for piece in pieces[: len(names)]]
    outer = " ".join([*(left[0] for left in lefts), pieces[-1]])
    inner = [[cue for cue in map(asked, left[:0:-1]) if cue] for left in lefts]
    last = asked(outer)
    if not last and not pair:
        # `What is the length of ...`: the last cue stands in the first phrase.
        last = inner[0].pop() if inner[0] else ""
    chains = tuple(
        QuestionChain(name, tuple([*cues, last][-MOST_HOPS:] if last else cues[:MOST_HOPS]))
        for name, cues in zip(names[:2], inner, strict=False)
    )
    return ParsedQuestion(text, ("polar" if polar else "choice") if pair else "chain", chains, WANTED.get(last, "name"))


def _masked(text: str, names: Sequence[str]) -> tuple[str, list[str]]:
    """Return a text with a mark in place of each of its outermost names, and these names in order."""
    taken: list[tuple[int, int]] = []
    for name in sorted(names, key=len, reverse=True):
        place = text.find(name)
        if place >= 0 and all(place >= end or place + len(name) <= start for start, end in taken):
            taken.append((place, place + len(name)))
    said, end = [], 0
    for start, stop in sorted(taken):
        said.append(text[end:start])
        end = stop
    return _NAME.join([*said, text[end:]]), [text[start:stop] for start, stop in sorted(taken)]


class Sentence(NamedTuple):
    """A sentence of a passage: its text, its cue, and what it names."""

    text: str
    cue: str
    named: tuple[str, ...]


class NotedPassage:
    """A passage as it was read. Compared by identity.

    Attributes:
        title: as it was shown.
        sentences: of the text.
        names: the words of each of its names: of the title without its qualifier, and of others that it gives.
        qualifier: the words in brackets behind the title.
    """

    __slots__ = ("names", "qualifier", "sentences", "title")

    def __init__(self, title: str, text: str) -> None:
        found = _QUALIFIER.match(title)
        self.title = title
        self.qualifier = words_of(found[2]) if found else frozenset()
        self.sentences = tuple(Sentence(one, told(one), _named(one)) for one in _SENTENCE.split(text))
        others = [name for one in self.sentences if one.cue == "alias" for name in one.named]
        others += re.findall(r"\((\w+)\)", self.sentences[0].text)
        self.names = frozenset(map(words_of, [found[1] if found else title, *others]))

    def is_of(self, name: str) -> bool:
        """Return whether the passage is about what has this name."""
        return words_of(name) in self.names or words_of(name) == words_of(self.title)

    def is_part(self, name: str) -> bool:
        """Return whether a name is one of the passage's subject, or a part of one."""
        words = words_of(name)
        return any(words <= one for one in self.names) or words == words_of(self.title)

    def told(self, cue: str) -> list[Sentence]:
        """Return the sentences with a cue."""
        return [one for one in self.sentences if one.cue == cue]


def _named(sentence: str) -> tuple[str, ...]:
    read = read_text(sentence)
    # The first word has a capital letter in any case.
    names = [name for name in read.names if " " in name or not sentence.startswith(name)]
    return (*read.numbers, *(names or read.names), *read.words)


@lru_cache(maxsize=1 << 13)
def _page(title: str, text: str) -> NotedPassage:
    return NotedPassage(title, text)


class SearchNotes:
    """What is known at one moment. Compared by identity.

    Attributes:
        asked: the question as it was read.
        tried: the queries that were searched for, in order.
        latest: the passages of the last search.
        pages: all passages, those of the last search first, none twice.
        ways: for each chain, the passages at its steps: those of its start, those that the first cue leads to, and so
            on; empty from where a passage was not found.
    """

    __slots__ = ("asked", "latest", "pages", "tried", "ways")

    def __init__(self, question: str, told: Sequence[tuple[str, str]]) -> None:
        self.asked = read_question(question)
        self.tried = tuple(query for query, _ in told)
        shown = [[_page(*found) for found in _DOCUMENT.findall(observation)] for _, observation in told]
        self.latest = tuple(shown[-1]) if shown else ()
        self.pages = tuple(dict.fromkeys(page for pages in reversed(shown) for page in pages))
        self.ways = tuple(self._way(chain) for chain in self.asked.chains)

    def _way(self, chain: QuestionChain) -> tuple[tuple[NotedPassage, ...], ...]:
        names = {chain.start: words_of(self.asked.text)}
        way: list[tuple[NotedPassage, ...]] = []
        for place, cue in enumerate(chain.cues):
            here = self._about(names, cue)
            way.append(here)
            names = {}
            for page in here if place + 1 < len(chain.cues) else ():
                for sentence in page.told(cue):
                    names |= {name: words_of(sentence.text) for name in sentence.named if not page.is_part(name)}
        return tuple(way)

    def _about(self, names: dict[str, frozenset[str]], cue: str) -> tuple[NotedPassage, ...]:
        """Return the passages about one of the names; where there are several, those that fit better."""
        found = [
            (page.qualifier <= context, bool(page.told(cue)), page)
            for page in self.pages
            for name, context in names.items()
            if page.is_of(name)
        ]
        best = max(((fits, tells) for fits, tells, _ in found), default=None)
        return tuple(dict.fromkeys(page for fits, tells, page in found if (fits, tells) == best))

    def shows(self, name: str) -> bool:
        """Return whether a passage about this was shown."""
        return any(page.is_of(name) for page in self.pages)

    def verdict(self) -> str:
        """Return how the first of two compares with the second: `less`, `more`, `same`, `other`, or `open`."""
        values = [self._value(number) for number in range(len(self.ways))]
        if len(values) < 2 or not all(values):
            return "open"
        if self.asked.wants in ("year", "number", "date"):
            first, second = min(values[0]), min(values[1])
            return "less" if first < second else "more" if first > second else "same"
        return "same" if values[0] & values[1] else "other"

    def _value(self, number: int) -> frozenset[tuple[object, ...]]:
        """Return what the passages say about the last cue of a chain."""
        chain, way = self.asked.chains[number], self.ways[number]
        if not chain.cues or len(way) < len(chain.cues):
            return frozenset()
        found: set[tuple[object, ...]] = set()
        for page in way[-1]:
            for sentence in page.told(chain.cues[-1]):
                for name in sentence.named:
                    shape = shape_of(name)
                    if shape == self.asked.wants and not page.is_part(name):
                        found.add(_rank(name, shape))
        return frozenset(found)


_MONTHS = [month.lower() for month in MONTHS]
_MONTH = f"({'|'.join(_MONTHS)})"
_DATE = re.compile(rf"(\d{{1,2}}) {_MONTH} (\d{{3,4}})|{_MONTH} (\d{{1,2}}), (\d{{3,4}})", re.IGNORECASE)


def _rank(name: str, shape: str) -> tuple[object, ...]:
    if shape == "date" and (found := _DATE.fullmatch(name)):
        day, month, year = (found[1], found[2], found[3]) if found[1] else (found[5], found[4], found[6])
        return int(year), _MONTHS.index(month.lower()), int(day)
    if shape in ("year", "number") and (number := _NUMBER.match(name)):
        return (float(number[0].replace(",", "").rstrip(".")),)
    return tuple(sorted(words_of(name)))


def shape_of(text: str) -> str:
    """Return what a text looks like: `date`, `year`, `number`, `word` or `name`."""
    if _DATE.fullmatch(text):
        return "date"
    if re.fullmatch(r"[12]?\d\d\d", text):
        return "year"
    if _NUMBER.match(text):
        return "number"
    return "word" if text.islower() and " " not in text else "name"


@lru_cache(maxsize=1 << 12)  # all attempts that have seen the same so far share the notes
def _noted(question: str, told: tuple[tuple[str, str], ...]) -> SearchNotes:
    return SearchNotes(question, told)


def notes_of(view: PromptContext) -> SearchNotes:
    """Return what the episode has told until now."""
    told = []
    for turn in view.episode.turns:
        verb, query = read_action(turn.action)
        if turn.action_valid and verb == "search":
            told.append((query, turn.next_observation))
    return _noted(view.info["goal"], tuple(told))

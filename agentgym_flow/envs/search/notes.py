"""Notes on an episode, extracted from the question, the queries and the observations only.

A question is parsed into one or two *chains*: a name and the facts that are asked of it, from the inside out. `Who was
the teacher of the author of "Tarn"?` starts at Tarn and asks for its maker, then for the teacher. Patterns map phrases
to *cues*, the facts they are about: `mayor` and `was led by` both have the cue `mayor`. So they find the sentences of
passages that state the facts of a chain. The extraction is heuristic: it can misread a sentence, and miss facts in
unknown wording.

The patterns invert the templates of the generated articles and questions, and work less well on other texts. They
contain no names or facts, and use neither the generated world nor its answers. A policy with these notes does not learn
to understand text; it learns decisions: what to search for, and when to answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from agentgym_flow.envs.search.candidates import MONTHS, begins_polar, proposed_queries, read_text
from agentgym_flow.envs.search.game import read_action
from agentgym_flow.prompts import PromptContext

LONGEST_QUESTION = 2000
"""Only this many characters of a question are parsed."""

MOST_HOPS = 4
"""The largest number of cues in a chain; others are dropped."""

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
    """Return the words of a name in lower case; articles and `of` do not count, so two forms of a name may be equal."""
    return frozenset(_WORD.findall(text.casefold())) - _IDLE


class QuestionChain(NamedTuple):
    """A chain of facts that a question asks for.

    Attributes:
        start: the name at which the chain starts.
        cues: the fact that is asked of the name, the fact that is asked of its value, and so on. The last cue is what
            the question asks for.
    """

    start: str
    cues: tuple[str, ...]


class ParsedQuestion(NamedTuple):
    """A parsed question.

    Attributes:
        text: the question.
        kind: `chain` for one chain; for two, `choice` (which of two) or `polar` (yes or no).
        chains: one or two chains; none if no name was found.
        wants: the shape of the value that the last cue asks for: `name`, `year`, `date`, `number` or `word`.
    """

    text: str
    kind: str
    chains: tuple[QuestionChain, ...]
    wants: str


@lru_cache(maxsize=4096)
def read_question(text: str) -> ParsedQuestion:
    """Parse a question. Never raises: a question that is not understood becomes a chain without cues."""
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
    inner = [[cue for cue in map(cue_of_question, left[:0:-1]) if cue] for left in lefts]
    last = cue_of_question(outer)
    if not last and not pair:
        # As in `What is the length of ...`: the first phrase has the last cue.
        last = inner[0].pop() if inner[0] else ""
    chains = tuple(
        QuestionChain(name, tuple([*cues, last][-MOST_HOPS:] if last else cues[:MOST_HOPS]))
        for name, cues in zip(names[:2], inner, strict=False)
    )
    return ParsedQuestion(text, ("polar" if polar else "choice") if pair else "chain", chains, WANTED.get(last, "name"))


def _masked(text: str, names: Sequence[str]) -> tuple[str, list[str]]:
    """Return a text with its outermost names replaced by `_NAME`, and these names in order."""
    spans: list[tuple[int, int]] = []
    for name in sorted(names, key=len, reverse=True):
        start = text.find(name)
        if start >= 0 and all(start >= end or start + len(name) <= other for other, end in spans):
            spans.append((start, start + len(name)))
    spans.sort()
    ends = [0, *(end for _, end in spans)]
    between = [text[end:start] for end, (start, _) in zip(ends, spans, strict=False)]
    return _NAME.join([*between, text[ends[-1] :]]), [text[start:end] for start, end in spans]


class Sentence(NamedTuple):
    """A sentence of a passage: its text, its cue, and the names, numbers and words that may be a value."""

    text: str
    cue: str
    mentions: tuple[str, ...]


class NotedPassage:
    """A parsed passage. Compared by identity.

    Attributes:
        title: the title as shown.
        sentences: the sentences of the text.
        names: for each name of the subject, its words: the title without its qualifier, and aliases in the text.
        qualifier: the words in parentheses after the title.
    """

    __slots__ = ("names", "qualifier", "sentences", "title")

    def __init__(self, title: str, text: str) -> None:
        found = _QUALIFIER.match(title)
        self.title = title
        self.qualifier = words_of(found[2]) if found else frozenset()
        self.sentences = tuple(map(read_sentence, _SENTENCE.split(text)))
        others = [name for one in self.sentences if one.cue == "alias" for name in one.mentions]
        others += re.findall(r"\((\w+)\)", self.sentences[0].text)
        self.names = frozenset(map(words_of, [found[1] if found else title, *others]))

    def is_about(self, name: str) -> bool:
        """Return whether the subject of the passage has this name."""
        return words_of(name) in self.names or words_of(name) == words_of(self.title)

    def is_own_name(self, name: str) -> bool:
        """Return whether `name` is a name of the passage's subject, or a part of one."""
        words = words_of(name)
        return any(words <= one for one in self.names) or words == words_of(self.title)

    def sentences_about(self, cue: str) -> list[Sentence]:
        """Return the sentences with this cue."""
        return [one for one in self.sentences if one.cue == cue]


def read_sentence(text: str) -> Sentence:
    """Parse a sentence of a passage."""
    read = read_text(text)
    # The capital letter of the first word does not indicate a name.
    names = [name for name in read.names if " " in name or not text.startswith(name)]
    return Sentence(text, cue_of_sentence(text), (*read.numbers, *(names or read.names), *read.words))


_page = lru_cache(maxsize=1 << 13)(NotedPassage)


class SearchNotes:
    """The notes at one step. Compared by identity.

    Attributes:
        question: the parsed question.
        tried: the queries made so far, in order.
        pages: all passages, those of the last search first, without repetitions.
        paths: for each chain, the passages at its steps: those about its start, those that the first cue leads to, and
            so on. After the first step without a passage, all are empty.
    """

    __slots__ = ("pages", "paths", "question", "tried")

    def __init__(self, question: str, searches: Sequence[tuple[str, str]]) -> None:
        self.question = read_question(question)
        self.tried = tuple(query for query, _ in searches)
        shown = [[_page(*found) for found in _DOCUMENT.findall(observation)] for _, observation in searches]
        self.pages = tuple(dict.fromkeys(page for pages in reversed(shown) for page in pages))
        self.paths = tuple(self._path(chain) for chain in self.question.chains)

    def _path(self, chain: QuestionChain) -> tuple[tuple[NotedPassage, ...], ...]:
        names = {chain.start: words_of(self.question.text)}
        way: list[tuple[NotedPassage, ...]] = []
        for place, cue in enumerate(chain.cues):
            here = self._about(names, cue)
            way.append(here)
            names = {}
            for page in here if place + 1 < len(chain.cues) else ():
                for sentence in page.sentences_about(cue):
                    names |= {name: words_of(sentence.text) for name in sentence.mentions if not page.is_own_name(name)}
        return tuple(way)

    def _about(self, names: dict[str, frozenset[str]], cue: str) -> tuple[NotedPassage, ...]:
        """Return the passages about one of the names; if several are, those that match best."""
        found = [
            (page.qualifier <= context, bool(page.sentences_about(cue)), page)
            for page in self.pages
            for name, context in names.items()
            if page.is_about(name)
        ]
        best = max(((fits, tells) for fits, tells, _ in found), default=None)
        return tuple(dict.fromkeys(page for fits, tells, page in found if (fits, tells) == best))

    def shows(self, name: str) -> bool:
        """Return whether a passage about this name was shown."""
        return any(page.is_about(name) for page in self.pages)

    def verdict(self) -> str:
        """Return how the two values of a comparison relate: `less`, `more`, `same`, `other`, or `open` if unknown."""
        values = [self._value(number) for number in range(len(self.paths))]
        if len(values) < 2 or not all(values):
            return "open"
        if self.question.wants in ("year", "number", "date"):
            first, second = min(values[0]), min(values[1])
            return "less" if first < second else "more" if first > second else "same"
        return "same" if values[0] & values[1] else "other"

    def _value(self, number: int) -> frozenset[tuple[object, ...]]:
        """Return the sort keys of the values that the passages state for the last cue of a chain."""
        chain, way = self.question.chains[number], self.paths[number]
        if not chain.cues or len(way) < len(chain.cues):
            return frozenset()
        found: set[tuple[object, ...]] = set()
        for page in way[-1]:
            for sentence in page.sentences_about(chain.cues[-1]):
                for name in sentence.mentions:
                    shape = shape_of(name)
                    if shape == self.question.wants and not page.is_own_name(name):
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
    """Return the shape of a text: `date`, `year`, `number`, `word` or `name`."""
    if _DATE.fullmatch(text):
        return "date"
    if re.fullmatch(r"[12]?\d\d\d", text):
        return "year"
    if _NUMBER.match(text):
        return "number"
    return "word" if text.islower() and " " not in text else "name"


_cached_notes = lru_cache(maxsize=1 << 12)(SearchNotes)  # attempts with the same turns share their notes


def notes_of(policy_input: PromptContext) -> SearchNotes:
    """Return the notes on the episode so far."""
    searches = []
    for turn in policy_input.episode.turns:
        verb, query = read_action(turn.action)
        if turn.action_valid and verb == "search":
            searches.append((query, turn.next_observation))
    return _cached_notes(policy_input.info["goal"], tuple(searches))


_CUES = {
    "alias": r"some texts say|another name for|older sources have the name|name .* is found as well|also known as",
    "died": r"\bdied?\b|lived? until|last year of|until which year",
    "birthday": (
        r"\bborn (on|earlier|before)\b|\bwhen (was|were)\b.*\bborn\b|\bday\b.*\bborn\b|date of birth|day of birth"
        r"|into the world"
    ),
    "birthplace": r"\bborn\b|birthplace|city of birth|native (city|town|place)|was a child of",
    "capital": r"\bcapital\b|seat of government|governed",
    "summit": r"highest|tallest|no summit|greatest height",
    "stream": r"longest|no river",
    "currency": r"currency|\bpay with|own money",
    "students": r"\bstudents\b|enrolled",
    "staff": r"employees|employ\b|employs\b|payroll|fewer people",
    "population": r"inhabitants|census|population|how many people",
    "area": r"square kilometres|\barea\b|surface|\bextent\b",
    "length": r"\bkilometres\b|how long|\blength\b|\bshorter\b|from spring to mouth",
    "height": r"\bmetres\b|how high|\bheight of\b|\blower\b",
    "teacher": r"\bcraft\b|\bpupil\b|apprentice|\bteacher\b|\bmentor\b",
    "honours": r"named after|\bnamed\?|after whom|keeps the memory|\bhonours?\b|honoured by|namesake",
    "award": r"received?\b|honoured with|award was|award did|award given to|prize received|given .*applause|same award",
    "giver": r"given by|\bpresents\b|in the gift of|university behind|university is .*given",
    "married": r"marri(ed|age)|marry|spouse|wife|husband",
    "alma mater": r"studied|\bstudy\b|took a degree|student at|attend(ed)?\b|that taught|alma mater",
    "founder": r"endowed|owes? .*foundation|established with|\bstarted\b|idea of|whose idea|founder|who founded",
    "mayor": r"\bmayor\b",
    "surveyor": r"\bmap(ped)?\b|surveyed",
    "climber": r"first (to )?(climbed|stand|stood)|first ascent|to climb|climber|climbed it",
    "organiser": r"organis|chaired|was opened by",
    "designer": r"designed|architect of|the architect|building of .* is by|\bplans\b",
    "captain": r"captain|\bsail(ed)?\b|\bcommand(ed)?\b",
    "builder": r"\bbuilder\b|\bbuilt\b|\bhull\b|\byard\b",
    "publisher": r"publisher|brought out|\bproduced\b|\b(studio|label) of\b|\bissued\b|same (studio|label)",
    "setting": (
        r"set in|setting|\bshot in|place of shooting|first night|recorded in|place of recording|plays in the city"
    ),
    "museum": r"\bhangs?\b|is kept in|wants to see|museum that|museum owns",
    "maker": (
        r"\bauthor\b|\bwrote\b|written|director (of|behind)|\bdirected\b|singer (of|behind)|\brecorded\b"
        r"|composer (of|behind)|composed|painter (of|behind)|\bpainted\b|is a work of|the (singer|composer)"
        r"|the (director|painter)"
    ),
    "council": r"administered|\bcouncil\b|chief town|administrative seat",
    "source": r"\brises? on|springs|begins as|source of|\brise\b",
    "river": r"\bbanks?\b|grew up along|\bquays\b|crossed by|crosses|flows through|which river does|same river",
    "home": r"\bits seat\b|\bbased\b|its home|main building|where one finds|home city|seat of",
    "host": r"took place|take place|\bheld in\b|\bhost(ed)?\b|city of $|city of the $",
    "within": (
        r"\blies in|is found in|by way of|belongs? to|part of|region in|that contains|country around|region (around|of)"
        r"|which (region|country)|same (region|country)"
    ),
}
_READ = {cue: re.compile(pattern, re.IGNORECASE) for cue, pattern in _CUES.items()}
_TELLS_TIME = re.compile(r"\b(?:1[0-9]|20|[7-9])\d\d\b(?![,.]\d)|\b[7-9]\d\d\b(?![,.]\d)")
_ASKS_TIME = re.compile(r"\b(which|what) year\b|\bwhen\b|\bsince when\b|\bearlier\b|\bbefore\b", re.IGNORECASE)

TIME = "time"
"""The cue for the time of an event; births and deaths have their own cues."""

CUES = (*_CUES, TIME)
"""All cues. If several match a text, the first one counts."""

WANTED: Mapping[str, str] = {
    "birthday": "date",
    "currency": "word",
    **dict.fromkeys(("died", TIME), "year"),
    **dict.fromkeys(("students", "staff", "population", "area", "length", "height"), "number"),
}
"""Cue -> the shape of its value; other cues ask for a name."""

_QUOTED = re.compile(r'"[^"]*"')
_OWN_TIME = ("alias", "died", "birthday", *(cue for cue, shape in WANTED.items() if shape == "number"))


def cue_of_sentence(sentence: str) -> str:
    """Return the cue of a sentence of an article; the empty string if it has none."""
    sentence = _QUOTED.sub('""', sentence)  # titles can contain any words
    cue = _first(sentence)
    return TIME if cue not in _OWN_TIME and _TELLS_TIME.search(sentence) else cue


def cue_of_question(words: str) -> str:
    """Return the cue of a part of a question; the empty string if it has none."""
    cue = _first(words)
    return TIME if cue not in _OWN_TIME and _ASKS_TIME.search(words) else cue


def _first(text: str) -> str:
    return next((cue for cue, pattern in _READ.items() if pattern.search(text)), "")

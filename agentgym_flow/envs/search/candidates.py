"""Proposes searches and answers from the observations: the question and the retrieved passages.

The proposals use no right answers, index or list of entities. Every proposal occurs in a shown text, except `yes` and
`no` for questions that begin like a yes-or-no question. Extracted are

- names: sequences of capitalised words, joined by up to two lower-case words as in `University of Tarn`, and then also
  their parts; and text in double quotation marks. A leading function word is not part of a name.
- dates, years, and numbers with a following unit.
- a lower-case word between `the` and a comma or full stop, as in `people pay with the crown.`

Names require a script with capital letters. Proposals keep the spelling of the text and have a fixed order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from agentgym_flow.core import MAX_CANDIDATES
from agentgym_flow.envs.search.game import one_line
from agentgym_flow.retrieval.corpus import Passage

_NAMES = "January February March April May June July August September October November December"
MONTHS = tuple(_NAMES.split())
"""The English names of the months, in order. `calendar.month_name` depends on the locale of the machine."""

MOST_SEARCHES = 28
"""The number of searches among the candidates if there are enough answers to fill the rest."""

LONGEST = 80
"""The largest number of characters in a name."""

_WORD = re.compile(r"[^\W_]+(?:['\u2019&-][^\W_]+)*")
_QUOTED = re.compile(rf'"([^"]{{1,{LONGEST}}})"|\u201c([^\u201c\u201d]{{1,{LONGEST}}})\u201d')
_MONTH = f"(?:{'|'.join(MONTHS)})"
_NUMBER = re.compile(
    rf"\b(\d{{1,2}} {_MONTH} \d{{3,4}}|{_MONTH} \d{{1,2}}, \d{{3,4}})\b"  # a date
    r"|(?<![\w.,-])(\d{1,15}(?:,\d{3}){0,5}(?:\.\d{1,9})?)((?: square| cubic)? [a-z]+)?(?![\w-])"
)
_NAMED_LAST = re.compile(r"\bthe ([^\W\d_]{2,40})[.,;]")
_SMALL = (
    "a about after all also although an and another are around as at be because before between both but by can could "
    "did do does during each for from had has have he her his how however i if in into is it its later many may most "
    "much no not of on one or other over she since so some such than that the their then there these they this those "
    "through to under until up was we were what when where whether which while who whom whose why will with would yet "
    "you"
)
_JOINS = "of the de la le du des di da del van von der den for in on at to"
_ASKS = "are is was were do does did has have had can could will would"
_FUNCTION_WORDS, _JOINING, _POLAR = (frozenset(words.split()) for words in (_SMALL, _JOINS, _ASKS))
_NO_NAMES = _FUNCTION_WORDS.union(map(str.lower, MONTHS))


class ExtractedTerms(NamedTuple):
    """The names, numbers (including dates) and lower-case words extracted from a text, each in text order."""

    names: tuple[str, ...]
    numbers: tuple[str, ...]
    words: tuple[str, ...]


def candidates(
    question: str,
    passages: Sequence[Passage],
    tried: Sequence[str] = (),
    *,
    last: bool = False,
    most: int = MAX_CANDIDATES,
) -> list[str]:
    """Return between 1 and `most` different actions: searches first, then answers.

    Args:
        question: the question as shown.
        passages: the passages as shown; their order determines the order of the candidates.
        tried: earlier queries, which are not proposed again.
        last: whether only an answer is valid.
        most: the largest number of candidates, at least 2.
    """
    answers = proposed_answers(question, passages)
    queries = [] if last else proposed_queries(question, passages, tried)
    room = max(min(most - 1, MOST_SEARCHES), most - len(answers))
    searches = [f"search[{query}]" for query in queries[:room]]
    return [*searches, *(f"answer[{answer}]" for answer in answers[: most - len(searches)])]


def proposed_queries(question: str, passages: Iterable[Passage], tried: Sequence[str] = ()) -> list[str]:
    """Return queries: the question, its names, and the title and names of each passage, without those in `tried`."""
    asked = one_line(question)
    known = {query.casefold() for query in tried}
    found = [asked, *read_text(asked).names]
    for passage in passages:
        found += [passage.title, *read_text(passage.text).names]
    return [query for query in _different(found) if query.casefold() not in known]


def proposed_answers(question: str, passages: Sequence[Passage]) -> list[str]:
    """Return at least one answer: `yes` and `no` for yes-or-no questions, terms of the passages, terms of the question.

    If there are none, the question itself is the answer.
    """
    asked = one_line(question)
    found = ["yes", "no"] if begins_polar(asked) else []
    mine = read_text(asked)
    rest: list[str] = []
    for passage in passages:
        read = read_text(passage.text)
        found += [passage.title, *read.numbers, *read.names]
        rest += read.words
    # `Which of two` asks for names of the question, or for titles of passages.
    if " or " in asked:
        found = [*mine.names, *(passage.title for passage in passages), *found]
    return list(_different([*found, *rest, *mine.names, *mine.numbers])) or [asked or "unknown"]


def begins_polar(question: str) -> bool:
    """Return whether a question begins like a yes-or-no question."""
    first = _WORD.search(question)
    return first is not None and first[0].lower() in _POLAR


def _different(texts: Iterable[str]) -> Iterator[str]:
    seen = set()
    for text in texts:
        if text and text.casefold() not in seen:
            seen.add(text.casefold())
            yield text


@lru_cache(maxsize=1 << 12)
def read_text(text: str) -> ExtractedTerms:
    """Extract the terms of a text, without repetitions."""
    quoted = [one_line(match[1] or match[2]) for match in _QUOTED.finditer(text)]
    numbers: list[str] = []
    for date, number, unit in _NUMBER.findall(text):
        if date:
            numbers += [date, date.rpartition(" ")[2]]
        else:
            known_unit = unit and unit.split()[0] not in _FUNCTION_WORDS
            numbers += [f"{number}{unit}", number] if known_unit else [number]
    words = (word for word in _NAMED_LAST.findall(text) if word.islower())
    return ExtractedTerms(
        tuple(_different([*quoted, *_names(text)])), tuple(_different(numbers)), tuple(_different(words))
    )


def _names(text: str) -> Iterator[str]:
    """Yield the names in a text: whole runs, and after a run with joining words also its parts."""
    for run in _runs(text):
        while run and run[0][0].lower() in _FUNCTION_WORDS and text[run[0][2] : run[0][2] + 1] != ".":
            run = run[1:]
        parts: list[list[tuple[str, int, int]]] = [[]]
        for word in run:
            if word[0][0].isupper():
                parts[-1].append(word)
            elif parts[-1]:
                parts.append([])
        for part in [run, *parts] if len(parts) > 1 else [run]:
            name = text[part[0][1] : part[-1][2]] if part else ""
            if 1 < len(name) <= LONGEST and (len(part) > 1 or name.lower() not in _NO_NAMES):
                yield name


def _runs(text: str) -> Iterator[list[tuple[str, int, int]]]:
    """Yield runs of (word, start, end): capitalised words with up to two joining words between them."""
    run: list[tuple[str, int, int]] = []
    joining: list[tuple[str, int, int]] = []
    for match in _WORD.finditer(text):
        word, end = match[0], joining[-1][2] if joining else run[-1][2] if run else 0
        gap = text[end : match.start()]
        initial = bool(run) and not joining and len(run[-1][0]) == 1 and gap == ". "  # `A. Voss`
        if run and gap != " " and not initial:
            yield run
            run, joining = [], []
        if word[0].isupper():
            run, joining = [*run, *joining, (word, *match.span())], []
        elif run and word in _JOINING and len(joining) < 2:
            joining.append((word, *match.span()))
        elif run:
            yield run
            run, joining = [], []
    if run:
        yield run

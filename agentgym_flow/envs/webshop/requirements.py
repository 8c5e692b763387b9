"""What an instruction requires (phrases, options, and a price limit), and the queries that its words suggest.

Instructions in WebShop's own format name their options (`with color: navy, and size: small`). In other sentences the
options are among the words, and only a product page shows which words are options.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from agentgym_flow.core import Stream
from agentgym_flow.retrieval.analyser import analyse

MOST_PHRASES = 8
"""The largest number of phrases; the rest of an instruction is ignored."""

_PRICE = re.compile(r",? and price lower than (?P<limit>\d{1,9}(?:\.\d{1,9})?) dollars\.?$")
_OPTIONS = re.compile(r" with (?=(?:(?! with )[^:,.]){1,40}: )")
_NEXT_OPTION = re.compile(r", and (?=[^:]{1,40}: )")
_WORD = re.compile(r"[\w'&.%/-]*\w")
_BETWEEN = re.compile(
    r"[,;:!?()]+|\.(?!\d)|\b(?:with|for|and|or|that|which|who|is|are|be|being|has|have|having|comes?)\b",
    re.IGNORECASE,
)
_SMALL_WORDS = (
    "a about also am an and any are as asked at be below buy can could dad daughter do does dollars find finds for "
    "friend from get give great have having he hello help hi husband i i'd i'll i'm if in is it its just less like "
    "look looking lower me mine mom my need needs neighbor of on one or pair please prefer price purchase searching "
    "see she should show sister brother some somebody someone something son such take than that the their them there "
    "these they this those to too under want wanted wants which wife will with would you your"
)
_POLITE = frozenset(_SMALL_WORDS.split())
_SMALL_TERMS = frozenset(analyse(_SMALL_WORDS))
_MARKS = re.compile(r"[,;:!?()|\n]+|\.(?!\d)| - ")
_NAMES_OF_OPTIONS = frozenset(("color", "colour", "flavor", "flavour", "scent", "size", "style"))


class Parts(NamedTuple):
    """The parts of an instruction.

    Attributes:
        plain: the text without options and price.
        options: the named options, as pairs (name, value) in lower case.
        limit: the price limit in dollars; infinite if there is none.
    """

    plain: str
    options: tuple[tuple[str, str], ...]
    limit: float


@lru_cache(maxsize=4096)
def sentence_parts(instruction: str) -> Parts:
    """Split an instruction into its parts. Never raises: text in an unknown format is plain."""
    found = _PRICE.search(instruction)
    limit = float(found["limit"]) if found else float("inf")
    plain, *rest = _OPTIONS.split(_PRICE.sub("", instruction), maxsplit=1)
    pairs = []
    for text in _NEXT_OPTION.split(rest[0]) if rest else ():
        name, _, value = text.partition(": ")
        pairs.append((name.strip().lower(), value.strip().lower()))
    return Parts(plain, tuple(pairs), limit)


def content_words(text: str) -> list[str]:
    """Return the words of a text in lower case, without function words and repetitions."""
    words = (word.lower() for word in _WORD.findall(text))
    return list(dict.fromkeys(word for word in words if word not in _POLITE))


@lru_cache(maxsize=4096)
def phrases_of(instruction: str) -> tuple[tuple[str, ...], ...]:
    """Return the required phrases as words: `leak proof`, `tea tree shampoo`, `dry hair`.

    Phrases are separated by punctuation and words such as `with`, `for` and `that`. The phrase that names the product
    includes preceding adjectives without a comma, which cannot be distinguished from the name.
    """
    parts = sentence_parts(instruction)
    found = []
    for piece in _BETWEEN.split(parts.plain):
        words = content_words(piece)
        if not parts.options:
            words = [word for word in words if word not in _NAMES_OF_OPTIONS]
        if words:
            found.append(tuple(words))
    return tuple(dict.fromkeys(found))[:MOST_PHRASES]


class GoalRequirements:
    """A parsed instruction, to be compared with pages. Created by `requirements_of`; compared by identity.

    Attributes:
        instruction: the instruction.
        phrases: the number of required phrases.
        options: the named options, as pairs (name, value) in lower case.
        limit: the price limit in dollars; infinite if there is none.
    """

    def __init__(self, instruction: str) -> None:
        self.instruction = instruction
        parts = sentence_parts(instruction)
        self.options, self.limit = parts.options, parts.limit
        self._plain = f" {' '.join(term for unit in units_of(parts.plain) for term in unit)} "
        self._last: dict[str, int] = {}
        self._anywhere: dict[str, int] = {}
        self._pairs: dict[tuple[str, str], int] = {}
        phrases = [[term for unit in units_of(" ".join(phrase)) for term in unit] for phrase in phrases_of(instruction)]
        self._terms = tuple(tuple(terms) for terms in phrases if terms)
        bits: list[int] = []
        for terms in self._terms:
            bits.append(self._enter(terms, sum(map(int.bit_count, bits))))
        self._bits = tuple(bits)
        self.phrases = len(bits)

    def _enter(self, terms: Sequence[str], first: int) -> int:
        """Assign bits from `first` on to the terms of a phrase, and return the bits of all of them."""
        for place, (one, other) in enumerate(pairwise(terms), first):
            for pair in ((one, other), (other, one)):  # `gluten free` is `free of gluten`
                self._pairs[pair] = self._pairs.get(pair, 0) | 3 << place
        for place, term in enumerate(terms, first):
            self._anywhere[term] = self._anywhere.get(term, 0) | 1 << place
        # The last term needs no neighbour, because the terms before it do, and so does the phrase.
        self._last[terms[-1]] = self._last.get(terms[-1], 0) | 1 << first + len(terms) - 1
        return (1 << len(terms)) - 1 << first

    def known_from(self, texts: Iterable[str]) -> int:
        """Return, as bits, the terms that texts contain next to a neighbour in the phrase, or alone between commas."""
        known = 0
        for text in texts:
            for unit in units_of(text):
                if len(unit) == 1:
                    known |= self._anywhere.get(unit[0], 0)
                    continue
                before = ""
                for term in unit:
                    known |= self._last.get(term, 0) | self._pairs.get((before, term), 0)
                    before = term
        return known

    def known_among(self, texts: Iterable[str]) -> int:
        """Return, as bits, the terms of the phrases whose terms all occur anywhere in the texts.

        For the options of a product: `3 piece` under the heading `set size` satisfies `3 piece set`.
        """
        terms = {term for text in texts for unit in units_of(text) for term in unit}
        return sum(bits for bits, phrase in zip(self._bits, self._terms, strict=True) if terms.issuperset(phrase))

    def lacking(self, known: int) -> int:
        """Return the number of phrases with a term that is not known."""
        return sum(known & bits != bits for bits in self._bits)

    def wants(self, name: str, value: str) -> bool:
        """Return whether an option, in lower case, is required: by name, or by words anywhere in the sentence.

        If the name is unknown and equal to the value, every required option with this value matches.
        """
        if self.options:
            return any(wanted == value and name in (asked, value) for asked, wanted in self.options)
        terms = [term for unit in units_of(value) for term in unit]
        return bool(terms) and f" {' '.join(terms)} " in self._plain

    def lacks_option(self, shown: Iterable[str]) -> bool:
        """Return whether the texts, in lower case, lack the value of a named option."""
        values = set(shown)
        return any(value not in values for _, value in self.options)


@lru_cache(maxsize=1 << 14)
def units_of(text: str) -> tuple[tuple[str, ...], ...]:
    """Return the parts of a text between punctuation marks, as terms without function words."""
    units = (tuple(term for term in analyse(unit) if term not in _SMALL_TERMS) for unit in _MARKS.split(text))
    return tuple(unit for unit in units if unit)


@lru_cache(maxsize=1024)
def requirements_of(instruction: str) -> GoalRequirements:
    """Return the requirements of an instruction. Never raises."""
    return GoalRequirements(instruction)


MOST_PROPOSALS = 4
"""The largest number of proposals."""

_BRACKETS = re.compile(r"[\[\]]")


@lru_cache(maxsize=4096)
def proposals(instruction: str) -> tuple[str, ...]:
    """Return up to `MOST_PROPOSALS` different queries for an instruction, without brackets, most promising first.

    These are the instruction without price and options; the same with options; its longest phrase, which usually names
    the product; and the other phrases.
    """
    parts = sentence_parts(instruction)
    phrases = phrases_of(instruction)
    longest = max(phrases, key=len, default=())
    queries = (
        content_words(parts.plain),
        content_words(f"{parts.plain} {' '.join(f'{name} {value}' for name, value in parts.options)}"),
        longest,
        [word for phrase in phrases if phrase is not longest for word in phrase],
    )
    cleaned = (" ".join(_BRACKETS.sub(" ", " ".join(query)).lower().split()) for query in queries)
    # An instruction without content words still gives one query.
    return tuple(dict.fromkeys(query for query in cleaned if query)) or ("product",)


def random_query(instruction: str, rng: Stream) -> str:
    """Return one to five different words of an instruction, drawn with `rng`, in their original order."""
    words = content_words(instruction) or list(proposals(instruction))
    chosen = set(rng.sample(words, min(len(words), 1 + rng.below(5))))
    return " ".join(word for word in words if word in chosen)


def most_relevant(clicks: Sequence[str], instruction: str, most: int) -> list[str]:
    """Return `most` of the clicks, in order: the buttons, and those that share the most words with the instruction."""
    wanted = set(content_words(instruction))

    def shared(place: int) -> tuple[int, int]:
        return -len(wanted.intersection(content_words(clicks[place]))), place

    # The buttons come first on a page, and are required for navigation.
    buttons = min(_BUTTONS, most)
    kept = sorted(range(buttons, len(clicks)), key=shared)[: most - buttons]
    return [*clicks[:buttons], *(clicks[place] for place in sorted(kept))]


_BUTTONS = 7  # on a product page with attributes

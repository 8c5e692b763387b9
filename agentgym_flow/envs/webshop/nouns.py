"""Noun taggers for product titles. WebShop's score compares the nouns to check the type of the purchased product.

The original uses spaCy's model `en_core_web_sm`, which no package index offers. The alternative is a simple rule:
nearly every word of a title is a noun. The two differ only for purchases of a product other than the target.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from agentgym_flow._util.sharing import Shared
from agentgym_flow.errors import MissingExtra, UnknownOption

TAGGERS = ("auto", "words", "spacy")
"""The names that `make_tagger` accepts; `spacy` may be followed by a version."""

MODEL = "en_core_web_sm"
"""The spaCy model of the original."""

_CACHED = 1 << 14

# Dotted single letters are one word (D.O.N.); endings of possessives and contractions are dropped.
_WORD = re.compile(r"([^\W\d_](?:\.[^\W\d_]\b)+|[^\W_]+)(?:['’](?:s|t|d|m|ll|re|ve)\b)?")  # noqa: RUF001

_NOT_NOUNS = """
a an the this that these those such
i me my mine myself we us our ours ourselves you your yours yourself yourselves
he him his himself she her hers herself it its itself they them their theirs themselves
who whom whose which what where when why how
all any both each either every few many more most much neither no none other others another same several some
about above across after against along among around as at before behind below beneath beside besides between beyond
by despite down during except for from in inside into like near of off on onto out outside over past per since than
through throughout to toward towards under underneath until up upon via with within without
and but or nor so yet if because although though unless while whether not only too very also just even then there
here now
am is are was were be been being do does did done doing have has had having can could may might must shall should
will would
one two three four five six seven eight nine ten eleven twelve hundred thousand
"""
_FUNCTION_WORDS = frozenset(_NOT_NOUNS.split())


class NounTagger(Shared):
    """Finds the nouns of a text, with a cache.

    Args:
        name: the name for `make_tagger` and in `info`.
        nouns: a function that returns the nouns of a text.
    """

    def __init__(self, name: str, nouns: Callable[[str], Sequence[str]]) -> None:
        self.name = name
        self._nouns = lru_cache(maxsize=_CACHED)(lambda text: tuple(nouns(text)))

    def __call__(self, text: str) -> list[str]:
        """Return the nouns of `text` in lower case and text order, with repetitions."""
        return list(self._nouns(text))

    def __repr__(self) -> str:
        return f"make_tagger({self.name!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return make_tagger, (self.name,)


def make_tagger(name: str = "auto") -> NounTagger:
    """Return the tagger of this name; there is one per process.

    Args:
        name: `words`: all words with a letter, except function words and number words. `spacy`: the model of the
            original; the tagger's name includes its version, because versions differ. `spacy-3.7.1`: the model, only in
            that version. `auto`: the model if it can be loaded, otherwise `words`.

    Raises:
        UnknownOption: the name is unknown.
        MissingExtra: spaCy or the required model is not installed, cannot be loaded, or has another version.
    """
    if name == "auto":
        return _first_that_works()
    if name == "words":
        return _word_tagger()
    kind, dash, version = name.partition("-") if isinstance(name, str) else ("", "", "")
    if kind != "spacy" or (dash and not version):
        raise UnknownOption.among(name, TAGGERS)
    tagger = _spacy_tagger()
    if dash and tagger.name != name:
        raise MissingExtra(
            f"spaCy's model {MODEL} {version} was asked for, {tagger.name.partition('-')[2]} is installed; "
            f"install that version: python -m spacy download {MODEL}-{version} --direct"
        )
    return tagger


@cache
def _first_that_works() -> NounTagger:
    if find_spec("spacy") and find_spec(MODEL):
        with suppress(MissingExtra):
            return _spacy_tagger()
    return _word_tagger()


@cache
def _word_tagger() -> NounTagger:
    return NounTagger("words", _words)


def _words(text: str) -> list[str]:
    words = (match[1].lower() for match in _WORD.finditer(text))
    return [word for word in words if word not in _FUNCTION_WORDS and any(map(str.isalpha, word))]


@cache
def _spacy_tagger() -> NounTagger:
    advice = f"Install it with: pip install spacy; python -m spacy download {MODEL}. noun_tagger='words' needs neither."
    try:
        model = import_module("spacy").load(
            MODEL, exclude=["ner", "lemmatizer"]
        )  # but with the parser, which affects some tags
    except ImportError as error:
        raise MissingExtra(f"spaCy is not installed or does not work ({error}). {advice}") from error
    except (OSError, ValueError) as error:
        raise MissingExtra(f"spaCy cannot load its model {MODEL} ({error}). {advice}") from error

    def nouns(text: str) -> list[str]:
        return [token.text.lower() for token in model(text) if token.pos_ in ("NOUN", "PROPN")]

    return NounTagger(f"spacy-{model.meta['version']}", nouns)

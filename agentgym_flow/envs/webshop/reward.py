"""The score of a purchase: how well it satisfies the goal. The rules are those of WebShop, including its quirks.

The score compares the nouns of two titles to check the type of the product. The original uses spaCy's model
`en_core_web_sm`, which no package index offers. The alternative is a simple rule: nearly every word of a title is a
noun. The two differ only for purchases of a product other than the target.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

from rapidfuzz import fuzz

from agentgym_flow._util.sharing import Shared
from agentgym_flow.envs.webshop.catalogue import Product
from agentgym_flow.envs.webshop.goals import WebShopGoal
from agentgym_flow.errors import MissingExtra, UnknownOption

_THRESHOLD = 85
_LATIN_1_LETTERS = dict.fromkeys(range(128, 256))  # dropped by the original's library: `café` becomes `caf`
_NO_WORD = re.compile(r"\W")


class Score(NamedTuple):
    """The score of a purchase and its parts.

    Attributes:
        total: the score, from 0 to 1.
        r_type: the factor for the type of product: 1 for the right type, otherwise 0.5, 0.1 or 0.
        r_att: the share of the required attributes that the product has.
        r_option: the share of the required options that were chosen; None if there are none.
        r_price: whether the price is within the limit.
        query_match: whether bought and target product have the same query in the data.
        category_match: whether their category paths share two parts.
        title_score: the share of the nouns in the target's title that occur in the product's title.
    """

    total: float
    r_type: float
    r_att: float
    r_option: float | None
    r_price: bool
    query_match: bool
    category_match: bool
    title_score: float


def score(
    product: Product, goal: WebShopGoal, chosen: Mapping[str, str], nouns: Callable[[str], Sequence[str]]
) -> Score:
    """Return the score for buying `product` for `goal`.

    Args:
        product: the purchase.
        goal: the goal.
        chosen: the chosen options, name -> value. The names are ignored, and additional options have no effect.
        nouns: returns the nouns of a title (`nouns.make_tagger`).
    """
    query_match = product.query == goal.query
    category_match = len(_parts(product.product_category) & _parts(goal.product_category)) >= 2
    bought, target = nouns(product.name), nouns(goal.name)
    # Only the denominator counts repeated nouns, so even the target itself may score less than 1.
    title_score = len(set(bought) & set(target)) / len(target) if target else 0.2
    r_type = type_factor(query_match, category_match, title_score)
    texts = (product.name.lower(), " ".join(product.bullets).lower(), product.description.lower())
    attributes_hit = sum(
        any(similar(own, attribute) for own in product.attributes) or any(attribute in text for text in texts)
        for attribute in goal.attributes
    )
    wanted = goal.options.items() if isinstance(goal.options, Mapping) else goal.options
    options_hit = option_hits(wanted, chosen.values())
    r_price = product.price <= goal.price_upper
    attributes, options = len(goal.attributes), len(goal.options)
    return Score(
        total=total(r_type, attributes_hit, attributes, options_hit, options, r_price),
        r_type=r_type,
        r_att=attributes_hit / attributes,
        r_option=options_hit / options if options else None,
        r_price=r_price,
        query_match=query_match,
        category_match=category_match,
        title_score=title_score,
    )


def type_factor(query_match: bool, category_match: bool, title_score: float) -> float:
    """Return the factor for the type of product: 0 for titles without common nouns, even if query or category match."""
    if title_score == 0:
        return 0.0
    if title_score < 0.1:
        return 0.1
    return 1.0 if query_match or category_match or title_score > 0.2 else 0.5


def total(
    r_type: float, attributes_hit: int, attributes: int, options_hit: int, options: int, price_hit: bool
) -> float:
    """Return the score from the numbers of satisfied attributes and options, and whether the price fits."""
    return (attributes_hit + options_hit + price_hit) / (attributes + options + 1) * r_type


def option_hits(wanted: Iterable[str | tuple[str, str]], chosen: Iterable[str]) -> int:
    """Return how many of the required options were chosen.

    Args:
        wanted: values, or pairs (name, value). As in the original, a pair is compared as the string representation of
            the tuple, in which a non-breaking space becomes the word `xa0`. In a pair, a colour counts only if it is
            the whole name or value; in a single value it can be a substring.
        chosen: the chosen values.
    """
    goals = [colour_of(one) if isinstance(one, str) else _colour_in(one) or str(one) for one in wanted]
    values = [colour_of(value) for value in chosen]
    return sum(any(similar(value, goal) for value in values) for goal in goals)


def similar(text: str, other: str) -> bool:
    """Return whether two phrases match: a rounded token set ratio above 85, as in the original."""
    return round(fuzz.token_set_ratio(_processed(text), _processed(other))) > _THRESHOLD


@lru_cache(maxsize=1 << 14)
def _processed(text: str) -> str:
    return _NO_WORD.sub(" ", text.translate(_LATIN_1_LETTERS)).lower().strip()


def _parts(path: str) -> set[str]:
    return {part.strip() for part in path.split("›")}  # noqa: RUF001


_WORDS = """
alabaster apricot aqua ash asphalt azure banana beige black blue blush bordeaux bronze brown burgundy camel camo
caramel champagne charcoal cheetah chestnut chocolate christmas coffee cognac copper coral cranberry cream crystal
dark denim eggplant elephant espresso fuchsia gold granite grape graphite grass gray green grey heather indigo ivory
ivy khaki lavender lemon leopard light lilac lime magenta maroon mauve merlot midnight mint mocha multicolor
mushroom mustard natural navy nude olive orange peach pewter pink plum purple rainbow red rose royal rust sand
sapphire seashell silver skull slate steel stone stonewash sunflower tan taupe teal tiger turquoise violet walnut
wheat white wine yellow
"""
COLOURS = tuple(_WORDS.split())
"""102 words in alphabetical order. The first match counts: `dark grey` is `dark`, and `navy blue` is `blue`."""


@lru_cache(maxsize=1 << 14)
def colour_of(value: str) -> str:
    """Return the first colour word that is a substring of `value` (`tan` of `tank`), or `value` if none is."""
    return _colour_in(value) or value


def _colour_in(text: Collection[str]) -> str | None:
    return next((colour for colour in COLOURS if colour in text), None)


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

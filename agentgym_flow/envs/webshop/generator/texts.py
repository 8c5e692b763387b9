"""The texts of the generated shop: the entry of a product in the official files, and requests for it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from agentgym_flow._util.values import read_content
from agentgym_flow.core import Stream
from agentgym_flow.envs.webshop.generator.tables import Family, Feature, Number, ProductDraft

_PATH = " \N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK} "


def title(stream: Stream, family: Family, draft: ProductDraft) -> str:
    """Return the title: brand, thing, features, and details that no goal requires."""
    kind = family.kind
    extras = stream.sample(kind.details, 2)
    if draft.part == "costly":
        extras[0] = stream.choice(family.department.costly)
    if draft.part == "accessory":
        adjectives = " ".join([*being(draft.titled), family.thing])
        return f"{draft.brand} {titled(f'{kind.accessory} {adjectives}{tail(draft.titled)}')}, {extras[0]}"
    pieces = [*extras, draft.fixed and titled(draft.fixed)]
    if draft.near:
        pieces.insert(0, titled(draft.near))
    rest = ", ".join(filter(None, pieces))
    form = stream.below(4)
    if form == 0:  # features as a list after the thing
        headline = titled(", ".join([family.thing, *map(_headline, draft.titled)]))
        return f"{draft.brand} {headline}, {rest}"
    whole = " ".join([*being(draft.titled), family.thing]) + tail(draft.titled)
    if form == 1:
        return f"{titled(whole)} by {draft.brand} - {rest}"
    return f"{draft.brand} {titled(whole)}{', ' if form == 2 else ' - '}{rest}"


def _headline(feature: Feature) -> str:
    return f"for {feature.phrase}" if feature.role == "for" else feature.phrase


def bullets(stream: Stream, family: Family, draft: ProductDraft) -> list[str]:
    """Return the list under "Features": features and notes."""
    notes = list(stream.sample(family.department.notes, 1 + stream.below(2)))
    if draft.part == "accessory":
        return [
            sentence(f"{family.kind.accessory_name} only: the {family.name} on the picture must be bought apart"),
            *notes,
        ]
    notes.insert(0, stream.choice(family.kind.notes))
    loud = stream.below(3) == 0
    stated = [_bullet(feature, loud) for feature in draft.listed]
    if draft.first:
        first = _bullet(draft.first, loud)
    elif draft.lacks:  # in the words of a query, but hyphenated, so that they do not score
        denied = (_DENIALS[lack.role] + hyphenated(lack.phrase) for lack in draft.lacks)
        first = sentence("please note: " + ", ".join(denied))
    else:
        first = notes.pop(0)
    rest = [*stated, *notes]
    stream.shuffle(rest)
    return [first, *rest]


_DENIALS = {"is": "not ", "has": "without ", "for": "not meant for "}


def _bullet(feature: Feature, loud: bool) -> str:
    head = _headline(feature)
    return f"{head.upper()} - {sentence(feature.reason)}" if loud else f"{titled(head)}: {feature.reason}."


def description(stream: Stream, family: Family, draft: ProductDraft) -> str:
    """Return one paragraph; it may be empty if all features are stated elsewhere."""
    if not draft.told and stream.below(3) == 0:
        return ""
    if draft.part == "accessory":
        fits = f"made to fit {family.thing} of nearly every maker"
        return sentence(f"{family.kind.accessory_name} by {draft.brand}, {fits}")
    many = family.number == "many"
    this, they, was, goes = ("these", "they", "were", "go") if many else ("this", "it", "was", "goes")
    opening = stream.choice(
        (
            f"{this} {family.thing} {was} designed by {draft.brand} for people who look twice before they buy",
            f"{draft.brand} offers the {family.name} in many versions, and this is the {family.line} one",
            f"meet the {family.thing} from {draft.brand}, tested by our own families first",
            f"we at {draft.brand} wanted {counted(family.name, family.number)} without fuss, and this is the result",
            f"after many letters from our customers, {draft.brand} made the {family.thing} that they described",
            f"{this} {family.thing} by {draft.brand} {goes} back to a drawing of our founder",
            f"{draft.brand} sells few things, and {this} {family.thing} {was} three years in the making",
        )
    )
    verb = {"is": "are" if many else "is", "has": "come with" if many else "comes with"}
    verb["for"] = "are right for" if many else "is right for"
    told = [
        sentence(f"{they} {verb[feature.role]} {spelled(feature.phrase)}: {feature.reason}") for feature in draft.told
    ]
    closing = stream.choice(("", "", "Thank you for supporting a small workshop.", "A good present, too."))
    return " ".join(filter(None, [sentence(opening), *told, closing]))


def entry(stream: Stream, family: Family, draft: ProductDraft) -> dict[str, Any]:
    """Return the product in the schema of the official products file, without `asin` and `page`."""
    department, kind = family.department, family.kind
    accessory = draft.part == "accessory"
    path = (
        f"{department.path} > Accessories > {titled(kind.accessory_name)}"
        if accessory
        else f"{department.path} > {kind.path}"
    )
    return {
        "name": title(stream, family, draft),
        "brand": draft.brand,
        "full_description": description(stream, family, draft),
        "small_description": bullets(stream, family, draft),
        "pricing": " - ".join(f"${price:.2f}" for price in draft.prices),
        "images": [],
        "product_category": path.replace(" > ", _PATH),
        "customization_options": {
            name.title(): [{"value": value} for value in values] for name, values in draft.options.items()
        },
        "category": department.category,
        "query": family.kind.accessory_name if accessory else kind.query,
    }


_PARAPHRASES = read_content(__package__, "paraphrases.json", dict[str, str])
_STARTS = ("Find me", "Find me", "Get me", "Show me", "I want", "Look for")


def synthetic(stream: Stream, family: Family, draft: ProductDraft) -> dict[str, Any]:
    """Return `instruction` and `instruction_attributes`; the loader adds the options and the price."""
    wanted = _wanted(stream, draft)
    adjectives = ", ".join(being(wanted))
    thing = " ".join(filter(None, [adjectives, family.thing]))
    return {
        "instruction": f"{stream.choice(_STARTS)} {thing}{tail(wanted)}",
        "instruction_attributes": [feature.phrase for feature in wanted],
    }


def human(stream: Stream, family: Family, draft: ProductDraft) -> dict[str, Any]:
    """Return an entry of the file of human instructions, without `asin`."""
    wanted = _wanted(stream, draft)
    # Each option is requested with probability 3/4, and always the one that distinguishes the product.
    chosen = {
        name: stream.choice(values)
        for name, values in draft.options.items()
        if name == draft.needed or stream.below(4) > 0
    }
    said = {option.name: option.said for option in family.kind.options}
    choices = listed([_said(stream.choice(said[name]), value) for name, value in chosen.items()])
    return {
        "instruction": _told(stream, family, wanted, choices),
        "attributes": [feature.phrase for feature in draft.features],
        "options": [f"{name}: {value}" for name, values in draft.options.items() for value in values],
        "instruction_attributes": [feature.phrase for feature in wanted],
        "instruction_options": list(chosen.values()),
    }


def _wanted(stream: Stream, draft: ProductDraft) -> list[Feature]:
    """Draw two or three of the features, including those in the title."""
    features = list(draft.quiet if len(draft.quiet) > 1 and stream.below(4) else draft.features)
    stream.shuffle(features)
    features.sort(key=lambda feature: feature not in draft.titled)
    features = features[: 3 if stream.below(5) else 2]
    stream.shuffle(features)
    return features


def _said(form: str, value: str) -> str:
    """Return the phrase to ask for a value, without doubled words as in `in the adult fit fit`."""
    if value.startswith("with "):
        return value
    spoken = form.format(value).split(" ")
    return " ".join(word for place, word in enumerate(spoken) if not place or word != spoken[place - 1])


def _told(stream: Stream, family: Family, wanted: list[Feature], choices: str) -> str:
    """Return the request as sentences."""
    number = family.number
    they, are, them = ("they", "are", "them") if number == "many" else ("it", "is", "it")
    thing = family.name if stream.below(16) == 0 else family.thing
    # Some phrases are said with the same words in another order: `gluten free`, `free of gluten`.
    is_so = [
        _PARAPHRASES[phrase] if phrase in _PARAPHRASES and stream.below(3) == 0 else phrase for phrase in being(wanted)
    ]
    plain = all(before == after for before, after in zip(is_so, being(wanted), strict=True))
    after = tail(wanted)
    form = stream.below(6 if plain else 4)  # forms 4 and 5 put the phrases before the thing, without paraphrases
    clause = f" that {are} {listed(is_so)}" if is_so else ""
    if form == 0:
        text = f"i'm looking for {counted(thing, number)}{after}{clause}"
        return f"{text}, {choices}" if choices else text
    if form == 1:
        text = f"i need {counted(thing, number)}{after}."
        if is_so:
            text += f" {they} should be {listed(is_so)}."
        return f"{text} i would take {them} {choices}" if choices else text
    if form == 2:
        someone = stream.choice(("my sister", "my dad", "a friend of mine", "my neighbor", "my wife", "my husband"))
        text = f"{someone} asked me for {counted(thing, number)}{clause}{after}"
        return f"{text}. please get {them} {choices}" if choices else text
    if form == 3:
        text = f"do you have {thing}{after}{clause}?"
        return f"{text} i want {them} {choices}" if choices else text
    whole = " ".join(filter(None, [" ".join(is_so), thing])) + after
    if form == 4:
        return f"show me {whole}, {choices} please" if choices else f"show me {whole} please"
    return f"i want to buy {whole}. {choices} would be great" if choices else f"i want to buy {whole}"


_SMALL = frozenset(("a", "an", "and", "at", "by", "for", "from", "in", "of", "on", "or", "per", "the", "to", "with"))
_CAPITALS = "usb hdmi led rfid bpa uv gmo tv pc abs hd diy usda dvd gps"
_SPELLED = {word: word.upper() for word in _CAPITALS.split()} | {
    "usb-c": "USB-C",
    "mm": "mm",
    "2k": "2K",
    "3d": "3D",
    "3x": "3X",
}


@cache
def titled(phrase: str) -> str:
    """Return a phrase in title case: `rfid blocking for travel` becomes `RFID Blocking for Travel`."""
    return " ".join(word if word in _SMALL else "-".join(map(_word, word.split("-"))) for word in phrase.split(" "))


def _word(word: str) -> str:
    return _SPELLED.get(word) or word[:1].upper() + word[1:]


def spelled(phrase: str) -> str:
    """Return a phrase for a sentence: `vitamin c` is unchanged, `usb-c port` becomes `USB-C port`."""
    return " ".join(_SPELLED.get(word, word) for word in phrase.split(" "))


def hyphenated(phrase: str) -> str:
    """Return a phrase as one word. A search still finds it, but the score does not count it as the attribute."""
    return phrase.replace(" ", "-")


def sentence(text: str) -> str:
    """Return `text` with a capital at the start and a full stop at the end."""
    return text[:1].upper() + text[1:] + "."


def listed(items: Sequence[str]) -> str:
    """Return `a`, `a and b`, or `a, b and c`."""
    return " and ".join(filter(None, [", ".join(items[:-1]), *items[-1:]]))


def counted(thing: str, number: Number) -> str:
    """Return a thing with an article or `some`: `a lamp`, `an oven glove`, `some shorts`."""
    if number != "one":
        return "some " + thing
    return ("an " if thing[0] in "aeiou" else "a ") + thing


def tail(features: Sequence[Feature]) -> str:
    """Return the phrase for features of the roles `has` and `for`: ` with a and b for c`; it may be empty."""
    having = [feature.phrase for feature in features if feature.role == "has"]
    purposes = [feature.phrase for feature in features if feature.role == "for"]
    return (" with " + listed(having) if having else "") + (" for " + listed(purposes) if purposes else "")


def being(features: Sequence[Feature]) -> list[str]:
    """Return the phrases of the features of the role `is`."""
    return [feature.phrase for feature in features if feature.role == "is"]

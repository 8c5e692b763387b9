"""The texts of a product: its entry in the official products file."""

from __future__ import annotations

from typing import Any

from agentgym_flow.core import Stream
from agentgym_flow.envs.webshop.generator.draft import Family, ProductDraft
from agentgym_flow.envs.webshop.generator.kinds import Feature
from agentgym_flow.envs.webshop.generator.phrases import being, counted, hyphenated, sentence, spelled, tail, titled

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
        listed = ", ".join([family.thing, *(_headline(feature) for feature in draft.titled)])
        return f"{draft.brand} {titled(listed)}, {rest}"
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
            sentence(f"{_what(family)} only: the {family.name} on the picture must be bought apart"),
            *notes,
        ]
    notes.insert(0, stream.choice(family.kind.notes))
    loud = stream.below(3) == 0
    stated = [_bullet(feature, loud) for feature in draft.listed]
    first = _bullet(draft.first, loud) if draft.first else _denial(draft) if draft.lacks else notes.pop(0)
    rest = [*stated, *notes]
    stream.shuffle(rest)
    return [first, *rest]


_DENIALS = {"is": "not ", "has": "without ", "for": "not meant for "}


def _denial(draft: ProductDraft) -> str:
    """Return a bullet that denies features, in the words of a query, but hyphenated, so that they do not score."""
    return sentence("please note: " + ", ".join(_DENIALS[lack.role] + hyphenated(lack.phrase) for lack in draft.lacks))


def _what(family: Family) -> str:
    """Return the name of the accessory of a family."""
    return family.kind.accessory.removesuffix(" for")


def _bullet(feature: Feature, loud: bool) -> str:
    head = _headline(feature)
    return f"{head.upper()} - {sentence(feature.reason)}" if loud else f"{titled(head)}: {feature.reason}."


def description(stream: Stream, family: Family, draft: ProductDraft) -> str:
    """Return one paragraph; it may be empty if all features are stated elsewhere."""
    if not draft.told and stream.below(3) == 0:
        return ""
    if draft.part == "accessory":
        return sentence(f"{_what(family)} by {draft.brand}, made to fit {family.thing} of nearly every maker")
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
        f"{department.path} > Accessories > {titled(kind.accessory.removesuffix(' for'))}"
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
        "query": _what(family) if accessory else kind.query,
    }

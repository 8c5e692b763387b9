"""The generated shop: its catalogue and requests in the schema of the official files."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from agentgym_flow.core import Stream
from agentgym_flow.envs.webshop.generator.family import draw_family
from agentgym_flow.envs.webshop.generator.tables import DEPARTMENTS, Family, ProductDraft
from agentgym_flow.envs.webshop.generator.texts import entry, human, synthetic

_KEY = "agentgym_flow/WebShop-v0"
_FAMILIES_OF_KIND = 6
_COMBINATIONS = 8  # products with more combinations of options get no synthetic request, to limit the number of goals
_LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class GeneratedShop(NamedTuple):
    """The shop in the official schema, as JSON values.

    Attributes:
        items: the products, as in `items_shuffle.json`.
        attributes: as in `items_ins_v2.json`: ASIN -> `attributes`, and for some products an instruction.
        human: as in `items_human_ins.json`: ASIN -> instructions in human style.
        families: the families of near-duplicates, as lists of ASINs; each product is in one family.
    """

    items: list[dict[str, Any]]
    attributes: dict[str, dict[str, Any]]
    human: dict[str, list[dict[str, Any]]]
    families: list[list[str]]


def shop(season: str = "") -> GeneratedShop:
    """Return the generated shop as a new object, equal on every machine.

    Every season has the same products, but its own requests; `""` selects the standard ones.
    """
    made = GeneratedShop([], {}, {}, [])
    titles: set[str] = set()
    for department in DEPARTMENTS:
        for kind in department.kinds:
            pairs = [(name, line) for name in kind.names for line in kind.lines]
            chosen = Stream(_KEY, "families", kind.query).sample(pairs, min(_FAMILIES_OF_KIND, len(pairs)))
            for name, line in chosen:
                family = Family(department, kind, name, line)
                stream = Stream(_KEY, department.category, kind.query, name, line)
                drafts = draw_family(stream, family)
                made.families.append([_add(made, titles, season, stream, family, draft) for draft in drafts])
    Stream(_KEY, "order").shuffle(made.items)
    for place, item in enumerate(made.items):
        item["page"] = place // 50 + 1
    return made


def _add(
    made: GeneratedShop, titles: set[str], season: str, stream: Stream, family: Family, draft: ProductDraft
) -> str:
    """Add a product and its requests, and return its ASIN."""
    asin = "B0" + "".join(_LETTERS[stream.below(36)] for _ in range(8))
    item = entry(stream, family, draft)
    while item["name"] in titles:
        item = entry(stream, family, draft)
    titles.add(item["name"])
    made.items.append({"asin": asin, **item})
    made.attributes[asin] = {
        "attributes": [feature.phrase for feature in draft.features] or [family.kind.accessory_name]
    }
    if draft.part in ("plain", "other"):
        asked = _requests(stream, family, draft)  # in every season, because the next product continues this stream
        if season:
            asked = _requests(Stream(_KEY, "requests", season, asin), family, draft)
        made.attributes[asin].update(asked[0])
        made.human[asin] = [{"asin": asin, **one} for one in asked[1]]
    return asin


def _requests(stream: Stream, family: Family, draft: ProductDraft) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the synthetic request for a product, which may be empty, and those in human style."""
    built: dict[str, Any] = {}
    if stream.below(4) > 0 and math.prod(map(len, draft.options.values())) <= _COMBINATIONS:
        built = synthetic(stream, family, draft)
    people = 2 if stream.below(4) == 0 else 1
    return built, [human(stream, family, draft) for _ in range(people)]

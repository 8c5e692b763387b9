"""The embedded goals: one generated shop, and three splits of its goals that share no product families.

A family is a group of similar products (`generator/family.py`). The hash of its titles assigns it, and all goals for
its products, to one split. `valid` and `test` have 500 goals each: in random order one goal per product, then a second
one per product, and so on, so that the goals cover as many products as possible.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

from agentgym_flow.core import SPLITS, Stream, canonical, check_split, seasonal
from agentgym_flow.envs.webshop.catalogue import MemoryCatalogue
from agentgym_flow.envs.webshop.generator import shop
from agentgym_flow.envs.webshop.goal_table import KINDS
from agentgym_flow.envs.webshop.goals import Goals
from agentgym_flow.envs.webshop.official import listings_of
from agentgym_flow.errors import UnknownOption

_KEY = "agentgym_flow/WebShop-v0"
_KEPT = 500  # the number of goals in valid and in test
_PARTS = 13  # of 13 families, on average two are in valid and two in test


class _EmbeddedShop(NamedTuple):
    catalogue: MemoryCatalogue
    families: dict[str, tuple[tuple[int, ...], ...]]


@lru_cache(maxsize=4)
def _embedded(season: str) -> _EmbeddedShop:
    made = shop(season)
    numbers = {item["asin"]: number for number, item in enumerate(made.items)}
    families: dict[str, list[tuple[int, ...]]] = {split: [] for split in SPLITS}
    for family in made.families:
        products = tuple(numbers[asin] for asin in family)
        families[split_of([made.items[product]["name"] for product in products])].append(products)
    listings = listings_of(made.items, made.attributes, made.human, where="the embedded shop")
    shared = MemoryCatalogue(listings, made_by=(catalogue, (season,) if season else ()))
    return _EmbeddedShop(shared, {split: tuple(own) for split, own in families.items()})


def split_of(titles: list[str]) -> str:
    """Return the split of a family, determined by the hash of its titles."""
    part = int(sha256("\n".join(titles).encode("ascii")).hexdigest()[:8], 16) % _PARTS
    return "valid" if part < 2 else "test" if part < 4 else "train"


def catalogue(season: str = "") -> MemoryCatalogue:
    """Return the generated shop, created once per process. A season has the same products, but its own requests."""
    return _embedded(season).catalogue


def families(split: str, season: str = "") -> tuple[tuple[int, ...], ...]:
    """Return the families of a split, each as product numbers: the same in all seasons. Raises `UnknownSplit`."""
    return _embedded(season).families[check_split(split, {})]


@lru_cache(maxsize=8)
def tasks(split: str, kind: str, season: str = "") -> tuple[int, ...]:
    """Return the goals of a split in task order: numbers in `Goals(catalogue(season), kind, season)`.

    Raises:
        UnknownSplit: the split is unknown.
        UnknownOption: the kind of goals is unknown.
    """
    check_split(split, {})
    if kind not in KINDS:
        raise UnknownOption.among(kind, KINDS)
    goals = _goals_by_product(split, kind, season)
    stream = Stream(_KEY, "tasks", kind, seasonal(split, season))
    stream.shuffle(goals)
    for own in goals:
        stream.shuffle(own)
    order = [own[turn] for turn in range(max(map(len, goals))) for own in goals if turn < len(own)]
    if split != "train":
        return tuple(order[:_KEPT])
    stream.shuffle(order)
    return tuple(order)


def _goals_by_product(split: str, kind: str, season: str) -> list[list[int]]:
    """Return the numbers of the goals of each product in the families of a split."""
    table = _embedded(season).catalogue.goal_table(kind)
    ends = table.ends.tolist()
    spans = dict(zip(table.products.tolist(), zip([0, *ends], ends, strict=False), strict=True))
    products = [product for family in families(split, season) for product in family]
    return [list(range(*spans[product])) for product in products if product in spans]


def num_tasks(split: str, kind: str) -> int:
    """Return the number of goals of a kind in a split. Raises like `tasks`."""
    return len(tasks(split, kind))


def manifest_digest(split: str, kind: str) -> str:
    """Return the SHA-256, in hex, of the canonical JSON of all goals of a split, each followed by a newline.

    Raises like `tasks`.
    """
    goals = Goals(catalogue(), kind)
    digest = sha256()
    for number in tasks(split, kind):
        goal = goals[number]
        content = [goal.asin, goal.instruction, goal.attributes, goal.options, goal.price_upper]
        digest.update(canonical(content) + b"\n")
    return digest.hexdigest()


DIGEST = "f0782b48ed0a341c0b1d7393f803bbfea4a029f4e8c3355f1f2eb82201e16dea"
"""The recorded digest of the catalogue, over all products and requests in order."""

MANIFEST: dict[str, dict[str, str]] = {
    "synthetic": {
        "train": "cf728aa1d83ef6e6525ab7ea52167ae3dba4aa7288bd883ee6fd0f332daab3af",
        "valid": "262590bf7ee85a0599417cec2624eadb66217bd4eae057fdb2a886e90e0a2ed0",
        "test": "976e31a01ba866cf3942bfc15ae01fd9e379ae7c6486be1bd23df82c1e83fd24",
    },
    "human": {
        "train": "fc851b31deb99218b3a08062befdaf78ddfc0424818e4b79dd46eba24990b3a7",
        "valid": "f604e3a5ad3423c0535a541fdb030737e9353612df1df9401e62fc705e87dce1",
        "test": "b1dc6bd6c943548e7936902e8c1e526ddac8c205dae6ef5c0b79ea95eb2bbab2",
    },
}
"""Kind -> split -> recorded digest. A change of a digest requires a new version of the environment id, because
published results would refer to other goals."""

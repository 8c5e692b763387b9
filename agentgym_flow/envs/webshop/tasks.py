"""The goals of a split: from the embedded shop, official files, or a store of the full catalogue.

The embedded shop is generated, and its three splits share no product families. A family is a group of similar products
(`generator`). The hash of its titles assigns it, and all goals for its products, to one split. `valid` and
`test` have 500 goals each: in random order one goal per product, then a second one per product, and so on, so that the
goals cover as many products as possible.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from agentgym_flow import data as registry
from agentgym_flow._util.files import FileState, state_of, write_atomically
from agentgym_flow._util.records import stream_objects
from agentgym_flow._util.sharing import Shared
from agentgym_flow.core import SPLITS, Stream, canonical, check_positive, check_season, check_split, seasonal
from agentgym_flow.data import DataSet
from agentgym_flow.envs.webshop.catalogue import KINDS, Catalogue, MemoryCatalogue
from agentgym_flow.envs.webshop.generator import shop
from agentgym_flow.envs.webshop.goals import Goals, WebShopGoal, official_order, official_splits
from agentgym_flow.envs.webshop.official import NAMES, OfficialFiles, listings_of, official_files, read_listings
from agentgym_flow.envs.webshop.store import StoredCatalogue, is_store, searched_by_lucene
from agentgym_flow.errors import BadData, BadSetting, UnknownOption

SPLIT_ALIASES = {"dev": "valid", "eval": "valid"}
"""The official names of the splits."""

ENGINES = ("bm25", "pyserini")
"""The search engines."""

LEFT_OUT = "{:,} records left out, as in the original: their ASIN is missing, too long, or another record's"
"""The remark on records that are not products."""

IN_MEMORY = 256 << 20
"""Official files of more bytes than this must be imported into a store."""


class GoalSource(Shared):
    """The goals of one split, and their shop. Copies of an environment share it.

    Args:
        data: a folder of official files, a store, or the name of registered data; None for the embedded shop.
        kind: `"synthetic"` or `"human"`.
        split: `"train"`, `"valid"` or `"test"`, or an official name.
        search: the search engine: `"bm25"` or `"pyserini"`.
        season: the seed of a season of goals in the embedded shop; `""` for the standard ones.
        num_products: use only this number of products of official files.

    Attributes:
        split: the split.
        season: the season.
        data: name -> SHA-256 of the official data in use.
        catalogue: the products.
        num_tasks: the number of goals in the split.
        content: the digest of the embedded shop; "" for official data.

    Raises:
        UnknownOption: `kind` or `search` is unknown.
        UnknownSplit: the split is unknown.
        UnknownData: `data` is neither a path nor a registered name.
        BadSetting: `num_products` or the season does not fit the other arguments.
        BadData: a file is damaged, or the split has no goals of this kind.
    """

    def __init__(
        self,
        *,
        data: str | os.PathLike[str] | DataSet | None = None,
        kind: str = "synthetic",
        split: str = "train",
        search: str = "bm25",
        num_products: int | None = None,
        season: str = "",
    ) -> None:
        if kind not in KINDS:
            raise UnknownOption.among(kind, KINDS)
        if search not in ENGINES:
            raise UnknownOption.among(search, ENGINES)
        if num_products is not None:
            check_positive("num_products", num_products)
            if data is None:
                raise BadSetting("num_products limits official data; the embedded shop is always complete")
        self.split = check_split(split, SPLIT_ALIASES)
        self.season = check_season(season, self.split, "" if data is None else "data")
        self.kind = kind
        self._search = search
        self._num_products = num_products
        self.data: dict[str, str] = {}
        self._found: DataSet | None = None
        if data is None:
            self.catalogue: Catalogue = catalogue()
            self._places: npt.NDArray[np.int64] = np.asarray(tasks(self.split, kind, self.season), np.int64)
        else:
            self._found = registry.resolve(data)
            self.catalogue = official_catalogue(self._found.path, num_products)
            # The digest of the content, because a folder, one of its files and a store of it are the same data.
            self.data = {self._found.name: self.catalogue.digest}
            self._places = _official_places(self.catalogue, kind, self.split)
        if search == "pyserini":
            self.catalogue = searched_by_lucene(self.catalogue)
        self.num_tasks = len(self._places)
        self.content = DIGEST if data is None else ""

    def __reduce__(self) -> tuple[Any, ...]:
        settings: dict[str, Any] = {"kind": self.kind, "split": self.split, "search": self._search}
        settings |= {"num_products": self._num_products, "season": self.season}
        return partial(type(self), data=self._found, **settings), ()

    def goal(self, task: int) -> WebShopGoal:
        """Return goal number `task` of the split."""
        return self._goals[int(self._places[task])]

    def task_of_session(self, session: int) -> int | None:
        """Return the goal of the split with which the original WebShop starts `reset(session)`; None if it has none.

        Sessions count the goals of the whole catalogue in the official order. The embedded shop has no such order.
        """
        total = len(self._goals)
        if not self.data or not 0 <= session < total:
            return None
        found = np.flatnonzero(self._places == _official_order(self.catalogue, self.kind)[session])
        return int(found[0]) if len(found) else None

    def task_type(self, task: int) -> str:
        """Return the coarse category of the product that goal number `task` was made from, such as `"beauty"`."""
        return self.catalogue.listing(self._goals.product_of(int(self._places[task]))).product.category

    @cached_property
    def _goals(self) -> Goals:
        return _shared_goals(catalogue(self.season) if self.season else self.catalogue, self.kind, self.season)

    @cached_property
    def cumulative_weights(self) -> npt.NDArray[np.float64]:
        """(num_tasks,): the cumulative weights of the goals, for a weighted draw."""
        return np.cumsum(self._goals.weights_of(self._places))


_shared_goals = lru_cache(maxsize=8)(Goals)


def official_catalogue(path: Path, num_products: int | None = None) -> Catalogue:
    """Return the catalogue of official files or of a store, shared by all environments of a process.

    Raises:
        BadSetting: `num_products` is given for a store.
        BadData: the files are missing, damaged, or too large to be read without a store.
    """
    if is_store(path):
        if num_products is not None:
            raise BadSetting(f"{path} is a store; num_products is chosen when a store is made")
        return _store(path, registry.content_digest(path))
    files = official_files(path)
    if num_products is None and files.items.stat().st_size > IN_MEMORY:
        raise BadData(
            f"{files.items} is too large to read at every start; make a store of it once, "
            f"with: agentgym-flow data import webshop {shlex.quote(str(path))} FOLDER, and name that folder"
        )
    stamps = tuple(state_of(file) for file in files if file is not None)
    return _read(path, files, stamps, num_products)


def remarks(path: Path) -> Iterator[str]:
    """Yield a report of official files or a store: products and goals, and what is left out. Raises `BadData`."""
    found = official_catalogue(path)
    if isinstance(found, StoredCatalogue):
        left_out = found.left_out
    else:
        left_out = sum(1 for _ in stream_objects(official_files(path).items)) - len(found)
    goals = " and ".join(f"{found.goal_table(kind).total:,} {kind}" for kind in KINDS)
    yield f"played as: {len(found):,} products, {goals} goals"
    yield registry.digests_line({"": found.digest})
    if left_out:
        yield LEFT_OUT.format(left_out)


@lru_cache(maxsize=4)
def _store(path: Path, digest: str) -> Catalogue:
    return StoredCatalogue(path)


@lru_cache(maxsize=4)  # the stamps are part of the key, so changed files are read again
def _read(path: Path, files: OfficialFiles, stamps: tuple[FileState, ...], num_products: int | None) -> Catalogue:
    return MemoryCatalogue(
        read_listings(*files, num_products=num_products), made_by=(official_catalogue, (path, num_products))
    )


def _official_order(catalogue: Catalogue, kind: str) -> npt.NDArray[np.int64]:
    """Return the goals of a kind in the official order: index -> number in catalogue order."""
    stored = catalogue.official_order(kind) if isinstance(catalogue, StoredCatalogue) else None
    return official_order(catalogue.goal_table(kind).total) if stored is None else stored


@lru_cache(maxsize=16)
def _official_places(catalogue: Catalogue, kind: str, split: str) -> npt.NDArray[np.int64]:
    """Return the numbers of the goals of a split, in the official order.

    Goals that are equal to a goal of `test` are dropped from the other splits, and likewise those of `valid` from
    `train`.
    """
    table = catalogue.goal_table(kind)
    splits = official_splits(table.total, len(catalogue))
    order = _official_order(catalogue, kind)
    places = order[splits[split].start : splits[split].stop]
    return places[np.isin(places, _kept_elsewhere(table.repeats, order, splits, split), invert=True)]


def _kept_elsewhere(
    repeats: npt.NDArray[np.int64], order: npt.NDArray[np.int64], splits: Mapping[str, range], split: str
) -> list[int]:
    """Return the goals of a split that are equal to goals of a split with precedence (`_STRICTER`)."""
    members = np.unique(repeats)
    place_of = {int(order[place]): place for place in np.flatnonzero(np.isin(order, members)).tolist()}
    split_of = {goal: next(name for name in splits if place in splits[name]) for goal, place in place_of.items()}
    first_of = {goal: goal for goal in split_of} | dict(repeats.tolist())
    stricter = _STRICTER[split]
    taken = {first_of[goal] for goal, own in split_of.items() if own in stricter}
    return [goal for goal, own in split_of.items() if own == split and first_of[goal] in taken]


_STRICTER = {"train": ("test", "valid"), "valid": ("test",), "test": ()}
"""Split -> the splits that keep a goal that they share with it."""


_KEY = "agentgym_flow/WebShop-v0"
_KEPT = 500  # the number of goals in valid and in test
_PARTS = 13  # of 13 families, on average two are in valid and two in test


@lru_cache(maxsize=4)
def _embedded(season: str) -> tuple[MemoryCatalogue, dict[str, tuple[tuple[int, ...], ...]]]:
    """Return the generated shop, and split -> its families."""
    made = shop(season)
    numbers = {item["asin"]: number for number, item in enumerate(made.items)}
    found: dict[str, list[tuple[int, ...]]] = {split: [] for split in SPLITS}
    for family in made.families:
        products = tuple(numbers[asin] for asin in family)
        found[split_of([made.items[product]["name"] for product in products])].append(products)
    listings = listings_of(made.items, made.attributes, made.human, where="the embedded shop")
    shared = MemoryCatalogue(listings, made_by=(catalogue, (season,) if season else ()))
    return shared, {split: tuple(own) for split, own in found.items()}


def split_of(titles: list[str]) -> str:
    """Return the split of a family, determined by the hash of its titles."""
    part = int(sha256("\n".join(titles).encode("ascii")).hexdigest()[:8], 16) % _PARTS
    return "valid" if part < 2 else "test" if part < 4 else "train"


def catalogue(season: str = "") -> MemoryCatalogue:
    """Return the generated shop, created once per process. A season has the same products, but its own requests."""
    return _embedded(season)[0]


def families(split: str, season: str = "") -> tuple[tuple[int, ...], ...]:
    """Return the families of a split, each as product numbers: the same in all seasons. Raises `UnknownSplit`."""
    return _embedded(season)[1][check_split(split, {})]


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
    table = catalogue(season).goal_table(kind)
    ends = table.ends.tolist()
    spans = dict(zip(table.products.tolist(), zip([0, *ends], ends, strict=False), strict=True))
    products = [product for family in families(split, season) for product in family]
    goals = [list(range(*spans[product])) for product in products if product in spans]  # those of each product
    stream = Stream(_KEY, "tasks", kind, seasonal(split, season))
    stream.shuffle(goals)
    for own in goals:
        stream.shuffle(own)
    order = [own[turn] for turn in range(max(map(len, goals))) for own in goals if turn < len(own)]
    if split != "train":
        return tuple(order[:_KEPT])
    stream.shuffle(order)
    return tuple(order)


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


def export_shop(folder: str | os.PathLike[str]) -> list[Path]:
    """Write the generated shop's products, attributes and human-style instructions as official files.

    Return the paths of the files.

    Reading the files as official data gives the same products and goals, but with the official splits by number.

    Raises `OSError` with the name of the file if it cannot be written.
    """
    made = shop()
    paths = []
    for kind, content in (("items", made.items), ("attributes", made.attributes), ("human", made.human)):
        path = Path(folder) / f"{NAMES[kind]}.json"
        with write_atomically(path) as partial:
            partial.write_text(json.dumps(content, ensure_ascii=False) + "\n", "utf-8")
        paths.append(path)
    return paths

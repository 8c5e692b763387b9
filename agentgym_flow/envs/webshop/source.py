"""The goals of a split: from the embedded shop, official files, or a store of the full catalogue."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from agentgym_flow import data as registry
from agentgym_flow._util.file_state import FileState, state_of
from agentgym_flow._util.records import stream_objects
from agentgym_flow._util.sharing import Shared
from agentgym_flow.core import check_positive, check_season, check_split
from agentgym_flow.data import DataSet
from agentgym_flow.envs.webshop import tasks
from agentgym_flow.envs.webshop.catalogue import Catalogue, MemoryCatalogue
from agentgym_flow.envs.webshop.goal_table import KINDS
from agentgym_flow.envs.webshop.goals import Goals, WebShopGoal, official_order, official_splits
from agentgym_flow.envs.webshop.lucene import searched_by_lucene
from agentgym_flow.envs.webshop.official import OfficialFiles, official_files, read_listings
from agentgym_flow.envs.webshop.store import StoredCatalogue, is_store
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
            self.catalogue: Catalogue = tasks.catalogue()
            self._places: npt.NDArray[np.int64] = np.asarray(tasks.tasks(self.split, kind, self.season), np.int64)
        else:
            self._found = registry.resolve(data)
            self.catalogue = official_catalogue(self._found.path, num_products)
            # The digest of the content, because a folder, one of its files and a store of it are the same data.
            self.data = {self._found.name: self.catalogue.digest}
            self._places = _official_places(self.catalogue, kind, self.split)
        if search == "pyserini":
            self.catalogue = searched_by_lucene(self.catalogue)
        self.num_tasks = len(self._places)
        self.content = tasks.DIGEST if data is None else ""

    def __reduce__(self) -> tuple[Any, ...]:
        settings: dict[str, Any] = {"kind": self.kind, "split": self.split, "search": self._search}
        settings |= {"num_products": self._num_products, "season": self.season}
        return partial(type(self), data=self._found, **settings), ()

    def goal(self, task: int) -> WebShopGoal:
        """Return goal number `task` of the split."""
        return self._goals[int(self._places[task])]

    def category(self, task: int) -> str:
        """Return the coarse category of the product that goal number `task` of the split was made from."""
        return self.catalogue.listing(self._goals.product_of(int(self._places[task]))).product.category

    @cached_property
    def _goals(self) -> Goals:
        return _goals(tasks.catalogue(self.season) if self.season else self.catalogue, self.kind, self.season)

    @cached_property
    def cumulative_weights(self) -> npt.NDArray[np.float64]:
        """(num_tasks,): the cumulative weights of the goals, for a weighted draw."""
        return np.cumsum(self._goals.weights_of(self._places))


@lru_cache(maxsize=8)
def _goals(catalogue: Catalogue, kind: str, season: str) -> Goals:
    return Goals(catalogue, kind, season)


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
    catalogue = official_catalogue(path)
    if isinstance(catalogue, StoredCatalogue):
        left_out = catalogue.left_out
    else:
        left_out = sum(1 for _ in stream_objects(official_files(path).items)) - len(catalogue)
    ends = {kind: catalogue.goal_table(kind).ends for kind in KINDS}
    goals = " and ".join(f"{int(last[-1]) if len(last) else 0:,} {kind}" for kind, last in ends.items())
    yield f"played as: {len(catalogue):,} products, {goals} goals"
    yield registry.digests_line({"": catalogue.digest})
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


@lru_cache(maxsize=16)
def _official_places(catalogue: Catalogue, kind: str, split: str) -> npt.NDArray[np.int64]:
    """Return the numbers of the goals of a split, in the official order.

    Goals that are equal to a goal of `test` are dropped from the other splits, and likewise those of `valid` from
    `train`.
    """
    table = catalogue.goal_table(kind)
    count = int(table.ends[-1]) if len(table.ends) else 0
    splits = official_splits(count, len(catalogue))
    stored = catalogue.official_order(kind) if isinstance(catalogue, StoredCatalogue) else None
    order = official_order(count) if stored is None else stored
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

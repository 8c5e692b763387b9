"""A store on disk: threads, forks, pickles, damage; and records from which every listing comes back."""

from __future__ import annotations

import copy
import json
import multiprocessing
import pickle
import shutil
import sqlite3
import sys
import threading
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_files import PRODUCTS, in_memory, write_files

from agentgym_flow.envs.webshop import store
from agentgym_flow.envs.webshop.catalogue import (
    Catalogue,
    Listing,
    ListingDigest,
    MemoryCatalogue,
    Product,
    ProductRequest,
    listing_of,
    record_of,
)
from agentgym_flow.envs.webshop.goals import Goals
from agentgym_flow.envs.webshop.importing import import_catalogue
from agentgym_flow.envs.webshop.official import official_files
from agentgym_flow.envs.webshop.store import StoredCatalogue, is_store
from agentgym_flow.errors import BadData, BadIndex, UnknownOption


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that no test may change."""
    folder = tmp_path_factory.mktemp("made")
    import_catalogue(*write_files(folder / "official"), folder / "store")
    return folder / "store"


@pytest.fixture(scope="module")
def memory(made: Path) -> MemoryCatalogue:
    return in_memory(official_files(made.parent / "official"))


@pytest.fixture
def mine(made: Path, tmp_path: Path) -> Path:
    """A copy of the store to damage."""
    return Path(shutil.copytree(made, tmp_path / "store"))


words = st.text(max_size=8)
several = st.lists(words, max_size=3).map(tuple)
requests = st.builds(ProductRequest, words, several, several)
products = st.builds(
    Product,
    asin=words,
    name=words,
    description=words,
    bullets=several,
    prices=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=2).map(tuple),
    options=st.dictionaries(words, several, max_size=3),
    attributes=several,
    category=words,
    product_category=words,
    query=words,
    image=words,
)


# ---------------------------------------------------------------- records
@given(st.builds(Listing, products, st.none() | requests, st.lists(requests, max_size=2).map(tuple)))
def test_a_listing_comes_back_from_its_record(listing: Listing) -> None:
    again = listing_of(record_of(listing))
    assert again == listing
    assert list(again.product.options) == list(listing.product.options)  # equal mappings may differ in order
    assert record_of(again) == record_of(listing)
    assert b"\n" not in record_of(listing)


def test_the_digest_is_that_of_the_records_in_order(memory: MemoryCatalogue) -> None:
    digest = ListingDigest()
    for number in range(len(memory)):
        digest.add(record_of(memory.listing(number)))
    assert digest.hexdigest() == memory.digest
    assert memory.digest != MemoryCatalogue(memory.listing(n) for n in range(len(memory) - 1)).digest


@pytest.mark.parametrize("record", [b"", b"[]", b"{}", b"3", b"[[], [], null, []]", b'[["a"], [], null, [[1]]]'])
def test_what_is_no_record_is_an_error(record: bytes) -> None:
    with pytest.raises((ValueError, TypeError, KeyError)):
        listing_of(record)


# ---------------------------------------------------------------- the catalogue
def test_products_are_found_as_in_memory(made: Path, memory: MemoryCatalogue) -> None:
    catalogue: Catalogue = StoredCatalogue(made)
    assert len(catalogue) == PRODUCTS
    assert repr(catalogue) == "<StoredCatalogue of 60 products>"
    assert catalogue.listing(np.int64(7)) == memory.listing(7)  # type: ignore[arg-type]
    assert [goal.instruction for goal in Goals(catalogue, "synthetic")] == [
        goal.instruction for goal in Goals(memory, "synthetic")
    ]
    for number in (-1, PRODUCTS):
        with pytest.raises(IndexError, match=f"there are 60 products, so none has the number {number}"):
            catalogue.listing(number)
    for ask in (catalogue.goal_table, StoredCatalogue(made).official_order):
        with pytest.raises(UnknownOption, match="synthetic, human"):
            ask("humane")


def test_arrays_are_mapped_and_few_listings_are_kept(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "CACHED", 5)
    catalogue = StoredCatalogue(made)
    assert all(isinstance(array.base, np.memmap) for array in catalogue.goal_table("synthetic"))
    assert isinstance(catalogue.official_order("synthetic").base, np.memmap)
    assert not catalogue.official_order("synthetic").flags.writeable
    assert catalogue.listing(3) is catalogue.listing(3)
    for number in range(PRODUCTS):
        catalogue.listing(number)
    assert catalogue._cached.cache_info().currsize == 5


def test_copies_are_the_catalogue_and_a_pickle_is_its_name(made: Path, mine: Path) -> None:
    catalogue = StoredCatalogue(mine)
    assert copy.copy(catalogue) is copy.deepcopy(catalogue) is catalogue
    data = pickle.dumps(catalogue)
    assert len(data) < 500
    again = pickle.loads(data)
    assert (again.digest, again.listing(5)) == (catalogue.digest, catalogue.listing(5))
    assert pickle.loads(data) is again  # all environments of a process share one


def another_store(folder: Path, tmp_path: Path) -> None:
    """Put a store of fewer products in the place of `folder`."""
    folder.rename(tmp_path / "old")
    import_catalogue(*write_files(tmp_path / "official", 20), folder)


def test_a_store_that_was_replaced_is_noticed(mine: Path, tmp_path: Path) -> None:
    catalogue = StoredCatalogue(mine)
    data = pickle.dumps(catalogue)
    seventh = catalogue.listing(7)
    another_store(mine, tmp_path)
    assert catalogue.listing(7) is seventh
    assert catalogue.listing(PRODUCTS - 1).product.asin == "B000000059"  # this thread still has the old files open
    with pytest.raises(BadData, match="is not the one that was pickled; it was replaced since"):
        pickle.loads(data)
    with ThreadPoolExecutor(1) as pool, pytest.raises(BadData, match="was replaced by another since it was opened"):
        pool.submit(catalogue.listing, 11).result()


# ---------------------------------------------------------------- threads and processes
def test_threads_have_connections_of_their_own(
    made: Path, memory: MemoryCatalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "CACHED", 3)  # so that nearly every access goes to the database
    catalogue = StoredCatalogue(made)
    used: set[int] = set()
    together = threading.Barrier(4)

    def read(start: int) -> bool:
        together.wait()
        used.add(id(catalogue._connection()))
        numbers = [(start * 13 + n * 7) % PRODUCTS for n in range(300)]
        return all(catalogue.listing(n) == memory.listing(n) for n in numbers)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(read, range(4)))
    assert len(used) == 4


def read_after_fork(
    catalogue: StoredCatalogue, results: multiprocessing.SimpleQueue[tuple[int, str, list[int]]]
) -> None:
    connection = id(catalogue._connection())
    results.put((connection, catalogue.listing(11).product.asin, catalogue.search("oak 11")))


@pytest.mark.skipif(sys.platform == "win32", reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_opens_a_connection_of_its_own(made: Path) -> None:
    catalogue = StoredCatalogue(made)
    before = catalogue.listing(3)
    parent = catalogue._connection()
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    children = [context.Process(target=read_after_fork, args=(catalogue, results)) for _ in range(3)]
    for child in children:
        child.start()
    found = [results.get() for _ in children]
    for child in children:
        child.join()
    assert all(connection != id(parent) for connection, _, _ in found)
    assert {(asin, tuple(hits)) for _, asin, hits in found} == {("B000000011", tuple(catalogue.search("oak 11")))}
    assert catalogue._connection() is parent
    assert catalogue.listing(3) is before


# ---------------------------------------------------------------- damage
def test_other_folders_are_no_store(tmp_path: Path, made: Path) -> None:
    assert is_store(made)
    assert not is_store(tmp_path)
    assert not is_store(tmp_path / "missing")
    assert not is_store(made / "listings.sqlite")
    (tmp_path / "store.json").write_text("{}")  # somebody else's
    assert not is_store(tmp_path)
    with pytest.raises(BadData, match="there is no store of a catalogue at"):
        StoredCatalogue(tmp_path)


def edit(change: Callable[[dict[str, object]], object]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        page = json.loads((folder / "store.json").read_text())
        change(page)
        (folder / "store.json").write_text(json.dumps(page))

    return apply


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a file is missing": (lambda folder: (folder / "human.ends.npy").unlink(), r"human\.ends\.npy is missing; make"),
    "a file is cut off": (
        lambda folder: (folder / "listings.sqlite").write_bytes(b"x" * 5000),
        r"listings\.sqlite is not the file that .*store\.json states",
    ),
    "no JSON": (lambda folder: (folder / "store.json").write_text("{"), r"store\.json is damaged"),
    "no digest": (edit(lambda page: page.pop("digest")), r"store\.json is damaged \('digest'\)"),
    "a strange digest": (edit(lambda page: page.update(digest="x")), r"store\.json is damaged"),
    "no count": (edit(lambda page: page.pop("documents")), r"store\.json is damaged"),
    "another kind": (edit(lambda page: page.update(agentgym_flow="search")), "there is no store of a catalogue"),
    "another version": (
        edit(lambda page: page.update(format=99)),
        "has format 99, this version reads 2; make it again",
    ),
    "another count": (edit(lambda page: page.update(documents=61)), "the search index of .* belongs to another store"),
    "another index": (edit(lambda page: page.update(index="0" * 64)), "the search index of .* belongs to another"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_store_says_so_when_it_is_opened(name: str, mine: Path) -> None:
    damage, complaint = DAMAGE[name]
    damage(mine)
    with pytest.raises(BadData, match=complaint):
        StoredCatalogue(mine)


def test_a_file_of_another_content_and_the_same_size_is_found(mine: Path) -> None:
    sizes = {file.name: file.stat().st_size for file in mine.iterdir()}
    for name in ("listings.sqlite", "human.ends.npy"):
        sound = (mine / name).read_bytes()
        (mine / name).write_bytes(b"x" * sizes[name])
        with pytest.raises(BadData, match=rf"{name} .*make the store again"):
            StoredCatalogue(mine).listing(0)
        (mine / name).write_bytes(sound)
    assert StoredCatalogue(mine).listing(0).product.asin == "B000000000"


@pytest.mark.parametrize("record", [b"no zlib", zlib.compress(b"no record")])
def test_a_damaged_record_is_found_when_it_is_read(record: bytes, mine: Path) -> None:
    with closing(sqlite3.connect(mine / "listings.sqlite")) as database, database:
        database.execute("UPDATE listings SET record = ? WHERE number = 5", (record,))
    catalogue = StoredCatalogue(mine)
    assert catalogue.listing(4).product.asin == "B000000004"
    with pytest.raises(BadData, match=r"product 5 of .*listings\.sqlite is damaged"):
        catalogue.listing(5)
    with pytest.raises(BadData, match=r"listings\.sqlite (is damaged|does not have the digest)"):
        catalogue.verify()


def test_verifying_finds_what_opening_does_not_look_at(mine: Path, memory: MemoryCatalogue) -> None:
    StoredCatalogue(mine).verify()
    with closing(sqlite3.connect(mine / "listings.sqlite")) as database, database:
        swapped = zlib.compress(record_of(memory.listing(6)))
        database.execute("UPDATE listings SET record = ? WHERE number = 5", (swapped,))
    with pytest.raises(BadData, match="does not have the digest that it was made with"):
        StoredCatalogue(mine).verify()


@pytest.mark.parametrize("name", ["index/saturations.npy", "synthetic.order.npy", "human.weights.npy"])
def test_verifying_reads_the_index_and_the_tables(name: str, mine: Path) -> None:
    file = mine / name
    sound = file.read_bytes()
    file.write_bytes(sound[:-1] + bytes([sound[-1] ^ 1]))
    with pytest.raises((BadData, BadIndex), match=f"{file.name} (is not the file|does not have the digest)"):
        StoredCatalogue(mine).verify()

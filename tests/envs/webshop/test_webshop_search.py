"""Search ranks as the original's own index does: the same 50 products in the same order, with the same scores."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from store_files import item, write_files

from agentgym_flow.envs.webshop.catalogue import HITS, Catalogue, MemoryCatalogue
from agentgym_flow.envs.webshop.importing import import_catalogue
from agentgym_flow.envs.webshop.official import OfficialFiles, official_files, read_listings
from agentgym_flow.envs.webshop.store import LuceneCatalogue
from agentgym_flow.retrieval.lucene import LuceneIndex


def memory(files: OfficialFiles, _: Path) -> Catalogue:
    return MemoryCatalogue(read_listings(*files))


def stored(files: OfficialFiles, folder: Path) -> Catalogue:
    return import_catalogue(*files, folder / "store")


def lucene(files: OfficialFiles, folder: Path) -> Catalogue:
    pytest.importorskip("pyserini")
    if shutil.which("java") is None:
        pytest.skip("Java is not installed")
    products = memory(files, folder)
    documents = ((listing.product.asin, listing.product.index_text) for listing in read_listings(*files))
    return LuceneCatalogue(products, LuceneIndex.build(documents, folder / "lucene"))


MAKERS = [memory, stored, pytest.param(lucene, marks=pytest.mark.nightly)]


def asins(catalogue: Catalogue, query: str) -> list[str]:
    return [catalogue.listing(number).product.asin for number in catalogue.search(query)]


@pytest.mark.parametrize("make", MAKERS)
def test_all_fifty_are_those_of_the_original_index(
    make: Callable[[OfficialFiles, Path], Catalogue], sample_data: Path, tmp_path: Path
) -> None:
    folder = sample_data / "webshop"
    recorded = json.loads((folder / "upstream_ref" / "rankings.json").read_text("utf-8"))
    expected = {query: hits for kind in recorded.values() for query, hits in kind.items()}
    assert len(expected) == 319
    catalogue = make(official_files(folder), tmp_path)
    for query, hits in expected.items():
        assert asins(catalogue, query) == [asin for asin, _ in hits]
        if isinstance(catalogue, MemoryCatalogue):
            scores = [hit.score for hit in catalogue._index.search(query, HITS)]
            # Recorded as Anserini prints them: with four decimals, less a millionth for each equal one before.
            differences = [round(ours, 4) - theirs for ours, (_, theirs) in zip(scores, hits, strict=True)]
            assert all(-2e-6 < difference < HITS * 1e-6 for difference in differences)


@pytest.mark.parametrize("make", MAKERS)
def test_products_of_equal_score_come_in_the_order_of_their_asins(
    make: Callable[[OfficialFiles, Path], Catalogue], tmp_path: Path
) -> None:
    names = ["B9", "B10", "A7", "B1", "B2"]
    files = write_files(tmp_path / "files", 1)
    files.items.write_text(json.dumps([{**item(1), "asin": name} for name in names]), "utf-8")
    catalogue = make(files, tmp_path)
    assert asins(catalogue, "oak table") == ["A7", "B1", "B10", "B2", "B9"]
    assert [catalogue.number_of(name.lower()) for name in names] == [0, 1, 2, 3, 4]
    with pytest.raises(KeyError):
        catalogue.number_of("B3")

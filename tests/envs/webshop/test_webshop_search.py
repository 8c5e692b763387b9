from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentgym_flow.envs.webshop.catalogue import HITS, MemoryCatalogue
from agentgym_flow.envs.webshop.official import official_files, read_listings


@pytest.fixture(scope="module")
def catalogue(sample_data: Path) -> MemoryCatalogue:
    """The official 1,000 products."""
    return MemoryCatalogue(read_listings(*official_files(sample_data / "webshop")))


@pytest.mark.parametrize("name", ["q_human_queries", "q_instr"])
def test_products_come_in_the_order_of_lucene(catalogue: MemoryCatalogue, sample_data: Path, name: str) -> None:
    folder = sample_data / "webshop" / "lucene_ref"
    queries = (folder / f"{name}.txt").read_text().splitlines()
    reference = [[asin for asin, _ in hits] for hits in json.loads((folder / f"ref_1k_{name}.json").read_text())]
    assert len(queries) == len(reference) == 150
    first, overlap = [], []
    for query, expected in zip(queries, reference, strict=True):
        found = [catalogue.listing(number).product.asin for number in catalogue.search(query)]
        assert len(found) <= HITS
        first.append(found[:1] == expected[:1])
        overlap.append(len({*found[:10]} & {*expected[:10]}) / len(expected[:10]) if expected else not found)
    assert sum(first) / 150 >= 0.99
    assert sum(overlap) / 150 >= 0.99

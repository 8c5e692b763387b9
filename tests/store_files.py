"""Official files that the tests of stores import: few products, and every peculiarity that an import must survive."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from agentgym_flow.envs.webshop.catalogue import MemoryCatalogue
from agentgym_flow.envs.webshop.official import OfficialFiles, read_listings

PRODUCTS = 60


def item(number: int) -> dict[str, Any]:
    """Return a record; some have options, a range of prices, letters of other scripts."""
    options = {"Size": ["S", "M/L", "XL"], "Color": ["red", "dark blue"]} if number % 3 == 0 else {}
    return {
        "asin": f"B{number:09d}",
        "name": f"Oak Table {number % 7} f\u00fcr {number}",
        "full_description": "A table." if number % 2 else None,
        "small_description": ["solid \u4e2d wood", "round"],
        "pricing": "$15.99 - $32.99" if number % 5 == 0 else f"${number}.50",
        "customization_options": {name: [{"value": value} for value in values] for name, values in options.items()},
        "category": "garden",
        "product_category": "Home \u203a Furniture",
        "query": f"Tables {number % 4}",
        "images": ["https://images.invalid/1.jpg"],
        "brand": "left out",
    }


def write_files(folder: Path, products: int = PRODUCTS) -> OfficialFiles:
    """Write products with a repeated ASIN, one in another case, and one that is too long; attributes; requests."""
    records = [item(number) for number in range(products)]
    records[10:10] = [item(3), {**item(4), "asin": "b000000004"}, {**item(5), "asin": "too long an asin"}]
    known: dict[str, Any] = {
        f"B{number:09d}": {"attributes": [f"attribute {number % 5}", "oak"]} for number in range(products - 5)
    }
    for number in range(0, products - 5, 2):
        asked = {"instruction": f"i want table {number}", "instruction_attributes": [f"attribute {number % 5}"]}
        known[f"B{number:09d}"] |= asked
    requests = {
        f"B{number:09d}": [
            {"instruction": "get it.", "instruction_attributes": ["oak"], "instruction_options": ["xl"]},
            {"instruction": "no attribute", "instruction_attributes": [], "instruction_options": []},
        ]
        for number in range(0, products, 9)
    }
    folder.mkdir(parents=True, exist_ok=True)
    files = OfficialFiles(folder / "items_shuffle.json", folder / "items_ins_v2.json", folder / "items_human_ins.json")
    files.items.write_text(json.dumps(records, ensure_ascii=False), "utf-8")
    assert files.attributes is not None
    assert files.human is not None
    files.attributes.write_text(json.dumps(known), "utf-8")
    files.human.write_text(json.dumps(requests), "utf-8")
    return files


def in_memory(files: OfficialFiles, num_products: int | None = None) -> MemoryCatalogue:
    """Return the catalogue that a store of these files must be equal to."""
    return MemoryCatalogue(read_listings(*files, num_products=num_products))


def contents(folder: Path) -> dict[str, str]:
    """Return the digest of every file of a store, the database aside: how it is laid out on disk may vary."""
    return {
        file.relative_to(folder).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in folder.rglob("*")
        if file.is_file() and file.name not in ("listings.sqlite", "store.json")
    }

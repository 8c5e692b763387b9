from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agentgym_flow._util.records import stream_objects
from agentgym_flow.cli.app import app
from agentgym_flow.envs.webshop.catalogue import Listing, MemoryCatalogue, Product
from agentgym_flow.envs.webshop.official import (
    OfficialFiles,
    listings_of,
    official_files,
    read_listings,
    read_side_file,
)
from agentgym_flow.envs.webshop.store import StoredCatalogue
from agentgym_flow.errors import BadData


def record(asin: str = "B000000001", **changes: Any) -> dict[str, Any]:
    fields = {
        "asin": asin,
        "name": "Oak Table",
        "full_description": "A table.",
        "small_description": ["solid", "round"],
        "pricing": "$12.50",
        "customization_options": "",
        "category": "garden",
        "product_category": "Home \u203a Furniture",
        "query": " Tables ",
        "images": ["https://images.invalid/1.jpg", "https://images.invalid/2.jpg"],
        "brand": "left out",
    }
    return {key: value for key, value in {**fields, **changes}.items() if value is not ...}


def listings(*items: dict[str, Any], attributes: Any = (), human: Any = ()) -> list[Listing]:
    return list(listings_of(items, dict(attributes), dict(human), where="items.json"))


def product_of(**changes: Any) -> Product:
    (listing,) = listings(record(**changes))
    return listing.product


def test_the_fields_of_a_record_become_a_product() -> None:
    (listing,) = listings(record(), attributes={"B000000001": {"attributes": ["solid wood"]}})
    assert listing == Listing(
        Product(
            asin="B000000001",
            name="Oak Table",
            description="A table.",
            bullets=("solid", "round"),
            prices=(12.5,),
            options={},
            attributes=("solid wood",),
            category="garden",
            product_category="Home \u203a Furniture",
            query="tables",
            image="https://images.invalid/1.jpg",
        )
    )
    assert listing.product.index_text == "oak table a table. solid "


@pytest.mark.parametrize(
    ("pricing", "prices", "tag"),
    [
        ("", (100.0,), "$100.0"),
        (None, (100.0,), "$100.0"),
        (..., (100.0,), "$100.0"),
        ("$34.00", (34.0,), "$34.0"),
        ("$877.80", (877.8,), "$877.8"),
        ("$1,234.56", (1234.56,), "$1234.56"),
        ("$15.99 - $32.99", (15.99, 32.99), "$15.99 to $32.99"),
        ("$15.99$32.99", (15.99, 32.99), "$15.99 to $32.99"),
        ("from $7 to $9.50 each", (7.0, 9.5), "$7.0 to $9.5"),
        ("$1.00 - $2.00 - $3.00", (1.0, 2.0), "$1.0 to $2.0"),
        ("US 5 $12.00", (12.0,), "$12.0"),
        ("$9 - $9", (9.0, 9.0), "$9.0 to $9.0"),
        ("$0.00", (0.0,), "$0.0"),
    ],
)
def test_prices_of_every_form_are_read_with_their_tag(pricing: Any, prices: tuple[float, ...], tag: str) -> None:
    product = product_of(pricing=pricing)
    assert product.prices == prices
    assert product.price_tag == tag
    assert min(prices) <= product.price <= max(prices)


def test_options_are_written_as_the_pages_write_them() -> None:
    values = [{"value": " Red/Blue ", "image": None}, {"value": "GREEN"}, {"value": "green"}]
    options = {"Color": values, "Hidden": None, "Size": [{"value": "7"}], "Empty": []}
    assert product_of(customization_options=options).options == {
        "color": ("red | blue", "green", "green"),
        "size": ("7",),
        "empty": (),
    }
    assert list(product_of(customization_options=options).options) == ["color", "size", "empty"]
    for nothing in ("", None, {}):
        assert product_of(customization_options=nothing).options == {}


def test_of_two_options_with_one_name_the_later_wins_in_the_place_of_the_first() -> None:
    options = {"Size": [{"value": "S"}], "Color": [{"value": "Red"}], "SIZE": [{"value": "L"}]}
    product = product_of(customization_options=options)
    assert list(product.options.items()) == [("size", ("l",)), ("color", ("red",))]


def test_bullets_may_be_one_text() -> None:
    assert product_of(small_description="with tea").bullets == ("with tea",)
    assert product_of(small_description="").bullets == ("",)
    assert product_of(small_description=None).bullets == ()
    assert product_of(small_description=[]).bullets == ()


def test_a_missing_description_or_image_is_empty_text() -> None:
    assert product_of(full_description=None).description == ""
    for nothing in ([], None, ..., [None], [""]):
        assert product_of(images=nothing).image == ""


def test_attributes_come_from_their_file_or_are_the_dummy() -> None:
    items = [record(f"B00000000{n}") for n in range(4)]
    attributes = {
        "B000000000": {"attributes": ["a", "b"]},
        "B000000001": {"attributes": []},
        "B000000002": {"instruction": None},
    }
    found = [listing.product.attributes for listing in listings(*items, attributes=attributes)]
    assert found == [("a", "b"), (), ("DUMMY_ATTR",), ("DUMMY_ATTR",)]


def test_a_synthetic_request_needs_an_instruction_and_attributes() -> None:
    items = [record(f"B00000000{n}") for n in range(5)]
    attributes = {
        "B000000000": {"attributes": ["a"], "instruction": "Find me tables", "instruction_attributes": ["a", "b"]},
        "B000000001": {"attributes": ["a"], "instruction": "Find me tables", "instruction_attributes": []},
        "B000000002": {"attributes": ["a"]},
        "B000000003": {"attributes": ["a"], "instruction": None, "instruction_attributes": None},
    }
    found = [listing.synthetic for listing in listings(*items, attributes=attributes)]
    assert found == [("Find me tables", ("a", "b"), ()), None, None, None, None]


def test_human_requests_without_attributes_are_left_out() -> None:
    def asked(text: str, attributes: list[str], options: list[str]) -> dict[str, Any]:
        return {"instruction": text, "instruction_attributes": attributes, "instruction_options": options, "asin": "x"}

    human = {
        "B000000001": [asked("one", ["a"], ["xl"]), asked("two", [], ["s"]), asked("three.", ["b", "c"], [])],
        "B0UNKNOWN1": [asked("nobody sells it", ["a"], [])],
    }
    first, second = listings(record(), record("B000000002"), human=human)
    assert first.human == (("one", ("a",), ("xl",)), ("three.", ("b", "c"), ()))
    assert second.human == ()


def test_unusable_and_repeated_asins_are_left_out_unread() -> None:
    items = [
        {"asin": "nan"},
        record("B000000001", name="first"),
        {"asin": "B0000000012"},
        {"asin": "B000000001", "name": 7},
        {"asin": "b000000001"},
        record("B2", name="second"),
    ]
    assert [listing.product.name for listing in listings(*items)] == ["first", "second"]


def test_half_characters_are_replaced() -> None:
    text = json.loads('"Oak \\ud83d Table \\ud83d\\ude00 \\u00e9"')
    assert product_of(name=text).name == "Oak \N{REPLACEMENT CHARACTER} Table \U0001f600 é"
    assert product_of(customization_options={text: [{"value": text}]}).index_text.encode()


DAMAGE = [
    ({"asin": ...}, "asin", "is missing"),
    ({"asin": 7}, "asin", "must be str, found 7"),
    ({"asin": " "}, "asin", "must not be empty"),
    ({"name": ...}, "name", "is missing"),
    ({"name": None}, "name", "must be str, found None"),
    ({"full_description": ["x"]}, "full_description", "must be str | null"),
    ({"small_description": [1]}, "small_description", "must be str"),
    ({"small_description": {"a": 1}}, "small_description", "must be str"),
    ({"small_description": ...}, "small_description", "is missing"),
    ({"pricing": "12.50"}, "pricing", "one or two amounts such as $12.50, got '12.50'"),
    ({"pricing": "$"}, "pricing", "one or two amounts"),
    ({"pricing": "$5 - $"}, "pricing", "one or two amounts"),
    ({"pricing": "$1.2.3"}, "pricing", "one or two amounts"),
    ({"pricing": "$" + "9" * 400}, "pricing", "one or two amounts"),
    ({"pricing": 12.5}, "pricing", "must be str | null, found 12.5"),
    ({"pricing": ["$5"]}, "pricing", "must be str"),
    ({"customization_options": "red"}, "customization_options", "must be one of ''"),
    ({"customization_options": ...}, "customization_options", "is missing"),
    ({"customization_options": {"color": "red"}}, "customization_options", "must be list | null, found 'red'"),
    ({"customization_options": {"color": ["red"]}}, "customization_options", "must be object, found 'red'"),
    ({"customization_options": {"color": [{"image": "x"}]}}, "value", "is missing"),
    ({"customization_options": {"color": [{"value": 4}]}}, "value", "must be str, found 4"),
    ({"category": ...}, "category", "is missing"),
    ({"product_category": None}, "product_category", "must be str"),
    ({"query": 1}, "query", "must be str"),
    ({"images": "https://images.invalid"}, "images", "must be list"),
    ({"images": [{"url": 1}]}, "images[0]", "must be str | null"),
]


@pytest.mark.parametrize(("changes", "field", "problem"), DAMAGE, ids=[f"{n}-{row[1]}" for n, row in enumerate(DAMAGE)])
def test_a_damaged_record_is_named_with_file_record_and_field(
    changes: dict[str, Any], field: str, problem: str
) -> None:
    with pytest.raises(BadData) as caught:
        listings(record("B000000000"), record(**changes))
    message = str(caught.value)
    assert "items.json: record 1" in message
    assert field in message
    assert problem in message
    assert field == "asin" or "(B000000001)" in message


@pytest.mark.parametrize(
    ("attributes", "human", "problem"),
    [
        ({"B000000001": []}, {}, "attributes of B000000001: must be object"),
        ({"B000000001": {"attributes": "tea"}}, {}, "attributes of B000000001: field 'attributes' must be list"),
        ({"B000000001": {"instruction": 5}}, {}, "'instruction' must be str"),
        ({"B000000001": {"instruction": "x"}}, {}, "'instruction_attributes' is missing"),
        ({}, {"B000000001": {"instruction": "x"}}, "human instructions of B000000001: must be list"),
        ({}, {"B000000001": ["x"]}, "human instructions of B000000001: field '[0]' must be object"),
        ({}, {"B000000001": [{"instruction": "x"}]}, "field '[0].instruction_attributes' is missing"),
    ],
)
def test_a_damaged_side_file_is_named_with_the_product(attributes: Any, human: Any, problem: str) -> None:
    with pytest.raises(BadData) as caught:
        listings(record(), attributes=attributes, human=human)
    assert problem in str(caught.value)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of official files of four records, two of which are listed."""
    items = [record("B1"), record("B1"), record("nan"), record("B2")]
    (tmp_path / "items_shuffle_4.json").write_text(json.dumps(items))
    attributes = {"B1": {"attributes": ["a"], "instruction": "Find me tables", "instruction_attributes": ["a"]}}
    (tmp_path / "items_ins_v2_4.json").write_text(json.dumps(attributes))
    human = {"B2": [{"instruction": "i want it", "instruction_attributes": ["b"], "instruction_options": []}]}
    (tmp_path / "items_human_ins.json").write_text(json.dumps(human))
    return tmp_path


def test_a_link_to_nothing_is_named_and_never_a_missing_file(folder: Path) -> None:
    """Without its attributes, a product would have other goals and scores."""
    attributes = folder / "items_ins_v2_4.json"
    attributes.unlink()
    attributes.symlink_to("gone.json")
    with pytest.raises(BadData, match=r"items_ins_v2_4\.json is a link to nothing"):
        official_files(folder)


def test_what_is_left_out_is_counted_and_shown(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    store = tmp_path_factory.mktemp("stores") / "store"
    said = "2 records left out, as in the original"
    made = CliRunner().invoke(app, ["data", "import", "webshop", str(folder), str(store)])
    assert made.exit_code == 0, made.output
    assert said in made.output.replace("\n", " ")
    assert StoredCatalogue(store).left_out == 2
    for place in (folder, store):
        checked = CliRunner().invoke(app, ["data", "check", str(place), "--env", "webshop"])
        assert checked.exit_code == 0, checked.output
        assert "played as: 2 products, 1 synthetic and 1 human goals" in checked.stdout
        assert said in checked.stdout.replace("\n", " ")


def test_files_are_found_by_their_names_and_read(folder: Path) -> None:
    files = official_files(folder)
    assert [path.name for path in files if path] == [
        "items_shuffle_4.json",
        "items_ins_v2_4.json",
        "items_human_ins.json",
    ]
    first, second = read_listings(*files)
    assert (first.product.asin, first.synthetic, len(first.human)) == ("B1", ("Find me tables", ("a",), ()), 0)
    assert (second.product.asin, second.synthetic, len(second.human)) == ("B2", None, 1)


def test_attributes_and_human_instructions_are_optional(folder: Path) -> None:
    (folder / "items_ins_v2_4.json").unlink()
    (folder / "items_human_ins.json").unlink()
    files = official_files(folder)
    assert files == OfficialFiles(folder / "items_shuffle_4.json", None, None)
    assert [(listing.synthetic, listing.human) for listing in read_listings(*files)] == [(None, ())] * 2


def test_a_folder_with_two_catalogues_is_refused_and_either_can_be_named(folder: Path) -> None:
    for name in ("items_shuffle.json", "items_ins_v2.json"):
        (folder / name).write_text("[]")
    with pytest.raises(BadData, match=r"items_shuffle\.json, items_shuffle_4\.json; name one of them"):
        official_files(folder)
    human = folder / "items_human_ins.json"
    full = official_files(folder / "items_shuffle.json")
    assert full == OfficialFiles(folder / "items_shuffle.json", folder / "items_ins_v2.json", human)
    small = official_files(folder / "items_shuffle_4.json")
    assert small == OfficialFiles(folder / "items_shuffle_4.json", folder / "items_ins_v2_4.json", human)


def test_side_files_that_could_belong_to_anything_are_refused(folder: Path) -> None:
    (folder / "items_ins_v2_4.json").rename(folder / "items_ins_v2.json")
    assert official_files(folder).attributes == folder / "items_ins_v2.json"  # those of all products will do
    (folder / "items_ins_v2.json").rename(folder / "items_ins_v2_5.json")
    with pytest.raises(
        BadData, match=r"v2_5\.json does not belong to items_shuffle_4\.json: .* put items_ins_v2_4\.json"
    ):
        official_files(folder)
    (folder / "items_ins_v2_6.json").write_text("{}")
    with pytest.raises(BadData, match=r"items_ins_v2_5\.json, items_ins_v2_6\.json"):
        official_files(folder)


def test_a_clone_of_the_repository_has_its_files_in_data(folder: Path) -> None:
    clone = folder / "clones" / "WebShop"
    (clone / "data").mkdir(parents=True)
    for file in list(folder.glob("*.json")):
        file.rename(clone / "data" / file.name)
        (clone / "data" / f"._{file.name}").write_text("junk of macOS")
    assert official_files(clone) == official_files(clone / "data")
    assert official_files(clone).human == clone / "data" / "items_human_ins.json"
    (clone / "data").rename(clone / "small")
    with pytest.raises(
        BadData, match=r"has no file items_shuffle\*\.json; name one of the folders in it that have: small$"
    ):
        official_files(clone)
    with pytest.raises(BadData, match=r"items_ins_v2_4\.json is a file of attributes, not of products"):
        official_files(clone / "small" / "items_ins_v2_4.json")


def test_a_folder_without_products_is_refused(tmp_path: Path) -> None:
    (tmp_path / "items_shuffle.json").mkdir()
    with pytest.raises(BadData, match=r"has no file items_shuffle\*\.json"):
        official_files(tmp_path)
    with pytest.raises(BadData, match="no such file or folder"):
        official_files(tmp_path / "missing")


def test_only_the_first_records_are_read_and_progress_is_told(folder: Path) -> None:
    path = folder / "items_shuffle_4.json"
    path.write_bytes(path.read_bytes()[:-100])  # the last record is cut off, and nobody looks at it
    told: list[int] = []
    found = list(read_listings(path, None, None, num_products=3, progress=told.append))
    assert [listing.product.asin for listing in found] == ["B1"]
    assert told == [end for _, end in islice(stream_objects(path), 3)]
    with pytest.raises(BadData, match=r"items_shuffle_4\.json: byte \d+"):
        list(read_listings(path, None, None))


def test_reading_goes_on_where_it_stopped(folder: Path) -> None:
    path = folder / "items_shuffle_4.json"
    path.write_text(json.dumps([record("B1"), record("B2"), record("B1"), record("B3"), record("B4", name=5)]))
    ends: list[int] = []

    def records(start: int = 0) -> Iterator[dict[str, Any]]:
        for item, end in stream_objects(path, start):
            ends.append(end)
            yield item

    seen: set[str] = set()
    begun = listings_of(records(), {}, {}, seen=seen)
    assert [next(begun).product.asin for _ in range(2)] == ["B1", "B2"]
    assert len(ends) == 2  # a record is taken only when its listing is asked for
    gone_on = listings_of(records(ends[-1]), {}, {}, where="items", first=2, seen=seen)
    assert next(gone_on).product.asin == "B3"
    with pytest.raises(BadData, match=r"items: record 4 \(B4\): field 'name' must be str, found 5"):
        next(gone_on)


def test_recurring_phrases_of_a_side_file_are_kept_once(tmp_path: Path) -> None:
    path = tmp_path / "items_ins_v2.json"
    path.write_text(json.dumps({f"B{n}": {"attributes": ["tea tree", 1, None]} for n in range(2)}))
    found = read_side_file(path)
    assert found == json.loads(path.read_text())
    assert found["B0"]["attributes"][0] is found["B1"]["attributes"][0]
    assert read_side_file(None) == {}


@pytest.fixture(scope="module")
def official(sample_data: Path) -> tuple[MemoryCatalogue, list[dict[str, Any]]]:
    """The 1,000 products and the records that they were made from."""
    files = official_files(sample_data / "webshop")
    return MemoryCatalogue(read_listings(*files)), json.loads(files.items.read_text())


def test_the_official_1000_products_load(official: tuple[MemoryCatalogue, list[dict[str, Any]]]) -> None:
    catalogue, records = official
    listings = [catalogue.listing(n) for n in range(len(catalogue))]
    assert [listing.product.asin for listing in listings] == [item["asin"] for item in records]
    assert len(listings) == 1_000
    categories = Counter(listing.product.category for listing in listings)
    assert categories == {"beauty": 238, "electronics": 229, "garden": 216, "fashion": 200, "grocery": 117}
    assert sum(bool(listing.product.options) for listing in listings) == 423
    assert sum(listing.synthetic is not None for listing in listings) == 415
    assert sum(len(listing.human) for listing in listings) == 13


def test_the_official_prices_are_of_every_kind(official: tuple[MemoryCatalogue, list[dict[str, Any]]]) -> None:
    catalogue, records = official
    kinds: Counter[int] = Counter()
    for number, item in enumerate(records):
        amounts = [float(amount.replace(",", "")) for amount in re.findall(r"\$([\d,]+\.?\d*)", item["pricing"])]
        kinds[len(amounts)] += 1
        tag = {0: "$100.0", 1: "${}", 2: "${} to ${}"}[len(amounts)].format(*amounts)
        assert catalogue.listing(number).product.price_tag == tag
    assert kinds == {0: 89, 1: 818, 2: 93}

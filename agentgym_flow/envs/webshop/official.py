"""Readers for WebShop's official files: products, their attributes, and human instructions."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from agentgym_flow._util.file_state import is_real_file
from agentgym_flow._util.records import stream_members, stream_objects, writable
from agentgym_flow.envs.webshop.catalogue import Listing, Product, ProductRequest
from agentgym_flow.errors import BadData

NAMES = {"items": "items_shuffle", "attributes": "items_ins_v2", "human": "items_human_ins"}
"""The beginnings of the file names; an optional size such as `_1000` and `.json` follow."""

NO_ATTRIBUTES = ("DUMMY_ATTR",)
"""The attributes of a product that is not in the attribute file, as in the original."""

_NO_PRICE = (100.0,)
_LONGEST_ASIN = 10
_NOT_A_NUMBER = re.compile(r"[^\d.]")


class OfficialFiles(NamedTuple):
    """The paths of the official files.

    Attributes:
        items: the products.
        attributes: their attributes and synthetic instructions; None if there is no such file.
        human: the human instructions; None if there is no such file.
    """

    items: Path
    attributes: Path | None
    human: Path | None


def official_files(path: str | os.PathLike[str]) -> OfficialFiles:
    """Find the official files by name, in a folder (or its subfolder `data`), or beside a file of products.

    The sizes in the file names must agree (`_1000` belongs to `_1000`), unless a file is the only one of its kind. An
    attribute file for fewer products is refused.

    Raises:
        BadData: the file of products is missing, or there are several files of a kind; the message lists them.
    """
    place = Path(path)
    if place.is_dir():
        items = _only(place, "items") or (_only(place / "data", "items") if (place / "data").is_dir() else None)
        if items is None:
            inner = {file.parent.relative_to(place).as_posix() for file in place.glob(f"*/{NAMES['items']}*.json")}
            advice = "is it the folder of WebShop's data?"
            if inner:
                advice = f"name one of the folders in it that have: {', '.join(sorted(inner))}"
            raise BadData(f"{place} has no file {NAMES['items']}*.json; {advice}")
    elif place.is_file():
        items = place
        other = next((kind for kind in ("attributes", "human") if place.name.startswith(NAMES[kind])), None)
        if other is not None:
            raise BadData(f"{place} is a file of {other}, not of products; name {NAMES['items']}*.json or the folder.")
    else:
        raise BadData(f"{place}: there is no such file or folder.")
    size = items.stem.removeprefix(NAMES["items"])
    attributes, human = (_only(items.parent, kind, size) for kind in ("attributes", "human"))
    if attributes is not None and attributes.stem not in (NAMES["attributes"], NAMES["attributes"] + size):
        raise BadData(
            f"{attributes} does not belong to {items.name}: products that it lacks would have no attributes; "
            f"put {NAMES['attributes']}{size}.json beside it."
        )
    return OfficialFiles(items, attributes, human)


def _only(folder: Path, kind: str, size: str | None = None) -> Path | None:
    found = sorted(filter(is_real_file, folder.glob(f"{NAMES[kind]}*.json")))
    same = [path for path in found if path.stem.removeprefix(NAMES[kind]) == size]
    if len(same or found) > 1:
        advice = "; name one of them instead of the folder" if kind == "items" else "; leave one of them there"
        raise BadData(f"{folder} has several files of one kind: {', '.join(path.name for path in found)}{advice}.")
    return next(iter(same or found), None)


def read_listings(
    items: Path,
    attributes: Path | None,
    human: Path | None,
    *,
    num_products: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Iterator[Listing]:
    """Yield the listings of official files in the order of the products, with one product in memory at a time.

    Args:
        items: the file of products.
        attributes: the file of attributes and synthetic instructions, if any.
        human: the file of human instructions, if any.
        num_products: read only this number of records.
        progress: called after each record with the number of bytes of `items` read so far.

    Raises:
        BadData: a file cannot be read or is damaged; the message names the file and the byte, or the record and field.
    """
    most = None if num_products is None else min(num_products, sys.maxsize)  # the limit of `islice`

    def records() -> Iterator[dict[str, Any]]:
        for record, end in islice(stream_objects(items), most):
            yield record
            if progress is not None:
                progress(end)

    return listings_of(records(), read_side_file(attributes), read_side_file(human), where=str(items))


def read_side_file(path: Path | None) -> dict[str, Any]:
    """Return the contents of a file of attributes or human instructions, by ASIN; empty for None.

    Strings are interned, because phrases recur. Raises `BadData` if the file cannot be read or is damaged.
    """
    return {} if path is None else {asin: _interned(value) for asin, value in stream_members(path)}


def _interned(value: Any) -> Any:
    if isinstance(value, str):
        return sys.intern(value)
    if isinstance(value, list):
        return [_interned(item) for item in value]
    if isinstance(value, dict):
        return {key: _interned(item) for key, item in value.items()}
    return value


def listings_of(
    items: Iterable[Mapping[str, Any]],
    attributes: Mapping[str, Any],
    human: Mapping[str, Any],
    *,
    where: str = "items",
    first: int = 0,
    seen: set[str] | None = None,
) -> Iterator[Listing]:
    """Yield the listings of records in the official schema, in order; `items` is consumed lazily.

    As in the original, records without a valid ASIN (`nan`, or longer than 10 characters) and with a repeated ASIN are
    skipped.

    Args:
        items: the products.
        attributes: ASIN -> attributes, and optionally an instruction and its attributes.
        human: ASIN -> human instructions.
        where: the name of `items` in messages.
        first: the number of the first record, for messages.
        seen: the ASINs of earlier records in upper case, if reading is resumed; new ones are added.

    Raises:
        BadData: a record is damaged; the message names the record and the field.
    """
    seen = set() if seen is None else seen
    for number, item in enumerate(items, first):
        fields = _Fields(item, f"{where}: record {number}")
        asin = fields.text("asin")
        if asin == "nan" or len(asin) > _LONGEST_ASIN or asin.upper() in seen:
            continue
        if not asin.strip():
            raise fields.bad("asin", "must not be empty")
        seen.add(asin.upper())
        fields.where += f" ({asin})"
        yield _listing(asin, fields, attributes.get(asin), human.get(asin))


def _listing(asin: str, fields: _Fields, known: Any, asked: Any) -> Listing:
    about = _Fields({} if known is None else known, f"attributes of {asin}")
    bullets = "small_description"  # one text, or a list of them
    product = Product(
        asin=asin,
        name=fields.text("name"),
        description=fields.text("full_description", or_null=True),
        bullets=(fields.text(bullets),) if isinstance(fields.get(bullets), str) else fields.texts(bullets),
        prices=_prices(fields),
        options=_options(fields),
        attributes=about.texts("attributes") if about.has("attributes") else NO_ATTRIBUTES,
        category=sys.intern(fields.text("category")),
        product_category=sys.intern(fields.text("product_category")),
        query=sys.intern(fields.text("query").lower().strip()),
        image=_image(fields),
    )
    synthetic = None
    if about.has("instruction"):
        request = ProductRequest(about.text("instruction"), about.texts("instruction_attributes"))
        synthetic = request if request.attributes else None  # its score would be undefined
    if not isinstance(asked, list | tuple | None):
        raise BadData(f"human instructions of {asin}: must be a list, got {asked!r:.60}.")
    requests = []
    for number, one in enumerate(asked or ()):
        said = _Fields(one, f"human instruction {number} of {asin}")
        parts = said.text("instruction"), said.texts("instruction_attributes"), said.texts("instruction_options")
        requests.append(ProductRequest(*parts))
    return Listing(product, synthetic, tuple(request for request in requests if request.attributes))


def _prices(fields: _Fields) -> tuple[float, ...]:
    """Return one price or the two ends of a range from text such as `$15.99 - $32.99`."""
    if not fields.has("pricing") or not (pricing := fields.text("pricing")):
        return _NO_PRICE
    try:
        prices = [float(Decimal(_NOT_A_NUMBER.sub("", part))) for part in pricing.split("$")[1:]]
    except InvalidOperation:
        prices = []
    if not prices or not all(map(math.isfinite, prices)):
        raise fields.bad("pricing", f"must have one or two amounts such as $12.50, got {pricing!r:.60}")
    return tuple(prices[:2])


def _options(fields: _Fields) -> dict[str, tuple[str, ...]]:
    options: dict[str, tuple[str, ...]] = {}
    given = fields.get("customization_options") or {}  # "" means no options
    if not isinstance(given, Mapping):
        raise fields.bad("customization_options", f"must be an object or empty, got {given!r:.60}")
    for name, values in given.items():
        if values is None:
            continue
        if not isinstance(values, list | tuple):
            raise fields.bad("customization_options", f"must have lists of values, got {values!r:.60} for {name!r:.40}")
        whole = [_Fields(value, f"{fields.where}: customization_options of {name!r:.40}") for value in values]
        options[writable(name).lower()] = tuple(
            sys.intern(value.text("value").strip().replace("/", " | ").lower()) for value in whole
        )
    return options


def _image(fields: _Fields) -> str:
    images = fields.get("images") if fields.has("images") else None
    if not isinstance(images, list | tuple | None) or not all(isinstance(image, str | None) for image in images or ()):
        raise fields.bad("images", f"must be a list of addresses, got {images!r:.60}")
    return writable(images[0] or "") if images else ""


class _Fields:
    """The fields of a record, checked on access."""

    def __init__(self, record: Any, where: str) -> None:
        if not isinstance(record, Mapping):
            raise BadData(f"{where}: must be an object, got {record!r:.60}.")
        self._record = record
        self.where = where

    def bad(self, field: str, problem: str) -> BadData:
        """Return the error for a field."""
        return BadData(f"{self.where}: the field {field!r} {problem}.")

    def has(self, field: str) -> bool:
        """Return whether the field exists and is not null."""
        return self._record.get(field) is not None

    def get(self, field: str) -> Any:
        """Return the value of a field. Raises `BadData` if it is missing."""
        if field not in self._record:
            raise self.bad(field, "is missing")
        return self._record[field]

    def text(self, field: str, *, or_null: bool = False) -> str:
        """Return a text, or `""` for null if that is allowed. Raises `BadData` for other values."""
        value = self.get(field)
        if value is None and or_null:
            return ""
        if not isinstance(value, str):
            raise self.bad(field, f"must be text, got {value!r:.60}")
        return writable(value)

    def texts(self, field: str) -> tuple[str, ...]:
        """Return a list of texts; empty for null. Raises `BadData` for other values."""
        values = self.get(field)
        if not isinstance(values, list | tuple | None) or not all(isinstance(value, str) for value in values or ()):
            raise self.bad(field, f"must be a list of texts, got {values!r:.60}")
        return tuple(map(writable, values or ()))

"""Readers for WebShop's official files: products, their attributes, and human instructions."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from agentgym_flow._util.files import is_real_file
from agentgym_flow._util.records import stream_members, stream_objects, writable
from agentgym_flow._util.values import typed
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
        place = f"{where}: record {number}"
        asin = writable(typed(item, _Identified, BadData, place).asin)
        if asin == "nan" or len(asin) > _LONGEST_ASIN or asin.upper() in seen:
            continue
        if not asin.strip():
            raise BadData(f"{place}: field 'asin' must not be empty")
        seen.add(asin.upper())
        yield _listing(asin, item, attributes.get(asin), human.get(asin), f"{place} ({asin})")


class _Identified(msgspec.Struct):
    asin: str


class _Value(msgspec.Struct):
    value: str


class _Item(msgspec.Struct):
    """A record of the file of products; other fields are ignored."""

    name: str
    full_description: str | None
    small_description: str | list[str] | None
    customization_options: dict[str, list[_Value] | None] | Literal[""] | None  # "" means no options
    category: str
    product_category: str
    query: str
    pricing: str | None = None
    images: list[str | None] | None = None


class _About(msgspec.Struct):
    """A record of the file of attributes."""

    attributes: list[str] | None = None
    instruction: str | None = None
    instruction_attributes: list[str] | UnsetType | None = UNSET


class _Asked(msgspec.Struct):
    """A human instruction."""

    instruction: str
    instruction_attributes: list[str] | None
    instruction_options: list[str] | None


def _listing(asin: str, record: Mapping[str, Any], known: Any, asked: Any, where: str) -> Listing:
    item = typed(record, _Item, BadData, where)
    about = typed({} if known is None else known, _About, BadData, f"attributes of {asin}")
    bullets = item.small_description
    product = Product(
        asin=asin,
        name=writable(item.name),
        description=writable(item.full_description or ""),
        bullets=_texts([bullets] if isinstance(bullets, str) else bullets),
        prices=_prices(writable(item.pricing or ""), where),
        options={
            writable(name).lower(): tuple(
                sys.intern(writable(one.value).strip().replace("/", " | ").lower()) for one in values
            )
            for name, values in (item.customization_options or {}).items()
            if values is not None
        },
        attributes=NO_ATTRIBUTES if about.attributes is None else _texts(about.attributes),
        category=sys.intern(writable(item.category)),
        product_category=sys.intern(writable(item.product_category)),
        query=sys.intern(writable(item.query).lower().strip()),
        image=writable(item.images[0] or "") if item.images else "",
    )
    synthetic = None
    if about.instruction is not None:
        if isinstance(about.instruction_attributes, UnsetType):
            raise BadData(f"attributes of {asin}: field 'instruction_attributes' is missing")
        request = ProductRequest(writable(about.instruction), _texts(about.instruction_attributes))
        synthetic = request if request.attributes else None  # its score would be undefined
    requests = [
        ProductRequest(writable(one.instruction), _texts(one.instruction_attributes), _texts(one.instruction_options))
        for one in typed(asked or [], list[_Asked], BadData, f"human instructions of {asin}")
    ]
    return Listing(product, synthetic, tuple(request for request in requests if request.attributes))


def _texts(given: Sequence[str] | None) -> tuple[str, ...]:
    return tuple(map(writable, given or ()))


def _prices(pricing: str, where: str) -> tuple[float, ...]:
    """Return one price or the two ends of a range from text such as `$15.99 - $32.99`."""
    if not pricing:
        return _NO_PRICE
    try:
        prices = [float(Decimal(_NOT_A_NUMBER.sub("", part))) for part in pricing.split("$")[1:]]
    except InvalidOperation:
        prices = []
    if not prices or not all(map(math.isfinite, prices)):
        raise BadData(f"{where}: field 'pricing' must have one or two amounts such as $12.50, got {pricing!r:.60}")
    return tuple(prices[:2])

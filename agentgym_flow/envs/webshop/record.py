"""The serialisation of listings, for stores and digests."""

from __future__ import annotations

import json
from typing import Any

from agentgym_flow.core import canonical
from agentgym_flow.envs.webshop.product import Listing, Product, ProductRequest


def record_of(listing: Listing) -> bytes:
    """Return a listing as one line of canonical ASCII JSON, without a newline."""
    product = listing.product
    return canonical(
        [
            [getattr(product, name) for name in product.__slots__ if name != "options"],
            list(product.options.items()),
            listing.synthetic,
            listing.human,
        ]
    )


def listing_of(record: bytes) -> Listing:
    """Return the listing that `record_of` wrote. Raises `ValueError`, `TypeError` or `KeyError` for other content."""
    values, options, synthetic, human = json.loads(record)
    names = [name for name in Product.__slots__ if name != "options"]
    fields: dict[str, Any] = dict(zip(names, values, strict=True))
    # The record has 0x1.1p+5 for 34.0.
    fields["prices"] = tuple(float.fromhex(price) if isinstance(price, str) else price for price in fields["prices"])
    fields["bullets"] = tuple(fields["bullets"])
    fields["attributes"] = tuple(fields["attributes"])
    fields["options"] = {name: tuple(values) for name, values in options}
    return Listing(Product(**fields), _request(synthetic) if synthetic else None, tuple(map(_request, human)))


def _request(values: list[Any]) -> ProductRequest:
    instruction, attributes, options = values
    return ProductRequest(instruction, tuple(attributes), tuple(options))

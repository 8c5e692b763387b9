"""Products and the requests for them. The fields are those of WebShop's own loader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from agentgym_flow.core import Stream


@dataclass(frozen=True, slots=True)
class Product:
    """A product.

    Attributes:
        asin: the identifier, at most 10 characters, as in the data (upper case).
        name: the title.
        description: one paragraph, often empty.
        bullets: the list under "Features".
        prices: in dollars; one price, or the two ends of a range, as in the data.
        options: name in lower case -> values in lower case, both in the order of the data.
        attributes: phrases such as `tea tree`, from which instructions are built; not part of any page or index.
        category: the coarse category, such as `beauty`.
        product_category: the path of categories, separated by `›`.
        query: the query under which the data list the product, in lower case; used for the type in the score.
        image: the address of a picture, possibly empty. It is displayed, but never fetched.
    """

    asin: str
    name: str
    description: str
    bullets: tuple[str, ...]
    prices: tuple[float, ...]
    options: Mapping[str, tuple[str, ...]]
    attributes: tuple[str, ...]
    category: str
    product_category: str
    query: str
    image: str

    @property
    def price_tag(self) -> str:
        """The price on pages: `$34.0`, or `$15.99 to $32.99`."""
        return " to ".join(f"${price}" for price in self.prices)

    @property
    def price(self) -> float:
        """The price paid. From a range it is drawn with a fixed seed; in the original it differs between processes."""
        low, high = self.prices[0], self.prices[-1]
        return (
            low if low == high else low + (high - low) * Stream("agentgym_flow/WebShop", "price", self.asin).uniform()
        )

    @property
    def index_text(self) -> str:
        """The text to index: title, description, first bullet and options, in lower case."""
        options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in self.options.items())
        first = self.bullets[0] if self.bullets else ""
        return " ".join((self.name, self.description, first, options)).lower()


def asin_key(asin: str) -> bytes:
    """Return a case-insensitive key for lookup and order.

    Products with equal scores are ordered by this key, because Anserini, the original's search engine, orders them by
    document id, and the ids are the ASINs.
    """
    return asin.upper().encode("utf-8", "surrogatepass")


class ProductRequest(NamedTuple):
    """A request for a product, without a price limit.

    Attributes:
        instruction: the instruction.
        attributes: the required attributes, at least one.
        options: the required option values of a human instruction. Empty for a synthetic one, which gives a goal for
            every combination of the product's options.
    """

    instruction: str
    attributes: tuple[str, ...]
    options: tuple[str, ...] = ()


class Listing(NamedTuple):
    """A product and the requests for it."""

    product: Product
    synthetic: ProductRequest | None = None
    human: tuple[ProductRequest, ...] = ()

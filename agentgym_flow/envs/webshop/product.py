"""A product of the shop, and what people ask for when they want it.

Fields and wording are those of WebShop's own loader (`specs/webshop_search.md` A4), so that embedded and official
catalogues are one kind of thing from here on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from agentgym_flow.seeding import Stream


@dataclass(frozen=True, slots=True)
class Product:
    """What the shop knows of a product.

    Attributes:
        asin: the identity, at most 10 characters, as the data spell it (upper case).
        name: the title.
        description: one paragraph, often empty.
        bullets: the list under "Features".
        prices: in dollars; one, or the two ends of a range as the data give them.
        options: name in lower case -> its values in lower case, both in the data's order.
        attributes: phrases such as `tea tree`, on which instructions are built; not part of any page or index.
        category: the coarse one, such as `beauty`.
        product_category: the path, its parts separated by `›`.
        query: the search under which the product was found, in lower case; decides the type in the reward.
        image: an address of a picture, perhaps empty. Shown as an address only; nothing here fetches it.
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
        """What the pages show: `$34.0`, or `$15.99 to $32.99`."""
        return " to ".join(f"${price}" for price in self.prices)

    @property
    def price(self) -> float:
        """What is paid: the price, or a fixed draw from the range, the same in every process (upstream's is not)."""
        low, high = self.prices[0], self.prices[-1]
        return (
            low if low == high else low + (high - low) * Stream("agentgym_flow/WebShop", "price", self.asin).uniform()
        )

    @property
    def index_text(self) -> str:
        """What the search engine reads: title, description, the first bullet and the options, in lower case."""
        options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in self.options.items())
        first = self.bullets[0] if self.bullets else ""
        return " ".join((self.name, self.description, first, options)).lower()


def asin_key(asin: str) -> bytes:
    """Return what an ASIN is found and ordered by, whatever its case.

    Of products with equal scores a search lists the lower key first: Anserini, which the original searches with, orders
    them by the documents' ids, and its ids are the ASINs.
    """
    return asin.upper().encode("utf-8", "surrogatepass")


class ProductRequest(NamedTuple):
    """What an instruction asks for, without a limit on the price.

    Attributes:
        instruction: the sentence.
        attributes: phrases that the purchase should have, at least one.
        options: values that should be chosen, where a person wrote the instruction; of synthetic ones it is empty, and
            every combination of the product's options makes a goal.
    """

    instruction: str
    attributes: tuple[str, ...]
    options: tuple[str, ...] = ()


class Listing(NamedTuple):
    """A product and the requests that it is the answer to."""

    product: Product
    synthetic: ProductRequest | None = None
    human: tuple[ProductRequest, ...] = ()

"""Formats amounts of money for people. Observations of agents have the original format, such as `$49.0`."""

from __future__ import annotations

import re

from agentgym_flow.envs.webshop.page import Element, TextKind

_AMOUNT = re.compile(r"\$(\d+(?:\.\d+)?(?:e[+-]\d+)?)")


def with_cents(text: str) -> str:
    """Return the text with two decimals in every amount: `$49.0` becomes `$49.00`."""
    return _AMOUNT.sub(lambda amount: f"${float(amount[1]):.2f}", text)


def priced(element: Element) -> Element:
    """Return the element, with two decimals if it is a price."""
    return element._replace(node=with_cents(element.node)) if element.kind is TextKind.PRICE else element

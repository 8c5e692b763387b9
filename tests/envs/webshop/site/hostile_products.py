"""Products that attack the page that shows them."""

from __future__ import annotations

from typing import Any

EVIL = "\"'><script>document.title='owned'</script><img src=//x.invalid/a.png onerror=\"document.title='owned'\">"
"""Text that runs, or asks another machine, where it is not escaped."""


def hostile_items() -> list[dict[str, Any]]:
    """Return products in the official schema whose every text attacks the page that shows it."""
    base = {
        "pricing": "$15.00",
        "product_category": f"Home › Lamps › {EVIL}",  # noqa: RUF001
        "category": "garden",
        "query": f"lamp {EVIL}",
        "images": ["https://x.invalid/picture.jpg"],
    }
    texts = {
        "B0EVIL0001": EVIL,
        "B0EVIL0002": "javascript:alert(1) {{ 7 * 191 }} {% raw %} </title></style></textarea>-->",
        "B0BIDI0001": "\u202eevitcaretni \u2066\u2067 \u200f right to left \u202d\U000e0001",
        "B0HUGE0001": "very " * 20_000 + "W" * 20_000,
        "B0ZERO0001": "nul \x00 bell \x07 escape \x1b[31m line\u2028end \ufeff half \ud83d of a pair",
    }
    return [
        {
            **base,
            "asin": asin,
            "name": f"Lamp {text}",
            "full_description": text,
            "small_description": [text, "bright"],
            "customization_options": {f"Shade {text[:300]}": [{"value": text[:300]}, {"value": "plain"}]},
        }
        for asin, text in texts.items()
    ]

"""JSON that can stand inside a page, whatever it contains."""

from __future__ import annotations

import json
from typing import Any


def script_json(value: Any) -> str:
    """Return `value` as ASCII JSON that can stand inside a `<script>` element: no `<`, `>` or `&` is left in it."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")

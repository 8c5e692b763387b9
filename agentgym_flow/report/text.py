"""JSON that is safe inside an HTML page."""

from __future__ import annotations

import json
from typing import Any


def script_json(value: Any) -> str:
    """Return `value` as ASCII JSON that is safe inside a `<script>` element: `<`, `>` and `&` are escaped."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")

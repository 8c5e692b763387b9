"""Common parts of all pictures and pages: templates, style sheets, scripts, Content-Security-Policy, and colours."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from functools import lru_cache
from typing import Any

import jinja2
from markupsafe import Markup

from agentgym_flow._util.values import printable

REPORT = "agentgym_flow.report"
"""The package with the templates of reports."""

_DARK = (0.36, 0.13, 300.0)  # lightness, chroma, hue in degrees
_LIGHT = (0.91, 0.16, 112.0)
_INK_SWITCH = 0.56  # the lightness at which white and near-black text are equally readable


@lru_cache(maxsize=8)
def templates(package: str = REPORT) -> jinja2.Environment:
    """Return the templates of a package, with those of reports as a fallback. Text is escaped and made printable."""

    def finalize(value: Any) -> Any:
        return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(name) for name in dict.fromkeys((package, REPORT))]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals["star"] = star
    return environment


def source(*names: str, package: str = REPORT) -> str:
    """Return the concatenated text of style sheets or scripts of a package."""
    environment = templates(package)
    assert environment.loader is not None
    return "".join(environment.loader.get_source(environment, name)[0] for name in names)


def security_policy(style: str, script: str = "") -> str:
    """Return a Content-Security-Policy that forbids all loading, and allows only this style and this script."""

    def allowed(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" if text else "'none'"

    own = f"style-src {allowed(style)}; script-src {allowed(script)}"
    return f"default-src 'none'; {own}; base-uri 'none'; form-action 'none'"


def script_json(value: Any) -> str:
    """Return `value` as ASCII JSON that is safe inside a `<script>` element: `<`, `>` and `&` are escaped."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def star(radius: float) -> str:
    """Return the SVG path of a five-pointed star around the origin."""
    rims = [(radius * (0.5 if corner % 2 else 1.0), math.pi * corner / 5) for corner in range(10)]
    return "M" + "L".join(f"{rim * math.sin(turn):.1f} {-rim * math.cos(turn):.1f}" for rim, turn in rims) + "z"


# ---------------------------------------------------------------- colours
def ramp(value: float) -> str:
    """Return the colour of `value`, clipped to [0, 1], as `#rrggbb`.

    Lightness grows evenly with the value, so that the order is visible in grey and to colour-blind readers. The ramp is
    a straight line in OKLCH (B. Ottosson, "A perceptual color space for image processing", 2020): lightness and hue
    change in equal steps from a deep violet at 0 to a light yellow-green at 1.
    """
    lightness, chroma, hue = _mix(value)
    angle = math.radians(hue)
    return _oklab_to_hex(lightness, chroma * math.cos(angle), chroma * math.sin(angle))


def ink_on(value: float) -> str:
    """Return the text colour that is readable on `ramp(value)`."""
    return "#ffffff" if _mix(value)[0] < _INK_SWITCH else "#111111"


def _mix(value: float) -> tuple[float, float, float]:
    share = min(1.0, max(0.0, value))
    lightness, chroma, hue = (a + share * (b - a) for a, b in zip(_DARK, _LIGHT, strict=True))
    return lightness, chroma, hue


def _oklab_to_hex(lightness: float, a: float, b: float) -> str:
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    linear = (
        4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short,
    )
    return "#" + "".join(f"{round(255 * _gamma(channel)):02x}" for channel in linear)


def _gamma(channel: float) -> float:
    clipped = min(1.0, max(0.0, channel))
    return 12.92 * clipped if clipped <= 0.0031308 else 1.055 * clipped ** (1 / 2.4) - 0.055


def shortened(text: str, most: int) -> str:
    """Return a text of at most this many characters; a longer one ends in an ellipsis."""
    return text if len(text) <= most else f"{text[: most - 1]}\N{HORIZONTAL ELLIPSIS}"

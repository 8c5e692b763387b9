"""Colours whose lightness grows evenly with a value, so that the order is visible in grey and to colour-blind readers.

The ramp is a straight line in OKLCH (B. Ottosson, "A perceptual color space for image processing", 2020): lightness
and hue change in equal steps from a deep violet at 0 to a light yellow-green at 1.
"""

from __future__ import annotations

import math

_DARK = (0.36, 0.13, 300.0)  # lightness, chroma, hue in degrees
_LIGHT = (0.91, 0.16, 112.0)
_INK_SWITCH = 0.56  # the lightness at which white and near-black text are equally readable


def ramp(value: float) -> str:
    """Return the colour of `value`, clipped to [0, 1], as `#rrggbb`."""
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

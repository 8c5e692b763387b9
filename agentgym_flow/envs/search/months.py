"""The English names of the months, in order. `calendar.month_name` depends on the locale of the machine."""

from __future__ import annotations

_NAMES = "January February March April May June July August September October November December"
MONTHS = tuple(_NAMES.split())

"""The main settings with their meanings, and lists of TRL settings with special treatment; see `settings.json`."""

from __future__ import annotations

import json
from pathlib import Path

_LISTS = json.loads(Path(__file__).with_name("settings.json").read_text("utf-8"))

MAIN_SETTINGS: dict[str, str] = _LISTS["main"]
"""The settings that most runs change -> their meanings. The others are those of TRL's `GRPOConfig`."""

NOT_USED = frozenset[str](_LISTS["not_used"])
"""TRL settings that are rejected, because this package has its own sampling and rewards."""

ALWAYS_SHOWN = frozenset[str](_LISTS["always_shown"])
"""TRL settings that are always written to a run's file, even at TRL's defaults."""

DERIVED = frozenset[str](_LISTS["derived"])
"""Settings that follow from others. They are not written to a run's file, because one that has both is rejected."""

MAY_CHANGE = frozenset[str](_LISTS["may_change"])
"""Settings that may change when a run is resumed: they affect where and how fast it runs, and what is logged."""

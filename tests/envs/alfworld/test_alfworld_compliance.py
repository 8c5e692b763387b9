"""ALFWorld under the compliance suite: generated games, and the official samples."""

import importlib.util
import os
from pathlib import Path
from typing import Any, ClassVar

import pytest

from agentgym_flow.core import TextEnv
from agentgym_flow.envs.alfworld.oracle import shortest_plan
from agentgym_flow.testing import EnvCompliance

OFFICIAL = Path(os.environ.get("AGENTGYM_FLOW_TEST_DATA", "no such folder")) / "alfworld" / "valid_seen"


ORIGINALS = all(importlib.util.find_spec(name) for name in ("alfworld", "textworld", "fast_downward"))


class ALFWorldCompliance(EnvCompliance):
    env_id = "agentgym_flow/ALFWorld-v0"
    idle_reward = 0.0
    presentations: ClassVar[Any] = ({"engine": "textworld"},) if ORIGINALS else ()

    def test_presentation_settings_are_covered(self) -> None:
        if not ORIGINALS:
            pytest.skip("the extra alfworld is not installed, so its engine cannot be compared")
        super().test_presentation_settings_are_covered()

    def is_lost(self, env: TextEnv) -> bool | None:
        # Whatever is put down can be taken again: only a game in which the oracle never saw a way is lost.
        return shortest_plan(env.play) is None  # type: ignore[attr-defined]


class TestALFWorld(ALFWorldCompliance):
    golden: ClassVar[Any] = {
        "default/expert/0": "fd024c0674236b54",
        "default/expert/1": "f1c4510c1d108ce6",
        "default/mixed/0": "ff888e493060243e",
        "default/mixed/1": "98b87f12f2c8fd9c",
    }
    manifests: ClassVar[Any] = {
        "default/valid": "f47a3abae2123054e2c6cb42e05baccc7409ed22ce597a0c21b05dbfd37a7e81",
        "default/test": "fcf966c095837d262b9902b9a8c3d3f5a8a212a1b26e15b04b572a2f964c9c16",
    }


if OFFICIAL.is_dir():

    class TestALFWorldOnOfficialGames(ALFWorldCompliance):
        variants: ClassVar[Any] = ({"data": str(OFFICIAL)},)
        disjoint_splits = False
        golden: ClassVar[Any] = {
            "data=valid_seen/expert/0": "474bf91dbaa34759",
            "data=valid_seen/expert/1": "201c139fda9ce7e0",
            "data=valid_seen/mixed/0": "ec113978933421a8",
            "data=valid_seen/mixed/1": "814adbbf8c6fe195",
        }

else:

    @pytest.mark.skip(reason="AGENTGYM_FLOW_TEST_DATA does not name a folder with sample data")
    def test_official_games() -> None:
        """Stands in for the whole class, so that it is reported once."""

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
        "default/expert/0": "97d754b01bf45610",
        "default/expert/1": "41064f6b040ad784",
        "default/mixed/0": "4c9c92af8601327f",
        "default/mixed/1": "326571c8db166cd4",
    }
    manifests: ClassVar[Any] = {
        "default/valid": "8b3eaf63c7eb43814ffd81ce22fe7d78d3de7880830bd4caeaf42ea97c0c79f6",
        "default/test": "57e8e126605ebaa12f17b05fb5898288fd4a9e7bc946062af79dc42cd50d5fd6",
    }


if OFFICIAL.is_dir():

    class TestALFWorldOnOfficialGames(ALFWorldCompliance):
        variants: ClassVar[Any] = ({"data": str(OFFICIAL)},)
        disjoint_splits = False
        golden: ClassVar[Any] = {
            "data=valid_seen/expert/0": "ceed4c1e17aacb5c",
            "data=valid_seen/expert/1": "fa4f00d74e54a7a1",
            "data=valid_seen/mixed/0": "5bd066ae307d5071",
            "data=valid_seen/mixed/1": "0d2cf7c2401a6b3f",
        }

else:

    @pytest.mark.skip(reason="AGENTGYM_FLOW_TEST_DATA does not name a folder with sample data")
    def test_official_games() -> None:
        """Stands in for the whole class, so that it is reported once."""

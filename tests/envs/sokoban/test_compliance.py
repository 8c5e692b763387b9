"""Both faces of Sokoban under the compliance suite."""

import os
from pathlib import Path
from typing import Any, ClassVar

import pytest

from agentgym_flow.core import TextEnv
from agentgym_flow.envs.sokoban.grid import INFO_KEYS
from agentgym_flow.envs.sokoban.vector import FAST_INFO_KEYS
from agentgym_flow.testing import EnvCompliance, NumericCompliance

BOXOBAN = Path(os.environ.get("AGENTGYM_FLOW_TEST_DATA", "no such folder")) / "boxoban" / "unfiltered-valid.txt"


class SokobanCompliance(EnvCompliance):
    env_id = "agentgym_flow/Sokoban-v0"
    presentations: ClassVar[Any] = ({"backend": "gym-sokoban"},)
    idle_reward = -0.1
    distinct_tasks = False  # levels are drawn independently of each other

    def is_lost(self, env: TextEnv) -> bool | None:
        # A deadlock in `info` is certain, and spares the search most lost positions of the big boards.
        return True if env._info(True)["deadlock"] else super().is_lost(env)


class TestSokoban(SokobanCompliance):
    variants: ClassVar[Any] = ({}, {"size": 10, "boxes": 4})
    machine_examples = 25
    tasks_per_split = 10
    golden: ClassVar[Any] = {
        "default/expert/0": "830f5becf02923ad",
        "default/expert/1": "fc1454f64ede674b",
        "default/mixed/0": "f67c159b7f6c7a8a",
        "default/mixed/1": "7e1760ee65afdd82",
        "boxes=4,size=10/expert/0": "ddb333604f0e4c48",
        "boxes=4,size=10/expert/1": "fb4026d5d4fd214d",
        "boxes=4,size=10/mixed/0": "10295bb153585bf6",
        "boxes=4,size=10/mixed/1": "35edc6efbdb9a089",
    }
    manifests: ClassVar[Any] = {
        "default/valid": "9981595775ce8a47e6e5fac636d2ff21b888d3755db778ab5fd23b85e4342392",
        "default/test": "748c790f89b904fa76254346dd09c7e070e8c6772d3069bb12f90c6c939b0209",
    }


class TestSokobanFromALevel(SokobanCompliance):
    variants: ClassVar[Any] = ({"level": "#######\n#@ $ .#\n# $  .#\n#     #\n#######"},)
    disjoint_splits = False
    golden: ClassVar[Any] = {
        "level=#######/#@ $ .#/# $  .#/#     #/#######/expert/0": "aed34fff8411f4ae",
        "level=#######/#@ $ .#/# $  .#/#     #/#######/expert/1": "42a69859dd154e84",
        "level=#######/#@ $ .#/# $  .#/#     #/#######/mixed/0": "2295df68241c4117",
        "level=#######/#@ $ .#/# $  .#/#     #/#######/mixed/1": "713446f4d8706241",
    }


if BOXOBAN.is_file():

    class TestSokobanOnBoxoban(SokobanCompliance):
        variants: ClassVar[Any] = ({"data": str(BOXOBAN)},)
        disjoint_splits = False
        golden: ClassVar[Any] = {
            "data=unfiltered-valid/expert/0": "8d83de76e5e14898",
            "data=unfiltered-valid/expert/1": "1f8d520e202cd576",
            "data=unfiltered-valid/mixed/0": "ebdad648c854a150",
            "data=unfiltered-valid/mixed/1": "3012d50df4dde449",
        }

else:

    @pytest.mark.skip(reason="AGENTGYM_FLOW_TEST_DATA does not name a folder with sample data")
    def test_boxoban_levels() -> None:
        """Stands in for the whole class, so that it is reported once."""


class TestSokobanGrid(NumericCompliance):
    env_id = "agentgym_flow/SokobanGrid-v0"
    text_id = "agentgym_flow/Sokoban-v0"
    variants: ClassVar[Any] = ({}, {"size": 10, "boxes": 4})
    vector_settings: ClassVar[Any] = ({"info_keys": list(INFO_KEYS)}, {"info_keys": list(FAST_INFO_KEYS)})

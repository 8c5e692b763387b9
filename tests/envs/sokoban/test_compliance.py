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
        "default/expert/0": "8af9fc0b930f3170",
        "default/expert/1": "4b924e8df274321c",
        "default/mixed/0": "717b11875a713b34",
        "default/mixed/1": "278e4a4ac209a648",
        "boxes=4,size=10/expert/0": "9a5e007e376f9998",
        "boxes=4,size=10/expert/1": "c74229f666db3948",
        "boxes=4,size=10/mixed/0": "7b85e10020d72248",
        "boxes=4,size=10/mixed/1": "8ea86dc0e6c44fe0",
    }
    manifests: ClassVar[Any] = {
        "default/valid": "ec6f31e55230da2c7095bbf674e3063c3f37a131b001d16699953d9c8864b305",
        "default/test": "45f1a653b99c3e571bce11ff319a92c5480d1ca7fd610f6854e70b18242551d9",
    }


class TestSokobanFromALevel(SokobanCompliance):
    variants: ClassVar[Any] = ({"level": "#######\n#@ $ .#\n# $  .#\n#     #\n#######"},)
    disjoint_splits = False
    golden: ClassVar[Any] = {
        "level=#######/#@ $ .#/# $  .#/#     #/#######/expert/0": "2a8689641a2c680e",
        "level=#######/#@ $ .#/# $  .#/#     #/#######/expert/1": "5489a4b2a75e6686",
        "level=#######/#@ $ .#/# $  .#/#     #/#######/mixed/0": "4c4f36e85a0a8cf9",
        "level=#######/#@ $ .#/# $  .#/#     #/#######/mixed/1": "9f2c9410fb161e27",
    }


if BOXOBAN.is_file():

    class TestSokobanOnBoxoban(SokobanCompliance):
        variants: ClassVar[Any] = ({"data": str(BOXOBAN)},)
        disjoint_splits = False
        golden: ClassVar[Any] = {
            "data=unfiltered-valid/expert/0": "9800d0793e9a237e",
            "data=unfiltered-valid/expert/1": "5099f2d7528ecd82",
            "data=unfiltered-valid/mixed/0": "94a36bac49212d09",
            "data=unfiltered-valid/mixed/1": "18e7acd1dc620aa7",
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

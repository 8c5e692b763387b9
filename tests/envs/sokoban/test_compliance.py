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

    def is_lost(self, env: TextEnv) -> bool | None:
        # A deadlock in `info` is certain, and spares the search most lost positions of the big boards.
        return True if env._info(True)["deadlock"] else super().is_lost(env)


class TestSokoban(SokobanCompliance):
    variants: ClassVar[Any] = ({}, {"size": 10, "boxes": 4})
    machine_examples = 25
    tasks_per_split = 10


class TestSokobanFromALevel(SokobanCompliance):
    variants: ClassVar[Any] = ({"level": "#######\n#@ $ .#\n# $  .#\n#     #\n#######"},)
    disjoint_splits = False


@pytest.mark.skipif(not BOXOBAN.is_file(), reason="AGENTGYM_FLOW_TEST_DATA does not name a folder with sample data")
class TestSokobanOnBoxoban(SokobanCompliance):
    variants: ClassVar[Any] = ({"data": str(BOXOBAN)},)
    disjoint_splits = False


class TestSokobanGrid(NumericCompliance):
    env_id = "agentgym_flow/SokobanGrid-v0"
    text_id = "agentgym_flow/Sokoban-v0"
    variants: ClassVar[Any] = ({}, {"size": 10, "boxes": 4})
    vector_settings: ClassVar[Any] = ({"info_keys": list(INFO_KEYS)}, {"info_keys": list(FAST_INFO_KEYS)})

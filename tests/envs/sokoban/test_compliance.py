"""Both faces of Sokoban under the compliance suite."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from agentgym_flow.core import TextEnv
from agentgym_flow.envs.sokoban.grid import INFO_KEYS
from agentgym_flow.envs.sokoban.vector import FAST_INFO_KEYS
from agentgym_flow.testing import EnvCompliance, NumericCompliance

BOXOBAN = Path(os.environ.get("AGENTGYM_FLOW_TEST_DATA", "no such folder")) / "boxoban" / "unfiltered-valid.txt"
BUILT = Path(tempfile.gettempdir()) / f"agentgym_flow-sokoban-{os.getpid()}"
"""A folder that the tests make when they run; its name is in the variants before that."""


class SokobanCompliance(EnvCompliance):
    env_id = "agentgym_flow/Sokoban-v0"
    presentations: ClassVar[Any] = ({"backend": "gym-sokoban"},)
    idle_reward = -0.1
    distinct_tasks = False  # levels are drawn independently of each other

    def is_lost(self, env: TextEnv) -> bool | None:
        # A deadlock in `info` is certain, and spares the search most lost positions of the big boards.
        return True if env.info()["deadlock"] else super().is_lost(env)


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


@pytest.mark.heavy
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
        variants: ClassVar[Any] = ({"data": str(BUILT / "boxoban")},)
        machine_examples = 4
        key_tasks = 1
        golden: ClassVar[Any] = {
            "data=boxoban/expert/0": "42a46e6bffc0f5bc",
            "data=boxoban/expert/1": "2ed282703c0cd155",
            "data=boxoban/mixed/0": "66aca98f89bae6ed",
            "data=boxoban/mixed/1": "a1afaa16e7fbb550",
        }

        @pytest.fixture(scope="class", autouse=True)
        @classmethod
        def files(cls) -> Iterator[None]:
            """The samples are of one split: here each split has a third of them."""
            levels = BOXOBAN.read_text().strip().split("\n\n")
            for number, split in enumerate(("train", "valid", "test")):
                (BUILT / "boxoban" / split).mkdir(parents=True)
                (BUILT / "boxoban" / split / "000.txt").write_text("\n\n".join(levels[number::3]))
            yield
            shutil.rmtree(BUILT)

else:

    @pytest.mark.skip(reason="AGENTGYM_FLOW_TEST_DATA does not name a folder with sample data")
    def test_boxoban_levels_keep_the_contract() -> None:
        """Stands in for the whole class, so that it is reported once."""


class TestSokobanGrid(NumericCompliance):
    env_id = "agentgym_flow/SokobanGrid-v0"
    text_id = "agentgym_flow/Sokoban-v0"
    variants: ClassVar[Any] = ({}, {"size": 10, "boxes": 4})
    vector_settings: ClassVar[Any] = ({"info_keys": list(INFO_KEYS)}, {"info_keys": list(FAST_INFO_KEYS)})

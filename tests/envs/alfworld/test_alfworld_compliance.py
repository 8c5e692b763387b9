"""ALFWorld under the compliance suite: generated games, and the official samples."""

import importlib.util
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from agentgym_flow.core import TextEnv
from agentgym_flow.envs.alfworld.policies import shortest_plan
from agentgym_flow.testing import EnvCompliance

SAMPLES = Path(os.environ.get("AGENTGYM_FLOW_TEST_DATA", "no such folder")) / "alfworld" / "valid_seen"
BUILT = Path(tempfile.gettempdir()) / f"agentgym_flow-alfworld-{os.getpid()}"
"""A folder that the tests make when they run; its name is in the variants before that."""

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
        # Whatever is put down can be taken again: only a game in which the expert never saw a way is lost.
        return shortest_plan(env.game) is None  # type: ignore[attr-defined]


class TestALFWorld(ALFWorldCompliance):
    # The original engine takes no aliases, so on generated games it has other rules, and keys: see test_textworld_env.
    presentations: ClassVar[Any] = ({"engine": "fast"},)
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


if SAMPLES.is_dir():

    class TestALFWorldOnOfficialGames(ALFWorldCompliance):
        variants: ClassVar[Any] = ({"data": str(BUILT / "official")},)
        machine_examples = 4
        key_tasks = 1
        golden: ClassVar[Any] = {
            "data=official/expert/0": "1705827ff383d7a7",
            "data=official/expert/1": "85c6cd857a04d66e",
            "data=official/mixed/0": "c81d99461671cf9a",
            "data=official/mixed/1": "44098613af275141",
        }

        @pytest.fixture(scope="class", autouse=True)
        @classmethod
        def files(cls) -> Iterator[None]:
            """All official samples are of one split: here each split has a third of them."""
            splits = ("train", "valid_seen", "valid_unseen")
            for number, trial in enumerate(sorted(SAMPLES.glob("*/*"))):
                task = BUILT / "official" / splits[number % 3] / trial.parent.name
                task.mkdir(parents=True)
                (task / trial.name).symlink_to(trial)
            yield
            shutil.rmtree(BUILT)

else:

    @pytest.mark.skip(reason="AGENTGYM_FLOW_TEST_DATA does not name a folder with sample data")
    def test_official_games_keep_the_contract() -> None:
        """Stands in for the whole class, so that it is reported once."""

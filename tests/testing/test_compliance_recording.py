"""The suite on an environment that takes something from outside, which only its recording can bring back."""

from pathlib import Path
from typing import Any, ClassVar

import pytest

from agentgym_flow.testing import EnvCompliance
from agentgym_flow.testing.suite import label


class TestWindyCave(EnvCompliance):
    env_id = "taped/WindyCave-v0"
    env_module = "recorded_cave"
    presentations: ClassVar[Any] = ({"terse": True},)
    machine_examples = 4
    golden: ClassVar[Any] = {
        "default/expert/0": "63056db5cb03e928",
        "default/expert/1": "2d110dbe7a4e65b4",
        "default/mixed/0": "92ad4c09acdfe7b9",
        "default/mixed/1": "e87f9f78b167d24c",
    }


def test_a_recording_that_is_not_played_is_found() -> None:
    class Forgetful(TestWindyCave):
        env_id = "taped/ForgetsItsRecording-v0"

    with pytest.raises(AssertionError, match="rebuilt from its own settings, the environment plays differently"):
        Forgetful().test_settings_build_the_environment_again({})


def test_labels_hold_no_path(tmp_path: Path) -> None:
    file = tmp_path / "passages.jsonl"
    assert label({"data": str(tmp_path / "2wiki"), "corpus": str(file)}) == "corpus=passages,data=2wiki"
    assert label({"retriever": "bm25", "topk": 5}) == "retriever=bm25,topk=5"

"""`task_types` among the arguments of the environment limits what training plays, clones and evaluates on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from short_run import train

from agentgym_flow.envs import make_text_env
from agentgym_flow.envs.search.env import SearchEnv
from agentgym_flow.training.group_source import TaskReplay

SEARCH = "agentgym_flow/Search-v0"


def test_replay_goes_through_the_tasks_that_are_left() -> None:
    tasks = make_text_env(SEARCH, split="valid", task_types=["comparison", "4 hops"]).drawn_tasks
    replay = TaskReplay(tasks, 0.0)
    assert sorted(replay.draw(len(tasks))) == tasks
    assert sorted(replay.draw(len(tasks))) == tasks


@pytest.mark.heavy
def test_a_run_plays_tasks_of_these_types_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played: set[str] = set()
    begin = SearchEnv._begin

    def note(self: SearchEnv, task: int, *rest: Any) -> str:
        if self.split == "train" and task != 0:  # the first task is looked at whatever is played
            played.add(self.task_type)
        return begin(self, task, *rest)

    monkeypatch.setattr(SearchEnv, "_begin", note)
    result = train(SEARCH, "grpo", tmp_path / "run", env_kwargs=json.dumps({"task_types": ["comparison"]}))
    assert result.exit_code == 0, result.output
    assert played == {"comparison"}

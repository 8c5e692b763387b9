"""Replay of tasks: which come again, that none starves, and that ranks and resumed runs choose alike."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_flow.core import TextEnv
from agentgym_flow.envs import make_text_env
from agentgym_flow.episodes import Episode, Group, PolicyOutput, Turn
from agentgym_flow.errors import BadSetting
from agentgym_flow.play import EnvPool
from agentgym_flow.training.config import AgentConfig
from agentgym_flow.training.group_source import TaskReplay
from agentgym_flow.training.trainer import AgentTrainer

SOKOBAN = "agentgym_flow/Sokoban-v0"


def group(task: int, *successes: bool) -> Group:
    def episode(success: bool) -> Episode:
        turn = Turn("", "a", PolicyOutput("go"), 0.0, "", "b", True, False, True, success, float(success))
        return Episode("E", {}, {}, "train", task, f"e:{task}", "", 0, 0, 1, "", "a", turns=[turn])

    return Group([episode(success) for success in successes])


def test_without_mixed_groups_every_pass_has_every_task_once() -> None:
    replay = TaskReplay(10, 0.5)
    drawn = [task for _ in range(5) for task in replay.draw(4)]
    first, second = drawn[:10], drawn[10:]
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second, "each pass has an order of its own"
    assert first == TaskReplay(10, 0.2).draw(10)
    assert first != TaskReplay(10, 0.2, seed=1).draw(10)


def test_tasks_that_ended_differently_come_again_the_oldest_first() -> None:
    replay = TaskReplay(100, 0.5)
    first = replay.draw(4)
    replay.observe([group(task, True, place != 2) for place, task in enumerate(first)])
    assert len(replay) == 1
    second = replay.draw(4)
    assert replay.replayed == 1
    assert second[3] == first[2]
    replay.observe([group(task, True, False) for task in second])
    third = replay.draw(4)
    assert (third[2:], replay.replayed) == (second[:2], 2)
    replay.observe([group(task, False, False) for task in third])
    assert replay.draw(4)[2:] == second[2:], "what ended alike does not come again, what has not come still does"


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 12), st.integers(1, 12), st.floats(0, 0.99), st.data())
def test_no_task_starves(num_tasks: int, count: int, share: float, data: st.DataObject) -> None:
    replay = TaskReplay(num_tasks, share)
    new_tasks: list[int] = []
    while len(new_tasks) < 2 * num_tasks:
        tasks = replay.draw(count)
        assert len(tasks) == count
        assert replay.replayed <= share * count
        new_tasks += tasks[: count - replay.replayed]
        replay.observe([group(task, True, data.draw(st.booleans())) for task in tasks])
    assert sorted(new_tasks[:num_tasks]) == list(range(num_tasks))
    assert sorted(new_tasks[num_tasks : 2 * num_tasks]) == list(range(num_tasks))


def test_what_was_saved_goes_on_as_if_nothing_had_happened() -> None:
    replay = TaskReplay(20, 0.6)
    for _ in range(7):
        replay.observe([group(task, True, task % 3 == 0) for task in replay.draw(5)])
    resumed = TaskReplay(20, 0.6)
    resumed.load_state_dict(json.loads(json.dumps(replay.state_dict())))
    for _ in range(7):
        tasks = replay.draw(5)
        assert resumed.draw(5) == tasks
        for each in (replay, resumed):
            each.observe([group(task, True, task % 3 == 1) for task in tasks])


def test_new_tasks_follow_from_their_position_alone() -> None:
    drawn = TaskReplay(7, 0.0, seed=3)
    sequence = [task for _ in range(10) for task in drawn.draw(3)]
    other = TaskReplay(7, 0.0, seed=3)
    for position in (25, 0, 6, 13):
        assert other.at(position, 5) == sequence[position : position + 5]
    assert sorted(sequence[7:14]) == list(range(7))


@pytest.mark.parametrize("share", [-0.1, 1.0])
def test_shares_out_of_range_are_refused(share: float) -> None:
    with pytest.raises(BadSetting, match="replay_share"):
        TaskReplay(10, share)
    with pytest.raises(BadSetting, match="replay_share"):
        AgentConfig(output_dir="unused", replay_share=share)


def test_the_trainer_plays_what_the_replay_chooses(make_trainer: Callable[..., AgentTrainer]) -> None:
    trainer = make_trainer(replay_share=0.5)
    chooser = TaskReplay(10_000, 0.5, seed=0)
    for _ in range(2):
        trainer.make_batch()
        expected = chooser.draw(4)
        assert [g.episodes[0].task for g in trainer.groups] == expected
        assert all(len(g) == 4 for g in trainer.groups)
        chooser.observe(trainer.groups)
        # What the first batch taught is put in, so that the second one has something to replay.
        for each in (trainer.source.tasks, chooser):
            each.observe([group(expected[0], True, False)])
    metrics = trainer._metrics["train"]
    assert metrics["replayed_groups"][0] == 0
    assert metrics["replayed_groups"][1] == chooser.replayed / 4 > 0
    assert len(metrics["tasks_to_replay"]) == 2


def test_environments_are_made_once_and_closed_after_training(
    make_trainer: Callable[..., AgentTrainer], monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = Counter[str]()

    def make_env() -> TextEnv:
        env = make_text_env(SOKOBAN)
        counts["made"] += 1
        monkeypatch.setattr(env, "close", lambda: counts.update(closed=1))
        return env

    trainer = make_trainer(num_envs=5, max_steps=4)  # two batches
    trainer.source.envs = EnvPool(make_env)
    trainer.train()
    assert counts == {"made": 5, "closed": 5}

"""Dynamic sampling: what is played for a batch, what is kept of it, and that everything played is counted."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from trl import GRPOTrainer

from agentgym_flow.core import TextEnv
from agentgym_flow.episodes import Episode, Group, PolicyOutput, Turn
from agentgym_flow.errors import BadSetting, TrainingFailed
from agentgym_flow.play import ERROR, EnvPool
from agentgym_flow.training import group_source
from agentgym_flow.training.config import AgentConfig
from agentgym_flow.training.group_source import collect
from agentgym_flow.training.outcomes import TrainingOutcomes, ended_alike, is_lost, outcome_metrics, without_lost
from agentgym_flow.training.trainer import AgentTrainer

pytestmark = pytest.mark.usefixtures("narrow")

Trainers = Callable[..., AgentTrainer]


def episode(success: bool, *, reward: float = 0.0, lost: bool = False, task: int = 0, attempt: int = 0) -> Episode:
    turn = Turn("", "a", PolicyOutput("go"), reward, "", "b", True, False, True, success, float(success))
    meta: dict[str, Any] = {ERROR: {"class": "RuntimeError", "message": "broken"}} if lost else {}
    return Episode("E", {}, {}, "train", task, f"e:{task}", "", 0, attempt, 1, "", "a", turns=[turn], meta=meta)


def group(*successes: bool, task: int = 0) -> Group:
    return Group([episode(success, task=task) for success in successes])


# ---------------------------------------------------------------- the loop
def player(mixed: Sequence[bool]) -> tuple[Callable[[int, int], list[Group]], list[tuple[int, int]]]:
    """A player whose groups, told apart by their task, have variance as `mixed` says; and what was asked of it."""
    asked: list[tuple[int, int]] = []

    def play(number: int, count: int) -> list[Group]:
        first = sum(c for _, c in asked)
        asked.append((number, count))
        return [group(True, not mixed[task], task=task) for task in range(first, first + count)]

    return play, asked


def tasks(groups: Sequence[Group]) -> list[int]:
    return [g.episodes[0].task for g in groups]


def test_only_what_is_missing_is_played_again() -> None:
    play, asked = player([False, True, False, True, False, True, True])
    found = collect(play, 4, alike=ended_alike, max_rounds=10)
    assert asked == [(0, 4), (1, 2), (2, 1)]
    assert tasks(found.batch) == [1, 3, 5, 6]
    assert tasks(found.played) == [0, 1, 2, 3, 4, 5, 6]
    assert (found.kept, found.rounds) == (4, 3)


def test_when_the_rounds_are_over_groups_that_ended_alike_fill_the_batch() -> None:
    play, asked = player([False, True, False, False, False, True, False])
    found = collect(play, 4, alike=ended_alike, max_rounds=2)
    assert asked == [(0, 4), (1, 3)]
    assert tasks(found.batch) == [0, 1, 2, 5]
    assert (found.kept, found.rounds, len(found.played)) == (2, 2, 7)


@given(st.lists(st.booleans(), min_size=40, max_size=40), st.integers(1, 8), st.integers(1, 5))
def test_a_batch_is_always_full_and_loses_no_group_with_variance(
    mixed: list[bool], wanted: int, max_rounds: int
) -> None:
    play, asked = player(mixed)
    found = collect(play, wanted, alike=ended_alike, max_rounds=max_rounds)
    assert len(found.batch) == wanted
    assert tasks(found.played) == list(range(sum(count for _, count in asked)))
    assert tasks(found.batch) == sorted(tasks(found.batch))
    assert [t for t in tasks(found.batch) if mixed[t]] == [t for t in tasks(found.played) if mixed[t]]
    assert found.kept == sum(mixed[t] for t in tasks(found.played))
    assert found.rounds == len(asked) <= max_rounds
    assert found.kept == wanted or found.rounds == max_rounds
    if max_rounds == 1:
        assert found.batch == found.played


# ---------------------------------------------------------------- outcomes
@pytest.mark.parametrize("outcome", ["success", "return"])
def test_metrics_that_trl_has_too_have_its_names(outcome: str) -> None:
    found = outcome_metrics([group(True, False)], outcome=outcome)
    assert found["reward"] == found[outcome]
    of_trl = {name for name in found if f'"{name}"' in inspect.getsource(GRPOTrainer)}
    assert of_trl >= {"reward", "reward_std", "frac_reward_zero_std"}
    assert of_trl >= {"completions/mean_length", "completions/clipped_ratio"}


def test_variance_is_that_of_what_episodes_are_worth() -> None:
    assert ended_alike(group(True, True))
    assert not ended_alike(group(True, False))
    returns = Group([episode(False, reward=1.0), episode(False, reward=2.0)])
    assert ended_alike(returns)
    assert not ended_alike(returns, "return")


def test_a_lost_episode_is_compared_with_nothing() -> None:
    broken = Group([episode(True), episode(False, lost=True)])
    assert ended_alike(broken)
    assert [is_lost(e) for e in broken] == [False, True]
    [left] = without_lost([broken, Group([episode(False, lost=True)])])
    assert left.episodes == broken.episodes[:1]


def test_everything_counts_in_the_figures_of_a_batch() -> None:
    groups = [group(True, False), group(False, False), Group([episode(True, lost=True), episode(False)])]
    found = outcome_metrics(groups)
    assert found["success"] == pytest.approx(2 / 6)
    assert found["frac_reward_zero_std"] == pytest.approx(2 / 3)
    assert (found["reward"], found["reward_std"]) == (found["success"], pytest.approx((8 / 30) ** 0.5))
    played = TrainingOutcomes()
    played.count(groups)
    played.count(groups[:1])
    assert played == TrainingOutcomes(batches=2, episodes=8, env_steps=8, lost_episodes=1)


# ---------------------------------------------------------------- the trainer
@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[Episode]:
    """All episodes that trainers play from now on, whatever becomes of them."""
    episodes: list[Episode] = []
    rollout = group_source.rollout

    def counting(*args: Any, **kwargs: Any) -> list[Episode]:
        played = rollout(*args, **kwargs)
        episodes.extend(played)
        return played

    monkeypatch.setattr(group_source, "rollout", counting)
    return episodes


@pytest.mark.heavy
@pytest.mark.parametrize("merge", [True, False])
def test_a_batch_is_full_of_groups_with_variance(
    make_trainer: Trainers, warm: tuple[Any, Any], counted: list[Episode], merge: bool
) -> None:
    trainer = make_trainer(
        model=warm, merge_prompts=merge, dynamic_sampling=True, max_sampling_rounds=50, credit="grpo"
    )
    batch = trainer.make_batch()
    assert len(trainer.groups) == 4
    assert not any(map(ended_alike, trainer.groups))
    assert len(counted) > 16
    turns = sum(len(e.turns) for g in trainer.groups for e in g)
    assert batch["num_items_in_batch"] == turns
    if merge:
        assert batch["weights"].sum() == turns
    else:
        assert batch["tool_mask"].sum() == turns
        assert (batch["advantages"].abs().sum(1) > 0).sum() == turns  # no turn without a comparison
    # Everything played is in the figures, also what was left out.
    metrics = {name: values[-1] for name, values in trainer._metrics["train"].items()}
    assert metrics["groups_played"] == len(counted) / 4 > metrics["groups_kept"] == 4
    assert metrics["sampling_rounds"] > 1
    assert metrics["success"] == pytest.approx(sum(e.success for e in counted) / len(counted))
    assert metrics["frac_reward_zero_std"] == pytest.approx(1 - 4 * 4 / len(counted))
    assert metrics["turns"] == turns
    assert trainer.played == TrainingOutcomes(1, len(counted), sum(len(e.turns) for e in counted), 0)


def test_what_was_played_is_counted_with_and_without_it(
    make_trainer: Trainers, warm: tuple[Any, Any], counted: list[Episode]
) -> None:
    for settings in ({}, {"dynamic_sampling": True, "max_sampling_rounds": 3}):
        counted.clear()
        trainer = make_trainer(model=warm, max_steps=4, logging_steps=1, learning_rate=1e-6, **settings)
        trainer.train()
        last = [log for log in trainer.state.log_history if "episodes" in log][-1]
        assert last["episodes"] == len(counted)
        assert last["env_steps"] == sum(len(e.turns) for e in counted)
        assert ("groups_played" in trainer.state.log_history[0]) == bool(settings)
        assert (len(counted) == 32) != bool(settings)  # two batches of 16


def test_a_small_split_gives_no_episode_twice_in_a_batch(
    make_trainer: Trainers, counted: list[Episode], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentgym_flow.envs.sokoban.env.SokobanEnv.num_tasks", 4)
    # An untrained model hardly ever succeeds, so every round plays the same tasks again.
    trainer = make_trainer(dynamic_sampling=True, max_sampling_rounds=3, invalid_action_penalty=1.0)
    trainer.make_batch()
    assert len(counted) > 16
    assert len({e.task for e in counted}) == 4
    assert len({(e.task, e.seed, e.attempt) for e in counted}) == len(counted)
    assert trainer._metrics["train"]["sampling_rounds"] == [3]
    assert trainer._metrics["train"]["groups_kept"][0] < len(trainer.groups) == 4


def test_variance_is_that_of_what_the_credit_function_compares(
    make_trainer: Trainers, warm: tuple[Any, Any], counted: list[Episode]
) -> None:
    # Episodes that stop in a deadlock have different returns where none succeeds.
    returns = {"credit": "gigpo", "credit_settings": {"outcome": "return"}, "stop_when": "deadlock"}
    trainer = make_trainer(model=warm, dynamic_sampling=True, max_sampling_rounds=20, **returns)
    trainer.make_batch()
    assert not any(ended_alike(g, "return") for g in trainer.groups)
    assert any(ended_alike(g) for g in trainer.groups)
    alike = [ended_alike(Group(counted[i : i + 4]), "return") for i in range(0, len(counted), 4)]
    assert trainer._metrics["train"]["frac_reward_zero_std"] == [pytest.approx(sum(alike) / len(alike))]


def test_it_goes_together_with_task_replay(
    make_trainer: Trainers, warm: tuple[Any, Any], counted: list[Episode]
) -> None:
    trainer = make_trainer(model=warm, dynamic_sampling=True, max_sampling_rounds=4, replay_share=0.5)
    trainer.make_batch()
    first = {g.episodes[0].task for g in trainer.groups if not ended_alike(g)}
    assert len(trainer.source.tasks) == len(first) >= 2
    trainer.make_batch()
    assert trainer._metrics["train"]["replayed_groups"][1] > 0
    assert first & {e.task for e in counted[-16:]} or first & {g.episodes[0].task for g in trainer.groups}


# ---------------------------------------------------------------- groups that lost episodes
def breaking(make_env: Callable[[], TextEnv], breaks: Callable[[int], bool], at: int = 1) -> EnvPool:
    """Environments that raise after `at` steps of the episodes whose number `breaks` says so."""
    begun = iter(range(10**6))

    def make() -> TextEnv:
        env = make_env()
        apply, begin = env._apply, env._begin
        numbers: list[int] = []

        def counting(*args: Any) -> Any:
            numbers.append(next(begun))
            return begin(*args)

        def sometimes(action: str) -> Any:
            if env.steps == at and breaks(numbers[-1]):
                raise RuntimeError("the disk is full")
            return apply(action)

        env._begin, env._apply = counting, sometimes  # type: ignore[method-assign]
        return env

    return EnvPool(make)


@pytest.mark.parametrize("credit", ["grpo", "rloo", "gigpo", "rewardflow", "graphgpo"])
def test_lost_episodes_neither_train_nor_are_compared_with(
    make_trainer: Trainers, warm: tuple[Any, Any], make_env: Callable[[], TextEnv], credit: str
) -> None:
    trainer = make_trainer(model=warm, credit=credit, merge_prompts=False, tasks=(5, 2, 9, 7))
    # Of task 9 all episodes but the last are lost, of task 2 all, of task 5 the second.
    lost = {1, 4, 5, 6, 7, 8, 9, 10}
    trainer.source.envs = breaking(make_env, lost.__contains__)
    batch = trainer.make_batch()
    assert [(g.episodes[0].task, [e.attempt for e in g]) for g in trainer.groups] == [
        (5, [0, 2, 3]),
        (9, [3]),
        (7, [0, 1, 2, 3]),
    ]
    turns = [len(e.turns) for g in trainer.groups for e in g]
    assert batch["num_items_in_batch"] == sum(turns)
    assert trainer.played.episodes == 16
    assert trainer.played.lost_episodes == 8
    # Alone in its group an episode has nothing to be better than; by its states it may still be.
    single = slice(sum(turns[:3]), sum(turns[:4]))
    advantages = batch["advantages"][single, 0]
    assert torch.isfinite(batch["advantages"]).all()
    if credit in ("grpo", "rloo"):
        assert not advantages.any()


def test_a_run_goes_on_without_lost_episodes_and_says_how_many(
    make_trainer: Trainers, warm: tuple[Any, Any], make_env: Callable[[], TextEnv]
) -> None:
    trainer = make_trainer(model=warm, max_steps=4)
    trainer.source.envs = breaking(make_env, lambda number: number % 8 == 0, at=0)
    trainer.train()
    logs = [log for log in trainer.state.log_history if "success" in log]
    assert [log["lost_episodes"] for log in logs] == [2, 4]
    assert [log["episodes"] for log in logs] == [16, 32]


def test_a_batch_that_is_lost_whole_ends_the_run(
    make_trainer: Trainers, warm: tuple[Any, Any], make_env: Callable[[], TextEnv]
) -> None:
    trainer = make_trainer(model=warm)
    trainer.source.envs = breaking(make_env, lambda number: True, at=0)
    with pytest.raises(
        TrainingFailed, match=r"raised in all 16 episodes .* RuntimeError: the disk is full.*env_kwargs"
    ):
        trainer.train()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dynamic_sampling": True, "max_sampling_rounds": 1}, "max_sampling_rounds"),
        ({"num_generations": 1}, "num_generations must be an integer of at least 2"),
        ({"num_generations": 5}, "divisible"),
    ],
)
def test_settings_that_leave_nothing_to_compare_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(BadSetting, match=message):
        AgentConfig(output_dir="unused", **settings)

"""The batch against Gymnasium's `SyncVectorEnv` over the single environment: everything equal, in every mode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode
from hypothesis import given, settings
from hypothesis import strategies as st

import agentgym_flow  # noqa: F401 (registers the ids)
from agentgym_flow.core.seeding import draw_task
from agentgym_flow.envs.sokoban.grid import INFO_KEYS
from agentgym_flow.envs.sokoban.pool import draw_tasks
from agentgym_flow.envs.sokoban.vector import FAST_INFO_KEYS, SokobanVectorEnv
from agentgym_flow.errors import BadAction, BadSetting, ResetNeeded, UnknownOption, UnknownTask

GRID = "agentgym_flow/SokobanGrid-v0"
MODES = list(AutoresetMode)


def pair(num_envs: int, mode: AutoresetMode, **kwargs: Any) -> tuple[gym.vector.VectorEnv, gym.vector.VectorEnv]:
    kwargs.setdefault("info_keys", INFO_KEYS)
    batch = gym.make_vec(GRID, num_envs=num_envs, autoreset_mode=mode, **kwargs)
    assert isinstance(batch, SokobanVectorEnv)
    loop = gym.make_vec(
        GRID, num_envs=num_envs, vectorization_mode="sync", vector_kwargs={"autoreset_mode": mode}, **kwargs
    )
    return batch, loop


def assert_equal(ours: tuple[Any, ...], theirs: tuple[Any, ...]) -> None:
    assert data_equivalence(ours, theirs, exact=True), (ours, theirs)


def play(batch: gym.vector.VectorEnv, loop: gym.vector.VectorEnv, steps: int, seed: int) -> np.ndarray:
    """Step both with equal actions and compare everything; return how often boards were solved and truncated."""
    rng = np.random.default_rng(seed)
    ends = np.zeros(2, int)
    for _ in range(steps):
        actions = rng.integers(0, 4, batch.num_envs)
        ours, theirs = batch.step(actions), loop.step(actions)
        assert_equal(ours, theirs)
        ended = ours[2] | ours[3]
        assert not (ours[2] & ours[3]).any()
        ends += ours[2].sum(), ours[3].sum()
        if batch.metadata["autoreset_mode"] is AutoresetMode.DISABLED and ended.any():
            assert_equal(batch.reset(options={"reset_mask": ended}), loop.reset(options={"reset_mask": ended.copy()}))
    return ends


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("size", "boxes"), [((6, 6), 1), ((7, 8), 3)])
def test_long_play_is_equal(mode: AutoresetMode, size: tuple[int, int], boxes: int) -> None:
    batch, loop = pair(6, mode, size=size, boxes=boxes, max_steps=23)
    assert_equal(batch.reset(seed=11), loop.reset(seed=11))
    solved, truncated = play(batch, loop, 600, seed=1)
    assert solved > (20 if boxes == 1 else 0)
    assert truncated > 20
    assert_equal(batch.reset(), loop.reset())
    play(batch, loop, 30, seed=2)


@settings(max_examples=25, deadline=None)
@given(
    mode=st.sampled_from(MODES),
    num_envs=st.integers(1, 5),
    seeds=st.one_of(st.integers(0, 2**32), st.lists(st.integers(0, 2**32), min_size=5, max_size=5)),
    task=st.one_of(st.none(), st.integers(0, 499)),
    max_steps=st.integers(1, 9),
    keys=st.sets(st.sampled_from(INFO_KEYS)),
    restart=st.integers(0, 2**32),
)
def test_any_seeds_modes_and_options_are_equal(
    mode: AutoresetMode,
    num_envs: int,
    seeds: int | list[int],
    task: int | None,
    max_steps: int,
    keys: set[str],
    restart: int,
) -> None:
    batch, loop = pair(num_envs, mode, split="valid", max_steps=max_steps, info_keys=sorted(keys))
    seed = seeds if isinstance(seeds, int) else seeds[:num_envs]
    options = None if task is None else {"task": task}
    assert_equal(batch.reset(seed=seed, options=options), loop.reset(seed=seed, options=options))
    play(batch, loop, 15, seed=0)
    mask = np.arange(num_envs) % 2 == 0
    again = [restart if board % 3 else None for board in range(num_envs)]
    given_options: dict[str, Any] = {} if task is None else {"task": task}
    ours = batch.reset(seed=again, options={"reset_mask": mask, **given_options})
    assert_equal(ours, loop.reset(seed=again, options={"reset_mask": mask, **given_options}))
    play(batch, loop, 10, seed=1)


@pytest.mark.parametrize("mode", MODES)
def test_the_step_limit_of_gymnasium_is_equal(mode: AutoresetMode) -> None:
    batch, loop = pair(4, mode, max_episode_steps=2, min_pushes=3)
    assert_equal(batch.reset(seed=0), loop.reset(seed=0))
    assert play(batch, loop, 12, seed=0)[1] >= 16
    with pytest.raises(BadSetting, match="max_episode_steps"):
        gym.make_vec(GRID, max_episode_steps=0)


def test_boxoban_levels_are_equal(sample_data: Path) -> None:
    data = str(sample_data / "boxoban" / "unfiltered-valid.txt")
    batch, loop = pair(4, AutoresetMode.SAME_STEP, data=data, split="valid", max_steps=40)
    assert_equal(batch.reset(seed=0), loop.reset(seed=0))
    play(batch, loop, 200, seed=3)


def test_levels_with_boxes_on_targets_are_equal() -> None:
    batch, loop = pair(3, AutoresetMode.NEXT_STEP, level="#######\n#+$ *.#\n#  $* #\n#     #\n#######", max_steps=50)
    assert_equal(batch.reset(seed=0), loop.reset(seed=0))
    play(batch, loop, 300, seed=4)


def test_the_batch_has_the_attributes_of_the_loop() -> None:
    batch, loop = pair(3, AutoresetMode.SAME_STEP)
    assert batch.metadata == loop.metadata
    for name in ("num_envs", "single_observation_space", "observation_space", "single_action_space", "action_space"):
        assert getattr(batch, name) == getattr(loop, name)


def test_unless_told_otherwise_infos_are_the_fast_ones() -> None:
    batch = gym.make_vec(GRID, num_envs=2)
    _, infos = batch.reset(seed=0)
    assert set(infos) == {*FAST_INFO_KEYS, *(f"_{key}" for key in FAST_INFO_KEYS)}
    loop = gym.make_vec(GRID, num_envs=2, vectorization_mode="sync", info_keys=FAST_INFO_KEYS)
    assert_equal(batch.reset(seed=0), loop.reset(seed=0))


@pytest.mark.parametrize("render_mode", ["ansi", "rgb_array"])
def test_renderings_are_equal(render_mode: str) -> None:
    batch, loop = pair(3, AutoresetMode.NEXT_STEP, render_mode=render_mode)
    batch.reset(seed=0)
    loop.reset(seed=0)
    assert_equal(batch.render(), loop.render())


def test_nothing_is_shared_between_steps() -> None:
    for mode in MODES:
        batch, loop = pair(3, mode, info_keys=INFO_KEYS)
        results = [batch.reset(seed=0)]
        loop.reset(seed=0)
        for action in (0, 1, 2, 3):
            actions = np.full(3, action)
            results.append(batch.step(actions))
            for earlier in results[:-1]:
                for before in arrays(earlier):
                    assert not any(np.shares_memory(before, now) for now in arrays(results[-1]))
            expected = loop.step(actions)
            assert_equal(results[-1], expected)
            for array in arrays(results[-1]):
                array[...] = None if array.dtype == object else 1  # a caller may write into what it was given


def arrays(result: tuple[Any, ...]) -> list[np.ndarray]:
    infos = result[-1]
    return [*(part for part in result[:-1]), *(value for value in infos.values() if isinstance(value, np.ndarray))]


def test_each_board_can_have_its_own_task() -> None:
    batch = SokobanVectorEnv(3)
    _, infos = batch.reset(options={"task": [5, 0, 9_999]})
    assert infos["task"].tolist() == [5, 0, 9_999]


def test_batched_draws_are_the_single_draw() -> None:
    rng = np.random.default_rng(0)
    bits = np.concatenate([rng.integers(0, 2**64, 500, np.uint64), np.array([0, 2**64 - 1, 2**32, 2**63], np.uint64)])
    for num_tasks in (1, 2, 3, 500, 10_000, 900_000, 2**32 - 1):
        assert draw_tasks(bits, num_tasks).tolist() == [draw_task(int(word), num_tasks) for word in bits]


def test_the_pool_grows() -> None:
    batch = SokobanVectorEnv(600, info_keys=INFO_KEYS)
    grids, infos = batch.reset(options={"task": list(range(600))})
    assert len(set(infos["task_key"])) == len({grid.tobytes() for grid in grids}) > 500
    again, _ = batch.reset(options={"task": list(range(600))})
    np.testing.assert_array_equal(grids, again)


def test_the_callers_options_are_left_alone() -> None:
    options = {"reset_mask": np.array([True, False]), "task": 3}
    SokobanVectorEnv(2).reset(options=options)
    assert set(options) == {"reset_mask", "task"}


def test_seeds_may_be_numpys() -> None:
    batch = SokobanVectorEnv(3)
    tasks = batch.reset(seed=5)[1]["task"]
    for seed in (np.int64(5), np.array([5, 6, 7]), [5, np.int32(6), 7]):
        np.testing.assert_array_equal(batch.reset(seed=seed)[1]["task"], tasks)  # type: ignore[arg-type]


def test_misuse_is_named() -> None:
    batch = SokobanVectorEnv(2, autoreset_mode="Disabled", max_steps=1)
    with pytest.raises(ResetNeeded):
        batch.step(np.zeros(2, int))
    batch.reset(seed=0, options={"reset_mask": np.array([True, False])})
    with pytest.raises(ResetNeeded):
        batch.step(np.zeros(2, int))
    batch.reset(seed=0)
    for actions in ([0], [0, 4], [0, -1], [0.0, 1.0]):
        with pytest.raises(BadAction):
            batch.step(np.array(actions))
    batch.step(np.zeros(2, int))
    with pytest.raises(ResetNeeded, match="reset_mask"):
        batch.step(np.zeros(2, int))
    with pytest.raises(UnknownOption, match="SameStep"):
        SokobanVectorEnv(2, autoreset_mode="same step")
    with pytest.raises(UnknownOption, match="reset_mask"):
        batch.reset(options={"mask": np.ones(2, bool)})
    for mask in ([True, True], np.ones(3, bool), np.ones(2), np.zeros(2, bool)):
        with pytest.raises(BadSetting, match="reset_mask"):
            batch.reset(options={"reset_mask": mask})
    with pytest.raises(BadSetting, match="seeds"):
        batch.reset(seed=[1, 2, 3])
    with pytest.raises(BadSetting, match="seed must be an integer or a sequence of 2"):
        batch.reset(seed=1.5)  # type: ignore[arg-type]
    with pytest.raises(BadSetting, match="values of 'task'"):
        batch.reset(options={"task": [1, 2, 3]})
    with pytest.raises(UnknownTask):
        batch.reset(options={"task": [1, -2]})
    with pytest.raises(BadSetting, match="render_mode"):
        SokobanVectorEnv(2, render_mode="human")
    with pytest.raises(BadSetting, match="num_envs"):
        SokobanVectorEnv(0)

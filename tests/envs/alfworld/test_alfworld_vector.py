"""The batches against Gymnasium's `SyncVectorEnv` over the single environments: everything equal, in every mode."""

from __future__ import annotations

import copy
import pickle
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
from agentgym_flow.core import Stream
from agentgym_flow.envs.alfworld.env import INFO
from agentgym_flow.envs.alfworld.vector import INDEX_INFO, ALFWorldIndexVectorEnv, ALFWorldVectorEnv
from agentgym_flow.errors import BadAction, BadSetting, ResetNeeded, UnknownOption, UnknownTask

TEXT, INDEX = "agentgym_flow/ALFWorld-v0", "agentgym_flow/ALFWorldIndex-v0"
MODES = list(AutoresetMode)


def pair(env_id: str, num_envs: int, mode: AutoresetMode, **kwargs: Any) -> tuple[Any, Any]:
    batch = gym.make_vec(env_id, num_envs=num_envs, autoreset_mode=mode, **kwargs)
    assert type(batch) is (ALFWorldVectorEnv if env_id == TEXT else ALFWorldIndexVectorEnv)
    loop = gym.make_vec(
        env_id, num_envs=num_envs, vectorization_mode="sync", vector_kwargs={"autoreset_mode": mode}, **kwargs
    )
    return batch, loop


def assert_equal(ours: tuple[Any, ...], theirs: tuple[Any, ...]) -> None:
    assert data_equivalence(ours, theirs, exact=True), (ours, theirs)


def choose(loop: Any, rng: Stream) -> list[str]:
    """Return for each environment the expert's command, sometimes any other, sometimes none at all."""
    actions = []
    for env in loop.envs:
        text = env.unwrapped.text if hasattr(env.unwrapped, "text") else env.unwrapped
        expert, kind = text.expert_action(), rng.below(8)
        commands = text.admissible_actions()
        actions.append(expert if kind and expert else rng.choice([*commands, "nonsense"]))
    return actions


def as_numbers(loop: Any, actions: list[str]) -> np.ndarray:
    lists = [env.unwrapped.text.admissible_actions() for env in loop.envs]
    return np.array([c.index(a) if a in c else 127 for c, a in zip(lists, actions, strict=True)])


def play(batch: Any, loop: Any, steps: int, seed: int) -> np.ndarray:
    """Step both with equal actions and compare everything; return how often games were won and truncated."""
    rng, ends = Stream("batch", seed), np.zeros(2, int)
    for _ in range(steps):
        actions: Any = choose(loop, rng)
        if isinstance(batch, ALFWorldIndexVectorEnv):
            actions = as_numbers(loop, actions)
        ours, theirs = batch.step(actions), loop.step(actions)
        assert_equal(ours, theirs)
        ended = ours[2] | ours[3]
        assert not (ours[2] & ours[3]).any()
        ends += ours[2].sum(), ours[3].sum()
        if batch.metadata["autoreset_mode"] is AutoresetMode.DISABLED and ended.any():
            assert_equal(batch.reset(options={"reset_mask": ended}), loop.reset(options={"reset_mask": ended.copy()}))
    return ends


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("env_id", [TEXT, INDEX])
def test_long_play_is_equal(env_id: str, mode: AutoresetMode) -> None:
    batch, loop = pair(env_id, 4, mode, max_steps=8, split="valid")
    assert_equal(batch.reset(seed=11), loop.reset(seed=11))
    won, truncated = play(batch, loop, 60, seed=1)
    assert won > 3
    assert truncated > 3
    assert_equal(batch.reset(), loop.reset())
    play(batch, loop, 5, seed=2)


@settings(max_examples=15, deadline=None)
@given(
    env_id=st.sampled_from([TEXT, INDEX]),
    mode=st.sampled_from(MODES),
    num_envs=st.integers(1, 4),
    seeds=st.one_of(st.integers(0, 2**32), st.lists(st.integers(0, 2**32), min_size=4, max_size=4)),
    fixed=st.sampled_from([{}, {"task": 7}, {"task_type": 5}, {"task_type": "pick_and_place_simple"}]),
    max_steps=st.integers(1, 6),
    restart=st.integers(0, 2**32),
)
def test_any_seeds_modes_and_options_are_equal(
    env_id: str,
    mode: AutoresetMode,
    num_envs: int,
    seeds: int | list[int],
    fixed: dict[str, Any],
    max_steps: int,
    restart: int,
) -> None:
    batch, loop = pair(env_id, num_envs, mode, split="valid", max_steps=max_steps)
    seed = seeds if isinstance(seeds, int) else seeds[:num_envs]
    assert_equal(batch.reset(seed=seed, options=fixed or None), loop.reset(seed=seed, options=fixed or None))
    play(batch, loop, 8, seed=0)
    mask = np.arange(num_envs) % 2 == 0
    again = [restart if number % 3 else None for number in range(num_envs)]
    ours = batch.reset(seed=again, options={"reset_mask": mask, **fixed})
    assert_equal(ours, loop.reset(seed=again, options={"reset_mask": mask, **fixed}))
    play(batch, loop, 8, seed=1)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("env_id", [TEXT, INDEX])
def test_the_step_limit_of_gymnasium_is_equal(env_id: str, mode: AutoresetMode) -> None:
    batch, loop = pair(env_id, 3, mode, max_episode_steps=2)
    assert_equal(batch.reset(seed=0), loop.reset(seed=0))
    assert play(batch, loop, 12, seed=0)[1] >= 12


def test_official_games_are_equal(sample_data: Path) -> None:
    batch, loop = pair(TEXT, 3, AutoresetMode.SAME_STEP, data=sample_data / "alfworld", split="valid", max_steps=20)
    assert_equal(batch.reset(seed=0), loop.reset(seed=0))
    won, _ = play(batch, loop, 40, seed=3)
    assert won
    name = batch.reset(seed=1)[1]["game_file"][0]
    options = {"game_file": name}
    assert_equal(batch.reset(seed=2, options=options), loop.reset(seed=2, options=options))


@pytest.mark.parametrize(("env_id", "known"), [(TEXT, INFO), (INDEX, INDEX_INFO)])
def test_info_keys_choose_what_is_told(env_id: str, known: dict[str, Any]) -> None:
    usual = gym.make_vec(env_id, num_envs=2).reset(seed=0)[1]
    everything = gym.make_vec(env_id, num_envs=2, info_keys=list(known)).reset(seed=0)[1]
    assert set(everything) == {*known, *(f"_{key}" for key in known)}
    assert set(everything) - set(usual) == {"official_key", "_official_key"}  # it costs time
    for key in known:
        infos = gym.make_vec(env_id, num_envs=2, info_keys=[key]).reset(seed=0)[1]
        assert_equal((infos,), ({name: everything[name] for name in (key, f"_{key}")},))
    with pytest.raises(UnknownOption, match="goal"):
        gym.make_vec(env_id, num_envs=2, info_keys=["gaol"])


@pytest.mark.parametrize("env_id", [TEXT, INDEX])
def test_the_batch_has_the_attributes_of_the_loop(env_id: str) -> None:
    batch, loop = pair(env_id, 3, AutoresetMode.SAME_STEP)
    assert batch.metadata == loop.metadata
    for name in ("num_envs", "single_observation_space", "observation_space", "single_action_space", "action_space"):
        assert getattr(batch, name) == getattr(loop, name)


def test_renderings_are_equal() -> None:
    batch, loop = pair(TEXT, 2, AutoresetMode.NEXT_STEP, render_mode="ansi")
    batch.reset(seed=0)
    loop.reset(seed=0)
    assert batch.render() == loop.render()
    assert gym.make_vec(TEXT, num_envs=2).render() is None


@pytest.mark.parametrize("env_id", [TEXT, INDEX])
def test_what_was_given_belongs_to_the_caller(env_id: str) -> None:
    batch, loop = pair(env_id, 2, AutoresetMode.NEXT_STEP)
    results = [batch.reset(seed=0)]
    loop.reset(seed=0)
    for _ in range(3):
        for value in results[-1][-1].values():
            if value.dtype == object:
                for item in value:
                    item.clear() if isinstance(item, list) else None
            value[...] = None if value.dtype == object else ~value if value.dtype == bool else 1
        actions: Any = np.array([3, 5]) if env_id == INDEX else ["look", "inventory"]
        results.append(batch.step(actions))
        assert_equal(results[-1], loop.step(actions))


def test_each_environment_can_have_its_own_task() -> None:
    batch = ALFWorldVectorEnv(3)
    assert batch.reset(options={"task": [5, 0, 3_552]})[1]["task"].tolist() == [5, 0, 3_552]
    assert batch.reset(options={"task": np.array([4, 4, 9])})[1]["task"].tolist() == [4, 4, 9]
    names = ["look_at_obj_in_light", "pick_and_place_simple", "pick_two_obj_and_place"]
    assert batch.reset(seed=0, options={"task_type": names})[1]["task_type"].tolist() == names


@pytest.mark.parametrize("env_id", [TEXT, INDEX])
def test_copies_go_on_where_the_original_was(env_id: str) -> None:
    batch = gym.make_vec(env_id, num_envs=2, max_steps=4)
    batch.reset(seed=4)
    rows: list[Any] = [np.array([0, 40])] * 8 if env_id == INDEX else [["look", "nonsense"]] * 8
    batch.step(rows[0])
    copies = [pickle.loads(pickle.dumps(batch)), copy.deepcopy(batch)]
    for row in rows:
        expected = batch.step(row)
        for other in copies:
            assert_equal(other.step(row), expected)


def test_misuse_is_named() -> None:
    batch = ALFWorldVectorEnv(2, autoreset_mode="Disabled", max_steps=1)
    with pytest.raises(ResetNeeded):
        batch.step(["look", "look"])
    batch.reset(seed=0, options={"reset_mask": np.array([True, False])})
    with pytest.raises(ResetNeeded):
        batch.step(["look", "look"])
    batch.reset(seed=0)
    for actions in (["look"], "look", ["look", 1], [None, "look"], 7, np.array([0, 1])):
        with pytest.raises(BadAction, match="2 texts"):
            batch.step(actions)
    assert batch.step(np.array(["look", "help"], object))[3].all()
    with pytest.raises(ResetNeeded, match="reset_mask"):
        batch.step(["look", "look"])
    with pytest.raises(UnknownOption, match="SameStep"):
        ALFWorldVectorEnv(2, autoreset_mode="same step")
    with pytest.raises(BadSetting, match="values of 'task_type'"):
        batch.reset(options={"task_type": [1, 2, 3]})
    with pytest.raises(BadSetting, match="num_envs"):
        ALFWorldVectorEnv(0)


def test_numbers_outside_the_space_are_named_before_anything_is_played() -> None:
    batch = ALFWorldIndexVectorEnv(2)
    with pytest.raises(ResetNeeded):
        batch.step([0, 0])
    batch.reset(seed=0)
    for actions in ([0], [0, 128], [0, -1], [0.0, 1.0], ["look", "look"]):
        with pytest.raises(BadAction):
            batch.step(actions)
    assert all(env.steps == 0 for env in batch._envs)
    assert batch.step(np.array([0, 127], np.uint8))[4]["action_valid"].tolist() == [True, False]


def test_a_start_that_fails_leaves_no_batch_half_old_and_half_new() -> None:
    batch = ALFWorldVectorEnv(2)
    batch.reset(seed=0)
    with pytest.raises(UnknownTask):
        batch.reset(options={"task": [1, -2]})
    with pytest.raises(ResetNeeded):
        batch.step(["look", "look"])
    batch.reset()
    batch.step(["look", "look"])

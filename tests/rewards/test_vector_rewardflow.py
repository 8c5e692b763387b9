"""The vector twin gives what single wrappers sharing one store give, in every autoreset mode."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics

import agentgym_flow  # noqa: F401  (registers the environments)
from agentgym_flow.errors import BadSetting
from agentgym_flow.rewards import GraphStore, RewardFlow, VectorRewardFlow
from agentgym_flow.rewards.slots import slot_info

N = 3
MODES = list(AutoresetMode)


def observed(observation, info):
    return observation


def goal_reached(reward, terminated, info):
    return bool(terminated and reward > 0)


FOREIGN = {"key_fn": observed, "success_fn": goal_reached}


def make_lake():
    return gym.make("FrozenLake-v1", desc=["SFF", "FHF", "FFG"], is_slippery=True, max_episode_steps=7)


def make_sokoban():
    return gym.make("agentgym_flow/Sokoban-v0", max_steps=6)


def assert_equal_infos(one, other):
    assert one.keys() == other.keys()
    for name, values in one.items():
        if isinstance(values, dict):
            assert_equal_infos(values, other[name])
        else:
            for value, expected in zip(values, other[name], strict=True):
                assert np.array_equal(value, expected), name


def actions_of(envs, generator, lake):
    words = ("up", "down", "left", "right", "nonsense")
    if lake:
        return np.array([generator.integers(4) for _ in range(envs.num_envs)])
    return tuple(words[generator.integers(5)] for _ in range(envs.num_envs))


def assert_equal_play(twin: VectorEnv, singles: VectorEnv, mode: AutoresetMode, lake: bool, steps: int = 60) -> None:
    options = {} if lake else {"options": {"task": 0}}
    (_, infos), (_, expected) = twin.reset(seed=5, **options), singles.reset(seed=5, **options)
    assert_equal_infos(infos, expected)
    generator = np.random.default_rng(0)
    endings = 0
    for _ in range(steps):
        actions = actions_of(twin, generator, lake)
        got, wanted = twin.step(actions), singles.step(actions)
        for one, other in zip(got[:4], wanted[:4], strict=True):
            assert np.array_equal(one, other)
        assert_equal_infos(got[4], wanted[4])
        done = np.logical_or(got[2], got[3])
        endings += done.sum()
        if mode == AutoresetMode.DISABLED and done.any():
            results = [envs.reset(options={"reset_mask": done.copy()}) for envs in (twin, singles)]
            assert_equal_infos(results[0][1], results[1][1])
    assert endings >= 2 * N


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shaping", ["invariant", "rewardflow"])
@pytest.mark.parametrize("update", ["step", "reset"])
def test_the_twin_equals_single_wrappers_that_share_a_store(mode, shaping, update):
    ours, theirs = GraphStore(), GraphStore()
    keywords = {**FOREIGN, "shaping": shaping, "update": update, "scale": 2.0}
    twin = VectorRewardFlow(SyncVectorEnv([make_lake] * N, autoreset_mode=mode), graphs=ours, **keywords)
    singles = SyncVectorEnv([lambda: RewardFlow(make_lake(), graphs=theirs, **keywords)] * N, autoreset_mode=mode)
    assert_equal_play(twin, singles, mode, lake=True, steps=400)
    twin.close()
    singles.close()
    assert ours.to_dict() == theirs.to_dict()
    assert ours.graph("task").num_successes == 1


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("vector", [SyncVectorEnv, partial(AsyncVectorEnv, shared_memory=False)])
def test_the_twin_equals_single_wrappers_on_text_environments(mode, vector):
    ours, theirs = GraphStore(), GraphStore()
    twin = VectorRewardFlow(vector([make_sokoban] * N, autoreset_mode=mode), graphs=ours)
    singles = SyncVectorEnv([lambda: RewardFlow(make_sokoban(), graphs=theirs)] * N, autoreset_mode=mode)
    assert_equal_play(twin, singles, mode, lake=False, steps=30)
    twin.close()
    singles.close()
    assert ours.to_dict() == theirs.to_dict()


def test_wrappers_around_it_see_the_mask_of_a_reset():
    """Gymnasium's vector environments remove the mask from the options; its statistics then start anew in all slots."""
    lengths = 3, 5
    makers = [partial(gym.make, "agentgym_flow/Sokoban-v0", max_steps=steps) for steps in lengths]
    inner = VectorRewardFlow(SyncVectorEnv(makers, autoreset_mode=AutoresetMode.DISABLED))
    envs, found = RecordEpisodeStatistics(inner), []
    envs.reset(seed=0)
    for _ in range(15):
        _, _, terminations, truncations, infos = envs.step(("nonsense", "nonsense"))
        if (over := terminations | truncations).any():
            found += infos["episode"]["l"][over].tolist()
            envs.reset(options={"reset_mask": over})
    assert sorted(found) == [3] * 5 + [5] * 3


def test_a_slot_learns_from_another_slots_success():
    cliffs = gym.make_vec("CliffWalking-v1", num_envs=2)
    envs = VectorRewardFlow(cliffs, key_fn=observed, success_fn=lambda reward, terminated, info: bool(terminated))
    envs.reset(seed=0)
    for action in [0] + [1] * 11 + [2]:
        _, rewards, terminations, _, infos = envs.step(np.array([action, 0]))
    assert list(terminations) == [True, False]
    assert list(infos["native_reward"]) == [-1, -1]
    _, rewards, terminations, _, infos = envs.step(np.array([0, 0]))  # slot 0 is reset, slot 1 learns from slot 0
    assert rewards[0] == 0.0
    assert infos["potential"][0] == pytest.approx(0.9**13)
    envs.close()


def test_the_reset_that_next_step_performs_is_no_edge():
    """Were it one, the goal would lead back to the start, and the start would be the goal's neighbour."""
    envs = VectorRewardFlow(SyncVectorEnv([lambda: gym.make("FrozenLake-v1", is_slippery=False)]), **FOREIGN)
    envs.reset(seed=0)
    for action in [2, 2, 1, 1, 1, 2, 0, 2]:
        envs.step(np.array([action]))
    edges = {(edge.src, edge.dst) for edge in envs.graphs.graph("task").edges()}
    route = ["0", "1", "2", "6", "10", "14", "end:success:15"]
    assert edges == set(pairwise(route))


def test_an_unnamed_autoreset_mode_is_refused():
    envs = SyncVectorEnv([make_lake])
    envs.metadata = {}
    with pytest.raises(BadSetting, match="autoreset_mode"):
        VectorRewardFlow(envs)


def test_a_missing_key_is_named_here_too():
    envs = VectorRewardFlow(SyncVectorEnv([make_lake]))
    with pytest.raises(BadSetting, match="key_fn"):
        envs.reset()


def test_the_scale_can_be_changed_between_episodes():
    envs = VectorRewardFlow(SyncVectorEnv([make_lake] * 2), scale=2.0, **FOREIGN)
    envs.scale = 0.5
    assert envs.scale == 0.5


def test_info_of_one_slot_is_what_its_environment_told():
    envs = SyncVectorEnv([make_lake] * 2)
    infos = envs._add_info({}, {"a": 1, "deep": {"b": "x"}}, 0)
    infos = envs._add_info(infos, {"a": 2, "_private": 3}, 1)
    assert slot_info(infos, 0) == {"a": 1, "deep": {"b": "x"}}
    assert slot_info(infos, 1) == {"a": 2, "_private": 3}
    for_all = {"seconds": 0.5, "name": "lake", "none": None}
    assert slot_info(for_all, 1) == for_all


def test_a_reset_by_hand_after_an_end_needs_no_second_one():
    """The step after it is a step of the task, not the reset that `NEXT_STEP` would have performed."""
    envs = VectorRewardFlow(SyncVectorEnv([lambda: gym.make("FrozenLake-v1", is_slippery=False)]), **FOREIGN)
    envs.reset(seed=0)
    for action in (2, 1):  # into the first hole
        envs.step(np.array([action]))
    envs.reset(seed=0)
    envs.step(np.array([1]))
    edges = {(edge.src, edge.dst) for edge in envs.graphs.graph("task").edges()}
    assert edges == {("0", "1"), ("1", "end:fail:5"), ("0", "4")}


def test_batched_boards_take_the_board_itself_as_key():
    """The batched Sokoban leaves the keys out of `info` for speed; a board, walls included, tells task and state."""
    envs = VectorRewardFlow(
        gym.make_vec("agentgym_flow/SokobanGrid-v0", num_envs=4, max_steps=15),
        key_fn=lambda observation, info: observation.tobytes().hex(),
    )
    envs.reset(seed=0)
    generator = np.random.default_rng(0)
    solved = set()
    for _ in range(400):
        boards, rewards, terminations, _, infos = envs.step(generator.integers(4, size=4))
        assert np.array_equal(rewards, infos["native_reward"] + infos["shaping"])
        solved |= {board.tobytes() for board in boards[terminations]}
        assert (infos["potential"][terminations] == 1.0).all()
    assert envs.graphs.graph("task").num_successes == len(solved) > 0
    envs.close()

"""The wrapper as an ordinary Gymnasium wrapper: on environments that are not ours, and on our own."""

from __future__ import annotations

import functools
import pickle
import threading
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import agentgym_flow  # noqa: F401  (registers the environments)
from agentgym_flow.errors import BadSetting, ResetNeeded, UnknownOption
from agentgym_flow.rewards import GraphStore, RewardFlow

LAKE_ROUTE = [2, 2, 1, 1, 1, 2]  # right, right, down, down, down, right on the 4x4 map
HOLE_ROUTE = [2, 1]


def observed(observation, info):
    return observation


def goal_reached(reward, terminated, info):
    return terminated and reward > 0


def lake(**keywords) -> RewardFlow:
    return RewardFlow(
        gym.make("FrozenLake-v1", is_slippery=False), key_fn=observed, success_fn=goal_reached, **keywords
    )


def play(env, actions, **options):
    """Return the rewards and the infos of an episode, the reset's info first."""
    _, info = env.reset(**options)
    rewards, infos = [], [info]
    for action in actions:
        _, reward, terminated, truncated, info = env.step(action)
        rewards.append(reward)
        infos.append(info)
        if terminated or truncated:
            break
    return rewards, infos


def test_the_first_success_pays_nothing_the_second_pays_all_the_way():
    env = lake(shaping="rewardflow")
    first, _ = play(env, LAKE_ROUTE)
    assert first == pytest.approx([0, 0, 0, 0, 0, 1 + 1])  # the success itself is worth 1 at once
    second, infos = play(env, LAKE_ROUTE)
    powers = [0.9**d for d in (6, 5, 4, 3, 2, 1, 0)]
    assert [i["potential"] for i in infos] == pytest.approx(powers)
    assert [i["shaping"] for i in infos[1:]] == pytest.approx(list(np.diff(powers)))
    assert second == pytest.approx([*np.diff(powers)[:-1], 1 + 0.1])
    assert [i["native_reward"] for i in infos] == [0, 0, 0, 0, 0, 0, 1]


def test_invariant_shaping_is_zero_on_the_path_and_negative_off_it():
    env = lake(gamma=0.9)
    play(env, LAKE_ROUTE)
    rewards, infos = play(env, LAKE_ROUTE)
    assert [i["shaping"] for i in infos[1:]] == pytest.approx([0, 0, 0, 0, 0, -0.9], abs=1e-12)
    assert infos[-1]["potential"] == 1.0  # the graph's own; shaping counts an ending as 0
    assert sum(0.9**t * r for t, r in enumerate(rewards)) == pytest.approx(0.9**5 - 0.9**6)
    rewards, infos = play(env, HOLE_ROUTE)
    assert infos[-1]["potential"] == 0.0
    assert rewards == pytest.approx([0, -(0.9**5)], abs=1e-12)


def test_a_hole_and_a_goal_under_one_key_stay_apart():
    """A key that forgets where an episode ended must not make holes worth as much as the goal."""
    env = RewardFlow(
        gym.make("FrozenLake-v1", is_slippery=False),
        key_fn=lambda observation, info: "over" if observation in (5, 7, 11, 12, 15) else observation,
        success_fn=goal_reached,
        shaping="rewardflow",
    )
    play(env, LAKE_ROUTE)
    _, infos = play(env, HOLE_ROUTE)
    assert infos[-1]["potential"] == 0.0


def test_a_positive_reward_is_no_success():
    class Generous(gym.RewardWrapper):
        def reward(self, reward):
            return reward + 5.0

    env = RewardFlow(
        Generous(gym.make("FrozenLake-v1", is_slippery=False)),
        key_fn=observed,
        success_fn=lambda reward, terminated, info: terminated and reward > 5.0,
    )
    _, infos = play(env, HOLE_ROUTE)
    assert not any(i["potential"] for i in infos)
    assert env.graphs.graph("task").num_successes == 0


@pytest.mark.parametrize("env_id", ["FrozenLake-v1", "CliffWalking-v1", "Taxi-v4"])
def test_toy_text_environments_play_to_the_end(env_id):
    env = RewardFlow(
        gym.make(env_id, max_episode_steps=50), key_fn=observed, success_fn=lambda reward, terminated, info: terminated
    )
    env.action_space.seed(0)
    for episode in range(20):
        _, infos = play(env, (env.action_space.sample() for _ in range(60)), seed=episode)
        assert all(0.0 <= i["potential"] <= 1.0 for i in infos)
        assert sum(0.99**t * i["shaping"] for t, i in enumerate(infos[1:])) == pytest.approx(-infos[0]["potential"])
    env.close()


def test_the_cliff_is_learned_from_one_success():
    route = [0] + [1] * 11 + [2]  # up, along the cliff, down
    env = RewardFlow(gym.make("CliffWalking-v1"), key_fn=observed, success_fn=lambda r, terminated, i: terminated)
    play(env, route)
    _, infos = play(env, route)
    assert [i["potential"] for i in infos] == pytest.approx([0.9**d for d in range(13, -1, -1)])


def test_graphs_can_be_shared_saved_and_frozen(tmp_path):
    store = GraphStore()
    play(lake(graphs=store), LAKE_ROUTE)
    other = lake(graphs=store)
    assert other.reset()[1]["potential"] == pytest.approx(0.9**6)
    store.save(tmp_path / "graphs.json")
    frozen = lake(graphs=GraphStore.load(tmp_path / "graphs.json"), update="never")
    before = frozen.graphs.to_dict()
    below = [1, 1, 2, 1, 2, 2]  # another route, the same from state 10 on
    rewards = [play(frozen, below)[0] for _ in range(2)]
    assert frozen.graphs.to_dict() == before
    assert rewards[0] == rewards[1]
    unseen = lake(graphs=GraphStore(), update="never")
    play(unseen, LAKE_ROUTE)
    assert len(unseen.graphs) == 0  # reading makes no graph, so it pushes no other out
    live = [play(other, below)[0] for _ in range(2)]
    assert live[0] == rewards[0]
    assert live[1][0] > live[0][0]


def test_its_arguments_are_not_copied():
    def key(observation, info, lock):
        with lock:
            return observation

    store, key_fn = GraphStore(), functools.partial(key, lock=threading.Lock())
    env = RewardFlow(gym.make("FrozenLake-v1"), key_fn=key_fn, success_fn=goal_reached, graphs=store)
    assert env.spec.additional_wrappers[-1].kwargs["graphs"] is store


def test_update_at_reset_waits_for_the_end_of_the_episode():
    env = lake(update="reset")
    _, infos = play(env, LAKE_ROUTE)
    assert [i["potential"] for i in infos] == [0, 0, 0, 0, 0, 0, 1]  # what the flag says needs no graph
    assert env.graphs.graph("task").num_successes == 1
    assert env.reset()[1]["potential"] == pytest.approx(0.9**6)
    closed = lake(update="reset")
    play(closed, LAKE_ROUTE[:-1])
    assert len(closed.graphs.graph("task")) == 1
    closed.close()
    assert len(closed.graphs.graph("task")) == 6


def test_the_scale_holds_for_a_whole_episode():
    env = lake(gamma=0.9)
    play(env, LAKE_ROUTE)
    env.scale = 2.0
    env.reset()
    env.scale = 100.0
    bonuses = [env.step(action)[4]["shaping"] for action in LAKE_ROUTE]
    assert sum(0.9**t * b for t, b in enumerate(bonuses)) == pytest.approx(-2.0 * 0.9**6)
    assert env.scale == 100.0


def test_a_bootstrapping_learner_can_undo_the_zero_at_a_time_limit():
    env = RewardFlow(
        gym.make("FrozenLake-v1", is_slippery=False, max_episode_steps=3),
        key_fn=observed,
        success_fn=goal_reached,
        gamma=0.9,
        graphs=GraphStore(),
    )
    play(lake(graphs=env.graphs), LAKE_ROUTE)
    rewards, infos = play(env, LAKE_ROUTE)
    assert rewards[-1] == pytest.approx(-(0.9**4))
    assert rewards[-1] + env.scale * 0.9 * infos[-1]["potential"] == pytest.approx(0.0, abs=1e-12)


def test_missing_keys_and_flags_say_what_to_give():
    bare = gym.make("FrozenLake-v1")
    with pytest.raises(BadSetting, match="key_fn"):
        RewardFlow(bare).reset()
    env = RewardFlow(bare, key_fn=observed)
    env.reset()
    with pytest.raises(BadSetting, match="success_fn"):
        env.step(0)
    odd = RewardFlow(bare, key_fn=lambda observation, info: np.zeros(3))
    with pytest.raises(BadSetting, match=r"str or an integer, got ndarray.*tobytes"):
        odd.reset()


def test_settings_are_checked():
    bare = gym.make("FrozenLake-v1")
    with pytest.raises(UnknownOption, match="Did you mean 'invariant'"):
        RewardFlow(bare, shaping="invarant")
    with pytest.raises(UnknownOption, match="never"):
        RewardFlow(bare, update="later")
    with pytest.raises(BadSetting, match="gamma"):
        RewardFlow(bare, gamma=1.01)
    with pytest.raises(BadSetting, match="scale"):
        RewardFlow(bare, scale=float("inf"))
    for name, value in {"gamma": None, "scale": "1", "graphs": {}}.items():
        with pytest.raises(BadSetting, match=name):
            RewardFlow(bare, **{name: value})
    env = lake()
    with pytest.raises(BadSetting, match="scale"):
        env.scale = float("nan")


def test_a_step_outside_an_episode_is_refused():
    class Careless(gym.Env):
        observation_space = action_space = gym.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            return 0, {}

        def step(self, action):
            return 0, 0.0, True, False, {"success": True}

    env = RewardFlow(Careless(), key_fn=observed)
    with pytest.raises(ResetNeeded):
        env.step(0)
    env.reset()
    env.step(0)
    with pytest.raises(ResetNeeded):
        env.step(0)


@pytest.mark.parametrize("action", [np.array([0.25, 1.0]), np.float32(0.5), (1, "x"), 3, "go"])
def test_actions_of_any_type_name_edges(action):
    class Anything(gym.Env):
        observation_space = action_space = gym.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            return 0, {}

        def step(self, action):
            return 1, 0.0, False, False, {"success": False}

    env = RewardFlow(Anything(), key_fn=observed)
    for _ in range(2):
        env.reset()
        env.step(action)
    (edge,) = env.graphs.graph("task").edges()
    assert (edge.src, edge.dst, edge.visits) == ("0", "1", 2)
    env.graphs.graph("task").to_dict()


def test_a_spec_rebuilds_the_wrapper():
    env = gym.make("agentgym_flow/Sokoban-v0", split="valid")
    wrapped = RewardFlow(env, scale=0.5, shaping="rewardflow", gamma=0.9, update="reset")
    rebuilt = gym.make(wrapped.spec)
    assert isinstance(rebuilt, RewardFlow)
    assert rebuilt.spec == wrapped.spec
    assert rebuilt.scale == 0.5
    assert rebuilt.graphs is not wrapped.graphs


def expert_episode(env, task):
    _, info = env.reset(options={"task": task})
    rewards, infos = [], [info]
    done = False
    while not done:
        _, reward, terminated, truncated, info = env.step(env.unwrapped.expert_action())
        rewards.append(reward)
        infos.append(info)
        done = terminated or truncated
    return rewards, infos


def test_sokoban_needs_no_functions():
    env = RewardFlow(gym.make("agentgym_flow/Sokoban-v0", split="valid"), shaping="rewardflow")
    first, infos = expert_episode(env, 0)
    steps = len(first)
    assert infos[-1]["success"]
    second, infos = expert_episode(env, 0)
    assert [i["potential"] for i in infos] == pytest.approx([0.9 ** (steps - t) for t in range(steps + 1)])
    assert second[0] == pytest.approx(-0.1 + 0.9 ** (steps - 1) - 0.9**steps)
    assert env.reset(options={"task": 1})[1]["potential"] == 0.0  # another task, another graph
    assert len(env.graphs) == 2


def test_invalid_text_leaves_no_edge():
    env = RewardFlow(gym.make("agentgym_flow/Sokoban-v0"))
    _, info = env.reset(options={"task": 0})
    for text in ("", "teleport", "\udc80", "x" * 10_000):
        env.step(text)
    graph = env.graphs.graph(info["task_key"])
    assert (len(graph), list(graph.edges())) == (1, [])


def test_the_wrapped_environment_passes_gymnasiums_checks_and_pickles():
    env = RewardFlow(gym.make("agentgym_flow/Sokoban-v0", disable_env_checker=True).unwrapped)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*different from the unwrapped version.*")
        check_env(env, skip_render_check=True)
    env.reset(options={"task": 3})
    env.step("up")
    copy = pickle.loads(pickle.dumps(env))
    assert copy.graphs.to_dict() == env.graphs.to_dict()
    for action in ("nonsense", "left", "right"):
        here, there = copy.step(action), env.step(action)
        assert here == there
        if here[2]:
            break

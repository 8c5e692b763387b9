"""The structure reward as a Gymnasium wrapper, over many slots, and over recorded groups: three ways, equal rewards."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from scripted_canvas import WORDS, ScriptedCanvas, workflow

from agentgym_flow.episodes import Episode, EpisodeRecorder, Group
from agentgym_flow.errors import BadSetting, ResetNeeded, UnknownOption
from agentgym_flow.play import EnvPool, EpisodeSpec, rollout
from agentgym_flow.rewards import RewardFlow, StructureReward, StructureScore, VectorStructureReward
from agentgym_flow.rewards import with_structure_rewards as structured
from agentgym_flow.rewards.credit import grpo

PAPER = StructureScore("paper")
DESIGN = ["Plan", "Custom", "Verify", "conditional", "Revise", "Format", "finish"]
N = 3


def play(env: gym.Env, words: list[str], task: int = 3) -> tuple[list[float], list[dict[str, Any]]]:
    """Return the rewards and the infos of an episode, the reset's info first."""
    _, info = env.reset(options={"task": task})
    rewards, infos = [], [info]
    for word in words:
        _, reward, terminated, truncated, info = env.step(word)
        rewards.append(float(reward))
        infos.append(info)
        if terminated or truncated:
            break
    return rewards, infos


# ---------------------------------------------------------------- one environment
def test_the_reward_comes_at_the_end_and_replaces_the_native_one() -> None:
    rewards, infos = play(StructureReward(ScriptedCanvas()), DESIGN)
    assert rewards == [0, 0, 0, 0, 0, 0, 1]
    assert [info["native_reward"] for info in infos] == [0, -0.5, -0.5, -0.5, -0.5, -0.5, -0.5, 2]
    assert [info["structure"] for info in infos] == [0, 0, 0, 0.2, 0.6, 0.6, 1, 1]
    poor, _ = play(StructureReward(ScriptedCanvas(), "paper"), ["Custom", "Custom", "Format", "finish"])
    assert poor == [0, 0, 0, -0.8]  # right, and the design withholds it


def test_it_can_be_added_to_the_native_reward() -> None:
    rewards, _ = play(StructureReward(ScriptedCanvas(), mode="add"), DESIGN)
    assert rewards == [-0.5] * 6 + [3]


def test_a_time_limit_is_an_end_that_releases_nothing() -> None:
    rewards, infos = play(StructureReward(ScriptedCanvas(max_steps=6)), DESIGN)
    assert rewards == [0] * 6
    assert infos[-1]["structure"] == 1
    outside = gym.wrappers.TimeLimit(ScriptedCanvas(max_steps=99), 4)
    assert play(StructureReward(outside), DESIGN)[0] == [0, 0, 0, -0.4]


def test_the_published_reading_does_not_care_whether_a_design_is_finished() -> None:
    """An environment that tells how right the last result is has it counted, finished or not."""

    class Frank(ScriptedCanvas):
        def _extra_info(self) -> dict[str, Any]:
            return {"workflow": {**super()._extra_info()["workflow"], "correctness": 0.75}}

    words = ["Plan", "Custom", "Verify", "conditional", "Revise", "Format", "Format", "Format"]
    for profile, expected in {"executed": 0.0, "paper": 0.75}.items():
        rewards, infos = play(StructureReward(Frank(), profile), words)
        assert rewards[-1] == expected
        assert not infos[-1]["workflow"]["finished"]


def test_settings_reach_the_score() -> None:
    assert play(StructureReward(ScriptedCanvas(), "paper", min_operators=6), DESIGN)[0][-1] == -0.2
    assert play(StructureReward(ScriptedCanvas(), diversity=False), ["Custom"] * 3 + ["finish"])[0][-1] == 0.0
    assert play(StructureReward(ScriptedCanvas(), release="always"), ["Custom"] * 3 + ["finish"])[0][-1] == 0.0
    assert play(StructureReward(ScriptedCanvas(), cost_weight=0.01, cost_of="tokens"), DESIGN)[0][-1] == -4.0
    with pytest.raises(UnknownOption, match="Did you mean 'upstream'"):
        StructureReward(ScriptedCanvas(), "upstrem")
    with pytest.raises(UnknownOption, match="Known: replace, add"):
        StructureReward(ScriptedCanvas(), mode="both")


def test_it_is_an_ordinary_wrapper() -> None:
    env = StructureReward(ScriptedCanvas(), profile="paper", checkers=("Verify",))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*different from the unwrapped version.*")
        check_env(env, skip_render_check=True)
    twin = pickle.loads(pickle.dumps(env))
    assert play(twin, DESIGN) == play(env, DESIGN) == play(copy.deepcopy(env), DESIGN)
    with pytest.raises(ResetNeeded):
        StructureReward(ScriptedCanvas()).step("Plan")


def test_gymnasium_makes_it_again_from_its_spec() -> None:
    gym.register("ScriptedCanvasForTests-v0", entry_point="scripted_canvas:ScriptedCanvas")
    try:
        env = StructureReward(gym.make("ScriptedCanvasForTests-v0"), profile="paper", min_operators=6)
        again = gym.make(env.spec)
        assert isinstance(again, StructureReward)
        assert play(again, DESIGN) == play(env, DESIGN)
        assert play(again, DESIGN)[0][-1] == -0.2
    finally:
        del gym.registry["ScriptedCanvasForTests-v0"]


def test_its_arguments_are_not_copied() -> None:
    class Shared(dict[str, float]):
        def __deepcopy__(self, memo: Any) -> Any:
            raise AssertionError("copied")

    StructureReward(ScriptedCanvas(), weights=Shared(checker=0.2, format=0.2, operator=0.2, structure=0.4))


def test_it_stacks_with_other_rewards() -> None:
    """RewardFlow outside shapes what the structure reward gives."""
    env = RewardFlow(StructureReward(ScriptedCanvas()), shaping="rewardflow")
    play(env, DESIGN)
    rewards, infos = play(env, DESIGN)
    assert infos[-1]["native_reward"] == 1.0
    assert sum(rewards) == pytest.approx(1.0 + 1.0 - 0.9**7)


def test_an_environment_without_workflows_is_refused() -> None:
    for name in ("FrozenLake-v1", "agentgym_flow/Sokoban-v0"):
        env = StructureReward(gym.make(name))
        with pytest.raises(BadSetting, match="Canvas-v0"):
            env.reset()
    slots = VectorStructureReward(SyncVectorEnv([lambda: gym.make("agentgym_flow/Sokoban-v0")]))
    with pytest.raises(BadSetting, match="Canvas-v0"):
        slots.reset()


# ---------------------------------------------------------------- many at once
def assert_equal_infos(one: Any, other: Any) -> None:
    assert one.keys() == other.keys()
    for name, values in one.items():
        if isinstance(values, dict):
            assert_equal_infos(values, other[name])
        else:
            for value, expected in zip(values, other[name], strict=True):
                assert np.array_equal(value, expected), name


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("kept", ["replace", "add"])
def test_the_twin_equals_single_wrappers(mode: AutoresetMode, kept: Any) -> None:
    twin = VectorStructureReward(SyncVectorEnv([ScriptedCanvas] * N, autoreset_mode=mode), mode=kept)
    singles = SyncVectorEnv([lambda: StructureReward(ScriptedCanvas(), mode=kept)] * N, autoreset_mode=mode)
    assert assert_equal_play(twin, singles, mode) >= 2 * N


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_the_twin_equals_single_wrappers_over_processes(mode: AutoresetMode) -> None:
    twin = VectorStructureReward(
        AsyncVectorEnv([ScriptedCanvas] * N, shared_memory=False, autoreset_mode=mode), score=PAPER
    )
    singles = SyncVectorEnv([lambda: StructureReward(ScriptedCanvas(), "paper")] * N, autoreset_mode=mode)
    assert assert_equal_play(twin, singles, mode, steps=12) >= N


def assert_equal_play(twin: VectorEnv, singles: VectorEnv, mode: AutoresetMode, steps: int = 40) -> int:
    (_, infos), (_, expected) = twin.reset(seed=5), singles.reset(seed=5)
    assert_equal_infos(infos, expected)
    generator = np.random.default_rng(0)
    endings = paid = 0
    for _ in range(steps):
        actions = tuple(WORDS[generator.integers(len(WORDS))] for _ in range(N))
        got, wanted = twin.step(actions), singles.step(actions)
        for one, other in zip(got[:4], wanted[:4], strict=True):
            assert np.array_equal(one, other)
        assert_equal_infos(got[4], wanted[4])
        done = np.logical_or(got[2], got[3])
        endings += done.sum()
        paid += len(set(got[1][done])) > 0
        if mode == AutoresetMode.DISABLED and done.any():
            results = [envs.reset(options={"reset_mask": done.copy()}) for envs in (twin, singles)]
            assert_equal_infos(results[0][1], results[1][1])
    assert paid
    twin.close()
    singles.close()
    return int(endings)


def test_the_twin_checks_its_arguments() -> None:
    envs = SyncVectorEnv([ScriptedCanvas])
    with pytest.raises(UnknownOption, match="Known: replace, add"):
        VectorStructureReward(envs, mode="both")
    envs.metadata = {}
    with pytest.raises(BadSetting, match="autoreset_mode"):
        VectorStructureReward(envs)


# ---------------------------------------------------------------- recorded groups
class Script:
    """Plays words by attempt."""

    name = "script"

    def __init__(self, *scripts: list[str]) -> None:
        self.scripts = scripts

    def act(self, inputs: Any) -> list[str]:
        return [self.scripts[policy_input.episode.attempt][len(policy_input.episode.turns)] for policy_input in inputs]


SCRIPTS = (DESIGN, ["Custom", "Custom", "Format", "finish"], ["Plan", "loop"] + ["Verify"] * 6)


def recorded(stop: Any = None, keep: tuple[str, ...] = ("workflow", "ablation")) -> list[Episode]:
    pool = EnvPool(ScriptedCanvas, keep=keep)
    specs = [EpisodeSpec(0, 3, attempt) for attempt in range(len(SCRIPTS))]
    episodes = rollout(Script(*SCRIPTS), pool, specs, stop=stop)
    pool.close()
    return episodes


def test_recorded_episodes_have_the_rewards_of_the_wrapper() -> None:
    episodes = recorded()
    for kept in ("replace", "add"):
        made = structured(Group(episodes), mode=kept)
        for number, episode in enumerate(made):
            wrapper = StructureReward(ScriptedCanvas(), mode=kept)
            assert [turn.reward for turn in episode.turns] == play(wrapper, SCRIPTS[number])[0]
    assert [episode.total_reward for episode in structured(Group(episodes))] == [1.0, 1.0, -0.2]
    assert [episode.total_reward for episode in structured(Group(episodes), PAPER)] == [1.0, -0.8, -0.2]


def test_the_group_itself_keeps_native_rewards_and_its_log() -> None:
    episodes, plain = recorded(), recorded(keep=())
    digests = [episode.digests() for episode in episodes]
    structured(Group(episodes))
    assert [episode.digests() for episode in episodes] == digests == [episode.digests() for episode in plain]
    assert [turn.reward for turn in episodes[0].turns] == [-0.5] * 6 + [2.0]
    assert plain[0].turns[0].info is None
    told = workflow("Plan", finished=False)
    needed = told.pop("ablation")
    assert episodes[0].turns[0].info == {"workflow": told, "ablation": needed}
    assert "ablation" not in ScriptedCanvas().reset(seed=0)[1]


def test_a_wrapped_environment_is_recorded_with_its_native_rewards() -> None:
    recorder = EpisodeRecorder(StructureReward(ScriptedCanvas()))
    episode = recorder.reset(seed=0, task=3)
    for word in DESIGN:
        recorder.step(word)
    assert episode.total_reward == -1.0


def test_credit_compares_what_designs_are_worth() -> None:
    group = Group(recorded())
    by_return = grpo([structured(group, PAPER)], outcome="return", norm="mean")[0]
    assert [rows[0] for rows in by_return] == pytest.approx([1.0, -0.8, -0.2])  # their mean is 0
    by_success = [rows[0] for rows in grpo([group], norm="mean")[0]]
    assert by_success == pytest.approx([1 / 3, 1 / 3, -2 / 3])


def test_an_episode_that_was_cut_short_is_worth_its_unfinished_design() -> None:
    cut = recorded(stop=lambda policy_input: len(policy_input.episode.turns) == 4)
    made = structured(Group(cut), PAPER)
    assert [episode.turns[-1].reward for episode in made] == [-0.4, -0.8, -0.4]
    assert not made.episodes[0].terminated


def test_what_was_not_kept_is_named() -> None:
    with pytest.raises(BadSetting, match="keep"):
        structured(Group(recorded(keep=())))
    with pytest.raises(UnknownOption, match="Did you mean 'workflow'"):
        recorded(keep=("workflw",))
    with pytest.raises(UnknownOption, match="Known: replace, add"):
        structured(Group(recorded()), mode="both")
    [episode] = structured(Group([Episode("e", {}, {}, "train", 0, "e:0", "", 0, 0, 9, "", "s")]))
    assert episode.turns == []

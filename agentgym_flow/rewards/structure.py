"""The structure reward of FlowSteer for one environment, for vector environments, and for recorded groups.

`agentgym_flow.rewards.structure_score` defines the reward, which is given at the end of an episode. It is not part of
the environment: episode logs contain native rewards, and verification steps the environment without wrappers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, SupportsFloat, cast, get_args

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import SyncVectorEnv, VectorEnv

from agentgym_flow.core import TextEnv
from agentgym_flow.episodes import Episode, Group
from agentgym_flow.errors import BadSetting, ResetNeeded, UnknownOption
from agentgym_flow.rewards.slots import SlotRewards
from agentgym_flow.rewards.structure_score import ABLATION, WORKFLOW, Cost, Profile, Release, StructureScore

Mode = Literal["replace", "add"]
"""Whether the structure reward replaces the native rewards or is added to them."""


class StructureReward(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Rewards the end of an episode for the design S of its workflow and the correctness c, in [-1, 1].

    The last step of an episode gets this reward instead of its native reward, and every other step gets 0. The last
    step before a time limit counts as well, if the limit is inside of this wrapper. S and the profiles are defined by
    `agentgym_flow.rewards.structure_score`. c is the `correctness` in the workflow, or the `score` of the environment
    if there is none.

    `info` gets `native_reward` (0 after a reset) and `structure`, the S of the present workflow.

    Args:
        env: an environment with `workflow` and `score` in `info`, such as `agentgym_flow/Canvas-v0`.
        profile: `"executed"`, `"paper"` or `"upstream"`.
        weights: part -> weight; by default the published weights.
        min_operators: the number of operators that is enough; by default that of the profile.
        diversity: False ignores the design: -1 + c.
        release: `"conditional"`, `"always"` or `"answer_first"`; by default that of the profile.
        checkers: the names of operators that check; by default those named in the workflow.
        formatter: the name of the operator that formats an answer; by default the one named in the workflow.
        cost_weight: subtracted from the reward per unit of `cost_of`; only for `"executed"`.
        cost_of: `"calls"`, `"total_calls"`, `"tokens"` or `"cost"`.
        mode: `"replace"`, or `"add"` to add the reward to the native rewards.

    Raises:
        UnknownOption: a word is unknown.
        BadSetting: a number is out of its range; or, at reset or step, `info` has no workflow.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        profile: Profile = "executed",
        weights: Mapping[str, float] | None = None,
        min_operators: int | None = None,
        diversity: bool = True,
        release: Release | None = None,
        checkers: Sequence[str] | None = None,
        formatter: str | None = None,
        cost_weight: float = 0.0,
        cost_of: Cost = "calls",
        mode: Mode = "replace",
    ) -> None:
        arguments: dict[str, Any] = {
            "profile": profile,
            "weights": weights,
            "min_operators": min_operators,
            "diversity": diversity,
            "release": release,
            "checkers": checkers,
            "formatter": formatter,
            "cost_weight": cost_weight,
            "cost_of": cost_of,
        }
        RecordConstructorArgs.__init__(self, _disable_deepcopy=True, **arguments, mode=mode)
        gym.Wrapper.__init__(self, env)
        score = StructureScore(**arguments)
        self._design = EpisodeDesign(score, mode)
        if ABLATION in score.reads and isinstance(env.unwrapped, TextEnv) and ABLATION in env.unwrapped.optional_info:
            env.unwrapped.request_info([ABLATION])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode; `info` has the S of the initial workflow."""
        observation, info = self.env.reset(seed=seed, options=options)
        return observation, self._design.begin(observation, info)

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Step the environment and reward the design at the end of the episode."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        base = self.unwrapped
        if truncated and isinstance(base, TextEnv) and base.playing:  # TimeLimit: the environment hides c during play
            info = {**info, WORKFLOW: base.stop().get(WORKFLOW)}
        given, info = self._design.advance(action, observation, float(reward), terminated, truncated, info)
        return observation, given, terminated, truncated, info


class VectorStructureReward(SlotRewards["EpisodeDesign"]):
    """Rewards every slot of a vector environment like `StructureReward`, in all three autoreset modes.

    Set the step budget with `max_steps`. If Gymnasium's `max_episode_steps` ends an episode of Canvas, c is 0.

    Args:
        env: a `SyncVectorEnv` or `AsyncVectorEnv`, possibly wrapped, of text environments with `workflow` and `score`
            in `info`.
        score: the settings of the reward; None for the defaults.
        mode: `"replace"` or `"add"`.

    Raises:
        BadSetting: the metadata have no autoreset mode; or, at reset or step, `info` has no workflow.
        UnknownOption: `mode` is unknown.
    """

    def __init__(
        self, env: VectorEnv[Any, Any, Any], score: StructureScore | None = None, mode: Mode = "replace"
    ) -> None:
        rule = score or StructureScore()
        designs = [EpisodeDesign(rule, mode) for _ in range(env.num_envs)]
        vector = cast("SyncVectorEnv", env.unwrapped)
        if ABLATION in rule.reads and all(ABLATION in keys for keys in vector.get_attr("optional_info")):
            vector.call("request_info", [ABLATION])
        super().__init__(env, designs, ("native_reward", "structure"), observed=False)


class EpisodeDesign:
    """Computes the structure rewards of one environment through its episodes."""

    def __init__(self, score: StructureScore, mode: Mode) -> None:
        if mode not in get_args(Mode):
            raise UnknownOption.among(mode, get_args(Mode))
        self._score = score
        self._mode = mode
        self._running = False

    def begin(self, observation: Any, info: Mapping[str, Any]) -> dict[str, Any]:
        """Start an episode and return `info` with the added keys."""
        self._running = True
        return {**info, "native_reward": 0.0, "structure": self._score.design(workflow_of(info))}

    def advance(
        self, action: Any, observation: Any, reward: float, terminated: bool, truncated: bool, info: Mapping[str, Any]
    ) -> tuple[float, dict[str, Any]]:
        """Return the reward of one step, and `info` with the added keys.

        Raises `ResetNeeded` if no episode is running.
        """
        if not self._running:
            raise ResetNeeded("no episode is under way: call reset() before step()")
        native, workflow = float(reward), workflow_of(info)
        self._running = not (terminated or truncated)
        given = native if self._mode == "add" else 0.0
        if not self._running:
            given += self._score.reward(workflow, correctness_of(workflow, info.get("score", 0.0)))
        return given, {**info, "native_reward": native, "structure": self._score.design(workflow)}


def workflow_of(info: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the workflow in `info`, together with the ablation if it was requested.

    Raises `BadSetting` if there is no workflow.
    """
    workflow = None if info is None else info.get(WORKFLOW)
    if not isinstance(workflow, Mapping):
        raise BadSetting(
            "the structure reward reads info['workflow'], which is not there: use an environment that has it, such as "
            "agentgym_flow/Canvas-v0; a recorder must keep it: EpisodeRecorder(env, keep=score.reads)"
        )
    return {**workflow, ABLATION: info[ABLATION]} if info is not None and ABLATION in info else workflow


def correctness_of(workflow: Mapping[str, Any], score: Any) -> float:
    """Return the correctness c: the `correctness` in the workflow, or else the environment's score.

    A score is 0 until the design is finished, but the published reward uses the last result even of unfinished designs.
    For this purpose Canvas and other environments can add `correctness` at the end of an episode.
    """
    return float(workflow.get("correctness", score))


# ---------------------------------------------------------------- recorded episodes
def structure_return(episode: Episode, score: StructureScore) -> float:
    """Return the structure reward of a recorded episode, finished or not, from the `workflow` of its last turn.

    Raises `BadSetting` if the last turn has no workflow, or there is no turn.
    """
    last = episode.turns[-1] if episode.turns else None
    workflow = workflow_of(None if last is None else last.info)
    return score.reward(workflow, correctness_of(workflow, episode.score))


def with_structure_rewards(group: Group, score: StructureScore | None = None, mode: Mode = "replace") -> Group:
    """Return a copy of a group whose rewards are those that `StructureReward` would have given.

    Their sum is the episode's outcome for a credit function with `outcome="return"`. The group itself keeps its native
    rewards, which are logged. Episodes without turns are returned unchanged.

    Raises:
        BadSetting: an episode has no workflow.
        UnknownOption: `mode` is unknown.
    """
    if mode not in get_args(Mode):
        raise UnknownOption.among(mode, get_args(Mode))
    rule = score or StructureScore()
    return Group([_rewarded(episode, rule, mode) for episode in group])


def _rewarded(episode: Episode, score: StructureScore, mode: Mode) -> Episode:
    if not episode.turns:
        return episode
    native = [turn.reward if mode == "add" else 0.0 for turn in episode.turns]
    native[-1] += structure_return(episode, score)
    turns = [replace(turn, reward=reward) for turn, reward in zip(episode.turns, native, strict=True)]
    return replace(episode, turns=turns)

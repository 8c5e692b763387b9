"""Caves with one fault each, and which finding of the report card must name it."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import gymnasium as gym

from agentgym_flow.core import Stream, Transition
from agentgym_flow.testing.example import CaveEnv

DEFECTS: dict[str, str] = {}
"""The id of a faulty cave -> the name of the finding."""

C = TypeVar("C", bound=type)


def defect(finding: str) -> Callable[[C], C]:
    def enter(cls: C) -> C:
        cls.__doc__ = CaveEnv.__doc__
        cls.env_id = f"defect/{cls.__name__}-v0"  # type: ignore[attr-defined]
        gym.register(cls.env_id, entry_point=f"{__name__}:{cls.__name__}")  # type: ignore[attr-defined]
        DEFECTS[cls.env_id] = finding  # type: ignore[attr-defined]
        return cls

    return enter


@defect("any_text_is_a_normal_step")
class RaisesOnText(CaveEnv):
    def _apply(self, action: str) -> Transition:
        if action.startswith("say["):
            action.index("]")
        return super()._apply(action)


@defect("invalid_actions_change_nothing")
class MovesOnNonsense(CaveEnv):
    def _apply(self, action: str) -> Transition:
        after = super()._apply(action)
        self.room = self.room if after.action_valid else (self.room + 1) % self.rooms
        return after


@defect("other_processes_give_equal_episodes")
class DependsOnTheHashSeed(CaveEnv):
    def _begin(self, task: int, noise: Stream, options: Mapping[str, Any]) -> str:
        return f"{super()._begin(task, noise, options)} {hash(self.word) % 10}"


@defect("global_random_state_is_left_alone")
class ThrowsAGlobalDie(CaveEnv):
    def _begin(self, task: int, noise: Stream, options: Mapping[str, Any]) -> str:
        return f"{super()._begin(task, noise, options)} {random.random()}"


@defect("equal_state_keys_have_equal_futures")
class ForgetsWrongWords(CaveEnv):
    def state_key(self) -> str:
        return super().state_key() if self.ending else str(self.room)


@defect("task_keys")
class OneKeyForAll(CaveEnv):
    def make_task_key(self, content: Any) -> str:
        return super().make_task_key(self.split)


@defect("splits_are_disjoint")
class SplitsShareTasks(CaveEnv):
    def _begin(self, task: int, noise: Stream, options: Mapping[str, Any]) -> str:
        split, self.split = self.split, "train"
        try:
            return super()._begin(task, noise, options)
        finally:
            self.split = split


@defect("reward_follows_success")
class RewardsFailure(CaveEnv):
    def _apply(self, action: str) -> Transition:
        after = super()._apply(action)
        return after._replace(reward=-after.reward)


@defect("reward_cannot_be_farmed")
class PaysForWalking(CaveEnv):
    def _apply(self, action: str) -> Transition:
        after = super()._apply(action)
        return after._replace(reward=after.reward + 0.5 * (action == "left"))


@defect("returned_objects_are_fresh")
class ReturnsOneList(CaveEnv):
    _actions: list[str] = ["left", "right"]  # noqa: RUF012 - which is the fault

    def admissible_actions(self) -> list[str]:
        return self._actions if self.room != self.note else super().admissible_actions()


@defect("pickles_in_mid_episode")
class HoldsAFunction(CaveEnv):
    def _begin(self, task: int, noise: Stream, options: Mapping[str, Any]) -> str:
        self.rule = lambda: task
        return super()._begin(task, noise, options)


@defect("expert_wins_every_sampled_task")
class ExpertForgetsTheNote(CaveEnv):
    def expert_action(self) -> str | None:
        return None if self.ending or self.word_is_known else super().expert_action()


@defect("info_keeps_the_contract")
class ScoresTwo(CaveEnv):
    def score(self) -> float:
        return 2 * super().score()


@defect("proposed_actions_are_accepted")
class ProposesWhatItRefuses(CaveEnv):
    def candidates(self) -> list[str]:
        return [*super().candidates(), "fly"]


@defect("settings_build_the_environment_again")
class HasASettingThatIsNoJSON(CaveEnv):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.settings["shape"] = (1, 2)


@defect("no_errors")
class RaisesAtTheDoor(CaveEnv):
    def _say(self, word: str) -> Transition:
        raise RuntimeError("the door is stuck")


@defect("steps_per_second")
class IsSlow(CaveEnv):
    def _apply(self, action: str) -> Transition:
        time.sleep(0.02)
        return super()._apply(action)


@defect("random_floor")
class IsHard(CaveEnv):
    def __init__(self, rooms: int = 300, **kwargs: Any) -> None:
        super().__init__(rooms=rooms, **kwargs)


class HangsOnNonsense(CaveEnv):
    def _apply(self, action: str) -> Transition:
        while action == "\ud800":
            time.sleep(0.1)
        return super()._apply(action)


class ExitsOnNonsense(CaveEnv):
    def _apply(self, action: str) -> Transition:
        if action == "\ud800":
            os._exit(3)
        return super()._apply(action)


class CannotBeMade(CaveEnv):
    def __init__(self, **kwargs: Any) -> None:
        raise RuntimeError("no cave here")


class ExitsWhenMade(CaveEnv):
    def __init__(self, **kwargs: Any) -> None:
        raise SystemExit(0)


class EndsWhenMade(CaveEnv):
    def __init__(self, **kwargs: Any) -> None:
        os._exit(0)


class EarnsNaN(CaveEnv):
    def _apply(self, action: str) -> Transition:
        return super()._apply(action)._replace(reward=float("nan"))


class LeavesAProcess(CaveEnv):
    def _begin(self, task: int, noise: Stream, options: Mapping[str, Any]) -> str:
        if os.fork() == 0:
            time.sleep(300)
            os._exit(0)
        return super()._begin(task, noise, options)


class Prints(CaveEnv):
    def _begin(self, task: int, noise: Stream, options: Mapping[str, Any]) -> str:
        os.write(1, b"hello")
        os.write(2, b"hello")
        return super()._begin(task, noise, options)


class RaisesHalfACharacter(CaveEnv):
    @property
    def num_tasks(self) -> int:
        raise RuntimeError("no cave \ud800")


for kind in (
    HangsOnNonsense,
    ExitsOnNonsense,
    CannotBeMade,
    ExitsWhenMade,
    EndsWhenMade,
    EarnsNaN,
    LeavesAProcess,
    Prints,
    RaisesHalfACharacter,
):
    kind.env_id = f"defect/{kind.__name__}-v0"
    gym.register(kind.env_id, entry_point=f"{__name__}:{kind.__name__}")

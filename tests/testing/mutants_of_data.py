"""Caves with faults in their randomness, their objects or their `info`."""

import copy
import random
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from mutant_register import ANY_TEXT, CHECK_ENV, FRESH, INFO, INVALID, KEYS, MACHINE, PASSIVE, mutant

from agentgym_flow.core import Stream, Transition
from agentgym_flow.testing.example import CaveEnv


# ---------------------------------------------------------------- randomness
@mutant("test_global_random_state_is_left_alone")
class SeedsTheGlobalRandom(CaveEnv):
    def _begin(self, task: int, noise: Stream, options: Mapping[str, Any]) -> str:
        random.seed(task)
        return super()._begin(task, noise, options)


@mutant("test_global_random_state_is_left_alone")
class SeedsTheGlobalNumPy(CaveEnv):
    def expert_action(self) -> str | None:
        np.random.random()  # noqa: NPY002
        return super().expert_action()


@mutant("test_other_processes_give_equal_episodes")
class UsesTheHashOfAString(CaveEnv):
    def _extra_info(self) -> dict[str, Any]:
        return {**super()._extra_info(), "lucky": hash(self.word) % 1000}


@mutant("test_other_processes_give_equal_episodes")
class IteratesOverASet(CaveEnv):
    def _begin(self, task: int, noise: Stream, options: Mapping[str, Any]) -> str:
        return super()._begin(task, noise, options) + " ".join(
            {"Bats", "Moss", "Drips", "Echoes", "Crystals", "Cold air"}
        )


@mutant("test_different_seeds_give_different_episodes", "test_reset_without_seed_continues_the_stream")
class IgnoresTheSeed(CaveEnv):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        return super().reset(seed=seed, options={"task": 3, **(options or {})})


@mutant("test_reset_without_seed_continues_the_stream")
class StartsTheStreamAnew(CaveEnv):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self._last = seed if seed is not None else getattr(self, "_last", None)
        return super().reset(seed=self._last, options=options)


@mutant(
    "test_equal_seeds_give_equal_episodes",
    CHECK_ENV,
    "test_pickles_in_mid_episode",
    "test_deep_copy_is_a_clone",
    "test_settings_build_the_environment_again",
    "test_writing_to_returned_objects_changes_nothing",
    "test_bad_reset_arguments_are_typed_errors",
    "test_task_option_fixes_the_task",
    "test_log_replays_exactly",
    MACHINE,
)
class RemembersEarlierEpisodes(CaveEnv):
    episodes = 0

    def _begin(self, task: int, noise: Stream, options: Mapping[str, Any]) -> str:
        self.episodes += 1
        return super()._begin(task, noise, options) + f" Visitors before you: {self.episodes}."


@mutant("test_bad_reset_arguments_are_typed_errors")
class IgnoresUnknownOptions(CaveEnv):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        known = {key: value for key, value in (options or {}).items() if key in self.reset_options}
        return super().reset(seed=seed, options=known)


@mutant("test_bad_reset_arguments_are_typed_errors")
class TakesAnyTask(CaveEnv):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        chosen = {key: int(value) if key == "task" else value for key, value in (options or {}).items()}
        return super().reset(seed=seed, options=chosen)


# ---------------------------------------------------------------- objects
@mutant(FRESH, "test_writing_to_returned_objects_changes_nothing")
class SharesAListInInfo(CaveEnv):
    _plain: ClassVar[list[str]] = ["left", "right"]

    def admissible_actions(self) -> list[str]:
        return [*self._plain, "read"] if self.room == self.note else self._plain


@mutant(FRESH, CHECK_ENV, PASSIVE)
class ReturnsOneInfoForEver(CaveEnv):
    def info(self, action_valid: bool = True) -> dict[str, Any]:
        self._shown = getattr(self, "_shown", {})
        self._shown.clear()
        self._shown.update(super().info(action_valid))
        return self._shown


@mutant("test_writing_to_returned_objects_changes_nothing", FRESH)
class HandsOutItsState(CaveEnv):
    def _begin(self, task: int, noise: Stream, options: Mapping[str, Any]) -> str:
        self._said: list[str] = []
        return super()._begin(task, noise, options)

    def _apply(self, action: str) -> Transition:
        self._said.append(action)
        return super()._apply(action)

    def _extra_info(self) -> dict[str, Any]:
        return {"wrong_words": self.wrong_words, "said": self._said}


@mutant(
    "test_deep_copy_is_a_clone",
    KEYS,
    INVALID,
    ANY_TEXT,
    MACHINE,
    "test_proposed_actions_are_accepted",
    "test_closed_language_is_listed_completely",
    "test_expert_wins_from_wherever_it_can",
)
class SharesStateWithItsClone(CaveEnv):
    def _begin(self, task: int, noise: Stream, options: Mapping[str, Any]) -> str:
        self._place = [0]
        return super()._begin(task, noise, options)

    @property
    def room(self) -> int:
        return self._place[0]

    @room.setter
    def room(self, value: int) -> None:
        self._place[0] = value

    def __deepcopy__(self, memo: dict[int, Any]) -> "SharesStateWithItsClone":
        clone = copy.copy(self)
        clone._np_random = copy.deepcopy(self._np_random)
        return clone


@mutant("test_pickles_in_mid_episode", "test_deep_copy_is_a_clone", MACHINE, KEYS, ANY_TEXT, INVALID)
class PicklesWithoutItsMemory(CaveEnv):
    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "wrong_words": 0}


# ---------------------------------------------------------------- info
@mutant("test_info_is_plain_data")
class PutsNumPyIntoInfo(CaveEnv):
    def _extra_info(self) -> dict[str, Any]:
        return {"wrong_words": np.int64(self.wrong_words)}


@mutant(INFO, MACHINE)
class HasNoTerminalKey(CaveEnv):
    def state_key(self) -> str:
        return f"{self.room}:{self.wrong_words}:{self.ending}"


@mutant(INFO, MACHINE)
class CallsEveryEndASuccess(CaveEnv):
    def success(self) -> bool:
        return bool(self.ending)


@mutant(INFO, MACHINE, KEYS, INVALID)
class TakesRewardForSuccess(CaveEnv):
    def _apply(self, action: str) -> Transition:
        after = super()._apply(action)
        after = after._replace(reward=0.5) if action == "read" and after.action_valid else after
        self._paid = after.reward > 0
        return after

    def success(self) -> bool:
        return self.steps > 0 and self._paid


@mutant(INFO, MACHINE)
class TakesAnotherGoalWithoutSayingSo(CaveEnv):
    def _apply(self, action: str) -> Transition:
        self.goal = "Leave the cave."
        return super()._apply(action)


@mutant(INFO, MACHINE)
class IsInvalidAtReset(CaveEnv):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        observation, info = super().reset(seed=seed, options=options)
        return observation, {**info, "action_valid": False}


@mutant(INFO, MACHINE)
class ShowsTheInterpreter(CaveEnv):
    def _apply(self, action: str) -> Transition:
        after = super()._apply(action)
        return (
            after if after.action_valid else after._replace(observation="Traceback (most recent call last): KeyError")
        )


@mutant(INFO, MACHINE, "test_proposed_actions_are_accepted")
class ListsATemplateAsAdmissible(CaveEnv):
    def admissible_actions(self) -> list[str]:
        return [*super().admissible_actions(), *self.action_templates()]

    def _apply(self, action: str) -> Transition:
        if "{" in action:
            return Transition("Nothing happens.", -0.1, False, False)
        return super()._apply(action)


@mutant(INFO, MACHINE)
class WritesALongKey(CaveEnv):
    def state_key(self) -> str:
        return super().state_key() + "." * 60


@mutant("test_closed_language_is_listed_completely")
class ForgetsAnAdmissibleAction(CaveEnv):
    def admissible_actions(self) -> list[str]:
        return [action for action in super().admissible_actions() if (action, self.room) != ("left", 3)]

    def _apply(self, action: str) -> Transition:
        if (action, self.room) == ("left", 3):
            self.room = 2
            return Transition(f"You walk left.{self._scenery()}", -0.1, False, True)
        return super()._apply(action)


@mutant("test_proposed_actions_are_accepted", MACHINE, "test_expert_wins_from_wherever_it_can")
class ListsAnActionThatItRefuses(CaveEnv):
    def admissible_actions(self) -> list[str]:
        return ["left", "right", "read"]

    def _apply(self, action: str) -> Transition:
        if action == "read" and self.room != self.note:
            return Transition("Nothing happens.", -0.1, False, False)
        return super()._apply(action)


@mutant("test_proposed_actions_are_accepted")
class ProposesTooMuch(CaveEnv):
    def candidates(self) -> list[str]:
        spoken = [f"say[{number}]" for number in range(70)] if self.room == self.door else []
        return [*self.admissible_actions(), *spoken]


@mutant(
    "test_proposed_actions_are_accepted",
    "test_equal_seeds_give_equal_episodes",
    "test_other_processes_give_equal_episodes",
    "test_global_random_state_is_left_alone",
    "test_spec_round_trips",
    "test_settings_build_the_environment_again",
    "test_bad_reset_arguments_are_typed_errors",
    "test_reset_without_seed_continues_the_stream",
    ANY_TEXT,
)
class SamplesFromItsOwnRandom(CaveEnv):
    def sample_action(self, rng: Stream) -> str:
        self._own = getattr(self, "_own", 0) + 1
        return super().sample_action(Stream("own", self._own))

"""Environments that each break one rule, and the check of the compliance suite that must notice.

`@mutant(check, *also)` registers a class and notes which check must fail on it; `also` are checks that may fail too,
because the fault is visible from more than one side. Every other check must pass.
"""

import copy
import inspect
import random
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv

from agentgym_flow.core import TextEnv, Transition
from agentgym_flow.envs.sokoban.env import SokobanEnv
from agentgym_flow.envs.sokoban.grid import SokobanGridEnv
from agentgym_flow.envs.sokoban.vector import SokobanVectorEnv
from agentgym_flow.seeding import Stream
from agentgym_flow.testing.example import CaveEnv

GRID = "agentgym_flow/SokobanGrid-v0"
"""The numeric face whose vector entry point the vector mutants replace."""

MUTANTS: dict[type, tuple[str, frozenset[str]]] = {}
"""Mutant -> the check that must fail, and those that may fail beside it."""

MACHINE = "test_any_sequence_of_calls"
INFO = "test_info_keeps_the_contract"
INVALID = "test_invalid_actions_change_nothing"
ANY_TEXT = "test_any_text_is_a_normal_step"
BUDGET = "test_invalid_actions_use_up_the_budget"
KEYS = "test_equal_state_keys_have_equal_futures"
FRESH = "test_returned_objects_are_fresh"
CHECK_ENV = "test_check_env_without_warning"
PASSIVE = "test_passive_checker_stays_silent"
VECTOR = "test_vector_entry_point_equals_sync"

C = TypeVar("C", bound=type)


def mutant(check: str, *also: str) -> Callable[[C], C]:
    def enter(cls: C) -> C:
        cls.__doc__ = cls.__doc__ or cls.__mro__[1].__doc__
        cls.env_id = f"mutant/{cls.__name__}-v0"
        entry = f"compliance_mutants:{cls.__name__}"
        if issubclass(cls, VectorEnv):
            gym.register(cls.env_id, entry_point=gym.spec(GRID).entry_point, vector_entry_point=entry)
        else:
            gym.register(cls.env_id, entry_point=entry)
        MUTANTS[cls] = (check, frozenset(also))
        return cls

    return enter


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
    def _info(self, action_valid: bool) -> dict[str, Any]:
        self._shown = getattr(self, "_shown", {})
        self._shown.clear()
        self._shown.update(super()._info(action_valid))
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


# ---------------------------------------------------------------- actions
@mutant(INVALID, MACHINE)
class RaisesOnAMegabyte(CaveEnv):
    def _apply(self, action: str) -> Transition:
        if len(action) > 100_000:
            raise MemoryError("that is too long")
        return super()._apply(action)


@mutant(ANY_TEXT, MACHINE)
class RaisesOnAMissingBracket(CaveEnv):
    def _apply(self, action: str) -> Transition:
        if action.startswith("say["):
            action.index("]")
        return super()._apply(action)


@mutant(INVALID, ANY_TEXT, MACHINE, BUDGET)
class MovesOnNonsense(CaveEnv):
    def _apply(self, action: str) -> Transition:
        after = super()._apply(action)
        if not after.action_valid:
            self.room = (self.room + 1) % self.rooms
        return after


@mutant(INVALID)
class PunishesNonsense(CaveEnv):
    def _apply(self, action: str) -> Transition:
        after = super()._apply(action)
        return after if after.action_valid else after._replace(reward=-1.0)


@mutant(INVALID, BUDGET, MACHINE)
class GivesNonsenseAway(CaveEnv):
    def _apply(self, action: str) -> Transition:
        after = super()._apply(action)
        self.steps -= not after.action_valid
        return after


@mutant(BUDGET, "test_budget_and_rules_never_end_together", "test_step_outside_an_episode_is_refused", MACHINE)
class TruncatesOneStepLate(CaveEnv):
    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.max_steps += 1
        try:
            return super().step(action)
        finally:
            self.max_steps -= 1


@mutant("test_budget_and_rules_never_end_together", INFO, MACHINE)
class TerminatesAndTruncates(CaveEnv):
    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated, truncated or self.steps >= self.max_steps, info


@mutant("test_step_outside_an_episode_is_refused", MACHINE)
class GoesOnAfterTheEnd(CaveEnv):
    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self._playing = True
        return super().step(action) if self.task >= 0 else ("", 0.0, False, False, {})


@mutant(BUDGET, INFO, MACHINE)
class EndsTheKeyOnTruncation(CaveEnv):
    def state_key(self) -> str:
        return "end:fail:late" if self.steps >= self.max_steps and not self.ending else super().state_key()


# ---------------------------------------------------------------- keys
@mutant(KEYS)
class KeyForgetsHiddenState(CaveEnv):
    def state_key(self) -> str:
        return super().state_key() if self.ending else str(self.room)


@mutant(INVALID, KEYS, BUDGET, ANY_TEXT, MACHINE)
class KeyCountsSteps(CaveEnv):
    def state_key(self) -> str:
        return super().state_key() if self.ending else f"{super().state_key()}:{self.steps}"


@mutant(KEYS)
class KeyHoldsTheHistory(CaveEnv):
    def _begin(self, task: int, noise: Stream, options: Mapping[str, Any]) -> str:
        self._walked = ""
        return super()._begin(task, noise, options)

    def _apply(self, action: str) -> Transition:
        after = super()._apply(action)
        if after.action_valid:
            self._walked += action[0]
        return after

    def state_key(self) -> str:
        return super().state_key() if self.ending else f"{super().state_key()}:{self._walked[-40:]}"


# ---------------------------------------------------------------- tasks
@mutant(
    "test_expert_wins_every_sampled_task",
    "test_expert_wins_from_wherever_it_can",
    "test_budget_and_rules_never_end_together",
)
class HasAnExpertThatLoses(CaveEnv):
    def expert_action(self) -> str | None:
        action = super().expert_action()
        return "say[sesame]" if action and action.startswith("say") else action


@mutant("test_expert_wins_from_wherever_it_can")
class HasAnExpertThatGivesUp(CaveEnv):
    def expert_action(self) -> str | None:
        return None if self.wrong_words else super().expert_action()


@mutant("test_splits_are_disjoint")
class SharesTasksBetweenSplits(CaveEnv):
    def _begin(self, task: int, noise: Stream, options: Mapping[str, Any]) -> str:
        text = super()._begin(task, noise, options)
        if self.split == "valid":
            self.split = "train"
            try:
                text = super()._begin(task, noise, options)
            finally:
                self.split = "valid"
        return text


@mutant("test_splits_are_disjoint")
class HasOneTaskKeyPerSplit(CaveEnv):
    def _begin(self, task: int, noise: Stream, options: Mapping[str, Any]) -> str:
        text = super()._begin(task, noise, options)
        self.task_key = self.make_task_key(self.split)
        return text


@mutant("test_splits_are_disjoint")
class RepeatsATask(CaveEnv):
    def _begin(self, task: int, noise: Stream, options: Mapping[str, Any]) -> str:
        return super()._begin(0 if task == 5 else task, noise, options)


@mutant("test_splits_are_disjoint")
class HasOneTaskKey(CaveEnv):
    def _begin(self, task: int, noise: Stream, options: Mapping[str, Any]) -> str:
        text = super()._begin(task, noise, options)
        self.task_key = self.make_task_key("cave")
        return text


@mutant("test_task_key_is_the_identity_of_the_task", "test_budget_and_rules_never_end_together")
class PutsTheBudgetIntoTheTaskKey(CaveEnv):
    def _begin(self, task: int, noise: Stream, options: Mapping[str, Any]) -> str:
        text = super()._begin(task, noise, options)
        self.task_key = self.make_task_key([task, self.split, self.max_steps])
        return text


@mutant("test_task_key_is_the_identity_of_the_task")
class PutsPresentationIntoTheTaskKey(CaveEnv):
    presentation_settings: ClassVar[frozenset[str]] = frozenset()


@mutant("test_manifests_are_as_recorded")
class ChangesItsTasks(CaveEnv):
    def _begin(self, task: int, noise: Stream, options: Mapping[str, Any]) -> str:
        text = super()._begin(task, noise, options)
        if self.split == "test":
            self.task_key = self.make_task_key([task, "another draw"])
        return text


# ---------------------------------------------------------------- logs
@mutant("test_reference_episodes_are_unchanged")
class SaysItInOtherWords(CaveEnv):
    def _say(self, word: str) -> Transition:
        after = super()._say(word)
        return after._replace(observation=after.observation.replace("opens", "swings open"))


@mutant(
    "test_settings_build_the_environment_again", "test_log_replays_exactly", "test_task_key_is_the_identity_of_the_task"
)
class ForgetsASetting(CaveEnv):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        del self.settings["rooms"]


# ---------------------------------------------------------------- registration
@mutant("test_undeclared_render_mode_is_refused")
class TakesAnyRenderMode(CaveEnv):
    def __init__(self, render_mode: str | None = None, **kwargs: Any) -> None:
        known = render_mode in TextEnv.metadata["render_modes"]
        super().__init__(render_mode=render_mode if known else None, **kwargs)


@mutant("test_declared_render_modes_work", CHECK_ENV)
class DeclaresAPictureItCannotDraw(CaveEnv):
    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}


@mutant("test_manual_has_its_sections")
class HasNoManual(CaveEnv):
    """A cave.

    ## Description
    You will see.
    """


@mutant("test_shared_memory_refuses_text")
class UsesGymnasiumsText(CaveEnv):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        letters = frozenset(map(chr, range(32, 127)))
        self.observation_space = gym.spaces.Text(1000, min_length=0, charset=letters)


@mutant("test_examples_in_the_manual_run")
class LiesInItsManual(CaveEnv):
    __doc__ = f"""{inspect.getdoc(CaveEnv)}
    ```python
    >>> 1 + 1
    3

    ```
    """


@mutant("test_tape_is_plain_or_refused")
class TakesAnyTape(CaveEnv):
    def use_tape(self, entries: Any) -> None:
        self._tape = entries


# ---------------------------------------------------------------- Sokoban
@mutant(KEYS)
class SokobanKeyForgetsThePlayer(SokobanEnv):
    def state_key(self) -> str:
        return super().state_key().partition("@")[0]


@mutant(KEYS)
class SokobanKeyForgetsTheBoxes(SokobanEnv):
    def state_key(self) -> str:
        return super().state_key().rpartition("@")[2]


@mutant(INVALID, MACHINE, ANY_TEXT, BUDGET)
class SokobanGuessesAtNonsense(SokobanEnv):
    def _apply(self, action: str) -> Transition:
        after = super()._apply(action)
        return after if after.action_valid else super()._apply("left")._replace(action_valid=False)


@mutant(
    "test_expert_wins_from_wherever_it_can",
    "test_expert_wins_every_sampled_task",
    "test_budget_and_rules_never_end_together",
)
class SokobanExpertThinksItIsLost(SokobanEnv):
    def expert_action(self) -> str | None:
        return super().expert_action() if self.steps < 4 else None


# ---------------------------------------------------------------- numeric faces
@mutant("test_action_mask_equals_brute_force")
class GridWithAStaleMask(SokobanGridEnv):
    def _info(self) -> dict[str, Any]:
        info = super()._info()
        shown = info["action_mask"] if self.steps == 0 else self._before
        self._before = info["action_mask"].copy()
        return {**info, "action_mask": shown}


@mutant("test_action_mask_equals_brute_force", FRESH, CHECK_ENV, PASSIVE)
class GridWithOneMask(SokobanGridEnv):
    def _info(self) -> dict[str, Any]:
        info = super()._info()
        self._mask = getattr(self, "_mask", info["action_mask"])
        self._mask[:] = info["action_mask"]
        return {**info, "action_mask": self._mask}


@mutant("test_action_mask_equals_brute_force")
class GridWithABoolMask(SokobanGridEnv):
    def _info(self) -> dict[str, Any]:
        info = super()._info()
        return {**info, "action_mask": info["action_mask"].astype(bool)}


@mutant(FRESH, CHECK_ENV, PASSIVE, "test_action_mask_equals_brute_force")
class GridThatReusesItsObservation(SokobanGridEnv):
    def _grid(self) -> Any:
        self._shown = getattr(self, "_shown", np.zeros((6, 6), np.uint8))
        self._shown[:] = super()._grid()
        return self._shown


@mutant("test_numeric_face_plays_like_the_text_face")
class GridWithItsOwnRewards(SokobanGridEnv):
    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, round(reward), terminated, truncated, info


@mutant(VECTOR)
class VectorThatTruncatesLate(SokobanVectorEnv):
    def __init__(self, num_envs: int = 1, **kwargs: Any) -> None:
        super().__init__(num_envs, **kwargs)
        self.max_steps += 1


@mutant(VECTOR)
class VectorInSinglePrecision(SokobanVectorEnv):
    def step(self, actions: Any) -> Any:
        observations, rewards, *rest = super().step(actions)
        return observations, rewards.astype(np.float32), *rest


@mutant(VECTOR)
class VectorWithAStaleMask(SokobanVectorEnv):
    def step(self, actions: Any) -> Any:
        *rest, infos = super().step(actions)
        shown = getattr(self, "_before", infos["action_mask"])
        self._before = infos["action_mask"].copy()
        return *rest, {**infos, "action_mask": shown}


@mutant("test_vector_observations_are_fresh")
class VectorThatReusesItsObservations(SokobanVectorEnv):
    def reset(self, **kwargs: Any) -> Any:
        self._shown, infos = super().reset(**kwargs)
        return self._shown, infos

    def step(self, actions: Any) -> Any:
        observations, *rest = super().step(actions)
        self._shown[:] = observations
        return self._shown, *rest

"""Caves with faults in their rules, keys, tasks, logs or registration."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import gymnasium as gym
from mutant_register import ANY_TEXT, BUDGET, CHECK_ENV, INFO, INVALID, KEYS, MACHINE, mutant

from agentgym_flow.core import External, Stream, TextEnv, Transition
from agentgym_flow.testing.example import CaveEnv


# ---------------------------------------------------------------- actions
@mutant(INVALID, MACHINE)
class RaisesOnALongText(CaveEnv):
    def _apply(self, action: str) -> Transition:
        if len(action) > 10_000:
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
        self.playing = True
        return super().step(action) if self.task >= 0 else ("", 0.0, False, False, {})


@mutant(BUDGET, INFO, MACHINE)
class EndsTheKeyOnTruncation(CaveEnv):
    def state_key(self) -> str:
        return "end:fail:late" if self.steps >= self.max_steps and not self.ending else super().state_key()


@mutant("test_preparing_steps_changes_nothing")
class PreparesByStepping(CaveEnv):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.external = Stepping(self.env_id)


class Stepping(External):
    @classmethod
    def prepare_steps(cls, envs: Sequence[TextEnv], actions: Sequence[str]) -> None:
        for env, action in zip(envs, actions, strict=True):
            if env.playing:
                env._apply(action)


@mutant("test_preparing_steps_changes_nothing")
class TakesWhatWasPreparedForAnotherAction(CaveEnv):
    prepared: str | None = None

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.external = Preparing(self.env_id)

    def _apply(self, action: str) -> Transition:
        prepared, self.prepared = self.prepared, None
        return super()._apply(prepared or action)


class Preparing(External):
    @classmethod
    def prepare_steps(cls, envs: Sequence[TextEnv], actions: Sequence[str]) -> None:
        for env, action in zip(envs, actions, strict=True):
            assert isinstance(env, TakesWhatWasPreparedForAnotherAction)
            env.prepared = env.prepared or action


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


@mutant("test_recording_is_plain_or_refused")
class TakesAnyRecording(CaveEnv):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.external = External(self.env_id, recorded=True)

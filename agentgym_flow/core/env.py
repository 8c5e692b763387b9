"""The contract of all environments: text actions, text observations, and an `info` with guaranteed keys.

`TextEnv` implements what all environments share: seeding, options, the step budget, the contract keys of `info`, and
the identity of a task. A subclass implements its tasks, rules and state. `agentgym_flow.testing` checks the contract
for any subclass.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, ClassVar, NamedTuple

import gymnasium as gym
import numpy as np

from agentgym_flow.core.card import Cloned, EnvCard, External, TaskSource
from agentgym_flow.core.seeding import Stream, choose_task, stable_hash, task_identity
from agentgym_flow.core.settings import (
    Setting,
    argument_table,
    arguments_of,
    check_info_keys,
    check_options,
    check_positive,
    check_render_mode,
    check_settings,
    check_split,
)
from agentgym_flow.core.spaces import PlainSpec, UnicodeText
from agentgym_flow.errors import (
    BadAction,
    BadSetting,
    ResetNeeded,
    UnknownOption,
    shown,
)

MAX_CANDIDATES = 64
"""The largest number of actions that `candidates()` proposes."""

MAX_ACTION_LENGTH = 1 << 14
"""The default limit on an action in characters. A longer text is invalid."""

OFFICIAL_KEY = "official_key"
"""The key of `info` with the state key of RewardFlow's released code, on request."""


class Transition(NamedTuple):
    """The result of one action under the rules of an environment.

    Attributes:
        observation: the text after the action.
        reward: the native reward.
        terminated: whether the rules ended the episode.
        action_valid: whether the text could be parsed and the rules accepted it in this state.
    """

    observation: str
    reward: float
    terminated: bool
    action_valid: bool


_ON_CARD = frozenset(one.name for one in fields(EnvCard))
_EXTERNAL = frozenset(name for name, one in vars(External).items() if name[0] != "_") - {"start"}


class TextEnv(Cloned, PlainSpec, gym.Env[str, str]):
    """Base of all text environments.

    A subclass sets `env_id`, calls `super().__init__`, and implements `num_tasks`, `_begin` and `_apply`. All other
    members have defaults that are valid for every environment but less informative: states never merge, no actions are
    proposed, and there is no expert. A subclass must keep its full state in plain attributes, so that
    `copy.deepcopy(env.unwrapped)` is a clone and the environment can be pickled.

    Args:
        split: `"train"`, `"valid"` or `"test"`.
        max_steps: the step after which an unfinished episode is truncated; at least 1.
        settings: all other keyword arguments that are needed to create the same environment again, JSON-serialisable
            and without paths (`data` names official data). If the signature declares settings, only those it allows.
        source: the tasks, for environments with seasons, official data or task types. Its split is the split.
        task_types: types of tasks: `reset(seed=...)` draws only tasks of these types; None for all. Tasks keep their
            numbers and keys, and `options={"task": k}` can still select any task, so logs do not record the types.
        render_mode: one of `metadata["render_modes"]`, or None.

    Attributes:
        data: official data in use, name -> SHA-256; empty for embedded tasks.
        season: the seed of a season of test tasks; `""` for the standard tasks. Unless it is `""`, it becomes a
            setting. `task_key` does not include it, so equal tasks of two seasons have equal keys.
        external: what the environment gets from outside, such as the responses of a server.
        playing: whether an episode is running. A wrapper that ends an episode from outside sets it to False.

    Raises:
        UnknownSplit: `split` is not a split.
        BadSetting: `max_steps` is not a positive integer, `render_mode` is not supported, `task_types` is not a list
            with at least one type, or a setting has a value that `logged_settings` does not allow.
        UnknownOption: `logged_settings` does not list a setting, or a word that is the value of one; or no task has one
            of `task_types`.
    """

    env_id: ClassVar[str]
    """The registered id of the text environment, for example `"agentgym_flow/Sokoban-v0"`."""
    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012 (as gym.Env declares it)
    reset_options: ClassVar[tuple[str, ...]] = ("task",)
    """The keys that `reset(options=...)` accepts."""
    presentation_settings: ClassVar[frozenset[str]] = frozenset()
    """Settings marked with `PRESENTATION` in the signature. `task_key` does not include them."""
    optional_info: ClassVar[tuple[str, ...]] = ()
    """Keys of `info` that are expensive to compute. They are present only after a request with `request_info`.

    `OFFICIAL_KEY` is the state key of RewardFlow's released code.
    """
    logged_settings: ClassVar[Mapping[str, Setting] | None] = None
    """The names and values that `settings` can have, from the signature. `verify` creates environments only with these.

    Without a declaration, a log may only contain numbers, booleans, None, plain words, and lists of these.
    """
    card: ClassVar[EnvCard] = EnvCard()
    """What the trainer, the player and the command line read about the environment."""
    max_action_length: ClassVar[int] = MAX_ACTION_LENGTH
    """The limit on the length of an action, in characters. A longer text is invalid and is not parsed."""
    _shared_by_clones: ClassVar[frozenset[str]] = frozenset({"_spec", "_dynamics", "data", "settings", "source"})

    def __init__(
        self,
        *,
        max_steps: int,
        settings: Mapping[str, Any],
        split: str = "train",
        source: TaskSource | None = None,
        task_types: Collection[str] | None = None,
        render_mode: str | None = None,
    ) -> None:
        # CPython reads the attributes of an object with 30 or more of them more slowly, by a tenth of Sokoban's step.
        self.source = source
        self.split = check_split(split, {}) if source is None else source.split
        self.season = "" if source is None else source.season
        self.data = {} if source is None else dict(source.data)
        self.max_steps = check_positive("max_steps", max_steps)
        self.render_mode = check_render_mode(render_mode, self.metadata)
        self.settings = {**settings, "season": self.season} if self.season else dict(settings)
        if self.logged_settings is not None:
            check_settings(self.logged_settings, self.settings)
        self.external = External(self.env_id)
        self.info_keys: tuple[str, ...] = ()
        self.observation_space = UnicodeText(1 << 20)
        self.action_space = UnicodeText(self.max_action_length)
        self.task = -1
        self.task_key = ""
        self.task_type = ""
        self.goal = ""
        self.steps = 0
        self.playing = False
        self._history: tuple[int, list[str]] = 0, []  # the bits of the reset, and the accepted actions since
        self._last_transition = Transition("", 0.0, False, True)
        self._dynamics = {k: v for k, v in settings.items() if k not in self.presentation_settings}
        self._among = None if task_types is None else np.array(tasks_of_types(self, task_types), np.int64)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in vars(cls):  # members of TextEnv before version 0.2, which nothing would read
            if name in _ON_CARD:
                raise BadSetting(f"{cls.__name__}.{name} belongs to its card: card = EnvCard({name}=...)")
            if name in _EXTERNAL:
                raise BadSetting(f"{cls.__name__}.{name} belongs to the class of its attribute external, an External")
        arguments = arguments_of(cls) if "__init__" in vars(cls) else {}
        declared = {name: one.allowed for name, one in arguments.items() if one.allowed is not None}
        if declared and "logged_settings" not in vars(cls):
            cls.logged_settings = declared
            cls.presentation_settings = frozenset(name for name, one in arguments.items() if one.presentation)
        cls.__doc__ = (cls.__doc__ or "").replace("{arguments}", argument_table(arguments)) or None

    # ---------------------------------------------------------------- members that subclasses define
    @property
    @abstractmethod
    def num_tasks(self) -> int:
        """The number of tasks in this split."""

    def task_type_of(self, task: int) -> str:
        """Return the type of task number `task`, such as `"pick_and_place_simple"`; `""` if tasks have no types.

        Results can be reported by type. The method must work without generating or starting the task.
        """
        return "" if self.source is None else self.source.task_type(task)

    @property
    def former_data(self) -> Mapping[str, str]:
        """The digests that earlier versions of the package gave to `data`, name -> SHA-256; only messages use them."""
        return {}

    @property
    def drawn_tasks(self) -> Sequence[int]:
        """The tasks that seeds draw from, in ascending order: all tasks of the split, or those of `task_types`.

        Training and evaluation use these tasks.
        """
        return range(self.num_tasks) if self._among is None else self._among.tolist()

    @abstractmethod
    def _begin(self, task: int, noise: Stream, options: Mapping[str, Any]) -> str:
        """Start task number `task` and return the first observation.

        The method sets `self.goal`, and `self.task_key` with `make_task_key`. If it sets no key, the key is made from
        the split and the task number.
        """

    @abstractmethod
    def _apply(self, action: str) -> Transition:
        """Apply the text `action` to the state. Invalid texts never raise and do not change the state."""

    def state_key(self) -> str:
        """Return the identity of the present state within `task_key`, at most 64 characters.

        From states with equal keys, equal actions lead to equal rewards, terminations, success and admissible actions,
        apart from the time limit. The keys of terminal states are `end:success:...` or `end:fail:...`.

        By default the key is a hash of the accepted actions since the reset. Different paths to a state then have
        different keys.
        """
        way = stable_hash(self._history)[:32]
        if not self._last_transition.terminated:
            return way
        return f"end:{'success' if self.success() else 'fail'}:{way}"

    def describe_state(self) -> str:
        """Return a readable description of the state behind `state_key`; by default the last observation."""
        return self._last_transition.observation

    def score(self) -> float:
        """Return the native metric in [0, 1] that the episode would have if it ended now; 0 before a final action.

        By default 1 if the rules have ended the episode with a positive reward, otherwise 0.
        """
        return float(self._last_transition.terminated and self._last_transition.reward > 0)

    def success(self) -> bool:
        """Return whether the task is achieved: the score is 1, unless the data set defines another threshold."""
        return self.score() == 1.0

    def admissible_actions(self) -> list[str]:
        """Return a new list of valid actions in a fixed order; complete if the action set is finite. Default: empty."""
        return []

    def action_templates(self) -> list[str]:
        """Return a new list of templates such as `"search[{query}]"`; empty if the action set is finite."""
        return []

    def sample_action(self, rng: Stream) -> str:
        """Return a random valid action, with templates filled from shown text; by default one of `candidates`."""
        proposed = self.candidates()
        return rng.choice(proposed) if proposed else ""

    def candidates(self) -> list[str]:
        """Return at most `MAX_CANDIDATES` concrete actions, built only from text that the agent has been shown."""
        return self.admissible_actions()[:MAX_CANDIDATES]

    def expert_action(self) -> str | None:
        """Return a winning next action, or None if the task can no longer be won. May use hidden task data."""
        return None

    @property
    def has_expert(self) -> bool:
        """Whether `expert_action` can solve tasks of this kind. If not, it always returns None."""
        return type(self).expert_action is not TextEnv.expert_action

    def log_meta(self) -> dict[str, Any]:
        """Return the task's entries in the log's `meta`: plain JSON without paths; by default its type, if any."""
        return {"task_type": self.task_type} if self.task_type else {}

    def _extra_info(self) -> dict[str, Any]:
        """Return the additional `info` keys of the environment, as new objects on every call."""
        return {}

    def request_info(self, keys: Iterable[str]) -> None:
        """Add keys of `optional_info` to `info` from the next reset or step on; `info_keys` has the requested keys.

        Raises `UnknownOption` if a key is not in `optional_info`.
        """
        self.info_keys = check_info_keys((*self.info_keys, *keys), self.optional_info)

    def _requested_info(self, key: str) -> Any:
        """Return the value of a key of `optional_info`, as a new object on every call.

        Override this method if the environment declares such keys.
        """
        raise UnknownOption(
            f"{type(self).__name__} declares {key!r} in optional_info but has no _requested_info for it"
        )

    def _choose_task(self, seed: int | None, options: Mapping[str, Any]) -> tuple[int, int]:
        """Return the task that the checked `options` and the seed select, and 64 random bits for its noise.

        Override this method if a task can be selected by more than its number.
        """
        return choose_task(self.np_random, seed, options.get("task"), self.num_tasks, self.split, self._among)

    # ---------------------------------------------------------------- Gymnasium
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start an episode; return the first observation and `info`.

        `seed` draws the task and the noise. `options={"task": k}` fixes the task; its noise comes from `seed`, or from
        the bits 0 if there is no seed.

        Raises:
            UnknownOption: a key of `options` is not in `reset_options`.
            UnknownTask: the task is not an integer in `range(num_tasks)`.
        """
        super().reset(seed=seed)
        return self.begin(seed, options), self.info(True)

    def begin(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> str:
        """Do what `reset` does, but seed no generator and build no `info`; for callers that build their own `info`.

        The draws come from `np_random`, which must already be seeded with `seed`.
        """
        chosen = check_options(options, self.reset_options)
        self.task, bits = self._choose_task(seed, chosen)
        self.steps = 0
        self.playing = False  # if the start fails, the environment needs a reset
        self.task_type = self.task_type_of(self.task)
        self.task_key = ""
        self._history = bits, []
        self.external.start()
        observation = self._begin(self.task, Stream(self.env_id, "episode", bits), chosen)
        self._last_transition = Transition(observation, 0.0, False, True)
        if not self.task_key:
            self.task_key = self.make_task_key([self.split, self.task])
        self.playing = True
        return observation

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Apply `action`; return observation, native reward, terminated, truncated and `info`.

        Raises `ResetNeeded` before the first reset and after the end of an episode, and `BadAction` if `action` is not
        a `str`. Invalid texts never raise.
        """
        (observation, reward, terminated, action_valid), truncated = self.advance(action)
        return observation, reward, terminated, truncated, self.info(action_valid)

    def advance(self, action: str) -> tuple[Transition, bool]:
        """Do what `step` does, without `info`: return the transition and whether the step truncates the episode."""
        if not self.playing:
            raise ResetNeeded(
                "the episode has ended: call reset() before the next step()"
                if self.task >= 0
                else "call reset() before the first step()"
            )
        if not isinstance(action, str):
            raise BadAction(f"an action of {self.env_id} is a str, got {type(action).__name__}: {action!r:.60}")
        transition = self._apply(action if len(action) <= self.max_action_length else "")
        self._last_transition = transition
        _, _, terminated, action_valid = transition
        if action_valid:
            self._history[1].append(action)
        self.steps += 1
        truncated = not terminated and self.steps >= self.max_steps
        self.playing = not (terminated or truncated)
        return transition, truncated

    def render(self) -> Any:
        """Return the present state, rendered in `render_mode`; `"ansi"` gives `describe_state()`."""
        if self.render_mode == "ansi":
            return self.describe_state()
        return None

    def info(self, action_valid: bool = True) -> dict[str, Any]:
        """Return a new `info` of the present state, whose last action was valid or not."""
        info = {
            "task": self.task,
            "task_key": self.task_key,
            "task_type": self.task_type,
            "goal": self.goal,
            "state_key": self.state_key(),
            "success": self.success(),
            "score": self.score(),
            "action_valid": action_valid,
            "admissible_actions": self.admissible_actions(),
            "action_templates": self.action_templates(),
            **self._extra_info(),
        }
        if self.info_keys:
            info |= {key: self._requested_info(key) for key in self.info_keys}
        return info

    # ---------------------------------------------------------------- identity
    def make_task_key(self, content: Any) -> str:
        """Return the `task_identity` of the JSON-serialisable `content` with this environment's settings and data."""
        return task_identity(self.env_id, self._dynamics, self.data, content)


def tasks_of_types(env: TextEnv, task_types: Collection[str]) -> list[int]:
    """Return the tasks of these types in ascending order.

    Raises `BadSetting` if `task_types` is not a list with at least one type, and `UnknownOption` if no task of the
    split has one of the types.
    """
    if not isinstance(task_types, list | tuple | set | frozenset) or not task_types:
        raise BadSetting(f"task_types must be a list of types, got {shown(task_types)}")
    types = [env.task_type_of(task) for task in range(env.num_tasks)]
    known = sorted(set(types))
    for wanted in task_types:
        if wanted not in known:
            raise UnknownOption.among(wanted, known, f"Split {env.split!r} of {env.env_id} has only these types.")
    return [task for task, own in enumerate(types) if own in task_types]

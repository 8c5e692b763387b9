"""The contract of all environments: text actions, text observations, and an `info` with guaranteed keys.

`TextEnv` implements what all environments share: seeding, options, the step budget, the contract keys of `info`, and
the identity of a task. A subclass implements its tasks, rules and state. `agentgym_flow.testing` checks the contract
for any subclass.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Self

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from agentgym_flow.core.seeding import Stream, choose_task, stable_hash, task_identity
from agentgym_flow.core.settings import (
    Setting,
    argument_table,
    arguments_of,
    check_info_keys,
    check_options,
    check_positive,
    check_render_mode,
    check_season,
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


class AnswerStore(Protocol):
    """Stores the answers of a server, so that a resumed run does not request them again."""

    def take(self, asked: str) -> Any | None:
        """Return a stored answer to the request with this name, each answer once; None if there is none."""

    def add(self, asked: str, answer: Any) -> None:
        """Store the JSON-serialisable answer to a request."""


@dataclass(frozen=True, kw_only=True)
class EnvCard:
    """What the trainer, the player and the command line read about an environment. No episode depends on it.

    Attributes:
        train_config: the default settings of `agentgym-flow train`: the name of a YAML file without its suffix, next to
            the module of the environment or in the package.
        algorithm_settings: algorithm -> its training settings in this environment, from its paper or required by the
            state key: other anchors, for example, if the key does not include what the agent has learnt.
        script: the policy `scripted`, as `module:class`, or None. It reads only observations and `info`.
        without_expert: arguments with which there may be no expert. Solved turns (`shots`) are made without them.
        outside_requests: the requests that a step may send to the outside: none, its own, or requests that
            `prepare_steps` can combine for several steps. With an asynchronous policy, steps that send requests run in
            threads and wait briefly to share them.
        human_settings: presentation settings for human players, the defaults of `agentgym-flow play`.
        typed_forms: short forms that a human may type, such as `delete {node}`, and their actions.
    """

    train_config: str = "any_tiny"
    algorithm_settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    script: str | None = None
    without_expert: frozenset[str] = frozenset()
    outside_requests: Literal["none", "own", "shared"] = "none"
    human_settings: Mapping[str, Any] = field(default_factory=dict)
    typed_forms: Mapping[str, str] = field(default_factory=dict)


class TextEnv(PlainSpec, gym.Env[str, str]):
    """Base of all text environments.

    A subclass sets `env_id`, calls `super().__init__`, and implements `num_tasks`, `_begin` and `_apply`. All other
    members have defaults that are valid for every environment but less informative: states never merge, no actions are
    proposed, and there is no expert. A subclass must keep its full state in plain attributes, so that
    `copy.deepcopy(env.unwrapped)` is a clone and the environment can be pickled.

    Args:
        split: `"train"`, `"valid"` or `"test"`, or an alias from `split_aliases`.
        max_steps: the step after which an unfinished episode is truncated; at least 1.
        settings: all other keyword arguments that are needed to create the same environment again, JSON-serialisable
            and without paths (`data` names official data). If the signature declares settings, only those it allows.
        data: official data in use, name -> SHA-256; empty for embedded tasks.
        season: the seed of a season of test tasks, checked by `check_season`; `""` for the standard tasks. Unless it is
            `""`, it becomes a setting. `task_key` does not include it, so equal tasks of two seasons have equal keys.
        render_mode: one of `metadata["render_modes"]`, or None.

    Raises:
        UnknownSplit: `split` is neither a split nor an alias.
        BadSetting: `max_steps` is not a positive integer, `render_mode` is not supported, a setting has a value that
            `logged_settings` does not allow, or these tasks have no such season.
        UnknownOption: `logged_settings` does not list a setting, or a word that is the value of one.
    """

    env_id: ClassVar[str]
    """The registered id of the text environment, for example `"agentgym_flow/Sokoban-v0"`."""
    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012 (as gym.Env declares it)
    split_aliases: ClassVar[Mapping[str, str]] = {}
    """Official split name -> our name. A name that maps to itself is an additional split of official data only."""
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
    _shared_by_clones: ClassVar[frozenset[str]] = frozenset({"_spec", "_dynamics", "data", "settings"})
    """Attributes that clones share, because no method changes them after construction."""

    def __init__(
        self,
        *,
        split: str,
        max_steps: int,
        settings: Mapping[str, Any],
        data: Mapping[str, str] | None = None,
        season: str = "",
        render_mode: str | None = None,
    ) -> None:
        self.split = check_split(split, self.split_aliases)
        self.max_steps = check_positive("max_steps", max_steps)
        self.render_mode = check_render_mode(render_mode, self.metadata)
        self.season = check_season(season, self.split, "data" if data else "")
        self.settings = {**settings, "season": season} if season else dict(settings)
        if self.logged_settings is not None:
            check_settings(self.logged_settings, self.settings)
        self.data = dict(data or {})
        self.info_keys: tuple[str, ...] = ()
        self.observation_space = UnicodeText(1 << 20)
        self.action_space = UnicodeText(self.max_action_length)
        self.task = -1
        self.task_key = ""
        self.task_type = ""
        self.goal = ""
        self.steps = 0
        self._playing = False
        self._reset_bits = 0
        self._accepted_actions: list[str] = []
        self._last_transition = Transition("", 0.0, False, True)
        self._among: npt.NDArray[np.int64] | None = None
        self._dynamics = {k: v for k, v in settings.items() if k not in self.presentation_settings}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        moved = [one.name for one in fields(EnvCard) if one.name in vars(cls)]
        if moved:  # class attributes before version 0.2, which nothing would read
            raise BadSetting(f"{cls.__name__}.{moved[0]} belongs to its card: card = EnvCard({moved[0]}=...)")
        arguments = arguments_of(cls) if "__init__" in vars(cls) else {}
        declared = {name: one.allowed for name, one in arguments.items() if one.allowed is not None}
        if declared and "logged_settings" not in vars(cls):
            cls.logged_settings = declared
            cls.presentation_settings = frozenset(name for name, one in arguments.items() if one.presentation)
        cls.__doc__ = (cls.__doc__ or "").replace("{arguments}", argument_table(arguments)) or None

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        clone = self.__class__.__new__(self.__class__)
        memo[id(self)] = clone
        for name, value in vars(self).items():
            clone.__dict__[name] = value if name in self._shared_by_clones else copy.deepcopy(value, memo)
        return clone

    # ---------------------------------------------------------------- members that subclasses define
    @property
    @abstractmethod
    def num_tasks(self) -> int:
        """The number of tasks in this split."""

    def task_type_of(self, task: int) -> str:
        """Return the type of task number `task`, such as `"pick_and_place_simple"`; `""` if tasks have no types.

        Results can be reported by type. The method must work without generating or starting the task.
        """
        return ""

    def tasks_of_types(self, task_types: Collection[str]) -> list[int]:
        """Return the tasks of these types in ascending order.

        Raises `BadSetting` if `task_types` is not a list with at least one type, and `UnknownOption` if no task of the
        split has one of the types.
        """
        if not isinstance(task_types, list | tuple | set | frozenset) or not task_types:
            raise BadSetting(f"task_types must be a list of types, got {shown(task_types)}")
        types = [self.task_type_of(task) for task in range(self.num_tasks)]
        known = sorted(set(types))
        for wanted in task_types:
            if wanted not in known:
                raise UnknownOption.among(wanted, known, f"Split {self.split!r} of {self.env_id} has only these types.")
        return [task for task, own in enumerate(types) if own in task_types]

    def draw_only(self, task_types: Collection[str] | None) -> None:
        """Let `reset(seed=...)` draw only tasks of these types; None for all.

        Tasks keep their numbers and keys, and `options={"task": k}` can still select any task. For this reason logs do
        not record the filter. Raises the same errors as `tasks_of_types`.
        """
        self._among = None if task_types is None else np.array(self.tasks_of_types(task_types), np.int64)

    @property
    def drawn_tasks(self) -> Sequence[int]:
        """The tasks that seeds draw from, in ascending order: all tasks of the split, or those chosen by `draw_only`.

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

    def _refuse(self, action: str) -> Transition:
        """Reject a text that is longer than `max_action_length`; by default it is treated as an empty text.

        Override this method if the empty text is a valid action.
        """
        return self._apply("")

    def state_key(self) -> str:
        """Return the identity of the present state within `task_key`, at most 64 characters.

        From states with equal keys, equal actions lead to equal rewards, terminations, success and admissible actions,
        apart from the time limit. The keys of terminal states are `end:success:...` or `end:fail:...`.

        By default the key is a hash of the accepted actions since the reset. Different paths to a state then have
        different keys.
        """
        way = stable_hash([self._reset_bits, self._accepted_actions])[:32]
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

    @classmethod
    def end_figures(cls, observation: str) -> dict[str, float]:
        """Return named metrics of an episode that ended with this observation; training reports their means.

        Empty by default. Success and score are always reported.
        """
        return {}

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

    # ---------------------------------------------------------------- recorded responses from outside
    @property
    def recorded_responses(self) -> Any:
        """The JSON-serialisable external results of the last reset or step, such as server responses; None if none."""
        return None

    def use_recording(self, entries: Sequence[Any] | None) -> None:
        """Make the next episode take external results from the recorded `entries` instead of requesting them again.

        There is one entry for the reset and one for each step.

        Raises `BadSetting` if this environment uses no external results and the recording is not empty.
        """
        if entries is not None and any(entry is not None for entry in entries):
            raise BadSetting(f"{self.env_id} uses no recorded responses, so it cannot play from a recording")

    def keep_answers(self, store: AnswerStore | None) -> None:
        """Take answers of paid servers from `store` if it has them, and add every new answer; None: stop using a store.

        By default this method does nothing. Environments that use such a server override it.
        """

    def check_servers(self) -> None:
        """Check before a run that the servers behind the environment can be reached. By default this does nothing.

        Raises an `AgentGymFlowError` that names the server and says what to do.
        """

    @classmethod
    def prepare_steps(cls, envs: Sequence[TextEnv], actions: Sequence[str]) -> None:
        """Combine the external requests that the next steps of `envs` with `actions` would send one by one.

        Rollouts call this method before the steps. By default it does nothing. If a request fails, its step raises.
        """

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
        return self.begin(seed, options), self._info(True)

    def begin(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> str:
        """Do what `reset` does, but seed no generator and build no `info`; for callers that build their own `info`.

        The draws come from `np_random`, which must already be seeded with `seed`.
        """
        chosen = check_options(options, self.reset_options)
        self.task, bits = self._choose_task(seed, chosen)
        self.steps = 0
        self._playing = False  # if the start fails, the environment needs a reset
        self.task_type = self.task_type_of(self.task)
        self.task_key = ""
        self._reset_bits, self._accepted_actions = bits, []
        observation = self._begin(self.task, Stream(self.env_id, "episode", bits), chosen)
        self._last_transition = Transition(observation, 0.0, False, True)
        if not self.task_key:
            self.task_key = self.make_task_key([self.split, self.task])
        self._playing = True
        return observation

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Apply `action`; return observation, native reward, terminated, truncated and `info`.

        Raises `ResetNeeded` before the first reset and after the end of an episode, and `BadAction` if `action` is not
        a `str`. Invalid texts never raise.
        """
        (observation, reward, terminated, action_valid), truncated = self.advance(action)
        return observation, reward, terminated, truncated, self._info(action_valid)

    @property
    def playing(self) -> bool:
        """Whether an episode is running."""
        return self._playing

    def stop(self) -> dict[str, Any]:
        """End the episode from outside, as Gymnasium's `TimeLimit` does; return `info` of its end, for a wrapper.

        `info` may contain what the environment hides from the policy during an episode.
        """
        self._playing = False
        return self._info(True)

    def advance(self, action: str) -> tuple[Transition, bool]:
        """Do what `step` does, without `info`: return the transition and whether the step truncates the episode."""
        if not self._playing:
            raise ResetNeeded(
                "the episode has ended: call reset() before the next step()"
                if self.task >= 0
                else "call reset() before the first step()"
            )
        if not isinstance(action, str):
            raise BadAction(f"an action of {self.env_id} is a str, got {type(action).__name__}: {action!r:.60}")
        transition = self._apply(action) if len(action) <= self.max_action_length else self._refuse(action)
        self._last_transition = transition
        _, _, terminated, action_valid = transition
        if action_valid:
            self._accepted_actions.append(action)
        self.steps += 1
        truncated = not terminated and self.steps >= self.max_steps
        self._playing = not (terminated or truncated)
        return transition, truncated

    def render(self) -> Any:
        """Return the present state, rendered in `render_mode`; `"ansi"` gives `describe_state()`."""
        if self.render_mode == "ansi":
            return self.describe_state()
        return None

    def _info(self, action_valid: bool) -> dict[str, Any]:
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

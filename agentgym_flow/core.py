"""The contract every environment here keeps: text in, text out, and an `info` that a trainer can rely on.

`TextEnv` owns what is the same everywhere (seeding, options, the step budget, the contract keys of `info`, the identity
of a task) and leaves to an environment what only it knows: its tasks, its rules, its state. `agentgym_flow.testing`
checks the contract on any subclass.
"""

from __future__ import annotations

import operator
import os
from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, SupportsIndex, cast

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.envs.registration import EnvSpec

from agentgym_flow.errors import (
    BadAction,
    BadRenderMode,
    BadSetting,
    ResetNeeded,
    UnknownOption,
    UnknownSplit,
    shown,
)
from agentgym_flow.seeding import Stream, stable_hash
from agentgym_flow.settings import SeasonSeed, Setting, check_settings
from agentgym_flow.spaces import UnicodeText
from agentgym_flow.task_choice import choose_task, task_identity

SPLITS = ("train", "valid", "test")
"""The names of the splits, everywhere."""

MAX_CANDIDATES = 64
"""`candidates()` never proposes more actions than this."""

MAX_ACTION_LENGTH = 1 << 14
"""Characters of the longest action, unless an environment declares another number; a longer text is invalid."""

_LARGEST = (1 << 63) - 1  # what JSON and NumPy hold as an integer


COMPAT_KEY = "compat_key"
"""The key of `info`, told on request, with the state as the released code of RewardFlow names it."""

_SET_BY_RESETS = ("task", "task_key", "task_type", "goal")
_SET_BY_STEPS = ("state_key", "success", "score", "action_valid", "admissible_actions", "action_templates")
_DECIDE_INFO = ("state_key", "success", "score", "admissible_actions", "action_templates", "_extra_info")


class Transition(NamedTuple):
    """What the rules of an environment say about one action.

    Attributes:
        observation: the text after the action.
        reward: the native reward.
        terminated: whether the rules ended the episode.
        action_valid: whether the text parsed and the rules accepted it in this state.
    """

    observation: str
    reward: float
    terminated: bool
    action_valid: bool


class AnswerStore(Protocol):
    """Keeps the answers of a server, so that a run that is resumed does not ask for them again."""

    def take(self, asked: str) -> Any | None:
        """Return an answer to the request of this name, each once; None if there is none."""

    def add(self, asked: str, answer: Any) -> None:
        """Keep the JSON-able answer to a request."""


class PlainSpec:
    """Keeps the spec that Gymnasium gives an environment JSON-able: where an argument was a path, it has its text.

    To be named before the Gymnasium class among the bases.
    """

    _spec: EnvSpec | None = None

    @property
    def spec(self) -> EnvSpec | None:
        """What the environment was made from; None when `gym.make` did not make it."""
        return self._spec

    @spec.setter
    def spec(self, spec: EnvSpec | None) -> None:
        if spec is not None:
            spec.kwargs = {k: os.fspath(v) if isinstance(v, os.PathLike) else v for k, v in spec.kwargs.items()}
        self._spec = spec


class TextEnv(PlainSpec, gym.Env[str, str]):
    """Base of all text environments.

    A subclass sets `env_id`, calls `super().__init__`, and implements `num_tasks`, `_begin` and `_apply`. The defaults
    of the other members are right for every environment, and tell less than its own would: states never merge, nothing
    is proposed, there is no expert. It keeps everything that decides the future in plain attributes, so that
    `copy.deepcopy(env.unwrapped)` is a clone and the environment pickles.

    Args:
        split: `"train"`, `"valid"` or `"test"`, or an alias from `split_aliases`.
        max_steps: the step after which an unfinished episode is truncated; at least 1.
        settings: every other keyword argument that is needed to build the same environment again, JSON-able,
            without paths (official data is named in `data`); with `logged_settings`, only what these allow.
        data: official data in use, name -> SHA-256; empty for embedded tasks.
        season: the seed of a season of test tasks, checked by `check_season`; `""` for the standard tasks. It becomes a
            setting unless it is `""`, and is left out of `task_key`: equal tasks of two seasons have equal keys.
        render_mode: one of `metadata["render_modes"]`, or None.

    Raises:
        UnknownSplit: `split` is neither a split nor an alias.
        BadSetting: `max_steps` is not a positive integer, `render_mode` is not offered, a setting has a value that
            `logged_settings` does not allow, or there is no such season of these tasks.
        UnknownOption: a setting or a word that `logged_settings` does not name.
    """

    env_id: ClassVar[str]
    """The registered id of the text face, for example `"agentgym_flow/Sokoban-v0"`."""
    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012 (as gym.Env declares it)
    split_aliases: ClassVar[Mapping[str, str]] = {}
    """Official names of splits -> ours; a name that stands for itself is a further split, of official data only."""
    reset_options: ClassVar[tuple[str, ...]] = ("task",)
    """The keys that `reset(options=...)` understands."""
    presentation_settings: ClassVar[frozenset[str]] = frozenset()
    """Settings that change the text but not the decision problem; they are left out of `task_key`."""
    optional_info: ClassVar[tuple[str, ...]] = ()
    """Keys of `info` that cost time, and are there only when they were asked for with `request_info`.

    `COMPAT_KEY` is the state as the released code of RewardFlow names it.
    """
    logged_settings: ClassVar[Mapping[str, Setting] | None] = None
    """The names and values that `settings` can have; `verify` makes an environment with nothing else.

    Without a declaration a log may only hold numbers, booleans, None, plain words, and lists of these.
    """
    max_action_length: ClassVar[int] = MAX_ACTION_LENGTH
    """Characters of the longest action; a longer text is invalid without being read."""
    outside_requests: ClassVar[Literal["none", "own", "shared"]] = "none"
    """What a step may ask the outside world: nothing, its own requests, or such as `prepare_steps` makes for several
    steps at once. Episodes that run by themselves take steps that ask in threads, and wait a moment to share requests.
    """
    train_config: ClassVar[str] = "any_tiny"
    """The settings that `agentgym-flow train` starts from: a YAML file's name without the ending, beside the module of
    the environment or in the package.
    """
    algorithm_settings: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Algorithm -> the settings that it is trained with in this environment: what its paper fixes here beyond its own
    constants, or what the state key asks for, such as other anchors where it leaves out what the agent has learnt.
    """
    script: ClassVar[str | None] = None
    """The policy `scripted`, as `module:class`. It reads only what is shown. None where there is none."""
    _remembers: ClassVar[bool] = True
    """Whether the episode so far is kept, for members that the environment leaves to the defaults."""
    _renews_info: ClassVar[bool] = False
    """Whether `_renewed_info` is used: no class below the one that defines it changes what else `info` is made of."""
    human_settings: ClassVar[Mapping[str, Any]] = {}
    """Presentation settings that suit a person better than their defaults; `agentgym-flow play` starts from them."""
    typed_forms: ClassVar[Mapping[str, str]] = {}
    """Short forms that a person may type, such as `delete {node}`, and the actions that they stand for."""

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
        self._kept_info: dict[str, Any] = {}
        self._keeps_info = False
        self._among: npt.NDArray[np.int64] | None = None
        self._dynamics = {k: v for k, v in settings.items() if k not in self.presentation_settings}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = (cls.state_key, cls.describe_state, cls.score)
        names = ("_renewed_info", *_DECIDE_INFO)
        renewing, *deciding = (next(one for one in cls.__mro__ if name in vars(one)) for name in names)
        cls._renews_info = renewing is not TextEnv and all(issubclass(renewing, one) for one in deciding)
        cls._remembers = any(one in (TextEnv.state_key, TextEnv.describe_state, TextEnv.score) for one in own)

    # ---------------------------------------------------------------- what an environment provides
    @property
    @abstractmethod
    def num_tasks(self) -> int:
        """The number of tasks in this split."""

    def task_type_of(self, task: int) -> str:
        """Return the family of task number `task`, such as `"pick_and_place_simple"`; `""` if tasks have no families.

        Results are reported by it. It must be known without generating or starting the task.
        """
        return ""

    def tasks_of_types(self, task_types: Collection[str]) -> list[int]:
        """Return the tasks of these types, ascending.

        Raises `BadSetting` if `task_types` is not a list with at least one type, and `UnknownOption` for a type that no
        task of the split has.
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

        Tasks keep their numbers and keys, and `options={"task": k}` may still name any, so the filter is no setting
        that a log needs. Raises as `tasks_of_types`.
        """
        self._among = None if task_types is None else np.array(self.tasks_of_types(task_types), np.int64)

    @property
    def drawn_tasks(self) -> Sequence[int]:
        """The tasks that seeds draw from, ascending: all of the split, or those that `draw_only` has left.

        Training and evaluation take their tasks from here.
        """
        return range(self.num_tasks) if self._among is None else self._among.tolist()

    @abstractmethod
    def _begin(self, task: int, noise: Stream, options: Mapping[str, Any]) -> str:
        """Start task number `task` and return the first observation.

        Sets `self.goal`, and `self.task_key` by `make_task_key`; a task without a key is known by its number.
        """

    @abstractmethod
    def _apply(self, action: str) -> Transition:
        """Apply the text `action` to the state. Never raises for any text; an invalid one does not change the state."""

    def _refuse(self, action: str) -> Transition:
        """Refuse a text that is longer than `max_action_length`; by default with what the empty text leads to.

        An environment in which the empty text is an action overrides this.
        """
        return self._apply("")

    def state_key(self) -> str:
        """Return the identity of the present state within `task_key`, at most 64 characters.

        Equal keys imply: the same further actions give the same rewards, terminations, success and admissible
        actions, time limit aside. Terminal states are `end:success:...` or `end:fail:...`.

        By default a hash of the accepted actions since the reset, which merges no two ways to a state.
        """
        way = stable_hash([self._reset_bits, self._accepted_actions])[:32]
        if not self._last_transition.terminated:
            return way
        return f"end:{'success' if self.success() else 'fail'}:{way}"

    def describe_state(self) -> str:
        """Return the state that `state_key` stands for, for a person to read; by default the last observation."""
        return self._last_transition.observation

    def score(self) -> float:
        """Return the native metric in [0, 1] if the episode ended now; 0 before an irrevocable act.

        By default 1 once the rules have ended the episode with a positive reward.
        """
        return float(self._last_transition.terminated and self._last_transition.reward > 0)

    def success(self) -> bool:
        """Return whether the task is achieved: score 1, unless the data set names another threshold."""
        return self.score() == 1.0

    def admissible_actions(self) -> list[str]:
        """Return a fresh list of playable strings in a fixed order; complete for closed languages. Empty by default."""
        return []

    def action_templates(self) -> list[str]:
        """Return a fresh list of templates such as `"search[{query}]"`; empty when the language is closed."""
        return []

    def sample_action(self, rng: Stream) -> str:
        """Return a random valid action, filling templates from what was shown; by default one of `candidates`."""
        proposed = self.candidates()
        return rng.choice(proposed) if proposed else ""

    def candidates(self) -> list[str]:
        """Return at most `MAX_CANDIDATES` concrete actions, built only from what has been shown."""
        return self.admissible_actions()[:MAX_CANDIDATES]

    def expert_action(self) -> str | None:
        """Return a winning next action, or None when the task can no longer be won. May use hidden task data."""
        return None

    @property
    def has_expert(self) -> bool:
        """Whether `expert_action` knows how tasks of this kind are won; where not, it is None in all of them."""
        return type(self).expert_action is not TextEnv.expert_action

    @classmethod
    def end_figures(cls, observation: str) -> dict[str, float]:
        """Return figures of an episode that ended with this observation, by name; training reports their means.

        None by default. Success and score are reported anyway.
        """
        return {}

    def log_meta(self) -> dict[str, Any]:
        """Return what the log's `meta` says of the present task: JSON-able, without paths; its type, if it has one."""
        return {"task_type": self.task_type} if self.task_type else {}

    def _extra_info(self) -> dict[str, Any]:
        """Return the environment's own keys of `info`, fresh on every call."""
        return {}

    def request_info(self, keys: Iterable[str]) -> None:
        """Add keys of `optional_info` to `info` from the next reset or step on; `info_keys` are those asked for.

        Raises `UnknownOption` for a key that is not optional here.
        """
        self.info_keys = check_info_keys((*self.info_keys, *keys), self.optional_info)
        self._kept_info, self._keeps_info = {}, False

    def _requested_info(self, key: str) -> Any:
        """Return the value of a key of `optional_info`, fresh on every call.

        An environment that declares such keys overrides this.
        """
        raise UnknownOption(f"{type(self).__name__} declares {key!r} in optional_info and no _requested_info for it")

    def _choose_task(self, seed: int | None, options: Mapping[str, Any]) -> tuple[int, int]:
        """Return the task that the checked `options` and the seed say, and the 64 bits its noise comes from.

        An environment with more ways to name a task than its number overrides this.
        """
        return choose_task(self.np_random, seed, options.get("task"), self.num_tasks, self.split, self._among)

    # ---------------------------------------------------------------- what comes from outside (the tape)
    @property
    def tape_entry(self) -> Any:
        """What the last reset or step took from outside (task, seed, actions), JSON-able; None when nothing."""
        return None

    def use_tape(self, entries: Sequence[Any] | None) -> None:
        """Make the next episode take outside results from `entries` instead of asking again.

        There is one entry for the reset and one for each step.

        Raises `BadSetting` when this environment takes nothing from outside and the tape is not empty.
        """
        if entries is not None and any(entry is not None for entry in entries):
            raise BadSetting(f"{self.env_id} takes nothing from outside, so it cannot play from a tape")

    def keep_answers(self, store: AnswerStore | None) -> None:
        """Take answers of paid-for servers from `store` where it has them, and give it every new one; None: no more.

        By default it does nothing: for environments that ask such a server.
        """

    @classmethod
    def prepare_steps(cls, envs: Sequence[TextEnv], actions: Sequence[str]) -> None:
        """Ask the outside world at once for what the next steps of `envs` with `actions` would ask one by one.

        Rollouts call it before they take the steps; by default it does nothing. Failures are raised by the steps.
        """

    # ---------------------------------------------------------------- Gymnasium
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start an episode.

        `seed` draws the task and the noise; `options={"task": k}` fixes the task (noise from `seed`, or 0).
        Returns the first observation and `info`.

        Raises:
            UnknownOption: a key of `options` is not in `reset_options`.
            UnknownTask: the task is not an integer in `range(num_tasks)`.
        """
        super().reset(seed=seed)
        return self.begin(seed, options), self._info(True)

    def begin(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> str:
        """Do what `reset` does, but seed no generator and tell no `info`; for faces and batches that tell their own.

        The draws come from `np_random`, which has been seeded with `seed` already.
        """
        chosen = check_options(options, self.reset_options)
        self.task, bits = self._choose_task(seed, chosen)
        self.steps = 0
        self._playing = False  # should the start fail, nothing goes on half old and half new
        self.task_type = self.task_type_of(self.task)
        self.task_key = ""
        self._reset_bits, self._accepted_actions = bits, []
        observation = self._begin(self.task, Stream(self.env_id, "episode", bits), chosen)
        if self._remembers:
            self._last_transition = Transition(observation, 0.0, False, True)
        if not self.task_key:
            self.task_key = self.make_task_key([self.split, self.task])
        self._kept_info, self._keeps_info = {}, False
        self._playing = True
        return observation

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Apply `action`; return observation, native reward, terminated, truncated and `info`.

        Raises `ResetNeeded` before the first reset and after the end, and `BadAction` for what is no `str`; never for
        any text.
        """
        (observation, reward, terminated, action_valid), truncated = self.advance(action)
        return observation, reward, terminated, truncated, self._info(action_valid)

    @property
    def playing(self) -> bool:
        """Whether an episode is under way."""
        return self._playing

    def advance(self, action: str) -> tuple[Transition, bool]:
        """Do what `step` does, but tell no `info`: return what the rules say of `action`, and whether it truncates."""
        if not self._playing:
            raise ResetNeeded(
                "the episode has ended: call reset() before the next step()"
                if self.task >= 0
                else "call reset() before the first step()"
            )
        if not isinstance(action, str):
            raise BadAction(f"an action of {self.env_id} is a str, got {type(action).__name__}: {action!r:.60}")
        transition = self._apply(action) if len(action) <= self.max_action_length else self._refuse(action)
        if self._remembers:
            self._last_transition = transition
            if transition.action_valid:
                self._accepted_actions.append(action)
        self.steps += 1
        truncated = not transition.terminated and self.steps >= self.max_steps
        self._playing = not (transition.terminated or truncated)
        return transition, truncated

    def render(self) -> Any:
        """Return the picture of the present state in `render_mode`; `"ansi"` is `describe_state()`."""
        if self.render_mode == "ansi":
            return self.describe_state()
        return None

    def _info(self, action_valid: bool) -> dict[str, Any]:
        info = self._renewed_info(self._kept_info) if self._keeps_info else self._whole_info()
        info["action_valid"] = action_valid
        for key in self.info_keys:
            info[key] = self._requested_info(key)
        return info

    def _renewed_info(self, kept: dict[str, Any]) -> dict[str, Any]:
        """Return `info`, made from the one that is kept of this episode; by default all of it anew.

        An environment in which a step changes few keys overrides this: it copies `kept` and sets these keys, and every
        key that holds a list or a dictionary. It may also write into `kept` what seldom changes. It is not used in a
        subclass that changes what `info` is made of, nor from the next reset on where an instance does.
        """
        return self._whole_info()

    def _whole_info(self) -> dict[str, Any]:
        """Return `info` with every key looked up, those of `info_keys` and `action_valid` aside.

        The first one of an episode is kept, with all keys in their order: to copy and set it takes half the time of a
        dictionary that grows.
        """
        extra = self._extra_info()
        kept = self._kept_info
        first = not kept or [*kept][len(_SET_BY_RESETS) + len(_SET_BY_STEPS) :] != [*extra, *self.info_keys]
        if first:
            kept = {key: getattr(self, key) for key in _SET_BY_RESETS}
            kept |= dict.fromkeys((*_SET_BY_STEPS, *extra, *self.info_keys))
        info = kept.copy()
        info["state_key"] = self.state_key()
        info["score"] = self.score()
        info["success"] = self.success()
        info["admissible_actions"] = self.admissible_actions()
        info["action_templates"] = self.action_templates()
        info.update(extra)
        if first:
            self._keeps_info = self._renews_info and vars(self).keys().isdisjoint(_DECIDE_INFO)
            self._kept_info = info.copy() if self._keeps_info else kept
        return info

    # ---------------------------------------------------------------- identity
    def make_task_key(self, content: Any) -> str:
        """Return the `task_identity` of the JSON-able task `content` under this environment's settings and data."""
        return task_identity(self.env_id, self._dynamics, self.data, content)


def check_options(options: Mapping[str, Any] | None, known: Sequence[str]) -> Mapping[str, Any]:
    """Return the reset options, `{}` for None.

    Raises `UnknownOption` for a key that is not `known`, and `BadSetting` if it is not a dictionary.
    """
    if options is not None and not isinstance(options, Mapping):
        raise BadSetting(f"options must be a dictionary such as {{{known[0]!r}: ...}}, got {shown(options)}")
    for key in options or {}:
        if key not in known:
            raise UnknownOption.among(key, known)
    return options or {}


def check_info_keys(keys: Iterable[str], known: Collection[str]) -> tuple[str, ...]:
    """Return the keys of `info` to deliver, in the order of `known`.

    Raises `UnknownOption` for one not among them, and `BadSetting` if it is not a collection of keys.
    """
    try:
        wanted = None if isinstance(keys, str) else list(keys)
    except TypeError:
        wanted = None
    if wanted is None:
        raise BadSetting(f"info_keys must be a list of keys, got {shown(keys)}")
    for key in wanted:
        if not isinstance(key, str) or key not in known:
            raise UnknownOption.among(key, known)
    return tuple(key for key in known if key in wanted)


def check_split(split: str, aliases: Mapping[str, str]) -> str:
    """Return our name of `split`, one of `SPLITS` or what an alias stands for. Raises `UnknownSplit`."""
    name = aliases.get(split, split) if isinstance(split, str) else None
    if name not in SPLITS and name not in aliases.values():
        raise UnknownSplit.among(split, dict.fromkeys([*SPLITS, *aliases]))
    return name


def check_season(season: str, split: str, fixed: str = "") -> str:
    """Return `season`, the seed of a season of test tasks; `""` stands for the standard tasks.

    Args:
        season: `""`, or an even number of lower-case hexadecimal digits, 2 to 64.
        split: our name of the split.
        fixed: the argument that names fixed tasks in place of generated ones; `""` if there is none.

    Raises `BadSetting` if `season` is neither, or these tasks have no seasons.
    """
    if isinstance(season, str) and not season:
        return season
    SeasonSeed().check("season", season)
    if fixed:
        raise BadSetting(f"season generates new tasks, and {fixed} names fixed ones; leave one of the two out")
    if split != "test":
        raise BadSetting(f"only split 'test' has seasons: a season is for evaluation. Got season with split {split!r}")
    return season


def check_render_mode(render_mode: str | None, metadata: Mapping[str, Any]) -> str | None:
    """Return `render_mode`. Raises `BadRenderMode` when it is neither None nor one of `metadata["render_modes"]`."""
    if render_mode is not None and not (isinstance(render_mode, str) and render_mode in metadata["render_modes"]):
        offered = ", ".join(metadata["render_modes"])
        raise BadRenderMode(f"render_mode {shown(render_mode)} is not offered here; choose one of: {offered}")
    return render_mode


def check_positive(name: str, value: object) -> int:
    """Return `value` as a positive `int` of at most 63 bits. Raises `BadSetting` naming the setting."""
    return check_integer(name, value, 1)


def check_integer(name: str, value: object, least: int) -> int:
    """Return `value` as an `int` from `least` to 2^63 - 1. Raises `BadSetting` naming the setting."""
    try:
        number = operator.index(cast("SupportsIndex", value))
    except TypeError:
        number = least - 1
    if isinstance(value, bool) or not least <= number <= _LARGEST:
        raise BadSetting(f"{name} must be an integer of at least {least}, got {shown(value)}")
    return number

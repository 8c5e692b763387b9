"""What an environment has beside its rules: a card for trainers and players, a source of tasks, responses from outside.

An author needs none of them. `TextEnv` has a default for each.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self

from agentgym_flow.errors import BadSetting

if TYPE_CHECKING:
    from agentgym_flow.core.env import TextEnv


def _no_figures(observation: str) -> Mapping[str, float]:
    return {}


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
            `External.prepare_steps` can combine for several steps. With an asynchronous policy, steps that send
            requests run in threads and wait briefly to share them.
        human_settings: presentation settings for human players, the defaults of `agentgym-flow play`.
        typed_forms: short forms that a human may type, such as `delete {node}`, and their actions.
        end_figures: returns named metrics of an episode that ended with this observation; training reports their means.
            Success and score are always reported.
        failures: reason -> whether a failed `Episode` failed for it. The first that holds is named, before the general
            reasons of `play.why_failed`.
    """

    train_config: str = "any_tiny"
    algorithm_settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    script: str | None = None
    without_expert: frozenset[str] = frozenset()
    outside_requests: Literal["none", "own", "shared"] = "none"
    human_settings: Mapping[str, Any] = field(default_factory=dict)
    typed_forms: Mapping[str, str] = field(default_factory=dict)
    end_figures: Callable[[str], Mapping[str, float]] = _no_figures
    failures: Mapping[str, Callable[[Any], bool]] = field(default_factory=dict)


class TaskSource(Protocol):
    """The tasks of one split. Immutable, so copies of an environment share it."""

    @property
    def split(self) -> str:
        """Our name of the split."""

    @property
    def season(self) -> str:
        """The seed of a season of test tasks; `""` for the standard tasks."""

    @property
    def data(self) -> Mapping[str, str]:
        """Name -> SHA-256 of the official data in use; empty for generated tasks."""

    @property
    def num_tasks(self) -> int:
        """The number of tasks."""

    def task_type(self, task: int) -> str:
        """Return the type of a task without starting it; `""` if tasks have no types."""


class Cloned:
    """A base class whose deep copies share the attributes in `_shared_by_clones`, which no method changes."""

    _shared_by_clones: ClassVar[frozenset[str]] = frozenset()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        clone = self.__class__.__new__(self.__class__)
        memo[id(self)] = clone
        for name, value in vars(self).items():
            clone.__dict__[name] = value if name in self._shared_by_clones else copy.deepcopy(value, memo)
        return clone


class AnswerStore(Protocol):
    """Stores the answers of a server, so that a resumed run does not request them again."""

    def take(self, asked: str) -> Any | None:
        """Return a stored answer to the request with this name, each answer once; None if there is none."""

    def add(self, asked: str, answer: Any) -> None:
        """Store the JSON-serialisable answer to a request."""


class External(Cloned):
    """What an environment gets from outside: results that do not follow from task, seed and actions.

    Such results go into the log of an episode, and a replay takes them from there. An environment that sends requests
    sets `external` to an instance of a subclass. In each step it takes the result from `recording`, if there is one,
    and stores it in `entry`.

    Args:
        env_id: the id of the environment, for messages.
        recorded: whether results are recorded. If not, there is nothing to replay.

    Attributes:
        entry: the JSON-serialisable results of the last reset or step, such as server responses; None if none.
        recording: the entries that replace requests in this episode, one for the reset and one for each step; None to
            send requests.
    """

    def __init__(self, env_id: str, *, recorded: bool = False) -> None:
        self.env_id, self.recorded = env_id, recorded
        self.entry: Any = None
        self.recording: Sequence[Any] | None = None
        self._next_recording: Sequence[Any] | None = None

    @property
    def recorded_responses(self) -> Any:
        """A copy of `entry`, for the log."""
        return None if self.entry is None else copy.deepcopy(self.entry)

    def use_recording(self, entries: Sequence[Any] | None) -> None:
        """Make the next episode take results from these values of `recorded_responses` instead of sending requests.

        Raises `BadSetting` if this environment records no results and the recording is not empty.
        """
        if self.recorded:
            self._next_recording = None if entries is None else list(entries)
        elif entries is not None and any(entry is not None for entry in entries):
            raise BadSetting(f"{self.env_id} uses no recorded responses, so it cannot play from a recording")

    def start(self) -> None:
        """Start an episode, with the recording that was given for it. `TextEnv` calls this before `_begin`."""
        self.recording, self._next_recording, self.entry = self._next_recording, None, None

    def keep_answers(self, store: AnswerStore | None) -> None:
        """Take answers of paid servers from `store` if it has them, and add every new answer; None: stop using a store.

        By default this method does nothing.
        """

    def check_servers(self) -> None:
        """Check before a run that the servers behind the environment can be reached. By default this does nothing.

        Raises an `AgentGymFlowError` that names the server and says what to do.
        """

    @classmethod
    def prepare_steps(cls, envs: Sequence[TextEnv], actions: Sequence[str]) -> None:
        """Combine the requests that the next steps of `envs` with `actions` would send one by one.

        Rollouts call this method of one environment for all of its class. By default it does nothing. If a request
        fails, its step raises.
        """

"""The settings of a dataflow, read from a YAML file by `agentgym-flow train --dataflow FILE`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

from agentgym_flow._util.importing import find_modules_here, imported
from agentgym_flow._util.values import is_number, settings_in
from agentgym_flow.core import check_integer, check_positive
from agentgym_flow.dataflow.bookkeeping.ledger import FIXED, Ledger
from agentgym_flow.errors import BadSetting, UnknownOption, shown
from agentgym_flow.rewards.credit.comparison import check_word

OrderName = Literal["arrival", "staleness"]
"""Which groups come first: those that were complete first, or those of the oldest weights, which become stale first."""

LASTING = ("order", "staleness", "max_attempts", "turns", "lockstep", "tasks", "operators", "replay", "first", "check",
           "partial_rollouts")  # fmt: skip
"""Settings that must stay the same when a run is resumed: they decide what is trained on or sent."""

AGAIN = "..."
"""At the end of a list of turns: the policies act in this order again and again."""

NUM_ENVS = 16
"""Episodes that a worker plays at a time if nothing says how many."""


@dataclass(frozen=True)
class FlowConfig:
    """How workers play the episodes of a run.

    Attributes:
        order: `fixed`: batches depend on the settings alone, and no group is dropped; `ready`: a batch consists of the
            groups that are complete first.
        staleness: by how many updates the weights that play may be older than those in training. With 0 every batch
            waits for the last update, as without a dataflow.
        workers: how many workers are started beside the trainer, or on Ray; 0 if all of them join by themselves. None:
            as many as a Ray cluster has room for, including machines that join later. {min: 1, max: 8}: their number
            follows the recommendation of `status`, see `agentgym_flow.dataflow.scaling`.
        resources: what each worker on Ray takes, by Ray's names, such as {CPU: 1, GPU: 0.5}; other names are custom
            resources of the machines. Without Ray it has no effect.
        num_envs: episodes that a worker plays at a time. None: those of the trainer's `num_envs`, shared out among
            `workers`; `NUM_ENVS` if their number is open.
        versions: how many versions of the weights a worker has room for.
        lease_seconds: seconds after its last call in which a worker keeps its leases.
        episode_seconds: seconds after which a lease is not renewed: another worker then plays an episode that hangs.
        max_attempts: failed attempts after which an episode is lost, and left out of its group.
        deadline: seconds without a sign of any worker, trainer or manager after which the others end with an error.
        trace: write `trace.jsonl` beside the manager's journal, for `agentgym-flow dataflow trace`.
        turns: if several policies share the episodes, the policy that acts in turn 1, 2, ...; the last one acts in all
            further turns, or with `AGAIN` at the end, the list begins again. Each policy is trained by a run of its
            own. Empty: one policy takes all turns.
        lockstep: no policy begins a batch before all have trained on the one before, which is AstraFlow's rule. Without
            it a policy can be up to `staleness` batches ahead.
        tasks: the task selector, one of `task_selectors.SELECTORS` by name or as {name: settings}; by default all tasks
            in turn.
        operators: applied to each group before it is trained on, see `data_algorithms.operators`. Groups that they drop
            are not trained on; with the trainer's `dynamic_sampling` others are played in their place.
        replay: settings of `data_algorithms.GroupReplay`, which fills a share of each batch with earlier groups; None
            for no replay.
        check: the share of the episodes that the trainer replays, chosen at random after their arrival; see
            `agentgym_flow.dataflow.batches.inbox.Inbox`. Below 1, it trusts the workers' reports on the others.
        first: in ready order, which groups come first: by `arrival`, or by `staleness`, the oldest weights first.
        partial_rollouts: in ready order, episodes go on with newer weights that arrive between their turns. Each turn
            is sampled by one version. The age of an episode is that of its oldest turn.

    Raises:
        BadSetting: a number is out of range.
        UnknownOption: there is no such order.
    """

    order: str = FIXED
    staleness: int = 4
    workers: int | dict[str, int] | None = 1
    resources: dict[str, float] = field(default_factory=lambda: {"CPU": 1})
    num_envs: int | None = None
    versions: int = 2
    lease_seconds: float = 60.0
    episode_seconds: float = 3600.0
    max_attempts: int = 20
    deadline: float = 600.0
    trace: bool = False
    turns: list[str] = field(default_factory=list)
    lockstep: bool = False
    tasks: str | dict[str, Any] | None = None
    operators: list[Any] = field(default_factory=list)
    replay: dict[str, Any] | None = None
    first: OrderName = "arrival"
    check: float = 1.0
    partial_rollouts: bool = False

    def __post_init__(self) -> None:
        Ledger(["policy"], order=self.order, staleness=self.staleness, max_attempts=self.max_attempts)
        if isinstance(self.workers, dict):
            if self.workers.keys() != {"min", "max"}:
                raise BadSetting(f"workers: give min and max, got {shown(self.workers)}")
            check_positive("workers: min", self.workers["min"])
            check_integer("workers: max", self.workers["max"], self.workers["min"])
        elif self.workers is not None:
            check_integer("workers", self.workers, 0)
        self._check_resources()
        if self.num_envs is not None:
            check_positive("num_envs", self.num_envs)
        check_positive("versions", self.versions)
        check_turns(self.turns)
        if not isinstance(self.replay, dict | None):
            raise BadSetting(f"replay must have settings, such as {{share: 0.25}}, got {shown(self.replay)}")
        for name in ("lockstep", "trace", "partial_rollouts"):
            if not isinstance(value := getattr(self, name), bool):
                raise BadSetting(f"{name} must be true or false, got {value!r:.60}")
        if self.lockstep and len(acting(self.turns)) < 2:
            raise BadSetting(
                "lockstep is for several policies that share episodes: name them in turns, or leave lockstep out"
            )
        if self.partial_rollouts and self.order == FIXED:
            raise BadSetting(
                "partial_rollouts needs order: ready, because in fixed order the settings alone say which weights play "
                "a batch, and not when newer ones arrive"
            )
        check_word(self.first, OrderName)
        if not is_number(self.check) or not 0 < self.check <= 1:
            raise BadSetting(f"check is a share, above 0 and at most 1, got {self.check!r:.60}")
        for name in ("lease_seconds", "episode_seconds", "deadline"):
            value = getattr(self, name)
            if not is_number(value) or not 0 < value < 1e9:
                raise BadSetting(f"{name} must be a positive number of seconds, got {value!r}")

    def _check_resources(self) -> None:
        amounts = self.resources if isinstance(self.resources, dict) else {}
        for name, amount in amounts.items():
            fits = is_number(amount) and (0 < amount < 1 or amount in range(10_000))
            if not fits or not isinstance(name, str):
                raise BadSetting(f"resources: {name!r:.60} must be an integer, or between 0 and 1, got {amount!r:.60}")
        if not any(amounts.values()):
            raise BadSetting(f"resources must say what a worker takes, such as {{CPU: 1}}, got {self.resources!r:.60}")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the settings in a YAML file; an empty one has the defaults.

        Raises `BadSetting` if it cannot be read or a value is invalid, and `UnknownOption` for an unknown setting.
        """
        settings = settings_in(path, BadSetting)
        known = [field.name for field in fields(cls)]
        for name in settings:
            if name not in known:
                raise UnknownOption.among(name, known, f"{path} has it as a setting of the dataflow.")
        return cls(**settings)

    @property
    def most_workers(self) -> int | None:
        """The most workers that are started; None if that is open."""
        return self.workers["max"] if isinstance(self.workers, dict) else self.workers

    def policies(self, own: str) -> list[str]:
        """Return the policies that share the episodes of `own`. Raises `BadSetting` if it is not one of them."""
        names = acting(self.turns) or [own]
        if own not in names:
            raise BadSetting(f"policy {own!r} takes none of the turns: {', '.join(self.turns)}")
        return names

    def lasting(self) -> dict[str, Any]:
        """Return the settings that must stay the same when a run is resumed."""
        return {name: value for name, value in asdict(self).items() if name in LASTING}


def check_turns(turns: object) -> None:
    """Raise `BadSetting` if `turns` is not a valid setting of this name."""
    if not isinstance(turns, list) or not all(isinstance(name, str) and name for name in turns):
        raise BadSetting(f"turns must be a list of names of policies, such as [solver, verifier], got {shown(turns)}")
    if AGAIN in turns[:-1] or turns == [AGAIN]:
        raise BadSetting(f"turns: {AGAIN} stands at the end, after names of policies, got {shown(turns)}")


def acting(turns: Sequence[str]) -> list[str]:
    """Return the policies that act in these turns, each once."""
    return [name for name in dict.fromkeys(turns) if name != AGAIN]


# ---------------------------------------------------------------- what a configuration names
def parse_entry(entry: object, kind: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the settings of `name` or `{name: settings}`. Raises `BadSetting` for anything else."""
    if isinstance(entry, str):
        return entry, {}
    if isinstance(entry, Mapping) and len(entry) == 1:
        [(name, settings)] = entry.items()
        if isinstance(name, str) and isinstance(settings, Mapping | None):
            return name, dict(settings or {})
    raise BadSetting(f"{kind} is a name, or {{name: settings}}, got {shown(entry)}")


def resolve(name: str, known: Mapping[str, Callable[..., Any]], kind: str) -> Callable[..., Any]:
    """Return the known function of this name, or import `module:name`. Raises `UnknownOption`."""
    if ":" not in name:
        if name not in known:
            raise UnknownOption.among(name, known, f"Your own {kind} is named as module:name.")
        return known[name]
    find_modules_here()
    function: Callable[..., Any] = imported(name, UnknownOption)
    if not callable(function):
        raise UnknownOption(f"The {kind} {name!r} is a {type(function).__name__}, and should be a function")
    return function


def bind_settings(
    function: Callable[..., Any], name: str, settings: Mapping[str, Any], known: Mapping[str, Any], others: int = 1
) -> Callable[..., Any]:
    """Bind keyword arguments to a function: its `settings`, and those of `known` that it has.

    Args:
        function: the function.
        name: its name, for errors.
        settings: from the configuration.
        known: from elsewhere.
        others: how many of its first arguments are no settings.

    Raises:
        UnknownOption: it has no such argument.
        BadSetting: a required argument is missing.
    """
    parameters: Sequence[inspect.Parameter] = list(inspect.signature(function).parameters.values())[others:]
    names = [one.name for one in parameters if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    for setting in settings:
        if setting not in names and not any(one.kind is one.VAR_KEYWORD for one in parameters):
            raise UnknownOption.among(setting, names, f"These are the settings of {name}.")
    chosen = {key: value for key, value in known.items() if key in names} | dict(settings)
    for one in parameters:
        if one.name in names and one.default is one.empty and one.name not in chosen:
            raise BadSetting(f"{name} needs the setting {one.name}")
    return partial(function, **chosen)

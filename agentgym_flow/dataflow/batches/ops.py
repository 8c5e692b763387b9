"""Data algorithms as a list of operators, which are applied to each group before it is trained on.

An operator is a function from a group to a group, or to None to drop it. It does not change its argument, so the list
can be applied to a group again, after a restart or for another policy, with the same result. In a configuration it is a
name, or a name with keyword arguments:

    operators: [relabel, keep_signal, {drop_alike: {outcome: return}}, "my_module:my_operator"]
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from agentgym_flow._util.importing import find_modules_here, imported
from agentgym_flow.dataflow.config import OrderName
from agentgym_flow.episodes import Episode, Group, Turn
from agentgym_flow.errors import BadSetting, UnknownOption, shown
from agentgym_flow.rewards import relabel as write_potentials
from agentgym_flow.rewards.credit.comparison import Outcome, check_word
from agentgym_flow.rewards.relabel import NoOp
from agentgym_flow.rewards.state_graph import EdgeMode
from agentgym_flow.training.outcomes import ended_alike

Operator: TypeAlias = Callable[[Group], Group | None]


# ---------------------------------------------------------------- operators
def relabel(group: Group, *, gamma: float = 0.9, edges: EdgeMode = "directed", bridge_noops: NoOp = False) -> Group:
    """Return the group with `phi`, `phi_next` and `anchor` on every turn; see `agentgym_flow.rewards.relabel`."""
    copied = Group([replace(one, turns=[replace(turn) for turn in one.turns]) for one in group])
    write_potentials(copied, gamma=gamma, edges=edges, bridge_noops=bridge_noops)
    return copied


def drop_alike(group: Group, *, outcome: Outcome = "success", policy: str | None = None) -> Group | None:
    """Drop a group without variance: all its episodes have the same outcome for `policy`; see `ended_alike`."""
    check_word(outcome, Outcome)
    return None if ended_alike(group, outcome, policy) else group


def keep_signal(group: Group, *, outcome: Outcome = "success", policy: str | None = None) -> Group | None:
    """Drop a group that has variance neither in its outcomes nor in its steps. Must come after `relabel`.

    Steps vary if decisions of `policy` in one state lead to states of different potential, which RewardFlow compares.
    Raises `BadSetting` if the group has no potentials.
    """
    reached: dict[str | None, set[float]] = {}
    for turn in group.turns:
        if turn.phi_next is None:
            raise BadSetting("keep_signal needs potentials: put relabel before it")
        if turn.is_by(policy):
            reached.setdefault(turn.anchor, set()).add(turn.phi_next)
    if any(len(potentials) > 1 for potentials in reached.values()):
        return group
    return drop_alike(group, outcome=outcome, policy=policy)


OPERATORS: Mapping[str, Callable[..., Group | None]] = {
    "relabel": relabel,
    "drop_alike": drop_alike,
    "keep_signal": keep_signal,
}
"""The operators that a configuration can name without a module."""


def operators(config: object, **known: Any) -> list[Operator]:
    """Return the operators that a configuration lists, in order.

    Args:
        config: a list of names and of {name: keyword arguments}; None for an empty list.
        known: settings of the trainer (`outcome`, `policy`, `gamma`), passed to operators that have arguments of these
            names, unless the configuration sets them.

    Raises:
        UnknownOption: there is no such operator, or it has no such argument.
        BadSetting: this is not a list, an argument has an invalid value, or `keep_signal` comes without `relabel`.
    """
    if config is None:
        return []
    if not isinstance(config, list | tuple):
        raise BadSetting(f"operators must be a list of names and of {{name: settings}}, got {shown(config)}")
    made: list[Operator] = []
    probe = _probe()
    for entry in config:
        name, settings = parse_entry(entry, "an operator")
        operator = bind_settings(resolve(name, OPERATORS, "operator"), name, settings, known)
        if name in OPERATORS:  # it checks its settings
            probe = operator(probe) or probe
        made.append(operator)
    return made


def apply_operators(chain: Iterable[Operator], group: Group) -> Group | None:
    """Apply operators to a group one after the other; return None if one of them drops it."""
    result: Group | None = group
    for operator in chain:
        if result is not None:
            result = operator(result)
    return result


def _probe() -> Group:
    turn = Turn("", "start", "go", 0.0, "", "end:fail:", True, False, True, False, 0.0)
    return Group([Episode("probe", {}, {}, "train", 0, "probe:0", "", 0, 0, 1, "", "start", turns=[turn])])


# ---------------------------------------------------------------- order
class ReadyGroup(NamedTuple):
    """A group that can be trained on.

    Attributes:
        group: the group.
        update: the earliest update that played one of its episodes.
        number: of the commit that completed it, see `Arrival.number`.
    """

    group: Group
    update: int
    number: int


def in_order(groups: Iterable[ReadyGroup], order: OrderName = "staleness") -> list[ReadyGroup]:
    """Return groups in the order in which they are trained on. Raises `UnknownOption` if there is no such order."""
    check_word(order, OrderName)
    if order == "arrival":
        return sorted(groups, key=lambda one: one.number)
    return sorted(groups, key=lambda one: (one.update, one.number))


# ---------------------------------------------------------------- configuration
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
    function: Callable[..., Any], name: str, settings: Mapping[str, Any], known: Mapping[str, Any]
) -> Callable[..., Any]:
    """Bind keyword arguments to a function: its `settings`, and those of `known` that it has.

    Args:
        function: its first argument is not a setting.
        name: its name, for errors.
        settings: from the configuration.
        known: from elsewhere.

    Raises:
        UnknownOption: it has no such argument.
        BadSetting: a required argument is missing.
    """
    parameters: Sequence[inspect.Parameter] = list(inspect.signature(function).parameters.values())[1:]
    names = [one.name for one in parameters if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    for setting in settings:
        if setting not in names and not any(one.kind is one.VAR_KEYWORD for one in parameters):
            raise UnknownOption.among(setting, names, f"These are the settings of {name}.")
    chosen = {key: value for key, value in known.items() if key in names} | dict(settings)
    for one in parameters:
        if one.name in names and one.default is one.empty and one.name not in chosen:
            raise BadSetting(f"{name} needs the setting {one.name}")
    return partial(function, **chosen)

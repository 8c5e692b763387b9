"""Data algorithms: operators on each group before it is trained on, the order of groups, and their replay.

An operator is a function from a group to a group, or to None to drop it. It does not change its argument, so the list
can be applied to a group again, after a restart or for another policy, with the same result. In a configuration it is a
name, or a name with keyword arguments:

    operators: [relabel, keep_signal, {drop_alike: {outcome: return}}, "my_module:my_operator"]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias, cast

from agentgym_flow._util.values import is_number
from agentgym_flow.core import Stream, check_integer, check_positive
from agentgym_flow.dataflow.batches.inbox import CompleteGroup
from agentgym_flow.dataflow.batches.task_selectors import task_selector
from agentgym_flow.dataflow.config import FlowConfig, OrderName, bind_settings, parse_entry, resolve
from agentgym_flow.episodes import Episode, Group, PolicyOutput, Turn
from agentgym_flow.errors import BadSetting, shown
from agentgym_flow.rewards import relabel as write_potentials
from agentgym_flow.rewards.credit.comparison import Outcome, check_word
from agentgym_flow.rewards.relabel import NoOp
from agentgym_flow.rewards.state_graph import EdgeMode
from agentgym_flow.rewards.structure import with_structure_rewards
from agentgym_flow.training.config import AgentConfig
from agentgym_flow.training.group_source import TaskReplay, TaskSelector
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
    if not isinstance(policy, str | None):
        raise BadSetting(f"policy must be the name of a policy, got {shown(policy)}")
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
    turn = Turn("", "start", PolicyOutput("go"), 0.0, "", "end:fail:", True, False, True, False, 0.0)
    return Group([Episode("probe", {}, {}, "train", 0, "probe:0", "", 0, 0, 1, "", "start", turns=[turn])])


# ---------------------------------------------------------------- order
def in_order(groups: Iterable[CompleteGroup], order: OrderName = "staleness") -> list[CompleteGroup]:
    """Return groups in the order in which they are trained on. Raises `UnknownOption` if there is no such order."""
    check_word(order, OrderName)
    if order == "arrival":
        return sorted(groups, key=lambda one: one.number)
    return sorted(groups, key=lambda one: (one.update, one.number))


# ---------------------------------------------------------------- replay of groups
Choice = Literal["newest", "uniform"]


class GroupReplay:
    """A buffer of groups that were trained on. It is deterministic.

    Args:
        share: the share of a batch, in [0, 1), that may be replayed.
        choose: `newest` groups first, or drawn uniformly.
        staleness: by how many updates the weights that played a group may be older than those that it trains.
        keep: how many groups are kept, the newest.
        seed: of the draws.

    Attributes:
        replayed: how many groups of the last batch were replayed.

    Raises:
        BadSetting: a number is out of range.
        UnknownOption: there is no such choice.
    """

    def __init__(
        self, share: float, *, choose: Choice = "newest", staleness: int = 8, keep: int = 64, seed: int = 0
    ) -> None:
        if not is_number(share) or not 0 <= share < 1:
            raise BadSetting(f"share must be at least 0 and below 1, so that new groups come, got {share!r:.60}")
        check_word(choose, Choice)
        self.share = share
        self.replayed = 0
        self._choose = choose
        self._staleness = check_integer("staleness", staleness, 0)
        self._keep = check_positive("keep", keep)
        self._seed = check_integer("seed", seed, 0)
        self._groups: list[CompleteGroup] = []  # the oldest first

    def __len__(self) -> int:
        """Return how many groups are kept."""
        return len(self._groups)

    def fresh(self, count: int) -> int:
        """Return how many of the `count` groups of a batch must be played."""
        return count - int(self.share * count)

    def fill(self, batch: int, fresh: Iterable[CompleteGroup], count: int) -> list[Group]:
        """Return the groups of a batch, `fresh` ones first, and keep these for later.

        Kept groups fill the batch up to `count`, as far as their share allows and enough are fresh enough.
        """
        fresh = list(fresh)
        allowed = [one for one in self._groups if batch - one.update <= self._staleness]
        places = max(0, min(count - len(fresh), int(self.share * count), len(allowed)))
        if self._choose == "newest":
            again = allowed[len(allowed) - places :][::-1]
        else:
            again = Stream("group replay", self._seed, batch).sample(allowed, places)
        self.replayed = len(again)
        self._groups = [*self._groups, *fresh][-self._keep :]
        return [one.group for one in (*fresh, *again)]

    def state_dict(self) -> dict[str, Any]:
        """Return plain data for `load_state_dict`."""
        groups = [[[episode.as_dict() for episode in one.group], one.update, one.number] for one in self._groups]
        return {"groups": groups}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state_dict` returned."""
        self._groups = [
            CompleteGroup(Group([Episode.from_dict(row) for row in rows]), update, number)
            for rows, update, number in state["groups"]
        ]


# ---------------------------------------------------------------- all of them
class DataAlgorithms:
    """Decides which groups a batch consists of, deterministically from its settings and the groups that it was given.

    Args:
        config: the settings of the dataflow.
        args: those of the trainer.
        tasks: the trainer's own choice of tasks, which `config.tasks` replaces.
        policy: the policy in training if several act; None otherwise.

    Attributes:
        tasks: chooses the tasks.

    Raises:
        UnknownOption: there is no such operator or selector, or it has no such setting.
        BadSetting: a setting is invalid.
    """

    def __init__(self, config: FlowConfig, args: AgentConfig, tasks: TaskReplay, policy: str | None) -> None:
        if config.tasks is not None and args.replay_share:
            raise BadSetting(
                "replay_share and the dataflow's tasks both choose tasks: set replay_share to 0, or leave tasks out"
            )
        self.tasks: TaskSelector = tasks
        if config.tasks is not None:
            outcome = cast("Outcome", args.outcome)
            self.tasks = task_selector(config.tasks, tasks.tasks, seed=args.seed, outcome=outcome)
        self._operators = operators(config.operators, outcome=args.outcome, policy=policy)
        self._structure = args.structure_score
        self._replay: GroupReplay | None = None
        if config.replay is not None:
            self._replay = bind_settings(GroupReplay, "replay", config.replay, {"seed": args.seed}, 0)()
        self._order = config.first

    def transform(self, group: Group) -> Group | None:
        """Apply the operators to a group that was played; return None if they drop it."""
        if self._structure is not None:
            group = with_structure_rewards(group, self._structure)
        return apply_operators(self._operators, group)

    def fresh(self, count: int) -> int:
        """Return how many of the `count` groups of a batch must be played."""
        return count if self._replay is None else self._replay.fresh(count)

    def ordered(self, groups: Sequence[CompleteGroup]) -> list[CompleteGroup]:
        """Return groups in the order in which they are trained on."""
        return in_order(groups, self._order)

    def fill(self, batch: int, fresh: Sequence[CompleteGroup], count: int) -> tuple[list[Group], dict[str, float]]:
        """Return the `count` groups of a batch, including replayed ones, and metrics."""
        if self._replay is None:
            return [one.group for one in fresh], {}
        groups = self._replay.fill(batch, fresh, count)
        return groups, {"dataflow/replayed_groups": self._replay.replayed}

    def state_dict(self) -> dict[str, Any]:
        """Return plain data for `load_state_dict`."""
        return {"tasks": self.tasks.state_dict(), "replay": self._replay and self._replay.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state_dict` returned."""
        self.tasks.load_state_dict(state["tasks"])
        if self._replay is not None:
            self._replay.load_state_dict(state["replay"])

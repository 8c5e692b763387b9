"""The data algorithms of a run: they choose tasks, transform groups and fill batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from agentgym_flow.dataflow.batches.group_replay import GroupReplay
from agentgym_flow.dataflow.batches.ops import ReadyGroup, apply_operators, in_order, operators
from agentgym_flow.dataflow.batches.task_selectors import task_selector
from agentgym_flow.dataflow.config import FlowConfig
from agentgym_flow.episodes import Group
from agentgym_flow.errors import BadSetting
from agentgym_flow.rewards.credit.comparison import Outcome
from agentgym_flow.rewards.structure import with_structure_rewards
from agentgym_flow.training.config import AgentConfig
from agentgym_flow.training.group_source import TaskReplay, TaskSelector


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
        self._replay = None if config.replay is None else GroupReplay(**{"seed": args.seed, **config.replay})
        self._order = config.first

    def transform(self, group: Group) -> Group | None:
        """Apply the operators to a group that was played; return None if they drop it."""
        if self._structure is not None:
            group = with_structure_rewards(group, self._structure)
        return apply_operators(self._operators, group)

    def fresh(self, count: int) -> int:
        """Return how many of the `count` groups of a batch must be played."""
        return count if self._replay is None else self._replay.fresh(count)

    def ordered(self, groups: Sequence[ReadyGroup]) -> list[ReadyGroup]:
        """Return groups in the order in which they are trained on."""
        return in_order(groups, self._order)

    def fill(self, batch: int, fresh: Sequence[ReadyGroup], count: int) -> tuple[list[Group], dict[str, float]]:
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

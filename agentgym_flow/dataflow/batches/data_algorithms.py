"""The data algorithms of a run: which tasks come next, what is made of a group, and what fills a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from agentgym_flow.dataflow.batches.group_replay import GroupReplay
from agentgym_flow.dataflow.batches.ops import Ready, in_order, operators, put_through
from agentgym_flow.dataflow.batches.task_selectors import task_selector
from agentgym_flow.dataflow.config import FlowConfig
from agentgym_flow.episode import Group
from agentgym_flow.errors import BadSetting
from agentgym_flow.rewards.credit.comparison import Outcome
from agentgym_flow.rewards.structure import with_structure_rewards
from agentgym_flow.training.config import AgentConfig
from agentgym_flow.training.task_replay import TaskReplay, TaskSelector


class DataAlgorithms:
    """Decides which groups a batch is made of. A function of its settings and of the groups that it was shown.

    Args:
        config: the settings of the dataflow.
        args: those of the trainer.
        tasks: the trainer's own choice of tasks, which `config.tasks` replaces.
        policy: the policy in training where several act; None otherwise.

    Attributes:
        tasks: chooses the tasks.

    Raises:
        UnknownOption: there is no such operator or selector, or it has no such setting.
        BadSetting: a setting cannot work.
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
        self._first = config.first

    def made_of(self, group: Group) -> Group | None:
        """Return what the operators make of a group that was played; None if they leave it out."""
        if self._structure is not None:
            group = with_structure_rewards(group, self._structure)
        return put_through(self._operators, group)

    def fresh(self, count: int) -> int:
        """Return how many of the groups of a batch are to be played."""
        return count if self._replay is None else self._replay.fresh(count)

    def first(self, ready: Sequence[Ready]) -> list[Ready]:
        """Return groups in the order in which they are to be trained on."""
        return in_order(ready, self._first)

    def filled(self, batch: int, fresh: Sequence[Ready], count: int) -> tuple[list[Group], dict[str, float]]:
        """Return the groups of a batch, those from before among them, and figures of that."""
        if self._replay is None:
            return [one.group for one in fresh], {}
        groups = self._replay.fill(batch, fresh, count)
        return groups, {"dataflow/replayed_groups": self._replay.replayed}

    def state_dict(self) -> dict[str, Any]:
        """Return what decides the coming batches as plain data."""
        return {"tasks": self.tasks.state_dict(), "replay": self._replay and self._replay.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned."""
        self.tasks.load_state_dict(state["tasks"])
        if self._replay is not None:
            self._replay.load_state_dict(state["replay"])

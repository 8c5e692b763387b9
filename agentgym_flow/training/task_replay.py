"""Task selection: every task in turn, and replays of tasks with mixed outcomes.

A group whose attempts all have the same outcome has no variance, so its episodes get no advantage over each other. As a
policy improves, most groups become such groups. Dynamic sampling plays additional tasks and discards those groups (see
`agentgym_flow.training.dynamic_sampling`). Task replay plays fewer of them in the first place, like prioritized level
replay (Jiang et al., 2021): a share of each batch replays tasks whose last group had mixed outcomes, the longest ago
first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol

from agentgym_flow.core import Stream, check_positive
from agentgym_flow.episodes import Group
from agentgym_flow.errors import BadSetting
from agentgym_flow.training.outcomes import ended_alike


class TaskSelector(Protocol):
    """Selects the tasks of each batch."""

    def draw(self, count: int) -> list[int]:
        """Return the tasks of the next `count` groups."""

    def observe(self, groups: Iterable[Group]) -> None:
        """Record the outcomes of a batch: all groups that were played for it."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state that determines the next draws, as plain data."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""

    def __len__(self) -> int:
        """Return the number of tasks with special treatment: waiting for a replay, or often skipped."""


class TaskReplay:
    """Selects tasks deterministically from its arguments and the groups it observed, so all ranks select the same.

    New tasks come in a shuffled order that covers the whole split before any task repeats. At least one task of every
    draw is new, so every task gets its turn.

    Args:
        tasks: the tasks, or their number.
        share: the fraction of a draw, in [0, 1), to take from the tasks that wait for a replay. New tasks fill up the
            draw if too few wait.
        seed: determines the order of new tasks.
        outcome: the value of an episode, see `ended_alike`.

    Attributes:
        tasks: the tasks.
        replayed: the number of replays in the last draw.

    Raises:
        BadSetting: there are no tasks, or `share` is out of range.
    """

    def __init__(self, tasks: int | Sequence[int], share: float, seed: int = 0, outcome: str = "success") -> None:
        if not 0 <= share < 1:
            raise BadSetting(f"replay_share must be at least 0 and below 1, so that new tasks go on, got {share}")
        self.share = share
        self.replayed = 0
        self._seed = seed
        self._outcome = outcome
        self._order: list[int] = []  # the rest of this pass, the next task last
        self._passes = 0
        self._shuffled: tuple[int, list[int]] = -1, []  # the number and order of the last requested pass
        self.tasks = tasks if isinstance(tasks, Sequence) else range(check_positive("tasks", tasks))
        check_positive("the number of tasks", len(self.tasks))
        self._waiting: dict[int, None] = {}  # an ordered set, with the least recently played task first

    def __len__(self) -> int:
        """Return the number of tasks that wait for a replay."""
        return len(self._waiting)

    def at(self, position: int, count: int) -> list[int]:
        """Return `count` tasks from a position in the endless sequence of new tasks, from which `draw` takes them."""
        found: list[int] = []
        while len(found) < count:
            number, first = divmod(position + len(found), len(self.tasks))
            found += self._pass(number)[::-1][first : first + count - len(found)]
        return found

    def draw(self, count: int) -> list[int]:
        """Return the next `count` tasks, new ones first."""
        tasks = [self._next_new() for _ in range(count - int(self.share * count))]
        for task in tasks:
            self._waiting.pop(task, None)  # it is played anyway
        again = list(islice(self._waiting, count - len(tasks)))
        for task in again:
            del self._waiting[task]
        self.replayed = len(again)
        tasks += [self._next_new() for _ in range(count - len(tasks) - len(again))]
        return tasks + again

    def _next_new(self) -> int:
        if not self._order:
            self._order = list(self._pass(self._passes))
            self._passes += 1
        return self._order.pop()

    def _pass(self, number: int) -> list[int]:
        """Return all tasks in the order of one pass, the first one last. Do not modify the list."""
        if self._shuffled[0] != number:  # cached: shuffling a large split takes longer than some batches
            order = list(self.tasks)
            Stream("task order", self._seed, number).shuffle(order)
            self._shuffled = number, order
        return self._shuffled[1]

    def observe(self, groups: Iterable[Group]) -> None:
        """Record the outcomes of a batch: tasks with mixed outcomes will be replayed, the others not."""
        for group in groups:
            task = group.episodes[0].task
            self._waiting.pop(task, None)
            if not ended_alike(group, self._outcome):
                self._waiting[task] = None

    def state_dict(self) -> dict[str, Any]:
        """Return the state that determines the next draws, as plain data."""
        return {"order": self._order, "passes": self._passes, "waiting": list(self._waiting)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        self._order, self._passes = list(state["order"]), state["passes"]
        self._waiting = dict.fromkeys(state["waiting"])

"""Which tasks to play next: every task in turn, and again those that taught something last time.

A group whose attempts all end alike has no variance, and no advantage that compares episodes. As a policy gets better,
most groups become such groups. Dynamic sampling plays more tasks than it needs and leaves those groups out (see
`agentgym_flow.training.dynamic_sampling`); here fewer of them are played in the first place, in the manner of
prioritized level replay (Jiang et al., 2021): a share of each batch goes to tasks whose last group ended differently,
the longest ago first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol

from agentgym_flow.core import check_positive
from agentgym_flow.episode import Group
from agentgym_flow.errors import BadSetting
from agentgym_flow.seeding import Stream
from agentgym_flow.training.outcomes import ended_alike


class TaskSelector(Protocol):
    """Chooses the tasks of each batch."""

    def draw(self, count: int) -> list[int]:
        """Return the tasks of the next `count` groups."""

    def observe(self, groups: Iterable[Group]) -> None:
        """Take in what came of a batch: all groups that were played for it."""

    def state_dict(self) -> dict[str, Any]:
        """Return as plain data what decides the coming draws."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned."""

    def __len__(self) -> int:
        """Return how many tasks are not simply played in turn: they wait for a replay, or are often left out."""


class TaskReplay:
    """Chooses the tasks to play. A function of its arguments and of the groups it was shown, so equal on all ranks.

    New tasks come in a shuffled order that goes through the whole split before any comes again. At least one task of
    every draw is new, so each task has its turn however many others are replayed.

    Args:
        tasks: the tasks to go through, or how many there are, from 0 on.
        share: of the tasks of a draw, in [0, 1), to take from those that wait for a replay; when too few wait, new
            tasks take their places.
        seed: of the order of new tasks.
        outcome: what an episode is worth, see `ended_alike`.

    Attributes:
        tasks: the tasks.
        replayed: how many tasks of the last draw were replays.

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
        self._order: list[int] = []  # what is left of this pass, the next task last
        self._passes = 0
        self._shuffled: tuple[int, list[int]] = -1, []  # the pass that was asked for last
        self.tasks = tasks if isinstance(tasks, Sequence) else range(check_positive("tasks", tasks))
        check_positive("the number of tasks", len(self.tasks))
        self._waiting: dict[int, None] = {}  # an ordered set: the task that was played the longest ago comes first

    def __len__(self) -> int:
        """Return how many tasks wait for a replay."""
        return len(self._waiting)

    def at(self, position: int, count: int) -> list[int]:
        """Return `count` tasks from a position of the endless sequence of new tasks, which `draw` gives one by one."""
        found: list[int] = []
        while len(found) < count:
            number, first = divmod(position + len(found), len(self.tasks))
            found += self._pass(number)[::-1][first : first + count - len(found)]
        return found

    def draw(self, count: int) -> list[int]:
        """Return the next `count` tasks, new ones first."""
        tasks = [self._next_new() for _ in range(count - int(self.share * count))]
        for task in tasks:
            self._waiting.pop(task, None)  # played now in any case
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
        """Return all tasks in the order of one pass, the first one last; the list belongs to this object."""
        if self._shuffled[0] != number:  # to shuffle a large split for every batch would take longer than some batches
            order = list(self.tasks)
            Stream("task order", self._seed, number).shuffle(order)
            self._shuffled = number, order
        return self._shuffled[1]

    def observe(self, groups: Iterable[Group]) -> None:
        """Take in what came of a batch: tasks that ended differently will be replayed, the others will not."""
        for group in groups:
            task = group.episodes[0].task
            self._waiting.pop(task, None)
            if not ended_alike(group, self._outcome):
                self._waiting[task] = None

    def state_dict(self) -> dict[str, Any]:
        """Return as plain data what decides the coming batches."""
        return {"order": self._order, "passes": self._passes, "waiting": list(self._waiting)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned."""
        self._order, self._passes = list(state["order"]), state["passes"]
        self._waiting = dict.fromkeys(state["waiting"])

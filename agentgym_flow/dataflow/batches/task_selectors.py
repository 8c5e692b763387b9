"""Curricula: choose the next tasks by the outcomes of earlier groups.

A selector depends only on its settings and on the groups that it observed, so a run that resumes from a checkpoint
plays the same tasks. `TaskReplay` is one; the others go through the tasks in the same order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from agentgym_flow._util.values import is_number
from agentgym_flow.core import Stream, check_integer
from agentgym_flow.dataflow.config import bind_settings, parse_entry, resolve
from agentgym_flow.episodes import Group
from agentgym_flow.errors import BadSetting
from agentgym_flow.rewards.credit.comparison import Outcome, check_word
from agentgym_flow.training.group_source import TaskReplay, TaskSelector
from agentgym_flow.training.outcomes import ended_alike, is_lost

MOST_SKIPPED = 256
"""Tasks that may be skipped in a row; the next one is played in any case."""


class Curriculum(ABC):
    """Goes through all tasks in shuffled order, pass after pass, and skips some at random.

    Args:
        tasks: the tasks, or their number for tasks from 0 on.
        seed: of the order and of the random skips.

    Attributes:
        skipped: how many tasks were skipped in the last draw.

    Raises:
        BadSetting: there are no tasks.
    """

    def __init__(self, tasks: int | Sequence[int], seed: int = 0) -> None:
        self.skipped = 0
        self._seed = check_integer("seed", seed, 0)
        self._order = TaskReplay(tasks, 0.0, seed)
        self._pass: tuple[int, list[int]] = -1, []  # the number of a pass, and its tasks
        self._position = 0
        self.num_tasks = len(tasks) if isinstance(tasks, Sequence) else tasks

    @abstractmethod
    def chance(self, task: int) -> float:
        """Return the probability with which a task is played when its turn comes."""

    @abstractmethod
    def observe(self, groups: Iterable[Group]) -> None:
        """Update the selector by the groups of a batch."""

    def draw(self, count: int) -> list[int]:
        """Return the next `count` tasks that are not skipped."""
        drawn: list[int] = []
        self.skipped = in_a_row = 0
        while len(drawn) < count:
            number, place = divmod(self._position, self.num_tasks)
            if self._pass[0] != number:
                self._pass = number, self._order.at(number * self.num_tasks, self.num_tasks)
            task = self._pass[1][place]
            chance, draw = self.chance(task), ("curriculum", self._seed, self._position)
            if chance >= 1 or in_a_row >= MOST_SKIPPED or Stream(*draw).uniform() < chance:
                drawn.append(task)
                in_a_row = 0
            else:
                self.skipped += 1
                in_a_row += 1
            self._position += 1
        return drawn

    def state_dict(self) -> dict[str, Any]:
        """Return plain data for `load_state_dict`."""
        return {"position": self._position}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state_dict` returned."""
        self._position = state["position"]


class Greso(Curriculum):
    """GRESO (Zheng et al., 2025): the more groups of a task in a row had no variance, the more rarely it is played.

    After z such groups in a row it is played with probability p^z. There is one p for tasks that always succeed and one
    for tasks that never do; each decreases if more groups of its kind are played than wanted, and increases otherwise.

    Args:
        tasks: see `Curriculum`.
        seed: see `Curriculum`.
        outcome: the outcome whose variance counts, see `ended_alike`.
        p: both probabilities at the beginning.
        step: the change of p after a batch, from the second pass on.
        easy: the wanted share of groups without variance that succeed.
        hard: the wanted share of groups without variance that fail.
        floor: the lowest probability of a task, and the lowest p.

    Raises:
        BadSetting: a number is not in [0, 1], or `p` is below `floor`.
        UnknownOption: there is no such outcome.
    """

    def __init__(
        self,
        tasks: int | Sequence[int],
        seed: int = 0,
        outcome: Outcome = "success",
        *,
        p: float = 0.5,
        step: float = 0.01,
        easy: float = 1 / 12,
        hard: float = 1 / 6,
        floor: float = 0.05,
    ) -> None:
        super().__init__(tasks, seed)
        check_word(outcome, Outcome)
        for name, share in (("p", p), ("step", step), ("easy", easy), ("hard", hard), ("floor", floor)):
            check_share(name, share)
        if p < floor:
            raise BadSetting(f"p must be at least floor={floor}, got {p}")
        self._outcome = outcome
        self._step, self._floor = step, floor
        self._wanted = {True: easy, False: hard}
        self.p = {True: float(p), False: float(p)}  # of tasks that succeed, and of those that do not
        self._streaks: dict[
            int, tuple[int, bool]
        ] = {}  # task -> groups without variance in a row, and whether they succeed

    def __len__(self) -> int:
        """Return the number of tasks whose last group had no variance."""
        return len(self._streaks)

    def chance(self, task: int) -> float:
        """Return the probability with which a task is played when its turn comes."""
        length, succeeds = self._streaks.get(task, (0, False))
        return max(self.p[succeeds] ** length, self._floor) if length else 1.0

    def observe(self, groups: Iterable[Group]) -> None:
        """Count the groups without variance, and change both probabilities after the first pass."""
        seen, alike = 0, {True: 0, False: 0}
        for group in groups:
            task, seen = group.episodes[0].task, seen + 1
            length, _ = self._streaks.pop(task, (0, False))
            if ended_alike(group, self._outcome):
                succeeds = any(episode.success for episode in group)
                self._streaks[task] = length + 1, succeeds
                alike[succeeds] += 1
        if seen and self._position > self.num_tasks:
            for kind, count in alike.items():
                change = -self._step if count / seen >= self._wanted[kind] else self._step
                self.p[kind] = min(1.0, max(self._floor, self.p[kind] + change))

    def state_dict(self) -> dict[str, Any]:
        """Return plain data for `load_state_dict`."""
        streaks = [[task, *streak] for task, streak in self._streaks.items()]
        return {**super().state_dict(), "p": [self.p[True], self.p[False]], "streaks": streaks}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state_dict` returned."""
        super().load_state_dict(state)
        self.p = dict(zip((True, False), state["p"], strict=True))
        self._streaks = {task: (length, succeeds) for task, length, succeeds in state["streaks"]}


class FilterSolved(Curriculum):
    """Plays solved tasks rarely, to check that they still are.

    A task is solved if the moving average of its success rate is at least a threshold.

    Args:
        tasks: see `Curriculum`.
        seed: see `Curriculum`.
        threshold: above 0 and at most 1.
        decay: the weight of the old average when a new group arrives; 0: only the last group counts.
        floor: the probability with which a solved task is played when its turn comes.

    Raises `BadSetting` if a number is out of range.
    """

    def __init__(
        self,
        tasks: int | Sequence[int],
        seed: int = 0,
        *,
        threshold: float = 0.9,
        decay: float = 0.5,
        floor: float = 0.05,
    ) -> None:
        super().__init__(tasks, seed)
        for name, share in (("threshold", threshold), ("decay", decay), ("floor", floor)):
            check_share(name, share)
        if threshold == 0 or decay == 1:
            raise BadSetting("threshold must be above 0 and decay below 1, or all tasks are solved, or none ever is")
        self._threshold, self._decay, self._floor = threshold, decay, floor
        self._rates: dict[int, float] = {}

    def __len__(self) -> int:
        """Return how many tasks are solved."""
        return sum(rate >= self._threshold for rate in self._rates.values())

    def chance(self, task: int) -> float:
        """Return the probability with which a task is played when its turn comes."""
        return self._floor if self._rates.get(task, 0.0) >= self._threshold else 1.0

    def observe(self, groups: Iterable[Group]) -> None:
        """Update the averages by the success rates of groups; lost episodes do not count."""
        for group in groups:
            ends = [episode.success for episode in group if not is_lost(episode)]
            if ends:
                task, rate = group.episodes[0].task, sum(ends) / len(ends)
                self._rates[task] = self._decay * self._rates.get(task, rate) + (1 - self._decay) * rate

    def state_dict(self) -> dict[str, Any]:
        """Return plain data for `load_state_dict`."""
        return {**super().state_dict(), "rates": [[task, rate] for task, rate in self._rates.items()]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state_dict` returned."""
        super().load_state_dict(state)
        self._rates = dict(state["rates"])


def check_share(name: str, value: object) -> None:
    """Raise `BadSetting` if `value` is not a number in [0, 1]."""
    if not is_number(value) or not 0 <= value <= 1:
        raise BadSetting(f"{name} must be between 0 and 1, got {value!r:.60}")


def _replay(tasks: int | Sequence[int], seed: int, outcome: Outcome, *, share: float = 0.0) -> TaskReplay:
    check_share("share", share)
    check_word(outcome, Outcome)
    return TaskReplay(tasks, share, check_integer("seed", seed, 0), outcome)


SELECTORS: Mapping[str, Callable[..., TaskSelector]] = {
    "replay": _replay,
    "greso": Greso,
    "filter_solved": FilterSolved,
}
"""The selectors that a configuration can name without a module. All take the tasks as their first argument."""


def task_selector(
    config: object, tasks: int | Sequence[int], *, seed: int = 0, outcome: Outcome = "success"
) -> TaskSelector:
    """Return the selector that a configuration names, as `name` or `{name: settings}`; None: all tasks in turn.

    Raises `UnknownOption` if there is no such selector or setting, and `BadSetting` for an invalid value.
    """
    if config is None:
        return _replay(tasks, seed, outcome)
    name, settings = parse_entry(config, "a task selector")
    make = resolve(name, SELECTORS, "task selector")
    selector: TaskSelector = bind_settings(make, name, settings, {"seed": seed, "outcome": outcome})(tasks)
    return selector

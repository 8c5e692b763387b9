"""Which tasks to play next, chosen by what came of earlier groups: a curriculum.

A selector is a function of its settings and of the groups that it was shown, and of nothing else, so a run that goes
on from a checkpoint plays the same tasks. `TaskReplay` is one, and its order of tasks is that of the others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from agentgym_flow.dataflow.batches.ops import bound, found, named
from agentgym_flow.episode import Group
from agentgym_flow.errors import BadSetting
from agentgym_flow.rewards.credit.comparison import Outcome, check_word
from agentgym_flow.seeding import Stream
from agentgym_flow.training.outcomes import ended_alike, is_lost
from agentgym_flow.training.task_replay import TaskReplay, TaskSelector

MOST_SKIPPED = 256
"""After so many tasks in a row that were left out, the next one is played in any case."""


class Curriculum(ABC):
    """Goes through all tasks in shuffled order, pass after pass, and leaves some out by chance.

    Args:
        tasks: the tasks to go through, or how many there are, from 0 on.
        seed: of the order and of the chances.

    Attributes:
        skipped: how many tasks were left out in the last draw.

    Raises:
        BadSetting: there are no tasks.
    """

    def __init__(self, tasks: int | Sequence[int], seed: int = 0) -> None:
        self.skipped = 0
        self._seed = seed
        self._order = TaskReplay(tasks, 0.0, seed)
        self._pass: tuple[int, list[int]] = -1, []  # the number of a pass, and its tasks
        self._position = 0
        self.num_tasks = len(tasks) if isinstance(tasks, Sequence) else tasks

    @abstractmethod
    def chance(self, task: int) -> float:
        """Return the probability with which a task is played when its turn comes."""

    @abstractmethod
    def observe(self, groups: Iterable[Group]) -> None:
        """Take in what came of a batch."""

    def draw(self, count: int) -> list[int]:
        """Return the next `count` tasks that are not left out."""
        drawn: list[int] = []
        self.skipped = in_a_row = 0
        while len(drawn) < count:
            task = self._task()
            chance = self.chance(task)
            if chance >= 1 or in_a_row >= MOST_SKIPPED or self._draws() < chance:
                drawn.append(task)
                in_a_row = 0
            else:
                self.skipped += 1
                in_a_row += 1
            self._position += 1
        return drawn

    def _task(self) -> int:
        number, place = divmod(self._position, self.num_tasks)
        if self._pass[0] != number:
            self._pass = number, self._order.at(number * self.num_tasks, self.num_tasks)
        return self._pass[1][place]

    def _draws(self) -> float:
        return Stream("curriculum", self._seed, self._position).uniform()

    def state_dict(self) -> dict[str, Any]:
        """Return as plain data what decides the coming draws."""
        return {"position": self._position}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned."""
        self._position = state["position"]


class Greso(Curriculum):
    """GRESO (Zheng et al., 2025): the longer a task's groups have had no variance, the more rarely it is played.

    After z such groups in a row it is played with the probability p^z. There are two p, for tasks that always succeed
    and for those that never do; each goes down when more groups of its kind are played than are wanted, and else up.

    Args:
        tasks: see `Curriculum`.
        seed: see `Curriculum`.
        outcome: what has variance or not, see `ended_alike`.
        p: both probabilities at the beginning.
        step: by how much one changes after a batch, once every task had its turn.
        easy: the share of groups without variance and with success that is wanted.
        hard: the share of groups without variance and without success that is wanted.
        floor: the least probability of a task, and of p.

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
        self._streaks: dict[int, tuple[int, bool]] = {}  # task -> groups without variance in a row; with success?

    def __len__(self) -> int:
        """Return for how many tasks the last group had no variance."""
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
        """Return as plain data what decides the coming draws."""
        streaks = [[task, *streak] for task, streak in self._streaks.items()]
        return {**super().state_dict(), "p": [self.p[True], self.p[False]], "streaks": streaks}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned."""
        super().load_state_dict(state)
        self.p = dict(zip((True, False), state["p"], strict=True))
        self._streaks = {task: (length, succeeds) for task, length, succeeds in state["streaks"]}


class FilterSolved(Curriculum):
    """Plays tasks that are solved only now and then, to see whether they still are.

    A task is solved where the moving average of its success rate is at least a threshold.

    Args:
        tasks: see `Curriculum`.
        seed: see `Curriculum`.
        threshold: above 0 and at most 1.
        decay: what of the average stays when a new group comes; 0: the last group alone counts.
        floor: the probability with which a solved task is played when its turn comes.

    Raises `BadSetting` if a number is out of its range.
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
        """Take success rates into the averages; lost episodes do not count."""
        for group in groups:
            ends = [episode.success for episode in group if not is_lost(episode)]
            if ends:
                task, rate = group.episodes[0].task, sum(ends) / len(ends)
                self._rates[task] = self._decay * self._rates.get(task, rate) + (1 - self._decay) * rate

    def state_dict(self) -> dict[str, Any]:
        """Return as plain data what decides the coming draws."""
        return {**super().state_dict(), "rates": [[task, rate] for task, rate in self._rates.items()]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned."""
        super().load_state_dict(state)
        self._rates = dict(state["rates"])


def check_share(name: str, value: object) -> None:
    """Raise `BadSetting` if `value` is not a number in [0, 1]."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise BadSetting(f"{name} must be between 0 and 1, got {value!r:.60}")


def _replay(tasks: int | Sequence[int], seed: int, outcome: Outcome, *, share: float = 0.0) -> TaskReplay:
    return TaskReplay(tasks, share, seed, outcome)


SELECTORS: Mapping[str, Callable[..., TaskSelector]] = {
    "replay": _replay,
    "greso": Greso,
    "filter_solved": FilterSolved,
}
"""Those that a configuration can name without their module; a further one takes the tasks as its first argument."""


def task_selector(
    config: object, tasks: int | Sequence[int], *, seed: int = 0, outcome: Outcome = "success"
) -> TaskSelector:
    """Return the selector that a configuration names, as `name` or `{name: settings}`; None: all tasks in turn.

    Raises `UnknownOption` if there is no such selector or setting, and `BadSetting` for a value that cannot be.
    """
    if config is None:
        return _replay(tasks, seed, outcome)
    name, settings = named(config, "a task selector")
    make = found(name, SELECTORS, "task selector")
    selector: TaskSelector = bound(make, name, settings, {"seed": seed, "outcome": outcome}, given=1)(tasks)
    return selector

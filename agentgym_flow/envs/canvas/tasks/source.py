"""The sources of tasks: generated tasks, or published sets, by split and number."""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Protocol, cast

from agentgym_flow.core import TaskSource, canonical, check_season, check_split
from agentgym_flow.data import DataSet
from agentgym_flow.envs.canvas.tasks.task import Assignment, PublishedTask, SimulatedTask
from agentgym_flow.errors import BadSetting, UnknownOption

FAMILIES = ("arithmetic", "code", "qa")
"""The families of generated tasks; task k of a split is of family k modulo 3."""

COUNTS = {"train": 3_600, "valid": 501, "test": 501}
"""Split -> number of generated tasks, a third of each family."""

_MODULES = {"arithmetic": "arithmetic", "code": "code", "qa": "facts"}


class Tasks(TaskSource, Protocol):
    """The tasks of a split."""

    @property
    def dataset(self) -> str | None:
        """The name of the published set; None for generated tasks."""

    @property
    def skipped(self) -> tuple[str, ...]:
        """A sentence for each damaged row that was skipped."""

    def __getitem__(self, number: int) -> Assignment:
        """Return a task."""


class GeneratedTasks:
    """The generated tasks of a split, each created on access. Immutable.

    Args:
        split: `"train"`, `"valid"` or `"test"`.
        family: one of `FAMILIES`; None for all of them in turn.
        simulated: whether the simulator does the work of the operators; if not, tasks are plain problems.
        season: the seed of a season of test tasks; `""` for the standard ones.

    Raises:
        UnknownSplit: there is no such split.
        UnknownOption: there is no such family.
        BadSetting: the season is invalid.
    """

    dataset = None
    skipped: tuple[str, ...] = ()
    data: Mapping[str, str] = MappingProxyType({})

    def __init__(self, split: str, family: str | None = None, *, simulated: bool = True, season: str = "") -> None:
        if family is not None and family not in FAMILIES:
            raise UnknownOption.among(family, FAMILIES)
        self.split = check_split(split, {})
        self.season = check_season(season, self.split)
        self.family = family
        self.simulated = simulated

    @property
    def num_tasks(self) -> int:
        """The number of tasks."""
        return COUNTS[self.split] // (1 if self.family is None else len(FAMILIES))

    def __len__(self) -> int:
        return self.num_tasks

    def task_type(self, task: int) -> str:
        """Return the family of a task."""
        return self.family or FAMILIES[task % len(FAMILIES)]

    def __getitem__(self, number: int) -> Assignment:
        if not 0 <= number < self.num_tasks:
            raise IndexError(number)
        family = self.task_type(number)
        task = generated(family, self.split, number if self.family else number // len(FAMILIES), self.season)
        return task if self.simulated else PublishedTask(task.problem)


def tasks_of(
    data: str | os.PathLike[str] | DataSet | None,
    dataset: str | None,
    split: str,
    family: str | None,
    *,
    simulated: bool,
    skip_damaged: bool = False,
    season: str = "",
) -> Tasks:
    """Return the tasks for the arguments of an environment.

    Args:
        data: a file or a folder of a published set, or the name of registered data; None for generated tasks.
        dataset: the name of the published set, one of `sets.load.SETS`; None to take it from the file names.
        split: `"train"`, `"valid"` or `"test"`.
        family: a family of generated tasks.
        simulated: whether the simulator does the work of the operators.
        skip_damaged: skip the rows of a published set that cannot be read.
        season: the seed of a season of generated test tasks; `""` for the standard ones.

    Raises:
        UnknownSplit, UnknownOption, UnknownData: there is no such split, family, or data or set.
        BadData: the data are damaged; see `PublishedTasks`.
        BadSetting: an argument is invalid or contradicts another.
    """
    if not isinstance(skip_damaged, bool):
        raise BadSetting(f"skip_damaged is True or False, got {skip_damaged!r:.40}")
    if data is None and dataset is None:
        if skip_damaged:
            raise BadSetting("skip_damaged is for published sets, not for generated tasks")
        return GeneratedTasks(split, family, simulated=simulated, season=season)
    check_season(season, check_split(split, {}), "dataset" if data is None else "data")
    if family is not None:
        raise BadSetting("family is for generated tasks, not for published sets")
    from agentgym_flow.envs.canvas.tasks.published import PublishedTasks

    tasks = PublishedTasks(data, dataset, split, simulated=simulated, skip_damaged=skip_damaged)
    if skipped := tasks.skipped:
        which = "`agentgym-flow data check --env canvas` says more"
        warnings.warn(f"{len(skipped)} damaged rows are skipped, the first: {skipped[0]} {which}.", stacklevel=3)
    return tasks


@lru_cache(maxsize=1 << 10)  # a group plays one task many times
def generated(family: str, split: str, index: int, season: str = "") -> SimulatedTask:
    """Return one generated task."""
    module = importlib.import_module(f"agentgym_flow.envs.canvas.tasks.{_MODULES[family]}")
    task: SimulatedTask = module.make_task(split, index, season)
    return task


def manifest_digest(split: str) -> str:
    """Return the SHA-256, in hex, of the canonical JSON of all generated tasks of a split, each followed by a newline.

    The content of a task is its problem with the hidden tests, its possible mistakes with their answers, and everything
    else that the simulator reads. Raises `UnknownSplit`.
    """
    digest, tasks = sha256(), GeneratedTasks(split)
    for number in range(len(tasks)):
        digest.update(canonical(_content(cast("SimulatedTask", tasks[number]))) + b"\n")
    return digest.hexdigest()


def _content(task: SimulatedTask) -> list[Any]:
    one = task.problem
    problem = [one.key, one.kind, one.shown(), one.answers, one.entry_point, one.hidden_tests.source, one.solution]
    faults = [
        [fault.tag, fault.kind, fault.words, fault.note, fault.piece, fault.likely, task.answer((fault.tag,), 0)]
        for fault in task.faults
    ]
    return [task.family, task.kind, problem, faults, task.plan, task.pieces, task.endless, task.wordy, task.phrasings]


MANIFEST = {
    "train": "f21cf120cb04f4c0d0aaa392f0dff2669617551d17d8414f44f7cee73e283f90",
    "valid": "5f0c63f2f7b285bd3898a945c6ad8bfe4e198b30d0d339fed5570ae877c7a4e9",
    "test": "a319ebba1fe2cbff06c14b0611d11cb9af4d688db7cb5a9b0bdccff8f38e2ae3",
}
"""Split -> recorded digest. If one changes, published results are about other tasks, so the id needs a new version."""

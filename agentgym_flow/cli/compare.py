"""`agentgym-flow compare`: compare two logs of the same tasks, task by task."""

from __future__ import annotations

from collections import defaultdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from agentgym_flow.cli.console import say
from agentgym_flow.episodes import read_log
from agentgym_flow.errors import BadSetting

Start = tuple[str, int]
"""The key and the seed of a task."""


class Metric(StrEnum):
    """The metric to compare."""

    SUCCESS = "success"
    SCORE = "score"


def compare(
    first: Annotated[Path, typer.Argument(metavar="A", dir_okay=False, help="An episode log.")],
    second: Annotated[Path, typer.Argument(metavar="B", dir_okay=False, help="An episode log of the same tasks.")],
    metric: Annotated[Metric, typer.Option(help="The metric to compare.")] = Metric.SUCCESS,
    most: Annotated[int, typer.Option(min=0, help="The largest number of tasks to list.")] = 20,
) -> None:
    """Compare two logs task by task: the mean difference, its interval, a paired test, and the tasks that differ.

    The command trusts the results written in the logs. Use `agentgym-flow verify` to check them.
    """
    from agentgym_flow.leaderboard import comparison

    numbers: dict[Start, int] = {}
    budgets: set[int] = set()
    sides = [_scores(path, metric, numbers, budgets) for path in (first, second)]
    if len(budgets) != 1:
        raise BadSetting(f"the step budgets differ, {sorted(budgets)}: evaluate both with the same max_steps")
    shapes = [{task: len(scores) for task, scores in side.items()} for side in sides]
    if shapes[0] != shapes[1]:
        differ = sum(shapes[0].get(task) != shapes[1].get(task) for task in shapes[0].keys() | shapes[1].keys())
        raise BadSetting(
            f"the logs must have the same tasks, seeds and attempts, and {differ} tasks differ: evaluate both in one "
            "environment, with the same --split, --episodes, --attempts and --seed"
        )
    if len(set(shapes[0].values())) != 1:
        raise BadSetting("all tasks must have the same number of attempts: finish the evaluations with --resume")
    tasks = sorted(sides[0], key=lambda task: (numbers[task], task))  # the order in which equal differences are named
    tables = [[side[task] for task in tasks] for side in sides]
    for path, table in zip((first, second), tables, strict=True):
        mean = sum(map(sum, table)) / sum(map(len, table))
        say(f"{path}: {metric} {mean:.1%} of {len(tasks)} tasks")
    found = comparison.compare(tables[0], tables[1], most)
    say(f"A - B: {found.summary()}")
    for row, by in found.tasks:
        key, seed = tasks[row]
        say(f"task {numbers[key, seed]}, seed {seed}: {by:+.2f}")


def _scores(path: Path, metric: Metric, numbers: dict[Start, int], budgets: set[int]) -> dict[Start, list[float]]:
    """Return the figures of a log by task, attempts in order; add to the `numbers` of tasks and to step `budgets`.

    Raises `BadLog` if it cannot be read, `BadSetting` if it has no episode, or one twice.
    """
    by_task: dict[Start, dict[int, float]] = defaultdict(dict)
    for episode in read_log(path):
        task = (episode.task_key, episode.seed)
        if episode.attempt in by_task[task]:
            raise BadSetting(f"{path} has attempt {episode.attempt} at task {episode.task} twice")
        numbers[task] = episode.task
        budgets.add(episode.max_steps)
        by_task[task][episode.attempt] = float(episode.success if metric is Metric.SUCCESS else episode.score)
    if not by_task:
        raise BadSetting(f"{path} has no episodes")
    return {task: [attempts[n] for n in sorted(attempts)] for task, attempts in by_task.items()}

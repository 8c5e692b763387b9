"""Run the missing cells of a plan with a progress display, or show their cost in advance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from baselines.comparison.execute import finished
from baselines.comparison.outcome import Outcome
from baselines.comparison.plan import CONTROLS, EVERYTHING, WARM_START, Cell, Plan
from baselines.comparison.workers import Job, runner

Outcomes = dict[Cell, Outcome]


def run_missing(
    plan: Plan, output: Path, processes: int, console: Console, published: Sequence[Outcome] = ()
) -> Outcomes:
    """Run missing cells, phase by phase, and return the outcome of every cell.

    Runs that are `published` are not missing, wherever they were run. A warm start is, if its weights are not in
    `output` and a run that is missing needs them.

    Raises:
        AgentGymFlowError: a run failed, or one in `output` was made with other settings.
        KeyboardInterrupt: after Ctrl-C or SIGTERM; finished runs stay in `output`.
    """
    cells = list(plan.cells())
    here = {cell: found for cell in cells if (found := finished(plan, cell, output)) is not None}
    there = {Cell(one.group, one.name, one.seed): one for one in published}
    needed = {Cell(plan.setting(cell).warm_start, WARM_START, cell.seed) for cell in cells if cell not in here | there}
    done = {cell: found for cell, found in there.items() if cell in cells and cell not in needed} | here
    with _progress(console) as bar, runner(processes) as run:
        task = bar.add_task("runs", total=len(cells), completed=len(done), last="")
        for phase in plan.phases():
            jobs: list[Job] = [(plan, cell, output, budget(plan, cell, done)) for cell in phase if cell not in done]
            for outcome in run(jobs):
                cell = Cell(outcome.group, outcome.name, outcome.seed)
                done[cell] = outcome
                last = f"{cell.folder}: {outcome.success:.1%} in {outcome.core_seconds:.0f} core-seconds"
                bar.update(task, advance=1, last=last)
                if not console.is_terminal:
                    console.print(f"{len(done)} of {len(cells)}  {last}", soft_wrap=True, highlight=False)
    return {cell: done[cell] for cell in cells}


def budget(plan: Plan, cell: Cell, done: Mapping[Cell, Outcome]) -> float:
    """Return the core-seconds of training for a control, given the outcomes of training runs; 0 for other cells.

    The median time of the setting's training runs; for cloning from scratch, plus that of the warm start.
    """
    if cell.name not in CONTROLS[1:]:
        return 0.0
    setting = plan.setting(cell)
    seconds = median(done[run].learning_seconds for run in plan.training() if run.group == setting.name)
    if cell.name == EVERYTHING:
        seconds += done[Cell(setting.warm_start, WARM_START, cell.seed)].learning_seconds
    return seconds


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[last]}", markup=False),
        console=console,
        disable=not console.is_terminal,
    )


def show_plan(plan: Plan, output: Path, console: Console) -> None:
    """Print the runs and their estimated cost; for finished runs the time is known."""
    table = Table(title="What would be run", title_justify="left")
    for column in ("setting", "runs", "finished", "episodes each", "core-seconds each", "core-hours to go"):
        table.add_column(column, justify="left" if column == "setting" else "right")
    hours = 0.0
    for name, cells, episodes, guess in _groups(plan):
        found = [outcome for cell in cells if (outcome := finished(plan, cell, output)) is not None]
        each = fmean(outcome.core_seconds for outcome in found) if found else guess
        to_go = each * (len(cells) - len(found)) / 3600
        hours += to_go
        table.add_row(name, str(len(cells)), str(len(found)), episodes, f"{each:.0f}", f"{to_go:.2f}")
    console.print(table)
    console.print(f"About {hours:.1f} core-hours to go, one core per process. Nothing was run.", highlight=False)


_REFERENCE_SECONDS = 10.0  # roughly the time of a policy without a model for 500 tasks


def _groups(plan: Plan) -> Iterator[tuple[str, list[Cell], str, float]]:
    """Yield the rows of the estimate: name, cells, episodes of a run, and a guess of its core-seconds."""
    guess = fmean(setting.core_seconds for setting in plan.settings)
    groups = [
        ("warm starts", plan.warm_starts(), "", guess),
        ("policies that are not trained", plan.references(), "", _REFERENCE_SECONDS),
    ]
    for setting in plan.settings:
        training = [cell for cell in plan.training() if cell.group == setting.name]
        groups.append((setting.name, training, f"{setting.episodes:,}", setting.core_seconds))
        controls = [cell for cell in plan.controls() if cell.group == setting.name]
        groups.append((f"{setting.name}, controls", controls, "", setting.core_seconds))
    yield from (group for group in groups if group[1])

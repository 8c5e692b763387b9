"""Compare estimators: every algorithm in every setting with every seed, control rows, intervals, one page.

    python -m baselines.compare --env agentgym_flow/Sokoban-v0 --algos grpo,rloo,gigpo,rewardflow,graphgpo --seeds 5

Every training run follows the recipe of the baselines. The algorithms of a setting differ only in the credit function:
they share one warm start per seed, all other settings, and the number of episodes. With `--tuned FILE` each algorithm
uses the learning rates, entropy weight, weight and norm that `baselines.tune` selected for it, with equal numbers of
trials. `--settings` selects settings (default: all) from the environment's file, such as
`configs/compare_sokoban.yaml`.

Untrained policies are rows as well: random, the script, the expert, and the best fixed strategy if the environment has
a list of them. Every row has sampled and greedy results.

Runs are stored in `--out`. The same command again runs only what is missing, so Ctrl-C or SIGTERM loses only the
unfinished runs. The results are then written to `--results`: `sokoban.jsonl` with the outcome of every run on every
test task, and `sokoban.md` and pictures, which are made from it. `--remake FILE.jsonl` makes these again without
training.

Two algorithms can be compared until the order is decided, instead of with a number of seeds that somebody chose:

    python -m baselines.compare --plan baselines/results/alfworld.jsonl   # how many seeds and tasks would find 2 points
    python -m baselines.compare --algos grpo,rewardflow --settings groups8 --register FILE   # before the first run
    python -m baselines.compare --until-decided FILE
    python -m baselines.compare --decided baselines/registered   # the table of all that was registered

See `comparison.decision` for the looks and their thresholds.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from agentgym_flow._util.files import write_atomically
from agentgym_flow.errors import BadSetting
from baselines.comparison.command_line import check_at_least_one, exit_status_of, named, parser_of, stem_of
from baselines.comparison.decided import decided_file, decided_table
from baselines.comparison.decision import Components, Found, Registration, cheapest, decide, differences
from baselines.comparison.outcome import Outcome, Raw, read_raw, write_raw
from baselines.comparison.plan import WARM_START, Plan, Setting, read_settings
from baselines.comparison.plot import draw
from baselines.comparison.schedule import Outcomes, run_missing, show_plan
from baselines.comparison.table import page, picture_name
from baselines.comparison.trials import with_tuned


def figures(plan: Plan, done: Outcomes, command: str, tuned: Path | None = None) -> Raw:
    """Return all results of a comparison; `tuned` is the file of the algorithms' settings."""
    shapes: dict[str, Any] = {
        setting.name: {
            "about": setting.about,
            "num_generations": setting.num_generations,
            "tasks": setting.tasks,
            "batches": setting.batches,
            "warm_start": setting.warm_start,
            "settings": setting.lasting,
            "variants": {name: dict(setting.own(name)) for name in plan.algos},
            "task_types": _task_types(setting),
        }
        for setting in plan.settings
    }
    header: dict[str, Any] = {
        "command": command,
        "env_id": plan.env_id,
        "algos": list(plan.algos),
        "seeds": list(plan.seeds),
    }
    if tuned is not None:
        header["tuned"] = tuned.name
    return Raw({**header, "settings": shapes}, list(done.values()))


def _task_types(setting: Setting) -> list[str]:
    """Return the type of each test task in the order of play; empty if all are of one type."""
    run = setting.plain_configs()[0]
    with closing(run.make_env("test")) as env:
        types = [env.task_type_of(task) for task in env.drawn_tasks[: run.eval_episodes]]
    return types if len(set(types)) > 1 else []


def publish(raw: Raw, page_path: Path) -> list[Path]:
    """Write the page and its pictures; return their paths."""
    pictures = {setting: page_path.with_name(picture_name(page_path.stem, setting)) for setting in raw.settings}
    for setting, path in pictures.items():
        draw(path, raw, setting)
    with write_atomically(page_path) as partial:
        partial.write_text(page(raw, page_path.stem), "utf-8")
    return [page_path, *pictures.values()]


# ---------------------------------------------------------------- the command line
def _parser() -> argparse.ArgumentParser:
    parser = parser_of("compare", __doc__, "runs/compare")
    parser.add_argument("--seeds", type=int, default=5, help="runs of every algorithm in every setting")
    parser.add_argument("--first-seed", type=int, default=0, help="the first of the --seeds (default 0)")
    parser.add_argument("--settings", help="names of settings in the file (default: all)")
    parser.add_argument("--tuned", type=Path, metavar="FILE.yaml", help="settings selected by baselines.tune")
    parser.add_argument("--plan", type=Path, metavar="FILE.jsonl", help="seeds and tasks that --points would need")
    parser.add_argument("--points", type=float, default=2.0, help="the difference to plan for, in percentage points")
    parser.add_argument("--register", type=Path, metavar="FILE", help="write what --until-decided will compare")
    parser.add_argument("--margin", type=float, default=0.0, help="of --register: points that may be lost, at --seeds")
    parser.add_argument("--until-decided", type=Path, metavar="FILE", help="run a registered comparison")
    parser.add_argument("--decided", type=Path, metavar="FOLDER", help="print the table of the registrations in it")
    parser.add_argument("--more", type=int, help="go on to this number of seeds after the last look, by the e-value")
    return parser


def show_design(raw: Raw, points: float, console: Console) -> None:
    """Print which seeds and test tasks would find a difference of `points` between the algorithms of some results."""
    title = f"To find {points:g} points with 80 % power, two-sided at 5 %"
    table = Table("setting", "pair", "sd of seeds", "tasks", "rest", "seeds with these tasks", "cheapest", title=title)
    for setting in raw.settings:
        reference, *others = raw.header["algos"]
        for algo in others:
            sides = [raw.runs(setting, name) for name in (algo, reference)]
            seeds = sorted(set(sides[0]) & set(sides[1]))
            if len(seeds) < 2:
                continue
            tables = [np.stack([side[seed].successes() for seed in seeds]) for side in sides]
            found, tasks = Components.of(tables[0] - tables[1]), tables[0].shape[1]
            runs = [side[seed] for side in sides for seed in seeds]
            training = median(run.learning_seconds for run in runs)
            playing = median(max(0.0, run.core_seconds - run.learning_seconds) for run in runs) / tasks
            design, here = cheapest(found, points, training, playing, 20 * tasks), found.seeds_for(points, tasks)
            best = (
                "none" if design is None else f"{design.seeds} seeds, {design.tasks} tasks: {design.core_hours:.1f} h"
            )
            spreads = [f"{value:.1f}" for value in found]
            table.add_row(setting, f"{algo} - {reference}", *spreads, str(here or "over 1000"), best)
    console.print(table)


def _known(plan: Plan, published: Sequence[Raw]) -> list[Outcome]:
    """Return the published runs that a plan of one setting needs and that were made with its settings."""
    (setting,) = plan.settings
    lasting = json.loads(json.dumps(setting.lasting))
    wanted = {"settings": lasting, **{name: getattr(setting, name) for name in ("num_generations", "tasks", "batches")}}
    found = []
    for raw in published:
        there = raw.settings.get(setting.name, {})
        if any(there.get(name) != value for name, value in wanted.items()):
            continue
        own = {WARM_START: {}, **there.get("variants", {})}
        needed = {WARM_START: {}, **{name: dict(setting.own(name)) for name in plan.algos}}
        found += [one for one in raw.outcomes if one.name in needed and own.get(one.name) == needed[one.name]]
    return found


def until_decided(plan: Plan, options: argparse.Namespace, console: Console) -> list[Path]:
    """Run the seeds of a registered comparison up to the look that decides; return the files written.

    Runs that registered comparisons have published in `--results` count, so another machine can continue.

    Raises `BadSetting` if the plan or the results that it would replace are not of this registration, and `BadData` for
    a malformed file.
    """
    registration = Registration.read(options.until_decided)
    registration.check(plan)
    ends = [look.seeds for look in registration.looks]
    if options.more is not None:
        if options.more <= ends[-1]:
            raise BadSetting(f"--more goes on after the last look, at {ends[-1]} seeds")
        ends += range(ends[-1] + 1, options.more + 1)
    command = f"python -m baselines.compare --until-decided {_from_here(options.until_decided)}"
    file = options.results / decided_file(options.until_decided)
    published = [read_raw(one) for one in sorted(options.results.glob("decided_*.jsonl"), key=file.__eq__)]
    if file.exists() and read_raw(file).header.get("registered") != registration.digest:
        raise BadSetting(f"{file} has the results of another registration: give another --results")
    files: list[Path] = []
    for seeds in ends:
        part = replace(plan, seeds=_seeds(registration.first_seed, seeds), controls_too=False)
        done = run_missing(part, options.output, options.jobs, console, _known(part, published))
        raw = figures(part, done, command, options.tuned)
        found: Found = decide(differences(raw, registration), registration.looks, registration.margin)
        console.print(f"{registration.candidate} against {registration.reference}: {found}", soft_wrap=True)
        verdict = {"registered": registration.digest, "registered_on": registration.day, "decision": str(found)}
        write_raw(file, Raw({**raw.header, **verdict}, raw.outcomes))  # also while it is open
        files = [file, *publish(read_raw(file), file.with_suffix(".md"))]
        if found.verdict not in ("open", "undecided"):
            break
    return files


def _plan(options: argparse.Namespace) -> Plan:
    check_at_least_one(options, "seeds", "jobs")
    if options.first_seed < 0:
        raise BadSetting("--first-seed must be at least 0")
    chosen = None if options.settings is None else named(options.settings)
    settings, algos = read_settings(options.env, options.config, chosen), named(options.algos)
    if options.tuned is not None:
        settings = with_tuned(settings, options.tuned, algos)
    return Plan(options.env, algos, _seeds(options.first_seed, options.seeds), settings)


def _seeds(first: int, number: int) -> range:
    return range(first, first + number)


def _command(plan: Plan, config: Path | None, tuned: Path | None) -> str:
    """Return the command that reproduces the comparison, without the folders that it writes to."""
    settings = ",".join(setting.name for setting in plan.settings)
    words = ["--env", plan.env_id, "--algos", ",".join(plan.algos), "--seeds", str(len(plan.seeds))]
    words += ["--first-seed", str(plan.seeds[0])] if plan.seeds[0] else []
    words += ["--settings", settings, *(["--config", _from_here(config)] if config else [])]
    words += ["--tuned", _from_here(tuned)] if tuned else []
    return f"python -m baselines.compare {shlex.join(words)}"


def _from_here(file: Path) -> str:
    """Return the path of a file from the current folder; its name alone if it is elsewhere."""
    full, here = file.resolve(), Path.cwd()
    return full.relative_to(here).as_posix() if full.is_relative_to(here) else file.name


def _run(options: argparse.Namespace, console: Console) -> list[Path]:
    """Run the command and return the files written."""
    if options.remake is not None:
        return publish(read_raw(options.remake), options.remake.with_suffix(".md"))
    if options.plan is not None:
        show_design(read_raw(options.plan), options.points, console)
        return []
    if options.decided is not None:
        print(decided_table(options.decided, options.results))  # noqa: T201 - a console would wrap its rows
        return []
    if options.until_decided is not None:
        registered = Registration.read(options.until_decided)
        options.env, options.settings = registered.env_id, registered.setting
        options.algos = f"{registered.reference},{registered.candidate}"
        options.first_seed = registered.first_seed
    plan = _plan(options)
    if options.register is not None:
        registration = Registration.of(plan, options.margin)
        registration.write(options.register)
        console.print(f"registered {registration.digest}", soft_wrap=True)
        return [options.register]
    if options.until_decided is not None:
        return until_decided(plan, options, console)
    if options.dry_run:
        show_plan(plan, options.output, console)
        return []
    done = run_missing(plan, options.output, options.jobs, console)
    raw = figures(plan, done, _command(plan, options.config, options.tuned), options.tuned)
    file = options.results / f"{stem_of(plan.env_id)}.jsonl"
    write_raw(file, raw)
    return [file, *publish(raw, file.with_suffix(".md"))]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; return the exit status: 0, 1 after an error, 130 or 143 after a signal."""
    options = _parser().parse_args(arguments)
    return exit_status_of(lambda console: _run(options, console))


if __name__ == "__main__":
    sys.exit(main())

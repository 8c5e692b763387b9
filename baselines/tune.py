"""Tune every estimator with the same number of validation trials, and write a file of the best settings.

    python -m baselines.tune --env agentgym_flow/Sokoban-v0 --algos grpo,rloo,gigpo,rewardflow,graphgpo --trials 8

A trial is a short training run with the recipe of the baselines, from one warm start that all trials share. Trial *i*
has the same entropy weight and learning rates for every estimator; weight and norm are tried for estimators that have
them. Trial 0 has the unchanged settings. Short runs favour high learning rates, so trial 0 and the best other trials of
every estimator (`--finalists`) are trained again for all batches of the setting. The run with the highest mean of
sampled and greedy success on validation tasks wins. Test tasks are never played.

Runs are stored in `--out`. The same command again runs only what is missing, also with more `--trials`, so Ctrl-C or
SIGTERM loses only the unfinished runs. Then `--results` gets `tuning_sokoban.jsonl` with the outcome of every trial on
every validation task, and two files made from it: the page `tuning_sokoban.md`, and `tuned_sokoban.yaml` for
`baselines.compare --tuned FILE`. `--remake FILE.jsonl` makes these two again without training.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from agentgym_flow._util.files import write_atomically
from agentgym_flow.errors import BadSetting
from baselines.comparison.command_line import check_at_least_one, exit_status_of, named, parser_of, stem_of
from baselines.comparison.outcome import TUNING, Outcome, Raw, read_raw, write_raw
from baselines.comparison.plan import Setting, read_settings
from baselines.comparison.schedule import run_missing, show_plan
from baselines.comparison.trials import Trials, finals, trial, trials, write_tuned
from baselines.comparison.tuning_page import finalists, tuning_page, winners

SHARE = 4
"""By default a trial has one in this many batches of the setting."""


def figures(plan: Trials, algos: Sequence[str], count: int, outcomes: Sequence[Outcome], command: str) -> Raw:
    """Return all results of a tuning."""
    [setting], [seed] = plan.settings, plan.seeds
    header: dict[str, Any] = {
        "command": command,
        "env_id": plan.env_id,
        "algos": list(algos),
        "count": count,
        "seed": seed,
        "setting": setting.name,
        "episodes": setting.episodes,
        "settings": setting.lasting,
        "trials": {name: dict(own) for name, own in setting.variants.items()},
    }
    return Raw(header, outcomes)


def with_finals(plan: Trials, setting: Setting, raw: Raw, options: argparse.Namespace, console: Console) -> Raw:
    """Train the finalists for all batches of the setting; return the results including theirs."""
    chosen = finalists(raw, options.finalists)
    if not any(chosen.values()):
        return raw
    last = finals(plan, setting, chosen)
    done = run_missing(last, options.output, options.jobs, console)
    header = {**raw.header, "finals": chosen, "final_episodes": setting.episodes}
    return Raw(header, [*raw.outcomes, *(done[cell] for cell in last.training())])


def publish(raw: Raw, folder: Path) -> list[Path]:
    """Write the page and the file of the best settings; return their paths."""
    stem = stem_of(raw.header["env_id"])
    page_path, tuned = folder / f"tuning_{stem}.md", folder / f"tuned_{stem}.yaml"
    with write_atomically(page_path) as partial:
        partial.write_text(tuning_page(raw), "utf-8")
    best = {algo: raw.header["trials"][trial(algo, number)] for algo, number in winners(raw).items()}
    write_tuned(tuned, raw.header, best)
    return [page_path, tuned]


# ---------------------------------------------------------------- the command line
def _parser() -> argparse.ArgumentParser:
    parser = parser_of("tune", __doc__, "runs/tune")
    parser.add_argument("--trials", type=int, default=8, help="per algorithm; trial 0 has the unchanged settings")
    parser.add_argument("--batches", type=int, help=f"batches per trial (default: 1 / {SHARE} of the setting's)")
    parser.add_argument("--finalists", type=int, default=2, help="trials per algorithm to train in full; 0: none")
    parser.add_argument("--seed", type=int, default=1000, help="seed of all trials, not one of a comparison")
    parser.add_argument("--setting", help="name of a setting in the file (default: the first)")
    return parser


def _plan(options: argparse.Namespace) -> tuple[Setting, Trials]:
    check_at_least_one(options, "trials", "jobs", "batches")
    if options.finalists < 0 or options.finalists == 1:
        raise BadSetting("--finalists must be 0, or at least 2: trial 0 is always a finalist, so it would win alone")
    chosen = None if options.setting is None else [options.setting]
    setting = read_settings(options.env, options.config, chosen)[0]
    batches = options.batches or max(1, setting.batches // SHARE)
    return setting, trials(setting, named(options.algos), options.trials, batches, options.seed)


def _command(plan: Trials, options: argparse.Namespace) -> str:
    """Return the command that reproduces the tuning, without its folders."""
    [setting] = plan.settings
    words = ["--env", plan.env_id, "--algos", ",".join(named(options.algos)), "--trials", str(options.trials)]
    words += ["--batches", str(setting.batches), "--finalists", str(options.finalists)]
    words += ["--seed", str(options.seed), "--setting", setting.name]
    words += ["--config", options.config.name] if options.config else []
    return f"python -m baselines.tune {shlex.join(words)}"


def _run(options: argparse.Namespace, console: Console) -> list[Path]:
    """Run the command and return the files written."""
    if options.remake is not None:
        return publish(read_raw(options.remake, TUNING), options.remake.parent)
    (setting, plan), algos = _plan(options), named(options.algos)
    if options.dry_run:
        show_plan(plan, options.output, console)
        if options.finalists:  # their cost does not depend on which trials are selected
            numbers = range(min(options.finalists, options.trials))
            show_plan(finals(plan, setting, dict.fromkeys(algos, numbers)), options.output, console)
        return []
    done = run_missing(plan, options.output, options.jobs, console)
    raw = figures(plan, algos, options.trials, list(done.values()), _command(plan, options))
    raw = with_finals(plan, setting, raw, options, console)
    path = options.results / f"tuning_{stem_of(plan.env_id)}.jsonl"
    write_raw(path, raw, TUNING)
    return [path, *publish(raw, options.results)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; return the exit status: 0, 1 after an error, 130 or 143 after a signal."""
    options = _parser().parse_args(arguments)
    return exit_status_of(lambda console: _run(options, console))


if __name__ == "__main__":
    sys.exit(main())

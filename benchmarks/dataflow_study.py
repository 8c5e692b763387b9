"""Training with given episode durations: how much time asynchrony saves, and how much learning it costs.

    python benchmarks/dataflow_study.py [--jobs 1] [--seeds 3] [--updates 48] [--median 0.4] [--output runs/study]
    python benchmarks/dataflow_study.py --partial --groups 4 --updates 16 --median 8 --turns 4 --workers 2 --clone 100

A tiny policy learns Sokoban (6x6, one box, three pushes) with RewardFlow: 16 tasks x 8 attempts per batch, 64 parallel
episodes. The duration of an episode is lognormal (sigma 0.8, `--median` seconds) and depends only on its slot, so it is
the same in all runs of a seed. It passes before the first turn, or in the first `--turns` turns. All runs of a seed
have the same initial weights, number of updates and settings. `MODES` lists the runs. In those with two policies, the
policies act in turn, each with its own trainer. `--partial` has those of `PARTIAL`, which compares episodes that go on
with newer weights with episodes that do not.

In those with two models, a searcher and an answerer play questions of two hops in Search: the first is a GPT-2 with a
token for each word, and learns with GRPO; the second is a Qwen3 with a byte-level tokenizer and answers of several
tokens, and learns with RLOO at another pace (`MEMBERS`), with 32 parallel episodes. Each clones its own turns once per
seed.

Time is measured from the first weights to the last update; success on training episodes, and on `--tests` test tasks
before and after training. Equal success is what all runs of a seed have reached at their end: the lowest of their means
over the last updates. Core-seconds are those of all processes of a run, from its start, without cloning and tests.
Intervals are Student's t over seeds. With `--jobs` above 1, runs share the machine: provide about two cores for each.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
import yaml  # type: ignore[import-untyped]
from _study_team import TINY, StudyTeam, with_pretrained
from _supervised import PROGRAM, Child, ChildFailed, OverHttp, finish

from agentgym_flow.dataflow.run import AFTER, BEFORE, Team

HERE = Path(__file__).parent
SIZE, STEPS = 8, 2
PLACES = 64
TESTS = "tests.json"
"""The file in the folder of cloned models with their success on the test tasks, sampled and greedy."""
SELVES = ("a", "b")
"""Two policies with the same model."""

ENV = [
    "--env", "Sokoban-v0", "--config", "sokoban_tiny_long",
    "--env_kwargs", '{"size": 6, "boxes": 1, "min_pushes": 3}', "--threads", 1,
]  # fmt: skip
BATCH = ["--num_generations", SIZE, "--steps_per_batch", STEPS, "--save_strategy", "no", "--validations", 0]


@dataclass(frozen=True)
class Mode:
    """The settings of a run; see `_study_trainer.py` for rules. With two `models`, they are those of a `StudyTeam`."""

    flow: Mapping[str, Any]
    rule: str = "plain"
    policies: int = 1
    models: int = 1
    versions: int = 2


MODES: dict[str, Mode] = {
    "synchronous": Mode({"staleness": 0}),
    "one-step overlap": Mode({"staleness": 1}, "overlap"),
    "fixed, S = 1": Mode({"staleness": 1}),
    "fixed, S = 2": Mode({"staleness": 2}),
    "fixed, S = 4": Mode({"staleness": 4}),
    "fixed, S = 8": Mode({"staleness": 8}),
    "ready, S = 4": Mode({"staleness": 4, "order": "ready"}),
    "two policies, synchronous, taking turns": Mode({"staleness": 0}, "turns", 2),
    "two policies, fixed, S = 4, one device": Mode({"staleness": 4}, "turns", 2),
    "two policies, fixed, S = 4": Mode({"staleness": 4}, "plain", 2),
    "two models, synchronous, taking turns": Mode({"staleness": 0}, "turns", 2, 2),
    "two models, fixed, S = 2": Mode({"staleness": 2}, "plain", 2, 2),
    "two models, fixed, S = 4, one device": Mode({"staleness": 4}, "turns", 2, 2),
    "two models, fixed, S = 4": Mode({"staleness": 4}, "plain", 2, 2),
    "two models, fixed, S = 4, lock step": Mode({"staleness": 4, "lockstep": True}, "plain", 2, 2),
}
SYNCHRONOUS = {
    (1, 1): "synchronous",
    (2, 1): "two policies, synchronous, taking turns",
    (2, 2): "two models, synchronous, taking turns",
}

_READY = {"staleness": 4, "order": "ready"}
PARTIAL: dict[str, Mode] = {
    "two versions": Mode(_READY),
    "two versions, partial": Mode({**_READY, "partial_rollouts": True}),
    "one version": Mode(_READY, versions=1),
    "one version, partial": Mode({**_READY, "partial_rollouts": True}, versions=1),
}
"""Ready order, S = 4, with workers that have room for this many versions."""


class LatentParts(OverHttp):
    """A manager, and workers whose episodes have a given duration."""

    options: tuple[object, ...] = ()

    def _worker(self, number: int) -> Child:
        join = ["--join", self.url, "--token-file", self._token, "--num-envs", self._envs, *self.options]
        command = [sys.executable, HERE / "_latency_worker.py", *join, "--name", f"w{number}"]
        return Child(f"worker-{number}", command, self._folder)


@dataclass(frozen=True)
class Study:
    """The shared settings of all runs."""

    output: Path
    updates: int
    median: float
    tests: int
    groups: int
    turns: int
    workers: int
    clone: int
    team: StudyTeam
    last: int

    @property
    def batch(self) -> list[Any]:
        """The options of a run for its batches."""
        size = ["--groups_per_batch", self.groups, "--per_device_train_batch_size", self.groups * SIZE // 4]
        alone = ["--generation_rows", 1] if self.turns else []  # turns that end at different times are sampled alone
        return [*BATCH, *size, *alone]

    def warm_start(self, seed: int) -> Path:
        """Create the initial weights of a seed's runs, if they do not exist."""
        folder = self.output / f"warm-{seed}"
        if not (folder / "summary.json").exists():
            shutil.rmtree(folder, ignore_errors=True)
            tiny = ["--max_steps", STEPS, "--seed", seed, "--eval_episodes", 1, "--output_dir", folder]
            tiny += ["--warm_start_updates", self.clone, "--warm_start_validations", 1]
            finish(Child(f"warm-{seed}", [*PROGRAM, "train", "rewardflow", *ENV, *self.batch, *tiny], self.output))
        return folder / "warm_start"

    def run(self, name: str, seed: int) -> dict[str, Any]:
        """Return the results of a run; do it only if there are none yet."""
        mode = {**MODES, **PARTIAL}[name]
        folder = self.output / f"{name.replace(', ', '-').replace(' ', '_').replace('=', '')}-{seed}"
        if (folder / "figures.json").exists():
            found: dict[str, Any] = json.loads((folder / "figures.json").read_text("utf-8"))
            return found
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        team = tuple(self.team.members) if mode.models > 1 else SELVES if mode.policies > 1 else ("policy",)
        began = _core_seconds()
        self._play(folder, mode, team, seed, self.cloned(seed) if mode.models > 1 else None)
        spent = _core_seconds() - began
        figures = {"mode": name, "seed": seed, "core_seconds": spent, **self._figures(folder, team)}
        if mode.models > 1:
            before = json.loads((self.cloned(seed) / TESTS).read_text("utf-8"))
            figures["tests"] = {how: [before[how], after] for how, after in self._test_team(folder, AFTER).items()}
        (folder / "figures.json").write_text(json.dumps(figures), "utf-8")
        return figures

    def _play(self, folder: Path, mode: Mode, team: Sequence[str], seed: int, begin: Path | None) -> None:
        """Train; two models start with those in the folder `begin`, or clone if it is None."""
        acting = [*self.team.turns] if mode.models > 1 else [*SELVES, "..."]
        turns = {"turns": acting} if mode.policies > 1 else {}
        settings = folder / "flow.yaml"
        settings.write_text(yaml.safe_dump({"workers": 0, "deadline": 3000, **mode.flow, **turns}), "utf-8")
        workers, places = (1, PLACES // 2) if mode.models > 1 else (self.workers, PLACES // self.workers)
        parts = LatentParts(folder, settings, workers=workers, num_envs=places)
        parts.options = ("--median", self.median, "--turns", self.turns, "--versions", mode.versions)
        try:
            parts.start()
            if mode.models > 1:
                finish(*(self._member(folder, settings, parts, mode.rule, policy, seed, begin) for policy in team))
            else:
                finish(*(self._trainer(folder, settings, parts, mode.rule, policy, seed) for policy in team))
        finally:
            parts.close()

    def cloned(self, seed: int) -> Path:
        """Let both models of a seed clone their own turns, if they have not; return the folder of their runs."""
        folder = self.output / f"cloned-{seed}"
        if not all((folder / policy / "checkpoint").is_dir() for policy in self.team.members):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            self.team.write_models(folder, seed)
            short = replace(self, updates=1, groups=1, median=0.01)
            short._play(folder, MODES[SYNCHRONOUS[2, 2]], tuple(self.team.members), seed, None)
        if not (folder / TESTS).exists():
            (folder / TESTS).write_text(json.dumps(self._test_team(folder, BEFORE)), "utf-8")
        return folder

    def _member(
        self, folder: Path, settings: Path, parts: LatentParts, rule: str, policy: str, seed: int, begin: Path | None
    ) -> Child:
        member = self.team.members[policy]
        words = member.begin(folder, None if begin is None else begin / policy / "warm_start")
        words += ["--num_generations", SIZE, "--per_device_train_batch_size", self.groups * SIZE // 4]
        words += ["--groups_per_batch", self.groups, "--logging_steps", member.steps]
        words += ["--max_steps", member.steps * self.updates, "--save_strategy", "no", "--seed", seed]
        words += ["--dataflow", settings, "--policy", policy, *parts.trainer_options(), "--output_dir", folder / policy]
        noted = [folder / f"{policy}.times", folder / "lock"]
        options = self.team.options(policy)
        command = [sys.executable, HERE / "_study_trainer.py", rule, *noted, "train", *options, *words]
        return Child(policy, command, folder, parts.trainer_environment())

    def _test_team(self, folder: Path, moment: str) -> dict[str, float]:
        """Return the team's success on the test tasks, sampled and greedy."""
        torch.set_num_threads(1)  # as in all programs of a run
        team = Team([folder / policy for policy in self.team.members])
        return {how: team.evaluate(moment, greedy=how == GREEDY, num_episodes=self.tests)[0].success for how in HOW}

    def _trainer(self, folder: Path, settings: Path, parts: LatentParts, rule: str, policy: str, seed: int) -> Child:
        begin = ["--model", self.warm_start(seed), "--warm_start_levels", 0, "--seed", seed]
        length = ["--max_steps", STEPS * self.updates, "--logging_steps", STEPS]
        tests = ["--eval_episodes", 1 if policy in SELVES else self.tests]  # it would play all turns of the team
        flow = ["--dataflow", settings, "--policy", policy, *parts.trainer_options()]
        noted = [folder / f"{policy}.times", folder / "lock"]
        command = [sys.executable, HERE / "_study_trainer.py", rule, *noted, "train", "rewardflow", *ENV, *self.batch]
        command += [*begin, *length, *tests, *flow, "--output_dir", folder / policy]
        return Child(policy, command, folder, parts.trainer_environment())

    def _figures(self, folder: Path, team: tuple[str, ...]) -> dict[str, Any]:
        clocks, waited = [], 0.0
        for policy in team:
            lines = [json.loads(line) for line in (folder / f"{policy}.times").read_text("utf-8").splitlines()]
            asked = [line[1] for line in lines]  # the last line is the end
            clocks.append([at - asked[0] for at in asked[1 : self.updates + 1]])
            waited += sum(ready - at for _, at, ready in lines if ready is not None)
        rows = [json.loads(row) for row in (folder / team[0] / "metrics.jsonl").read_text("utf-8").splitlines()]
        rows = [row for row in rows if "success" in row]
        size = [row.get("importance/effective_sample_size", 1.0) for row in rows]
        tests = {}
        if len(team) == 1:
            summary = json.loads((folder / team[0] / "summary.json").read_text("utf-8"))
            tests = {how: [summary[when][how]["success"] for when in ("before", "after")] for how in HOW}
        return {
            "seconds": [max(at) for at in zip(*clocks, strict=True)],
            "success": [row["success"] for row in rows],
            "sample_size": mean(size[-self.last :]),
            "idle": 100 * waited / sum(clock[-1] for clock in clocks),
            "staleness": mean(row.get("staleness", 0) for row in rows) / STEPS,
            "oldest": max(row.get("staleness_max", 0) for row in rows) / STEPS,
            "dropped": 100
            * (stale := sum(row.get("dataflow/stale_groups", 0) for row in rows))
            / (stale + self.groups * self.updates),
            "versions": mean(row.get("dataflow/versions", 1) for row in rows),
            "tests": tests,
        }


SAMPLED, GREEDY = HOW = ("sampled", "greedy")


def _core_seconds() -> float:
    """Return the processor time of this process and of its ended children."""
    return sum(os.times()[:4])


T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""The 97.5 % quantiles of Student's t distribution for 1, 2, ... degrees of freedom."""


def interval(values: list[float]) -> str:
    """Return the mean over seeds and the half-width of its 95 % interval, by Student's t; nothing without values."""
    if len(values) < 2:
        return "".join(f"{value:.2f}" for value in values)
    return f"{mean(values):.2f} ± {T[len(values) - 2] * stdev(values) / len(values) ** 0.5:.2f}"


def level(success: Sequence[float], last: int) -> list[float]:
    """Return the mean success of each update and the ones before it, `last` in all; without the first updates."""
    window = min(last, len(success))
    return [mean(success[end - window : end]) for end in range(window, len(success) + 1)]


def seconds_to(one: Mapping[str, Any], success: float, last: int) -> float:
    """Return when the level of a run has first been `success`; it has been."""
    levels = level(one["success"], last)
    when = one["seconds"][-len(levels) :]
    return float(next(at for at, reached in zip(when, levels, strict=True) if reached >= success))


def table(found: list[dict[str, Any]], updates: int, last: int) -> None:
    """Print the results of all runs."""
    by = {(one["mode"], one["seed"]): one for one in found}
    heads = ("seconds", "times as fast", "seconds to equal success", "times as fast", "core-seconds", "idle, %",
             f"success, first {last} updates", f"last {last}", "gain", "last minus synchronous",
             "tests, sampled", "gain", "minus synchronous", "tests, greedy", "gain", "minus synchronous",
             "effective sample size")  # fmt: skip
    print(f"| {updates} updates | {' | '.join(heads)} |")
    print("|---" * (1 + len(heads)) + "|")
    for name, mode in MODES.items():
        runs = [one for one in found if one["mode"] == name]
        if not runs:
            continue
        synchronous = SYNCHRONOUS[mode.policies, mode.models]
        pairs = [(one, by[synchronous, one["seed"]]) for one in runs if (synchronous, one["seed"]) in by]
        equal: dict[int, float] = {}
        for one in found:
            if (other := MODES[one["mode"]]) and (other.policies, other.models) == (mode.policies, mode.models):
                equal[one["seed"]] = min(equal.get(one["seed"], 1.0), level(one["success"], last)[-1])
        begun = [100 * mean(one["success"][:last]) for one in runs]
        ended = [100 * mean(one["success"][-last:]) for one in runs]
        cells = [
            [one["seconds"][-1] for one in runs],
            [other["seconds"][-1] / one["seconds"][-1] for one, other in pairs],
            [seconds_to(one, equal[one["seed"]], last) for one in runs],
            [
                seconds_to(other, equal[one["seed"]], last) / seconds_to(one, equal[one["seed"]], last)
                for one, other in pairs
            ],
            [one["core_seconds"] for one in runs],
            [one["idle"] for one in runs],
            begun,
            ended,
            [after - before for before, after in zip(begun, ended, strict=True)],
            [100 * (mean(one["success"][-last:]) - mean(other["success"][-last:])) for one, other in pairs],
        ]
        for how in HOW:
            tested = [one["tests"][how] for one in runs if one["tests"]]
            gaps = [(one["tests"][how][1], other["tests"][how][1]) for one, other in pairs if one["tests"]]
            cells += [[100 * after for _, after in tested], [100 * (after - before) for before, after in tested]]
            cells.append([100 * (one - other) for one, other in gaps])
        shown = [*map(interval, cells), f"{mean(one['sample_size'] for one in runs):.2f}"]
        print(f"| {name} | {' | '.join(shown)} |")


def partial_table(found: list[dict[str, Any]], updates: int, last: int) -> None:
    """Print what episodes that go on with newer weights change, with differences of pairs of runs."""
    kinds = ("seconds", "idle", "staleness", "oldest", "dropped", "versions", "success", "tests", "sample_size")
    print(f"| {updates} updates | {' | '.join(kinds)} |")
    print("|---" * (1 + len(kinds)) + "|")

    def of(one: dict[str, Any], kind: str) -> float:
        values = {
            **one,
            "seconds": one["seconds"][-1],
            "success": 100 * mean(one["success"][-last:]),
            "tests": 100 * one["tests"]["sampled"][1],
        }
        return float(values[kind])

    by = {(one["mode"], one["seed"]): one for one in found}
    for name in PARTIAL:
        runs = [one for one in found if one["mode"] == name]
        other = name.removesuffix(", partial")
        pairs = [(one, by[other, one["seed"]]) for one in runs if other != name and (other, one["seed"]) in by]
        if runs:
            print(f"| {name} | {' | '.join(interval([of(one, kind) for one in runs]) for kind in kinds)} |")
        if pairs:
            gaps = (interval([of(one, kind) - of(other, kind) for one, other in pairs]) for kind in kinds)
            print(f"| minus {other} | {' | '.join(gaps)} |")


def main() -> None:
    """Do all runs, and print the table."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=Path("runs/study"), help="existing runs are not repeated")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time (default 1)")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=48)
    parser.add_argument("--median", type=float, default=0.4, help="median duration of an episode in seconds")
    parser.add_argument("--tests", type=int, default=300, help="test tasks")
    parser.add_argument("--groups", type=int, default=16, help="tasks of a batch")
    parser.add_argument("--turns", type=int, default=0, help="turns among which the duration is shared out")
    parser.add_argument("--workers", type=int, default=4, help="processes that share the 64 parallel episodes")
    parser.add_argument("--clone", type=int, default=1000, help="updates of behaviour cloning before")
    parser.add_argument("--last", type=int, default=8, help="updates of which the first and last success are means")
    parser.add_argument("--model", type=Path, help="the folder of a pretrained answerer, for the modes of two models")
    parser.add_argument("--only", nargs="*", metavar="MODE")
    parser.add_argument("--partial", action="store_true", help="compare episodes with and without newer weights")
    chosen = parser.parse_args()
    modes = PARTIAL if chosen.partial else MODES
    chosen.output.mkdir(parents=True, exist_ok=True)
    study = Study(
        chosen.output, chosen.updates, chosen.median, chosen.tests, chosen.groups, chosen.turns, chosen.workers,
        chosen.clone, with_pretrained(chosen.model) if chosen.model else TINY, chosen.last,
    )  # fmt: skip
    with ProcessPoolExecutor(chosen.jobs) as pool:  # each knows the processor time of its own run only
        names = chosen.only or [*modes]
        if any(modes[name].models == 1 for name in names):
            list(pool.map(study.warm_start, range(chosen.seeds)))
        if any(modes[name].models > 1 for name in names):
            list(pool.map(study.cloned, range(chosen.seeds)))
        cells = [(name, seed) for seed in range(chosen.seeds) for name in names]
        cells.sort(key=lambda cell: modes[cell[0]].flow["staleness"])  # the longest first
        futures = [pool.submit(study.run, *cell) for cell in cells]
        found = []
        for cell, future in zip(cells, futures, strict=True):
            try:
                found.append(future.result())
                print(f"{cell}: {found[-1]['seconds'][-1]:.0f} s", file=sys.stderr, flush=True)
            except ChildFailed as error:
                print(f"{cell}: {error}", file=sys.stderr, flush=True)
    (partial_table if chosen.partial else table)(found, chosen.updates, chosen.last)


if __name__ == "__main__":
    main()

"""Why a run does not learn: causes that its folder shows, each with its evidence and the setting to change.

A cause is an entry of `causes.toml`: what it means, its evidence, the setting to change, and the harm from which it is
reported. The function of its name in `agentgym_flow.report.causes` computes the harm. Thresholds were chosen on the
runs `tune` of `benchmarks/explain.py`, and measured on others.
"""

from __future__ import annotations

import gzip
import json
import math
import tomllib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from agentgym_flow._util.values import settings_in
from agentgym_flow.errors import BadData
from agentgym_flow.report.causes import HARMS, SEVERE

Metrics = Mapping[str, list[tuple[int, float]]]
"""Metric -> pairs of optimizer step and value."""


class Expert(NamedTuple):
    """How the environment's expert does on some training tasks with the settings of a run.

    Attributes:
        success: its success rate.
        steps: the mean number of its steps.
        budget: the number of steps that an episode may have.
    """

    success: float
    steps: float
    budget: int


class EvaluationLog(NamedTuple):
    """What is read of an episode log: its first line, and the numbers of all its tasks."""

    first: Mapping[str, Any]
    tasks: frozenset[str]


@dataclass(frozen=True)
class RunRecord:
    """What is read of a run.

    Attributes:
        settings: the content of `config.yaml`.
        summary: the content of `summary.json`.
        metrics: the records of `metrics.jsonl` by metric.
        cloned: the record of the warm start; None without one.
        own: the log of one of the run's own evaluations; None without one.
        other: the log of another evaluation; None if none is given.
        audit: the content of an `audit.json`; None if none is given.
        expert: see `Expert`; None if it is unknown.
    """

    settings: Mapping[str, Any]
    summary: Mapping[str, Any]
    metrics: Metrics
    cloned: Mapping[str, Any] | None = None
    own: EvaluationLog | None = None
    other: EvaluationLog | None = None
    audit: Mapping[str, Any] | None = None
    expert: Expert | None = None
    missing: set[str] = field(default_factory=set)

    @classmethod
    def read(
        cls, folder: Path, *, log: Path | None = None, audit: Path | None = None, expert: Expert | None = None
    ) -> RunRecord:
        """Read a run folder, an episode log of another evaluation, and the JSON of a credit audit.

        Raises:
            BadData: the folder has no run, or a file is damaged.
            MissingExtra: PyYAML is not installed.
        """
        settings = settings_in(folder / "config.yaml", BadData)
        if not settings:
            raise BadData(f"{folder} is not the folder of a run: there are no settings in config.yaml")
        found_audit = None if audit is None else _json(audit)
        if found_audit is not None and not str(found_audit.get("schema")).startswith("agentgym_flow.credit_audit/"):
            raise BadData(f"{audit} is not the audit.json of agentgym-flow credit audit")
        cloned = folder / "warm_start" / "warm_start.json"
        logs = sorted((folder / "evaluations").glob("*_sampled.jsonl.gz"))
        summary = folder / "summary.json"
        return cls(
            settings,
            _json(summary) if summary.is_file() else {},
            _metrics(folder / "metrics.jsonl"),
            _json(cloned) if cloned.is_file() else None,
            _log(logs[0]) if logs else None,
            None if log is None else _log(log),
            found_audit,
            expert,
        )

    def values(self, name: str) -> list[float]:
        """Return the values of a metric. One that is not recorded is noted as missing."""
        found = [value for _, value in self.metrics.get(name, ()) if math.isfinite(value)]
        if not found:
            self.missing.add(name)
        return found

    def mean(self, name: str) -> float | None:
        """Return the mean of a metric over the run; None if it is missing."""
        found = self.values(name)
        return sum(found) / len(found) if found else None

    def thirds(self, name: str) -> list[float]:
        """Return the means of the three thirds of a metric; empty with fewer than three values."""
        found = self.values(name)
        third = len(found) // 3
        parts = (found[:third], found[third:-third], found[-third:]) if third else ()
        return [sum(part) / len(part) for part in parts]

    def ends(self, name: str) -> tuple[float, float] | None:
        """Return the means of the first and the last third of a metric; None with fewer than three values."""
        found = self.thirds(name)
        return (found[0], found[2]) if found else None

    def start(self, name: str) -> float | None:
        """Return the mean of the first tenth of a metric, at least one value; None if it is missing."""
        found = self.values(name)
        first = found[: max(1, len(found) // 10)]
        return sum(first) / len(first) if first else None

    def number(self, name: str, default: float = 0.0) -> float:
        """Return a setting that is a number."""
        value = self.settings.get(name)
        return default if value is None else float(value)

    def part(self, moment: str, name: str) -> Mapping[str, Any]:
        """Return a part of the evaluation `before` or `after` training; empty if there is none."""
        return self.summary.get(moment, {}).get(name, {})  # type: ignore[no-any-return]

    def evaluated(self, moment: str, name: str, part: str = "sampled") -> float | None:
        """Return a figure of the evaluation `before` or `after` training; None if there is none."""
        value = self.part(moment, part).get(name)
        return None if value is None else float(value)

    @property
    def compares_returns(self) -> bool:
        """Whether credit compares returns in place of success."""
        settings = self.settings.get("credit_settings") or {}
        return bool(settings.get("outcome", "success") == "return" or self.settings.get("reward") == "structure")

    @property
    def cosines(self) -> dict[str, dict[str, float]]:
        """The cosines of the audit's credit functions with the exact gradient: for one group, and for many."""
        rows = self.audit["credit"] if self.audit else ()
        return {
            "one group": {row["name"]: float(row["one"]["value"]) for row in rows if row.get("one")},
            "many groups": {row["name"]: float(row["many"]) for row in rows if row.get("many") is not None},
        }

    @property
    def differences(self) -> list[str]:
        """What another evaluation has other than the run's own: environment, settings, split, prompts, tasks."""
        if self.own is None or self.other is None:
            return []
        own, other = self.own.first, self.other.first
        names = ("env_id", "data", "max_steps", "split")
        pairs = {name: (own.get(name), other.get(name)) for name in names}
        ours, theirs = own.get("kwargs") or {}, other.get("kwargs") or {}
        pairs |= {name: (ours.get(name), theirs.get(name)) for name in sorted({*ours, *theirs})}
        meta = other.get("meta") or {}
        pairs |= {name: (self.settings.get(name), meta[name]) for name in ("template", "layout") if name in meta}
        found = [f"{name}: {new!r} in place of {old!r}" for name, (old, new) in pairs.items() if old != new]
        # The smaller of two evaluations plays the first tasks of the greater one.
        fewer, both = min(map(len, (self.own.tasks, self.other.tasks))), len(self.own.tasks & self.other.tasks)
        return found if found or both >= 0.8 * fewer else [f"{both} of {fewer} tasks are the same"]


def _metrics(path: Path) -> dict[str, list[tuple[int, float]]]:
    """Return the metrics in a file, without damaged lines, as of a killed process, and values that are not numbers."""
    metrics: dict[str, list[tuple[int, float]]] = {}
    for line in path.read_text("utf-8", errors="replace").splitlines() if path.is_file() else ():
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if not isinstance(record, dict) or not isinstance(step := record.get("step"), int):
            continue
        for name, value in record.items():
            if value is None or isinstance(value, float) or (isinstance(value, int) and abs(value) < 1 << 63):
                metrics.setdefault(name, []).append((step, math.nan if value is None else float(value)))
    return metrics


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise BadData(f"{path} cannot be read ({error})") from error
    if not isinstance(found, dict):
        raise BadData(f"{path} must be a JSON object")
    return found


def _log(path: Path) -> EvaluationLog:
    """Read a log, whose end may be missing or damaged."""
    first: dict[str, Any] = {}
    tasks = set()
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            for line in file:
                one = json.loads(line)
                if not str(one["schema"]).startswith("agentgym_flow.episode/"):
                    raise ValueError("it has another schema")
                first = first or one
                tasks.add(str(one.get("task")))
    except (OSError, EOFError, LookupError, TypeError, ValueError, zlib.error) as error:
        if not first:
            raise BadData(f"{path} is not an episode log ({error})") from error
    if not first:
        raise BadData(f"{path} is not an episode log (it is empty)")
    return EvaluationLog(first, frozenset(tasks))


# ---------------------------------------------------------------- what is said
class Cause(NamedTuple):
    """A cause: its name, what it means, the metrics and settings that are its evidence, what to change, a threshold.

    `needs` says what must be given to judge it, where metrics are not enough.
    """

    name: str
    about: str
    reads: tuple[str, ...]
    change: str
    threshold: float
    needs: str = ""


class FoundCause(NamedTuple):
    """A cause that is at work, with its evidence and the setting to change."""

    cause: str
    about: str
    harm: float
    evidence: list[str]
    change: str


class Explanation(NamedTuple):
    """What holds a run back, worst first; and the causes that could not be judged, with what is missing."""

    findings: list[FoundCause]
    not_judged: dict[str, str]


def causes() -> list[Cause]:
    """Return all causes, in causal order."""
    table = tomllib.loads(Path(__file__).with_name("causes.toml").read_text("utf-8"))
    return [Cause(name, **{**row, "reads": tuple(row["reads"])}) for name, row in table.items()]


def explain(run: RunRecord) -> Explanation:
    """Return what holds a run back, worst first: severe causes before lesser ones, and each part in causal order."""
    findings, not_judged = [], {}
    for cause in causes():
        run.missing.clear()
        try:
            harm = HARMS[cause.name](run)
            if harm is None:
                not_judged[cause.name] = cause.needs or ", ".join(sorted(run.missing)) or "too few updates"
            elif harm >= cause.threshold:
                shown = _evidence(run, cause)
                findings.append(FoundCause(cause.name, cause.about, min(1.0, harm), shown, cause.change))
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            not_judged[cause.name] = f"intact settings and results ({type(error).__name__}: {error})"
    findings.sort(key=lambda one: one.harm < SEVERE)
    return Explanation(findings, not_judged)


def _evidence(run: RunRecord, cause: Cause) -> list[str]:
    """Return the figures behind a cause: metrics with the updates at which they were read, settings and others."""
    told = []
    if cause.name in ("lost", "failed", "large_steps") and "error" in run.summary:
        told.append(str(run.summary["error"]))
    if cause.name in ("truncated", "too_hard") and run.expert is not None:
        success, steps, budget = run.expert
        told.append(f"the expert succeeds in {success:.0%} of some training tasks, with {steps:.1f} steps of {budget}")
    if cause.name == "warm_start" and run.cloned is not None:
        told.append("loss of cloning {:.3g}, and {:.3g} at its end".format(*(run.cloned["losses"][n] for n in (0, -1))))
    if cause.name == "too_easy":
        further = {name: one["success"] for name, one in run.part("after", "also_on").items()}
        told += [f"success {value:.1%} on {name}" for name, value in further.items()]
    if (tested := run.evaluated("after", "success")) is not None and cause.name in ("too_easy", "few_tasks"):
        told.append(f"success {tested:.1%} on test tasks")
    if cause.name == "audit":
        told += [
            f"cosine for {what}: " + ", ".join(f"{name} {value:.2f}" for name, value in cosines.items())
            for what, cosines in run.cosines.items()
        ]
    if cause.name == "evaluation":
        told += run.differences
    for name in cause.reads:
        if points := run.metrics.get(name):
            (first, old), (last, new) = points[0], points[-1]
            told.append(
                f"{name} {old:.3g} at update {first}" + (f", {new:.3g} at update {last}" if last > first else "")
            )
        elif name in run.settings:
            told.append(f"{name}: {run.settings[name]}")
    return told

"""The outcome of one run of a comparison as plain data: one line of the results, from which all tables are made."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from agentgym_flow._util.files import write_atomically
from agentgym_flow.errors import BadData
from baselines.comparison.plan import REFERENCES

SCHEMA, TUNING = "agentgym_flow.comparison/1", "agentgym_flow.tuning/1"
"""The formats of the results of a comparison and of a tuning."""

HEADER: Mapping[str, Sequence[str]] = {
    SCHEMA: ("command", "env_id", "algos", "seeds", "settings"),
    TUNING: ("command", "env_id", "algos", "count", "seed", "setting", "episodes", "settings", "trials"),
}
"""What the header of results must have, by format."""

SHAPE = ("about", "num_generations", "tasks", "batches", "warm_start", "settings")
"""What each setting in the header of a comparison must have."""

DENSE = ("gigpo", "rewardflow", "graphgpo", "g2po", "gagpo", "hgpo")
"""Credit functions with an advantage for every turn."""


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a learning curve: steps, with those of continuations, and episodes played, and validation success.

    `core_seconds` is the processor time of training until then, including validations; None in results from before it
    was recorded.
    """

    env_steps: int
    episodes: int
    valid_success: float
    core_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one finished run.

    Attributes:
        group, name, seed: the cell of the plan, see `plan.Cell`.
        sampled: `1` for success and `0` for failure on the test tasks in order, with sampled actions; with several
            attempts, the first attempt at all tasks, then the second, and so on.
        greedy: the same with greedy actions. Empty for random play.
        tasks: a digest of the test tasks; only results with equal digests are compared.
        core_seconds: processor time of the whole run, including evaluation.
        learning_seconds: processor time of training, including validation.
        updates: optimizer steps.
        curve: validation success during the run; for a warm start, one point at its end.
        versions: versions of Python and packages.
        date: the day it was finished (UTC).
        score: the mean native score on the test tasks, with sampled actions; None in results from before it was
            recorded.
        greedy_score: the same with greedy actions.
        figures: further means over the test tasks by name: with sampled actions, then with greedy ones if any. For
            Canvas, scores of the designs.
        chosen: for fixed strategies, the strategies selected on validation tasks: task type -> text. The type is `""`
            if one was selected for all tasks.
        attempts: the number of attempts at each task in `sampled`.
        tokens: generated tokens of training, with those of continuations; None in results from before they were
            counted.
    """

    group: str
    name: str
    seed: int
    sampled: str
    greedy: str
    tasks: str
    core_seconds: float
    learning_seconds: float
    updates: int
    curve: Sequence[Point]
    versions: Mapping[str, str]
    date: str
    score: float | None = None
    greedy_score: float | None = None
    figures: Mapping[str, Sequence[float]] = field(default_factory=dict)
    chosen: Mapping[str, str] = field(default_factory=dict)
    attempts: int = 1
    tokens: int | None = None

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Outcome:
        """Create an outcome from the result of `asdict`. Raises `BadData` if something is missing."""
        try:
            return cls(**{**data, "curve": [Point(**point) for point in data["curve"]]})
        except (TypeError, KeyError) as error:
            raise BadData(f"this is not the outcome of a run of a comparison: {error}") from error

    def successes(self, *, greedy: bool = False) -> npt.NDArray[np.float64]:
        """Return the success of each test task, (tasks,), with sampled or greedy actions; the mean of its attempts."""
        marks = np.array([float(mark) for mark in (self.greedy if greedy else self.sampled)])
        return np.asarray(marks.reshape(1 if greedy else self.attempts, -1).mean(axis=0), dtype=np.float64)

    @property
    def success(self) -> float:
        """The success rate on test tasks, with sampled actions."""
        return self.sampled.count("1") / len(self.sampled)

    @property
    def greedy_success(self) -> float | None:
        """The success rate on test tasks, with greedy actions; None for random play."""
        return self.greedy.count("1") / len(self.greedy) if self.greedy else None

    @property
    def has_partial_scores(self) -> bool:
        """Whether the score differs from the success rate, as WebShop's does."""
        return self.score is not None and not math.isclose(self.score, self.success)


@dataclass(frozen=True)
class Raw:
    """All results of a comparison: the first line of the file describes it, the others are runs.

    Attributes:
        header: `command`, `env_id`, `algos`, `seeds`, and for each of `settings` its name, `about`, `warm_start`,
            shape, full settings, `variants` (the own settings of each algorithm) and `task_types` (the type of each
            test task if there are several); optionally the name of the file of `tuned` settings, and a `note` for
            readers. Older files, without task types, core-seconds of curves or references, are supported, and their
            pages omit them.
        outcomes: the finished runs.
    """

    header: Mapping[str, Any]
    outcomes: Sequence[Outcome] = field(default_factory=list)

    @property
    def pools(self) -> tuple[list[str], list[str]]:
        """The algorithms with an advantage for every turn, and those with one advantage for all turns of an episode.

        Each credit function is there once: with the row of its name or else with its first one. Its other rows differ
        only in settings, and would give it more weight than the other functions have.
        """
        own = {name: variant for shape in self.settings.values() for name, variant in shape.get("variants", {}).items()}
        credit_of: dict[str, str] = {algo: own.get(algo, {}).get("credit", algo) for algo in self.header["algos"]}
        row_of = {credit: algo for algo, credit in reversed(credit_of.items())}
        row_of |= {algo: algo for algo, credit in credit_of.items() if algo == credit}
        once = [algo for algo, credit in credit_of.items() if row_of[credit] == algo]
        return [a for a in once if credit_of[a] in DENSE], [a for a in once if credit_of[a] not in DENSE]

    @property
    def settings(self) -> Mapping[str, Mapping[str, Any]]:
        """The compared settings by name."""
        found: Mapping[str, Mapping[str, Any]] = self.header["settings"]
        return found

    def runs(self, setting: str, name: str) -> dict[int, Outcome]:
        """Return the runs of a row in a setting, by seed."""
        # Warm starts and references have their own group, which several settings may share.
        groups = (setting, self.settings[setting]["warm_start"])
        return {o.seed: o for o in self.outcomes if o.name == name and o.group in groups}

    def paired(self, setting: str, name: str) -> dict[int, Outcome]:
        """Return the runs for comparisons by seed, with the single run of a reference repeated for every seed."""
        runs = self.runs(setting, name)
        return dict.fromkeys(self.header["seeds"], runs[0]) if name in REFERENCES and runs else runs


def write_raw(path: Path, raw: Raw, schema: str = SCHEMA) -> None:
    """Write all results as JSON lines. Raises `OSError`."""
    lines = [{"schema": schema, **raw.header}, *(asdict(outcome) for outcome in raw.outcomes)]
    with write_atomically(path) as partial:
        partial.write_text("".join(json.dumps(line, allow_nan=False) + "\n" for line in lines), "utf-8")


def read_raw(path: Path, schema: str = SCHEMA) -> Raw:
    """Read a file of `write_raw`. Raises `BadData` if it is missing or malformed."""
    try:
        header, *lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise BadData(f"{path} has no results of a comparison: {error}") from error
    if not isinstance(header, dict) or header.pop("schema", None) != schema:
        raise BadData(f"{path} does not begin with schema {schema}")
    if lacking := _lacking(header, schema):
        raise BadData(f"{path}: the first line lacks {', '.join(lacking)}: make the results again")
    if not lines:
        raise BadData(f"{path} has no runs")
    return Raw(header, [Outcome.of(line) for line in lines])


def _lacking(header: Mapping[str, Any], schema: str) -> list[str]:
    """Return what a header lacks; that of a comparison describes each setting."""
    lacking = [name for name in HEADER[schema] if name not in header]
    if lacking or schema != SCHEMA:
        return lacking
    shapes = header["settings"]
    if not isinstance(shapes, Mapping) or not shapes:
        return ["settings"]
    has = {name: shape if isinstance(shape, Mapping) else {} for name, shape in shapes.items()}
    return [f"{key} of setting {name}" for name, shape in has.items() for key in SHAPE if key not in shape]

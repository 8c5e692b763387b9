"""What one run of a comparison found, as plain data: one line of the raw figures, from which every table is made."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from agentgym_flow._util.files import whole
from agentgym_flow.errors import BadData
from baselines.comparison.plan import REFERENCES

SCHEMA = "agentgym_flow.comparison/1"


@dataclass(frozen=True, slots=True)
class Point:
    """A moment of a training run: what it had played by then, and its success on validation tasks.

    `core_seconds` is the processor time of learning until then, earlier validations included; None in figures from
    before it was recorded.
    """

    env_steps: int
    episodes: int
    valid_success: float
    core_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """One finished run.

    Attributes:
        group, name, seed: which cell of the plan, see `plan.Cell`.
        sampled: the test tasks in order, `1` for a success and `0` otherwise; actions sampled.
        greedy: the same with the most likely actions. Empty for random play, which has none.
        tasks: a digest of the test tasks; figures are compared only where it is the same.
        core_seconds: processor time of the whole run, with its evaluations.
        learning_seconds: processor time of learning alone, with its validations.
        updates: optimizer steps.
        curve: validation success during the run; of a warm start, one point at its end.
        versions: what it ran with.
        date: the day it was finished (UTC).
        score: the mean native score of the test tasks, actions sampled; None in figures from before it was recorded.
        greedy_score: the same with the most likely actions.
        figures: further means over the test tasks by name: with sampled actions, and with the most likely ones where
            there are such. Of Canvas, what the designs are worth.
        chosen: of fixed strategies, which was chosen on validation tasks: task type -> its text; the type is `""` where
            one was chosen for all tasks.
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

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Outcome:
        """Read what `asdict` gave. Raises `BadData` when something is missing."""
        try:
            return cls(**{**data, "curve": [Point(**point) for point in data["curve"]]})
        except (TypeError, KeyError) as error:
            raise BadData(f"this is not the outcome of a run of a comparison: {error}") from error

    def successes(self, *, greedy: bool = False) -> npt.NDArray[np.float64]:
        """Return 1 or 0 for each test task, (tasks,), with sampled or with the most likely actions."""
        return np.array([float(mark) for mark in (self.greedy if greedy else self.sampled)])

    @property
    def success(self) -> float:
        """The share of test tasks achieved, actions sampled."""
        return self.sampled.count("1") / len(self.sampled)

    @property
    def greedy_success(self) -> float | None:
        """The share of test tasks achieved with the most likely actions; None for random play."""
        return self.greedy.count("1") / len(self.greedy) if self.greedy else None

    @property
    def has_partial_scores(self) -> bool:
        """Whether the score says more than the success: WebShop's does."""
        return self.score is not None and not math.isclose(self.score, self.success)


@dataclass(frozen=True)
class Raw:
    """All figures of a comparison: the first line of the file says what was compared, the others are runs.

    Attributes:
        header: `command`, `env_id`, `algos`, `seeds`, and for each of `settings` its name, `about`, `warm_start`,
            shape, full settings and `task_types`, the type of each test task where there are several; perhaps the name
            of the file of `tuned` settings, and a `note` for readers. Files from before task types, curves against
            core-seconds and references were recorded are read, and their pages go without.
        outcomes: the finished runs.
    """

    header: Mapping[str, Any]
    outcomes: Sequence[Outcome] = field(default_factory=list)

    @property
    def settings(self) -> Mapping[str, Mapping[str, Any]]:
        """The compared situations by name."""
        found: Mapping[str, Mapping[str, Any]] = self.header["settings"]
        return found

    def runs(self, setting: str, name: str) -> dict[int, Outcome]:
        """Return the runs of a row in a setting, by seed."""
        # Warm starts and references have a group of their own: several settings may share it.
        groups = (setting, self.settings[setting]["warm_start"])
        return {o.seed: o for o in self.outcomes if o.name == name and o.group in groups}

    def paired(self, setting: str, name: str) -> dict[int, Outcome]:
        """Return the same for comparisons by seed: a reference is the same whatever the seed of the others."""
        runs = self.runs(setting, name)
        return dict.fromkeys(self.header["seeds"], runs[0]) if name in REFERENCES and runs else runs


def write_raw(path: Path, raw: Raw, schema: str = SCHEMA) -> None:
    """Write all figures as JSON lines. Raises `OSError`."""
    lines = [{"schema": schema, **raw.header}, *(asdict(outcome) for outcome in raw.outcomes)]
    with whole(path) as partial:
        partial.write_text("".join(json.dumps(line, allow_nan=False) + "\n" for line in lines), "utf-8")


def read_raw(path: Path, schema: str = SCHEMA) -> Raw:
    """Read what `write_raw` wrote. Raises `BadData` when the file is missing or something else."""
    try:
        header, *lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise BadData(f"{path} has no figures of a comparison: {error}") from error
    if not isinstance(header, dict) or header.pop("schema", None) != schema:
        raise BadData(f"{path} does not begin with schema {schema}")
    if not lines:
        raise BadData(f"{path} has no runs")
    return Raw(header, [Outcome.of(line) for line in lines])

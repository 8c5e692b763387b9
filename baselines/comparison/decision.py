"""Seeds until a difference is decided: registered before the first run, looked at a few times, planned from variances.

Two algorithms are compared by the difference D of their final test success, paired by seed (warm start, tasks, random
streams) and taken at the last checkpoint. The unit is the seed. `LOOKS` says after how many seeds somebody looks, and
what ends the comparison there: the candidate is ahead if Student's t of D is above `threshold`, and it is given up if
the mean of D is below `futile` percentage points. The thresholds spend a one-sided error of 2.5 % over the three looks.

After the last look, or for other plans, the e-value of `seeds_e_value` allows more seeds at will: it may be looked at
after every seed, and equal algorithms reach 20 with a probability of at most 5 % (P. Grünwald and others, *Safe
testing*, arXiv:1906.07801; the t statistic as in arXiv:2310.03722, with Gaussian D).
"""

from __future__ import annotations

import bisect
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from agentgym_flow._util.intervals import t_quantile
from agentgym_flow.errors import BadData, BadSetting
from agentgym_flow.leaderboard.comparison import DECIDES
from baselines.comparison.outcome import Raw
from baselines.comparison.plan import Plan

SCHEMA = "agentgym_flow.registration/1"
POWER = 0.8
"""The probability with which a planned comparison finds the difference that it was planned for."""

MOST_SEEDS = 1000


class Look(NamedTuple):
    """One look at the differences: after how many seeds, and what ends the comparison there."""

    seeds: int
    threshold: float
    futile: float | None


LOOKS = (Look(5, 10.1, 0.0), Look(10, 3.03, 0.8), Look(15, 2.20, None))
"""One-sided 2.5 % in all; without a difference 8 seeds are played on average, and 15 at most."""


class Found(NamedTuple):
    """What a comparison has found so far.

    Attributes:
        verdict: `ahead`, `futile`, `undecided` (the last look is over) or `open` (seeds are missing).
        seeds: pairs of runs looked at.
        mean: the mean difference in percentage points.
        t: Student's t of the differences; NaN for a single one.
        e_value: see `seeds_e_value`.
        margin: how many points the candidate may be behind; t and e-value are of the mean plus this.
    """

    verdict: str
    seeds: int
    mean: float
    t: float
    e_value: float
    margin: float = 0.0

    def __str__(self) -> str:
        verdict, of = self.verdict, ""
        if self.margin:
            verdict = verdict.replace("ahead", f"not {self.margin:g} points behind")
            of = f" for {-self.margin:g} points"
        return (
            f"{verdict} after {self.seeds} seeds: {self.mean:+.2f} points, t{of} = {self.t:.2f}, "
            f"e-value {self.e_value:.3g} ({DECIDES:.0f} decides)"
        )


def seeds_e_value(differences: Sequence[float]) -> float:
    """Return the e-value against a mean of 0, for differences that are normally distributed; 1 for fewer than two."""
    values = np.asarray(differences, dtype=np.float64)
    number = len(values)
    if number < 2:
        return 1.0
    spread = float(values.std(ddof=1))
    if spread == 0:
        return 1.0 if not values.any() else math.inf
    t, freedom, grown = float(values.mean()) / spread * math.sqrt(number), number - 1, 1 + number
    ratio = (1 + t * t / freedom) / (1 + t * t / (freedom * grown))
    return float(grown**-0.5 * ratio ** ((freedom + 1) / 2))


def decide(differences: Sequence[float], looks: Sequence[Look] = LOOKS, margin: float = 0.0) -> Found:
    """Return what the differences, in percentage points and in the order of seeds, decide at the looks.

    With a margin, the question is whether the candidate is less than so many points behind, instead of ahead.

    Differences beyond the look at which the comparison ended, or beyond the last look, add to the e-value only. It
    decides alone once it has reached 20 after the last look.
    """
    values = np.asarray(differences, dtype=np.float64)
    for look in looks:
        if len(values) < look.seeds:
            return _found("open", values, margin)
        found = _found("ahead", values[: look.seeds], margin)
        if found.t > look.threshold:
            return found
        if look.futile is not None and found.mean + margin < look.futile:
            return found._replace(verdict="futile")
    found = _found("undecided", values, margin)
    more = len(values) > looks[-1].seeds and found.e_value >= DECIDES and found.mean + margin > 0
    return found._replace(verdict="ahead") if more else found


def _found(verdict: str, values: npt.NDArray[np.float64], margin: float) -> Found:
    number, values = len(values), values + margin
    mean, t = float(values.mean()) if number else math.nan, math.nan
    if number > 1:
        spread = float(values.std(ddof=1)) / math.sqrt(number)
        t = mean / spread if spread else math.copysign(math.inf, mean) if mean else 0.0
    return Found(verdict, number, mean - margin, t, seeds_e_value(values.tolist()), margin)


# ---------------------------------------------------------------- registration
@dataclass(frozen=True)
class Registration:
    """What a comparison will look at, written before its first run.

    Attributes:
        env_id, reference, candidate: what is compared; the claim is that the candidate is ahead, or with a margin,
            less than so many points behind.
        metric: the difference that decides: final test success with `sampled` actions of the last checkpoint.
        setting: the name of the setting.
        made_with: everything that both have in common, and what each has of its own.
        looks: see `Look`.
        day: the day of the registration.
        margin: in percentage points. With one, there is one look, and 95 % intervals over seeds decide.
        first_seed: the seeds are this one and those after it. New seeds can confirm what old ones hinted at.
    """

    env_id: str
    reference: str
    candidate: str
    metric: str
    setting: str
    made_with: Mapping[str, Any]
    looks: Sequence[Look]
    day: str
    margin: float = 0.0
    first_seed: int = 0

    @classmethod
    def of(cls, plan: Plan, margin: float = 0.0) -> Registration:
        """Register a plan of two algorithms in one setting; a margin needs the plan's number of seeds.

        Raises `BadSetting` for any other plan.
        """
        if len(plan.algos) != 2 or len(plan.settings) != 1:
            raise BadSetting(
                "a decision is between two algorithms in one setting: --algos REFERENCE,CANDIDATE --settings X"
            )
        (setting,), (reference, candidate) = plan.settings, plan.algos
        own = {name: dict(setting.own(name)) for name in plan.algos}
        shape = {"attempts": setting.num_generations, "tasks": setting.tasks, "batches": setting.batches}
        made_with = {"shared": setting.lasting, "own": own, "shape": shape}
        day, seeds = date.today().isoformat(), len(plan.seeds)
        looks: Sequence[Look] = LOOKS
        if margin < 0 or (margin and seeds < 2):
            raise BadSetting("--margin is a number of percentage points, 0 or above, and needs two --seeds at least")
        if margin:
            looks = (Look(seeds, t_quantile(seeds - 1), None),)
        first = plan.seeds[0]
        return cls(plan.env_id, reference, candidate, "sampled", setting.name, made_with, looks, day, margin, first)

    @property
    def digest(self) -> str:
        """The SHA-256 of everything in it, which the results name."""
        plain = json.dumps(self._body, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(plain.encode()).hexdigest()

    @property
    def _body(self) -> dict[str, Any]:
        later = ("margin", "first_seed")  # older files do not have them
        return {name: value for name, value in asdict(self).items() if value or name not in later}

    def write(self, path: Path) -> None:
        """Write a new file. Raises `BadSetting` if it exists: a registration is never replaced."""
        body = {"schema": SCHEMA, "digest": self.digest, **self._body}
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(json.dumps(body, indent=1) + "\n")
        except FileExistsError:
            raise BadSetting(f"{path} exists, and a registration is never replaced: choose another name") from None

    @classmethod
    def read(cls, path: Path) -> Registration:
        """Read a file of `write`. Raises `BadData` if it is malformed or was changed."""
        try:
            body = json.loads(path.read_text("utf-8"))
            if body.pop("schema") != SCHEMA:
                raise ValueError("another schema")
            digest, looks = body.pop("digest"), [Look(*look) for look in body.pop("looks")]
            found = cls(**body, looks=looks)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadData(f"{path} is not a registration of a comparison: {error}") from error
        if found.digest != digest:
            raise BadData(
                f"{path} was changed after it was registered: its digest is {found.digest[:12]}, not {digest[:12]}"
            )
        return found

    def check(self, plan: Plan) -> None:
        """Raise `BadSetting` unless a plan is the one that was registered."""
        now = Registration.of(plan)
        for name, was in asdict(self).items():
            if name not in ("looks", "day", "margin") and (got := asdict(now)[name]) != was:
                raise BadSetting(
                    f"{name} is not what was registered ({got!r:.200} for {was!r:.200}): register a new comparison"
                )


def differences(raw: Raw, registration: Registration) -> list[float]:
    """Return candidate minus reference in percentage points, by seed, until the first seed that lacks one of them."""
    sides = [raw.runs(registration.setting, name) for name in (registration.candidate, registration.reference)]
    found: list[float] = []
    while all((seed := registration.first_seed + len(found)) in side for side in sides):
        a, b = (side[seed] for side in sides)
        if a.tasks != b.tasks:
            raise BadData(f"the runs of seed {seed} were not evaluated on the same tasks: run one of them again")
        found.append(100 * float((a.successes() - b.successes()).mean()))
    return found


# ---------------------------------------------------------------- planning
class Components(NamedTuple):
    """The standard deviations of a paired difference, in percentage points: of seeds, of tasks and of what is left.

    The variance of the mean over n seeds and T tasks is seeds^2 / n + tasks^2 / T + residual^2 / (n T).
    """

    seeds: float
    tasks: float
    residual: float

    @classmethod
    def of(cls, table: npt.ArrayLike) -> Components:
        """Estimate them from differences in success, (seeds, tasks), two of each at least; none is below 0."""
        values = 100 * np.asarray(table, dtype=np.float64)
        if values.ndim != 2 or min(values.shape) < 2:
            raise BadSetting(f"variances need two seeds and two tasks at least, got a table of {values.shape}")
        runs, tasks = values.shape
        by_run, by_task = values.mean(axis=1, keepdims=True), values.mean(axis=0, keepdims=True)
        left = ((values - by_run - by_task + values.mean()) ** 2).sum() / ((runs - 1) * (tasks - 1))
        of_runs, of_tasks = by_run.var(ddof=1) - left / tasks, by_task.var(ddof=1) - left / runs
        return cls(*(math.sqrt(max(0.0, float(variance))) for variance in (of_runs, of_tasks, left)))

    def seeds_for(self, points: float, tasks: int) -> int | None:
        """Return the seeds that find a difference with 80 % power, two-sided at 5 %; None if 1,000 do not."""

        def enough(number: int) -> bool:
            variance = self.seeds**2 / number + self.tasks**2 / tasks + self.residual**2 / (number * tasks)
            needed = t_quantile(number - 1) + t_quantile(number - 1, POWER)
            return points >= needed * math.sqrt(variance)

        found = bisect.bisect_left(range(2, MOST_SEEDS + 1), True, key=enough) + 2
        return found if found <= MOST_SEEDS else None


class Design(NamedTuple):
    """Seeds and test tasks of a planned comparison, with its cost in core-hours for both algorithms."""

    seeds: int
    tasks: int
    core_hours: float


def cheapest(components: Components, points: float, training: float, playing: float, most: int) -> Design | None:
    """Return the cheapest design that finds a difference of `points`; None if no number of tasks up to `most` does.

    Args:
        components: the variances of the difference.
        points: the difference in percentage points.
        training: core-seconds of one training run.
        playing: core-seconds of one test task, sampled and greedy.
        most: the number of test tasks that there are.
    """
    found = []
    for tasks in sorted({*(number for number in (100, 200, 500, 1000, 2000, 5000) if number < most), most}):
        seeds = components.seeds_for(points, tasks)
        if seeds is not None:
            found.append(Design(seeds, tasks, 2 * seeds * (training + tasks * playing) / 3600))
    return min(found, key=lambda design: (design.core_hours, design.seeds), default=None)

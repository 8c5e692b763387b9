"""The verdict of CI on a submission."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from agentgym_flow import __version__
from agentgym_flow._util.files import write_atomically
from agentgym_flow._util.values import decode_file
from agentgym_flow.errors import BadSubmission
from agentgym_flow.leaderboard import schemas
from agentgym_flow.leaderboard.coverage import Claims
from agentgym_flow.leaderboard.places import ROOT, SUBMISSIONS
from agentgym_flow.leaderboard.statistics import clustered_mean
from agentgym_flow.leaderboard.submission import ATTESTED
from agentgym_flow.leaderboard.track import Track

SCHEMA = "agentgym_flow.verdict/1"
"""The `schema` of a verdict."""

AGAIN = "agentgym-flow leaderboard check {folder}"
"""The command that repeats the checks. It draws the same fresh tasks once the season's secret is revealed."""

AGAIN_ATTESTED = "agentgym-flow leaderboard rescore {folder} --model WEIGHTS --share 0.02 --seed ANYTHING"
"""The command that rescores a random share of an attested entry's completions with the open weights."""

CHECKS = ("files", "track", "rules", "coverage", "steps", "completions", "weights", "score")
"""The checks in their order; a rejection names the one that failed."""


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean with its 95 % interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Reason:
    """The reason for a rejection: one of `CHECKS`, and its message."""

    check: str
    message: str


@dataclass(frozen=True, slots=True)
class DivergencePoint:
    """The first difference between a log and the environment: line, number of the action (0 is the start), field."""

    line: int
    step: int
    what: str


@dataclass(frozen=True, slots=True)
class SubmissionVerdict:
    """A verdict. The fields are those of the schema `verdict-1.json`.

    Attributes:
        submission: `<track>/<date>-<name>`.
        submission_sha256: the digest of its files; empty if they could not be read.
        track_sha256: the digest of the track; empty if there is none.
        accepted: whether the submission is accepted.
        badge: the badge; None if it was rejected.
        reason: the reason for a rejection.
        divergence: the first difference between the log and the environment, if any.
        season: the season of the fresh tasks that submitted weights have played; empty if there are none.
        rehearsal: whether these tasks were drawn without the secret, so that they were public.
        score: the metric of the track.
        by_type: the metric for each type of task.
        scores: the metric by task and attempt, in the order of the track.
        steps: the number of actions by task and attempt.
        again: the command that repeats the checks; empty if the submission was rejected.
        package: the version of the package that ran the checks.
        schema: `SCHEMA`.
    """

    submission: str
    submission_sha256: str = ""
    track_sha256: str = ""
    accepted: bool = False
    badge: str | None = None
    reason: Reason | None = None
    divergence: DivergencePoint | None = None
    season: str = ""
    rehearsal: bool = False
    score: Mean | None = None
    by_type: dict[str, Mean] = field(default_factory=dict)
    scores: list[list[float]] = field(default_factory=list)
    steps: list[list[int]] = field(default_factory=list)
    again: str = ""
    package: str = __version__
    schema: str = SCHEMA

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the verdict in a file. Raises `BadSubmission` if it is malformed."""
        value = decode_file(path.read_bytes(), BadSubmission, path.name)
        schemas.check("verdict-1", value, BadSubmission, path.name)
        means = {name: Mean(**mean) for name, mean in value["by_type"].items()}
        made: dict[str, Any] = {**value, "by_type": means}
        for name, kind in (("reason", Reason), ("divergence", DivergencePoint), ("score", Mean)):
            made[name] = None if value[name] is None else kind(**value[name])
        return cls(**made)

    def summary(self) -> str:
        """Return the verdict as one sentence of Markdown."""
        if self.reason is not None:
            return f"**Refused** at the check `{self.reason.check}`: {self.reason.message}"
        assert self.score is not None  # an accepted entry has one
        score, episodes = self.score, sum(map(len, self.scores))
        return (
            f"**Accepted** as *{self.badge}*: {self.submission} scores {score.mean:.1%} "
            f"[{score.low:.1%}, {score.high:.1%}] in {episodes} episodes."
        )

    def text(self) -> str:
        """Return the verdict as JSON. Equal verdicts give equal texts."""
        rows = asdict(self)
        tables = {name: rows.pop(name) for name in ("scores", "steps")}
        head = json.dumps(rows, indent=1, sort_keys=True, allow_nan=False).removesuffix("\n}")
        lines = [f' "{name}": {json.dumps(table, allow_nan=False)}' for name, table in tables.items()]
        return ",\n".join([head, *lines]) + "\n}\n"

    def write(self, path: Path) -> None:
        """Write the verdict."""
        with write_atomically(path) as partial:
            partial.write_text(self.text(), "utf-8")


def scored(verdict: SubmissionVerdict, track: Track, said: Claims) -> SubmissionVerdict:
    """Return a verdict with the verified scores."""
    folder = f"{ROOT}/{SUBMISSIONS}/{verdict.submission}"
    types = sorted({task.type for task in track.tasks} - {""})
    rows = {kind: [row for row, task in enumerate(track.tasks) if task.type == kind] for kind in types}
    return replace(
        verdict,
        score=Mean(*clustered_mean(said.scores)),
        by_type={kind: Mean(*clustered_mean(said.scores[chosen])) for kind, chosen in rows.items()},
        scores=said.scores.tolist(),
        steps=said.steps.tolist(),
        again=(AGAIN_ATTESTED if verdict.badge == ATTESTED else AGAIN).format(folder=folder),
    )

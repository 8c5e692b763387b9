"""What a report card says: one finding per check or figure, and the verdict over all of them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

Status = Literal["ok", "mend", "advice", "skipped", "unfinished"]
"""`mend` breaks a rule that others rely on; `advice` works and could be better; `unfinished` ran out of time."""

WORDS = {"ok": "holds", "mend": "mend", "advice": "advice", "skipped": "skipped", "unfinished": "not finished"}
"""What pages and terminals call a status."""

SECTIONS: Mapping[str, str] = {
    "contract": "Contract",
    "determinism": "Determinism",
    "keys": "State and task keys",
    "rewards": "Rewards",
    "floors": "Floors and ceilings",
    "speed": "Speed",
    "learning": "Learning",
}
"""The sections of a card, in order, and their headings."""


STOPPED_BY = "stopped_by"
"""The figure of a finding that holds the error at which the check stopped, if it did."""

STOPPED = "The check stopped at this error, before its result was known. Mend the error first, and validate again."
"""What to do about an error that is not the failed assertion of a check."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of a report card.

    Attributes:
        section: a key of `SECTIONS`.
        name: what was looked at, unique within a card.
        title: the same in words.
        status: see `Status`.
        rule: the rule that was checked, in a sentence or two; empty where the title says it.
        said: what was found; empty where there is nothing to say.
        mend: what to change; empty where nothing has to be.
        essential: whether the environment fails validation unless the status is `ok`, `advice` or `skipped`.
        figures: the numbers behind it, JSON-able.
        seconds: how long it took.
    """

    section: str
    name: str
    title: str
    status: Status
    rule: str = ""
    said: str = ""
    mend: str = ""
    essential: bool = False
    figures: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def fails(self) -> bool:
        """Whether the environment fails validation because of this."""
        return self.essential and self.status in ("mend", "unfinished")


def errors_once(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings with each error at which checks stopped reported once, in the first essential one of them.

    That one names the others, which become `skipped`. Errors that differ in numbers only, such as that of a task, are
    the same.
    """
    stopped: dict[str, list[Finding]] = {}
    for finding in findings:
        if STOPPED_BY in finding.figures:
            stopped.setdefault(re.sub(r"\d+", "0", finding.figures[STOPPED_BY]), []).append(finding)
    told: dict[str, Finding] = {}
    for same in stopped.values():
        first = next((finding for finding in same if finding.essential), same[0])
        others = [finding for finding in same if finding is not first]
        for finding in others:
            said = f"Stopped by the error that is reported under: {first.title}."
            told[finding.name] = replace(finding, status="skipped", said=said, mend="")
        if others:
            titles = "; ".join(finding.title for finding in others)
            said = f"{first.said}\nThis error stopped {len(others)} more check{'s' * (len(others) > 1)}: {titles}."
            told[first.name] = replace(first, said=said, mend=STOPPED if first.status == "mend" else first.mend)
    return [told.get(finding.name, finding) for finding in findings]


@dataclass(frozen=True, slots=True)
class ReportCard:
    """All findings about one environment.

    Attributes:
        env_id: the environment.
        kwargs: the settings it was made with.
        findings: in the order of their sections.
        seconds: how long validation took.
    """

    env_id: str
    kwargs: Mapping[str, Any]
    findings: Sequence[Finding]
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether all essential checks hold."""
        return not any(finding.fails for finding in self.findings)

    def section(self, name: str) -> list[Finding]:
        """Return the findings of one section."""
        return [finding for finding in self.findings if finding.section == name]

    def verdict(self) -> str:
        """Return the result in one sentence."""
        failing = sum(finding.fails for finding in self.findings)
        advice = sum(finding.status == "advice" for finding in self.findings)
        beside = f" {advice} finding{'s are' if advice > 1 else ' is'} advice." if advice else ""
        if not failing:
            return f"All essential checks hold.{beside}"
        return f"{failing} essential check{'s do' if failing > 1 else ' does'} not hold.{beside}"

    def as_dict(self) -> dict[str, Any]:
        """Return the card as JSON-serialisable data, in which None replaces NaN and infinities."""
        card = {
            "env_id": self.env_id,
            "kwargs": self.kwargs,
            "passed": self.passed,
            "verdict": self.verdict(),
            "seconds": round(self.seconds, 1),
            "findings": [asdict(finding) for finding in self.findings],
        }
        return {name: _finite(value) for name, value in card.items()}


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

"""The report card of an environment: its findings, one per check or measurement, the verdict, and its page.

`agentgym-flow validate` prints it. Each part runs in a separate process, so a part that hangs or crashes does not stop
the others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from agentgym_flow._util.values import finite

Status = Literal["ok", "fail", "advice", "skipped", "unfinished"]
"""`fail`: breaks a rule of the contract. `advice`: works, but could be better. `unfinished`: out of time."""

WORDS = {"ok": "holds", "fail": "fails", "advice": "advice", "skipped": "skipped", "unfinished": "not finished"}
"""The names of the statuses on pages and terminals."""

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
"""The figure with the error that stopped the check, if any."""

STOPPED = "The check stopped at this error, before its result was known. Fix the error first, and validate again."
"""The advice for an error other than a failed assertion."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of a report card.

    Attributes:
        section: a key of `SECTIONS`.
        name: the name of the check or measurement, unique within a card.
        title: its title.
        status: see `Status`.
        rule: the rule that was checked, in one or two sentences; may be empty.
        said: the result in words; may be empty.
        fix: what to change; may be empty.
        essential: whether the environment fails validation unless the status is `ok`, `advice` or `skipped`.
        figures: the measured values, JSON-serialisable.
        seconds: the duration of the check.
    """

    section: str
    name: str
    title: str
    status: Status
    rule: str = ""
    said: str = ""
    fix: str = ""
    essential: bool = False
    figures: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def fails(self) -> bool:
        """Whether the environment fails validation because of this finding."""
        return self.essential and self.status in ("fail", "unfinished")


def errors_once(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings so that each error that stopped several checks is reported only once.

    It is reported in the first essential check, which names the other checks; these become `skipped`. Errors are the
    same if they differ only in numbers, such as the number of a task.
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
            told[finding.name] = replace(finding, status="skipped", said=said, fix="")
        if others:
            titles = "; ".join(finding.title for finding in others)
            said = f"{first.said}\nThis error stopped {len(others)} more check{'s' * (len(others) > 1)}: {titles}."
            told[first.name] = replace(first, said=said, fix=STOPPED if first.status == "fail" else first.fix)
    return [told.get(finding.name, finding) for finding in findings]


@dataclass(frozen=True, slots=True)
class ReportCard:
    """All findings about one environment.

    Attributes:
        env_id: the environment.
        kwargs: its settings.
        findings: the findings, in the order of their sections.
        seconds: the duration of the validation.
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
        return {name: finite(value) for name, value in card.items()}


def render_card(card: ReportCard) -> str:
    """Return the card as one self-contained HTML page."""
    from markupsafe import Markup

    from agentgym_flow._util import __version__
    from agentgym_flow.report.rendering import security_policy, source, templates

    style = source("page.css", "card.css", package=__name__)
    sections = [(name, heading, card.section(name)) for name, heading in SECTIONS.items()]
    return (
        templates(__name__)
        .get_template("card.html.j2")
        .render(
            card=card,
            kwargs=json.dumps(dict(card.kwargs)),
            sections=[section for section in sections if section[2]],
            to_fix=[finding for finding in card.findings if finding.status in ("fail", "unfinished")],
            words=WORDS,
            policy=security_policy(style),
            style=Markup(style),
            version=__version__,
        )
    )

"""The report card of an environment: its findings, one per check or measurement, the verdict, and its page.

`agentgym-flow validate` prints it. Each part runs in a separate process with a time limit, so a part that hangs or
crashes does not stop the others. A part reads a `ValidationRequest` as JSON from standard input, and writes JSON lines:
first the planned checks, then each finding, then a line that it is done. Output of the environment is redirected to
standard error.
"""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import IO, Any, Literal, cast

from agentgym_flow._util.values import finite
from agentgym_flow.core import import_environments, load_plugins

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


_SLOW = "Give more --minutes, or make reset() and step() faster; see Speed."
_RAISED = "reset(), step() and the members that policies use must not raise."
_ENDED = "What ends the process, such as a crash or exit(), ends whatever program plays."
_GRACE = 5.0  # seconds from the time limit until a part is killed


@dataclass(frozen=True, slots=True)
class ValidationRequest:
    """The environment to validate, and the time limit.

    Attributes:
        env_id: the registered id.
        kwargs: the settings, JSON-serialisable.
        modules: the modules to import first; they register the environment.
        seconds: the time limit of this part.
        imports: the modules in `--import`; only the first part uses this and `pairs`.
        pairs: the arguments of `--env-arg`, `KEY=VALUE`.
    """

    env_id: str
    kwargs: Mapping[str, Any]
    modules: Sequence[str]
    seconds: float
    imports: Sequence[str] = ()
    pairs: Sequence[str] = ()


def run_part(
    module: str, request: ValidationRequest, on_finding: Callable[[Finding], None] | None = None
) -> list[Finding]:
    """Run a part of the card in a separate process, and return its findings.

    Planned checks without a finding at the time limit, or at the end of the process, are `unfinished`.

    Args:
        module: the part, such as `"agentgym_flow.testing.card.contract"`.
        request: the environment and the time limit.
        on_finding: called with each finding immediately.
    """
    surroundings = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    pipe = subprocess.PIPE
    found: list[Finding] = []
    with subprocess.Popen(
        [sys.executable, "-m", module], stdin=pipe, stdout=pipe, stderr=pipe, env=surroundings, start_new_session=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        complaint: list[bytes] = []
        threading.Thread(target=_keep_end, args=(child.stderr, complaint), daemon=True).start()
        with suppress(BrokenPipeError):
            child.stdin.write(json.dumps({**asdict(request), "until": time.time() + request.seconds}).encode())
            child.stdin.close()
        child.stdin = None
        planned: list[Finding] = []
        late, failed = True, False
        try:
            for line in _lines(child.stdout, request.seconds + _GRACE):
                told = json.loads(line)
                if "done" in told:
                    break  # child processes of the environment may keep the pipe open
                if "planned" in told:
                    planned = [Finding(**one) for one in told["planned"]]
                elif "failed" in told:
                    complaint[:] = [told["failed"].encode("utf-8", "replace")]
                    failed = True
                else:
                    found.append(Finding(**told["found"]))
                    if on_finding is not None:
                        on_finding(found[-1])
            late = False
        except TimeoutError:
            pass
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)  # including its child processes
            child.wait()
    names = {finding.name for finding in found}
    left = [finding for finding in planned if finding.name not in names]
    if not planned and not found:
        left = [
            Finding("contract", module.rpartition(".")[2], "The environment can be made", "unfinished", essential=True)
        ]
    return found + _unfinished(left, late, failed, request.seconds, b"".join(complaint).decode("utf-8", "replace"))


def _unfinished(left: Sequence[Finding], late: bool, failed: bool, seconds: float, complaint: str) -> list[Finding]:
    """Return findings for the unfinished checks, of which the first was running at the end."""
    if late:
        first = ("unfinished", f"{seconds:.0f} seconds were over during this check.", _SLOW)
        others = f"{seconds:.0f} seconds were over before this check."
    elif failed:
        first = ("fail", f"The environment raised: {complaint}", _RAISED)
        others = "An error in an earlier check ended the process."
    else:
        first = ("fail", f"The process ended in this check. {_last(complaint)}", _ENDED)
        others = "The process ended before this check."
    results = []
    for number, finding in enumerate(left):
        status, said, fix = first if number == 0 else ("unfinished", others, "")
        results.append(replace(finding, status=cast("Status", status), said=said, fix=finding.fix or fix))
    return results


def _last(complaint: str) -> str:
    lines = [line for line in complaint.strip().splitlines() if line.strip()]
    return f"Its last words: {lines[-1]:.300}" if lines else ""


def _keep_end(stream: IO[bytes], kept: list[bytes]) -> None:
    for line in stream:
        kept.append(line)
        del kept[:-40]


def _lines(stream: IO[bytes], seconds: float) -> Iterator[bytes]:
    """Yield lines as they arrive. Raises `TimeoutError` after `seconds`."""
    lines: queue.Queue[bytes | None] = queue.Queue()

    def read() -> None:
        for line in stream:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    deadline = time.monotonic() + seconds
    while True:
        try:
            line = lines.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise TimeoutError from None
        if line is None:
            return
        yield line


def serve(
    plan: Callable[[ValidationRequest], Sequence[Finding]], work: Callable[[ValidationRequest], Iterable[Finding]]
) -> None:
    """Run a part in this process: read the request, import its modules, and write the plan and the findings."""
    told = json.load(sys.stdin)
    until = told.pop("until")
    request = ValidationRequest(**told)
    report = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # environments may print
    for module in request.modules:
        import_environments(module)
    load_plugins()
    print(json.dumps({"planned": [asdict(finding) for finding in plan(request)]}), file=report, flush=True)
    request = replace(request, seconds=max(1.0, until - time.time()))  # the imports have used some of the time
    try:
        for finding in work(request):
            print(json.dumps({"found": asdict(finding)}), file=report, flush=True)
    except Exception as error:
        print(json.dumps({"failed": f"{type(error).__name__}: {error}"}), file=report, flush=True)
    print(json.dumps({"done": True}), file=report, flush=True)

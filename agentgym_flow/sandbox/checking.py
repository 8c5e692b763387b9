"""Test a program, or call one of its functions, with the judge in another sandbox than the program."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from agentgym_flow.errors import BadSetting
from agentgym_flow.sandbox import harness
from agentgym_flow.sandbox.box import PROGRAM, Sandbox
from agentgym_flow.sandbox.harness.test_side import MOST_REPORT_BYTES, TASK, TESTS
from agentgym_flow.sandbox.harness.values import NotPlain, decode, encode
from agentgym_flow.sandbox.job import see_through
from agentgym_flow.sandbox.keeper import wire
from agentgym_flow.sandbox.verdict import CallVerdict, Level, Limits, Outcome, ProgramVerdict, Status, TestVerdict

_FOLDER = "harness"
_MAIN = f"{_FOLDER}/main.py"
_START = "from agentgym_flow.sandbox.harness.{side} import main\nmain()\n"
_HARNESS_ROOM_MB = 1  # what the harness needs of a program's folder

# How a process can be ended by something else than itself.
_ENDED: dict[Status, Outcome] = {"timeout": "timeout", "memory": "memory", "output": "output", "killed": "killed"}


class _Report(NamedTuple):
    outcome: Outcome
    message: str
    calls: int
    value: Any
    program: ProgramVerdict
    tests: ProgramVerdict


def check(
    sandbox: Sandbox,
    program: str,
    tests: str,
    entry_point: str | None,
    names: Sequence[str] | None,
    limits: Limits,
    least: Level | None,
) -> TestVerdict:
    """Return whether `program` passes `tests`; see `agentgym_flow.sandbox.check`."""
    task = {"tests": tests, "entry_point": entry_point, "names": None if names is None else list(names)}
    report = _judged(sandbox, program, task, {TESTS: tests}, limits, least)
    return TestVerdict(report.outcome, report.message, report.calls, report.program, report.tests)


def call(
    sandbox: Sandbox, program: str, function: str, arguments: tuple[Any, ...], limits: Limits, least: Level | None
) -> CallVerdict:
    """Return what `function` of `program` returns for `arguments`; see `agentgym_flow.sandbox.call`."""
    try:
        sent = encode((arguments, {}))
    except NotPlain as error:
        raise BadSetting(f"An argument for {function} is not plain data: {error}.") from None
    report = _judged(sandbox, program, {"call": function, "arguments": sent}, {}, limits, least)
    return CallVerdict(report.outcome, report.value, report.message, report.program)


def _judged(
    sandbox: Sandbox, program: str, task: dict[str, Any], more: dict[str, str], limits: Limits, least: Level | None
) -> _Report:
    room = Limits(**{**vars(limits), "disk_mb": limits.disk_mb + _HARNESS_ROOM_MB})
    ours, theirs = socket.socketpair()
    report, report_end = os.pipe()
    jobs = []
    try:
        with ours, theirs:
            try:
                for side, files, descriptors in (
                    ("program_side", {PROGRAM: program}, [ours.fileno()]),
                    ("test_side", {TASK: json.dumps(task), **more}, [theirs.fileno(), report_end]),
                ):
                    content = {**files, **_harness(side)}
                    jobs.append(sandbox.start(content, [_MAIN], "", room, least, descriptors))
            finally:
                os.close(report_end)
        see_through(jobs)
        program_verdict, tests_verdict = (job.verdict() for job in jobs)
        found = _read(report)
    finally:
        os.close(report)
        for job in jobs:
            job.close()
    return _concluded(found, program_verdict, tests_verdict)


def _concluded(found: dict[str, Any] | None, program: ProgramVerdict, tests: ProgramVerdict) -> _Report:
    """Return the report of the judge, or why there is none."""
    if found is not None and found["outcome"] != "gone":
        value = decode(found["value"])
        return _Report(found["outcome"], found["message"], found["calls"], value, program, tests)
    calls = 0 if found is None else found["calls"]
    for side, verdict in (("program", program), ("process of the tests", tests)):
        ended = _ENDED.get(verdict.status)
        if ended is not None:
            return _Report(ended, f"the {side} was ended: {ended}", calls, None, program, tests)
    if found is None:
        return _Report("failed", "the tests ended without a result", 0, None, program, tests)
    message = f"the program ended before it answered, with exit code {program.exit_code}"
    return _Report("error", message, calls, None, program, tests)


def _read(report: int) -> dict[str, Any] | None:
    text = os.read(report, MOST_REPORT_BYTES)  # it was written in one piece, by a process that has ended
    if not text:
        return None
    found: dict[str, Any] = json.loads(text)
    return found


@cache
def _harness(side: str) -> dict[str, str]:
    """Return the files of the harness, the one to start among them."""
    package = Path(harness.__file__).parent
    parts = [*(package / f"{name}.py" for name in ("values", "names", "trace", "cases", side)), Path(wire.__file__)]
    root = package.parents[1].parent
    files = {f"{_FOLDER}/{path.relative_to(root).as_posix()}": path.read_text("utf-8") for path in parts}
    return {**files, _MAIN: _START.format(side=side)}

"""Test a program, or call one of its functions; the tests run in another sandbox than the program."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from agentgym_flow.errors import BadSetting
from agentgym_flow.sandbox import harness
from agentgym_flow.sandbox.box import PROGRAM, Sandbox, default
from agentgym_flow.sandbox.harness.test_side import MOST_REPORT_BYTES, TASK, TESTS
from agentgym_flow.sandbox.harness.values import NotPlain, decode, encode
from agentgym_flow.sandbox.job import wait_for
from agentgym_flow.sandbox.keeper import wire
from agentgym_flow.sandbox.verdict import CallVerdict, Level, Limits, Outcome, ProgramVerdict, Status, TestVerdict

_FOLDER = "harness"
_MAIN = f"{_FOLDER}/main.py"
_START = "from agentgym_flow.sandbox.harness.{side} import main\nmain()\n"
_HARNESS_ROOM_MB = 1  # the harness in a program's folder

# How a process can be terminated.
_ENDED: dict[Status, Outcome] = {"timeout": "timeout", "memory": "memory", "output": "output", "killed": "killed"}


class _Report(NamedTuple):
    outcome: Outcome
    message: str
    calls: int
    value: Any
    program: ProgramVerdict
    tests: ProgramVerdict


def check(
    program: str,
    tests: str,
    entry_point: str | None = None,
    *,
    names: Sequence[str] | None = None,
    limits: Limits | None = None,
    least: Level | None = None,
    sandbox: Sandbox | None = None,
) -> TestVerdict:
    """Return whether `program` passes `tests`, which run in a sandbox of their own.

    Names that `tests` read without setting them are taken from the program: its functions as stand-ins that send and
    receive plain data, its values as copies, modules of the standard library unchanged. Tests can be bare assertions,
    a function `check(candidate)` (as in HumanEval), or `unittest` classes.

    A program that is scored must not choose the code that scores it. `names` lists what the tests take from it;
    everything else they read must be their own. The tests judge the results of the first name. Results of the others,
    such as objects of a class, can only be passed back to the program.

    Functions that return objects, functions or classes of their own cannot be judged; the outcome is `unsupported`, not
    passed. Identity and attributes are lost between the processes, and a value of a derived class arrives as its base
    class. Sets iterate in the same order in both, except for a few from which items were removed.

    Args:
        program: the source text. It is loaded under the name `program`, so `if __name__ == "__main__"` does not run.
        tests: the source text of the tests.
        entry_point: the function that `check(candidate)` gets; the tests can also use it as `candidate`.
        names: the names that the tests take from the program, the function under test first; None: all that they read.
        limits: for each of the two processes; `Limits()` if `None`.
        least: as for `run`.
        sandbox: by default that of the process.

    Raises:
        SandboxUnavailable: the machine does not reach `least`.
        SandboxFailed: the sandbox itself failed; the program is not to blame.
    """
    task = {"tests": tests, "entry_point": entry_point, "names": None if names is None else list(names)}
    report = _judge(program, task, limits, least, sandbox)
    return TestVerdict(report.outcome, report.message, report.calls, report.program, report.tests)


def call(
    program: str,
    function: str,
    *arguments: Any,
    limits: Limits | None = None,
    least: Level | None = None,
    sandbox: Sandbox | None = None,
) -> CallVerdict:
    """Return what `function` of `program` returns for `arguments`: plain data, as for `check`.

    Raises as `check` does, and `BadSetting` if an argument is not plain data.
    """
    try:
        sent = encode((arguments, {}))
    except NotPlain as error:
        raise BadSetting(f"An argument for {function} is not plain data: {error}.") from None
    report = _judge(program, {"call": function, "arguments": sent}, limits, least, sandbox)
    return CallVerdict(report.outcome, report.value, report.message, report.program)


def _judge(
    program: str, task: dict[str, Any], limits: Limits | None, least: Level | None, box: Sandbox | None
) -> _Report:
    box, limits = box or default(), limits or Limits()
    test_files = {TASK: json.dumps(task), **({TESTS: task["tests"]} if "tests" in task else {})}
    room = replace(limits, disk_mb=limits.disk_mb + _HARNESS_ROOM_MB)
    ours, theirs = socket.socketpair()
    report, report_end = os.pipe()
    jobs = []
    try:
        with ours, theirs:
            try:
                for side, files, descriptors in (
                    ("program_side", {PROGRAM: program}, [ours.fileno()]),
                    ("test_side", test_files, [theirs.fileno(), report_end]),
                ):
                    content = {**files, **_harness(side)}
                    jobs.append(box.start(content, [_MAIN], "", room, least, descriptors))
            finally:
                os.close(report_end)
        wait_for(jobs)
        program_verdict, tests_verdict = (job.verdict() for job in jobs)
        text = os.read(report, MOST_REPORT_BYTES)  # written in one piece, by a process that has ended
    finally:
        os.close(report)
        for job in jobs:
            job.close()
    return _conclude(json.loads(text) if text else None, program_verdict, tests_verdict)


def _conclude(found: dict[str, Any] | None, program: ProgramVerdict, tests: ProgramVerdict) -> _Report:
    """Return the report of the tests, or why there is none."""
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


@cache
def _harness(side: str) -> dict[str, str]:
    """Return the files of the harness, including the main one."""
    package = Path(harness.__file__).parent
    parts = [package / "values.py", package / f"{side}.py", Path(wire.__file__)]
    root = package.parents[1].parent
    files = {f"{_FOLDER}/{path.relative_to(root).as_posix()}": path.read_text("utf-8") for path in parts}
    return {**files, _MAIN: _START.format(side=side)}

"""Run the parts of a report card in separate processes with a time limit.

A part reads a `ValidationRequest` as JSON from standard input, and writes JSON lines: first the planned checks, then
each finding, then a line that it is done. Output of the environment is redirected to standard error.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import IO, Any, cast

from agentgym_flow.core import import_environments, load_plugins
from agentgym_flow.testing.card.findings import Finding, Status

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

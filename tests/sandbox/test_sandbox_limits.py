"""Programs that take more than they are given are ended, and the verdict says by what."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

import pytest

from agentgym_flow.errors import BadSetting, SandboxUnavailable
from agentgym_flow.sandbox import Limits, Sandbox, check
from agentgym_flow.sandbox.keeper import Order, Walls, launch

LIMITS = Limits(cpu_seconds=0.2, memory_mb=128, disk_mb=4, output_bytes=10_000)
MB = 1 << 20


@pytest.mark.parametrize(
    ("program", "status"),
    [
        pytest.param("x = bytearray(10**9)", "memory", id="one large object"),
        pytest.param("x = []\nwhile True:\n    x.append(bytes(10**6))", "memory", id="many objects"),
        pytest.param("import mmap\nx = [mmap.mmap(-1, 1 << 20) for _ in range(1000)]", "error", id="memory pages"),
        pytest.param("int('9' * 4000) ** 10**6", "timeout", id="a large number"),
        pytest.param("while True:\n    pass", "timeout", id="a loop"),
        pytest.param("while True:\n    open('/dev/zero', 'rb').read(10**6)", "timeout", id="a loop in the kernel"),
        pytest.param(
            "import signal\n"
            "for n in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:\n"
            "    signal.signal(n, signal.SIG_IGN)\n"
            "while True:\n    pass",
            "timeout",
            id="a loop deaf to signals",
        ),
        pytest.param(
            "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
            "timeout",
            id="a loop that catches everything",
        ),
        pytest.param(
            "import threading, hashlib\n"
            "def work():\n    while True: hashlib.sha256(bytes(10**6)).digest()\n"
            "for _ in range(4): threading.Thread(target=work).start()",
            "timeout",
            id="threads outside of the lock",
        ),
        pytest.param("import os\nos.closerange(0, 100)\nwhile True: pass", "timeout", id="all files closed"),
        pytest.param("while True:\n    print('x' * 100)", "output", id="endless output"),
        pytest.param("import sys\nwhile True:\n    sys.stderr.write('x' * 100)", "output", id="endless errors"),
        pytest.param("import os\nos.write(1, b'x' * 10_001)", "output", id="one byte too much"),
        pytest.param("import os\nos.write(1, b'x' * 10_000)", "ok", id="as much as allowed"),
        pytest.param("import os\nos.abort()", "killed", id="a crash"),
        pytest.param("import os\nos.kill(os.getpid(), 9)", "killed", id="ends itself"),
        pytest.param("import ctypes\nctypes.string_at(0)", "killed", id="a wild pointer"),
        pytest.param("import sys\nsys.exit(3)", "error", id="an exit code"),
        pytest.param("def f(): f()\nf()", "error", id="recursion"),
        pytest.param("(", "error", id="a syntax error"),
        pytest.param("x = '\0'", "error", id="a zero byte"),
        pytest.param("x = '\ud800'", "error", id="half a character"),
        pytest.param("", "ok", id="nothing"),
    ],
)
def test_a_program_is_ended_for_what_it_does(every_box: Sandbox, program: str, status: str) -> None:
    verdict = every_box.run(program, limits=LIMITS)
    assert verdict.status == status
    assert verdict.level == "strong"
    assert verdict.ok == (status == "ok")
    assert len(verdict.stdout) <= 10_000
    assert len(verdict.stderr) <= 10_000
    assert verdict.cpu_seconds < 2.5  # where the kernel itself ends it
    assert (verdict.exit_code is None) == (status in {"timeout", "killed", "output"})


@pytest.mark.parametrize(
    "program",
    [
        pytest.param("import time\ntime.sleep(1000)", id="sleeps"),
        pytest.param("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)", id="stops itself"),
        pytest.param("import threading\nthreading.Event().wait()", id="waits for itself"),
        pytest.param("import os\nr, w = os.pipe()\nos.read(r, 1)", id="waits for nobody"),
    ],
)
def test_a_program_that_only_waits_is_ended(every_box: Sandbox, program: str) -> None:
    verdict = every_box.run(program, limits=Limits(wall_seconds=0.3))
    assert verdict.status == "timeout"
    assert verdict.cpu_seconds < 0.3


def test_cpu_time_is_limited_in_fractions(box: Sandbox) -> None:
    assert 0.2 <= box.run("while True: pass", limits=Limits(cpu_seconds=0.2)).cpu_seconds < 1.2


def test_a_folder_holds_so_much_and_no_more(box: Sandbox) -> None:
    if "namespaces" not in box.probe().walls:
        pytest.skip("without namespaces the folder is read-only")
    program = """
import os
total = 0
try:
    for number in range(10**6):
        with open(f"file{number}", "wb", buffering=0) as file:
            for _ in range(SIZE):
                total += file.write(bytes(1 << 16))
except OSError as error:
    print(error.errno, total, number)
"""
    for size in ("10**6", "1", "0"):  # one file, many files, only names
        verdict = box.run(program.replace("SIZE", size), limits=LIMITS)
        number, total, files = map(int, verdict.stdout.split())
        assert number in {28, 27}  # no space left, file too large
        assert total <= 4 * MB
        assert files < 2048
    assert box.run("print(open('mine', 'w').write('x'))").stdout == "1\n"


def test_without_namespaces_a_program_cannot_write_at_all() -> None:
    sandbox = Sandbox(without=["namespaces"])
    if sandbox.probe().level != "strong":
        pytest.skip(f"without namespaces this machine's sandbox is {sandbox.probe().level}")
    verdict = sandbox.run("open('mine', 'w')")
    sandbox.close()
    assert verdict.stderr.splitlines()[-1].startswith("PermissionError")


def test_the_least_memory_is_enough_to_start(every_box: Sandbox) -> None:
    least = Limits(memory_mb=64)
    assert every_box.run("import json, re\nprint(1)", limits=least).stdout == "1\n"
    assert check("def f(): return 1", "assert f() == 1", limits=least, sandbox=every_box).passed


def test_threads_are_allowed_and_bounded(box: Sandbox) -> None:
    if not {"namespaces", "stranger"} & set(box.probe().walls):
        pytest.skip("where the program's user has other processes, the kernel cannot count its threads")
    program = """
import threading
stop = threading.Event()
threads = [threading.Thread(target=stop.wait, daemon=True) for _ in range(1000)]
try:
    for started, thread in enumerate(threads):
        thread.start()
except RuntimeError:
    print(started)
stop.set()
"""
    threading_stack = "import threading\nthreading.stack_size(1 << 16)\n"
    started = box.run(threading_stack + program)
    assert 20 < int(started.stdout) <= 64


def test_processes_only_for_those_who_ask(box: Sandbox) -> None:
    program = "import os\nfor n in range(3):\n    if os.fork() == 0: os._exit(0)\nfor n in range(3): os.wait()"
    assert box.run(program).stderr.splitlines()[-1].startswith("PermissionError")
    if "namespaces" in box.probe().walls:
        assert box.run(program, limits=Limits(processes=4)).ok
        assert not box.run(program, limits=Limits(processes=2)).ok


@pytest.mark.heavy
@pytest.mark.parametrize(
    "program",
    [
        pytest.param("import os\nwhile True:\n    try: os.fork()\n    except OSError: pass", id="bomb"),
        pytest.param("import os\nwhile True:\n    if os.fork(): os._exit(0)", id="relay"),
        pytest.param(
            "import os, time\nfor _ in range(3):\n    os.fork(); os.setsid() if os.getpid() > 3 else 0\ntime.sleep(99)",
            id="daemons",
        ),
    ],
)
def test_a_fork_bomb_stays_in_its_box(box: Sandbox, program: str) -> None:
    if "namespaces" not in box.probe().walls:
        pytest.skip("more than one process needs namespaces")
    started = time.monotonic()
    box.run(program, limits=Limits(cpu_seconds=1, processes=12, wall_seconds=2))
    assert time.monotonic() - started < 30
    assert box.run("print(1)").stdout == "1\n"


def test_more_processes_need_namespaces() -> None:
    sandbox = Sandbox(without=["namespaces"])
    if sandbox.probe().level != "strong":
        pytest.skip(f"without namespaces this machine's sandbox is {sandbox.probe().level}")
    with pytest.raises(SandboxUnavailable, match="needs namespaces"):
        sandbox.run("1", limits=Limits(processes=2))
    sandbox.close()


@pytest.mark.parametrize(
    "wrong",
    [
        {"cpu_seconds": 0},
        {"memory_mb": 10},
        {"output_bytes": -1},
        {"disk_mb": 0},
        {"processes": 0},
        {"wall_seconds": 0},
        {"cpu_seconds": float("nan")},
        {"cpu_seconds": float("inf")},
        {"wall_seconds": float("inf")},
    ],
)
def test_impossible_limits_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(BadSetting, match=next(iter(wrong))):
        Limits(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(("cpu_seconds", "stopped"), [(0.3, "cpu"), (5.0, None)])
def test_a_program_that_the_kernel_ended_first_is_out_of_time(
    cpu_seconds: float, stopped: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine the guard can look too late; the kernel's own limit is above the program's."""
    real = launch._cpu_seconds

    def late(program: int) -> float:
        """Return what makes the guard wait for a minute; the CPU time once the program has ended."""
        runs = os.waitid(os.P_PID, program, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        return -60.0 if runs else real(program)

    monkeypatch.setattr(launch, "_cpu_seconds", late)
    code = "import resource\nresource.setrlimit(resource.RLIMIT_CPU, (1, 1))\nwhile True: pass"
    order = Order(Walls(True, False, False, False), "", [], [], [], {}, "", cpu_seconds, 60.0, 64, 1, 1)
    ours, theirs = socket.socketpair()
    with ours, theirs, subprocess.Popen([sys.executable, "-S", "-c", code]) as program:
        found = launch._watch(program.pid, order, theirs.fileno())
        program.returncode = found["code"]  # `_watch` has waited for it
    assert (found["code"], found["stopped"]) == (-9, stopped)

"""The cost of one sandbox call, compared with running the same interpreter without the sandbox.

    python benchmarks/sandbox_cost.py [--repetitions 50]

The program is `print(6 * 7)`, so only the overhead is measured. Contestants:

- a plain `subprocess.run` of the same interpreter with the same options on the same file, without isolation or limits;
- the same in bubblewrap, if `bwrap` is installed, with namespaces and read-only system folders, without limits;
- `run` with all isolation layers of this machine, without namespaces, and without Landlock, each only if `strong`;
- `call` and `check`, which start two sandboxes each: one for the program, one for the judge.

Figures are wall-clock milliseconds, because other processes do the work: median and minimum of repetitions in which the
contestants take turns. Two more figures are the time of the first call, which detects what the machine supports, and
the calls per second with as many threads as cores.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from _timing import arguments, in_turns, print_header, print_row, seconds

from agentgym_flow.sandbox import Sandbox, call, check
from agentgym_flow.sandbox.box import INTERPRETER_OPTIONS
from agentgym_flow.sandbox.job import interpreter

PROGRAM = "print(6 * 7)\n"
FUNCTION = "def solve():\n    return 6 * 7\n"
BUBBLEWRAP = "bwrap --unshare-all --die-with-parent --new-session --ro-bind / / --tmpfs /tmp --dev /dev --clearenv"
MAKES: dict[str, tuple[str, ...]] = {
    "`run`": (),
    "`run` without namespaces": ("namespaces",),
    "`run` without Landlock": ("landlock",),
}


def plain(folder: Path, wrapper: list[str]) -> None:
    """Run the program in a plain subprocess, with the command prefix `wrapper`."""
    command = [*wrapper, interpreter(), *INTERPRETER_OPTIONS, str(folder / "program.py")]
    finished = subprocess.run(command, capture_output=True, text=True, check=True, env={})
    assert finished.stdout == "42\n"


def ours(sandbox: Sandbox) -> None:
    """Run the program in `sandbox`."""
    assert sandbox.run(PROGRAM).stdout == "42\n"


def called() -> None:
    """Call the function."""
    assert call(FUNCTION, "solve").value == 42


def checked() -> None:
    """Test the function."""
    assert check(FUNCTION, "assert solve() == 42").passed


def contestants(folder: Path) -> dict[str, Callable[[], None]]:
    """Return the contestants available on this machine, by name."""
    found: dict[str, Callable[[], None]] = {"plain subprocess": partial(plain, folder, [])}
    if shutil.which("bwrap"):
        bind = ["--ro-bind", str(folder), str(folder)]
        found["bubblewrap"] = partial(plain, folder, [*BUBBLEWRAP.split(), *bind])
    for name, without in MAKES.items():
        sandbox = Sandbox(without)
        machine = sandbox.probe()
        if machine.level == "strong":
            found[name] = partial(ours, sandbox)
        else:
            print(f"{name} is {machine.level} here and skipped: {machine.missing}\n")
    if "`run`" in found:
        found["`call`"], found["`check`"] = called, checked
    return found


def costs(repetitions: int, folder: Path) -> None:
    """Print the cost of a call for every contestant."""
    found = contestants(folder)
    for contestant in found.values():
        contestant()  # starts the keeper process and caches files
    samples: dict[str, list[float]] = {name: [] for name in found}

    def sample(name: str) -> float:
        samples[name].append(seconds(found[name], time.perf_counter))
        return samples[name][-1]

    medians = in_turns({name: partial(sample, name) for name in found}, repetitions, statistics.median)
    print_header("call", "median, ms", "least, ms", "median against plain")
    for name, median in medians.items():
        ratio = median / medians["plain subprocess"]
        print_row(name, f"{1000 * median:.1f}", f"{1000 * min(samples[name]):.1f}", f"{ratio:.1f}x")


def start(repetitions: int) -> None:
    """Print the time of the first call in a process."""

    def first() -> None:
        sandbox = Sandbox()
        sandbox.run(PROGRAM)
        sandbox.close()

    times = [seconds(first, time.perf_counter) for _ in range(repetitions)]
    print(f"\nFirst call, which tries all isolation layers: {1000 * statistics.median(times):.0f} ms.")


def throughput(calls: int) -> None:
    """Print calls per second with as many threads as cores."""
    sandbox = Sandbox()
    sandbox.probe()
    threads = os.cpu_count() or 1

    def all_calls() -> None:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(lambda _: ours(sandbox), range(calls)))

    rate = calls / seconds(all_calls, time.perf_counter)
    print(f"{threads} threads: {rate:.0f} calls of `run` per second.")


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__ or "", repetitions=50).parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "program.py").write_text(PROGRAM, "utf-8")
        costs(options.repetitions, folder)
    if Sandbox().probe().level == "strong":
        start(max(1, options.repetitions // 10))
        throughput(4 * options.repetitions)


if __name__ == "__main__":
    main()

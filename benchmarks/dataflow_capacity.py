"""Slots per second that a dataflow's manager processes, compared with empty calls of the same engine.

`python benchmarks/dataflow_capacity.py [--slots N] [--calls N ...] [--bytes N] [--retained N ...]`

A slot is admitted, leased, committed with an episode, fetched by the trainer and acknowledged. Workers lease and commit
several slots per call; the trainer makes its calls once per batch of 1,024, and three of them wait for the disk if
there is a journal. An empty call is `beat`. The last column is the number of empty calls that take as long as one slot.

With `--retained`, one trainer with a journal never lets the manager delete anything. Whenever the manager retains one
of these numbers of slots, a row is printed: slots per CPU-second over the last 16 batches, the resident memory per
slot, and the seconds that a second manager needs to read a copy of the journal.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from agentgym_flow.dataflow.bookkeeping.journal import ManagerJournal
from agentgym_flow.dataflow.bookkeeping.manager import Manager
from agentgym_flow.dataflow.config import FlowConfig
from agentgym_flow.dataflow.network.client import HttpFlow, read_token
from agentgym_flow.dataflow.records import Claim, Commit, Flow, Lease, LeaseKey, Slot
from agentgym_flow.dataflow.weights import full

BATCH, GROUP = 1024, 8
WINDOW = 16
"""Batches over which the rate of a row of `--retained` is measured."""
ROUNDS = 3
MESSAGE = full({})


@contextmanager
def in_memory() -> Iterator[Flow]:
    """Yield a manager in this process, without a journal."""
    yield Manager()


@contextmanager
def with_journal() -> Iterator[Flow]:
    """Yield a manager in this process, with a journal on disk."""
    with tempfile.TemporaryDirectory() as folder:
        manager = Manager(journal=ManagerJournal(Path(folder) / "journal"))
        yield manager
        manager.close()


@contextmanager
def over_http() -> Iterator[Flow]:
    """Yield a manager with a journal in another process, over the loopback interface."""
    with tempfile.TemporaryDirectory() as folder:
        token = Path(folder) / "token"
        command = [sys.executable, "-m", "agentgym_flow", "dataflow", "serve", f"{folder}/manager", "--port", "0"]
        with subprocess.Popen([*command, "--token-file", token], stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            address = re.search(r"http://\S+?:\d+", server.stdout.readline())
            assert address is not None, "the server has not started"
            flow = HttpFlow(address[0], read_token(token))
            yield flow
            flow.close()
            server.terminate()


@contextmanager
def on_ray() -> Iterator[Flow]:
    """Yield a manager with a journal in an actor of Ray."""
    from agentgym_flow.dataflow.ray_engine import RayEngine, ray

    if not ray.is_initialized():  # one cluster for all rows
        ray.init(address="local", include_dashboard=False, log_to_driver=False)
    with (
        tempfile.TemporaryDirectory() as folder,
        RayEngine(Path(folder), FlowConfig(), namespace=folder) as engine,
    ):
        yield engine.flow


ENGINES: dict[str, Callable[[], AbstractContextManager[Flow]]] = {
    "in process": in_memory,
    "in process, journal": with_journal,
    "HTTP, journal": over_http,
    "Ray, journal": on_ray,
}
"""The contexts that yield a new manager, by the name of the row."""


def commit_of(lease: Lease, payload: str) -> Commit:
    """Return the commit of a worker."""
    return Commit(LeaseKey(lease.stream, lease.slot.id, lease.attempt), payload, lease.digests)


def run(flow: Flow, slots: int, per_call: int, payload: str) -> Claim:
    """Process slots from their plan to a checkpoint."""
    claim = flow.open("stream", "policy", 0, {"policies": ["policy"], "staleness": 1}, "benchmark")
    after = 0
    for batch in range(slots // BATCH):
        after = run_batch(flow, claim, batch, after, per_call, payload)
        flow.keep(claim, batch + 1)
    return claim


def run_batch(flow: Flow, claim: Claim, batch: int, after: int, per_call: int, payload: str) -> int:
    """Process the slots of a batch until they are acknowledged; return the number of the last commit."""
    flow.publish(claim, batch, batch, MESSAGE)
    flow.admit(claim, [Slot(batch, place // GROUP, place % GROUP, 0, place) for place in range(BATCH)])
    while leases := flow.lease("worker", per_call):
        flow.commit("worker", [commit_of(lease, payload) for lease in leases])
    arrivals = flow.arrivals(claim, after)
    assert len(arrivals) == BATCH
    assert not flow.ack(claim, batch, [one.played for one in arrivals], [])
    return arrivals[-1].number


def grow(levels: list[int], per_call: int, payload: str) -> Iterator[str]:
    """Retain ever more slots; yield a row at each level."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        manager = Manager(journal=ManagerJournal(path))
        claim = manager.open("stream", "policy", 0, {"policies": ["policy"], "staleness": 1}, "benchmark")
        before, after, times = resident(), 0, [time.process_time()]
        for batch in range(max(levels) // BATCH):
            after = run_batch(manager, claim, batch, after, per_call, payload)
            times.append(time.process_time())
            slots = BATCH * (batch + 1)
            if slots in levels:
                rate = WINDOW * BATCH / (times[-1] - times[-1 - WINDOW])
                row = f"{slots:,} | {rate:,.0f} | {(resident() - before) / slots:,.0f}"
                yield f"{row} | {restart(path):.1f} |"
                times[-1] = time.process_time()
        manager.close()


def resident() -> int:
    """Return the bytes of this process that are in memory."""
    return int(re.findall(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())[0]) * 1024


def restart(path: Path) -> float:
    """Return the seconds in which a new process reads a copy of a journal, as it would be after a kill."""
    with tempfile.TemporaryDirectory() as folder:
        for file in path.parent.glob(f"{path.name}*"):
            shutil.copy(file, folder)
        code = (
            "import sys, time; from agentgym_flow.dataflow.bookkeeping.manager import Manager, ManagerJournal\n"
            "began = time.perf_counter(); Manager(journal=ManagerJournal(sys.argv[1])); "
            "print(time.perf_counter() - began)"
        )
        command = [sys.executable, "-c", code, f"{folder}/{path.name}"]
        return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def beats(flow: Flow, claim: Claim, count: int) -> None:
    """Make empty calls."""
    for _ in range(count):
        flow.beat(claim)


def measure(engine: Callable[[], AbstractContextManager[Flow]], slots: int, per_call: int, payload: str) -> str:
    """Return a row: slots per second, empty calls per second, and their ratio; the best of several rounds."""
    best, empty, calls = 0.0, 0.0, max(1, slots // 16)
    for _ in range(ROUNDS):
        with engine() as flow:
            began = time.perf_counter()
            claim = run(flow, slots, per_call, payload)
            middle = time.perf_counter()
            beats(flow, claim, calls)
            best, empty = max(best, slots / (middle - began)), max(empty, calls / (time.perf_counter() - middle))
    return f"{best:,.0f} | {empty:,.0f} | {empty / best:.1f}"


def main(engines: Mapping[str, Callable[[], AbstractContextManager[Flow]]] = ENGINES) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__)
    parser.add_argument("--slots", type=int, default=10_240, help="in each run; whole batches are made of them")
    parser.add_argument("--calls", type=int, nargs="+", default=[16, 1], help="slots a call")
    parser.add_argument("--bytes", type=int, default=6_000, help="of an episode")
    parser.add_argument("--retained", type=int, nargs="+", help="measure at these numbers of slots, in whole windows")
    options = parser.parse_args()
    if options.retained:
        levels = [max(1, number // (WINDOW * BATCH)) * WINDOW * BATCH for number in options.retained]
        print("| retained slots | slots per CPU-second | bytes in memory per slot | restart, s |\n|---|---|---|---|")
        for row in grow(levels, options.calls[0], "x" * options.bytes):
            print(f"| {row}", flush=True)
        return
    slots = max(1, options.slots // BATCH) * BATCH
    print("| engine | slots a call | slots/s | empty calls/s | empty calls a slot |")
    print("|---|---|---|---|---|")
    for name, engine in engines.items():
        for per_call in options.calls:
            print(f"| {name} | {per_call} | {measure(engine, slots, per_call, 'x' * options.bytes)} |", flush=True)


if __name__ == "__main__":
    main()

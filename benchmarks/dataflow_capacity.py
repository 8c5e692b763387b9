"""Slots per CPU-second of a dataflow's manager and one client, for each engine, and against another checkout.

`python benchmarks/dataflow_capacity.py [--engines NAME ...] [--slots N] [--calls N ...] [--bytes N] [--rounds N]
[--other CHECKOUT] [--retained N ...] [--weights MODEL]`

A slot is admitted, leased, committed with an episode, fetched by the trainer and acknowledged. Workers lease and commit
several slots per call; the trainer makes its calls once per batch of 1,024, and three of them wait for the disk if
there is a journal. An empty call is `beat`. The CPU time is that of the client, which is worker and trainer in one, and
of the manager's process; other programs on the machine hardly change it. Every round is a process of its own: its first
batch is the column `cold`, the others are `default` (the median over rounds) and `best`. With `--other`, the rounds of
both builds take turns, and the last column is the ratio of their medians.

With `--retained`, one trainer with a journal never lets the manager delete anything, in process or over HTTP. Whenever
the manager retains one of these numbers of slots, a row is printed: slots per CPU-second over the last 16 batches, the
resident memory per slot, and the seconds that a second manager needs to read a copy of the journal.

With `--weights`, a trainer sends the weights of a model (a folder of Transformers) over HTTP, and two workers fetch and
load them: all of them in bfloat16 to new workers, which make their models then; all of them again, changed; and changed
adapters of rank 16. The time is that from the trainer's call until the first worker has loaded them, of the second
worker alone, and the CPU time of all.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from agentgym_flow.dataflow import weights as wire
from agentgym_flow.dataflow.bookkeeping.journal import ManagerJournal
from agentgym_flow.dataflow.bookkeeping.manager import JOURNAL, Manager
from agentgym_flow.dataflow.config import FlowConfig
from agentgym_flow.dataflow.network.client import HttpFlow, read_token
from agentgym_flow.dataflow.records import Claim, Commit, Flow, Lease, LeaseKey, Slot
from agentgym_flow.dataflow.residents import Residents
from agentgym_flow.dataflow.stage import actor_setup, stage_of, state_to_send
from agentgym_flow.training.config import AgentConfig
from agentgym_flow.training.models import with_lora
from agentgym_flow.training.run_config import RunConfig, WarmStartConfig

BATCH, GROUP = 1024, 8
WINDOW = 16
"""Batches over which the rate of a row of `--retained` is measured."""
MESSAGE = wire.full({})
EPISODE = '{"action":"push left","observation":"#####\\n#.@ #"}\n[[523,17,9],[-0.1131,-2.5031,-0.0004]]\n'
"""What is repeated in a payload: like an episode, it has many quotation marks."""

Served = tuple[Flow, int, Path]
"""A manager, its process, and its folder with the journal."""


@contextmanager
def in_memory(folder: Path) -> Iterator[Served]:
    """Yield a manager in this process, without a journal."""
    yield Manager(), os.getpid(), folder


@contextmanager
def with_journal(folder: Path) -> Iterator[Served]:
    """Yield a manager in this process, with a journal on disk."""
    manager = Manager(journal=ManagerJournal(folder / JOURNAL))
    yield manager, os.getpid(), folder
    manager.close()


@contextmanager
def over_http(folder: Path) -> Iterator[Served]:
    """Yield a manager with a journal in another process, over the loopback interface."""
    token = folder / "token"
    command = [sys.executable, "-m", "agentgym_flow", "dataflow", "serve", f"{folder}/manager", "--port", "0"]
    with subprocess.Popen([*command, "--token-file", token], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = re.search(r"http://\S+?:\d+", server.stdout.readline())
            assert address is not None, "the server has not started"
            flow = HttpFlow(address[0], read_token(token), deadline=60.0)
            yield flow, server.pid, folder / "manager"
            flow.close()
        finally:
            server.terminate()


@contextmanager
def on_ray(folder: Path) -> Iterator[Served]:
    """Yield a manager with a journal in an actor of Ray."""
    from agentgym_flow.dataflow.ray_engine import RayEngine, ray

    ray.init(address="local", include_dashboard=False, log_to_driver=False)
    with RayEngine(folder, FlowConfig(), namespace="benchmark") as engine:
        yield engine.flow, ray.get(engine.manager.pid.remote()), folder
    ray.shutdown()


ENGINES: dict[str, Callable[[Path], AbstractContextManager[Served]]] = {
    "memory": in_memory,
    "journal": with_journal,
    "http": over_http,
    "ray": on_ray,
}
"""The contexts that yield a new manager; all but the first have a journal."""


def commits_of(leases: Sequence[Lease], payload: str) -> list[Commit]:
    """Return the commits of a worker. Earlier versions of the package sent episodes as texts."""
    sent: Any = payload.encode() if hasattr(Flow, "exchange") else payload
    return [Commit(LeaseKey(one.stream, one.slot.id, one.attempt), sent, one.digests) for one in leases]


def opened(flow: Flow) -> Claim:
    """Return the claim of a trainer."""
    return flow.open("stream", "policy", 0, {"policies": ["policy"], "staleness": 1}, "benchmark")


def cpu(manager: int) -> float:
    """Return the CPU seconds of this process and, if that is another one, of the manager's."""
    if manager == os.getpid():
        return time.process_time()
    figures = Path(f"/proc/{manager}/stat").read_text().rpartition(")")[2].split()
    return time.process_time() + (int(figures[11]) + int(figures[12])) / os.sysconf("SC_CLK_TCK")


def run_batch(flow: Flow, claim: Claim, batch: int, after: int, per_call: int, payload: str) -> int:
    """Process the slots of a batch until they are acknowledged; return the number of the last commit."""
    flow.publish(claim, batch, batch, MESSAGE)
    flow.admit(claim, [Slot(batch, place // GROUP, place % GROUP, 0, place) for place in range(BATCH)])
    play(flow, per_call, payload)
    arrivals = flow.arrivals(claim, after)
    assert len(arrivals) == BATCH
    assert not flow.ack(claim, batch, [one.played for one in arrivals], [])
    return arrivals[-1].number


def play(flow: Flow, per_call: int, payload: str) -> None:
    """Commit an episode for each slot, as a worker: with one call for old and new leases, if there is such a call."""
    leases = flow.lease("worker", per_call)
    exchange = getattr(flow, "exchange", None)
    while leases:
        commits = commits_of(leases, payload)
        if exchange is None:
            flow.commit("worker", commits)
            leases = flow.lease("worker", per_call)
        else:
            leases = exchange("worker", commits, [], per_call).leases


def grow(engine: str, levels: list[int], per_call: int, payload: str) -> Iterator[str]:
    """Retain ever more slots; yield a row at each level."""
    with tempfile.TemporaryDirectory() as folder, ENGINES[engine](Path(folder)) as (flow, manager, place):
        claim = opened(flow)
        before, after, times = resident(manager), 0, [cpu(manager)]
        for batch in range(max(levels) // BATCH):
            after = run_batch(flow, claim, batch, after, per_call, payload)
            times.append(cpu(manager))
            slots = BATCH * (batch + 1)
            if slots in levels:
                rate = WINDOW * BATCH / (times[-1] - times[-1 - WINDOW])
                row = f"{slots:,} | {rate:,.0f} | {(resident(manager) - before) / slots:,.0f}"
                yield f"{row} | {restart(place / JOURNAL):.1f} |"
                times[-1] = cpu(manager)


def resident(process: int) -> int:
    """Return the bytes of a process that are in memory."""
    return int(re.findall(r"VmRSS:\s+(\d+)", Path(f"/proc/{process}/status").read_text())[0]) * 1024


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


def measure(engine: str, slots: int, per_call: int, payload: str) -> dict[str, float]:
    """Return slots per CPU-second for the first batch (`cold`) and the others (`slots`), and empty `calls`."""
    with tempfile.TemporaryDirectory() as folder, ENGINES[engine](Path(folder)) as (flow, manager, _):
        claim, after, times = opened(flow), 0, [cpu(manager)]
        for batch in range(slots // BATCH):
            after = run_batch(flow, claim, batch, after, per_call, payload)
            flow.keep(claim, batch + 1)
            times.append(cpu(manager))
        calls = max(100, slots // 16)
        for _ in range(calls):
            flow.beat(claim)
        used = cpu(manager) - times[-1]
        rate = (slots - BATCH) / (times[-1] - times[1])
        return {"cold": BATCH / (times[1] - times[0]), "slots": rate, "calls": calls / used}


def weights(folder: str) -> dict[str, list[float]]:
    """Return the figures of `--weights`, by what was sent.

    They are megabytes, seconds of the first and of the second worker, and CPU-seconds. A worker has what a real one
    has: the stage of a setup, and models that it makes when weights come.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    run = RunConfig(env_kwargs={"size": 6, "boxes": 1}, model=folder, lora=True, dtype="bfloat16")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    adapted = with_lora(model, rank=16, alpha=32, seed=0)
    args = AgentConfig(output_dir="unused", num_generations=8)
    told = actor_setup((run, WarmStartConfig(), args), adapted, AutoTokenizer.from_pretrained(folder))
    actor = stage_of({"policies": ["policy"], "turns": [], "actors": {"policy": told}}).actors["policy"]
    with tempfile.TemporaryDirectory() as place, over_http(Path(place)) as (flow, manager, _):
        claim, sender, rows = opened(flow), wire.Sender(), {}
        workers = [Residents(flow, "policy", [actor.policy] * 2) for _ in range(2)]
        for update, what in enumerate(("all weights, to a new worker", "all weights, changed", "changed adapters")):
            for name, tensor in adapted.named_parameters():
                if update == 1 or (update and "lora_B" in name):
                    tensor.data = 1.5 * tensor.data + 0.5
            used, times = cpu(manager), [time.perf_counter()]
            message = sender.message(state_to_send(adapted))
            version = flow.publish(claim, update, update, message)
            for worker in workers:
                worker.give_back(asyncio.run(worker.take(version, wire.header(message).digest)))
                times.append(time.perf_counter())
            seconds = [after - before for before, after in pairwise(times)]
            rows[what] = [len(message) / 1e6, *seconds, cpu(manager) - used]
            del message
            flow.ack(claim, update, [], [])
    return rows


def compare_weights(checkouts: list[str], folder: str, rounds: int) -> Iterator[str]:
    """Yield the rows of `--weights`: medians, with the rounds of all checkouts taking turns."""
    found = [[in_checkout(one, "--rounds", 0, "--weights", folder) for one in checkouts] for _ in range(rounds)]
    for what in found[0][0]:
        cells: list[str] = []
        medians = []
        for several in zip(*found, strict=True):
            figures = [statistics.median(column) for column in zip(*(one[what] for one in several), strict=True)]
            cells += [f"{figures[0]:,.1f}"] * (not cells) + [f"{one:.2f}" for one in figures[1:]]
            medians.append(figures)
        if len(medians) > 1:
            cells += [f"{medians[0][column] / medians[1][column]:.2f}" for column in (1, 3)]
        yield " | ".join([what, *cells])


def in_checkout(checkout: str, *options: object) -> dict[str, Any]:
    """Return what `measure` or `weights` finds in a process with the package of a checkout."""
    here = {**os.environ, "PYTHONPATH": checkout}
    command = [sys.executable, str(Path(__file__).resolve()), *map(str, options)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True, env=here, cwd=checkout).stdout
    found: dict[str, Any] = json.loads(answer.splitlines()[-1])
    return found


def compare(checkouts: list[str], engine: str, slots: int, per_call: int, size: int, rounds: int) -> str:
    """Return the row of an engine, with the rounds of all checkouts taking turns."""
    found = [[in_checkout(one, "--measure", engine, slots, per_call, size) for one in checkouts] for _ in range(rounds)]
    cells, medians = [], []
    for several in zip(*found, strict=True):
        cold, default, calls = (statistics.median(one[name] for one in several) for name in ("cold", "slots", "calls"))
        medians.append(default)
        cells.append(f"{cold:,.0f} | {default:,.0f} | {max(one['slots'] for one in several):,.0f} | {calls:,.0f}")
    return " | ".join([*cells, *([f"{medians[0] / medians[1]:.2f}"] if len(medians) > 1 else [])])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__)
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=[*ENGINES])
    parser.add_argument("--slots", type=int, default=10_240, help="in each round; whole batches are made of them")
    parser.add_argument("--calls", type=int, nargs="+", default=[16, 1], help="slots a call")
    parser.add_argument("--bytes", type=int, default=6_000, help="of an episode")
    parser.add_argument("--rounds", type=int, default=3, help="of each row; 0 with --weights: here, as JSON")
    parser.add_argument("--other", help="a checkout of the package to compare with")
    parser.add_argument("--retained", type=int, nargs="+", help="measure at these numbers of slots, in whole windows")
    parser.add_argument("--weights", help="a folder with a model of Transformers")
    parser.add_argument("--measure", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        engine, slots, per_call, size = options.measure
        print(json.dumps(measure(engine, int(slots), int(per_call), episode(int(size)))))
        return
    checkouts = [str(Path(__file__).resolve().parents[1]), *([options.other] if options.other else [])]
    if options.weights and not options.rounds:
        print(json.dumps(weights(options.weights)))
        return
    if options.weights:
        columns = ["first worker, s", "second worker, s", "CPU-seconds"] * len(checkouts)
        columns = ["sent", "MB", *columns, *(["ratio of s", "ratio of CPU"] if options.other else [])]
        print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
        for row in compare_weights(checkouts, options.weights, options.rounds):
            print(f"| {row} |")
        return
    if options.retained:
        levels = [max(1, number // (WINDOW * BATCH)) * WINDOW * BATCH for number in options.retained]
        print("| retained slots | slots per CPU-second | bytes in memory per slot | restart, s |\n|---|---|---|---|")
        for row in grow(options.engines[-1], levels, options.calls[0], episode(options.bytes)):
            print(f"| {row}", flush=True)
        return
    slots = max(2, options.slots // BATCH) * BATCH
    columns = ["cold", "default", "best", "empty calls"] * len(checkouts) + ["ratio"] * (len(checkouts) - 1)
    print(f"| engine | slots a call | {' | '.join(columns)} |\n|{'---|' * (len(columns) + 2)}")
    for engine in options.engines:
        for per_call in options.calls:
            row = compare(checkouts, engine, slots, per_call, options.bytes, options.rounds)
            print(f"| {engine} | {per_call} | {row} |", flush=True)


def episode(size: int) -> str:
    """Return a payload of so many bytes."""
    return (EPISODE * (1 + size // len(EPISODE)))[:size]


if __name__ == "__main__":
    main()

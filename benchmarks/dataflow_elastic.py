"""Nodes join and leave a Ray cluster during training: throughput follows, and the final weights stay the same.

    python benchmarks/dataflow_elastic.py [--batches 32] [--phase 40] [--output runs/elastic]

The tiny policy trains on Sokoban (6x6, one box) in fixed order on `ray.cluster_utils.Cluster`, a cluster whose nodes
are processes on this machine. Each episode has an artificial delay (lognormal, `--median` and `--sigma`), so throughput
depends on workers and not on local cores. Every `--phase` seconds, but not before the newest node has played, a node
joins or is killed:

    a                  2 workers
    + b                2 more
    + c                2 more, whose episodes take twice as long
    a is killed        its workers' leases end, and other workers play those episodes

An undisturbed run has the same settings, one worker and no delay. Both must end with equal weights, and each episode
must be trained on once; otherwise the script exits with status 1. The output folder gets `results.json` and
`throughput.svg`, a chart of the episodes committed per second by node.

    python benchmarks/dataflow_elastic.py --local --batches 72 --episodes 32 --num-envs 4 --median 1

starts 1 to 8 workers on this machine without Ray (`workers: {min: 1, max: 8}`). In the second third of the batches,
episodes take twice as long. Each update takes `--training` seconds more. The script prints the numbers of workers.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import yaml  # type: ignore[import-untyped]
from _kills_report import outcome
from _latency_worker import latency_service, slowing_worker
from _supervised import PROGRAM, ROOT, Child
from dataflow_kills import SIZE, finish, train_command, warm_start

from agentgym_flow._util.signals import sigterm_raises
from agentgym_flow.errors import FlowDown
from agentgym_flow.report.charts import layers_svg

STALENESS = 4
LOOK = 0.5
"""Seconds between two requests to the manager."""

WINDOW = 5.0
"""Seconds over which throughput is averaged."""

NODES: dict[str, dict[str, float]] = {"a": {}, "b": {}, "c": {"slower": 2.0}}
"""The nodes, each with room for two workers."""


class Director:
    """Adds and removes nodes, and records the commits of every worker.

    Args:
        cluster: a `ray.cluster_utils.Cluster` whose head has no room for workers.
        phase: seconds between two changes.

    Attributes:
        events: time in seconds, description.
        samples: time in seconds, episodes accepted so far by worker.
    """

    def __init__(self, cluster: Any, phase: float) -> None:
        self.events: list[tuple[float, str]] = []
        self.samples: list[tuple[float, dict[str, int]]] = []
        self._cluster, self._phase = cluster, phase
        self._nodes: dict[str, Any] = {}
        self._zero, self._newest = 0.0, ""
        self._over = threading.Event()

    @contextmanager
    def directing(self, flow: Any) -> Iterator[None]:
        """Make the changes in a thread within the context."""
        thread = threading.Thread(target=self._direct, args=[flow], daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def join(self, name: str) -> None:
        """Add a node."""
        self._note(f"{name} joins")
        self._newest = name
        self._nodes[name] = self._cluster.add_node(
            num_cpus=2, resources={f"kind_{name}": 1, **NODES[name]}, object_store_memory=80 << 20
        )

    def kill(self, name: str) -> None:
        """Kill a node with everything on it."""
        self._note(f"{name} is killed")
        self._cluster.remove_node(self._nodes.pop(name), allow_graceful=False)

    def _note(self, what: str) -> None:
        self.events.append((self._now(), what))
        print(f"{self._now():6.1f} s  {what}", file=sys.stderr, flush=True)

    def _now(self) -> float:
        return time.monotonic() - self._zero if self._zero else 0.0

    def _direct(self, flow: Any) -> None:
        changes = [lambda: self.join("b"), lambda: self.join("c"), lambda: self.kill("a")]
        while not self._over.wait(LOOK):
            try:
                workers = flow.status()["workers"]
            except FlowDown:  # the run is over
                continue
            accepted = {name: one.get("accepted", 0) for name, one in workers.items()}
            if not self._zero and any(accepted.values()):
                self._zero = time.monotonic()  # time of the first episode
            if self._zero:
                self.samples.append((self._now(), accepted))
            played = any(name.startswith(f"{self._newest}/") and count for name, count in accepted.items())
            if changes and played and self._now() > self._phase * (4 - len(changes)):
                changes.pop(0)()


def rates(samples: list[tuple[float, dict[str, int]]]) -> list[tuple[float, dict[str, float]]]:
    """Return the episodes per second of each node at each time, over the last `WINDOW` seconds."""
    found = []
    first = 0
    for at, counts in samples:
        while samples[first][0] < at - WINDOW:
            first += 1
        since, before = samples[first]
        by_node: Counter[str] = Counter()
        for worker, count in counts.items():
            by_node[worker.partition("/")[0]] += count - before.get(worker, 0)
        found.append((at, {node: by_node[node] / max(at - since, LOOK) for node in NODES}))
    return found


def phases(director: Director, chosen: argparse.Namespace) -> list[dict[str, Any]]:
    """Return when throughput followed each change, and its mean until the next one; the first change is the start.

    Throughput follows when a new node's first or a killed node's last episode is committed.
    """
    mean = chosen.median * math.exp(chosen.sigma**2 / 2)
    there: set[str] = set()
    found = []
    times = [at for at, _ in director.events] + [director.samples[-1][0]]
    for number, (at, what) in enumerate(director.events):
        node = what[0]
        there = there - {node} if "killed" in what else there | {node}
        of_node = [(t, sum(n for w, n in counts.items() if w.startswith(f"{node}/"))) for t, counts in director.samples]
        last = of_node[-1][1]
        if "killed" in what:
            followed = next(t for t, count in of_node if count == last)
        else:
            followed = next((t for t, count in of_node if count), math.nan)
        settled = [(t, c) for t, c in director.samples if max(followed, at) + 2 <= t <= times[number + 1]]
        rate = math.nan
        if len(settled) > 1:
            rate = (sum(settled[-1][1].values()) - sum(settled[0][1].values())) / (settled[-1][0] - settled[0][0])
        possible = sum(2 * chosen.num_envs / (mean * NODES[one].get("slower", 1.0)) for one in there)
        found.append({"at": at, "what": what, "followed": max(0.0, followed - at), "rate": rate, "possible": possible})
    return found


def elastic(chosen: argparse.Namespace) -> dict[str, Any]:
    """Train while nodes join and leave; return the results."""
    os.environ["RAY_AUTH_MODE"] = "disabled"  # else Ray writes a token to the home directory
    paths = [str(ROOT), str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ |= {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    from agentgym_flow.dataflow import run
    from agentgym_flow.dataflow.bookkeeping.manager import hosted
    from agentgym_flow.dataflow.config import FlowConfig
    from agentgym_flow.dataflow.ray_engine import RayEngine, RayFlow
    from agentgym_flow.training.config_file import parse_configs
    from agentgym_flow.training.models import quiet

    import ray  # isort: skip
    from ray.cluster_utils import Cluster  # isort: skip

    from rich.console import Console

    quiet()
    output = chosen.output / "elastic"
    config = FlowConfig(workers=None, staleness=STALENESS, lease_seconds=5.0, deadline=120.0, num_envs=chosen.num_envs)
    head = {"num_cpus": 0, "object_store_memory": 100 << 20}
    cluster = Cluster(initialize_head=True, head_node_args=head, shutdown_at_exit=False)  # nodes join from a thread
    director = Director(cluster, chosen.phase)
    director.join("a")
    ray.init(address=cluster.address, log_to_driver=False)
    options = {"num_envs": config.num_envs, "versions": config.versions, "median": chosen.median, "sigma": chosen.sigma}

    @contextmanager
    def engine_of(name: str, config: FlowConfig, folder: Path, _: Sequence[str]) -> Iterator[Any]:
        engine = RayEngine(folder, config, service=latency_service, options=options)
        with engine, director.directing(RayFlow(engine.manager, deadline=1.0)):
            yield engine

    words = [*map(str, train_command(chosen, output))][len(PROGRAM) + 4 :]  # after `train ALGO --env ID`
    try:
        with mock.patch.object(run, "engine_of", engine_of):
            run.train(
                parse_configs([*words, "--credit=rewardflow", "--env_id=agentgym_flow/Sokoban-v0"]),
                config,
                "ray",
                "policy",
                Console(stderr=True),
            )
    finally:
        ray.shutdown()
        cluster.shutdown()  # type: ignore[no-untyped-call]
    with hosted(output / "dataflow", config) as manager:  # the final state by the journal
        (stream,) = manager.status()["streams"].values()
    series = rates(director.samples)
    kinds = {f"node {name}": f"k{number}" for number, name in enumerate(NODES)}
    picture = [(at, {f"node {name}": rate for name, rate in one.items()}) for at, one in series[::2]]
    (chosen.output / "throughput.svg").write_text(layers_svg(picture, kinds, "Episodes per second"), "utf-8")
    return {
        **outcome(output),
        "counts": stream["counts"],
        "states": stream["states"],
        "phases": phases(director, chosen),
        "workers": director.samples[-1][1],
        "series": series,
    }


def local(chosen: argparse.Namespace) -> list[dict[str, Any]]:
    """Train with workers whose number follows the recommendation; return a row for each number of workers."""
    os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    from rich.console import Console

    from agentgym_flow.dataflow import local_engine, run
    from agentgym_flow.dataflow.batches import LeasedGroups
    from agentgym_flow.dataflow.config import FlowConfig
    from agentgym_flow.training.config_file import parse_configs

    third = chosen.batches // 3
    latency = {"median": chosen.median, "sigma": chosen.sigma, "slow": range(third, 2 * third)}
    engine = partial(run.LocalEngine, program=partial(slowing_worker, **latency))
    words = [*map(str, train_command(chosen, chosen.output / "local"))][len(PROGRAM) + 4 :]
    rows: list[dict[str, Any]] = []
    began, take, resize = time.monotonic(), LeasedGroups.take, local_engine.Crew.resize

    def taken(source: LeasedGroups, batch: int, version: int) -> Any:
        waited = time.monotonic()
        found = take(source, batch, version)
        rows[-1]["waited"] += time.monotonic() - waited
        rows[-1]["batches"] += 1
        time.sleep(chosen.training)
        return found

    def resized(crew: Any, count: int) -> None:
        rows.append({"at": time.monotonic() - began, "workers": count, "batches": 0, "waited": 0.0})
        resize(crew, count)

    config = FlowConfig(workers={"min": 1, "max": 8}, staleness=2, num_envs=chosen.num_envs)
    with (
        mock.patch.object(run, "LocalEngine", engine),
        mock.patch.object(LeasedGroups, "take", taken),
        mock.patch.object(local_engine.Crew, "resize", resized),
    ):
        arguments = [*words, "--credit=rewardflow", "--env_id=agentgym_flow/Sokoban-v0"]
        run.train(parse_configs(arguments), config, "local", "policy", Console(stderr=True))
    return rows


def undisturbed(chosen: argparse.Namespace) -> dict[str, Any]:
    """Train with the same settings and one undisturbed worker; return the results."""
    output, settings = chosen.output / "undisturbed", chosen.output / "flow.yaml"
    settings.write_text(yaml.safe_dump({"staleness": STALENESS, "num_envs": chosen.num_envs}), "utf-8")
    finish(Child("undisturbed", [*train_command(chosen, output), "--dataflow", settings], chosen.output))
    return outcome(output)


def problems(found: dict[str, Any], plain: dict[str, Any], chosen: argparse.Namespace) -> list[str]:
    """Return all violated requirements."""
    said = []
    if found["weights"] != plain["weights"]:
        said.append("the weights differ from those of the undisturbed run")
    planned = chosen.batches * chosen.episodes
    if found["states"]["used"] + found["states"]["trained"] != planned or found["episodes"] != planned:
        said.append(
            f"not all {planned} episodes were trained on exactly once: {found['states']}, log {found['episodes']}"
        )
    if len(found["phases"]) < len(NODES) + 1:
        said.append("the run ended before all changes of nodes: increase --batches")
    return said


def arguments() -> argparse.Namespace:
    """Return the settings of the script."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=Path("runs/elastic"), help="replaced if it exists")
    parser.add_argument("--batches", type=int, default=32)
    parser.add_argument("--episodes", type=int, default=64, help=f"per batch, a multiple of {SIZE}")
    parser.add_argument("--num-envs", type=int, default=8, help="episodes that a worker plays at a time")
    parser.add_argument("--phase", type=float, default=40.0, help="seconds between two changes")
    parser.add_argument("--median", type=float, default=2.0, help="median delay of an episode in seconds")
    parser.add_argument("--sigma", type=float, default=0.4, help="of the delay's logarithm")
    parser.add_argument("--local", action="store_true", help="workers on this machine, whose number follows")
    parser.add_argument("--training", type=float, default=3.0, help="seconds added to each update, with --local")
    parser.set_defaults(save_every=10)
    return parser.parse_args()


def main() -> None:
    """Do both runs and print the table; exit with status 1 if a requirement is violated."""
    chosen = arguments()
    shutil.rmtree(chosen.output, ignore_errors=True)
    chosen.output.mkdir(parents=True)
    with sigterm_raises():
        warm_start(chosen.output)
        if chosen.local:
            rows = local(chosen)
            (chosen.output / "results.json").write_text(json.dumps(rows, indent=2), "utf-8")
            print("| at | workers | batches | seconds that the trainer waited for each |\n|---|---|---|---|")
            for one in rows:
                each = one["waited"] / max(1, one["batches"])
                print(f"| {one['at']:.0f} s | {one['workers']} | {one['batches']} | {each:.1f} |")
            return
        plain = undisturbed(chosen)
        found = elastic(chosen)
    wrong = problems(found, plain, chosen)
    (chosen.output / "results.json").write_text(json.dumps({**found, "problems": wrong}, indent=2), "utf-8")
    print("| at | what | first or last episode after | episodes/s | possible |\n|---|---|---|---|---|")
    for one in found["phases"]:
        print("| {at:.0f} s | {what} | {followed:.1f} s | {rate:.1f} | {possible:.1f} |".format(**one))
    print("\nepisodes by worker:", found["workers"], "\ncounts:", found["counts"])
    print("weights:", found["weights"][:12], "undisturbed:", plain["weights"][:12])
    for problem in wrong:
        print(f"PROBLEM: {problem}")
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()

"""Two regions with a slow link between them: relays, continuous training, and corrupted messages.

    python benchmarks/dataflow_regions.py [--batches 12] [--only NAME ...] [--output runs/regions]      (as root)

The trainer, the manager and one worker are in the home region. The far region is a network namespace (`ip netns`)
behind a link that scales down a published one of 4 Gbit/s and a round trip of 300 ms. There, 28 GB of weights every
78 s take 0.72 of the time between two updates. Here, the rate is set so that full weights take the same fraction
(`--update-seconds`, measured without the far region). The 300 ms are not scaled, which is harder. `_link.py`
implements the link. The runs of the tiny policy on Sokoban:

    home             no far workers
    direct 1, 2, 4   this number of far workers, each of which requests its weights from home
    relay 1, 2, 4    the same with a relay in the far region
    faults           relay, 2 workers; the link flips bits and resends commits
    forger           relay, 2 workers, one of which falsifies half of its episodes
    bfloat16         relay, 2 workers; weights in bfloat16 and a learning rate of 1e-6: deltas are smaller
    lora             relay, 2 workers; adapters only

All except the last two train on the same batches (fixed order, S = 4) and must end with equal weights. The script exits
with status 1 if they do not, or if a forgery was accepted. Episodes have a given duration (`_latency_worker.py`).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import yaml  # type: ignore[import-untyped]
from _kills_report import outcome
from _link import HOME, FarRegion
from _supervised import PROGRAM, Child
from dataflow_kills import SIZE, train_command, warm_start

from agentgym_flow.dataflow.network.client import VARIABLE, HttpFlow, token_in
from agentgym_flow.dataflow.weights import apply, header
from agentgym_flow.errors import BadData, FlowDown

STALENESS = 4
PUBLISHED = 28e9 * 8 / 4e9 / 77.65
"""Transfer time of the published weights on the published link, divided by the time between two updates there."""

HERE = Path(__file__).parent
MANAGER, PROXY, RELAY = 8310, 9000, 8311


class Run(NamedTuple):
    """One run: the number of far workers, and special settings."""

    far: int = 0
    relay: bool = True
    faults: tuple[object, ...] = ()
    forge: float = 0.0
    settings: tuple[object, ...] = ()


RUNS = {
    "home": Run(),
    **{f"direct {count}": Run(count, relay=False) for count in (1, 2, 4)},
    **{f"relay {count}": Run(count) for count in (1, 2, 4)},
    "faults": Run(2, faults=("--flips", 0.02, "--replays", 0.5)),
    "forger": Run(2, forge=0.5),
    "bfloat16": Run(2, settings=("--bf16", "true", "--use_cpu", "true", "--learning_rate", 1e-6)),
    "lora": Run(2, settings=("--lora", "true")),
}


class Regions:
    """The processes of one run.

    Args:
        chosen: the settings of the script.
        name: the name of the run.
        link: the far region.
    """

    def __init__(self, chosen: argparse.Namespace, name: str, link: FarRegion) -> None:
        self.run, self.link = RUNS[name], link
        self.output, self.folder = chosen.output / name, chosen.output / f"{name}-parts"
        self.folder.mkdir(parents=True)
        self._chosen = chosen
        self._token = self.folder / "token"
        self.flow = HttpFlow(f"http://{HOME}:{MANAGER}", token_in(self._token), deadline=30.0)

    @contextmanager
    def there(self) -> Iterator[Child]:
        """Run all processes within the context; yield the started trainer."""
        settings = self.folder / "flow.yaml"
        flow = {"staleness": STALENESS, "workers": 0, "lease_seconds": 20.0, "deadline": 120}
        settings.write_text(yaml.safe_dump(flow), "utf-8")
        manager = ["--settings", settings, "--token-file", self._token, "--host", HOME, "--port", MANAGER]
        with ExitStack() as stack:
            self._start(stack, "manager", [*PROGRAM, "dataflow", "serve", self.folder / "manager", *manager])
            self.flow.status()
            self._start(stack, "worker-home", self._worker("home", f"http://{HOME}:{MANAGER}"))
            if self.run.far:
                self._far_region(stack)
            command = [*train_command(self._chosen, self.output), *self.run.settings, "--dataflow", settings]
            command += ["--engine", f"http://{HOME}:{MANAGER}"]
            yield self._start(stack, "trainer", command)

    def _far_region(self, stack: ExitStack) -> None:
        proxy = ["--listen", f"127.0.0.1:{PROXY}", "--to", f"{HOME}:{MANAGER}", "--report", self.folder / "proxy.json"]
        proxy = [sys.executable, HERE / "_link.py", *proxy, "--delay", self._chosen.delay, *self.run.faults]
        self._start(stack, "proxy", self.link.command(proxy))
        port = PROXY
        if self.run.relay:
            port, tokens = RELAY, ["--upstream-token-file", self._token, "--token-file", self._token]
            relay = [*PROGRAM, "dataflow", "serve", "--upstream", f"http://127.0.0.1:{PROXY}", *tokens, "--port", port]
            self._start(stack, "relay", self.link.command(relay))
            self._wait_for_relay()
        for number in range(self.run.far):
            forge = ["--forge", self.run.forge, "--report", self.folder / "forged.json"] if number == 0 else []
            worker = self._worker(f"far-{number}", f"http://127.0.0.1:{port}", *forge)
            self._start(stack, f"worker-far-{number}", self.link.command(worker))

    def _wait_for_relay(self) -> None:
        log = self.folder / "relay.log"
        while "answers at" not in log.read_text("utf-8"):
            time.sleep(0.1)

    def _worker(self, name: str, url: str, *more: object) -> list[object]:
        place = ["--join", url, "--token-file", self._token, "--name", name]
        return [sys.executable, HERE / "_latency_worker.py", *place, "--median", self._chosen.median, *more]

    def _start(self, stack: ExitStack, name: str, command: list[object]) -> Child:
        child = Child(name, command, self.folder, {VARIABLE: self._token.read_text().strip()})
        stack.callback(child.close)
        child.start()
        return child


def done(chosen: argparse.Namespace, name: str, link: FarRegion) -> dict[str, Any]:
    """Do a run and return its results."""
    parts = Regions(chosen, name, link)
    acknowledged: list[float] = []
    status: dict[str, Any] = {}
    before = link.crossed()
    sizes: dict[int, dict[str, Any]] = {}
    with parts.there() as trainer:
        while trainer.ended() is None:
            time.sleep(0.1)
            status = _status(parts.flow) or status
            for policy in [one for stream in status.get("streams", {}).values() for one in stream["policies"].values()]:
                acknowledged += [time.monotonic()] * (policy["done"] - len(acknowledged))
                newest = (policy["newest"] or {"version": 0})["version"]
                if parts.run.far and newest > 1 and newest not in sizes:
                    sizes[newest] = _sizes(parts.flow, newest)
        if trainer.ended():
            raise SystemExit(f"{trainer.log} ended with status {trainer.ended()}: {trainer.said()}")
        time.sleep(1.0)
        crossed = {way: count - before[way] for way, count in link.crossed().items()}
        status = parts.flow.status()
    parts.flow.close()
    (stream,) = status["streams"].values()
    gaps = [later - one for one, later in pairwise(acknowledged)]
    found = {
        **outcome(parts.output),
        "crossed": crossed,
        "seconds": sum(gaps),
        "longest": max(gaps[STALENESS:]),  # earlier, workers are still starting
        "counts": stream["counts"],
        "states": stream["states"],
        "workers": {one: it.get("accepted", 0) for one, it in status["workers"].items()},
        "sizes": [one for one in sizes.values() if one],
    }
    for what in ("proxy", "forged"):
        file = parts.folder / f"{what}.json"
        found[what] = json.loads(file.read_text()) if file.is_file() else {}
    return found


def _status(flow: HttpFlow) -> dict[str, Any] | None:
    try:
        return flow.status()
    except FlowDown:
        return None


def _sizes(flow: HttpFlow, version: int) -> dict[str, Any]:
    """Return the sizes of a version in full and as a delta; both must give the same weights."""
    try:
        base = flow.fetch("policy", version - 1, None)
        whole, change = flow.fetch("policy", version, None), flow.fetch("policy", version, version - 1)
    except BadData:
        return {}  # no longer stored
    state = apply(None, base)
    same = all(apply(None, whole)[name].equal(weight) for name, weight in apply(state, change).items())
    return {"full": len(whole), "sent": len(change), "kind": header(change).kind, "same": same}


def problems(runs: dict[str, dict[str, Any]], chosen: argparse.Namespace) -> list[str]:
    """Return all violated requirements."""
    said = []
    planned = chosen.batches * chosen.episodes
    for name, run in runs.items():
        if run["states"]["used"] + run["states"]["trained"] != planned or run["episodes"] != planned:
            said.append(f"{name}: not all {planned} episodes were trained on exactly once: {run['states']}")
        if not RUNS[name].settings and run["weights"] != runs["home"]["weights"]:
            said.append(f"{name}: the weights differ from those of home")
        if not all(one["same"] for one in run["sizes"]):
            said.append(f"{name}: a delta and full weights differ")
        forgeries = sum(count for kind, count in run["forged"].items() if kind != "honest")
        if forgeries != run["counts"].get("rejected", 0):
            said.append(f"{name}: {forgeries} forgeries, {run['counts'].get('rejected', 0)} rejected")
    return said


def table(runs: dict[str, dict[str, Any]]) -> str:
    """Return the results as a Markdown table."""
    lines = ["| run | to the far region | back | s a batch | longest | far share | an update weighs | weights |"]
    lines.append("|---" * 8 + "|")
    for name, run in runs.items():
        far = sum(count for worker, count in run["workers"].items() if worker.startswith("far"))
        sizes = sorted(run["sizes"], key=lambda one: one["sent"])
        middle = sizes[len(sizes) // 2] if sizes else None
        weighs = f"{middle['sent'] / 1e3:,.0f} kB ({middle['kind']})" if middle else ""
        bytes_ = [f"{run['crossed'][way] / 1e6:.1f} MB" for way in ("to far", "to home")]
        share = far / max(1, sum(run["workers"].values()))
        each = run["seconds"] / max(1, run["batches"] - 1)
        lines.append(
            f"| {name} | {' | '.join(bytes_)} | {each:.2f} | {run['longest']:.1f} s | {share:.0%} | {weighs} "
            f"| `{run['weights'][:12]}` |"
        )
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    """Return the settings of the script."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=Path("runs/regions"), help="replaced if it exists")
    parser.add_argument("--batches", type=int, default=12)
    parser.add_argument("--episodes", type=int, default=32, help=f"per batch, a multiple of {SIZE}")
    parser.add_argument("--median", type=float, default=1.0, help="median delay of an episode in seconds")
    parser.add_argument("--delay", type=float, default=0.3, help="round-trip time in seconds")
    parser.add_argument("--update-seconds", type=float, help="seconds between two updates (default: measured)")
    parser.add_argument("--only", nargs="*", choices=RUNS, default=[*RUNS], help="runs besides home (default: all)")
    parser.set_defaults(save_every=100)
    return parser.parse_args()


def main() -> None:
    """Do the runs and print the table; exit with status 1 if a requirement is violated."""
    chosen = arguments()
    if os.geteuid():
        raise SystemExit("network namespaces need root")
    shutil.rmtree(chosen.output, ignore_errors=True)
    chosen.output.mkdir(parents=True)
    warm_start(chosen.output)
    weights = (chosen.output / "warm" / "warm_start" / "model.safetensors").stat().st_size
    rate: float | None = None
    runs: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(["home", *chosen.only]):
        print(f"{name} ...", file=sys.stderr, flush=True)
        with FarRegion(rate) as link:
            runs[name] = {**done(chosen, name, link), "batches": chosen.batches}
        found = problems(runs, chosen)
        (chosen.output / "results.json").write_text(json.dumps({"runs": runs, "problems": found}, indent=2), "utf-8")
        if name == "home":
            seconds = chosen.update_seconds or runs[name]["seconds"] / (chosen.batches - 1)
            rate = weights * 8 / (PUBLISHED * seconds)
            print(f"link: {rate / 1e6:.2f} Mbit/s, {chosen.delay} s; full weights {weights / 1e6:.2f} MB", flush=True)
    print(table(runs))
    for name in ("faults", "forger"):
        if name in runs:
            print(f"{name}: {runs[name]['proxy']}, {runs[name]['forged']}, {runs[name]['counts']}")
    for problem in found:
        print(f"PROBLEM: {problem}")
    raise SystemExit(1 if found else 0)


if __name__ == "__main__":
    main()

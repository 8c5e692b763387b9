"""Rollout workers whose episodes take a stated time, so that throughput depends on workers and not on this machine.

    python benchmarks/_latency_worker.py --join URL --token-file FILE --name NAME [--median 1] [--forge 0.5]

With `--forge` a worker falsifies a fraction of its episodes: a reward, an action, an observation, the end, the length,
or the task.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from agentgym_flow.cli.dataflow import follow_trainer
from agentgym_flow.dataflow import rollout
from agentgym_flow.dataflow.network.client import HttpFlow, read_token
from agentgym_flow.dataflow.records import Commit, CommitVerdict, Exchanged, Flow
from agentgym_flow.dataflow.rollout import RolloutService, _EpisodePolicies, _Playing
from agentgym_flow.errors import FlowDown
from agentgym_flow.policies import PolicyInput, PolicyOutput

Row = dict[str, Any]


class LatencyService(RolloutService):
    """A worker that sleeps in or after each episode, for a time from a lognormal distribution.

    Args:
        flow: the manager.
        median: the median of the distribution, in seconds.
        sigma: the standard deviation of the logarithm.
        slow: batches whose episodes take twice as long.
        turns: the first turns among which the time is shared out, after their answers; 0: all is after the last turn.
        seed: other seeds give other times.
        more: other arguments of `RolloutService`.
    """

    def __init__(
        self,
        flow: Flow,
        *,
        median: float,
        sigma: float,
        slow: Container[int] = (),
        turns: int = 0,
        seed: int = 0,
        **more: Any,
    ) -> None:
        super().__init__(flow, stay=True, **more)  # who started it ends it
        self._median, self._sigma, self._slow, self._turns, self._seed = median, sigma, slow, turns, seed
        if turns:
            vars(rollout)["_EpisodePolicies"] = partial(_SlowPolicies, self)

    def seconds(self, playing: _Playing) -> float:
        """Return how long an episode takes."""
        draw = random.Random(repr(playing.lease.held) + f" {self._seed}" * bool(self._seed)).gauss(0, self._sigma)
        slower = 2.0 if playing.lease.slot.batch in self._slow else 1.0
        return slower * self._median * math.exp(draw)

    async def _play_episode(self, playing: _Playing, *more: Any) -> str | None:
        reason = await super()._play_episode(playing, *more)
        if not self._turns:
            await asyncio.sleep(self.seconds(playing))
        return reason


class _SlowPolicies(_EpisodePolicies):
    """Policies of an episode whose first turns take time, while their weights are in use."""

    def __init__(self, service: LatencyService, playing: _Playing, *more: Any) -> None:
        super().__init__(playing, *more)
        self._pause, self._turns = service.seconds(playing) / service._turns, service._turns

    async def respond(self, policy_input: PolicyInput) -> PolicyOutput:
        output = await super().respond(policy_input)
        if len(policy_input.episode.turns) < self._turns:
            await asyncio.sleep(self._pause)
        return output


def latency_service(flow: Flow, name: str, options: Mapping[str, Any]) -> LatencyService:
    """Return the worker of a Ray actor. Its episodes take `slower` times as long on a node with that resource."""
    import ray

    here = ray.get_runtime_context().get_node_id()
    (node,) = (one for one in ray.nodes() if one["NodeID"] == here)  # type: ignore[no-untyped-call]
    slower = node["Resources"].get("slower", 1.0)
    kind = next(one for one in node["Resources"] if one.startswith("kind_")).removeprefix("kind_")
    settings = {**options, "median": options["median"] * slower}
    return LatencyService(flow, name=f"{kind}/{name}", **settings)


def slowing_worker(options: Sequence[str], **latency: Any) -> None:
    """Run a worker with options of `agentgym-flow worker` and arguments of `LatencyService`, for `LocalEngine`."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name, kind in (("join", str), ("name", str), ("num-envs", int), ("versions", int), ("deadline", float)):
        parser.add_argument(f"--{name}", type=kind)
    parser.add_argument("--stay", action="store_true")
    chosen = parser.parse_args(options)
    flow = HttpFlow(chosen.join, read_token(), deadline=chosen.deadline)
    worker = LatencyService(flow, name=f"{chosen.name}-{os.getpid()}", num_envs=chosen.num_envs, **latency)
    signal.signal(signal.SIGTERM, lambda *_: worker.stop())
    threading.Thread(target=follow_trainer, daemon=True).start()
    worker.run()


# ---------------------------------------------------------------- a worker that forges
def _reward(row: Row, columns: list[list[Any]]) -> None:
    row["rewards"][-1] += 10.0
    row["success"], row["score"] = True, 1.0


def _action(row: Row, columns: list[list[Any]]) -> None:
    row["actions"][0] = "up" if row["actions"][0] == "down" else "down"


def _observation(row: Row, columns: list[list[Any]]) -> None:
    row["digest"] = row["digest"][::-1]  # it is over all observations and states


def _ending(row: Row, columns: list[list[Any]]) -> None:
    row["terminated"], row["truncated"] = not row["terminated"], not row["truncated"]


def _length(row: Row, columns: list[list[Any]]) -> None:
    for one in (row["actions"], row["rewards"], row["digests"], *columns, row.get("completions") or [0]):
        one.pop()


def _task(row: Row, columns: list[list[Any]]) -> None:
    row["task"] += 1


FORGERIES: tuple[Callable[[Row, list[list[Any]]], None], ...] = (
    _reward, _action, _observation, _ending, _length, _task
)  # fmt: skip


class ForgingFlow(HttpFlow):
    """A manager's client that falsifies episodes.

    Args:
        share: the fraction of falsified episodes.
        report: the JSON file with the number of accepted forgeries of each kind.
        more: other arguments of `HttpFlow`.
    """

    def __init__(self, *more: Any, share: float, report: Path, **others: Any) -> None:
        super().__init__(*more, **others)
        self._share, self._report = share, report
        self._taken: Counter[str] = Counter()
        self._chance = random.Random(0)

    def commit(self, worker: str, commits: list[Commit]) -> list[CommitVerdict]:
        """Commit episodes, some of them falsified."""
        sent, kinds = [], []
        for one in commits:
            forge = self._chance.choice(FORGERIES) if self._chance.random() < self._share else None
            sent.append(one if forge is None else one._replace(payload=forged(one.payload.decode(), forge).encode()))
            kinds.append("honest" if forge is None else forge.__name__[1:])
        verdicts = super().commit(worker, sent)
        self._taken.update(kind for kind, it in zip(kinds, verdicts, strict=True) if it == CommitVerdict.ACCEPTED)
        self._report.write_text(json.dumps(self._taken), "utf-8")
        return verdicts

    def exchange(self, worker: str, commits: list[Commit], *others: Any, **more: Any) -> Exchanged:
        """Commit as `commit`, and lease."""
        verdicts = self.commit(worker, commits)
        return super().exchange(worker, [], *others, **more)._replace(verdicts=verdicts)


def forged(payload: str, forge: Callable[[Row, list[list[Any]]], None]) -> str:
    """Return a well-formed payload with a falsified episode."""
    line, columns = map(json.loads, payload.split("\n"))
    forge(line, columns)
    return "\n".join(json.dumps(one, separators=(",", ":")) for one in (line, columns))


def main() -> None:
    """Join and play until the process is terminated."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--join", required=True)
    parser.add_argument("--token-file", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--num-envs", type=int, default=8)
    parser.add_argument("--median", type=float, default=1.0)
    parser.add_argument("--sigma", type=float, default=0.8)
    parser.add_argument("--turns", type=int, default=0, help="see LatencyService")
    parser.add_argument("--versions", type=int, default=2)
    parser.add_argument("--forge", type=float, default=0.0, help="the fraction of falsified episodes")
    parser.add_argument("--report", type=Path, default=Path("/dev/null"))
    chosen = parser.parse_args()
    flow = ForgingFlow(
        chosen.join, read_token(chosen.token_file), share=chosen.forge, report=chosen.report, deadline=300.0
    )
    worker = LatencyService(
        flow,
        name=chosen.name,
        num_envs=chosen.num_envs,
        versions=chosen.versions,
        median=chosen.median,
        sigma=chosen.sigma,
        turns=chosen.turns,
    )
    asked = []

    def leave(*_: object) -> None:
        asked.append(True)
        flow.deadline = 1.0
        worker.stop()

    signal.signal(signal.SIGTERM, leave)
    try:
        worker.run()
    except FlowDown:
        if not asked:
            raise


if __name__ == "__main__":
    main()

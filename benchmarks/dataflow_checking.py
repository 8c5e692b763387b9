"""The cost for a trainer of replaying the episodes of workers, compared with trusting them.

    python benchmarks/dataflow_checking.py [--episodes 128] [ENV...]

A worker (`RolloutService`, with 16 and 1 environments, and a manager in this process) plays with the tiny policy. Then
a receiver replays the same episodes, and accepts them without replay. Times are CPU time on one core, for the receiver
the least of three rounds, with levels and hits in caches; as microseconds per step, and as a fraction of the worker's
time with 16 environments.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

import torch

from agentgym_flow.core import TextEnv
from agentgym_flow.dataflow import rollout
from agentgym_flow.dataflow.batches.inbox import Receiver
from agentgym_flow.dataflow.bookkeeping.manager import Manager
from agentgym_flow.dataflow.records import Arrival, Slot
from agentgym_flow.dataflow.stage import Actor, Stage, state_to_send, turn_router
from agentgym_flow.dataflow.weights import full
from agentgym_flow.dataflow.wire import encode
from agentgym_flow.envs import make_text_env
from agentgym_flow.episodes import Episode
from agentgym_flow.play.groups import EnvPool
from agentgym_flow.prompts import template_for
from agentgym_flow.training.config import AgentConfig
from agentgym_flow.training.models import load_model

ENVS = ("Sokoban", "ALFWorld", "WebShop", "Search", "Canvas")
SIZE = 8
"""Episodes of a group."""

SHARE = 0.25
"""The fraction of episodes that is replayed in the last column."""


def stage_for(name: str) -> Stage:
    """Return the stage of a run with the tiny policy."""
    env_id = f"agentgym_flow/{name}-v0"
    settings: dict[str, Any] = {"size": 6, "boxes": 1, "min_pushes": 1} if name == "Sokoban" else {}
    template = template_for(env_id, "compact")
    model, tokenizer = load_model("tiny", template, seed=0)
    args = AgentConfig(output_dir=tempfile.gettempdir(), report_to="none", use_cpu=True)
    make_env: Callable[[], TextEnv] = partial(make_text_env, env_id, split="train", **settings)
    return Stage(make_env, {"policy": Actor(model, tokenizer, template, args)}, turn_router(["policy"]))


def played(stage: Stage, episodes: int, num_envs: int) -> tuple[list[Arrival], float]:
    """Let a worker play; return the arrivals, and the CPU time in seconds."""
    manager = Manager()
    claim = manager.open("policy", "policy", 0, {"policies": ["policy"], "staleness": 0}, "benchmark")
    manager.publish(claim, 0, 0, full(state_to_send(stage.actors["policy"].model)))
    manager.admit(claim, [Slot(0, at // SIZE, at % SIZE, at // SIZE, at // SIZE) for at in range(episodes)])
    worker = rollout.RolloutService(manager, name="worker", num_envs=num_envs)
    found: list[Arrival] = []
    with mock.patch.object(rollout, "stage_of", return_value=stage):
        started = time.process_time()
        thread = threading.Thread(target=worker.run)
        thread.start()
        while len(found) < episodes:
            found += manager.arrivals(claim, found[-1].number if found else 0, 1.0)
        spent = time.process_time() - started
        worker.stop()
        thread.join()
    return found, spent


def least(work: Callable[[], object]) -> float:
    """Return the least CPU time of three rounds, in seconds."""
    times = []
    for _ in range(3):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times)


def measure(name: str, episodes: int) -> str:
    """Return a row of the table."""
    stage = stage_for(name)
    played(stage, SIZE, 1)  # what is loaded once
    _, alone = played(stage, episodes, 1)
    arrivals, together = played(stage, episodes, 16)
    receiver = Receiver(EnvPool(stage.make_env), stage.route, {"policy": stage.actors["policy"].policy()})
    again: list[Episode] = []
    stepping = least(lambda: again.extend(receiver.replay(one.slot, one.payload, one.steps) for one in arrivals))
    told = [encode(episode, report=True) for episode in again[: len(arrivals)]]
    pairs = list(zip(arrivals, told, strict=True))
    checking = least(lambda: [receiver.replay(one.slot, payload, one.steps) for one, payload in pairs])
    trusting = least(lambda: [receiver.trust(one.slot, payload, one.steps) for one, payload in pairs])
    steps = sum(len(episode.turns) for episode in again[: len(arrivals)])
    share = SHARE * checking + (1 - SHARE) * trusting
    cells = [f"{1e6 * spent / steps:,.0f}" for spent in (alone, together)]
    for spent in (stepping, trusting, share):
        cells.append(f"{1e6 * spent / steps:,.0f} ({spent / together:.0%})")
    return f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("envs", nargs="*", default=list(ENVS))
    parser.add_argument("--episodes", type=int, default=128, help=f"a multiple of {SIZE}")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    print("| µs per step | worker, 1 env | worker, 16 envs | replaying all | trusting all |", end=" ")
    print(f"`check: {SHARE}` |\n|---|---|---|---|---|---|")
    for name in chosen.envs:
        print(measure(name, chosen.episodes), flush=True)


if __name__ == "__main__":
    main()

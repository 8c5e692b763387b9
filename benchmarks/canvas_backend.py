"""How close concurrent Canvas episodes come to the latency bound of the server of their operators.

    python benchmarks/canvas_backend.py [--repetitions 3] [--episodes 32] [--latency 0.2]

A server on the loopback interface, in another process, answers every request after `--latency` seconds, for any number
of requests. Each episode is a thread that runs one workflow of five consecutive calls on a shared backend, so a run
takes at least five latencies. Three cases:

- one episode alone;
- all episodes at once, with room for all of them at the server;
- all episodes at once, with room for half of them, so that the bound doubles.

Then the same with two parallel branches in every episode, which share the calls; and as a rollout of environments, in
which each turn adds one of the five operators to the workflow, and earlier calls are cached.

Results are wall-clock times: the median of the repetitions, the bound, and their ratio. A first run, which opens the
connections, is left out.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

from _slow_server import slow_server
from _timing import arguments, print_header, print_row, seconds

from agentgym_flow.envs import make_text_env
from agentgym_flow.envs.canvas.backends.openai_compatible import OpenAIBackend
from agentgym_flow.envs.canvas.operators.calls import WorkflowProblem
from agentgym_flow.envs.canvas.workflow import Chain, OperatorNode, Parallel
from agentgym_flow.envs.canvas.workflow.interpreter import Interpreter
from agentgym_flow.episodes import PolicyOutput
from agentgym_flow.play import EpisodeSpec, rollout
from agentgym_flow.policies.base import AsyncPolicy, FunctionPolicy, Policy, PolicyInput

BODY = (
    b'{"object":"chat.completion","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant",'
    b'"content":"1. Count.\\nChoice: 1\\nVerdict: pass"}}],"usage":{"prompt_tokens":100,"completion_tokens":9}}'
)

CHAIN: Chain = tuple(OperatorNode(name) for name in ("Plan", "Custom", "Verify", "Revise", "Format"))
BRANCHES: Chain = (
    OperatorNode("Plan"),
    Parallel(
        (
            (OperatorNode("Custom"), OperatorNode("Verify")),
            (OperatorNode("Custom", "otherwise"), OperatorNode("Review")),
        )
    ),
    OperatorNode("ScEnsemble"),
    OperatorNode("Format"),
)
DEEP = 5  # consecutive calls of either workflow


class Case(NamedTuple):
    """One row of the table."""

    name: str
    workflow: Chain
    episodes: int
    room: int
    calls_at_once: int  # in one episode

    def bound(self, latency: float) -> float:
        """Return the least possible time in seconds."""
        return DEEP * latency * max(1.0, self.episodes * self.calls_at_once / self.room)


def wall_seconds(case: Case, url: str) -> float:
    """Return the wall time of all concurrent episodes of a case."""
    backend = OpenAIBackend("benchmark", url, concurrency=case.room)
    interpreter = Interpreter(backend, concurrent=case.calls_at_once > 1)

    def episode(number: int) -> None:
        run = interpreter.run(case.workflow, WorkflowProblem(f"task {number}", "How many apples are left?"))
        assert not run.failures, run.failures[0].result.text

    with ThreadPoolExecutor(case.episodes) as pool:
        return seconds(lambda: list(pool.map(episode, range(case.episodes))), time.perf_counter)


WRITTEN = [f"<action>add</action><operator>{node.name}</operator>" for node in CHAIN] + ["<action>finish</action>"]


class Designed:
    """Adds the operators of the chain one by one, then finishes; episodes do not wait for each other."""

    name = "designer"

    async def respond(self, policy_input: PolicyInput) -> PolicyOutput:
        """Return the next edit."""
        return PolicyOutput(WRITTEN[len(policy_input.episode.turns)])


def designed(inputs: Sequence[PolicyInput]) -> list[PolicyOutput]:
    """Do the same in rounds, for all episodes together."""
    return [PolicyOutput(WRITTEN[len(policy_input.episode.turns)]) for policy_input in inputs]


def rollout_seconds(policy: Policy | AsyncPolicy, episodes: int, url: str) -> float:
    """Return how long a rollout takes."""
    room = {"concurrency": episodes}
    make_env = partial(
        make_text_env, "agentgym_flow/Canvas-v0", family="arithmetic", executor="openai", model="benchmark",
        base_url=url, executor_settings=room,
    )  # fmt: skip
    specs = [EpisodeSpec(seed=0, task=task) for task in range(episodes)]

    def play() -> None:
        for episode in rollout(policy, make_env, specs, num_envs=episodes):
            assert episode.terminated, episode.meta

    return seconds(play, time.perf_counter)


def measure(options: argparse.Namespace, url: str) -> None:
    """Print the table."""
    count = options.episodes
    half = math.ceil(count / 2)
    cases = [
        Case("one episode", CHAIN, 1, count, 1),
        Case(f"{count} episodes", CHAIN, count, count, 1),
        Case(f"{count} episodes, room for {half}", CHAIN, count, half, 1),
        Case(f"{count} episodes of two branches", BRANCHES, count, 2 * count, 2),
    ]
    rows = [(case.name, partial(wall_seconds, case, url), case.bound(options.latency)) for case in cases]
    for name, policy in (("in rounds", FunctionPolicy("designer", designed)), ("without", Designed())):
        once = partial(rollout_seconds, policy, count, url)
        rows.append((f"{count} environments, {name}", once, DEEP * options.latency))
    print_header("case", "seconds", "bound", "ratio")
    for name, once, bound in rows:
        once()
        median = statistics.median(once() for _ in range(options.repetitions))
        print_row(name, f"{median:.3f}", f"{bound:.3f}", f"{median / bound:.3f}")


def main() -> None:
    """Start the server, measure, and print."""
    parser = arguments(__doc__ or "", repetitions=3)
    parser.add_argument("--episodes", type=int, default=32, help="episodes at once (default 32)")
    parser.add_argument("--latency", type=float, default=0.2, help="seconds until the server answers (default 0.2)")
    options = parser.parse_args()
    with slow_server(options.latency, BODY) as url:
        measure(options, url)


if __name__ == "__main__":
    main()

"""The cost of rollouts in rounds, each of which waits for its slowest response.

    python benchmarks/rounds.py [--repetitions 3] [--episodes 32] [--latency 0.2]

Three cases play `--episodes` episodes at a time on `CaveEnv`, whose steps cost almost nothing. Each is played in rounds
(one call of the policy for all running episodes) and without (one task per episode):

- every response takes `--latency` seconds;
- response times are lognormal with that median and sigma 0.8, from each episode's own stream; four episodes per slot;
- the official OpenAI client with a server on the loopback interface that responds after `--latency` seconds, however
  many requests are running; only without rounds, as `OpenAIPolicy` plays.

Figures are wall-clock times: the median of the repetitions, the bound, and their ratio. The bound is the least time
with a server that handles all requests at once: that of the longest episode, or the work per slot if that is more.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from _slow_server import slow_server
from _timing import arguments, print_header, print_row, seconds

from agentgym_flow.play import EpisodeSpec, rollout
from agentgym_flow.policies import PolicyInput, PolicyOutput, RandomPolicy, make_policy
from agentgym_flow.testing.example import CaveEnv

SIGMA, TURNS = 0.8, 10
Latency = Callable[[PolicyInput], float]


def constant(median: float, policy_input: PolicyInput) -> float:
    """Return the median."""
    return median


def lognormal(median: float, policy_input: PolicyInput) -> float:
    """Return a lognormal time that depends only on the episode and the turn."""
    rng = policy_input.rng.child("latency", len(policy_input.episode.turns))
    normal = math.sqrt(-2 * math.log(1 - rng.uniform())) * math.cos(2 * math.pi * rng.uniform())
    return median * math.exp(SIGMA * normal)


class InRounds:
    """Random play; a call takes as long as its slowest response."""

    name = "in rounds"

    def __init__(self, latency: Latency) -> None:
        self._latency = latency

    def act(self, inputs: Sequence[PolicyInput]) -> list[PolicyOutput]:
        """Return one output per input."""
        time.sleep(max(map(self._latency, inputs)))
        return RandomPolicy().act(inputs)


class Alone:
    """Random play; every response takes its own time."""

    name = "alone"

    def __init__(self, latency: Latency) -> None:
        self._latency = latency
        self.spent: dict[int, float] = {}

    async def respond(self, policy_input: PolicyInput) -> PolicyOutput:
        """Return the output for one input."""
        wait = self._latency(policy_input)
        self.spent[policy_input.episode.seed] = self.spent.get(policy_input.episode.seed, 0.0) + wait
        await asyncio.sleep(wait)
        [output] = RandomPolicy().act([policy_input])
        return output


def play(policy: Any, episodes: int, starts: int) -> None:
    """Play episodes that all have equally many turns."""
    played = rollout(
        policy, lambda: CaveEnv(max_steps=TURNS), [EpisodeSpec(n) for n in range(starts)], num_envs=episodes
    )
    assert not any(episode.meta for episode in played)


def measure(options: argparse.Namespace, url: str) -> None:
    """Print the table."""

    def median(policy: Any, starts: int) -> float:
        times = [
            seconds(lambda: play(policy, options.episodes, starts), time.perf_counter)
            for _ in range(options.repetitions)
        ]
        return statistics.median(times)

    print_header("answers", "in rounds", "without", "rounds / without", "bound", "without / bound")
    for name, law, times in (("equal", constant, 1), ("lognormal", lognormal, 4)):
        latency = partial(law, options.latency)
        alone, starts = Alone(latency), times * options.episodes
        play(alone, options.episodes, starts)
        bound = max(max(alone.spent.values()), math.fsum(alone.spent.values()) / options.episodes)
        rounds, without = median(InRounds(latency), starts), median(alone, starts)
        print_row(name, *(f"{x:.3f}" for x in (rounds, without, rounds / without, bound, without / bound)))
    client = make_policy(f"openai:benchmark@{url}", CaveEnv.env_id)
    play(client, options.episodes, options.episodes)
    without, bound = median(client, options.episodes), options.latency * TURNS
    print_row("OpenAI's client", "", f"{without:.3f}", "", f"{bound:.3f}", f"{without / bound:.3f}")


def main() -> None:
    """Start the server, measure, and print."""
    parser = arguments(__doc__ or "", repetitions=3)
    parser.add_argument("--episodes", type=int, default=32, help="concurrent episodes (default 32)")
    parser.add_argument("--latency", type=float, default=0.2, help="seconds per response (default 0.2)")
    options = parser.parse_args()
    message = {"role": "assistant", "content": "<action>wait</action>"}
    body = json.dumps({"choices": [{"index": 0, "finish_reason": "stop", "message": message}]}).encode()
    with slow_server(options.latency, body) as url:
        measure(options, url)


if __name__ == "__main__":
    main()

"""WebShop: steps a second against the original's recorded cost, searches against real Lucene, memory of environments.

Launch: `python benchmarks/webshop_speed.py [--repetitions 5] [--episodes 40] [--data FOLDER]`; with `--data`, or where
`AGENTGYM_FLOW_TEST_DATA` names the samples, on the official 1,000 products, else on the embedded shop. The memory is
read on Linux only.

- The original's cost is recorded, not measured here: milliseconds a step of its environment on its 1,000 products, text
  mode and others, with real Lucene (`ORIGINAL`). Ours is the step of `gym.make`'s environment with the whole info
  contract, CPU time, the median of the repetitions; ratios are of CPU time here to wall time there, where only one
  process ran.
- Episodes: a search for some words of the instruction, then random clicks; a search for others every fifth step. All
  repetitions play other goals, so hardly a query comes twice.
- Lucene: where pyserini and Java are installed, the same queries on an index of the same texts, in turns with ours,
  wall time, 50 hits.
- Memory: what the process holds (resident set) with one and with 64 environments in play.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
from _lucene import FIRST, against_lucene, lucene_is_here
from _timing import arguments, in_turns, print_header, print_row, resident

import agentgym_flow  # noqa: F401 (registers the ids)
from agentgym_flow.envs.webshop.catalogue import HITS, Catalogue
from agentgym_flow.envs.webshop.queries import random_query
from agentgym_flow.seeding import Stream

ENV_ID = "agentgym_flow/WebShop-v0"

ORIGINAL = {"text": (59.0, 94.0), "text_rich": (71.0, 110.0), "html": (42.0, 61.0)}
"""Observation mode -> milliseconds of the original for a click and for a search (1,000 products, one process)."""

STEPS = 15
SEARCH_EVERY = 5
ENVIRONMENTS = 64
QUERIES = 200


def actions(env: Any, rng: Stream, step: int) -> str:
    """Return a search every few steps, else a random click."""
    clicks = [click for click in env.unwrapped.admissible_actions() if click != "click[buy now]"]
    if step % SEARCH_EVERY == 0 or not clicks:
        return f"search[{random_query(env.unwrapped.goal, rng)}]"
    return str(rng.choice(clicks))


def play(env: Any, episodes: int, draws: Stream) -> dict[str, float]:
    """Return the mean CPU milliseconds of `click` and `search` over so many episodes."""
    spent: dict[str, list[float]] = defaultdict(list)
    for _ in range(episodes):
        env.reset(options={"task": draws.below(env.unwrapped.num_tasks)})
        for step in range(STEPS):
            action = actions(env, draws, step)
            start = time.process_time()
            env.step(action)
            spent[action.partition("[")[0]].append(time.process_time() - start)
    return {kind: 1e3 * sum(times) / len(times) for kind, times in spent.items()}


def print_steps(data: str | None, repetitions: int, episodes: int) -> None:
    """Print the cost of a click and of a search in each observation mode."""
    print_header("observation", "step", "ours, ms", "original, ms (recorded)", "ratio")
    for mode, recorded in ORIGINAL.items():
        env = gym.make(ENV_ID, data=data, observation_mode=mode)
        draws = Stream("webshop_speed", mode)
        play(env, 2, draws)
        for kind, theirs in zip(("click", "search"), recorded, strict=True):
            measured = in_turns({kind: partial(one, env, episodes, draws, kind)}, repetitions)[kind]
            print_row(mode, kind, f"{measured:.3f}", f"{theirs:.0f}", f"{theirs / measured:,.0f}x")
    print()


def one(env: Any, episodes: int, draws: Stream, kind: str) -> float:
    """Return the milliseconds of one kind of step."""
    return play(env, episodes, draws)[kind]


def print_lucene(catalogue: Catalogue, queries: list[str], repetitions: int) -> None:
    """Print the cost of a search with ours and with Lucene, in turns, if Lucene is here."""
    if not lucene_is_here():
        return
    texts = [catalogue.listing(number).product.index_text for number in range(len(catalogue))]
    compared = against_lucene(texts, queries, HITS, repetitions)  # not the catalogue's index, which keeps results
    print_header("search", "ms", "slower than ours")
    for name, figure in compared.query.items():
        print_row(name, f"{figure:.3f}", f"{figure / compared.query['ours']:,.1f}x")
    print(f"\nThe first {FIRST} are the same, in the same order, for {compared.agreeing} of {len(queries)} queries.\n")


def print_memory(data: str | None) -> None:
    """Print what further environments in play cost."""
    held: list[tuple[Any, float]] = []
    for number in range(ENVIRONMENTS):
        env: Any = gym.make(ENV_ID, data=data)
        draws = Stream("webshop_speed", "memory", number)
        env.reset(options={"task": draws.below(env.unwrapped.num_tasks)})
        for step in range(STEPS):
            env.step(actions(env, draws, step))
            if not env.unwrapped.playing:
                break
        held.append((env, resident()))
    growth = (held[-1][1] - held[0][1]) / (ENVIRONMENTS - 1)
    print_header("environments in one process", "MB with one", "MB with all", "MB for each further one")
    print_row(ENVIRONMENTS, f"{held[0][1]:.0f}", f"{held[-1][1]:.0f}", f"{growth:.2f}")


def main() -> None:
    """Print the tables."""
    parser = arguments(__doc__, repetitions=5)
    parser.add_argument("--episodes", type=int, default=40, help="episodes in a repetition (default 40)")
    samples = os.environ.get("AGENTGYM_FLOW_TEST_DATA")
    official = str(Path(samples) / "webshop") if samples else None
    parser.add_argument("--data", default=official, help="a folder of official files (default: the samples, if here)")
    args = parser.parse_args()
    start = time.perf_counter()
    env: Any = gym.make(ENV_ID, data=args.data)
    env.reset(seed=0)
    env.step("search[red shoes]")
    source = env.unwrapped._source
    print(f"{len(source.catalogue):,} products; made, reset and searched in {time.perf_counter() - start:.1f} s\n")
    print_steps(args.data, args.repetitions, args.episodes)
    queries = [source.goal(task).instruction for task in range(min(QUERIES, source.num_tasks))]
    print_lucene(source.catalogue, queries, args.repetitions)
    print_memory(args.data)


if __name__ == "__main__":
    main()

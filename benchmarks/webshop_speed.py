"""WebShop: the cost of a step when cold, by default and at best; searches compared with Lucene; memory of environments.

Launch: `python benchmarks/webshop_speed.py [--repetitions 5] [--episodes 40] [--data FOLDER]`. With `--data`, or if
`AGENTGYM_FLOW_TEST_DATA` names the samples, it uses the official 1,000 products, else the embedded shop. Memory is
measured on Linux only.

- Steps: CPU time of the environment from `gym.make` with its full `info`, the median of the repetitions. Cold: the
  first episode of a new process, in which the first of three searches builds the index. Default: every episode has
  another goal, so queries rarely repeat. Best: 8 attempts at each goal with the same actions.
- Episodes: random clicks, except that the first step and every fifth one search for random words of the instruction.
- Lucene: if pyserini and Java are installed, wall time of the same queries on an index of the same texts, in turns with
  ours, 50 hits. This is the only comparison: the original's environment is not run here.
- Memory: the resident set of the process with one and with 64 running environments.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
from _lucene import FIRST, against_lucene, lucene_is_here
from _timing import arguments, print_header, print_row, resident

import agentgym_flow  # noqa: F401 (registers the ids)
from agentgym_flow.core import Stream
from agentgym_flow.envs.webshop.catalogue import HITS, Catalogue
from agentgym_flow.envs.webshop.requirements import random_query

ENV_ID = "agentgym_flow/WebShop-v0"

MODES = ("text", "text_rich", "html")
"""The observation modes that are measured."""

STEPS = 15
SEARCH_EVERY = 5
ENVIRONMENTS = 64
QUERIES = 200
ATTEMPTS = 8


def actions(env: Any, rng: Stream, step: int) -> str:
    """Return a search every few steps, else a random click."""
    clicks = [click for click in env.unwrapped.admissible_actions() if click != "click[buy now]"]
    if step % SEARCH_EVERY == 0 or not clicks:
        return f"search[{random_query(env.unwrapped.goal, rng)}]"
    return str(rng.choice(clicks))


def play(env: Any, episodes: int, draws: Stream, attempts: int = 1) -> dict[str, float]:
    """Return the mean CPU milliseconds of `click` and `search` over `episodes` episodes, `attempts` per goal."""
    spent: dict[str, list[float]] = defaultdict(list)
    for episode in range(0, episodes, attempts):
        goal = draws.below(env.unwrapped.num_tasks)
        for _ in range(attempts):
            env.reset(options={"task": goal})
            rng = Stream("webshop_speed", goal, episode)
            for step in range(STEPS):
                action = actions(env, rng, step)
                start = time.process_time()
                env.step(action)
                spent[action.partition("[")[0]].append(time.process_time() - start)
    return {kind: 1e3 * sum(times) / len(times) for kind, times in spent.items()}


def cold(data: str | None, mode: str, repetition: int) -> dict[str, float]:
    """Return the result of `play` for one episode, and as `start` the CPU seconds of the process until then."""
    env = gym.make(ENV_ID, data=data, observation_mode=mode)
    env.reset(seed=repetition)
    start = time.process_time()
    return {**play(env, 1, Stream("webshop_speed", "cold", repetition)), "start": start}


def in_new_process(run: Callable[[], dict[str, float]]) -> dict[str, float]:
    """Return the result of `run` in a fresh process."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(run).result()


def print_steps(data: str | None, repetitions: int, episodes: int) -> None:
    """Print the cost of a click and of a search in each observation mode."""
    print_header("observation", "step", "cold, ms", "default, ms", "best, ms")
    starts = []
    for mode in MODES:
        first = [in_new_process(partial(cold, data, mode, number)) for number in range(repetitions)]
        starts += [found["start"] for found in first]
        env = gym.make(ENV_ID, data=data, observation_mode=mode)
        draws = Stream("webshop_speed", mode)
        play(env, 2, draws)
        usual = [play(env, episodes, draws) for _ in range(repetitions)]
        best = [play(env, episodes, draws, ATTEMPTS) for _ in range(repetitions)]
        for kind in ("click", "search"):
            costs = [statistics.median(found[kind] for found in figures) for figures in (first, usual, best)]
            print_row(mode, kind, *(f"{cost:.3f}" for cost in costs))
    print(f"\nFrom the start of Python to the first observation: {statistics.median(starts):.1f} s of CPU time.\n")


def print_lucene(catalogue: Catalogue, queries: list[str], repetitions: int) -> None:
    """Print the cost of a search with our index and Lucene, in turns, if Lucene is installed."""
    if not lucene_is_here():
        return
    texts = [catalogue.listing(number).product.index_text for number in range(len(catalogue))]
    compared = against_lucene(texts, queries, HITS, repetitions)  # not the catalogue's index, which caches results
    print_header("search", "ms", "slower than ours")
    for name, figure in compared.query.items():
        print_row(name, f"{figure:.3f}", f"{figure / compared.query['ours']:,.1f}x")
    print(f"\nThe first {FIRST} hits and their order are the same for {compared.agreeing} of {len(queries)} queries.\n")


def print_memory(data: str | None) -> None:
    """Print the memory of further running environments."""
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
    print()


def main() -> None:
    """Print the tables."""
    parser = arguments(__doc__, repetitions=5)
    parser.add_argument("--episodes", type=int, default=40, help="episodes per repetition (default 40)")
    samples = os.environ.get("AGENTGYM_FLOW_TEST_DATA")
    official = str(Path(samples) / "webshop") if samples else None
    parser.add_argument("--data", default=official, help="folder of official files (default: the samples, if any)")
    args = parser.parse_args()
    env: Any = gym.make(ENV_ID, data=args.data)
    source = env.unwrapped.source
    print(f"{len(source.catalogue):,} products\n")
    print_steps(args.data, args.repetitions, args.episodes)
    queries = [source.goal(task).instruction for task in range(min(QUERIES, source.num_tasks))]
    print_memory(args.data)  # before Java is loaded into this process
    print_lucene(source.catalogue, queries, args.repetitions)


if __name__ == "__main__":
    main()

"""Search: steps per second with BM25 in one process, time to the first search, memory of environments.

Launch: `python benchmarks/search_speed.py [--repetitions 5] [--episodes 500]`. Memory is measured on Linux only.

- Start: wall time in a new process from the first import to the first search, the median of the repetitions. It
  includes importing Gymnasium and this package, and making the world, its articles, the split's questions and the
  index. It excludes the start of Python.
- Steps: CPU time, including resets, of the environment from `gym.make` with its full `info` on the generated articles.
  The expert's actions are recorded beforehand and replayed. Random actions are drawn from the candidates, which takes
  most of their time. Search results are not cached. The last row has only the expert's searches.
- Memory: the resident set of the process with one and with 64 running environments.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from functools import partial
from typing import Any

import gymnasium as gym
from _timing import arguments, in_turns, print_header, print_row, resident, seconds

import agentgym_flow  # noqa: F401 (registers the ids)
from agentgym_flow.core import SPLITS, Stream
from agentgym_flow.envs.search import tasks

ENV_ID = "agentgym_flow/Search-v0"
SPLIT = "valid"
ENVIRONMENTS = 64

START = """
import sys, time
start = time.perf_counter()
import gymnasium as gym
import agentgym_flow
env = gym.make("agentgym_flow/Search-v0", split=sys.argv[1])
question, info = env.reset(seed=0)
env.step(f"search[{question}]")
print(time.perf_counter() - start)
"""


def first_search(split: str) -> float:
    """Return the seconds from a new process's first import to its first search."""
    command = [sys.executable, "-c", START, split]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def print_start(repetitions: int) -> None:
    """Print the time to the first search in a new process."""
    print_header("split", "questions", "first search, s")
    for split in SPLITS:
        times = [first_search(split) for _ in range(repetitions)]
        print_row(split, f"{tasks.num_tasks(split):,}", f"{statistics.median(times):.2f}")
    print()


def demonstration(env: Any, task: int) -> list[str]:
    """Return the expert's actions in a task."""
    env.reset(options={"task": task})
    done: list[str] = []
    while env.unwrapped.playing:
        done.append(env.unwrapped.expert_action())
        env.step(done[-1])
    return done


def replay(env: Any, script: list[list[str]]) -> None:
    """Play the tasks with the recorded actions."""
    for task, actions in enumerate(script):
        env.reset(options={"task": task})
        for action in actions:
            env.step(action)


def wander(env: Any, episodes: int, draws: Stream) -> int:
    """Play tasks with random actions; return the number of steps."""
    steps = 0
    for task in range(episodes):
        env.reset(options={"task": task})
        while env.unwrapped.playing:
            env.step(env.unwrapped.sample_action(draws))
            steps += 1
    return steps


def search_all(queries: list[str]) -> None:
    """Search for one query after the other."""
    for query in queries:
        tasks.retriever().search([query], tasks.SHOWN)


def print_steps(repetitions: int, episodes: int) -> None:
    """Print steps per second, and the cost of searches alone."""
    env = gym.make(ENV_ID, split=SPLIT)
    script = [demonstration(env, task) for task in range(min(episodes, tasks.num_tasks(SPLIT)))]
    queries = [action[7:-1] for actions in script for action in actions if action.startswith("search[")]
    turns = sum(map(len, script))
    random = partial(wander, env, len(script), Stream("search_speed"))

    def wandering() -> float:
        steps = 0

        def run() -> None:
            nonlocal steps
            steps = random()

        spent = seconds(run)
        return steps / spent

    figures = in_turns(
        {
            "expert, replayed": lambda: turns / seconds(partial(replay, env, script)),
            "random": wandering,
            "searches alone": lambda: len(queries) / seconds(partial(search_all, queries)),
        },
        repetitions,
    )
    print_header(f"{len(script)} episodes of {SPLIT}", "a second", "microseconds each")
    for name, figure in figures.items():
        print_row(name, f"{figure:,.0f}", f"{1e6 / figure:.0f}")
    share = len(queries) / turns
    print(f"\nOf the expert's {turns:,} steps, {share:.0%} are searches.\n")


def print_memory() -> None:
    """Print the memory of further running environments."""
    held: list[tuple[Any, float]] = []
    for number in range(ENVIRONMENTS):
        env: Any = gym.make(ENV_ID, split=SPLIT)
        env.reset(options={"task": number})
        env.step(env.unwrapped.expert_action())
        held.append((env, resident()))
    growth = (held[-1][1] - held[0][1]) / (ENVIRONMENTS - 1)
    print_header("environments in one process", "MB with one", "MB with all", "MB for each further one")
    print_row(ENVIRONMENTS, f"{held[0][1]:.0f}", f"{held[-1][1]:.0f}", f"{growth:.3f}")


def main() -> None:
    """Print the tables."""
    parser = arguments(__doc__, repetitions=5)
    parser.add_argument("--episodes", type=int, default=500, help="episodes per repetition (default 500)")
    args = parser.parse_args()
    print_memory()  # first, before the others allocate memory
    print()
    print_start(args.repetitions)
    print_steps(args.repetitions, args.episodes)


if __name__ == "__main__":
    main()

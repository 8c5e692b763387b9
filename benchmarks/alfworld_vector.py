"""ALFWorld in batches: environment steps per second by size and contents of `info`, and the memory of a batch of 256.

Launch: `python benchmarks/alfworld_vector.py [--repetitions 5]`. Needs the base install only; memory is read on Linux
only.

Each of our batches is compared with Gymnasium's (`vectorization_mode="sync"`) of the same environments. Both play
random commands, whose choice is not timed; resets are.

- *Known games*: all games have been played in this process before, as with several attempts at a task.
- *Drawn games*: each episode has a random one of the 3,553 training games. The process caches 512 of them, so about six
  resets in seven generate and compile a game, and most situations are new.
- *All*: every key of `info`, the default. *Commands*: `info_keys=["admissible_actions"]`. *Mask*: `["action_mask"]`.

Rates are per second of CPU time (`time.process_time`), medians of the repetitions. Memory is the resident set of a
separate process, with drawn games.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from functools import partial
from multiprocessing import get_context
from typing import Any

import gymnasium as gym
import numpy as np
from _timing import arguments, in_turns, print_header, print_row
from alfworld_speed import resident

import agentgym_flow  # noqa: F401 (registers the ids)
from agentgym_flow.core import Stream

TEXT, INDEX = "agentgym_flow/ALFWorld-v0", "agentgym_flow/ALFWorldIndex-v0"
SIZES = (8, 64, 256)
EPISODE = 50
"""Steps until an episode is truncated; random commands almost never win."""
ENV_STEPS = 25_600
"""Environment steps of a repetition."""
BATCHES: dict[str, tuple[str, dict[str, Any]]] = {
    "text, Gymnasium's, all": (TEXT, {"vectorization_mode": "sync"}),
    "text, all": (TEXT, {}),
    "text, commands": (TEXT, {"info_keys": ["admissible_actions"]}),
    "numbers, Gymnasium's, all": (INDEX, {"vectorization_mode": "sync"}),
    "numbers, all": (INDEX, {}),
    "numbers, mask": (INDEX, {"info_keys": ["action_mask"]}),
}
"""The contestants: the environment id, and how the batch is created."""


def actions(infos: dict[str, Any], rng: Stream) -> Any:
    """Return a random valid action for each environment of a batch with either kind of actions."""
    if "action_mask" in infos:
        return np.array([rng.below(int(count)) for count in infos["action_mask"].sum(1)])
    return tuple(rng.choice(offered) for offered in infos["admissible_actions"])


def rate(envs: Any, seeds: Iterator[int]) -> float:
    """Return environment steps per second, over whole episodes with their resets."""
    spent, rng = 0.0, Stream("alfworld_vector")
    rounds = ENV_STEPS // EPISODE // envs.num_envs
    for _ in range(rounds):
        start = time.process_time()
        _, infos = envs.reset(seed=next(seeds))
        spent += time.process_time() - start
        for _ in range(EPISODE):
            chosen = actions(infos, rng)
            start = time.process_time()
            *_, infos = envs.step(chosen)
            spent += time.process_time() - start
    return rounds * EPISODE * envs.num_envs / spent


def print_rates(title: str, repetitions: int, known: bool) -> None:
    """Print a table of all batches in all sizes."""
    print_header(title, *(f"{size} environments" for size in SIZES))
    columns = []
    for size in SIZES:
        contestants = {}
        for number, (name, (face, settings)) in enumerate(BATCHES.items()):
            envs = gym.make_vec(face, size, **settings)
            first = 1_000_000 * (number + 1)  # far from the seeds of the others
            contestants[name] = partial(rate, envs, itertools.repeat(0) if known else itertools.count(first, size))
        if known:
            in_turns(contestants, 1)
        columns.append(in_turns(contestants, repetitions))
    for name in BATCHES:
        print_row(name, *(f"{column[name]:,.0f}" for column in columns))
    print()


def memory() -> tuple[float, float, float]:
    """Return the memory of this process in MB: at the start, after 256 resets, and after an episode in each."""
    before, rng = resident(), Stream("alfworld_vector", "memory")
    envs = gym.make_vec(TEXT, SIZES[-1])
    _, infos = envs.reset(seed=0)
    begun = resident()
    for _ in range(EPISODE):
        *_, infos = envs.step(actions(infos, rng))
    return before, begun, resident()


def main() -> None:
    """Print the tables."""
    args = arguments(__doc__, repetitions=5).parse_args()
    print_rates("known games: steps/s", args.repetitions, known=True)
    print_rates("drawn games: steps/s", args.repetitions, known=False)
    with get_context("spawn").Pool(1) as pool:
        megabytes = pool.apply(memory)
    print_header(
        "memory", "with the package imported", f"{SIZES[-1]} environments reset", f"after {EPISODE} steps in each"
    )
    print_row("MB", *(f"{figure:.0f}" for figure in megabytes))


if __name__ == "__main__":
    main()

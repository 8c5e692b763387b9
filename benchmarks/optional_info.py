"""CPU time of `info`: its fraction of a step, and the cost of its optional keys, measured in one run.

    python benchmarks/optional_info.py

All contestants play the same random valid actions on 60 tasks of `valid`, through `gymnasium.make`. They take turns,
and the best of seven repetitions counts. The time without `info` is that of `advance`, which does everything that
`step` does except return `info`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gymnasium as gym
from _timing import in_turns, print_header, print_row

from agentgym_flow.core import Stream, TextEnv

IDS = ("Sokoban", "ALFWorld", "WebShop", "Search", "Canvas")
TASKS, STEPS, REPETITIONS = 60, 15, 7


def random_episodes(env: TextEnv) -> list[list[str]]:
    """Return the actions of one episode per task, at most `STEPS` each."""
    episodes = []
    for task in range(TASKS):
        env.reset(seed=task, options={"task": task})
        rng = Stream("optional info", task)
        actions: list[str] = []
        while env.playing and env.steps < STEPS:
            actions.append(env.sample_action(rng))
            env.advance(actions[-1])
        episodes.append(actions)
    return episodes


def microseconds(env: gym.Env[str, str], step: Callable[[str], Any], episodes: Sequence[Sequence[str]]) -> float:
    """Return the mean CPU time of a step; resets are not timed."""
    spent = 0.0
    for task, actions in enumerate(episodes):
        env.reset(seed=task, options={"task": task})
        begun = time.process_time()
        for action in actions:
            step(action)
        spent += time.process_time() - begun
    return 1e6 * spent / sum(map(len, episodes))


def main() -> None:
    """Print the table."""
    print_header("", "microseconds a step", "of which `info`", "with the key", "more")
    for name in IDS:
        env, asked = (gym.make(f"agentgym_flow/{name}-v0", split="valid") for _ in range(2))
        bare: TextEnv = env.unwrapped  # type: ignore[assignment]
        asked.unwrapped.request_info(bare.optional_info)  # type: ignore[attr-defined]
        episodes = random_episodes(bare)
        spent = in_turns(
            {
                "step": partial(microseconds, env, env.step, episodes),
                "bare": partial(microseconds, env, bare.step, episodes),
                "advance": partial(microseconds, env, bare.advance, episodes),
                "asked": partial(microseconds, asked, asked.step, episodes),
            },
            REPETITIONS,
            min,
        )
        share, more = (spent["bare"] - spent["advance"]) / spent["step"], spent["asked"] / spent["step"] - 1
        keys = ", ".join(bare.optional_info)
        print_row(f"{name}, `{keys}`", f"{spent['step']:.1f}", f"{share:.0%}", f"{spent['asked']:.1f}", f"{more:.0%}")


if __name__ == "__main__":
    main()

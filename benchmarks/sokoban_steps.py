"""Text steps: our environment from `gym.make`, with its full `info`, and other ways to play Sokoban as text.

Needs the extra `sokoban`. Launch: `python benchmarks/sokoban_steps.py [--repetitions 7] [--episodes 150]`.

verl-agent and RAGEN cannot be installed as packages. The script models what their environments do at every step, with
its own code on top of the real gym-sokoban. Prompts, parsing and workers are left out.

- verl-agent style: gym-sokoban's step, which makes the text in place of the tiny picture; then the text again, for the
  observation. The text takes one dictionary look-up per cell and pads each cell with a tab.
- RAGEN style: gym-sokoban's default step, which draws the `rgb_array` picture from tile files; then the text.

All play the same levels and random actions. Resets are not timed, except in two of our rows: with cached levels, and
cold, where each reset generates its level. Figures are steps per second of CPU time (`time.process_time`), medians of
repetitions in which the contestants take turns.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from _timing import arguments, board_name, in_turns, print_header, print_row

import agentgym_flow  # noqa: F401 (registers the ids)
from agentgym_flow.envs.sokoban.game import GymSokobanBoard
from agentgym_flow.envs.sokoban.level import ACTIONS, Level
from agentgym_flow.envs.sokoban.tasks import LevelSource, task_level

CASES = (((6, 6), 1), ((10, 10), 4))
STEPS = 20
TABBED = {0: " # \t", 1: " _ \t", 2: " O \t", 3: " √ \t", 4: " X \t", 5: " P \t", 6: " S \t"}

PUSHES = {word: index + 1 for index, word in enumerate(ACTIONS)}

Step = Callable[[str], bool]
"""Plays an action; returns whether the episode ended."""


def tabbed_text(room: Any) -> str:
    """Return gym-sokoban's room as the text that verl-agent and RAGEN show."""
    shown = np.where((room.room_state == 5) & (room.room_fixed == 2), 6, room.room_state)
    return "\n".join("".join(TABBED.get(cell, "?") for cell in row) for row in shown.tolist())


def ours(env: gym.Env[str, str], task: int) -> Step:
    """Start a task in our text environment."""
    env.reset(seed=0, options={"task": task})

    def step(word: str) -> bool:
        _, _, terminated, truncated, _ = env.step(word)
        return terminated or truncated

    return step


def gym_sokoban(level: Level, picture: str) -> Step:
    """Start `level` in gym-sokoban itself, which observes the named picture."""
    room = GymSokobanBoard(level).room

    def step(word: str) -> bool:
        _, _, done, _ = room.step(PUSHES[word], observation_mode=picture)
        return bool(done)

    return step


def text_style(level: Level, picture: str | None) -> Step:
    """Start a text environment on top of gym-sokoban's step, which draws `picture`, or the text if that is None."""
    room = GymSokobanBoard(level).room
    if picture is None:
        room.render = lambda mode: tabbed_text(room)

    def step(word: str) -> bool:
        before = room.player_position
        _, _, done, _ = room.step(PUSHES[word], observation_mode=picture or "tiny_rgb_array")
        text = tabbed_text(room)
        info = {
            "effective": not np.array_equal(before, room.player_position),
            "won": room.boxes_on_target == room.num_boxes,
        }
        return bool(done and text and info)

    return step


def steps_per_second(begin: Callable[[int], Step], episodes: int, resets: bool = False, cold: bool = False) -> float:
    """Play `episodes` random episodes of at most `STEPS` steps; return steps per second of CPU time.

    With `resets`, resets are timed too; with `cold`, no level is cached.
    """
    if cold:
        task_level.cache_clear()
    rng = random.Random(0)
    played, spent = 0, 0.0
    for task in range(episodes):
        words = rng.choices(ACTIONS, k=STEPS)
        start = time.process_time()
        step = begin(task)
        if not resets:
            start = time.process_time()
        for word in words:
            played += 1
            if step(word):
                break
        spent += time.process_time() - start
    return played / spent


def main() -> None:
    """Print the table."""
    parser = arguments(__doc__, repetitions=7)
    parser.add_argument("--episodes", type=int, default=150, help="episodes per repetition (default 150)")
    args = parser.parse_args()
    print_header("board", "contestant", "steps/s", "ours is")
    for size, boxes in CASES:
        source = LevelSource(size=size, boxes=boxes)
        levels = [source.level(task) for task in range(args.episodes)]
        env = gym.make("agentgym_flow/Sokoban-v0", size=size, boxes=boxes, max_steps=STEPS)
        contestants: dict[str, tuple[Callable[[int], Step], int]] = {
            "ours, text": (lambda task, env=env: ours(env, task), 1),
            "verl-agent style, text": (lambda task, levels=levels: text_style(levels[task], None), 1),
            "RAGEN style, text": (lambda task, levels=levels: text_style(levels[task], "rgb_array"), 15),
            "gym-sokoban, tiny picture": (lambda task, levels=levels: gym_sokoban(levels[task], "tiny_rgb_array"), 1),
            "gym-sokoban, picture": (lambda task, levels=levels: gym_sokoban(levels[task], "rgb_array"), 15),
        }
        runs = {
            name: partial(steps_per_second, begin, max(2, args.episodes // share))
            for name, (begin, share) in contestants.items()
        }
        text = contestants["ours, text"][0]
        runs["ours, text, with resets"] = partial(steps_per_second, text, args.episodes, resets=True)
        runs["ours, text, with resets, cold"] = partial(steps_per_second, text, args.episodes, resets=True, cold=True)
        rates = in_turns(runs, args.repetitions)
        for name, rate in rates.items():
            ratio = f"{rates['ours, text'] / rate:,.1f}x"
            print_row(board_name(size, boxes), name, f"{rate:,.0f}", ratio)


if __name__ == "__main__":
    main()

"""Our ALFWorld engine compared with the real one, on the same games and commands: steps, resets, memory.

Needs the extra `alfworld`; the memory is read on Linux only. Launch:
`python benchmarks/alfworld_speed.py [--repetitions 5] [--games 4]`.

Games are generated and written to files, which both engines read; commands are random possible ones. The real engine is
used as in alfworld's own `AlfredTWEnv`: `load`, `reset`, `step`, without information that needs the planner. It caches
nothing, so all its resets are first resets.

- *compiled on disk*: games from the cache of compiled games, written by another process; for the other rows from a file
  that cache is empty, and writing it counts.
- *engine*: the observation, the list of commands and whether the game is won. *environment*: `gym.make`'s environment
  with all of `info`. *cold*: the first game of a new process; *first*: a game that is new to the process, as with
  random tasks; *again*: a game that is not, as in a group of episodes of one task. Imports and the creation of
  environments are not counted.
- Each repetition has its own games, the same for all contestants; times are CPU time (`time.process_time`), medians of
  the repetitions.
- *Batch*: 64 environments of `gym.make_vec` stepped together, with automatic resets; "texts and commands" has only
  these in `info`. The reference is Gymnasium's own batch, `vectorization_mode="sync"`. The choice of random commands is
  not timed. *first*: all games are new to the process, including those of automatic resets.
- Memory is the resident set of a process with this number of environments, each with another game.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import gymnasium as gym
from _timing import arguments, in_turns, print_header, print_row, resident

import agentgym_flow  # noqa: F401 (registers the ids)
from agentgym_flow.core import Stream
from agentgym_flow.envs.alfworld import official, tasks
from agentgym_flow.envs.alfworld.cache import FOLDER_VARIABLE
from agentgym_flow.envs.alfworld.compiled_game import CompiledGame, compile_game
from agentgym_flow.envs.alfworld.game import ALFWorldGame
from agentgym_flow.envs.alfworld.official import GAME_FILE, read_game, write_game
from agentgym_flow.envs.alfworld.real import packages

ENV_ID = "agentgym_flow/ALFWorld-v0"
STEPS = 20
BATCH, ROUNDS = 64, 60
OURS, THEIRS = 256, 8
"""Numbers of environments for measuring memory."""


@dataclass(frozen=True)
class Episode:
    """A game file, its number in the folder, and the commands to play."""

    path: Path
    number: int
    commands: tuple[str, ...]


def episodes(folder: Path, number: int) -> list[Episode]:
    """Write games of the test split into `folder` and draw commands for each; none goes on after the game is won."""
    written = []
    for task in range(number):
        rng = Stream("alfworld_speed", task)
        path = write_game(folder / f"{task:04}", *tasks.task_problem("test", task), ())
        game = ALFWorldGame(compiled(path))
        commands: list[str] = []
        while len(commands) < STEPS and not game.won:
            commands.append(rng.choice(game.commands()))
            game.act(commands[-1])
        written.append(Episode(path, task, tuple(commands)))
    return written


def compiled(path: Path) -> CompiledGame:
    """Return a game as the environment compiles it."""
    read = read_game(path)
    return compile_game(read.problem, read.words)


class Ours:
    """Our engine and environment; each measurement takes a batch of episodes and returns CPU seconds per item."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._env: Any = gym.make(ENV_ID, data=str(folder), split="test")
        self._generated: Any = gym.make(ENV_ID, split="train")
        self._games: dict[Path, CompiledGame] = {}

    def engine(self, batch: list[Episode]) -> float:
        """Measure steps of the rules alone."""
        return per_step(batch, self._begin_play)

    def environment(self, batch: list[Episode]) -> float:
        """Measure steps of the environment, with all of `info`."""
        return per_step(batch, self._begin_episode)

    def start(self, batch: list[Episode]) -> float:
        """Measure resets to the games of the files, with an empty cache of compiled games."""
        with tempfile.TemporaryDirectory() as cache:
            os.environ[FOLDER_VARIABLE] = cache
            return per_piece(batch, lambda episode: self._env.reset(options={"task": episode.number}))

    def start_compiled(self, batch: list[Episode]) -> float:
        """Measure resets to games in the cache of compiled games that are new to this process."""
        os.environ[FOLDER_VARIABLE] = str(self._folder / "compiled")
        official._compiled.cache_clear()
        return per_piece(batch, lambda episode: self._env.reset(options={"task": episode.number}))

    def start_generated(self, batch: list[Episode]) -> float:
        """Measure resets to generated games."""
        return per_piece(batch, lambda episode: self._generated.reset(options={"task": episode.number}))

    def _begin_play(self, episode: Episode) -> Callable[[str], object]:
        if episode.path not in self._games:
            self._games[episode.path] = compiled(episode.path)
        game = ALFWorldGame(self._games[episode.path])
        return lambda command: (game.act(command), game.commands(), game.won)

    def _begin_episode(self, episode: Episode) -> Callable[[str], object]:
        self._env.reset(options={"task": episode.number})
        return self._env.step  # type: ignore[no-any-return]


class Theirs:
    """The unmodified original engine."""

    def __init__(self) -> None:
        self._env = packages().new_environment()

    def engine(self, batch: list[Episode]) -> float:
        """Measure steps."""
        return per_step(batch, self._begin_play)

    def start(self, batch: list[Episode]) -> float:
        """Measure `load` and `reset`."""
        return per_piece(batch, self._start)

    def _start(self, episode: Episode) -> None:
        self._env.load(str(episode.path))
        self._env.reset()

    def _begin_play(self, episode: Episode) -> Callable[[str], object]:
        self._start(episode)
        return self._env.step  # type: ignore[no-any-return] # its state has the commands and whether the game is won


def per_step(batch: list[Episode], begin: Callable[[Episode], Callable[[str], object]]) -> float:
    """Return CPU seconds per step, without the time of `begin`."""
    spent = 0.0
    for episode in batch:
        step = begin(episode)
        start = time.process_time()
        for command in episode.commands:
            step(command)
        spent += time.process_time() - start
    return spent / sum(len(episode.commands) for episode in batch)


def per_piece(batch: list[Episode], run: Callable[[Episode], object]) -> float:
    """Return CPU seconds per episode."""
    start = time.process_time()
    for episode in batch:
        run(episode)
    return (time.process_time() - start) / len(batch)


def each_batch(measure: Callable[[list[Episode]], float], batches: list[list[Episode]]) -> Callable[[], float]:
    """Return a measurement that uses the next batch on every call."""
    waiting: Iterator[list[Episode]] = iter(batches)
    return lambda: measure(next(waiting))


def in_new_process(who: str, measure: str, folder: Path) -> Callable[[list[Episode]], float]:
    """Return a measurement that plays the first episode of a batch in a new process."""

    def run(batch: list[Episode]) -> float:
        with get_context("spawn").Pool(1) as pool:
            return pool.apply(cold, (who, measure, folder, batch[:1]))

    return run


def cold(who: str, measure: str, folder: Path, batch: list[Episode]) -> float:
    """Return the result of `measure` in this process."""
    contestant: Any = Ours(folder) if who == "ours" else Theirs()
    return float(getattr(contestant, measure)(batch))


def print_ratios(title: str, unit: str, figures: dict[str, float], show: Callable[[float], str]) -> None:
    """Print CPU seconds formatted by `show`, and the ratio to the real engine; cold rows to its cold row."""
    print_header(title, unit, "faster than the real engine")
    for name, seconds in figures.items():
        reference = figures["real engine, cold" if name.endswith("cold") else "real engine"]
        print_row(name, show(seconds), f"{reference / seconds:,.0f}x")
    print()


def batch_step(envs: Any, forget: bool) -> float:
    """Return CPU seconds per environment step of a batch; `forget` clears the known games."""
    if forget:
        tasks._generated.cache_clear()
        tasks.task_problem.cache_clear()
    observations, infos = envs.reset(seed=0)
    rng = Stream("alfworld_speed", "batch")
    spent = 0.0
    for _ in range(ROUNDS):
        commands = tuple(rng.choice(offered) for offered in infos["admissible_actions"])
        start = time.process_time()
        observations, _, _, _, infos = envs.step(commands)
        spent += time.process_time() - start
    return spent / (ROUNDS * len(observations))


def print_batches(repetitions: int) -> None:
    """Print the speed of batches of 64 environments."""
    batches: dict[str, Any] = {
        "ours, all infos": gym.make_vec(ENV_ID, BATCH),
        "ours, texts and commands": gym.make_vec(ENV_ID, BATCH, info_keys=("admissible_actions",)),
        "Gymnasium's, all infos": gym.make_vec(ENV_ID, BATCH, vectorization_mode="sync"),
    }
    contestants = {
        f"{name}, {games}": partial(batch_step, envs, games == "first")
        for games in ("first", "again")
        for name, envs in batches.items()
    }
    figures = in_turns(contestants, repetitions)
    print_header("batch", "steps of an environment/s", "faster than Gymnasium's")
    for name, seconds in figures.items():
        reference = figures[f"Gymnasium's, all infos, {name.rpartition(' ')[2]}"]
        print_row(name, f"{1 / seconds:,.0f}", f"{reference / seconds:.1f}x")
    print()


def memory_of_ours() -> tuple[float, float]:
    """Return the memory of this process in MB with one of our environments and with all of them."""
    held = []
    for task in range(OURS):
        env = gym.make(ENV_ID)
        env.reset(options={"task": task})
        rng = Stream("alfworld_speed", "memory", task)
        for _ in range(STEPS):
            env.step(env.unwrapped.sample_action(rng))  # type: ignore[attr-defined]
        held.append((env, resident()))
    return held[0][1], held[-1][1]


def memory_of_theirs(paths: list[Path]) -> tuple[float, float]:
    """Return the memory of this process in MB with one environment of the real engine and with all of them."""
    held = []
    for path in paths:
        env = packages().new_environment()
        env.load(json.loads(path.read_text("utf-8")))
        env.reset()
        for _ in range(3):
            env.step("look")
        held.append((env, resident()))
    return held[0][1], held[-1][1]


def print_memory(paths: list[Path]) -> None:
    """Print the memory of both, each in its own process."""
    with get_context("spawn").Pool(2, maxtasksperchild=1) as pool:
        ours, theirs = pool.apply_async(memory_of_ours), pool.apply_async(partial(memory_of_theirs, paths))
        print_header("environments in one process", "number", "MB with one", "MB with all", "MB for each further one")
        for name, number, (one, every) in (("ours", OURS, ours.get()), ("real engine", len(paths), theirs.get())):
            print_row(name, number, f"{one:.0f}", f"{every:.0f}", f"{(every - one) / (number - 1):.2f}")


def main() -> None:
    """Print the four tables."""
    parser = arguments(__doc__, repetitions=5)
    parser.add_argument("--games", type=int, default=4, help="games in a repetition (default 4)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        games = episodes(folder, max(THEIRS, args.games * args.repetitions))
        batches = [games[start : start + args.games] for start in range(0, len(games), args.games)]
        ours, theirs = Ours(folder), Theirs()
        ours.start_compiled(games)  # writes them
        official._compiled.cache_clear()
        starts = {
            "ours, generated, cold": in_new_process("ours", "start_generated", folder),
            "ours, generated, first": ours.start_generated,
            "ours, generated, again": ours.start_generated,
            "ours, from a file, cold": in_new_process("ours", "start", folder),
            "ours, from a file, first": ours.start,
            "ours, from a file, again": ours.start,
            "ours, compiled on disk, cold": in_new_process("ours", "start_compiled", folder),
            "ours, compiled on disk, first": ours.start_compiled,
            "real engine, cold": in_new_process("real engine", "start", folder),
            "real engine": theirs.start,
        }
        steps = {
            "ours, engine, cold": in_new_process("ours", "engine", folder),
            "ours, engine, first": ours.engine,
            "ours, engine, again": ours.engine,
            "ours, environment, cold": in_new_process("ours", "environment", folder),
            "ours, environment, first": ours.environment,
            "ours, environment, again": ours.environment,
            "real engine, cold": in_new_process("real engine", "engine", folder),
            "real engine": theirs.engine,
        }
        for title, unit, contestants, show in (
            ("start of an episode", "ms", starts, lambda seconds: f"{seconds * 1e3:,.3f}"),
            ("step", "steps/s", steps, lambda seconds: f"{1 / seconds:,.0f}"),
        ):
            measures = {name: each_batch(measure, batches) for name, measure in contestants.items()}
            print_ratios(title, unit, in_turns(measures, args.repetitions), show)
        print_batches(args.repetitions)
        print_memory(sorted(folder.rglob(GAME_FILE))[:THEIRS])


if __name__ == "__main__":
    main()

"""Compare our ALFWorld engine with the real one step by step, on the same games and commands.

Needs the extra `alfworld`. Launch:
`python benchmarks/alfworld_differential.py [--games 24] [--steps 40] [--seed 0] [--jobs 2] [--data PATH]`.

At the start and after every command these must be equal: the observation, whether the command was valid, the list of
commands, whether the game is won, and the facts. Games are generated ones of all six types, variants of them (see
`_lockstep_games.py`), and the official games below PATH with variants of theirs; without PATH, the samples of the tests
(`AGENTGYM_FLOW_TEST_DATA`). About two commands in three handle objects, one in three is any that is offered, and one in
twenty is nonsense; half of the games start with a walkthrough. Exits with status 1 if anything differs.

CPU seconds are summed over all processes; nearly all of them are the real engine's.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from _lockstep import SCHEMAS, Difference, Tally, Wanderer, lockstep
from _lockstep_games import Case, cases
from _timing import arguments, print_header, print_row

from agentgym_flow.core import Stream
from agentgym_flow.envs.alfworld.compiled_game import compile_game
from agentgym_flow.envs.alfworld.game import ALFWorldGame
from agentgym_flow.envs.alfworld.official import parse_game
from agentgym_flow.envs.alfworld.policies import shortest_plan
from agentgym_flow.envs.alfworld.real import TextWorldGame


@dataclass
class Outcome:
    """The result of playing one or more games.

    Attributes:
        games: number of games of each kind: a task type or variant.
        tally: counts of steps.
        differences: name of a game -> the first difference.
        seconds: CPU time.
    """

    games: Counter[str] = field(default_factory=Counter)
    tally: Tally = field(default_factory=Tally)
    differences: dict[str, Difference | str] = field(default_factory=dict)
    seconds: float = 0.0

    def update(self, other: Outcome) -> None:
        """Add another outcome."""
        self.games.update(other.games)
        self.tally.update(other.tally)
        self.differences.update(other.differences)
        self.seconds += other.seconds


def play_case(case: Case, steps: int, seed: int) -> Outcome:
    """Play one game in both engines. An exception of an engine is a difference."""
    outcome = Outcome()
    begin = time.process_time()
    try:
        stream = Stream("lockstep", seed, case.name, "commands")
        source = parse_game(case.content, case.name)
        game = compile_game(source.problem, source.words, case.name)
        outcome.games.update(["games", game.goal.task_type, *case.name.split(", ")[1:]])
        walkthrough = source.walkthrough or planned(ALFWorldGame(game))
        wanderer = Wanderer(stream, walkthrough if stream.below(2) else ())
        difference = lockstep(ALFWorldGame(game), TextWorldGame(case.content), wanderer, steps, outcome.tally)
        if difference is not None:
            outcome.differences[case.name] = difference
    except Exception:
        outcome.differences[case.name] = traceback.format_exc()
    outcome.seconds = time.process_time() - begin
    return outcome


def planned(game: ALFWorldGame) -> tuple[str, ...]:
    """Return the commands of our expert's plan from the start of a game; empty if it finds none."""
    commands = []
    for move in shortest_plan(game) or ():
        commands.append(game.text(move))
        game.make(move)
    return tuple(commands)


def report(outcome: Outcome, wall: float) -> None:
    """Print counts, times and differences."""
    steps = outcome.tally.steps
    print_header("games", "steps", "differences", "seconds", "CPU seconds")
    print_row(outcome.games["games"], f"{steps:,}", len(outcome.differences), f"{wall:.0f}", f"{outcome.seconds:.0f}")
    for title, counts, names in (
        ("command", outcome.tally.schemas, SCHEMAS),
        ("situation", outcome.tally.situations, sorted(outcome.tally.situations)),
        ("games of a kind", outcome.games, sorted(set(outcome.games) - {"games"})),
    ):
        print()
        print_header(title, "number")
        for name in names:
            print_row(name, f"{counts[name]:,}")
    for name, difference in outcome.differences.items():
        print(f"\n{name}: {difference}")


def play_all(games: Iterable[Case], steps: int, seed: int, jobs: int) -> Outcome:
    """Play all games in `jobs` parallel processes, because the real engine cannot be shared."""
    total = Outcome()
    play = partial(play_case, steps=steps, seed=seed)
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for outcome in pool.map(play, games):
            total.update(outcome)
    return total


def main() -> None:
    """Play, print the tables, and exit with status 1 if anything differs."""
    parser = arguments(__doc__)
    parser.add_argument("--games", type=int, default=24, help="generated games (default 24)")
    parser.add_argument("--steps", type=int, default=40, help="commands in each game (default 40)")
    parser.add_argument("--seed", type=int, default=0, help="names games, variants and commands (default 0)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--data", type=Path, metavar="PATH", help="a folder with official games")
    args = parser.parse_args()
    samples = os.environ.get("AGENTGYM_FLOW_TEST_DATA")
    data = args.data or (Path(samples) / "alfworld" if samples else None)
    begin = time.perf_counter()
    outcome = play_all(cases(args.games, args.seed, data), args.steps, args.seed, args.jobs)
    report(outcome, time.perf_counter() - begin)
    sys.exit(bool(outcome.differences))


if __name__ == "__main__":
    main()

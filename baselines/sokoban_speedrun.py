"""Sokoban speedrun: solve as many Boxoban levels as possible after an hour of training on two cores.

    python -m baselines.sokoban_speedrun --levels boxoban/unfiltered/train --clone 1 --out runs/cloned
    python -m baselines.sokoban_speedrun --levels boxoban/unfiltered/train --channels 32 --blocks 4 --out runs/ppo
    python -m baselines.sokoban_speedrun ... --dense --out runs/dense
    python -m baselines.sokoban_speedrun ... --clone 1 --device cuda --minutes 9 --threads 16 --out runs/gpu

This file has the run: budget, levels, cloning, checkpoint, evaluation and command. `sokoban_network` has the policy, a
convolutional network that chooses single moves without search, and `sokoban_ppo` has PPO. `--clone SHARE` is the share
of the budget for imitating the package's solver; PPO uses the rest:

    clone  The solver plans from the starts of levels, and from states that the policy reaches (DAgger: Ross, Gordon,
           Bagnell, 2011). Levels are those of the files, then new ones of our generator.
    PPO    A reverse curriculum: boards one push from solved, then two, up to the levels themselves. `--dense` shapes
           the rewards with the potentials of RewardFlow's state graphs, one graph per level.

The budget is in core-seconds including worker processes, so that other programs on the machine matter little. It does
not include the time of a GPU; `--minutes` limits wall time instead. Evaluation is not counted: it plays held-back
levels once each, and writes the package's logs. No rotation or reflection of a held-back level is trained on. Ctrl-C
and SIGTERM write a checkpoint, from which `--resume` continues, with the same levels and options; only --threads and
--device may differ.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from torch import nn
from torch.nn import functional as F  # noqa: N812 (its usual name)

from agentgym_flow._util.files import write_atomically
from agentgym_flow._util.signals import exit_status, signals_go_to, sigterm_raises
from agentgym_flow._util.values import is_number
from agentgym_flow.core import Stream
from agentgym_flow.envs.sokoban.game import Board
from agentgym_flow.envs.sokoban.generator import LevelSettings, generate
from agentgym_flow.envs.sokoban.level import ACTIONS, Level, cell_codes
from agentgym_flow.envs.sokoban.official import read_levels, write_levels
from agentgym_flow.envs.sokoban.solver import solve
from agentgym_flow.envs.sokoban.tasks import ENV_ID, board_hash
from agentgym_flow.envs.sokoban.vector import SokobanVectorEnv
from agentgym_flow.errors import AgentGymFlowError, BadSetting, SearchLimit
from agentgym_flow.play import evaluate
from agentgym_flow.training.optim import MuonAdamW
from baselines.sokoban_network import (
    ACTIONS_OF,
    CELLS_OF,
    SIDE,
    Codes,
    Ints,
    Net,
    NetworkPolicy,
    act,
    infer,
    inside,
    level_of,
    read_checkpoint,
)
from baselines.sokoban_ppo import EXPANSIONS, WHOLE, Curriculum, Player, ppo_loss, unplay

Item = TypeVar("Item")
Result = TypeVar("Result")

HORIZON = 120
# Cloning: levels and states per round of the solver, seconds of training per second of the solver, rows of a batch.
LEVELS_ASKED, STATES_ASKED, TRAIN_RATIO, BATCH = 500, 500, 3.0, 512
MINIBATCH, MAX_NORM = 1024, 1.0  # PPO: rows of a minibatch; for both: the largest norm of a gradient
CLONE_STEP, PPO_STEP = (0.02, 2e-3), (0.015, 1.5e-3)  # the highest learning rates of Muon and AdamW
SAVE_SECONDS, SHOW_SECONDS, CHECKPOINT = 300.0, 10.0, "checkpoint.pt"
FIXED = ("channels", "blocks", "held_back", "seed", "clone", "dense", "core_seconds", "minutes")  # for a whole run
WAYS = ("sampled", "greedy", "careful")


# ---------------------------------------------------------------- solver and generator, run in worker processes
def teach(levels: Sequence[Level]) -> tuple[Codes, Ints]:
    """Return the states along the solver's plans and the action in each; unsolved levels are skipped."""
    states, actions = [np.zeros(SIDE * SIDE, np.uint8)][:0], list[int]()
    for level in levels:
        try:
            plan = solve(level, max_expansions=EXPANSIONS) or []
        except SearchLimit:
            continue
        board = Board(level)
        for action in map(ACTIONS.index, plan):
            states.append(cell_codes(board.cells, board.player))
            actions.append(action)
            board.move(action)
    return inside(np.array(states, np.uint8)), np.array(actions, np.int64)


def invent(numbers: Sequence[int], held_back: frozenset[bytes]) -> list[Level]:
    """Return the levels of our generator with these numbers, none of them symmetric to a held-back one."""
    settings = LevelSettings((SIDE, SIDE), boxes=4, max_moves=HORIZON)
    accept = lambda cells: board_hash(SIDE, SIDE, cells) not in held_back  # noqa: E731
    return [generate(settings, Stream("sokoban speedrun", number), accept) for number in numbers]


def chunks(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    """Yield slices of `size` items."""
    return (items[first : first + size] for first in range(0, len(items), size))


def timed(function: Callable[..., Result], job: tuple[Any, ...]) -> tuple[Result, float]:
    """Return the result of a function, and its processor time in seconds."""
    begun = time.process_time()
    return function(*job), time.process_time() - begun


def leave_signals() -> None:
    """Ignore Ctrl-C and SIGTERM in workers: the main process handles signals to the process group."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


# ---------------------------------------------------------------- a run
class Stopped(Exception):
    """A signal stopped the run after it wrote the checkpoint."""


class Run:
    """The shared state of a run: budget, levels, worker processes, network, checkpoint."""

    def __init__(self, asked: argparse.Namespace, pool: ProcessPoolExecutor) -> None:
        self.asked, self.out, self.pool = asked, Path(asked.out), pool
        self.stopping = 0  # the number of the signal that stops the run
        self.begun, self.cpu_begun, self.of_workers, self.before = time.time(), time.process_time(), 0.0, 0.0
        self.saved = self.shown = time.monotonic()
        list(self.pool.map(abs, range(asked.threads)))  # start workers before PyTorch starts threads
        torch.set_num_threads(asked.threads)
        torch.manual_seed(asked.seed)
        self.rng = np.random.default_rng(asked.seed)
        self.net = Net(asked.channels, asked.blocks)
        try:
            self.net.to(asked.device)
        except (RuntimeError, AssertionError) as error:  # AssertionError: PyTorch was built without this device
            raise BadSetting(f"--device {asked.device}: {str(error).partition(chr(10))[0]}") from error
        self.held_boards = frozenset[bytes]()
        self.part, self.state = "", dict[str, Any]()  # the current part, and its state for resumption
        self._choose_levels()

    def _choose_levels(self) -> None:
        """Split the levels into held-back ones, whose boards have the smallest hashes, and training levels."""
        levels = [level for path in self.asked.levels or () for level in read_levels(path)] or self.invented(
            0, 10 * self.asked.held_back
        )
        if any((level.height, level.width) != (SIDE, SIDE) for level in levels):
            raise BadSetting(f"--levels must hold levels of {SIDE}x{SIDE} only, as Boxoban's are")
        boards = [board_hash(SIDE, SIDE, level.cells) for level in levels]
        if self.asked.held_back >= len(set(boards)):
            raise BadSetting(f"--held_back must be from 1 to {len(set(boards)) - 1} with these levels")
        self.held_boards = frozenset(sorted(set(boards))[: self.asked.held_back])
        pairs = list(zip(boards, levels, strict=True))
        self.held = list({board: level for board, level in pairs if board in self.held_boards}.values())
        self.train = [level for board, level in pairs if board not in self.held_boards]
        random.Random(self.asked.seed).shuffle(self.train)
        self.fixed = {name: getattr(self.asked, name) for name in FIXED}
        digest = hashlib.sha256()
        for level in (*self.held, *self.train):
            digest.update(level.cells + bytes([level.player]))
        self.fixed["levels"] = digest.hexdigest()

    def invented(self, first: int, number: int) -> list[Level]:
        """Return `number` levels of our generator."""
        jobs = [(part, self.held_boards) for part in chunks(range(first, first + number), 10)]
        return list(chain(*self.work(invent, jobs)))

    def work(self, function: Callable[..., Result], jobs: Sequence[tuple[Any, ...]]) -> Iterator[Result]:
        """Yield the workers' results of all jobs, in order, and count their processor time."""
        for result, seconds in self.pool.map(partial(timed, function), jobs):
            self.of_workers += seconds
            yield result

    @property
    def spent(self) -> float:
        """Core-seconds spent so far, or seconds of wall time with `--minutes`."""
        cores = time.process_time() - self.cpu_begun + self.of_workers
        return self.before + (time.time() - self.begun if self.asked.minutes else cores)

    @property
    def share(self) -> float:
        """The fraction of the budget that is spent."""
        return self.spent / float(60 * self.asked.minutes if self.asked.minutes else self.asked.core_seconds)

    def begin(self, part: str, **state: Any) -> None:
        """Begin a part of the run, or resume it."""
        self.optimizer = MuonAdamW(self.net, muon_lr=1.0, adamw_lr=1.0)
        if self.part == part:
            self.optimizer.load_state_dict(self.state["optimizer"])
        else:
            self.part, self.state = part, state

    def step(self, loss: torch.Tensor, done: float, largest: tuple[float, float]) -> None:
        """Take an optimizer step after a fraction `done` of the part: learning rates rise to `largest`, then fall."""
        for group, size in zip(self.optimizer.param_groups, largest, strict=True):
            group["lr"] = size * max(0.01, min(1.0, done / 0.02, (1 - done) / 0.9))
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.net.parameters(), MAX_NORM)
        self.optimizer.step()

    def tick(self, line: str) -> None:
        """Print a line and save at intervals. Raises `Stopped` after a signal."""
        now, passed = time.monotonic(), time.time() - self.begun
        if now - self.shown > SHOW_SECONDS:
            self.shown, budget = now, self.spent / self.share
            left = passed * (budget - self.spent) / (self.spent - self.before) / 60
            show(f"{self.share:4.0%} {line}; {self.spent:,.0f} s spent, {passed / 60:.1f} min, ETA {left:.1f} min")
        if self.stopping or now - self.saved > SAVE_SECONDS:
            self.save()
        if self.stopping:
            raise Stopped

    def save(self) -> None:
        """Write the checkpoint atomically."""
        self.saved = time.monotonic()
        self.state["optimizer"] = self.optimizer.state_dict()
        about = {**self.fixed, "spent": self.spent, "part": self.part}
        with write_atomically(self.out / CHECKPOINT) as partial:
            torch.save({"net": self.net.state_dict(), "state": self.state, **about}, partial)

    def load(self) -> None:
        """Load the checkpoint; interrupted episodes start anew.

        Raises:
            BadSetting: there is no checkpoint, or it was written with other settings or levels.
            BadData: it cannot be read.
        """
        file = self.out / CHECKPOINT
        if not file.exists():
            raise BadSetting(f"there is no {file} to resume from; leave out --resume, or name its folder with --out")
        found = read_checkpoint(file, ("net", "state", "spent", "part", *self.fixed))
        if changed := [name for name, value in self.fixed.items() if found[name] != value]:
            # Other settings may change the levels too, so those are named only if nothing else is.
            begun = [f"{name}={found[name]}" for name in changed if name != "levels"] or ["other --levels"]
            raise BadSetting(f"{file} was begun with {', '.join(begun)}; leave out --resume to begin a new run")
        self.net.load_state_dict(found["net"])
        self.before, self.part, self.state = found["spent"], found["part"], found["state"]

    def environments(self, levels: Sequence[Level], number: int, *info_keys: str) -> SokobanVectorEnv:
        """Return a batch of environments with these levels, whose `info` reports deadlocks."""
        file, keys = self.out / "levels.txt", ("deadlock", *info_keys)
        write_levels(file, levels)
        mode = AutoresetMode.DISABLED
        return SokobanVectorEnv(number, data=file, split="test", max_steps=HORIZON, info_keys=keys, autoreset_mode=mode)


# ---------------------------------------------------------------- cloning
def clone(run: Run, until: float) -> None:
    """Imitate the solver until a fraction of the budget is spent, in rounds of planning and training on all plans."""
    run.begin("clone", codes=[], actions=[], asked=0)
    state, losses, solved = run.state, list[float](), 0.0
    known = run.train[: state["asked"]]
    while run.share < until:
        begun, asked = run.spent, state["asked"]
        new = run.train[asked : asked + LEVELS_ASKED] or run.invented(10 * run.asked.held_back + asked, LEVELS_ASKED)
        solved, met = wander(run, known) if known else (0.0, [])
        for codes, actions in run.work(teach, [(part,) for part in chunks(new + met, 20)]):
            state["codes"].append(torch.from_numpy(codes))
            state["actions"].append(torch.from_numpy(actions))
        known, state["asked"] = known + new, asked + LEVELS_ASKED
        codes, actions = torch.cat(state["codes"]).numpy(), torch.cat(state["actions"]).numpy()
        end = run.spent + TRAIN_RATIO * (run.spent - begun)
        while run.spent < end and run.share < until:
            rows, turns = run.rng.integers(len(codes), size=BATCH), run.rng.integers(8, size=BATCH)
            logprobs, _ = infer(run.net, codes[rows[:, None], CELLS_OF[turns]])
            loss = F.nll_loss(logprobs, torch.from_numpy(ACTIONS_OF[turns, actions[rows]]).to(logprobs.device))
            run.step(loss, run.share / until, CLONE_STEP)
            losses = [*losses[-199:], float(loss.detach())]
            run.tick(f"clone: loss {np.mean(losses):.3f}, {len(codes):,} states, training levels solved {solved:.1%}")
    run.save()


def wander(run: Run, known: Sequence[Level]) -> tuple[float, list[Level]]:
    """Play known levels; return the success rate, and states at random times, without deadlocks."""
    levels = [known[number] for number in run.rng.integers(len(known), size=STATES_ASKED)]
    envs, stops = run.environments(levels, len(levels)), run.rng.integers(1, 80, size=len(levels))
    grids, _ = envs.reset(options={"task": range(len(levels))})
    alive, solved, met = np.ones(len(levels), np.bool_), 0, list[Level]()
    for now in range(HORIZON):
        grids, _, terminations, truncations, infos = envs.step(act(run.net, inside(grids))[0])
        ended = terminations | truncations
        solved += int((alive & terminations).sum())
        alive &= ~ended
        met += [level_of(grids[board]) for board in np.flatnonzero(alive & (stops == now) & ~infos["deadlock"])]
        if ended.any():
            grids, _ = envs.reset(options={"reset_mask": ended})
    return solved / len(levels), met


# ---------------------------------------------------------------- PPO
def ppo(run: Run) -> None:
    """Train with PPO until the budget is spent. A cloned policy needs no curriculum."""
    run.begin("ppo", opened=1, start=run.share, cloned=run.part == "clone")
    levels = [(level, WHOLE) for level in run.train]
    if not run.state["cloned"]:
        levels += chain(*run.work(unplay, [(part, seed) for seed, part in enumerate(chunks(run.train, 50))]))
    curriculum = Curriculum([pushes for _, pushes in levels], run.rng, run.state["opened"])
    environments = partial(run.environments, [level for level, _ in levels])
    player = Player(run.net, environments, curriculum, dense=run.asked.dense)
    while run.share < 1:
        played = player.play()
        number = len(played[0])
        for rows in np.array_split(run.rng.permutation(number), max(1, number // MINIBATCH)):
            done = (run.share - run.state["start"]) / (1 - run.state["start"])
            run.step(ppo_loss(run.net, *(part[rows] for part in played)), done, PPO_STEP)
        run.state["opened"] = opened = curriculum.opened
        of_stage = (
            f"stage {opened} of {len(curriculum.of_stage)}, of its levels solved {curriculum.solved[opened - 1]:.1%}"
        )
        run.tick(f"ppo: {of_stage}, {player.episodes:,} episodes, {player.steps:,} steps")
    run.save()


# ---------------------------------------------------------------- evaluation
def careful() -> NetworkPolicy:
    """Return the policy of the checkpoint in the environment variable `SPEEDRUN_CHECKPOINT`.

    For `agentgym-flow evaluate --policy baselines.sokoban_speedrun:careful`.

    Raises `BadSetting` if the variable is not set, and `BadData` if the checkpoint cannot be read.
    """
    if not (file := os.environ.get("SPEEDRUN_CHECKPOINT")):
        raise BadSetting(f"set the environment variable SPEEDRUN_CHECKPOINT to the {CHECKPOINT} of a run")
    found = read_checkpoint(Path(file), ("net", "channels", "blocks"))
    net = Net(found["channels"], found["blocks"])
    net.load_state_dict(found["net"])
    return NetworkPolicy(net, "careful")


def evaluate_held_back(run: Run) -> dict[str, str]:
    """Play the held-back levels once in each way; return way -> success rate with its 95 % interval (Wilson)."""
    write_levels(run.out / "held_back.txt", run.held)
    kwargs, found = {"data": str(run.out / "held_back.txt"), "max_steps": HORIZON}, dict[str, str]()
    for way in WAYS:
        log = run.out / f"{way}.jsonl.gz"
        result, _ = evaluate(
            NetworkPolicy(run.net, way), ENV_ID, env_kwargs=kwargs, num_envs=512, log=log, replace=True
        )
        low, high = result.success_interval
        found[way] = f"{result.success:.1%} [{low:.1%}, {high:.1%}]"
        show(f"held back, {way}: {found[way]} of {result.episodes:,} levels")
    return found


# ---------------------------------------------------------------- the command
def show(line: str) -> None:
    """Print a line without buffering."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def arguments() -> argparse.ArgumentParser:
    """Return the argument parser."""
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__.partition("\n")[0])
    parser.add_argument("--levels", nargs="+", metavar="PATH", help="Boxoban files or folders; default: our generator")
    parser.add_argument("--held_back", type=int, default=1000, help="number of levels for evaluation only")
    parser.add_argument("--clone", type=float, default=0.0, help="share of the budget for imitating the solver")
    parser.add_argument("--dense", action="store_true", help="shape PPO's rewards by RewardFlow's potentials")
    parser.add_argument("--core_seconds", type=float, default=7200.0, help="the budget, including workers")
    parser.add_argument("--minutes", type=float, help="the budget in wall time instead")
    parser.add_argument("--threads", type=int, default=2, help="threads of PyTorch, and processes of the solver")
    parser.add_argument(
        "--device", default="cpu", help="such as cuda; core-seconds leave out its time, --minutes does not"
    )
    parser.add_argument("--channels", type=int, default=64)
    parser.add_argument("--blocks", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="speedrun", help="folder of the run")
    parser.add_argument("--resume", action="store_true", help="continue from the checkpoint in the folder")
    return parser


def main(given: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status: 0, 1 after printing an error, 130 or 143 after a signal."""
    asked = arguments().parse_args(given)
    try:
        check(asked)
        pool = ProcessPoolExecutor(asked.threads, initializer=leave_signals)
        try:
            with sigterm_raises():
                return train_and_evaluate(asked, pool)
        finally:
            pool.shutdown(cancel_futures=True)
    except KeyboardInterrupt as interrupt:
        show("stopped; --resume continues from the last checkpoint, if there is one")
        return exit_status(interrupt)
    except (AgentGymFlowError, OSError) as error:
        show(f"{type(error).__name__}: {error}")
        return 1


def check(asked: argparse.Namespace) -> None:
    """Raise `BadSetting` for a number that is out of its range."""
    for name, least in (("threads", 1), ("held_back", 1), ("channels", 1), ("blocks", 0), ("seed", 0)):
        if getattr(asked, name) < least:
            raise BadSetting(f"--{name} must be at least {least}, got {getattr(asked, name)}")
    for name in ("core_seconds", "minutes"):
        value = getattr(asked, name)
        if value is not None and not (is_number(value) and value > 0):
            raise BadSetting(f"--{name} must be a finite number above 0, got {value:g}")
    if not 0 <= asked.clone <= 1:
        raise BadSetting(f"--clone is a share of the budget, from 0 to 1, got {asked.clone:g}")


def train_and_evaluate(asked: argparse.Namespace, pool: ProcessPoolExecutor) -> int:
    """Train until the budget is spent, evaluate, and append the result to `results.jsonl` in the folder of the run."""
    Path(asked.out).mkdir(parents=True, exist_ok=True)
    run = Run(asked, pool)
    if asked.resume:
        run.load()
    show(f"{len(run.train):,} levels to train on, {len(run.held):,} held back, {run.spent:,.0f} s spent")
    try:
        with signals_go_to(lambda number, _: setattr(run, "stopping", number)):
            if run.part != "ppo" and run.share < asked.clone:
                clone(run, min(1.0, asked.clone))
            if run.share < 1:
                ppo(run)
    except Stopped:
        show(f"stopped after {run.spent:,.0f} s of the budget; continue with --resume")
        return 128 + run.stopping
    pool.shutdown()
    about = {name: value for name, value in vars(asked).items() if name not in ("levels", "out", "resume")}
    minutes = round((time.time() - run.begun) / 60)
    about |= {"date": f"{date.today()}", "spent": round(run.spent), "wall_minutes": minutes}
    about["parameters"] = sum(parameter.numel() for parameter in run.net.parameters())
    with (run.out / "results.jsonl").open("a", encoding="ascii") as file:
        file.write(json.dumps({**about, **evaluate_held_back(run)}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

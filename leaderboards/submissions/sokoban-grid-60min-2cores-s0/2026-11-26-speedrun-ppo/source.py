"""Sokoban speedrun: solve as many Boxoban levels as possible after an hour of training on two cores, in one file.

    python -m baselines.sokoban_speedrun --levels boxoban/unfiltered/train --clone 1 --out runs/cloned
    python -m baselines.sokoban_speedrun --levels boxoban/unfiltered/train --channels 32 --blocks 4 --out runs/ppo
    python -m baselines.sokoban_speedrun ... --dense --out runs/dense
    python -m baselines.sokoban_speedrun ... --clone 1 --device cuda --minutes 9 --threads 16 --out runs/gpu

The policy is a residual convolutional network over the inside of a 10x10 board. It chooses single moves without search.
`--clone SHARE` is the share of the budget for imitating the package's solver; PPO uses the rest:

    clone  The solver plans from the starts of levels, and from states that the policy reaches (DAgger: Ross, Gordon,
           Bagnell, 2011). Levels are those of the files, then new ones of our generator.
    PPO    A reverse curriculum: boards one push from solved, then two, up to the levels themselves. `--dense` shapes
           the rewards with the potentials of RewardFlow's state graphs, one graph per level.

The budget is in core-seconds including worker processes, so that other programs on the machine matter little. It does
not include the time of a GPU; `--minutes` limits wall time instead. Evaluation is not counted: it plays held-back
levels once each, and writes the package's logs. No rotation or reflection of a held-back level is trained on. Ctrl-C
and SIGTERM write a checkpoint, from which `--resume` continues, with the same levels, --held_back and --seed.
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
import numpy.typing as npt
import torch
from gymnasium.vector import AutoresetMode
from torch import nn
from torch.nn import functional as F  # noqa: N812 (its usual name)

from agentgym_flow._util.files import whole
from agentgym_flow._util.signals import exit_status, signals_go_to, sigterm_raises
from agentgym_flow.envs.sokoban.bitboard import WORDS, cells_of, mask_of, nth_cell, search_by_pulls
from agentgym_flow.envs.sokoban.boxoban import read_levels, write_levels
from agentgym_flow.envs.sokoban.codes import CODE_OF_BITS, CODE_PLAYER, PLAYER_SHIFT, cell_codes
from agentgym_flow.envs.sokoban.generator import LevelSettings, generate
from agentgym_flow.envs.sokoban.level import BOX, LLM_SYMBOLS, PLAYER, TARGET, WALL, Level
from agentgym_flow.envs.sokoban.rules import STEP_REWARD, Board
from agentgym_flow.envs.sokoban.solver import solve
from agentgym_flow.envs.sokoban.source import ENV_ID
from agentgym_flow.envs.sokoban.tasks import board_hash
from agentgym_flow.envs.sokoban.vector import SokobanVectorEnv
from agentgym_flow.errors import AgentGymFlowError, BadSetting, SearchLimit
from agentgym_flow.evaluation import evaluate
from agentgym_flow.policies import PolicyInput, PolicyOutput
from agentgym_flow.rewards import GraphStore, VectorRewardFlow
from agentgym_flow.seeding import Stream
from agentgym_flow.training.optim import MuonAdamW

Codes = npt.NDArray[np.uint8]  # cells as `agentgym_flow/SokobanGrid-v0` codes them: [boards, 64], without the border
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Item = TypeVar("Item")
Result = TypeVar("Result")

SIDE, INSIDE, HORIZON = 10, 8, 120
# Cloning: levels and states per round of the solver, seconds of training per second of the solver, rows of a batch.
LEVELS_ASKED, STATES_ASKED, TRAIN_RATIO, BATCH, EXPANSIONS = 500, 500, 3.0, 512, 2000
# PPO: boards, steps between updates, rows of a minibatch; success rate at which the next curriculum stage opens.
BOARDS, STEPS, MINIBATCH, MASTERED, DEPTHS, WHOLE = 512, 32, 1024, 0.5, (1, 2, 3, 4, 5, 6, 8, 10, 12), 99
GAMMA, LAMBDA, CLIP, ENTROPY, VALUE, REWARD, DENSE, MAX_NORM = 0.98, 0.9, 0.2, 0.01, 0.5, 0.1, 5.0, 1.0
CLONE_STEP, PPO_STEP = (0.02, 2e-3), (0.015, 1.5e-3)  # the highest learning rates of Muon and AdamW
SAVE_SECONDS, SHOW_SECONDS, CHECKPOINT = 300.0, 10.0, "checkpoint.pt"
WAYS = ("sampled", "greedy", "careful")

BITS_OF_CODE = {code: bits for bits, code in CODE_OF_BITS.items()}
CODE_OF_SYMBOL = {LLM_SYMBOLS[bits]: code for bits, code in CODE_OF_BITS.items()}


# ---------------------------------------------------------------- the network
class Conv(nn.Module):
    """A 3x3 convolution whose weights are one matrix, outputs x inputs, as Muon needs."""

    def __init__(self, inputs: int, outputs: int, gain: float = 1.0) -> None:
        super().__init__()
        self.shape = (outputs, inputs, 3, 3)
        self.matrix = nn.Parameter(torch.randn(outputs, inputs * 9) * gain * (inputs * 9) ** -0.5)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the convolution of `x`, [boards, inputs, 8, 8]; all planes are 0 beyond the edge, like walls."""
        return F.conv2d(x, self.matrix.view(self.shape), self.bias, padding=1)


class Net(nn.Module):
    """Residual blocks over the board, read out at the player's cell, because actions depend on its surroundings."""

    def __init__(self, channels: int, blocks: int) -> None:
        super().__init__()
        bits = torch.tensor([BITS_OF_CODE[code] for code in range(len(BITS_OF_CODE))])
        planes = torch.stack([bits & WALL == 0, bits & TARGET > 0, bits & BOX > 0, bits & PLAYER > 0], 1).float()
        self.planes: torch.Tensor
        self.register_buffer("planes", planes, persistent=False)
        self.stem = Conv(4, channels)
        self.first = nn.ModuleList(Conv(channels, channels, 1.4) for _ in range(blocks))
        self.second = nn.ModuleList(Conv(channels, channels, 0.1) for _ in range(blocks))
        self.mix = nn.Linear(2 * channels, 2 * channels)
        self.head = nn.Linear(2 * channels, len(WORDS) + 1)
        nn.init.zeros_(self.head.weight)

    def forward(self, codes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the logits, [boards, 4], and values, [boards], of boards, uint8[boards, 64]."""
        board = self.planes[codes.long()].view(-1, INSIDE, INSIDE, 4).permute(0, 3, 1, 2)
        x = self.stem(board)
        for first, second in zip(self.first, self.second, strict=True):
            x = x + second(F.relu(first(F.relu(x))))
        x = F.relu(x)
        here = (x * board[:, 3:]).sum((2, 3))
        out = self.head(F.relu(self.mix(torch.cat([here, x.mean((2, 3))], 1)))).float()
        return out[:, :-1], out[:, -1]

    def get_output_embeddings(self) -> nn.Module:
        """Return the layer that Muon leaves to AdamW."""
        return self.head


def infer(net: Net, codes: Codes) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the log-probabilities of actions and the values of boards, computed in bfloat16."""
    device = net.head.weight.device
    with torch.autocast(device.type, torch.bfloat16):
        logits, values = net(torch.from_numpy(codes).to(device))
    return logits.log_softmax(-1), values


@torch.no_grad()
def act(net: Net, codes: Codes) -> tuple[Ints, Floats, Floats]:
    """Return a sampled action for each board, its log-probability, and the value."""
    logprobs, values = infer(net, codes)
    actions = torch.multinomial(logprobs.exp(), 1)
    return actions[:, 0].cpu().numpy(), logprobs.gather(1, actions)[:, 0].cpu().numpy(), values.cpu().numpy()


def _symmetries() -> tuple[Ints, Ints]:
    """Return the source cell of each cell of the 8 symmetric boards, [8, 64], and the image of each action, [8, 4]."""
    grid = np.arange(INSIDE * INSIDE).reshape(INSIDE, INSIDE)
    turned = [np.rot90(flipped, turns) for flipped in (grid, grid[:, ::-1]) for turns in range(4)]
    steps = [(-1, 0), (1, 0), (0, -1), (0, 1)]
    becomes = [
        [
            steps.index(tuple(np.argwhere(t == grid[3 + r, 3 + c])[0] - np.argwhere(t == grid[3, 3])[0]))
            for r, c in steps
        ]
        for t in turned
    ]
    return np.array([image.ravel() for image in turned]), np.array(becomes)


CELLS_OF, ACTIONS_OF = _symmetries()


def inside(grids: npt.NDArray[np.uint8]) -> Codes:
    """Return the cells inside the border of 10x10 boards."""
    return grids.reshape(-1, SIDE, SIDE)[:, 1:-1, 1:-1].reshape(-1, INSIDE * INSIDE)


# ---------------------------------------------------------------- levels and solver, run in worker processes
def level_of(grid: npt.NDArray[np.uint8]) -> Level:
    """Return the state of a board as a level."""
    codes = grid.ravel().tolist()
    player = next(cell for cell, code in enumerate(codes) if code >= CODE_PLAYER)
    codes[player] -= PLAYER_SHIFT
    return Level(SIDE, SIDE, bytes(BITS_OF_CODE[code] for code in codes), player)


def teach(levels: Sequence[Level]) -> tuple[Codes, Ints]:
    """Return the states along the solver's plans and the action in each; unsolved levels are skipped."""
    states, actions = [np.zeros(SIDE * SIDE, np.uint8)][:0], list[int]()
    for level in levels:
        try:
            plan = solve(level, max_expansions=EXPANSIONS) or []
        except SearchLimit:
            continue
        board = Board(level)
        for action in map(WORDS.index, plan):
            states.append(cell_codes(board.cells, board.player))
            actions.append(action)
            board.move(action)
    return inside(np.array(states, np.uint8)), np.array(actions, np.int64)


def invent(numbers: Sequence[int], held_back: frozenset[bytes]) -> list[Level]:
    """Return the levels of our generator with these numbers, none of them symmetric to a held-back one."""
    settings = LevelSettings((SIDE, SIDE), boxes=4, max_moves=HORIZON)
    accept = lambda cells: board_hash(SIDE, SIDE, cells) not in held_back  # noqa: E731
    return [generate(settings, Stream("sokoban speedrun", number), accept) for number in numbers]


def unplay(levels: Sequence[Level], seed: int) -> list[tuple[Level, int]]:
    """Return starts near the end of levels: for each level one per depth of `DEPTHS`, with the pushes it needs."""
    stream, found = Stream("sokoban speedrun", "unplay", seed), list[tuple[Level, int]]()
    for level in levels:
        floor = mask_of(cell for cell, bits in enumerate(level.cells) if not bits & WALL)
        layers, _ = search_by_pulls(floor, mask_of(level.targets), SIDE, EXPANSIONS)
        for depth in (depth for depth in DEPTHS if depth < len(layers)):
            boxes, region = stream.choice(layers[depth])
            cells = bytearray(bits & ~BOX for bits in level.cells)
            for cell in cells_of(boxes):
                cells[cell] |= BOX
            player = nth_cell(region, stream.below(region.bit_count())).bit_length() - 1
            found.append((Level(SIDE, SIDE, bytes(cells), player), depth))
    return found


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
        self.net = Net(asked.channels, asked.blocks).to(asked.device)
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
        if not 0 < self.asked.held_back < len(set(boards)):
            raise BadSetting(f"--held_back must be from 1 to {len(set(boards)) - 1} with these levels")
        self.held_boards = frozenset(sorted(set(boards))[: self.asked.held_back])
        pairs = list(zip(boards, levels, strict=True))
        self.held = list({board: level for board, level in pairs if board in self.held_boards}.values())
        self.train = [level for board, level in pairs if board not in self.held_boards]
        random.Random(self.asked.seed).shuffle(self.train)
        self.fixed = {name: getattr(self.asked, name) for name in ("channels", "blocks", "held_back", "seed")}
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
        with whole(self.out / CHECKPOINT) as partial:
            torch.save({"net": self.net.state_dict(), "state": self.state, **about}, partial)

    def load(self) -> None:
        """Load the checkpoint; interrupted episodes start anew. Raises `BadSetting` if that is impossible."""
        file = self.out / CHECKPOINT
        if not file.exists():
            raise BadSetting(f"there is no {file} to resume from; leave out --resume, or name its folder with --out")
        found = torch.load(file, weights_only=True, map_location=self.asked.device)
        if any(found.get(name) != value for name, value in self.fixed.items()):
            needs = " ".join(f"--{name} {found.get(name, '?')}" for name in self.fixed if name != "levels")
            raise BadSetting(f"{file} needs {needs} and the --levels it began with, in the same order")
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
class Curriculum:
    """Selects the next level of a board: in half of the cases from the hardest open stage, else from any open one."""

    def __init__(self, pushes: Sequence[int], rng: np.random.Generator, opened: int) -> None:
        stages, self.stage_of = np.unique(pushes, return_inverse=True)
        self.of_stage = [np.flatnonzero(self.stage_of == stage) for stage in range(len(stages))]
        self.rng, self.opened, self.solved = rng, min(opened, len(stages)), np.zeros(len(stages))

    def draw(self, number: int) -> Ints:
        """Return the levels of new episodes."""
        stages = self.rng.integers(self.opened, size=number)
        stages[self.rng.random(number) < 0.5] = self.opened - 1
        return np.array([self.rng.choice(self.of_stage[stage]) for stage in stages], np.int64)

    def note(self, tasks: Ints, solved: npt.NDArray[np.bool_]) -> None:
        """Record outcomes; open the next stage when the hardest one is mastered."""
        for stage, success in zip(self.stage_of[tasks], solved, strict=True):
            self.solved[stage] += 0.005 * (success - self.solved[stage])
        if self.opened < len(self.of_stage) and self.solved[self.opened - 1] > MASTERED:
            self.opened += 1


class Player:
    """Plays many boards, each always in the same of the eight orientations."""

    def __init__(self, run: Run, levels: Sequence[Level], curriculum: Curriculum) -> None:
        self.net, self.curriculum, self.episodes, self.steps = run.net, curriculum, 0, 0
        self.dense: bool = run.asked.dense
        keys = ("task_key", "state_key", "success", "action_valid") if self.dense else ()
        self.envs: Any = run.environments(levels, BOARDS, *keys)
        if self.dense:
            self.envs = VectorRewardFlow(self.envs, DENSE, gamma=GAMMA, graphs=GraphStore(gamma=GAMMA, max_nodes=2000))
        self.turns, self.back = np.arange(BOARDS) % 8, np.argsort(ACTIONS_OF, axis=1)
        self.tasks = curriculum.draw(BOARDS)
        self.grids, _ = self.envs.reset(options={"task": self.tasks})

    def see(self) -> Codes:
        """Return the boards in the policy's orientation."""
        return np.take_along_axis(inside(self.grids), CELLS_OF[self.turns], 1)

    def play(self) -> tuple[Any, ...]:
        """Play `STEPS` steps; return boards, actions, log-probabilities, advantages (GAE) and returns, a row a step."""
        codes, actions = np.zeros((STEPS, BOARDS, INSIDE * INSIDE), np.uint8), np.zeros((STEPS, BOARDS), np.int64)
        logprobs, rewards, values, ends, advantages = np.zeros((5, STEPS, BOARDS), np.float32)
        for now in range(STEPS):
            codes[now] = self.see()
            actions[now], logprobs[now], values[now] = act(self.net, codes[now])
            self.grids, given, solved, late, infos = self.envs.step(self.back[self.turns, actions[now]])
            lost = infos["deadlock"] & ~solved
            rewards[now] = REWARD * given + lost * REWARD * GAMMA * STEP_REWARD / (1 - GAMMA)  # endless step penalties
            if (cut := np.flatnonzero(late & ~lost)).size:  # the time limit is not part of the state
                rewards[now, cut] += GAMMA * act(self.net, self.see()[cut])[2]
                if self.dense:  # shaping counts the potential as 0 at every end
                    rewards[now, cut] += REWARD * DENSE * GAMMA * infos["potential"][cut]
            ends[now] = over = solved | late | lost
            if over.any():
                self.curriculum.note(self.tasks[over], solved[over])
                self.tasks[over] = self.curriculum.draw(int(over.sum()))
                self.grids, _ = self.envs.reset(options={"reset_mask": over, "task": self.tasks})
        self.steps, self.episodes = self.steps + STEPS * BOARDS, self.episodes + int(ends.sum())
        following, advantage = act(self.net, self.see())[2], np.zeros(BOARDS, np.float32)
        for now in reversed(range(STEPS)):
            goes_on = GAMMA * (1 - ends[now])
            advantage = rewards[now] + goes_on * following - values[now] + goes_on * LAMBDA * advantage
            advantages[now], following = advantage, values[now]
        scaled = (advantages - advantages.mean()) / (advantages.std() + 1e-6)
        rows = (actions, logprobs, scaled, advantages + values)
        return codes.reshape(-1, INSIDE * INSIDE), *(part.ravel() for part in rows)


def ppo_loss(net: Net, codes: Codes, *parts: npt.NDArray[Any]) -> torch.Tensor:
    """Return the loss of PPO on rows of `Player.play`: clipped objective, entropy bonus, squared error of the value."""
    logprobs, values = infer(net, codes)
    actions, old, advantages, returns = (torch.from_numpy(part).to(values.device) for part in parts)
    ratio = (logprobs.gather(1, actions[:, None])[:, 0] - old).exp()
    objective = torch.minimum(ratio * advantages, ratio.clamp(1 - CLIP, 1 + CLIP) * advantages)
    entropy = -(logprobs.exp() * logprobs).sum(-1)
    return -(objective + ENTROPY * entropy).mean() + VALUE * F.mse_loss(values, returns)


def ppo(run: Run) -> None:
    """Train with PPO until the budget is spent. A cloned policy needs no curriculum."""
    run.begin("ppo", opened=1, start=run.share, cloned=run.part == "clone")
    levels = [(level, WHOLE) for level in run.train]
    if not run.state["cloned"]:
        levels += chain(*run.work(unplay, [(part, seed) for seed, part in enumerate(chunks(run.train, 50))]))
    curriculum = Curriculum([pushes for _, pushes in levels], run.rng, run.state["opened"])
    player = Player(run, [level for level, _ in levels], curriculum)
    while run.share < 1:
        played = player.play()
        for rows in np.array_split(run.rng.permutation(STEPS * BOARDS), max(1, STEPS * BOARDS // MINIBATCH)):
            done = (run.share - run.state["start"]) / (1 - run.state["start"])
            run.step(ppo_loss(run.net, *(part[rows] for part in played)), done, PPO_STEP)
        run.state["opened"] = opened = curriculum.opened
        of_stage = (
            f"stage {opened} of {len(curriculum.of_stage)}, of its levels solved {curriculum.solved[opened - 1]:.1%}"
        )
        run.tick(f"ppo: {of_stage}, {player.episodes:,} episodes, {player.steps:,} steps")
    run.save()


# ---------------------------------------------------------------- evaluation
class NetworkPolicy:
    """The trained network as a policy of the package, which parses the board from the text.

    Args:
        net: the network.
        way: `"sampled"`, `"greedy"`, or `"careful"`, which averages over the eight orientations, and in a state visited
            before in the episode avoids actions tried there if possible.
    """

    def __init__(self, net: Net, way: str) -> None:
        self.name, self._net, self._way = f"speedrun-{way}", net, way

    @torch.no_grad()
    def act(self, inputs: Sequence[PolicyInput]) -> list[PolicyOutput]:
        """Return the actions."""
        grids = [
            [CODE_OF_SYMBOL[symbol] for symbol in policy_input.observation if not symbol.isspace()]
            for policy_input in inputs
        ]
        codes = inside(np.array(grids, np.uint8))
        if self._way == "careful":
            turned = [infer(self._net, codes[:, cells])[0].cpu().numpy() for cells in CELLS_OF]
            odds = np.mean([logprobs[:, to] for logprobs, to in zip(turned, ACTIONS_OF, strict=True)], axis=0)
        else:
            odds = infer(self._net, codes)[0].cpu().numpy()
        return [
            PolicyOutput(WORDS[self._choice(policy_input, np.exp(row))])
            for policy_input, row in zip(inputs, odds, strict=True)
        ]

    def _choice(self, policy_input: PolicyInput, odds: Floats) -> int:
        if self._way == "sampled":
            return min(int((odds.cumsum() < policy_input.rng.uniform()).sum()), len(WORDS) - 1)
        here, tried = policy_input.info["state_key"], set[str]()
        if self._way == "careful":
            tried = {turn.action for turn in policy_input.episode.turns if turn.state_key == here}
        return int(np.argmax(odds - np.array([word in tried for word in WORDS])))


def careful() -> NetworkPolicy:
    """Return the policy of the checkpoint in the environment variable `SPEEDRUN_CHECKPOINT`.

    For `agentgym-flow evaluate --policy baselines.sokoban_speedrun:careful`.
    """
    found = torch.load(os.environ["SPEEDRUN_CHECKPOINT"], weights_only=True, map_location="cpu")
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
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--levels", nargs="*", metavar="PATH", help="Boxoban files or folders; default: our generator")
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
    pool = ProcessPoolExecutor(asked.threads, initializer=leave_signals)
    try:
        with sigterm_raises():
            return train_and_evaluate(asked, pool)
    except KeyboardInterrupt as interrupt:
        show("stopped; --resume continues from the last checkpoint, if there is one")
        return exit_status(interrupt)
    except (AgentGymFlowError, OSError) as error:
        show(f"{type(error).__name__}: {error}")
        return 1
    finally:
        pool.shutdown(cancel_futures=True)


def train_and_evaluate(asked: argparse.Namespace, pool: ProcessPoolExecutor) -> int:
    """Train until the budget is spent, evaluate, and append the result to `results.jsonl` in the folder of the run."""
    if not 0 <= asked.clone <= 1:
        raise BadSetting(f"--clone is a share of the budget, from 0 to 1, got {asked.clone:g}")
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
    about |= {
        "date": f"{date.today()}",
        "spent": round(run.spent),
        "wall_minutes": round((time.time() - run.begun) / 60),
    }
    about["parameters"] = sum(parameter.numel() for parameter in run.net.parameters())
    with (run.out / "results.jsonl").open("a", encoding="ascii") as file:
        file.write(json.dumps({**about, **evaluate_held_back(run)}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

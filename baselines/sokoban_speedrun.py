"""Sokoban speedrun: from nothing to as many Boxoban levels as an hour on two cores buys. One file, top to bottom.

    python -m baselines.sokoban_speedrun --levels boxoban/unfiltered/train --clone 1 --out runs/cloned
    python -m baselines.sokoban_speedrun --levels boxoban/unfiltered/train --out runs/ppo
    python -m baselines.sokoban_speedrun --levels boxoban/unfiltered/train --dense --out runs/dense
    python -m baselines.sokoban_speedrun --levels boxoban/unfiltered/train --clone 1 --device cuda --minutes 9

The policy is a residual convolutional network over the inside of a 10x10 board. It chooses moves one at a time and
never searches. `--clone SHARE` says which share of the budget imitates the package's solver; PPO takes the rest:

    clone  The solver plans from the starts of levels, then from states in which the policy finds itself (DAgger: Ross,
           Gordon, Bagnell, 2011). Levels are those of the files, and new ones of our generator once all are known.
    PPO    A curriculum played backwards: boards one push from solved, then two, until they are the levels themselves.
           With `--dense`, rewards are shaped by the potentials of RewardFlow's state graphs, one graph per level.

The budget counts core-seconds, those of the worker processes included, so a busy machine gives the same result as an
idle one. `--minutes` counts wall time instead. Levels are held back for the evaluation, which is not counted: each is
played once, by the package's own `evaluate`, and the logs can be verified. No level that equals one of them after a
rotation or reflection is trained on.

Ctrl-C and SIGTERM write a checkpoint; `--resume` goes on from it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from gymnasium.vector import AutoresetMode
from torch import nn
from torch.nn import functional as F  # noqa: N812 (its usual name)

from agentgym_flow.envs.sokoban.bitboard import WORDS, cells_of, mask_of, nth_cell, search_by_pulls
from agentgym_flow.envs.sokoban.boxoban import read_levels, write_levels
from agentgym_flow.envs.sokoban.codes import CODE_OF_BITS, CODE_PLAYER, PLAYER_SHIFT, cell_codes
from agentgym_flow.envs.sokoban.generator import LevelSettings, generate
from agentgym_flow.envs.sokoban.level import BOX, LLM_SYMBOLS, PLAYER, TARGET, WALL, Level
from agentgym_flow.envs.sokoban.rules import Board
from agentgym_flow.envs.sokoban.solver import solve
from agentgym_flow.envs.sokoban.source import ENV_ID
from agentgym_flow.envs.sokoban.tasks import board_hash
from agentgym_flow.envs.sokoban.vector import SokobanVectorEnv
from agentgym_flow.errors import BadSetting, SearchLimit
from agentgym_flow.evaluation import evaluate
from agentgym_flow.files import whole
from agentgym_flow.policies import Move, View
from agentgym_flow.rewards import GraphStore, VectorRewardFlow
from agentgym_flow.seeding import Stream
from agentgym_flow.signals import signals_go_to
from agentgym_flow.training.optim import MuonAdamW

Codes = npt.NDArray[np.uint8]
"""The cells inside the border, `uint8[boards, 64]`, in the codes of `agentgym_flow/SokobanGrid-v0`."""
Actions = npt.NDArray[np.int64]

SIDE, INSIDE = 10, 8
HORIZON = 120
SETTINGS = LevelSettings((SIDE, SIDE), boxes=4, max_moves=HORIZON)
EXPANSIONS = 2000
"""States the solver may expand for one plan; hardly any level needs more, and lost ones are given up soon."""

_BITS_OF_CODE = {code: bits for bits, code in CODE_OF_BITS.items()}

# Cloning: what the solver is asked in a round, the seconds trained per second of the solver, and the updates.
LEVELS_A_ROUND, STATES_A_ROUND, TRAINED_PER_TAUGHT, BATCH = 500, 500, 3.0, 512
CLONE_STEP, PPO_STEP = (0.02, 2e-3), (0.004, 4e-4)  # of Muon, and of AdamW
# PPO.
BOARDS, STEPS, MINIBATCH = 512, 32, 1024
GAMMA, LAMBDA, CLIP, ENTROPY, VALUE, REWARD_SCALE, MAX_NORM = 0.98, 0.9, 0.2, 0.01, 0.5, 0.1, 1.0
MASTERED, DEPTHS = 0.6, (1, 2, 3, 4, 5, 6, 8, 10, 12)
DENSE_SCALE = 5.0
LAST = 99
"""In place of the pushes of a whole level, which comes last in the curriculum."""

SAVED_EVERY, SHOWN_EVERY = 300.0, 10.0
CHECKPOINT = "checkpoint.pt"
WAYS = ("sampled", "greedy", "careful")
CODE_OF_SYMBOL = {LLM_SYMBOLS[bits]: code for code, bits in _BITS_OF_CODE.items()}


# ---------------------------------------------------------------- the network
def _planes() -> torch.Tensor:
    """Return the planes of every cell code, [7, 4]: floor, target, box, player."""
    rows = [_BITS_OF_CODE[code] for code in range(len(_BITS_OF_CODE))]
    return torch.tensor(
        [[not bits & WALL, bits & TARGET > 0, bits & BOX > 0, bits & PLAYER > 0] for bits in rows]
    ).float()


class Conv(nn.Module):
    """A 3x3 convolution whose weights are one matrix, outputs x inputs, as Muon wants them."""

    def __init__(self, inputs: int, outputs: int, gain: float = 1.0) -> None:
        super().__init__()
        self.shape = (outputs, inputs, 3, 3)
        self.matrix = nn.Parameter(torch.randn(outputs, inputs * 9) * gain * (inputs * 9) ** -0.5)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the convolution of `x`, [boards, inputs, 8, 8]; beyond the edge all planes are zero, as in walls."""
        return F.conv2d(x, self.matrix.view(self.shape), self.bias, padding=1)


class Net(nn.Module):
    """Residual blocks over the board, read where the player stands: what to do depends on what is around it."""

    def __init__(self, channels: int, blocks: int) -> None:
        super().__init__()
        self.register_buffer("planes", _planes(), persistent=False)
        self.stem = Conv(4, channels)
        self.first = nn.ModuleList(Conv(channels, channels, 1.4) for _ in range(blocks))
        self.second = nn.ModuleList(Conv(channels, channels, 0.1) for _ in range(blocks))
        self.mix = nn.Linear(2 * channels, 2 * channels)
        self.head = nn.Linear(2 * channels, len(WORDS) + 1)
        nn.init.zeros_(self.head.weight)

    def forward(self, codes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the logits, [boards, 4], and values, [boards], of boards, uint8[boards, 64]."""
        board = self.planes[codes.long()].view(-1, INSIDE, INSIDE, 4).permute(0, 3, 1, 2)  # type: ignore[index]
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


def _symmetries() -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the cell that each cell of the 8 turned boards shows, [8, 64], and what each action becomes, [8, 4]."""
    grid = np.arange(INSIDE * INSIDE).reshape(INSIDE, INSIDE)
    turned = [np.rot90(flipped, turns) for flipped in (grid, grid[:, ::-1]) for turns in range(4)]
    steps = [(-1, 0), (1, 0), (0, -1), (0, 1)]

    def becomes(image: npt.NDArray[np.int64], step: tuple[int, int]) -> int:
        start, end = (np.argwhere(image == grid[3 + k * step[0], 3 + k * step[1]])[0] for k in (0, 1))
        return steps.index((int(end[0] - start[0]), int(end[1] - start[1])))

    return (
        np.array([image.ravel() for image in turned]),
        np.array([[becomes(image, step) for step in steps] for image in turned]),
    )


CELLS_OF, ACTIONS_OF = _symmetries()


def infer(net: Net, codes: Codes) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the log-probabilities of the actions and the values of boards, in bfloat16 inside."""
    device = net.head.weight.device
    with torch.autocast(device.type, torch.bfloat16):
        logits, values = net(torch.from_numpy(codes).to(device))
    return logits.log_softmax(-1), values


@torch.no_grad()
def act(net: Net, codes: Codes) -> tuple[Actions, npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return a sampled action for each board, its log-probability, and the value."""
    logprobs, values = infer(net, codes)
    actions = torch.multinomial(logprobs.exp(), 1)
    chosen = logprobs.gather(1, actions)[:, 0]
    return actions[:, 0].cpu().numpy(), chosen.cpu().numpy(), values.cpu().numpy()


def inside(grids: npt.NDArray[np.uint8]) -> Codes:
    """Return what lies inside the border of boards, `uint8[boards, 10, 10]`."""
    return np.ascontiguousarray(grids.reshape(-1, SIDE, SIDE)[:, 1:-1, 1:-1].reshape(-1, INSIDE * INSIDE))


# ---------------------------------------------------------------- levels, and the solver: work for other processes
def level_of(grid: npt.NDArray[np.uint8]) -> Level:
    """Return the state on a board as a level of its own."""
    codes = grid.ravel().tolist()
    player = next(cell for cell, code in enumerate(codes) if code >= CODE_PLAYER)
    codes[player] -= PLAYER_SHIFT
    return Level(SIDE, SIDE, bytes(_BITS_OF_CODE[code] for code in codes), player)


class Lesson(NamedTuple):
    """The states along a plan and the action in each; seconds of processor time it took."""

    codes: Codes
    actions: npt.NDArray[np.uint8]
    seconds: float


def teach(levels: Sequence[Level]) -> Lesson:
    """Return the solver's plans for some levels; those it cannot solve are passed over."""
    begun = time.process_time()
    states, actions = [np.zeros((0, SIDE * SIDE), np.uint8)], []
    for level in levels:
        try:
            plan = solve(level, max_expansions=EXPANSIONS) or []
        except SearchLimit:
            continue
        board = Board(level)
        for word in plan:
            actions.append(WORDS.index(word))
            states.append(cell_codes(board.cells, board.player)[None])
            board.move(actions[-1])
    return Lesson(inside(np.concatenate(states)), np.array(actions, np.uint8), time.process_time() - begun)


class Made(NamedTuple):
    """New levels, the number of pushes that each needs where it is known (else 0), and seconds of processor time."""

    levels: list[Level]
    pushes: list[int]
    seconds: float


def invent(first: int, number: int, held: frozenset[bytes]) -> Made:
    """Return so many levels of our generator, none of them held back in any rotation or reflection."""
    begun = time.process_time()
    levels = [
        generate(SETTINGS, Stream("sokoban speedrun", k), lambda cells: board_hash(SIDE, SIDE, cells) not in held)
        for k in range(first, first + number)
    ]
    return Made(levels, [0] * number, time.process_time() - begun)


def unplay(levels: Sequence[Level], seed: int) -> Made:
    """Return starts near the end of levels: for each of `DEPTHS` one that needs exactly so many pushes."""
    begun, stream = time.process_time(), Stream("sokoban speedrun", "unplay", seed)
    made, pushes = [], []
    for level in levels:
        floor = mask_of(cell for cell, bits in enumerate(level.cells) if not bits & WALL)
        layers, _ = search_by_pulls(floor, mask_of(level.targets), SIDE, 2000)
        for depth in DEPTHS:
            if depth >= len(layers):
                break
            boxes, region = stream.choice(layers[depth])
            cells = bytearray(bits & ~BOX for bits in level.cells)
            for cell in cells_of(boxes):
                cells[cell] |= BOX
            player = nth_cell(region, stream.below(region.bit_count())).bit_length() - 1
            made.append(Level(SIDE, SIDE, bytes(cells), player))
            pushes.append(depth)
    return Made(made, pushes, time.process_time() - begun)


def chunks(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    """Yield the items, so many at a time."""
    return (items[first : first + size] for first in range(0, len(items), size))


# ---------------------------------------------------------------- a run
class Stopped(Exception):
    """A signal asked the run to stop; the checkpoint is written."""


class Run:
    """What all parts of a run share: the budget, the levels, the worker processes, the network, the checkpoint."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.asked, self.out = asked, Path(asked.out)
        self.begun, self.of_workers, self.before, self.stopping = time.time(), 0.0, 0.0, False
        self.saved = self.shown = time.monotonic()
        self.pool = ProcessPoolExecutor(asked.threads)
        list(self.pool.map(abs, range(asked.threads)))  # workers start before PyTorch has threads
        torch.set_num_threads(asked.threads)
        torch.manual_seed(asked.seed)
        self.rng = np.random.default_rng(asked.seed)
        self.net = Net(asked.channels, asked.blocks).to(asked.device)
        self.optimizer = MuonAdamW(self.net, muon_lr=1.0, adamw_lr=1.0)
        self.part, self.state = "", dict[str, Any]()  # the part under way, and what it needs to go on
        self.train, self.held = self._levels()

    def _levels(self) -> tuple[list[Level], list[Level]]:
        """Return the levels to train on, and those held back: of the boards with the smallest hashes."""
        if self.asked.levels:
            levels = [level for path in self.asked.levels for level in read_levels(path)]
        else:
            parts = self.work(invent, [(first, 50, frozenset()) for first in range(0, 10 * self.asked.held_back, 50)])
            levels = [level for part in parts for level in part.levels]
        if any((level.height, level.width) != (SIDE, SIDE) for level in levels):
            raise BadSetting(f"--levels must hold levels of {SIDE}x{SIDE} only, as Boxoban's are")
        boards = [board_hash(SIDE, SIDE, level.cells) for level in levels]
        if not 0 < self.asked.held_back < len(set(boards)):
            raise BadSetting(f"--held_back must be from 1 to {len(set(boards)) - 1} with these levels")
        self.held_boards = frozenset(sorted(set(boards))[: self.asked.held_back])
        held = {board: level for board, level in zip(boards, levels, strict=True) if board in self.held_boards}
        train = [level for board, level in zip(boards, levels, strict=True) if board not in self.held_boards]
        random.Random(self.asked.seed).shuffle(train)
        return train, list(held.values())

    @property
    def spent(self) -> float:
        """Core-seconds, or with `--minutes` seconds of wall time, spent so far."""
        now = time.time() - self.begun if self.asked.minutes else time.process_time() + self.of_workers
        return self.before + now

    @property
    def share(self) -> float:
        """The share of the budget that is spent."""
        return self.spent / (60 * self.asked.minutes if self.asked.minutes else self.asked.core_seconds)

    def work(self, function: Callable[..., Any], jobs: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
        """Yield what the workers return for each job, in order, and count their seconds."""
        for result in self.pool.map(function, *zip(*jobs, strict=True)):
            self.of_workers += result.seconds
            yield result

    def step(self, loss: torch.Tensor, done: float, peak: tuple[float, float]) -> None:
        """Take a step of the optimizer after the share `done` of a part: sizes rise to `peak` and fall to nothing."""
        size = max(0.01, min(1.0, done / 0.02, (1 - done) / 0.9))
        for group, most in zip(self.optimizer.param_groups, peak, strict=True):
            group["lr"] = most * size
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.net.parameters(), MAX_NORM)
        self.optimizer.step()

    def tick(self, line: str) -> None:
        """Between two updates: show the line, write the checkpoint, when it is time. Raises `Stopped` after a signal."""
        now = time.monotonic()
        if now - self.shown > SHOWN_EVERY:
            self.shown, passed = now, time.time() - self.begun
            left = passed * (1 - self.share) / max(1e-9, self.share - self.before / self.spent * self.share)
            show(f"{self.share:4.0%} {line}; {self.spent:,.0f} s spent, {passed / 60:.1f} min, ETA {left / 60:.1f} min")
        if self.stopping or now - self.saved > SAVED_EVERY:
            self.save()
        if self.stopping:
            raise Stopped

    def save(self) -> None:
        """Write the checkpoint, whole or not at all."""
        self.saved = time.monotonic()
        parts = {"net": self.net.state_dict(), "optimizer": self.optimizer.state_dict()}
        about = {"channels": self.asked.channels, "blocks": self.asked.blocks, "spent": self.spent, "part": self.part}
        with whole(self.out / CHECKPOINT) as partial:
            torch.save({**parts, **about, "state": self.state}, partial)

    def load(self) -> None:
        """Go on from the checkpoint."""
        found = torch.load(self.out / CHECKPOINT, weights_only=True, map_location=self.asked.device)
        self.net.load_state_dict(found["net"])
        self.optimizer.load_state_dict(found["optimizer"])
        self.before, self.part, self.state = found["spent"], found["part"], found["state"]


# ---------------------------------------------------------------- cloning
def clone(run: Run, until: float) -> None:
    """Imitate the solver until a share of the budget is spent: rounds of asking it and of training on all it said."""
    if run.part != "clone":
        run.part, run.state = "clone", {"codes": [], "actions": [], "asked": 0}
    state, known, solved = run.state, list[Level](run.train[: run.state["asked"]]), 0.0
    losses = [0.0]
    while run.share < until:
        begun = run.spent
        new = run.train[state["asked"] : state["asked"] + LEVELS_A_ROUND]
        if not new:
            first = 10 * run.asked.held_back + state["asked"]
            made = run.work(invent, [(first + k, 10, run.held_boards) for k in range(0, LEVELS_A_ROUND, 10)])
            new = [level for part in made for level in part.levels]
        met = list[Level]()
        if known:
            solved, met = wander(run, known)
        known += new
        for lesson in run.work(teach, [(part,) for part in chunks(new + met, 20)]):
            state["codes"].append(torch.from_numpy(lesson.codes))
            state["actions"].append(torch.from_numpy(lesson.actions))
        state["asked"] += LEVELS_A_ROUND
        codes, actions = (torch.cat(state[name]).numpy() for name in ("codes", "actions"))
        end = run.spent + TRAINED_PER_TAUGHT * (run.spent - begun)
        while run.spent < end and run.share < until:
            rows = run.rng.integers(len(codes), size=BATCH)
            turns = run.rng.integers(8, size=BATCH)
            labels = ACTIONS_OF[turns, actions[rows]]
            logprobs, _ = infer(run.net, codes[rows[:, None], CELLS_OF[turns]])
            loss = F.nll_loss(logprobs, torch.from_numpy(labels).to(logprobs.device))
            run.step(loss, run.share / until, CLONE_STEP)
            losses = [*losses[-199:], float(loss.detach())]
            run.tick(f"clone: loss {np.mean(losses):.3f}, {len(codes):,} states, training levels solved {solved:.1%}")


def wander(run: Run, known: Sequence[Level]) -> tuple[float, list[Level]]:
    """Play some known levels; return the share solved, and states met at random times that are not obviously lost."""
    levels = [known[k] for k in run.rng.integers(len(known), size=STATES_A_ROUND)]
    envs = batch(run, levels, len(levels))
    grids, _ = envs.reset(options={"task": range(len(levels))})
    stops, alive = run.rng.integers(1, 80, size=len(levels)), np.ones(len(levels), np.bool_)
    solved, met = 0, list[Level]()
    for now in range(HORIZON):
        actions, _, _ = act(run.net, inside(grids))
        grids, _, terminations, truncations, infos = envs.step(actions)
        solved += int((alive & terminations).sum())
        alive &= ~(terminations | truncations)
        met += [level_of(grids[k]) for k in np.flatnonzero(alive & (stops == now) & ~infos["deadlock"])]
        if (terminations | truncations).any() and now < HORIZON - 1:
            envs.reset(options={"reset_mask": terminations | truncations, "task": range(len(levels))})
    return solved / len(levels), met


def batch(
    run: Run, levels: Sequence[Level], num_envs: int, info_keys: Sequence[str] = ("deadlock",)
) -> SokobanVectorEnv:
    """Return a batch of environments on some levels, which says at once what it sees to be lost."""
    file = run.out / "levels.txt"
    write_levels(file, levels)
    return SokobanVectorEnv(
        num_envs, data=file, split="test", max_steps=HORIZON, info_keys=info_keys, autoreset_mode=AutoresetMode.DISABLED
    )


# ---------------------------------------------------------------- PPO
class Curriculum:
    """Which level a board gets next: half of them the hardest that are open, half any open one.

    The next harder ones open once `MASTERED` of the last episodes on the hardest are solved.
    """

    def __init__(self, pushes: Sequence[int], rng: np.random.Generator, opened: int) -> None:
        numbers = np.array(pushes)
        self.of_stage = [np.flatnonzero(numbers == depth) for depth in sorted(set(pushes))]
        self.stage_of = np.searchsorted(np.array(sorted(set(pushes))), numbers)
        self.rng, self.opened = rng, min(opened, len(self.of_stage))
        self.solved = np.zeros(len(self.of_stage))

    def draw(self, number: int) -> npt.NDArray[np.int64]:
        """Return the levels of new episodes."""
        stages = self.rng.integers(self.opened, size=number)
        stages[self.rng.random(number) < 0.5] = self.opened - 1
        return np.array([self.rng.choice(self.of_stage[stage]) for stage in stages], np.int64)

    def note(self, tasks: npt.NDArray[np.int64], solved: npt.NDArray[np.bool_]) -> None:
        """Note how episodes ended."""
        for stage, success in zip(self.stage_of[tasks], solved, strict=True):
            self.solved[stage] += 0.005 * (success - self.solved[stage])
        if self.opened < len(self.of_stage) and self.solved[self.opened - 1] > MASTERED:
            self.opened += 1


def ppo(run: Run) -> None:
    """Learn by playing until the budget is spent."""
    cloned, start = run.part != "" and not run.state.get("opened"), run.share
    if run.part != "ppo":
        run.part, run.state = "ppo", {"opened": 1, "from": start}
        run.optimizer = MuonAdamW(run.net, muon_lr=1.0, adamw_lr=1.0)
    levels, pushes = list(run.train), [LAST] * len(run.train)
    if not cloned:
        for made in run.work(unplay, [(part, k) for k, part in enumerate(chunks(run.train, 50))]):
            levels += made.levels
            pushes += made.pushes
    curriculum = Curriculum(pushes, run.rng, run.state["opened"])
    player = Player(run, levels, curriculum)
    while run.share < 1:
        rollout = player.play()
        order = run.rng.permutation(len(rollout.codes))
        for rows in chunks(order, MINIBATCH):
            done = (run.share - run.state["from"]) / (1 - run.state["from"])
            run.step(ppo_loss(run.net, *(part[rows] for part in rollout)), done, PPO_STEP)
            run.state["opened"] = curriculum.opened
            hardest = curriculum.solved[curriculum.opened - 1]
            run.tick(
                f"ppo: stage {curriculum.opened} of {len(curriculum.of_stage)}, solved {hardest:.1%} of its levels, "
                f"{player.episodes:,} episodes, {player.steps:,} steps"
            )


class Rollout(NamedTuple):
    """What was played, one row a step: boards, actions, log-probabilities then, advantages, returns."""

    codes: Codes
    actions: Actions
    logprobs: npt.NDArray[np.float32]
    advantages: npt.NDArray[np.float32]
    returns: npt.NDArray[np.float32]


class Player:
    """Plays many boards, each always turned in one of the eight ways, and takes stock every `STEPS` steps."""

    def __init__(self, run: Run, levels: Sequence[Level], curriculum: Curriculum) -> None:
        self.net, self.curriculum = run.net, curriculum
        self.envs: Any = batch(run, levels, BOARDS)
        if run.asked.dense:
            keys = ("deadlock", "task_key", "state_key", "success", "action_valid")
            graphs = GraphStore(gamma=GAMMA, max_nodes=2000)
            self.envs = VectorRewardFlow(batch(run, levels, BOARDS, keys), DENSE_SCALE, gamma=GAMMA, graphs=graphs)
        self.turns = np.arange(BOARDS) % 8
        self.back = np.argsort(ACTIONS_OF, axis=1)
        self.tasks = curriculum.draw(BOARDS)
        self.grids, _ = self.envs.reset(options={"task": self.tasks})
        self.episodes = self.steps = 0

    def see(self, grids: npt.NDArray[np.uint8]) -> Codes:
        """Return the boards as the policy sees them."""
        return np.take_along_axis(inside(grids), CELLS_OF[self.turns], 1)

    def play(self) -> Rollout:
        """Play `STEPS` steps on every board; advantages are those of GAE."""
        shape = (STEPS, BOARDS)
        codes, actions = np.zeros((*shape, INSIDE * INSIDE), np.uint8), np.zeros(shape, np.int64)
        logprobs, rewards, values, ends = (np.zeros(shape, np.float32) for _ in range(4))
        for now in range(STEPS):
            codes[now] = self.see(self.grids)
            actions[now], logprobs[now], values[now] = act(self.net, codes[now])
            self.grids, given, solved, late, infos = self.envs.step(self.back[self.turns, actions[now]])
            lost = infos["deadlock"] & ~solved
            rewards[now] = given * REWARD_SCALE
            rewards[now][lost] -= GAMMA * 0.1 / (1 - GAMMA) * REWARD_SCALE  # of a lost board only steps are to come
            if (out := np.flatnonzero(late & ~lost)).size:  # the limit is no part of the state
                rewards[now][out] += GAMMA * act(self.net, self.see(self.grids)[out])[2]
            ends[now] = over = solved | late | lost
            if over.any():
                self.curriculum.note(self.tasks[over], solved[over])
                self.tasks[over] = self.curriculum.draw(int(over.sum()))
                self.grids, _ = self.envs.reset(options={"reset_mask": over, "task": self.tasks})
                self.episodes += int(over.sum())
        self.steps += STEPS * BOARDS
        following, advantage, advantages = act(self.net, self.see(self.grids))[2], 0.0, np.zeros_like(rewards)
        for now in reversed(range(STEPS)):
            goes_on = GAMMA * (1 - ends[now])
            advantage = rewards[now] + goes_on * following - values[now] + goes_on * LAMBDA * advantage
            advantages[now], following = advantage, values[now]
        returns = (advantages + values).ravel()
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-6)
        flat = codes.reshape(-1, INSIDE * INSIDE), actions.ravel(), logprobs.ravel(), advantages.ravel(), returns
        return Rollout(*flat)


def ppo_loss(net: Net, codes: Codes, actions: Actions, *numbers: npt.NDArray[np.float32]) -> torch.Tensor:
    """Return the clipped objective of PPO, the squared error of the value and the entropy bonus, as one loss."""
    logprobs, values = infer(net, codes)
    old, advantages, returns = (torch.from_numpy(part).to(values.device) for part in numbers)
    chosen = logprobs.gather(1, torch.from_numpy(actions).to(values.device)[:, None])[:, 0]
    ratio = (chosen - old).exp()
    objective = torch.minimum(ratio * advantages, ratio.clamp(1 - CLIP, 1 + CLIP) * advantages)
    entropy = -(logprobs.exp() * logprobs).sum(-1)
    return -(objective + ENTROPY * entropy).mean() + VALUE * F.mse_loss(values, returns)


# ---------------------------------------------------------------- evaluation
class Trained:
    """The trained network as a policy of the package: it reads the board out of the text and keeps nothing.

    Args:
        net: the network.
        way: `"sampled"`; `"greedy"`; or `"careful"`, which averages the eight turned boards, and in a state met before
            in the episode takes no action tried there while there is another.
    """

    def __init__(self, net: Net, way: str) -> None:
        self.name, self._net, self._way = f"speedrun-{way}", net, way

    @torch.no_grad()
    def act(self, views: Sequence[View]) -> list[Move]:
        """Return the moves."""
        grids = [[CODE_OF_SYMBOL[symbol] for symbol in view.observation if symbol in CODE_OF_SYMBOL] for view in views]
        codes = inside(np.array(grids, np.uint8))
        if self._way != "careful":
            odds = infer(self._net, codes)[0].exp().cpu().numpy()
        else:
            turned = [infer(self._net, codes[:, cells])[0].cpu().numpy() for cells in CELLS_OF]
            odds = np.exp(np.mean([each[:, to] for each, to in zip(turned, ACTIONS_OF, strict=True)], axis=0))
        return [Move(WORDS[self._choice(view, of_view)]) for view, of_view in zip(views, odds, strict=True)]

    def _choice(self, view: View, odds: npt.NDArray[np.float32]) -> int:
        if self._way == "sampled":
            return min(int((odds.cumsum() < view.rng.uniform()).sum()), len(WORDS) - 1)
        if self._way == "careful":
            here = view.info["state_key"]
            tried = {turn.action for turn in view.episode.turns if turn.state_key == here}
            odds = odds - np.array([word in tried for word in WORDS])
        return int(odds.argmax())


def player() -> Trained:
    """Return the policy of the checkpoint that the environment variable `SOKOBAN_SPEEDRUN` names.

    For `agentgym-flow evaluate --policy baselines.sokoban_speedrun:player`.
    """
    found = torch.load(os.environ["SOKOBAN_SPEEDRUN"], weights_only=True, map_location="cpu")
    net = Net(found["channels"], found["blocks"])
    net.load_state_dict(found["net"])
    return Trained(net, "careful")


def examine(run: Run) -> dict[str, str]:
    """Play the levels held back once in each way; return way -> success with its 95 % interval."""
    write_levels(run.out / "held_back.txt", run.held)
    kwargs = {"data": str(run.out / "held_back.txt"), "max_steps": HORIZON}
    found = {}
    for way in WAYS:
        log = run.out / f"{way}.jsonl.gz"
        result, _ = evaluate(Trained(run.net, way), ENV_ID, env_kwargs=kwargs, num_envs=512, log=log, replace=True)
        low, high = result.success_interval
        found[way] = f"{result.success:.1%} [{low:.1%}, {high:.1%}]"
        show(f"held back, {way}: {found[way]} of {result.episodes:,} levels")
    return found


# ---------------------------------------------------------------- the command
def show(line: str) -> None:
    """Write a line at once, also into a pipe."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def arguments() -> argparse.ArgumentParser:
    """Return what the command understands."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--levels", nargs="*", metavar="PATH", help="Boxoban files or folders; default: our generator")
    parser.add_argument("--held_back", type=int, default=1000, help="levels that are only evaluated on")
    parser.add_argument("--clone", type=float, default=0.0, help="share of the budget for imitating the solver")
    parser.add_argument("--dense", action="store_true", help="shape PPO's rewards by RewardFlow's potentials")
    parser.add_argument("--core_seconds", type=float, default=7200.0, help="the budget, workers included")
    parser.add_argument("--minutes", type=float, help="the budget in wall time instead")
    parser.add_argument("--threads", type=int, default=2, help="of PyTorch; and as many processes for the solver")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--channels", type=int, default=64)
    parser.add_argument("--blocks", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="speedrun", help="folder of the run")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint in the folder")
    return parser


def main(given: Sequence[str] | None = None) -> int:
    """Train until the budget is spent, evaluate, and append the result to `results.jsonl` in the folder of the run."""
    asked = arguments().parse_args(given)
    Path(asked.out).mkdir(parents=True, exist_ok=True)
    run = Run(asked)
    if asked.resume:
        run.load()
    show(f"{len(run.train):,} levels to train on, {len(run.held):,} held back, {run.spent:,.0f} s spent")

    def stop(*_: Any) -> None:
        run.stopping = True

    try:
        with signals_go_to(stop):
            if run.part != "ppo" and asked.clone:
                clone(run, min(1.0, asked.clone))
            if run.share < 1:
                ppo(run)
            run.save()
    except Stopped:
        show(f"stopped after {run.spent:,.0f} s of the budget; --resume goes on")
        return 143
    finally:
        run.pool.shutdown(cancel_futures=True)
    spent, minutes = run.spent, (time.time() - run.begun) / 60
    settings = {name: value for name, value in vars(asked).items() if name not in ("levels", "out", "resume")}
    line = {"date": f"{date.today()}", **settings, "spent": round(spent), "wall_minutes": round(minutes, 1)}
    line["parameters"] = sum(parameter.numel() for parameter in run.net.parameters())
    with (run.out / "results.jsonl").open("a", encoding="ascii") as file:
        file.write(json.dumps({**line, **examine(run)}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

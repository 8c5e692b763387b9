"""Levels and random draws in arrays, so that a batch can start thousands of episodes at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from gymnasium.utils import seeding

from agentgym_flow.envs.batching import Ints, Seeds
from agentgym_flow.envs.sokoban.codes import PLAYER_SHIFT, level_codes
from agentgym_flow.envs.sokoban.level import Level
from agentgym_flow.envs.sokoban.raw_bits import LARGEST_SEED, first_raw_bits
from agentgym_flow.envs.sokoban.source import LevelSource

_FIRST_CAPACITY = 256
_BITS_AHEAD = 64
"""The number of raw draws per call of a generator, because a call costs much more than a draw."""

_BITS_AT_FIRST = 16
"""The number of raw draws computed for all seeds at once, before any generator is created."""


class LevelPool:
    """The levels of a source as arrays: all levels at once if the package has them, others on first use.

    Attributes:
        codes: `uint8[capacity, cells]` cell codes of the starts, without the player.
        player: `int64[capacity]` flat index of the player.
        boxes_on_target: `int64[capacity]` number of boxes on targets at the start.
        targets: `int64[capacity]` number of targets.
    """

    def __init__(self, source: LevelSource) -> None:
        height, width = source.shape
        self._source = source
        self._task_keys: dict[int, str] = {}
        self._tasks: list[int] = []  # the task of each slot in use
        packed = source.packed
        if packed is not None:
            self.codes, self.player = packed.boards()
            self.boxes_on_target, self.targets = np.zeros_like(self.player), np.full_like(self.player, packed.boxes)
            self._slot_of_task = np.arange(source.num_tasks)
            self._tasks = list(range(source.num_tasks))
            return
        self.codes = np.zeros((_FIRST_CAPACITY, height * width), np.uint8)
        self.player, self.boxes_on_target, self.targets = np.zeros((3, _FIRST_CAPACITY), np.int64)
        self._slot_of_task = np.full(source.num_tasks, -1, np.int64)

    def slots(self, tasks: Ints) -> Ints:
        """Return the indices of the levels of `tasks` in the arrays, and add new levels."""
        slots = self._slot_of_task[tasks]
        missing = slots < 0
        if missing.any():
            for task in np.unique(tasks[missing]).tolist():
                self._add(task)
            slots = self._slot_of_task[tasks]
        return slots

    def level(self, slot: int) -> Level:
        """Return the level in a slot."""
        return self._source.level(self._tasks[slot])

    def task_key(self, slot: int) -> str:
        """Return the task key of the level in a slot, computed on first use."""
        key = self._task_keys.get(slot)
        if key is None:
            key = self._task_keys[slot] = self._source.task_key(self.level(slot))
        return key

    def _add(self, task: int) -> None:
        level = self._source.level(task)
        slot = len(self._tasks)
        if slot == len(self.codes):
            self.codes = np.concatenate([self.codes, np.zeros_like(self.codes)])
            for name in ("player", "boxes_on_target", "targets"):
                setattr(self, name, np.concatenate([getattr(self, name), np.zeros(slot, np.int64)]))
        self.codes[slot] = level_codes(level)
        self.codes[slot, level.player] -= PLAYER_SHIFT
        self.player[slot] = level.player
        self.boxes_on_target[slot] = len(set(level.boxes) & set(level.targets))
        self.targets[slot] = len(level.targets)
        self._tasks.append(task)
        self._slot_of_task[task] = slot


class VectorRandom:
    """One random generator per environment, with the same draws as in single environments."""

    def __init__(self, num_envs: int) -> None:
        self._generators: list[np.random.Generator | None] = [None] * num_envs
        self._seeds: dict[int, int] = {}  # env -> seed, as long as there is no generator
        self._ahead = np.zeros((num_envs, _BITS_AHEAD), np.uint64)
        self._used = np.full(num_envs, _BITS_AHEAD, np.int64)

    def seed(self, seeds: Seeds, envs: Ints) -> None:
        """Seed those of `envs` that have a seed; `seeds` has one entry for every environment."""
        given = {env: seed for env in envs.tolist() if (seed := seeds[env]) is not None}
        small = {env: seed for env, seed in given.items() if 0 <= seed <= LARGEST_SEED}
        self._seeds.update(small)
        for env in given.keys() - small.keys():
            self._seeds.pop(env, None)
            self._generators[env], _ = seeding.np_random(given[env])
            self._used[env] = _BITS_AHEAD
        if small:
            seeded = np.fromiter(small, np.int64, len(small))
            bits = first_raw_bits(np.fromiter(small.values(), np.uint64, len(small)), _BITS_AT_FIRST)
            self._ahead[seeded, -_BITS_AT_FIRST:] = bits
            self._used[seeded] = _BITS_AHEAD - _BITS_AT_FIRST

    def take(self, envs: Ints) -> npt.NDArray[np.uint64]:
        """Return the next 64 random bits of each of `envs`."""
        for env in envs[self._used[envs] == _BITS_AHEAD].tolist():
            generator = self._generators[env] = self._generator(env)
            self._ahead[env] = generator.bit_generator.random_raw(_BITS_AHEAD)
            self._used[env] = 0
        bits = self._ahead[envs, self._used[envs]]
        self._used[envs] += 1
        return bits

    def _generator(self, env: int) -> np.random.Generator:
        """Return the generator of an environment, advanced past the draws already used."""
        seed = self._seeds.pop(env, None)
        if seed is None:
            return self._generators[env] or seeding.np_random()[0]
        generator, _ = seeding.np_random(seed)
        generator.bit_generator.random_raw(_BITS_AT_FIRST, output=False)
        return generator


def draw_tasks(bits: npt.NDArray[np.uint64], num_tasks: int) -> Ints:
    """Return `seeding.draw_task` of arrays: `bits * num_tasks >> 64`, in two halves because it needs 96 bits."""
    high, low = bits >> np.uint64(32), bits & np.uint64(0xFFFFFFFF)
    count = np.uint64(num_tasks)
    return ((high * count + (low * count >> np.uint64(32))) >> np.uint64(32)).astype(np.int64)

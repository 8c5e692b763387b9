"""Thousands of Sokoban boards in one step: the environment of `gym.make_vec("agentgym_flow/SokobanGrid-v0", ...)`.

All boards are in one flat array of cell codes, so reading a neighbour is an addition and a `take`. The positions of the
players are separate and added to observations. Walls surround every player, so there are no checks for edges. The cell
behind a box is read only for the few boards whose player is next to a box.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode

from agentgym_flow.core import check_info_keys, check_task
from agentgym_flow.envs.batching import BatchEnv, Bools, Floats, Ints, Seeds, step_budget
from agentgym_flow.envs.sokoban.bitboard import mask_of
from agentgym_flow.envs.sokoban.game import (
    OFF_TARGET_REWARD,
    ON_TARGET_REWARD,
    SOLVED_REWARD,
    STEP_REWARD,
    boxes_key,
    state_key,
)
from agentgym_flow.envs.sokoban.grid import INFO_KEYS, RESET_OPTIONS, SokobanGridEnv, single_spaces, tasks_of_types
from agentgym_flow.envs.sokoban.level import (
    ACTIONS,
    BOX_SWAP,
    CODE_BOX,
    CODE_BOX_ON_TARGET,
    CODE_FLOOR,
    CODE_TARGET,
    CODE_WALL,
    PLAYER_SHIFT,
    Level,
    board_text,
    cell_codes,
    offsets,
    rgb_frame,
)
from agentgym_flow.envs.sokoban.solver import deadlocks
from agentgym_flow.envs.sokoban.tasks import DEFAULT_BOXES, DEFAULT_MIN_PUSHES, DEFAULT_SIZE, LevelSource
from agentgym_flow.errors import BadAction

Grids = npt.NDArray[np.uint8]

FAST_INFO_KEYS = ("task", "success", "score", "action_valid", "boxes_on_target", "action_mask")
"""The default keys of `info`: those that need no Python code per board."""

_REWARD_OF_GAIN = np.array([STEP_REWARD, ON_TARGET_REWARD, OFF_TARGET_REWARD])
"""Rewards by the change of the number of boxes on targets: 0, 1, or -1 (the last element)."""

_FIRST_CAPACITY = 256
_BITS_AHEAD = 64
"""The number of raw draws per call of a generator, because a call costs much more than a draw."""


class SokobanVectorEnv(BatchEnv[Grids, Ints]):
    """A vector environment of `agentgym_flow/SokobanGrid-v0`, much faster than `SyncVectorEnv`.

    ## Description
    With equal seeds, observations, rewards, flags and infos equal those of `SyncVectorEnv` in all three autoreset
    modes.

    ```python
    >>> import gymnasium as gym
    >>> import agentgym_flow
    >>> envs = gym.make_vec("agentgym_flow/SokobanGrid-v0", num_envs=3)
    >>> observations, infos = envs.reset(seed=0)
    >>> observations.shape, infos["action_mask"].shape
    ((3, 6, 6), (3, 4))
    >>> observations, rewards, terminations, truncations, infos = envs.step(envs.action_space.sample())

    ```

    ## Resets
    - `NEXT_STEP`: the step after an end ignores the action of that board and returns its new start.
    - `SAME_STEP`: the last step returns the new start; the end is in `infos["final_obs"]` and `infos["final_info"]`.
    - `DISABLED`: the caller resets boards with `reset(options={"reset_mask": mask})`, where `mask` is a boolean array
      with at least one True.

    `options={"task": k}` selects the level of all boards, and a sequence of `num_envs` numbers the level of each.

    ## Information
    The keys of the single environment, each with its `_key` mask. By default these are `FAST_INFO_KEYS`. `info_keys`
    can add `task_key`, `state_key` and `deadlock`, which need Python code per board.

    ## Arguments
    `num_envs`, `autoreset_mode` (an `AutoresetMode` or its value), and those of `agentgym_flow/SokobanGrid-v0` except
    `backend`. Each board is truncated by its own count of `max_steps`, or of Gymnasium's `max_episode_steps`.

    Raises:
        BadSetting, BadLevel, UnknownSplit, UnknownData, BadData, UnknownOption: as in the single environment.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 (as VectorEnv declares it)
        **SokobanGridEnv.metadata,
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }
    reset_options = RESET_OPTIONS

    def __init__(
        self,
        num_envs: int = 1,
        *,
        size: int | Sequence[int] = DEFAULT_SIZE,
        boxes: int = DEFAULT_BOXES,
        min_pushes: int = DEFAULT_MIN_PUSHES,
        level: str | None = None,
        data: str | os.PathLike[str] | None = None,
        skip_damaged: bool = False,
        split: str = "train",
        season: str = "",
        task_types: Sequence[str] | None = None,
        max_steps: int | None = None,
        max_episode_steps: int | None = None,
        info_keys: Sequence[str] | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
    ) -> None:
        levels: dict[str, Any] = {"size": size, "boxes": boxes, "min_pushes": min_pushes, "level": level}
        levels |= {"data": data, "skip_damaged": skip_damaged}
        self._source = LevelSource(**levels, split=split, season=season)
        self._among = tasks_of_types(task_types, **levels, split=split, season=season)
        self.max_steps = step_budget(
            self._source.default_max_steps if max_steps is None else max_steps, max_episode_steps
        )
        keys = check_info_keys(FAST_INFO_KEYS if info_keys is None else info_keys, INFO_KEYS)
        super().__init__(num_envs, *single_spaces(self._source), keys, autoreset_mode, render_mode)

        n = self.num_envs
        self._pool = LevelPool(self._source)
        self._draws = VectorRandom(n)
        height, width = self._source.shape
        self._cells = height * width
        self._offset = np.array(offsets(width))
        self._offset_by_action = self._offset.repeat(n)
        self._shape = (n, height, width)
        self._base = np.arange(n) * self._cells
        self._codes = np.zeros(n * self._cells, np.uint8)
        self._slot, self._player, self._steps, self._boxes_on_target, self._targets = np.zeros((5, n), np.int64)
        self._deadlock = np.zeros(n, np.bool_)
        self._task = np.full(n, -1, np.int64)

    def render(self) -> tuple[Any, ...] | None:
        """Return one picture (`"rgb_array"`) or text (`"ansi"`) per board, as in the single environment."""
        if self.render_mode == "rgb_array":
            return tuple(rgb_frame(self._observe()))
        if self.render_mode == "ansi":
            return tuple(board_text(grid.ravel().tolist(), grid.shape[1]) for grid in self._observe())
        return None

    # ---------------------------------------------------------------- the rules, on all boards at once
    def _play(self, actions: Ints, restart: Ints) -> tuple[Floats, Bools, Bools]:
        rewards, terminations = self._move(actions, restart)
        self._steps += 1
        truncations = (self._steps >= self.max_steps) & ~terminations
        if restart.size:
            rewards[restart] = 0.0
            truncations[restart] = False
        return rewards, terminations, truncations

    def _move(self, actions: Ints, restart: Ints) -> tuple[Floats, Bools]:
        """Apply `actions` to all boards except `restart`; return rewards and the mask of boards that are now solved."""
        rewards = np.full(self.num_envs, STEP_REWARD)
        solved = np.zeros(self.num_envs, np.bool_)
        codes, player, offset = self._codes, self._player, self._offset.take(actions)
        near = player + offset
        found = codes.take(near)
        found[restart] = CODE_WALL
        goes = _is_free(found)
        beside = np.flatnonzero(_is_box(found))
        far = near.take(beside) + offset.take(beside)
        there = codes.take(far)
        free = np.flatnonzero(_is_free(there))
        pushers, far, there = beside.take(free), far.take(free), there.take(free)
        goes[pushers] = True

        codes[near.take(pushers)] = BOX_SWAP - found.take(pushers)
        codes[far] = BOX_SWAP - there
        player += offset * goes  # faster than boolean indexing

        gained = (there == CODE_TARGET).astype(np.int64) - (found.take(pushers) == CODE_BOX_ON_TARGET)
        boxes_on_target = self._boxes_on_target.take(pushers) + gained
        self._boxes_on_target[pushers] = boxes_on_target
        done = boxes_on_target == self._targets.take(pushers)
        rewards[pushers] = np.where(done, SOLVED_REWARD, _REWARD_OF_GAIN.take(gained))
        solved[pushers] = done
        if "deadlock" in self._info_keys:
            self._update_deadlocks(pushers)
        return rewards, solved

    def _action_mask(self) -> npt.NDArray[np.int8]:
        """Return `int8[num_envs, 4]`: 1 for each action that would change the board."""
        # Actions are the first axis, because long rows add fastest.
        near = (self._player + self._offset[:, None]).ravel()
        found = self._codes.take(near)
        goes = _is_free(found)
        beside = np.flatnonzero(_is_box(found))
        goes[beside] = _is_free(self._codes.take(near.take(beside) + self._offset_by_action.take(beside)))
        return goes.reshape(len(ACTIONS), self.num_envs).T.astype(np.int8)

    def _begin(self, envs: Ints, seeds: Seeds | None, options: Mapping[str, Any]) -> None:
        tasks = self._fixed_tasks(options.get("task"))
        if seeds is not None:
            self._draws.seed(seeds, envs)
        if tasks is None:
            bits, among = self._draws.take(envs), self._among
            if among is None:
                self._lay(envs, draw_tasks(bits, self._source.num_tasks))
            else:
                self._lay(envs, among[draw_tasks(bits, len(among))])
            return
        if seeds is not None:  # a seeded start takes a draw even if the task is fixed
            self._draws.take(envs[[seeds[env] is not None for env in envs.tolist()]])
        self._lay(envs, tasks[envs])

    def _lay(self, boards: Ints, tasks: Ints) -> None:
        """Copy the levels of `tasks` to `boards`."""
        pool, slots = self._pool, self._pool.slots(tasks)
        self._codes.reshape(self.num_envs, self._cells)[boards] = pool.codes[slots]
        self._player[boards] = self._base[boards] + pool.player[slots]
        self._boxes_on_target[boards] = pool.boxes_on_target[slots]
        self._targets[boards] = pool.targets[slots]
        self._steps[boards] = 0
        self._slot[boards] = slots
        self._task[boards] = tasks
        if "deadlock" in self._info_keys:
            self._update_deadlocks(boards)

    # ---------------------------------------------------------------- observations and infos
    def _observe(self) -> Grids:
        codes = self._codes.copy()
        codes[self._player] += PLAYER_SHIFT
        return codes.reshape(self._shape)

    def _column(self, key: str, among: Bools) -> npt.NDArray[Any]:
        return _INFO[key](self)

    def _state_keys(self) -> npt.NDArray[np.object_]:
        boards = self._codes.reshape(self.num_envs, self._cells)
        solved = self._boxes_on_target == self._targets
        keys = np.full(self.num_envs, None, dtype=object)
        for board, player in enumerate((self._player - self._base).tolist()):
            keys[board] = state_key(boxes_key(_boxes(boards[board]), self._cells), player, bool(solved[board]))
        return keys

    def _task_keys(self) -> npt.NDArray[np.object_]:
        return np.array([self._pool.task_key(slot) for slot in self._slot.tolist()], dtype=object)

    def _update_deadlocks(self, boards: Ints) -> None:
        for board in boards.tolist():
            start = board * self._cells
            boxes = mask_of(_boxes(self._codes[start : start + self._cells]))
            self._deadlock[board] = deadlocks(self._pool.level(self._slot[board])).is_dead(boxes)

    # ---------------------------------------------------------------- arguments
    def _check_actions(self, actions: Any) -> Ints:
        actions = np.asarray(actions)
        if actions.shape != (self.num_envs,) or actions.dtype.kind not in "iu":
            raise BadAction(f"expected {self.num_envs} integer actions, got {actions.dtype}{list(actions.shape)}")
        if (actions >> 2).any():  # also true of negative numbers
            raise BadAction(f"an action is outside 0 to {len(ACTIONS) - 1}, which are: {', '.join(ACTIONS)}")
        return np.asarray(actions, np.int64)

    def _fixed_tasks(self, tasks: Any) -> Ints | None:
        if tasks is None:
            return None
        each = self._one_each("task", tasks)
        return np.array([check_task(task, self._source.num_tasks, self._source.split) for task in each], np.int64)


_INFO: dict[str, Callable[[SokobanVectorEnv], npt.NDArray[Any]]] = {
    "task": lambda envs: envs._task.copy(),
    "task_key": SokobanVectorEnv._task_keys,
    "state_key": SokobanVectorEnv._state_keys,
    "success": lambda envs: envs._boxes_on_target == envs._targets,
    "score": lambda envs: (envs._boxes_on_target == envs._targets).astype(np.float64),
    "action_valid": lambda envs: np.ones(envs.num_envs, np.bool_),
    "deadlock": lambda envs: envs._deadlock.copy(),
    "boxes_on_target": lambda envs: envs._boxes_on_target.copy(),
    "action_mask": SokobanVectorEnv._action_mask,
}


def _is_free(codes: Grids) -> Bools:
    """Return the mask of floor and targets. A single comparison is enough, because 0 - 1 is 255 in a byte."""
    return codes - np.uint8(CODE_FLOOR) <= CODE_TARGET - CODE_FLOOR


def _is_box(codes: Grids) -> Bools:
    return codes - np.uint8(CODE_BOX_ON_TARGET) <= CODE_BOX - CODE_BOX_ON_TARGET


def _boxes(codes: Grids) -> list[int]:
    """Return the indices of the boxes on one board."""
    return [int(cell) for cell in np.flatnonzero(_is_box(codes))]


# ---------------------------------------------------------------- levels and draws in arrays
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
        self.codes[slot] = cell_codes(level.cells, level.player)
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
        self._ahead = np.zeros((num_envs, _BITS_AHEAD), np.uint64)
        self._used = np.full(num_envs, _BITS_AHEAD, np.int64)

    def seed(self, seeds: Seeds, envs: Ints) -> None:
        """Seed those of `envs` that have a seed; `seeds` has one entry for every environment."""
        for env in envs.tolist():
            if (seed := seeds[env]) is not None:
                self._generators[env], _ = seeding.np_random(seed)
                self._used[env] = _BITS_AHEAD

    def take(self, envs: Ints) -> npt.NDArray[np.uint64]:
        """Return the next 64 random bits of each of `envs`."""
        for env in envs[self._used[envs] == _BITS_AHEAD].tolist():
            generator = self._generators[env] = self._generators[env] or seeding.np_random()[0]
            self._ahead[env] = generator.bit_generator.random_raw(_BITS_AHEAD)
            self._used[env] = 0
        bits = self._ahead[envs, self._used[envs]]
        self._used[envs] += 1
        return bits


def draw_tasks(bits: npt.NDArray[np.uint64], num_tasks: int) -> Ints:
    """Return `draw_task` of arrays: `bits * num_tasks >> 64`, in two halves because it needs 96 bits."""
    high, low = bits >> np.uint64(32), bits & np.uint64(0xFFFFFFFF)
    count = np.uint64(num_tasks)
    return ((high * count + (low * count >> np.uint64(32))) >> np.uint64(32)).astype(np.int64)

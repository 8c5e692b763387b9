"""The rules and the state of one episode, under our rules or those of the installed gym-sokoban package.

Dynamics and rewards are those of gym-sokoban's four push actions (Schrader, "gym-sokoban", 2018): every action uses up
a step, even if it changes nothing; one box moves at a time; boxes cannot be pulled. The vector environment is tested
against them.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np

from agentgym_flow.core import OneOf
from agentgym_flow.envs.sokoban.bitboard import mask_of
from agentgym_flow.envs.sokoban.level import (
    BOX,
    CODE_BOX,
    CODE_BOX_ON_TARGET,
    CODE_FLOOR,
    CODE_PLAYER,
    CODE_TARGET,
    CODE_WALL,
    TARGET,
    WALL,
    Level,
    offsets,
)
from agentgym_flow.envs.sokoban.solver import deadlocks
from agentgym_flow.errors import MissingExtra

BACKENDS = ("native", "gym-sokoban")
"""The available rules: our own, or those of the installed gym-sokoban package."""

SOLVED_KEY = "end:success:solved"
"""The state key of all solved boards. They are one state because nothing follows them."""

_PLAYER_AT = tuple(f"@{cell:02x}" for cell in range(256))

_SPELLED_OUT = 60
"""The maximum number of hexadecimal digits for the boxes; beyond it, a digest is used."""

STEP_REWARD = -0.1
"""The reward of every step."""
# Summed in the same order as in gym-sokoban, so that rewards are equal with `==`.
ON_TARGET_REWARD = STEP_REWARD + 1.0
"""A push onto a target. Pushing a box from one target to an adjacent target is a plain step."""
OFF_TARGET_REWARD = STEP_REWARD - 1.0
"""A push off a target."""
SOLVED_REWARD = ON_TARGET_REWARD + 10.0
"""The push of the last box onto a target."""


class SokobanGame:
    """A level in play under the rules of `backend`.

    Attributes:
        level: the level at its start.
        board: the present board.
        boxes: the flat indices of the boxes on it, ascending.
        deadlock: whether the position is certainly lost.
        state_key: the identity of the position within its level; all solved boards have one key.

    Raises:
        UnknownOption: the backend is unknown.
        MissingExtra: the backend is gym-sokoban, which is not installed.
    """

    __slots__ = ("_box_mask", "_boxes_key", "_deadlocks", "board", "boxes", "deadlock", "level", "state_key")

    def __init__(self, level: Level, backend: str = "native") -> None:
        self.level = level
        check_backend(backend)
        self.board = Board(level) if backend == "native" else GymSokobanBoard(level)
        self.boxes = level.boxes
        self._boxes_key = boxes_key(self.boxes, len(self.level.cells))
        self._deadlocks = deadlocks(level)
        self._box_mask = mask_of(self.boxes)
        self.deadlock = self._deadlocks.is_dead(self._box_mask)
        self.state_key = state_key(self._boxes_key, level.player, self.board.solved)

    def move(self, action: int) -> tuple[float, bool, bool]:
        """Play one action index; return the reward, whether the board changed, and whether it is solved."""
        board = self.board
        outcome = _, changed, solved = board.move(action)
        pushed_to = board.pushed_to
        if pushed_to >= 0:  # a walk does not change the boxes
            pushed_from = board.player
            self.boxes = tuple(sorted([pushed_to if box == pushed_from else box for box in self.boxes]))
            self._boxes_key = boxes_key(self.boxes, len(self.level.cells))
            self._box_mask ^= 1 << pushed_from | 1 << pushed_to
            self.deadlock = self._deadlocks.is_dead(self._box_mask)
        if changed:
            player = board.player
            small = player < len(_PLAYER_AT) and not solved  # nearly always; the rest is slower
            key = self._boxes_key
            self.state_key = key + _PLAYER_AT[player] if small else state_key(key, player, solved)
        return outcome


def boxes_key(boxes: Sequence[int], cells: int) -> str:
    """Return the identity of a set of boxes, given in ascending order, on a board of `cells` cells.

    Each box has two hexadecimal digits, or four on a board of more than 256 cells. Many boxes are a digest.
    """
    if cells <= 256:
        places = bytes(boxes)
        return places.hex() if 2 * len(places) <= _SPELLED_OUT else hashlib.sha256(places).hexdigest()[:_SPELLED_OUT]
    places = b"".join(box.to_bytes(2, "big") for box in boxes)
    most = _SPELLED_OUT - 4  # the player's cell has four digits as well
    return places.hex() if 2 * len(places) <= most else hashlib.sha256(places).hexdigest()[:most]


def state_key(boxes: str, player: int, solved: bool) -> str:
    """Return the identity of a position within its level: the `boxes_key`, `@`, and the player."""
    if solved:
        return SOLVED_KEY
    return boxes + _PLAYER_AT[player] if player < len(_PLAYER_AT) else f"{boxes}@{player:x}"


# ---------------------------------------------------------------- the rules
class Board:
    """A level in play under our rules.

    The player cannot reach the edge of a level (`Level.parse` checks this), so indices never leave the board.

    Attributes:
        cells: `height * width` bit codes, row-major.
        player: flat index of the player.
        boxes_on_target: the number of boxes on targets.
        solved: whether all boxes are on targets.
        pushed_to: flat index of the cell to which the last move pushed a box, or -1.
    """

    __slots__ = ("_offsets", "_targets", "boxes_on_target", "cells", "player", "pushed_to", "solved")

    def __init__(self, level: Level) -> None:
        self.cells = bytearray(level.cells)
        self.player = level.player
        self.boxes_on_target = level.cells.count(TARGET | BOX)
        self.pushed_to = -1
        self._targets = self.boxes_on_target + level.cells.count(TARGET)
        self._offsets = offsets(level.width)
        self.solved = self.boxes_on_target == self._targets

    def move(self, action: int) -> tuple[float, bool, bool]:
        """Play one action index; return the reward, whether the board changed, and whether it is solved."""
        cells = self.cells
        offset = self._offsets[action]
        near = self.player + offset
        self.pushed_to = -1
        if not cells[near] & (WALL | BOX):
            self.player = near
            return STEP_REWARD, True, False
        if cells[near] & WALL:
            return STEP_REWARD, False, False
        far = near + offset
        if cells[far] & (WALL | BOX):
            return STEP_REWARD, False, False
        cells[near] ^= BOX
        cells[far] ^= BOX
        self.player = near
        self.pushed_to = far
        gained = (cells[far] & TARGET) - (cells[near] & TARGET)
        if not gained:
            return STEP_REWARD, True, False
        if gained < 0:
            self.boxes_on_target -= 1
            return OFF_TARGET_REWARD, True, False
        self.boxes_on_target += 1
        self.solved = self.boxes_on_target == self._targets
        return (SOLVED_REWARD if self.solved else ON_TARGET_REWARD), True, self.solved


def effective_actions(cells: bytes | bytearray, player: int, width: int) -> list[int]:
    """Return 1 or 0 for each action index: whether the action would change the board."""
    mask = []
    for offset in offsets(width):
        near = cells[player + offset]
        blocked = near & WALL or (near & BOX and cells[player + 2 * offset] & (WALL | BOX))
        mask.append(0 if blocked else 1)
    return mask


# ---------------------------------------------------------------- the rules of gym-sokoban
def check_backend(backend: str) -> None:
    """Raise `UnknownOption` for an unknown backend, and `MissingExtra` if it cannot be imported."""
    OneOf(*BACKENDS).check("backend", backend)
    if backend == "gym-sokoban":
        room_class()


_FIRST_PUSH = 1
"""gym-sokoban's actions 1 to 4 push up, down, left, right; 0 is a no-op."""
_NO_LIMIT = -1
"""A step limit that its counter never reaches, because the environment has its own limit."""

_WALLS_AND_TARGETS = np.zeros(8, np.uint8)
_WALLS_AND_TARGETS[[CODE_WALL, CODE_TARGET]] = WALL, TARGET
_BOXES = np.zeros(8, np.uint8)
_BOXES[[CODE_BOX, CODE_BOX_ON_TARGET]] = BOX


@lru_cache(maxsize=1)
def room_class() -> Any:
    """Import and return gym-sokoban's `SokobanEnv` without its known notices.

    These are gym's maintenance notice and the deprecation warning of `pkg_resources`. Raises `MissingExtra` if the
    package or `pkg_resources` is not installed.
    """
    try:
        gym_notices: Any = import_module("gym_notices.notices")
        notices, gym_notices.notices = gym_notices.notices, {}
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=r"(?s).*pkg_resources")
                sokoban_env = import_module("gym_sokoban.envs.sokoban_env")
        finally:
            gym_notices.notices = notices
    except ModuleNotFoundError as error:
        # All other modules are dependencies of gym-sokoban, so the message names that package.
        missing = "pkg_resources" if error.name == "pkg_resources" else "gym-sokoban"
        raise MissingExtra.of(missing, "sokoban") from error
    return sokoban_env.SokobanEnv


class GymSokobanBoard(Board):
    """A level in play under gym-sokoban's `step`.

    Attributes:
        room: gym-sokoban's environment, from which every move reads the attributes of `Board`.

    Raises `MissingExtra` if the package is not installed.
    """

    def __init__(self, level: Level) -> None:
        super().__init__(level)
        bits = np.frombuffer(level.cells, np.uint8).reshape(level.height, level.width)
        self._width = level.width
        self.room = room = room_class()(
            (level.height, level.width), max_steps=_NO_LIMIT, num_boxes=len(level.boxes), reset=False
        )
        room.room_fixed = np.select([bits & WALL > 0, bits & TARGET > 0], [CODE_WALL, CODE_TARGET], CODE_FLOOR)
        room.room_state = np.select(
            [bits == BOX, bits == TARGET | BOX], [CODE_BOX, CODE_BOX_ON_TARGET], room.room_fixed
        )
        room.player_position = np.array(divmod(level.player, level.width))
        room.room_state[tuple(room.player_position)] = CODE_PLAYER
        room.num_env_steps = 0
        room.reward_last = 0
        # Its own reset writes 0 here and would reward boxes that start on a target.
        room.boxes_on_target = self.boxes_on_target

    def move(self, action: int) -> tuple[float, bool, bool]:
        """Play one action index; return the reward, whether the board changed, and whether it is solved."""
        # The observation is not used; the tiny picture is the cheapest.
        _, reward, self.solved, info = self.room.step(_FIRST_PUSH + action, observation_mode="tiny_rgb_array")
        room = self.room
        self.cells = bytearray((_WALLS_AND_TARGETS[room.room_fixed] | _BOXES[room.room_state]).tobytes())
        self.player = self._flat(room.player_position)
        self.boxes_on_target = int(room.boxes_on_target)
        pushed_to = getattr(room, "new_box_position", None)
        self.pushed_to = -1 if pushed_to is None else self._flat(pushed_to)
        return reward, info["action.moved_player"], self.solved

    def _flat(self, position: Any) -> int:
        return int(position[0]) * self._width + int(position[1])

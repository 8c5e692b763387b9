"""The backend `"gym-sokoban"`: the installed gym-sokoban package computes the steps.

A level is copied into its room, its `step` applies an action, and the result is read from the room. The package's level
generation is not used, so global random state does not change.

The package is from 2019. Importing it needs `pkg_resources` (removed in setuptools 81) and the unmaintained `gym`,
which prints a notice.
"""

from __future__ import annotations

import warnings
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np

from agentgym_flow.envs.sokoban import codes
from agentgym_flow.envs.sokoban.level import BOX, TARGET, WALL, Level
from agentgym_flow.errors import MissingExtra

_FIRST_PUSH = 1
"""gym-sokoban's actions 1 to 4 push up, down, left, right; 0 is a no-op."""
_NO_LIMIT = -1
"""A step limit that its counter never reaches, because the environment has its own limit."""

_WALLS_AND_TARGETS = np.zeros(8, np.uint8)
_WALLS_AND_TARGETS[[codes.CODE_WALL, codes.CODE_TARGET]] = WALL, TARGET
_BOXES = np.zeros(8, np.uint8)
_BOXES[[codes.CODE_BOX, codes.CODE_BOX_ON_TARGET]] = BOX


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


class GymSokobanBoard:
    """A level in play under gym-sokoban's `step`; the attributes are those of `SokobanBackend`.

    Attributes:
        room: gym-sokoban's environment.

    Raises `MissingExtra` if the package is not installed.
    """

    def __init__(self, level: Level) -> None:
        bits = np.frombuffer(level.cells, np.uint8).reshape(level.height, level.width)
        boxes = len(level.boxes)
        self._width = level.width
        self.room = room = room_class()((level.height, level.width), max_steps=_NO_LIMIT, num_boxes=boxes, reset=False)
        room.room_fixed = np.select(
            [bits & WALL > 0, bits & TARGET > 0], [codes.CODE_WALL, codes.CODE_TARGET], codes.CODE_FLOOR
        )
        room.room_state = np.select(
            [bits == BOX, bits == TARGET | BOX], [codes.CODE_BOX, codes.CODE_BOX_ON_TARGET], room.room_fixed
        )
        room.player_position = np.array(divmod(level.player, level.width))
        room.room_state[tuple(room.player_position)] = codes.CODE_PLAYER
        room.num_env_steps = 0
        room.reward_last = 0
        # Its own reset writes 0 here and would reward boxes that start on a target.
        room.boxes_on_target = int((room.room_state == codes.CODE_BOX_ON_TARGET).sum())
        self.solved = room.boxes_on_target == boxes
        self._read_back()

    def move(self, action: int) -> tuple[float, bool, bool]:
        """Play one action index; return the reward, whether the board changed, and whether it is solved."""
        # The observation is not used; the tiny picture is the cheapest.
        _, reward, self.solved, info = self.room.step(_FIRST_PUSH + action, observation_mode="tiny_rgb_array")
        self._read_back()
        return reward, info["action.moved_player"], self.solved

    def _read_back(self) -> None:
        room = self.room
        self.cells = bytearray((_WALLS_AND_TARGETS[room.room_fixed] | _BOXES[room.room_state]).tobytes())
        self.player = self._flat(room.player_position)
        self.boxes_on_target = int(room.boxes_on_target)
        pushed_to = getattr(room, "new_box_position", None)
        self.pushed_to = -1 if pushed_to is None else self._flat(pushed_to)

    def _flat(self, position: Any) -> int:
        return int(position[0]) * self._width + int(position[1])

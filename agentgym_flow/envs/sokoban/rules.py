"""The rules of Sokoban on one board. The vector environment is tested against them.

Dynamics and rewards are those of gym-sokoban's four push actions (Schrader, "gym-sokoban", 2018): every action uses up
a step, even if it changes nothing; one box moves at a time; boxes cannot be pulled.
"""

from __future__ import annotations

from typing import Protocol

from agentgym_flow.envs.sokoban.level import BOX, TARGET, WALL, Level

ACTIONS = ("up", "down", "left", "right")
"""The action words; an action index is a position in this tuple."""

STEP_REWARD = -0.1
"""The reward of every step."""
# Summed in the same order as in gym-sokoban, so that rewards are equal with `==`.
ON_TARGET_REWARD = STEP_REWARD + 1.0
"""A push onto a target. Pushing a box from one target to an adjacent target is a plain step."""
OFF_TARGET_REWARD = STEP_REWARD - 1.0
"""A push off a target."""
SOLVED_REWARD = ON_TARGET_REWARD + 10.0
"""The push of the last box onto a target."""


class SokobanBackend(Protocol):
    """A board in play, under our rules or gym-sokoban's.

    Attributes:
        cells: `height * width` bit codes, row-major.
        player: flat index of the player.
        boxes_on_target: the number of boxes on targets.
        solved: whether all boxes are on targets.
        pushed_to: flat index of the cell to which the last move pushed a box, or -1.
    """

    cells: bytearray
    player: int
    boxes_on_target: int
    solved: bool
    pushed_to: int

    def move(self, action: int) -> tuple[float, bool, bool]:
        """Play one action index; return the reward, whether the board changed, and whether it is solved."""


class Board:
    """A level in play; the attributes are those of `SokobanBackend`.

    The player cannot reach the edge of a level (`Level.parse` checks this), so indices never leave the board.
    """

    __slots__ = ("_offsets", "_targets", "boxes_on_target", "cells", "player", "pushed_to", "solved")

    def __init__(self, level: Level) -> None:
        self.cells = bytearray(level.cells)
        self.player = level.player
        self.boxes_on_target = level.cells.count(TARGET | BOX)
        self.pushed_to = -1
        self._targets = self.boxes_on_target + level.cells.count(TARGET)
        self._offsets = (-level.width, level.width, -1, 1)
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
    for offset in (-width, width, -1, 1):
        near = cells[player + offset]
        blocked = near & WALL or (near & BOX and cells[player + 2 * offset] & (WALL | BOX))
        mask.append(0 if blocked else 1)
    return mask

"""The rules and state of one episode: the board, the boxes, the state key and the deadlock flag."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from agentgym_flow.core import OneOf
from agentgym_flow.envs.sokoban.bitboard import mask_of
from agentgym_flow.envs.sokoban.level import Level
from agentgym_flow.envs.sokoban.rules import Board, SokobanBackend
from agentgym_flow.envs.sokoban.solver import deadlocks

BACKENDS = ("native", "gym-sokoban")
"""The available rules: our own, or those of the installed gym-sokoban package."""

SOLVED_KEY = "end:success:solved"
"""The state key of all solved boards. They are one state because nothing follows them."""

_PLAYER_AT = tuple(f"@{cell:02x}" for cell in range(256))

_SPELLED_OUT = 60
"""The maximum number of hexadecimal digits for the boxes; beyond it, a digest is used."""


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


class SokobanGame:
    """A level in play under the rules of `backend`.

    Attributes:
        level: the level at its start.
        board: the present board.
        boxes: the flat indices of the boxes on it, ascending.
        deadlock: whether the position is certainly lost.

    Raises:
        UnknownOption: the backend is unknown.
        MissingExtra: the backend is gym-sokoban, which is not installed.
    """

    __slots__ = ("_box_mask", "_boxes_key", "_deadlocks", "board", "boxes", "deadlock", "level")

    def __init__(self, level: Level, backend: str = "native") -> None:
        self.level = level
        self.board = _engine(level, backend)
        self.boxes = level.boxes
        self._boxes_key = boxes_key(self.boxes, len(self.level.cells))
        self._deadlocks = deadlocks(level)
        self._box_mask = mask_of(self.boxes)
        self.deadlock = self._deadlocks.is_dead_mask(self._box_mask)

    def move(self, action: int) -> tuple[float, bool, bool]:
        """Play one action index; return the reward, whether the board changed, and whether it is solved."""
        board = self.board
        outcome = board.move(action)
        pushed_to = board.pushed_to
        if pushed_to >= 0:  # a walk does not change the boxes
            pushed_from = board.player
            self.boxes = tuple(sorted([pushed_to if box == pushed_from else box for box in self.boxes]))
            self._boxes_key = boxes_key(self.boxes, len(self.level.cells))
            self._box_mask ^= 1 << pushed_from | 1 << pushed_to
            self.deadlock = self._deadlocks.is_dead_mask(self._box_mask)
        return outcome

    def state_key(self) -> str:
        """Return the identity of the position within its level; all solved boards have one key."""
        board = self.board
        if board.solved or board.player >= len(_PLAYER_AT):
            return state_key(self._boxes_key, board.player, board.solved)
        return self._boxes_key + _PLAYER_AT[board.player]


def check_backend(backend: str) -> None:
    """Raise `UnknownOption` for an unknown backend, and `MissingExtra` if it cannot be imported."""
    OneOf(*BACKENDS).check("backend", backend)
    if backend == "gym-sokoban":
        from agentgym_flow.envs.sokoban.gym_sokoban import room_class

        room_class()


def _engine(level: Level, backend: str) -> SokobanBackend:
    if backend == "native":
        return Board(level)
    check_backend(backend)
    from agentgym_flow.envs.sokoban.gym_sokoban import GymSokobanBoard

    return GymSokobanBoard(level)

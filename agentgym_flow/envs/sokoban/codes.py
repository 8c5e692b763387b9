"""The cell codes of numeric boards, which are gym-sokoban's codes 0 to 6, and their translation from bit codes.

The codes have a useful symmetry. Placing or removing a box is `code -> 5 - code` (floor 1 and box 4, target 2 and box
on target 3). Placing or removing the player is `+ 4` or `- 4` (floor 1 and player 5, target 2 and player on target 6).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from agentgym_flow.envs.sokoban.level import BOX, LLM_SYMBOLS, PLAYER, TARGET, WALL, Level

CODE_WALL, CODE_FLOOR, CODE_TARGET, CODE_BOX_ON_TARGET, CODE_BOX, CODE_PLAYER, CODE_PLAYER_ON_TARGET = range(7)
"""The codes of gym-sokoban's `room_state`, and its code 6 for a player on a target, which it uses for rendering."""

NUM_CODES = 7
PLAYER_SHIFT = CODE_PLAYER - CODE_FLOOR
BOX_SWAP = CODE_FLOOR + CODE_BOX

CODE_OF_BITS = {
    WALL: CODE_WALL,
    0: CODE_FLOOR,
    TARGET: CODE_TARGET,
    TARGET | BOX: CODE_BOX_ON_TARGET,
    BOX: CODE_BOX,
    PLAYER: CODE_PLAYER,
    TARGET | PLAYER: CODE_PLAYER_ON_TARGET,
}
"""Bit code (with `PLAYER`) -> cell code."""

_TRANSLATION = bytes(CODE_OF_BITS.get(bits, CODE_WALL) for bits in range(256))
_SYMBOLS = {code: LLM_SYMBOLS[bits] for bits, code in CODE_OF_BITS.items()}


def cell_codes(cells: bytes | bytearray, player: int) -> npt.NDArray[np.uint8]:
    """Return a new flat array of the cell codes of a board, given its bit codes and the player's index."""
    codes = bytearray(cells.translate(_TRANSLATION))
    codes[player] += PLAYER_SHIFT
    return np.frombuffer(codes, np.uint8)


def level_codes(level: Level) -> npt.NDArray[np.uint8]:
    """Return the flat cell codes of a level at its start."""
    return cell_codes(level.cells, level.player)


def board_text(codes: Iterable[int], width: int) -> str:
    """Return the board as text for language models: cells separated by a space, rows by a newline."""
    symbols = [_SYMBOLS[code] for code in codes]
    return "\n".join(" ".join(symbols[row : row + width]) for row in range(0, len(symbols), width))

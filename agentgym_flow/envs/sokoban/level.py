"""A Sokoban level: walls, targets, boxes and the player's start, in its two text formats, as numbers, and as a picture.

Level collections use XSB (`#@+$*.` and space). Versions for language models show the LLM symbols (`# _ O √ X P S`). A
board is a flat row-major sequence with one bit code per cell. The player's position is a separate flat index. Numeric
environments show cell codes, which are gym-sokoban's codes 0 to 6. A picture is one `take` from a table of tiles, which
are drawn by code, so rendering reads no file and takes microseconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from agentgym_flow.errors import BadLevel, BadSetting

ACTIONS = ("up", "down", "left", "right")
"""The action words; an action index is a position in this tuple."""


def offsets(width: int) -> tuple[int, int, int, int]:
    """Return the change of a flat index for each of `ACTIONS` on a board of `width` columns."""
    return -width, width, -1, 1


WALL, TARGET, BOX = 1, 2, 4
"""The bits of a cell; floor is 0 and a box on a target is `TARGET | BOX`."""

PLAYER = 8
"""The bit of the player in the tables of symbols; never set in `Level.cells`."""

MAX_CELLS = 1 << 14
"""The largest number of cells of a level, far more than in any published level."""

XSB_SYMBOLS = {
    0: " ",
    WALL: "#",
    TARGET: ".",
    BOX: "$",
    TARGET | BOX: "*",
    PLAYER: "@",
    TARGET | PLAYER: "+",
}
"""Bit code (with `PLAYER`) -> symbol of the XSB format."""

LLM_SYMBOLS = {
    0: "_",
    WALL: "#",
    TARGET: "O",
    BOX: "X",
    TARGET | BOX: "√",
    PLAYER: "P",
    TARGET | PLAYER: "S",
}
"""Bit code (with `PLAYER`) -> symbol of the boards for language models."""

SOLVED_ALREADY = "every box is on a target already; a level must leave something to do"
"""The reason why a solved level cannot be a task."""

FLOOR_BITS_TO_CODES = bytes.maketrans(b"01", bytes([WALL, 0]))
"""Translates digits, 1 for floor and 0 for wall, into bit codes."""

_XSB_ONLY = frozenset(XSB_SYMBOLS.values()) - frozenset(LLM_SYMBOLS.values()) - {" "}
_XSB_CODES = {
    **{symbol: code for code, symbol in XSB_SYMBOLS.items()},
    "-": 0,
    "_": 0,
}  # `-` and `_` are floor that mail programs do not trim
_RUN = re.compile(r"([0-9]{1,3})([#@+$*. _-])")
_RUNS = re.compile(r"(?:[0-9]{0,3}[#@+$*. _-]|\|)+")


@dataclass(frozen=True, slots=True)
class Level:
    """One level, immutable and hashable.

    The constructor does not check its arguments. `parse` checks everything that the rules rely on, above all that the
    player cannot reach the edge, so that the rules need no bounds checks.

    Attributes:
        height: number of rows.
        width: number of columns.
        cells: `height * width` bit codes, row-major.
        player: flat index of the player's start.
    """

    height: int
    width: int
    cells: bytes
    player: int

    def __copy__(self) -> Level:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Level:
        return self

    @property
    def boxes(self) -> tuple[int, ...]:
        """The flat indices of the boxes, ascending."""
        return tuple(i for i, code in enumerate(self.cells) if code & BOX)

    @property
    def targets(self) -> tuple[int, ...]:
        """The flat indices of the targets, ascending."""
        return tuple(i for i, code in enumerate(self.cells) if code & TARGET)

    @property
    def is_solved(self) -> bool:
        """Whether every box is on a target."""
        return BOX not in self.cells

    @classmethod
    def parse(cls, text: str, where: str = "level", first_line: int = 1) -> Level:
        """Read a level in XSB or in the LLM symbols (which may be separated by spaces or tabs).

        Blank lines before and after the board are ignored. Cells that the player cannot reach may be open to the edge.
        In XSB, floor can also be `-` or `_`, rows may have different lengths, and run-length encoding is accepted, with
        `|` between rows: `5#|#@$.#|5#`.

        Args:
            text: the board, one row per line.
            where: the name of the source, for error messages.
            first_line: the number of the first line of `text` within the source.

        Raises:
            BadLevel: the text is not a playable level; the message names the source and, if possible, the line.
        """
        if not isinstance(text, str):
            raise BadLevel(f"{where}: a level is text, one row a line, got {type(text).__name__}")
        rows = list(_rows(text, where, first_line))
        if not rows:
            raise BadLevel(f"{where}: line {first_line}: there is no board")
        width = len(rows[0][1])
        for line, codes in rows:  # rows of XSB have equal lengths at this point
            if len(codes) != width:
                raise BadLevel(
                    f"{where}: line {line}: the row has {len(codes)} cells but the first row has {width}; "
                    "make all rows equally long"
                )
        height = len(rows)
        _check_size(height, width, where, rows[0][0])
        codes = b"".join(row for _, row in rows)
        players = [i for i, code in enumerate(codes) if code & PLAYER]
        if len(players) != 1:
            line = rows[players[1] // width if players else 0][0]
            raise BadLevel(f"{where}: line {line}: a level needs exactly one player (@ + or P S), found {len(players)}")
        level = cls(height, width, bytes(code & ~PLAYER for code in codes), players[0])
        boxes, targets = len(level.boxes), len(level.targets)
        if not boxes:
            raise BadLevel(f"{where}: line {rows[0][0]}: a level needs at least one box ($ * or X √)")
        if boxes != targets:
            raise BadLevel(f"{where}: line {rows[0][0]}: {boxes} boxes but {targets} targets; there must be as many")
        leak = level._reachable_edge_cell()
        if leak is not None:
            raise BadLevel(
                f"{where}: line {rows[leak // width][0]}: the border is open at column {leak % width + 1}; "
                "close the wall around the player"
            )
        return level

    def xsb(self) -> str:
        """Return the level as XSB text, rows joined by newlines; `Level.parse` reads it back."""
        symbols = [XSB_SYMBOLS[code] for code in self.cells]
        symbols[self.player] = XSB_SYMBOLS[self.cells[self.player] | PLAYER]
        return "\n".join("".join(symbols[row : row + self.width]) for row in range(0, len(symbols), self.width))

    def _reachable_edge_cell(self) -> int | None:
        """Return a cell of the edge that the player could reach on a board without boxes, or None."""
        seen, stack = {self.player}, [self.player]
        while stack:
            cell = stack.pop()
            row, column = divmod(cell, self.width)
            if row in (0, self.height - 1) or column in (0, self.width - 1):
                return cell
            for step in offsets(self.width):
                if cell + step not in seen and not self.cells[cell + step] & WALL:
                    seen.add(cell + step)
                    stack.append(cell + step)
        return None


def _rows(text: str, where: str, first_line: int) -> Iterator[tuple[int, bytes]]:
    """Yield (line number, bit codes with `PLAYER`) of each row; the whole text decides which symbols are used."""
    lines = list(enumerate(text.splitlines(), first_line))
    while lines and not lines[0][1].strip():
        lines.pop(0)
    while lines and not lines[-1][1].strip():
        lines.pop()
    is_xsb = not _XSB_ONLY.isdisjoint(text) or not set(text) & (set(LLM_SYMBOLS.values()) - {"#"})
    codes = _XSB_CODES if is_xsb else {symbol: code for code, symbol in LLM_SYMBOLS.items()}
    if is_xsb:
        lines = [(number, row) for number, line in lines for row in _expanded(line.rstrip())]
        width = max((len(row) for _, row in lines), default=0)
        _check_size(len(lines), width, where, first_line)
        lines = [(number, row.ljust(width)) for number, row in lines]
    for number, line in lines:
        row = bytearray()
        for column, symbol in enumerate(line, 1):
            if symbol in codes:
                row.append(codes[symbol])
            elif is_xsb or symbol not in " \t":
                known = " ".join(repr(known) if known == " " else known for known in codes)
                raise BadLevel(f"{where}: line {number}, column {column}: unknown symbol {symbol!r}; known: {known}")
        yield number, bytes(row)


def _check_size(height: int, width: int, where: str, line: int) -> None:
    if height * width > MAX_CELLS:
        raise BadLevel(f"{where}: line {line}: {height}x{width} is more than {MAX_CELLS:,} cells")


def _expanded(line: str) -> list[str]:
    """Return the rows of a line of XSB: the line itself, or its rows if it is run-length encoded."""
    if not _RUNS.fullmatch(line) or sum(int(count) for count, _ in _RUN.findall(line)) > MAX_CELLS:
        return [line]
    return _RUN.sub(lambda run: run[2] * int(run[1]), line).rstrip("|").split("|")


# ---------------------------------------------------------------- cell codes
CODE_WALL, CODE_FLOOR, CODE_TARGET, CODE_BOX_ON_TARGET, CODE_BOX, CODE_PLAYER, CODE_PLAYER_ON_TARGET = range(7)
"""The codes of gym-sokoban's `room_state`, and its code 6 for a player on a target, which it uses for rendering."""

NUM_CODES = 7
PLAYER_SHIFT = CODE_PLAYER - CODE_FLOOR
"""Placing the player on floor or a target adds it to the code."""

BOX_SWAP = CODE_FLOOR + CODE_BOX
"""Placing or removing a box, on floor or a target, is `code -> BOX_SWAP - code`."""

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


def board_text(codes: Iterable[int], width: int) -> str:
    """Return the board as text for language models: cells separated by a space, rows by a newline."""
    symbols = [_SYMBOLS[code] for code in codes]
    return "\n".join(" ".join(symbols[row : row + width]) for row in range(0, len(symbols), width))


# ---------------------------------------------------------------- pictures: seven tiles of 16x16 pixels, drawn by code
TILE = 16
"""The side of a tile in pixels, as drawn."""

Pixels = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

_ROW, _COLUMN = np.mgrid[0:TILE, 0:TILE]


def rgb_frame(codes: Pixels, tile: int = TILE) -> Pixels:
    """Return the picture of a board, or of a batch of boards.

    Args:
        codes: cell codes 0 to 6, `uint8[..., height, width]`.
        tile: the side of a cell in pixels.

    Returns:
        `uint8[..., height * tile, width * tile, 3]`, fresh.

    Raises:
        BadSetting: `tile` is less than 1.
    """
    rows = _tile_rows(tile)
    *batch, height, width = codes.shape
    # One element of the table is one row of a tile, so `take` returns the elements in the memory order of the picture.
    places = codes.astype(np.intp)[..., :, None, :] * tile + np.arange(tile)[:, None]
    return rows.take(places).view(np.uint8).reshape(*batch, height * tile, width * tile, 3)


@lru_cache(maxsize=8)
def _tile_rows(tile: int) -> npt.NDArray[np.void]:
    """Return the tiles in a given size, as `7 * tile` opaque elements of one tile row each."""
    if tile < 1:
        raise BadSetting(f"tile must be at least 1 pixel, got {tile!r}")
    nearest = (np.arange(tile) * TILE + TILE // 2) // tile if tile <= TILE else np.arange(tile) * TILE // tile
    scaled = np.ascontiguousarray(tiles()[:, nearest][:, :, nearest])
    return scaled.reshape(NUM_CODES * tile, tile * 3).view(np.dtype((np.void, tile * 3))).ravel()


@lru_cache(maxsize=1)
def tiles() -> Pixels:
    """Return the tiles in the order of the cell codes, `uint8[7, 16, 16, 3]`; read-only."""
    floor = _floor()
    drawn = np.stack(
        [
            _wall(),
            floor,
            _target(floor),
            _box(floor, wood=(94, 160, 84), edge=(52, 104, 54), shine=(140, 200, 120)),
            _box(floor, wood=(198, 142, 78), edge=(122, 80, 42), shine=(224, 176, 114)),
            _player(floor),
            _player(_target(floor, radius=7.4)),
        ]
    )
    drawn.setflags(write=False)
    return drawn


def _disc(radius: float, row: float = 7.5, column: float = 7.5) -> Mask:
    return np.asarray(np.hypot(_ROW - row, _COLUMN - column) <= radius)


def _block(top: int, left: int, bottom: int, right: int) -> Mask:
    """Return the mask of the pixels from (top, left) to (bottom, right), inclusive."""
    return np.asarray((top <= _ROW) & (bottom >= _ROW) & (left <= _COLUMN) & (right >= _COLUMN))


def _wall() -> Pixels:
    """Draw bricks in four rows of four pixels, where every other row is shifted by half a brick."""
    tile = np.full((TILE, TILE, 3), (112, 124, 142), np.uint8)
    course, shift = _ROW // 4, 4 * (_ROW // 4 % 2)
    tile[(_ROW % 4 == 0) & (course >= 0)] = (136, 148, 166)
    tile[(_ROW % 4 == 3) | ((_COLUMN + shift) % 8 == 7)] = (74, 84, 102)
    return tile


def _floor() -> Pixels:
    tile = np.full((TILE, TILE, 3), (236, 231, 219), np.uint8)
    tile[(_ROW == TILE - 1) | (_COLUMN == TILE - 1)] = (224, 218, 204)
    return tile


def _target(floor: Pixels, radius: float = 5.2) -> Pixels:
    tile = floor.copy()
    tile[_disc(radius) & ~_disc(radius - 1.6)] = (214, 92, 84)
    tile[_disc(1.6)] = (214, 92, 84)
    return tile


def _box(floor: Pixels, wood: tuple[int, int, int], edge: tuple[int, int, int], shine: tuple[int, int, int]) -> Pixels:
    """Draw a crate: a frame, two diagonal braces, and light from above."""
    tile = floor.copy()
    tile[_block(1, 1, 14, 14)] = edge
    tile[_block(2, 2, 13, 13)] = wood
    tile[_block(2, 2, 2, 13) | _block(2, 2, 13, 2)] = shine
    inside = _block(4, 4, 11, 11)
    tile[inside] = tuple(round(0.84 * channel) for channel in wood)
    tile[inside & ((abs(_ROW - _COLUMN) <= 1) | (abs(_ROW + _COLUMN - 15) <= 1))] = wood
    tile[_block(3, 3, 12, 12) & ~inside] = edge
    return tile


def _player(ground: Pixels) -> Pixels:
    """Draw a warehouse keeper from the front: blue overall, yellow helmet."""
    tile = ground.copy()
    tile[_block(9, 4, 13, 11) | _block(10, 3, 12, 12)] = (48, 92, 168)
    tile[_block(14, 4, 14, 6) | _block(14, 9, 14, 11)] = (52, 48, 56)
    tile[_disc(3.8, 5.5)] = (240, 200, 164)
    tile[_disc(4.2, 5.5) & (_ROW <= 4)] = (240, 180, 40)
    tile[_block(4, 2, 4, 13)] = (206, 148, 24)
    tile[_block(6, 6, 6, 6) | _block(6, 9, 6, 9)] = (52, 48, 56)
    tile[_block(9, 7, 13, 8)] = (82, 130, 208)
    return tile

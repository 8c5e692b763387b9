"""A Sokoban level: walls, targets, boxes and the player's start, and its two text formats.

Level collections use XSB (`#@+$*.` and space). Versions for language models show the LLM symbols (`# _ O √ X P S`). A
board is a flat row-major sequence with one bit code per cell. The player's position is a separate flat index.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from agentgym_flow.errors import BadLevel

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
            for step in (-self.width, self.width, -1, 1):
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

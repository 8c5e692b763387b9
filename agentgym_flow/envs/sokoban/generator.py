"""Generate levels; and read the standard levels of common settings, which are stored in the package.

Rooms are made as in gym-sokoban, by a random walk that stamps small patterns of floor. The start is found by a
breadth-first search by *pulls* over states (boxes, region of the player), from the solved board with the player in any
region. The depth of a state is the smallest number of pushes that solve it. So difficulty is a setting, and every level
is solvable by construction.

Generating takes from 0.06 ms (6x6, one box) to 20 ms (10x10, four boxes) per level. Reading a level from a file of the
package takes microseconds, and reading a whole split for a batch takes a few milliseconds. Tests check that both give
the same bits. Levels of seasons, and of settings without a file, are generated.

`python -m agentgym_flow.envs.sokoban.tasks` writes the files. They change only with the generator, and then the id of
the environment needs a new version.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from agentgym_flow.core import Stream, check_split
from agentgym_flow.envs.sokoban.bitboard import State, cells_of, mask_of, moves_of, nth_cell, search_by_pulls
from agentgym_flow.envs.sokoban.level import (
    BOX,
    CODE_BOX,
    CODE_FLOOR,
    CODE_TARGET,
    CODE_WALL,
    FLOOR_BITS_TO_CODES,
    TARGET,
    WALL,
    Level,
    offsets,
)
from agentgym_flow.envs.sokoban.solver import MAX_COMPARED, solve
from agentgym_flow.errors import BadData, BadSetting, shown

MAX_CELLS = 255
"""The largest number of cells of a generated level, because its symmetries are stored in bytes."""

MAX_ROOMS = 1000
"""The number of rooms after which settings are declared impossible."""

MAX_WORK = 500_000
"""The work, in searched states, after which settings are declared impossible: about three seconds. For rooms of up to
8x8 with a few boxes, `MAX_ROOMS` is reached first."""

HOPELESS_WORK, HOPELESS_SHARE = 150_000, 0.75
"""After `HOPELESS_WORK`, about a second, settings are declared impossible if the hardest level so far needs less than
this share of `min_pushes`, because rooms do not differ that much."""

_BOARD_WORK, _PLAN_WORK = 5, 500  # the costs of a board and of a plan, in states

MAX_STATES = 5000
"""The limit on states in one room. If there are more, depths are exact but deeper states may be missing."""

_STAMPS = ("---###---", "-#--#--#-", "---##--#-", "----##-#-", "---##-##-")
"""The 3x3 patterns of floor around a step of the walk, row by row; each is connected and includes its centre."""

_TURNS = 28
"""The number of outcomes, of 80 equally likely ones, that draw a new heading of the walk (35 %)."""


def default_max_steps(height: int, width: int) -> int:
    """Return the step budget of an episode on a board of this size: 20 up to 6x6, 50 up to 7x7, else 200."""
    if height * width <= 36:
        return 20
    return 50 if height * width <= 49 else 200


@dataclass(frozen=True, slots=True)
class LevelSettings:
    """The settings of generated levels.

    Attributes:
        size: rows and columns, including the border of walls.
        boxes: the number of boxes.
        min_pushes: the minimum number of pushes of an optimal solution.
        max_moves: the maximum number of moves of the expert's plan; None for the default step budget of this size.

    Raises:
        BadSetting: a value is out of range; the message names the value and the range.
    """

    size: tuple[int, int] = (6, 6)
    boxes: int = 1
    min_pushes: int = 1
    max_moves: int | None = None

    def __post_init__(self) -> None:
        for name in ("boxes", "min_pushes", "max_moves"):
            value = getattr(self, name)
            if not (type(value) is int and value >= 1) and not (name == "max_moves" and value is None):
                raise BadSetting(f"{name} must be an integer of at least 1, got {shown(value)}")
        if len(self.size) != 2 or not all(type(side) is int for side in self.size):
            raise BadSetting(f"size must be two integers (rows, columns), got {shown(self.size)}")
        height, width = self.size
        if min(height, width) < 3 or max(height, width) < 5 or height * width > MAX_CELLS:
            raise BadSetting(f"size must be from 3x5 (walls included) to {MAX_CELLS} cells, got {height}x{width}")
        most = ((height - 2) * (width - 2) - 1) // 2
        if self.boxes > most:
            raise BadSetting(f"boxes must be at most {most} on {height}x{width}, got {self.boxes}")
        if self.move_limit < self.min_pushes:
            budget = f"the default step budget of {height}x{width}" if self.max_moves is None else "max_moves"
            raise BadSetting(f"min_pushes must be at most {self.move_limit}, {budget}; got {self.min_pushes}")

    @property
    def move_limit(self) -> int:
        """The maximum number of moves of the expert's plan, with the default applied."""
        return default_max_steps(*self.size) if self.max_moves is None else self.max_moves


def generate(settings: LevelSettings, stream: Stream, accept: Callable[[bytes], bool] | None = None) -> Level:
    """Return a new level, which depends only on the settings, the position of the stream and `accept`.

    The starts of each room are tried from the hardest to the easiest. The result is the first that is accepted, needs
    `min_pushes`, and has an expert's plan of at most `max_moves`. The player starts anywhere in its region.

    Args:
        settings: the settings of the level.
        stream: the source of all randomness.
        accept: whether a board may be used, given its `height * width` bit codes without the player; None accepts all.

    Raises:
        BadSetting: there is no such level within `MAX_ROOMS` and `MAX_WORK`; the message says which setting to relax.
    """
    height, width = settings.size
    deepest = work = rooms = 0
    while rooms < MAX_ROOMS and work <= (HOPELESS_WORK if deepest < HOPELESS_SHARE * settings.min_pushes else MAX_WORK):
        rooms += 1
        floor = build_room(height, width, stream)
        targets = _place_targets(floor, settings.boxes, width, stream)
        if not targets:
            continue
        layers, parents = search_by_pulls(floor, targets, width, MAX_STATES)
        room = _Room(settings, floor, targets, parents)
        for depth in range(len(layers) - 1, settings.min_pushes - 1, -1):
            for state in layers[depth]:
                level = room.level(state, depth, stream, accept)
                if level is not None:
                    return level
                if work + room.work > MAX_WORK:
                    break
        work += len(parents) + room.work
        if len(layers) - 1 > deepest:
            starts = (depth for depth, layer in enumerate(layers) for boxes, _ in layer if not boxes & targets)
            deepest = max(deepest, *starts, 0)
    raise BadSetting(_advice(settings, rooms, deepest, accept is None))


@lru_cache(maxsize=64)
def _walk_tables(height: int, width: int) -> tuple[list[int], list[list[int]], list[list[int]]]:
    """Return the interior cells, the next cell by heading and cell, and the mask by stamp and cell."""
    interior = [row * width + column for row in range(1, height - 1) for column in range(1, width - 1)]
    inside = set(interior)
    cells = range(height * width)
    ahead = [[cell + step if cell + step in inside else cell for cell in cells] for step in offsets(width)]
    patterns = [
        [(i // 3 - 1) * width + i % 3 - 1 for i, symbol in enumerate(stamp) if symbol == "#"] for stamp in _STAMPS
    ]
    stamps = [[mask_of(cell + o for o in around if cell + o in inside) for cell in cells] for around in patterns]
    return interior, ahead, stamps


def build_room(height: int, width: int, stream: Stream) -> int:
    """Return the mask of the floor of a random room, which is connected and does not touch the border."""
    interior, ahead, stamps = _walk_tables(height, width)
    cell = stream.choice(interior)
    heading = stream.below(4)
    kinds = len(stamps)
    outcomes = 80 * kinds
    length = 17 * (height + width) // 10
    whole_walk = stream.below(outcomes**length)  # one draw for all steps is several times faster
    floor = 0
    for _ in range(length):
        whole_walk, outcome = divmod(whole_walk, outcomes)
        if outcome < _TURNS * kinds:
            heading = outcome // kinds % 4
        cell = ahead[heading][cell]
        floor |= stamps[outcome % kinds][cell]
    return floor


def _place_targets(floor: int, count: int, width: int, stream: Stream) -> int:
    """Return the mask of `count` random targets from which a box can be pulled, or 0 if there are too few."""
    pullable = 0
    for shift in (1, width):
        pullable |= (floor >> shift & floor >> 2 * shift) | (floor << shift & floor << 2 * shift)
    pullable &= floor
    if pullable.bit_count() < count:
        return 0
    targets = 0
    for _ in range(count):
        target = nth_cell(pullable, stream.below(pullable.bit_count()))
        targets |= target
        pullable ^= target
    return targets


class _Room:
    """A searched room, which provides starts."""

    def __init__(self, settings: LevelSettings, floor: int, targets: int, parents: dict[State, State | None]) -> None:
        self._settings = settings
        self._floor = floor
        self._targets = targets
        self._parents = parents
        self._refused: set[int] = set()
        self.work = 0
        height, width = settings.size
        bits = format(floor, f"0{height * width}b")[::-1].encode()
        self._empty = bytearray(bits.translate(FLOOR_BITS_TO_CODES))
        for cell in cells_of(targets):
            self._empty[cell] = TARGET

    def level(self, state: State, depth: int, stream: Stream, accept: Callable[[bytes], bool] | None) -> Level | None:
        """Return the level that starts in `state`, `depth` pushes before the end; None if it is not accepted."""
        boxes, region = state
        if boxes & self._targets or boxes in self._refused:
            return None
        self.work += _BOARD_WORK
        cells = self._empty.copy()
        for cell in cells_of(boxes):
            cells[cell] = BOX
        board = bytes(cells)
        if accept is not None and not accept(board):
            self._refused.add(boxes)
            return None
        player = nth_cell(region, stream.below(region.bit_count())).bit_length() - 1
        level = Level(*self._settings.size, board, player)
        return level if self._is_short(level, state, depth) else None

    def _is_short(self, level: Level, state: State, depth: int) -> bool:
        """Return whether the expert's plan is within the limit, decided by the cheapest sufficient test."""
        limit = self._settings.move_limit
        longest_walk = self._floor.bit_count() - self._settings.boxes - 1
        if depth * (longest_walk + 1) <= limit:
            return True
        if self._settings.boxes > 1:
            self.work += _PLAN_WORK
            # The expert's plan is never longer than the first push-optimal one.
            return any(len(solve(level, max_compared=compared) or ()) <= limit for compared in (0, MAX_COMPARED))
        placements = []
        following: State | None = state
        while following is not None:
            placements.append(following[0])
            following = self._parents[following]
        return len(moves_of(placements, level.player, self._floor, level.width)) <= limit


def _advice(settings: LevelSettings, rooms: int, deepest: int, any_split: bool) -> str:
    """Return the reason why no level was found, with the settings to change."""
    height, width = settings.size
    boxes = f"{settings.boxes} box{'es' if settings.boxes > 1 else ''}"
    what = f"no level of {height}x{width} with {boxes} in {rooms} rooms"
    if deepest == 0:
        return f"{what}: the rooms are too small; raise size or lower boxes"
    pushes, moves = settings.min_pushes, settings.move_limit
    if deepest < pushes:
        return f"{what}: the hardest needs {deepest} pushes; lower min_pushes (now {pushes}) or raise size"
    wanted = f"a plan of at most {moves} moves" + ("" if any_split else " on a board of this split")
    more = "size" if settings.max_moves is None else f"max_moves (now {moves})"
    return f"{what} has {wanted}: raise {more} or lower min_pushes (now {pushes})"


# ---------------------------------------------------------------- the levels in the package
FOLDER = "levels"
"""The folder of the files, next to this module."""

COUNTS = {"train": 10_000, "valid": 500, "test": 500}
"""Split -> its number of levels in a file, in this order."""

FILES: dict[LevelSettings, tuple[str, str]] = {
    LevelSettings(): ("6x6-1.bin", "730103a0bdf4992bd926b871c167321a67b8077f0e2ddadef7b021d69ba85e4c"),
    LevelSettings(min_pushes=3): ("6x6-1-min3.bin", "38cf112630b3bcb7df89b46d90fd4d46672dbb3da2e62e2bf740b42a9ef0f198"),
    LevelSettings(size=(7, 7), boxes=2): (
        "7x7-2.bin",
        "811fa186c280fb3d318e505214b34b6b4f8f90518b49d3b600d48c2caf72ac90",
    ),
    LevelSettings(size=(7, 7), boxes=2, min_pushes=3): (
        "7x7-2-min3.bin",
        "45e0e77c4fd72b01660799099ef1dd6d74897217bcfb0a0769b1493546d03a07",
    ),
    LevelSettings(size=(10, 10), boxes=4): (
        "10x10-4.bin",
        "2cb880e357314e0a3c6a138a3e153ea6330e7a284cad53347a0aed215abbf984",
    ),
}
"""The settings with a file -> its name and SHA-256."""


@dataclass(frozen=True, slots=True)
class PackedLevels:
    """The levels of one split, unpacked on demand.

    A file has one record per level: first the levels of `train`, then `valid`, then `test`. A record has one bit for
    each cell inside the border, row by row, 1 for floor, padded with zeros to whole bytes. It continues with one byte
    for the cell of each target and each box, ascending, and of the player.

    Attributes:
        size: rows and columns.
        boxes: the number of boxes of each level.
        records: `uint8[levels, bytes]`, read-only.
    """

    size: tuple[int, int]
    boxes: int
    records: npt.NDArray[np.uint8]

    def level(self, task: int) -> Level:
        """Return level number `task`."""
        height, width = self.size
        record = self.records[task].tobytes()
        inside, across = (height - 2) * (width - 2), width - 2
        start, boxes = -(-inside // 8), self.boxes
        bits = int.from_bytes(record[:start], "big") >> 8 * start - inside
        floor = format(bits, f"0{inside}b").encode("ascii").translate(FLOOR_BITS_TO_CODES)
        wall = bytes([WALL])
        rows = [wall + floor[first : first + across] + wall for first in range(0, inside, across)]
        cells = bytearray(wall * width + b"".join(rows) + wall * width)
        for cell in record[start : start + boxes]:
            cells[cell] = TARGET
        for cell in record[start + boxes : start + 2 * boxes]:
            cells[cell] = BOX
        return Level(height, width, bytes(cells), record[-1])

    def boards(self) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        """Return all levels: `uint8[levels, cells]` codes without the player, `int64[levels]` cells of the player."""
        height, width = self.size
        inside = (height - 2) * (width - 2)
        start = -(-inside // 8)
        floor = np.unpackbits(self.records[:, :start], axis=1, count=inside).reshape(-1, height - 2, width - 2)
        targets, boxes = np.split(self.records[:, start:-1].astype(np.intp), 2, axis=1)
        codes = np.full((len(floor), height, width), CODE_WALL, np.uint8)
        codes[:, 1:-1, 1:-1] = floor * np.uint8(CODE_FLOOR)
        flat = codes.reshape(len(floor), -1)
        np.put_along_axis(flat, targets, np.uint8(CODE_TARGET), 1)
        np.put_along_axis(flat, boxes, np.uint8(CODE_BOX), 1)
        return flat, self.records[:, -1].astype(np.int64)


def standard_levels(settings: LevelSettings, split: str, season: str = "") -> PackedLevels | None:
    """Return the levels of a split from the package; None if they are generated: a season, or settings without a file.

    Settings with `max_moves=None` and with the default step budget are equivalent.

    Raises:
        UnknownSplit: the split does not exist.
        BadData: the file is missing, or its digest is not that of this version.
    """
    named = _files_by_limit().get((settings.size, settings.boxes, settings.min_pushes, settings.move_limit))
    split = check_split(split, {})
    if season or named is None:
        return None
    first = sum(COUNTS[other] for other in list(COUNTS)[: list(COUNTS).index(split)])
    return PackedLevels(settings.size, settings.boxes, _records(*named)[first : first + COUNTS[split]])


@lru_cache(maxsize=1)
def _files_by_limit() -> dict[tuple[tuple[int, int], int, int, int], tuple[str, str]]:
    return {(one.size, one.boxes, one.min_pushes, one.move_limit): named for one, named in FILES.items()}


@lru_cache(maxsize=len(FILES))
def _records(name: str, digest: str) -> npt.NDArray[np.uint8]:
    try:
        # Without pathlib and importlib.resources, whose import takes longer than Sokoban's.
        with open(os.path.join(os.path.dirname(__file__), FOLDER, name), "rb") as file:
            content = file.read()
    except OSError as error:
        raise BadData(f"the levels {name} are missing from this installation; install the package again") from error
    if hashlib.sha256(content).hexdigest() != digest:
        raise BadData(f"the levels {name} are not those of this version; install the package again")
    return np.frombuffer(content, np.uint8).reshape(sum(COUNTS.values()), -1)


def pack(levels: Iterable[Level]) -> bytes:
    """Return the records of levels of one size and number of boxes, without boxes on targets."""
    records = bytearray()
    for level in levels:
        cells = np.frombuffer(level.cells, np.uint8).reshape(level.height, level.width)
        records += np.packbits(cells[1:-1, 1:-1] != WALL).tobytes()
        records += bytes([*level.targets, *level.boxes, level.player])
    return bytes(records)

"""The standard levels of common settings, generated once and stored in small files in the package.

`tasks.generated_level` takes from 0.06 ms (6x6, one box) to 20 ms (10x10, four boxes) per level. Reading a level from a
file takes microseconds, and reading a whole split for a batch takes a few milliseconds. Tests check that both give the
same bits. Levels of seasons, and of settings without a file, are generated.

`agentgym_flow.envs.sokoban.pack_levels` writes the files. They change only with the generator, and then the id of the
environment needs a new version.

A file has one record per level: first the levels of `train`, then `valid`, then `test`. A record has one bit for each
cell inside the border, row by row, 1 for floor, padded with zeros to whole bytes. It continues with one byte for the
cell of each target and each box, ascending, and of the player.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from agentgym_flow.core import check_split
from agentgym_flow.envs.sokoban.codes import CODE_BOX, CODE_FLOOR, CODE_TARGET, CODE_WALL
from agentgym_flow.envs.sokoban.generator import LevelSettings
from agentgym_flow.envs.sokoban.level import BOX, FLOOR_BITS_TO_CODES, TARGET, WALL, Level
from agentgym_flow.errors import BadData

if TYPE_CHECKING:
    from agentgym_flow.envs.batching import Ints

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

_WALL = bytes([WALL])

Grids = npt.NDArray[np.uint8]


class Boards(NamedTuple):
    """Many starts in the layout of a batch.

    Attributes:
        codes: `uint8[levels, cells]` cell codes without the player.
        player: `int64[levels]` flat index of the player.
    """

    codes: Grids
    player: Ints


@dataclass(frozen=True, slots=True)
class PackedLevels:
    """The levels of one split, unpacked on demand.

    Attributes:
        size: rows and columns.
        boxes: the number of boxes of each level.
        records: `uint8[levels, bytes]`, read-only.
    """

    size: tuple[int, int]
    boxes: int
    records: Grids

    def level(self, task: int) -> Level:
        """Return level number `task`."""
        height, width = self.size
        record = self.records[task].tobytes()
        inside, across = (height - 2) * (width - 2), width - 2
        start, boxes = _bytes_of(inside), self.boxes
        bits = int.from_bytes(record[:start], "big") >> 8 * start - inside
        floor = format(bits, f"0{inside}b").encode("ascii").translate(FLOOR_BITS_TO_CODES)
        rows = [_WALL + floor[first : first + across] + _WALL for first in range(0, inside, across)]
        cells = bytearray(_WALL * width + b"".join(rows) + _WALL * width)
        for cell in record[start : start + boxes]:
            cells[cell] = TARGET
        for cell in record[start + boxes : start + 2 * boxes]:
            cells[cell] = BOX
        return Level(height, width, bytes(cells), record[-1])

    def boards(self) -> Boards:
        """Return all levels of the split."""
        height, width = self.size
        inside = (height - 2) * (width - 2)
        start = _bytes_of(inside)
        floor = np.unpackbits(self.records[:, :start], axis=1, count=inside).reshape(-1, height - 2, width - 2)
        targets, boxes = np.split(self.records[:, start:-1].astype(np.intp), 2, axis=1)
        codes = np.full((len(floor), height, width), CODE_WALL, np.uint8)
        codes[:, 1:-1, 1:-1] = floor * np.uint8(CODE_FLOOR)
        flat = codes.reshape(len(floor), -1)
        np.put_along_axis(flat, targets, np.uint8(CODE_TARGET), 1)
        np.put_along_axis(flat, boxes, np.uint8(CODE_BOX), 1)
        return Boards(flat, self.records[:, -1].astype(np.int64))


def packed_levels(settings: LevelSettings, split: str) -> PackedLevels | None:
    """Return the standard levels of a split; None for settings without a file.

    Settings with `max_moves=None` and with the default step budget are equivalent.

    Raises:
        UnknownSplit: the split does not exist.
        BadData: the file is missing, or its digest is not that of this version.
    """
    split = check_split(split, {})
    named = _by_limit().get((settings.size, settings.boxes, settings.min_pushes, settings.move_limit))
    if named is None:
        return None
    first = sum(COUNTS[other] for other in list(COUNTS)[: list(COUNTS).index(split)])
    return PackedLevels(settings.size, settings.boxes, _records(*named)[first : first + COUNTS[split]])


@lru_cache(maxsize=1)
def _by_limit() -> dict[tuple[tuple[int, int], int, int, int], tuple[str, str]]:
    return {(one.size, one.boxes, one.min_pushes, one.move_limit): named for one, named in FILES.items()}


@lru_cache(maxsize=len(FILES))
def _records(name: str, digest: str) -> Grids:
    try:
        content = resources.files(__package__).joinpath(FOLDER, name).read_bytes()
    except OSError as error:
        raise BadData(f"the levels {name} are missing from this installation; install the package again") from error
    if hashlib.sha256(content).hexdigest() != digest:
        raise BadData(f"the levels {name} are not those of this version; install the package again")
    return np.frombuffer(content, np.uint8).reshape(sum(COUNTS.values()), -1)


def _bytes_of(bits: int) -> int:
    return -(-bits // 8)

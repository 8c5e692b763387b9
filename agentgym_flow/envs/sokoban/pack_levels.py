"""Writes the level files that `packed` reads.

`python -m agentgym_flow.envs.sokoban.pack_levels` generates all files again in some minutes and prints their SHA-256
for `packed.FILES`.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from agentgym_flow.envs.sokoban.level import WALL, Level
from agentgym_flow.envs.sokoban.packed import COUNTS, FILES, FOLDER
from agentgym_flow.envs.sokoban.tasks import generated_level


def pack(levels: Sequence[Level]) -> bytes:
    """Return the records of levels of one size and number of boxes, without boxes on targets."""
    return b"".join(map(b"".join, map(_record, levels)))


def _record(level: Level) -> Iterator[bytes]:
    cells = np.frombuffer(level.cells, np.uint8).reshape(level.height, level.width)
    yield np.packbits(cells[1:-1, 1:-1] != WALL).tobytes()
    yield bytes(level.targets)
    yield bytes(level.boxes)
    yield bytes([level.player])


def main(folder: Path) -> None:
    """Generate all levels, write the files and print their SHA-256."""
    folder.mkdir(exist_ok=True)
    for settings, (name, _) in FILES.items():
        every = [generated_level(settings, split, task) for split, count in COUNTS.items() for task in range(count)]
        content = pack(every)
        (folder / name).write_bytes(content)
        sys.stdout.write(f"{hashlib.sha256(content).hexdigest()}  {name}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(Path(__file__).with_name(FOLDER))

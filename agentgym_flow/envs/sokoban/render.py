"""Pictures of boards from seven tiles, which are drawn by code.

Each tile is a few masks over a 16x16 square. A frame, or a whole batch of frames, is one `take` from a table of tile
rows, so rendering reads no file and takes microseconds.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from agentgym_flow.envs.sokoban.codes import NUM_CODES
from agentgym_flow.errors import BadSetting

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

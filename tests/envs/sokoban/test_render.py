"""Pictures: the right tile in the right place, at any size, for one board or many."""

from __future__ import annotations

import numpy as np
import pytest

from agentgym_flow.envs.sokoban.level import NUM_CODES, TILE, Level, board_text, cell_codes, rgb_frame, tiles
from agentgym_flow.errors import BadSetting


def test_every_tile_is_its_own_picture() -> None:
    drawn = tiles()
    assert drawn.shape == (NUM_CODES, TILE, TILE, 3)
    assert drawn.dtype == np.uint8
    assert len({tile.tobytes() for tile in drawn}) == NUM_CODES
    with pytest.raises(ValueError, match="read-only"):
        drawn[0, 0, 0] = 0


def test_a_frame_is_the_tiles_side_by_side() -> None:
    codes = np.arange(NUM_CODES * 4, dtype=np.uint8).reshape(4, 7) % NUM_CODES
    expected = np.block([[[tiles()[code]] for code in row] for row in codes])
    np.testing.assert_array_equal(rgb_frame(codes), expected)


def test_a_batch_is_its_frames() -> None:
    codes = np.random.default_rng(0).integers(0, NUM_CODES, (2, 3, 5, 6)).astype(np.uint8)
    frames = rgb_frame(codes)
    assert frames.shape == (2, 3, 5 * TILE, 6 * TILE, 3)
    for place in np.ndindex(2, 3):
        np.testing.assert_array_equal(frames[place], rgb_frame(codes[place]))


@pytest.mark.parametrize("tile", [1, 4, 16, 24, 32])
def test_tiles_scale_to_every_size(tile: int) -> None:
    codes = np.arange(NUM_CODES, dtype=np.uint8)[None]
    frame = rgb_frame(codes, tile)
    assert frame.shape == (tile, NUM_CODES * tile, 3)
    if tile == 32:
        np.testing.assert_array_equal(frame[::2, ::2], rgb_frame(codes))


def test_frames_are_fresh_and_writable() -> None:
    codes = np.zeros((2, 2), np.uint8)
    first = rgb_frame(codes)
    first[:] = 7
    assert not (rgb_frame(codes) == 7).all()


def test_a_tile_has_at_least_one_pixel() -> None:
    with pytest.raises(BadSetting, match="tile"):
        rgb_frame(np.zeros((1, 1), np.uint8), 0)


def test_codes_of_a_level_give_its_text_back() -> None:
    level = Level.parse("#######\n#+ $.*#\n#  $  #\n#######")
    codes = cell_codes(level.cells, level.player)
    assert codes.reshape(level.height, level.width).tolist() == [
        [0, 0, 0, 0, 0, 0, 0],
        [0, 6, 1, 4, 2, 3, 0],
        [0, 1, 1, 4, 1, 1, 0],
        [0, 0, 0, 0, 0, 0, 0],
    ]
    assert Level.parse(board_text(codes.tolist(), level.width)) == level

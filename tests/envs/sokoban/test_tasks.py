from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow.core import Stream
from agentgym_flow.envs.sokoban.generator import LevelSettings, generate
from agentgym_flow.envs.sokoban.level import WALL, Level
from agentgym_flow.envs.sokoban.solver import solve
from agentgym_flow.envs.sokoban.tasks import (
    MANIFEST,
    QUICKSTART,
    board_hash,
    generated_level,
    manifest_digest,
    num_tasks,
    split_of,
    task_level,
)
from agentgym_flow.errors import BadSetting, UnknownSplit, UnknownTask

SPLITS = ("train", "valid", "test")


@pytest.mark.parametrize("setting", MANIFEST, ids=["default", "quickstart"])
@pytest.mark.parametrize("split", SPLITS)
def test_the_manifests_are_as_recorded(setting: LevelSettings, split: str) -> None:
    assert manifest_digest(setting, split) == MANIFEST[setting][split]


def test_the_recorded_settings_and_sizes_of_splits_stay() -> None:
    assert list(MANIFEST) == [LevelSettings(), QUICKSTART]
    assert [num_tasks(split) for split in SPLITS] == [10_000, 500, 500]


def turned(board: tuple[str, ...]) -> tuple[str, ...]:
    return tuple("".join(row) for row in zip(*board[::-1], strict=True))


def images(level: Level) -> set[tuple[str, ...]]:
    """All eight symmetric boards without the player, by turning and mirroring text."""
    board = tuple(level.xsb().replace("@", " ").replace("+", ".").split("\n"))
    found = set()
    for start in (board, board[::-1]):
        for _ in range(4):
            found.add(start)
            start = turned(start)
    return found


@pytest.mark.parametrize("setting", [LevelSettings(), QUICKSTART, LevelSettings(size=(5, 8), boxes=2)])
def test_splits_share_no_board_under_any_symmetry(setting: LevelSettings) -> None:
    seen: dict[tuple[str, ...], str] = {}
    for split in SPLITS:
        for task in range(500):
            for image in images(task_level(setting, split, task)):
                assert seen.setdefault(image, split) == split


@st.composite
def grids(draw: st.DrawFn) -> tuple[int, int, bytes]:
    height, width = draw(st.integers(1, 15)), draw(st.integers(1, 15))
    cells = draw(st.lists(st.sampled_from([0, 1, 2, 4, 6]), min_size=height * width, max_size=height * width))
    return height, width, bytes(cells)


def rotate(height: int, width: int, cells: bytes) -> tuple[int, int, bytes]:
    return width, height, bytes(cells[(height - 1 - i % height) * width + i // height] for i in range(height * width))


def mirror(height: int, width: int, cells: bytes) -> tuple[int, int, bytes]:
    return height, width, b"".join(cells[row * width : (row + 1) * width][::-1] for row in range(height))


@given(grids())
def test_the_hash_is_the_same_for_all_eight_images(grid: tuple[int, int, bytes]) -> None:
    expected = board_hash(*grid)
    for start in (grid, mirror(*grid)):
        image = start
        for _ in range(4):
            assert board_hash(*image) == expected
            image = rotate(*image)
        assert image == start


@given(grids(), st.data())
def test_the_hash_tells_boards_apart(grid: tuple[int, int, bytes], data: st.DataObject) -> None:
    height, width, cells = grid
    place = data.draw(st.integers(0, len(cells) - 1))
    other = cells[:place] + bytes([cells[place] ^ WALL]) + cells[place + 1 :]
    assert board_hash(height, width, other) != board_hash(height, width, cells)


def test_the_hash_is_pinned() -> None:
    level = Level.parse("######\n#@ $.#\n######")
    assert board_hash(3, 6, level.cells).hex()[:16] == "c8bd42955107ee19"
    assert board_hash(6, 3, rotate(3, 6, level.cells)[2]).hex()[:16] == "c8bd42955107ee19"


def test_the_shares_are_about_equal() -> None:
    boards = {generate(LevelSettings(size=(8, 8), boxes=2), Stream("shares", k)).cells for k in range(600)}
    shares = [sum(split_of(8, 8, cells) == split for cells in boards) / len(boards) for split in SPLITS]
    assert all(0.27 < share < 0.4 for share in shares)


@pytest.mark.parametrize("setting", [LevelSettings(), QUICKSTART, LevelSettings(size=(7, 7), boxes=2)])
@pytest.mark.parametrize("split", SPLITS)
def test_the_expert_wins_within_the_step_budget(
    referee: Callable[[Level], Any], setting: LevelSettings, split: str
) -> None:
    for task in range(0, num_tasks(split), num_tasks(split) // 50):
        level = task_level(setting, split, task)
        assert split_of(level.height, level.width, level.cells) == split
        plan = solve(level)
        assert plan is not None
        assert len(plan) <= setting.move_limit
        position, pushes = referee(level).play(plan)
        assert referee(level).solved(position)
        assert pushes >= setting.min_pushes


@pytest.mark.nightly
@pytest.mark.parametrize("setting", MANIFEST, ids=["default", "quickstart"])
def test_the_expert_wins_every_task(referee: Callable[[Level], Any], setting: LevelSettings) -> None:
    for split in SPLITS:
        for task in range(num_tasks(split)):
            level = task_level(setting, split, task)
            plan = solve(level)
            assert plan is not None
            assert len(plan) <= setting.move_limit
            assert referee(level).solved(referee(level).play(plan)[0])


PRINT_TASKS = """
from agentgym_flow.envs.sokoban.solver import solve
from agentgym_flow.envs.sokoban.generator import LevelSettings
from agentgym_flow.envs.sokoban.tasks import generated_level
for setting in (LevelSettings(), LevelSettings(size=(7, 7), boxes=2)):
    for task in (499, 3, 77):
        level = generated_level(setting, "test", task)
        print(level.xsb(), solve(level))
"""


def test_every_process_computes_the_same_tasks_and_plans() -> None:
    surroundings = {**os.environ, "PYTHONHASHSEED": "12345"}
    command = [sys.executable, "-c", PRINT_TASKS]
    other = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=True)
    expected = [
        f"{task_level(setting, 'test', task).xsb()} {solve(task_level(setting, 'test', task))}\n"
        for setting in (LevelSettings(), LevelSettings(size=(7, 7), boxes=2))
        for task in (499, 3, 77)
    ]
    assert other.stdout == "".join(expected)


def test_tasks_do_not_depend_on_each_other_and_are_remembered() -> None:
    late = generated_level(LevelSettings(), "valid", 400)
    assert [generated_level(LevelSettings(), "valid", k) for k in range(401)][400] == late
    assert task_level(LevelSettings(), "valid", 400) is task_level(LevelSettings(), "valid", 400)


def test_the_default_limit_spelt_out_is_the_same_setting() -> None:
    assert task_level(LevelSettings(max_moves=20), "train", 5) == task_level(LevelSettings(), "train", 5)


@pytest.mark.parametrize(
    ("setting", "split", "distinct"),
    [
        (LevelSettings(), "valid", 472),
        (LevelSettings(), "test", 484),
        (QUICKSTART, "valid", 464),
        (QUICKSTART, "test", 470),
        (LevelSettings(size=(7, 7), boxes=2), "test", 500),
        pytest.param(LevelSettings(), "train", 7211, marks=pytest.mark.nightly),
    ],
)
def test_splits_have_as_many_distinct_levels_as_stated(setting: LevelSettings, split: str, distinct: int) -> None:
    """The manual states these figures: levels are drawn independently, and small boards have few."""
    assert len({task_level(setting, split, task) for task in range(num_tasks(split))}) == distinct


def test_a_board_too_small_for_a_split_is_refused() -> None:
    """There is a single board of 3x5, up to symmetry, and the hash gives it to one split."""
    tiny = LevelSettings(size=(3, 5))
    level = generate(tiny, Stream("tiny"))
    owner = split_of(level.height, level.width, level.cells)
    assert task_level(tiny, owner, 0).targets
    for split in set(SPLITS) - {owner}:
        with pytest.raises(BadSetting, match="on a board of this split: raise size"):
            task_level(tiny, split, 0)


def test_unknown_splits_and_tasks_are_refused() -> None:
    with pytest.raises(UnknownSplit, match="Did you mean 'train'"):
        task_level(LevelSettings(), "trian", 0)
    with pytest.raises(UnknownSplit):
        num_tasks("dev")
    for task in (-1, 500):
        with pytest.raises(UnknownTask, match=f"has tasks 0 to 499, got {task}"):
            task_level(LevelSettings(), "valid", task)

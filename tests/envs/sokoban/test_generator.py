from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from agentgym_flow.core import Stream
from agentgym_flow.envs.sokoban.bitboard import cells_of, flood, mask_of, search_by_pulls
from agentgym_flow.envs.sokoban.generator import LevelSettings, build_room, default_max_steps, generate
from agentgym_flow.envs.sokoban.level import TARGET, Level
from agentgym_flow.envs.sokoban.solver import solve
from agentgym_flow.errors import BadSetting

SMALL = (
    LevelSettings(),
    LevelSettings(size=(6, 6), boxes=1, min_pushes=3),
    LevelSettings(size=(5, 7), boxes=2),
    LevelSettings(size=(7, 7), boxes=2, min_pushes=4),
    LevelSettings(size=(3, 9), boxes=1),
)


def plan_of(level: Level) -> list[str]:
    plan = solve(level)
    assert plan is not None
    return plan


GOLDEN = {
    (LevelSettings(), 0): ("######\n# ####\n#  # #\n#  $@#\n# .  #\n######\n"),
    (LevelSettings(min_pushes=3), 0): ("######\n# ## #\n#  + #\n#  $ #\n#  ###\n######\n"),
    (LevelSettings(size=(7, 7), boxes=2), 1): ("#######\n###   #\n### $ #\n####@ #\n####$ #\n# . . #\n#######\n"),
    (LevelSettings(size=(10, 10), boxes=4), 2): (
        "##########\n"
        "######   #\n"
        "######   #\n"
        "######$ .#\n"
        "######. ##\n"
        "###### $ #\n"
        "###### .##\n"
        "######$$ #\n"
        "#### . @ #\n"
        "##########\n"
    ),
}


@pytest.mark.parametrize(("setting", "number"), GOLDEN)
def test_recorded_levels_are_generated_again(setting: LevelSettings, number: int) -> None:
    assert generate(setting, Stream("golden", number)).xsb() + "\n" == GOLDEN[setting, number]


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(SMALL), st.integers(0, 10**6))
def test_every_level_keeps_its_settings(referee: Callable[[Level], Any], setting: LevelSettings, number: int) -> None:
    level = generate(setting, Stream("keeps", number))
    assert Level.parse(level.xsb()) == level
    assert (level.height, level.width) == setting.size
    assert len(level.boxes) == len(level.targets) == setting.boxes
    assert not set(level.boxes) & set(level.targets)
    plan = plan_of(level)
    assert len(plan) <= setting.move_limit
    position, pushes = referee(level).play(plan)
    assert referee(level).solved(position)
    assert pushes >= setting.min_pushes


@settings(deadline=None, max_examples=60)
@given(st.sampled_from([(6, 6, 1), (5, 8, 2), (7, 7, 3)]), st.integers(0, 10**6), st.data())
def test_depth_is_the_push_count_of_the_expert(shape: tuple[int, int, int], number: int, data: st.DataObject) -> None:
    height, width, count = shape
    floor = build_room(height, width, Stream("depth", number))
    assume(floor.bit_count() > count)  # a cell for the player
    targets = data.draw(st.permutations(list(cells_of(floor))))[:count]
    layers, _ = search_by_pulls(floor, mask_of(targets), width, 10**6)
    depth = data.draw(st.integers(0, len(layers) - 1))
    boxes, region = data.draw(st.sampled_from(layers[depth]))
    level = _level(height, width, floor, targets, region)
    plan = solve(level, boxes=list(cells_of(boxes)), max_compared=0)
    assert plan is not None
    assert _pushes(level, plan, set(cells_of(boxes))) == depth


def _level(height: int, width: int, floor: int, targets: list[int], region: int) -> Level:
    cells = bytearray(0 if floor >> cell & 1 else 1 for cell in range(height * width))
    for cell in targets:
        cells[cell] |= TARGET
    return Level(height, width, bytes(cells), next(cells_of(region)))


def _pushes(level: Level, plan: list[str], boxes: set[int]) -> int:
    player, count = level.player, 0
    for word in plan:
        step = {"up": -level.width, "down": level.width, "left": -1, "right": 1}[word]
        player += step
        if player in boxes:
            boxes.remove(player)
            boxes.add(player + step)
            count += 1
    return count


@settings(deadline=None, max_examples=25)
@given(st.sampled_from(SMALL), st.integers(0, 10**6))
def test_depth_equals_an_unpruned_search(referee: Callable[[Level], Any], setting: LevelSettings, number: int) -> None:
    level = generate(setting, Stream("unpruned", number))
    optimum = referee(level).optimum()
    _, pushes = referee(level).play(plan_of(level))
    assert optimum is not None
    assert optimum[0] == pushes


@given(st.integers(5, 15), st.integers(5, 15), st.integers(0, 10**6))
def test_rooms_are_connected_and_closed(height: int, width: int, number: int) -> None:
    floor = build_room(height, width, Stream("room", number))
    assert flood(floor & -floor, floor, width) == floor
    for cell in cells_of(floor):
        assert 0 < cell // width < height - 1
        assert 0 < cell % width < width - 1


def test_depends_on_the_stream_alone() -> None:
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002 - the global state is what must not matter
    before = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    first = [generate(LevelSettings(), Stream("alone", k)) for k in range(50)]
    assert before == (random.getstate(), np.random.get_state()[1].tolist())  # noqa: NPY002
    random.seed(2)
    assert [generate(LevelSettings(), Stream("alone", k)) for k in reversed(range(50))] == first[::-1]
    assert len(set(first)) > 40


def test_the_player_does_not_always_start_beside_the_box() -> None:
    levels = [generate(LevelSettings(), Stream("beside", k)) for k in range(200)]
    beside = sum(abs(level.player - level.boxes[0]) in (1, level.width) for level in levels)
    assert 0 < beside < 150


def test_accept_sees_the_board_and_decides() -> None:
    seen: list[bytes] = []

    def every_third(cells: bytes) -> bool:
        seen.append(cells)
        return len(seen) % 3 == 0

    levels = [generate(LevelSettings(), Stream("accept", k), every_third) for k in range(20)]
    assert {level.cells for level in levels} <= set(seen[2::3])
    assert len(seen) >= 60


def test_max_moves_bounds_the_plan() -> None:
    tight = LevelSettings(size=(7, 7), boxes=2, max_moves=9)
    assert max(len(plan_of(generate(tight, Stream("tight", k)))) for k in range(30)) <= 9
    tight = LevelSettings(min_pushes=2, max_moves=4)
    assert max(len(plan_of(generate(tight, Stream("tight", k)))) for k in range(100)) <= 4


def test_deeper_settings_give_harder_levels() -> None:
    def mean_moves(min_pushes: int) -> float:
        levels = [generate(LevelSettings(min_pushes=min_pushes), Stream("harder", k)) for k in range(100)]
        return sum(len(plan_of(level)) for level in levels) / len(levels)

    assert mean_moves(1) < mean_moves(2) < mean_moves(3) < mean_moves(4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"boxes": 0}, "boxes must be an integer of at least 1, got 0"),
        ({"boxes": True}, "boxes must be an integer"),
        ({"boxes": 1.0}, "boxes must be an integer"),
        ({"boxes": 8}, "boxes must be at most 7 on 6x6, got 8"),
        ({"min_pushes": 0}, "min_pushes must be an integer of at least 1"),
        ({"min_pushes": 21}, "min_pushes must be at most 20, the default step budget of 6x6; got 21"),
        ({"min_pushes": 9, "max_moves": 8}, "min_pushes must be at most 8, max_moves; got 9"),
        ({"max_moves": 0}, "max_moves must be an integer of at least 1"),
        ({"size": (4, 4)}, "size must be from 3x5 .* to 255 cells, got 4x4"),
        ({"size": (2, 9)}, "size must be from 3x5"),
        ({"size": (16, 16)}, "size must be from 3x5"),
        ({"size": (6.0, 6)}, "size must be two integers"),
        ({"size": (6, 6, 6)}, "size must be two integers"),
    ],
)
def test_impossible_settings_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(BadSetting, match=message):
        LevelSettings(**arguments)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (LevelSettings(boxes=7), "the rooms are too small; raise size or lower boxes"),
        (LevelSettings(min_pushes=15), r"the hardest needs \d+ pushes; lower min_pushes \(now 15\) or raise size"),
        (LevelSettings(size=(3, 5)), None),
        (LevelSettings(size=(7, 7), min_pushes=7, max_moves=7), r"raise max_moves \(now 7\)"),
    ],
)
def test_a_hopeless_search_says_what_to_relax(setting: LevelSettings, message: str | None) -> None:
    if message is None:
        assert generate(setting, Stream("hopeless")).boxes
        return
    with pytest.raises(BadSetting, match=message):
        generate(setting, Stream("hopeless"))


def test_the_state_cap_keeps_depths_exact() -> None:
    floor = build_room(10, 10, Stream("cap"))
    targets = mask_of(list(cells_of(floor))[5:14:4])
    whole, _ = search_by_pulls(floor, targets, 10, 10**6)
    capped, _ = search_by_pulls(floor, targets, 10, 30)
    assert 1 < len(capped) < len(whole)
    assert capped == whole[: len(capped)]


@pytest.mark.parametrize(("size", "budget"), [((6, 6), 20), ((4, 9), 20), ((7, 7), 50), ((8, 8), 200), ((10, 10), 200)])
def test_default_step_budgets_follow_the_size_of_the_board(size: tuple[int, int], budget: int) -> None:
    assert default_max_steps(*size) == budget

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_flow.core import Stream
from agentgym_flow.envs.sokoban.bitboard import cells_of, mask_of
from agentgym_flow.envs.sokoban.generator import LevelSettings, build_room, generate
from agentgym_flow.envs.sokoban.level import BOX, TARGET, WALL, Level
from agentgym_flow.envs.sokoban.official import read_levels
from agentgym_flow.envs.sokoban.policies import SokobanExpert
from agentgym_flow.envs.sokoban.solver import Deadlocks, assignment_cost, deadlocks, solve
from agentgym_flow.errors import SearchLimit

CORRIDOR = Level.parse("#######\n#@ $ .#\n#######")


@st.composite
def boards(draw: st.DrawFn, most: int = 3) -> Level:
    """Any level on a random room, most of them unsolvable or with boxes already on targets."""
    height, width = draw(st.sampled_from([(5, 5), (5, 6), (6, 6), (4, 8)]))
    cells = list(cells_of(build_room(height, width, Stream("boards", draw(st.integers(0, 10**6))))))
    count = draw(st.integers(1, min(most, len(cells) - 1)))
    codes = bytearray(0 if cell in cells else WALL for cell in range(height * width))
    first = draw(st.permutations(cells))
    for cell in draw(st.permutations(cells))[:count]:
        codes[cell] |= TARGET
    for cell in first[1 : count + 1]:
        codes[cell] |= BOX
    return Level(height, width, bytes(codes), first[0])


@settings(deadline=None, max_examples=300)
@given(boards())
def test_plans_are_optimal_and_none_means_unsolvable(referee: Callable[[Level], Any], level: Level) -> None:
    optimum = referee(level).optimum()
    plan = solve(level)
    if plan is None:
        assert optimum is None
        return
    position, pushes = referee(level).play(plan)
    assert referee(level).solved(position)
    assert (pushes, len(plan)) == optimum


@pytest.mark.parametrize(
    ("setting", "count"),
    [
        (LevelSettings(size=(7, 7), boxes=2, min_pushes=8), 40),
        (LevelSettings(size=(6, 7), boxes=3, min_pushes=10), 15),
    ],
)
def test_long_plans_have_the_fewest_pushes_and_then_the_fewest_moves(
    referee: Callable[[Level], Any], setting: LevelSettings, count: int
) -> None:
    for number in range(count):
        level = generate(setting, Stream("long", number))
        plan = solve(level)
        assert plan is not None
        assert (referee(level).play(plan)[1], len(plan)) == referee(level).optimum()


@settings(deadline=None, max_examples=100)
@given(boards())
def test_the_first_plan_found_has_as_few_pushes(referee: Callable[[Level], Any], level: Level) -> None:
    first, best = solve(level, max_compared=0), solve(level)
    assert (first is None) == (best is None)
    if first is not None and best is not None:
        position, pushes = referee(level).play(first)
        assert referee(level).solved(position)
        assert pushes == referee(level).play(best)[1]
        assert len(best) <= len(first)


@settings(deadline=None, max_examples=300)
@given(boards(most=4))
def test_dead_means_unsolvable(referee: Callable[[Level], Any], level: Level) -> None:
    if Deadlocks(level).is_dead(mask_of(level.boxes)):
        assert referee(level).optimum() is None


def test_dead_squares_are_exactly_those_of_a_lone_box(referee: Callable[[Level], Any]) -> None:
    for number in range(12):
        level = generate(LevelSettings(), Stream("lone", number))
        free = [cell for cell, code in enumerate(level.cells) if not code & WALL]
        dead = Deadlocks(level).dead_squares
        for box in free:
            starts = [referee(level).position(player, [box]) for player in free if player != box]
            solvable = any(referee(level).optimum(start) is not None for start in starts)
            assert solvable is not bool(dead >> box & 1)


@pytest.mark.parametrize(
    ("text", "is_dead"),
    [
        ("######\n#$  .#\n#  @ #\n######", True),  # in a corner
        ("######\n# $  #\n#  @.#\n######", True),  # against a wall without a target
        ("######\n# @  #\n# $. #\n#    #\n######", False),
        ("########\n#      #\n# $$   #\n# $$ @ #\n#  ....#\n########", True),  # a block of four
        ("########\n#      #\n# **   #\n# **@  #\n#      #\n########", False),  # the same, solved
        ("#######\n#     #\n##$$ @#\n# ..  #\n#######", False),
        ("#######\n#  @  #\n# $$ .#\n# ## .#\n#     #\n#######", True),  # side by side on a wall
        ("#######\n#  @  #\n# $$ .#\n#  # .#\n#     #\n#######", False),  # one of them can be pushed down
        ("#######\n#. #@ #\n#. $$ #\n#  ####\n#######", True),  # side by side under a wall
    ],
)
def test_known_deadlocks_are_found_and_live_boards_are_not_dead(text: str, is_dead: bool) -> None:
    level = Level.parse(text)
    assert Deadlocks(level).is_dead(mask_of(level.boxes)) is is_dead


def test_solves_from_any_state_along_the_way(referee: Callable[[Level], Any]) -> None:
    level = generate(LevelSettings(size=(7, 7), boxes=2, min_pushes=6), Stream("anywhere"))
    judge = referee(level)
    plan = solve(level)
    assert plan is not None
    position = judge.start
    for done, word in enumerate(plan):
        (row, column), boxes = position
        rest = solve(level, row * 7 + column, [r * 7 + c for r, c in boxes])
        assert rest is not None
        assert len(rest) == len(plan) - done
        assert judge.solved(judge.play(rest, position)[0])
        position, _ = judge.step(position, word)


def test_solved_boards_need_no_plan_and_unsolvable_ones_have_none() -> None:
    assert solve(Level.parse("#####\n#@* #\n#####")) == []
    assert solve(Level.parse("#####\n#$@.#\n#####")) is None
    assert solve(CORRIDOR) == ["right"] * 3
    assert solve(CORRIDOR, player=11, boxes=[10]) is None
    assert solve(CORRIDOR, player=9, boxes=[12]) == []


def test_boxes_out_of_reach_count() -> None:
    apart = "#########\n#@$.#{} #\n#########"
    assert solve(Level.parse(apart.format("* "))) == ["right"]
    assert solve(Level.parse(apart.format("$."))) is None


def test_the_limit_is_an_error_and_not_an_answer() -> None:
    level = generate(LevelSettings(size=(7, 7), boxes=2, min_pushes=6), Stream("limit"))
    with pytest.raises(SearchLimit, match="raise max_expansions"):
        solve(level, max_expansions=2)
    assert SokobanExpert(level, max_expansions=2).next(level.player, level.boxes) is None


@given(st.integers(1, 5).flatmap(lambda n: st.lists(st.tuples(*[st.integers(0, 30)] * n), min_size=n, max_size=n)))
def test_assignment_equals_trying_all(costs: list[tuple[int, ...]]) -> None:
    orders = itertools.permutations(range(len(costs)))
    assert assignment_cost(costs) == min(sum(row[i] for row, i in zip(costs, order, strict=True)) for order in orders)


@settings(deadline=None, max_examples=60)
@given(boards(most=2), st.lists(st.sampled_from(["up", "down", "left", "right"]), max_size=6))
def test_the_expert_wins_whenever_winning_is_possible(
    referee: Callable[[Level], Any], level: Level, detour: list[str]
) -> None:
    judge, expert = referee(level), SokobanExpert(level)
    position = judge.start
    for word in detour:
        position, _ = judge.step(position, word)
    optimum = judge.optimum(position)
    for _ in range(optimum[1] if optimum else 0):
        (row, column), boxes = position
        word = expert.next(row * level.width + column, [r * level.width + c for r, c in boxes])
        assert word is not None
        position, _ = judge.step(position, word)
    (row, column), boxes = position
    assert judge.solved(position) is (optimum is not None)
    assert expert.next(row * level.width + column, {r * level.width + c for r, c in boxes}) is None


def test_the_expert_solves_once_for_a_whole_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(*arguments: Any) -> list[str] | None:
        calls.append(arguments)
        return solve(*arguments)

    monkeypatch.setattr("agentgym_flow.envs.sokoban.policies.solve", counted)
    expert = SokobanExpert(CORRIDOR)
    assert [expert.next(player, [player + 2]) for player in (8,)] == ["right"]
    assert expert.next(9, [10]) == "right"
    assert expert.next(10, [11]) == "right"
    assert expert.next(11, [12]) is None
    assert len(calls) == 1
    assert expert.next(8, [11]) == "right"
    assert len(calls) == 2


def test_tables_are_shared_by_equal_levels() -> None:
    assert deadlocks(CORRIDOR) is deadlocks(Level.parse(CORRIDOR.xsb()))


def test_solves_the_first_sample_boxoban_levels(sample_data: Path, referee: Callable[[Level], Any]) -> None:
    for name in ("unfiltered-valid.txt", "medium-valid.txt"):
        for level in read_levels(sample_data / "boxoban" / name)[:30]:
            _assert_solved(level, referee)


@pytest.mark.heavy
def test_solves_every_sample_boxoban_level(sample_data: Path, referee: Callable[[Level], Any]) -> None:
    for level in read_levels(sample_data / "boxoban"):
        _assert_solved(level, referee)


def _assert_solved(level: Level, referee: Callable[[Level], Any]) -> None:
    plan = solve(level)
    assert plan is not None
    assert len(plan) <= 200
    assert referee(level).solved(referee(level).play(plan)[0])

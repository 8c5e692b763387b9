"""The single-board rules, worked by hand."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow.envs.sokoban.game import Board, effective_actions
from agentgym_flow.envs.sokoban.level import ACTIONS, BOX, TARGET, WALL, Level

UP, DOWN, LEFT, RIGHT = range(4)

ROOM = """
#######
#  .  #
# $@$.#
#  $  #
# . * #
#######
"""


def play(text: str, *actions: int) -> tuple[Board, list[float]]:
    board = Board(Level.parse(text))
    return board, [board.move(action)[0] for action in actions]


def test_the_words_are_in_gym_sokobans_order() -> None:
    assert ACTIONS == ("up", "down", "left", "right")


def test_walking_costs_a_step_and_changes_the_player_only() -> None:
    level = Level.parse(ROOM)
    board = Board(level)
    assert board.move(UP) == (-0.1, True, False)
    assert (board.player, board.cells, board.pushed_to) == (level.player - level.width, bytearray(level.cells), -1)


def test_a_bump_costs_a_step_and_changes_nothing() -> None:
    board = Board(Level.parse("#####\n#@$.#\n#####"))
    before = bytes(board.cells), board.player
    for action in (UP, DOWN, LEFT):
        assert board.move(action) == (-0.1, False, False)
    assert (bytes(board.cells), board.player) == before


def test_a_box_moves_only_when_the_cell_behind_is_free() -> None:
    wall_behind, _ = play("######\n# $@.#\n######", LEFT)
    assert wall_behind.pushed_to == 7
    assert wall_behind.move(LEFT) == (-0.1, False, False)
    assert wall_behind.pushed_to == -1
    two_boxes = Board(Level.parse("########\n#..$$@ #\n########"))
    assert two_boxes.move(LEFT) == (-0.1, False, False)


def test_boxes_are_never_pulled() -> None:
    board, _ = play("#######\n#. $@ #\n#######", RIGHT)
    assert board.cells[10] & BOX


def test_rewards_are_the_sums_that_gym_sokoban_forms() -> None:
    corridor = "########\n#@$.. .#\n# $    #\n# $    #\n########"
    board = Board(Level.parse(corridor))
    onto, slide, off = (board.move(RIGHT)[0] for _ in range(3))
    assert (onto, slide, off) == (-0.1 + 1, -0.1, -0.1 - 1)
    assert board.boxes_on_target == 0
    solved = Board(Level.parse("#####\n#@$.#\n#####"))
    reward = -0.1
    reward += 1
    reward += 10
    assert solved.move(RIGHT) == (reward, True, True)
    assert solved.solved


def test_boxes_that_start_on_targets_are_counted_from_the_start() -> None:
    board, rewards = play(ROOM, UP)
    assert board.boxes_on_target == 1
    assert rewards == [-0.1]


@given(st.lists(st.integers(0, 3), max_size=60))
def test_invariants_hold_along_any_path(actions: list[int]) -> None:
    level = Level.parse(ROOM)
    board = Board(level)
    for action in actions:
        before = bytes(board.cells), board.player
        expected = effective_actions(board.cells, board.player, level.width)[action]
        _, changed, solved = board.move(action)
        assert changed == ((bytes(board.cells), board.player) != before) == bool(expected)
        assert sum(cell & BOX > 0 for cell in board.cells) == 4
        assert bytes(cell & ~BOX for cell in board.cells) == bytes(cell & ~BOX for cell in level.cells)
        assert not board.cells[board.player] & (WALL | BOX)
        assert board.boxes_on_target == board.cells.count(TARGET | BOX)
        assert solved == board.solved == (board.boxes_on_target == 4)

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow.envs.sokoban.level import BOX, LLM_SYMBOLS, PLAYER, TARGET, WALL, XSB_SYMBOLS, Level
from agentgym_flow.errors import BadLevel

XSB = """\
######
#@ $.#
# *  #
######"""


def test_reads_cells_player_boxes_and_targets() -> None:
    level = Level.parse(XSB)
    assert (level.height, level.width, level.player) == (4, 6, 7)
    assert level.boxes == (9, 14)
    assert level.targets == (10, 14)
    assert level.cells[:7] == bytes([WALL] * 7)
    assert (level.cells[9], level.cells[10], level.cells[14]) == (BOX, TARGET, BOX | TARGET)
    assert not any(code & PLAYER for code in level.cells)


def test_a_player_on_a_target_is_kept_apart_from_the_cell() -> None:
    level = Level.parse("#####\n#+$ #\n#####")
    assert level.player == 6
    assert level.cells[6] == TARGET
    assert level.xsb() == "#####\n#+$ #\n#####"


@pytest.mark.parametrize("separator", ["", " ", "\t", " \t"])
def test_reads_the_symbols_of_language_model_boards(separator: str) -> None:
    rows = ["######", "#P_XO#", "#_√__#", "######"]
    assert Level.parse("\n".join(separator.join(row) for row in rows)) == Level.parse(XSB)


def test_a_player_on_a_target_is_read_in_language_model_symbols() -> None:
    assert Level.parse("# # # # #\n# S X _ #\n# # # # #") == Level.parse("#####\n#+$ #\n#####")


def test_skips_blank_lines_around_the_board() -> None:
    assert Level.parse(f"\n  \n{XSB}\n\n") == Level.parse(XSB)


@pytest.mark.parametrize(
    "text",
    [
        "######\n#@ $.#\n# *  #\n######",
        "######\n#@-$.#\n#-*--#\n######",
        "######\n#@_$.#\n#_*__#\n######   ",
        "6#|#@-$.#|#-*2-#|6#",
        "6#\n#@ $.#\n# * _#|6#|",
    ],
)
def test_reads_every_way_of_writing_floor_and_runs(text: str) -> None:
    assert Level.parse(text) == Level.parse(XSB)


def test_rows_may_have_different_lengths() -> None:
    ragged = Level.parse("  ####\n###  #\n#@$ .#\n#  ###\n####")
    assert ragged == Level.parse("  ####\n###  #\n#@$ .#\n#  ###\n####  ")
    assert Level.parse(ragged.xsb()) == ragged
    with pytest.raises(BadLevel, match="line 2: the border is open at column 6"):
        Level.parse("######\n#@$.\n######")


def test_unreachable_floor_may_touch_the_edge() -> None:
    level = Level.parse("   #####\n   #@$.#\n   #####")
    assert level.cells[8] == 0
    assert level.xsb().startswith("   #####\n   #@")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: there is no board"),
        ("\n\n", "line 1: there is no board"),
        ("#####\n#PXO#\n####", "line 3: the row has 4 cells but the first row has 5"),
        ("#####\n\n#@$.#\n#####", "line 2: the border is open"),
        ("#####\n#@$.#\n#?  #\n#####", "line 3, column 2: unknown symbol '?'"),
        ("#####\n#@$X#\n#####", "line 2, column 4: unknown symbol 'X'"),
        ("# # # # #\n# P X Q #\n# # # # #", "line 2, column 7: unknown symbol 'Q'"),
        ("#####\n# $.#\n#####", "line 1: a level needs exactly one player .*, found 0"),
        ("#####\n#@$.#\n#@  #\n#####", "line 3: a level needs exactly one player .*, found 2"),
        ("#####\n#@  #\n#####", "a level needs at least one box"),
        ("#####\n#@$ #\n#####", "1 boxes but 0 targets"),
        ("######\n#@$..#\n######", "1 boxes but 2 targets"),
        ("#####\n#@$. \n#####", "line 2: the border is open at column 5"),
        ("#####\n#@$.#\n## ##", "line 3: the border is open at column 3"),
        (("#" * 200 + "\n") * 100, "100x200 is more than 16,384 cells"),
        ("#@$.#" + "\n" * 5 + "#" * 10_000, "more than 16,384 cells"),  # before rows are made equally long
        ("999#" * 100, "unknown symbol '9'"),
        ("1000#|#@$.#|5#", "unknown symbol '1'"),
        ("|" * 10_000 + "!", "unknown symbol '|'"),
    ],
)
def test_a_bad_board_is_refused_by_source_and_line(text: str, message: str) -> None:
    with pytest.raises(BadLevel, match=rf"^mine: .*{message}"):
        Level.parse(text, where="mine")


def test_line_numbers_count_from_the_given_first_line() -> None:
    with pytest.raises(BadLevel, match=r"^mine: line 43: the row has 4 cells"):
        Level.parse("#####\n#PXO#\n####", where="mine", first_line=41)


def test_is_immutable_hashable_and_its_own_copy() -> None:
    level = Level.parse(XSB)
    with pytest.raises(AttributeError):
        level.player = 8  # type: ignore[misc]
    assert copy.copy(level) is level
    assert copy.deepcopy(level) is level
    assert pickle.loads(pickle.dumps(level)) == level
    assert len({level, Level.parse(XSB)}) == 1


@st.composite
def levels(draw: st.DrawFn) -> Level:
    height, width = draw(st.integers(3, 8)), draw(st.integers(5, 8))
    inner = [row * width + column for row in range(1, height - 1) for column in range(1, width - 1)]
    count = draw(st.integers(1, len(inner) - 1))
    cells = bytearray([WALL]) * (height * width)
    for cell in inner:
        cells[cell] = draw(st.sampled_from([0, 0, WALL]))
    boxes = draw(st.permutations(inner))
    player, boxes = boxes[0], boxes[1 : count + 1]
    targets = draw(st.permutations(inner))[:count]
    for cell in (player, *boxes, *targets):
        cells[cell] = 0
    for cell in boxes:
        cells[cell] |= BOX
    for cell in targets:
        cells[cell] |= TARGET
    return Level(height, width, bytes(cells), player)


@given(levels(), st.sampled_from(["", " ", "\t"]))
def test_every_level_survives_both_alphabets(level: Level, separator: str) -> None:
    assert Level.parse(level.xsb()) == level
    to_llm = {XSB_SYMBOLS[code]: symbol for code, symbol in LLM_SYMBOLS.items()}
    rows = [separator.join(to_llm[symbol] for symbol in line) for line in level.xsb().split("\n")]
    assert Level.parse("\n".join(rows)) == level


@given(st.text(alphabet="#@+$*. _OXPS√\t\n;x", max_size=60))
def test_any_text_is_a_level_or_a_typed_error(text: str) -> None:
    try:
        level = Level.parse(text)
    except BadLevel as error:
        assert str(error).startswith("level: line ")  # noqa: PT017 - either outcome is right
    else:
        assert len(level.boxes) == len(level.targets) > 0

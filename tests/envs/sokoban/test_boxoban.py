from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from click.testing import Result
from typer.testing import CliRunner

from agentgym_flow.cli import app
from agentgym_flow.envs import make_text_env
from agentgym_flow.envs.sokoban.game import boxes_key
from agentgym_flow.envs.sokoban.level import Level
from agentgym_flow.envs.sokoban.official import read_levels
from agentgym_flow.envs.sokoban.tasks import LevelSource, export_levels
from agentgym_flow.errors import BadLevel, BadSetting

ONE = "#####\n#@$.#\n#####"
TWO = "######\n#.$ @#\n######"


def write(folder: Path, text: str, name: str = "levels.txt") -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, "utf-8")
    return file


@pytest.mark.parametrize(
    "text",
    [
        f"; 0\n{ONE}\n\n; 1\n{TWO}\n\n",
        f"; 0\n{ONE}\n; 1\n{TWO}",
        f"; 0\n\n{ONE}\n\n\n;1\n{TWO}\n",
        f"{ONE}\n\n{TWO}\n",
        f"\n\n{ONE}\n \n\n{TWO}",
        f"; 0\r\n{ONE}\r\n\r\n; 1\r\n{TWO}".replace("\n", "\r\n").replace("\r\r", "\r"),
    ],
)
def test_reads_headed_and_plain_files(tmp_path: Path, text: str) -> None:
    assert read_levels(write(tmp_path, text)) == [Level.parse(ONE), Level.parse(TWO)]


COLLECTION = """\
\ufeffA collection for tests
Author: somebody
Comment:
#### is not a board here
#@$.#
Comment-End:

; Level 1, with a remark after its board

#####
#@$.#
#####
Title: first
; 2 is a remark, too, because the file does not begin with a header

  ####
###  #
#@$ .#
#  ###
####
Title: second
'by nobody in particular'

1
5#|#@$.#|5#

::
______
#-#
  #####
  #+ $#
  #####
"""


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_reads_collections_as_people_share_them(tmp_path: Path, encoding: str, end: str) -> None:
    text = COLLECTION.replace("#-#\n", "").replace("somebody", "Zo\u00eb")
    content = text.replace("\ufeff", "" if encoding == "latin-1" else "\ufeff").replace("\n", end).encode(encoding)
    (tmp_path / "levels.sok").write_bytes(content)
    boards = [ONE, "  ####\n###  #\n#@$ .#\n#  ###\n####", ONE, "  #####\n  #+ $#\n  #####"]
    assert read_levels(tmp_path) == [Level.parse(board) for board in boards]


@pytest.mark.parametrize(
    "remark",
    ["# Level 1", "*** Level 1 ***", "@author Bob", "$5 reward", "| a | b |", "...", "1 - 2", "1.", "* by Bob"],
)
def test_a_remark_may_begin_with_a_symbol(tmp_path: Path, remark: str) -> None:
    text = f"{remark}\n\n{ONE}\n\n{remark}\n\n{TWO}\n"
    assert read_levels(write(tmp_path, text)) == [Level.parse(ONE), Level.parse(TWO)]
    if "#" not in remark:
        assert read_levels(write(tmp_path, f"{remark}\n{ONE}\n")) == [Level.parse(ONE)]


@pytest.mark.parametrize(
    "comment",
    [
        "Comment:\n#### no end\n#@$.#\n",
        "Comment:\n\n#-- paragraphs\n\n#@$.#\nComment-End:\n",
        "Comment:\n# no end\n\nComment:\n#-- \n\n#@$.#\nComment-End:\n",
    ],
)
def test_a_comment_ends_at_its_end_or_at_a_blank_line(comment: str, tmp_path: Path) -> None:
    text = f"{ONE}\n\n{comment}\n{TWO}\n\nComment:\n# no end of the file\n#@$.#\n"
    assert read_levels(write(tmp_path, text)) == [Level.parse(ONE), Level.parse(TWO)]


def test_damaged_levels_are_left_out_on_request_and_counted(tmp_path: Path) -> None:
    solved, open_border = "#####\n#@* #\n#####", "######\n#.$ @\n######"
    write(tmp_path, f"{ONE}\n\n{solved}\n\n{open_border}\n\n{TWO}\n", "test/a.xsb")
    write(tmp_path, f"; 0\n; 1\n{ONE}\n\n{TWO}\n\n; 3\n", "test/b.txt")
    write(tmp_path, "about these levels", "test/notes.txt")
    with pytest.raises(BadLevel, match=r"a\.xsb: line 5: every box is on a target"):
        LevelSource(split="test", data=tmp_path)
    warning = r"6 damaged levels are skipped, the first: .*a\.xsb: line 5: every box"
    with pytest.warns(UserWarning, match=warning):
        env = make_text_env("agentgym_flow/Sokoban-v0", split="test", data=tmp_path, skip_damaged=True)
    assert (env.num_tasks, env.settings["skip_damaged"]) == (3, True)
    env.reset(seed=0, options={"task": 1})
    assert (env.log_meta()["skipped_levels"], env.game.level) == (6, Level.parse(TWO))
    alone = make_text_env("agentgym_flow/Sokoban-v0", split="test", data=write(tmp_path / "other", ONE, "one.txt"))
    alone.reset(seed=0)
    assert not {"skip_damaged", "skipped_levels"} & {*alone.settings, *alone.log_meta()}
    small = write(tmp_path, f"{ONE}\n\n{solved}\n", "small.txt")
    for make in (gym.make, gym.make_vec):
        with pytest.warns(UserWarning, match="1 damaged levels are skipped"):
            make("agentgym_flow/SokobanGrid-v0", split="test", data=small, skip_damaged=True)
    small.unlink()
    done = CliRunner().invoke(app, ["data", "check", str(tmp_path), "--env", "sokoban"])
    for line in ("b.txt: line 1: the header has no", "b.txt: line 7: a board without", "file is cut off", "6 damaged"):
        assert line in done.output
    assert "notes.txt: line 1: the file holds no level" in done.output
    assert "played as: test 3" in done.output
    for wrong, why in ((True, "for level files"), (1, "True or False")):
        with pytest.raises(BadSetting, match=why):
            LevelSource(skip_damaged=wrong)
    with pytest.raises(BadLevel, match=r"no level can be played\. The first problem: .*every box"):
        LevelSource(split="test", data=write(tmp_path / "other", solved, "solved.txt"), skip_damaged=True)


def test_xml_collections_are_refused_with_advice(tmp_path: Path) -> None:
    file = write(tmp_path, "<SokobanLevels><L>#####</L><L>#@$.#</L><L>#####</L></SokobanLevels>", "mine/all.SLC")
    advice = r"XML collections \(\.slc\) are not supported; use the \.txt, \.xsb, \.sok file"
    for place in (file, file.parent):
        with pytest.raises(BadLevel, match=advice):
            LevelSource(split="test", data=place)


def test_a_remark_that_looks_like_a_board_is_refused_by_line(tmp_path: Path) -> None:
    with pytest.raises(BadLevel, match="line 29: a level needs exactly one player"):
        read_levels(write(tmp_path, COLLECTION.replace("______\n#-#", "\n#-#\n")))


def large(height: int, width: int, boxes: int) -> str:
    """Return a board of so many rows and columns; each box has its target two cells to its right."""
    rows = ["#" * width]
    for row in range(1, height - 1):
        inner = "@" if row == 1 else " "
        rows.append("#" + (inner + " $ ." if row % 2 and row // 2 < boxes else inner).ljust(width - 2) + "#")
    return "\n".join([*rows, "#" * width])


def test_boards_larger_than_a_byte_can_count_are_played_by_every_face(tmp_path: Path) -> None:
    write(tmp_path, f"{large(17, 19, 3)}\n\n{large(20, 16, 2)}\n")
    env = gym.make("agentgym_flow/Sokoban-v0", data=str(tmp_path), split="test", max_steps=200).unwrapped
    for task in range(2):
        _, info = env.reset(seed=0, options={"task": task})
        keys = {info["state_key"]}
        while not (info["success"] or len(keys) > 100):
            action = env.expert_action()
            assert action is not None
            _, _, _, _, info = env.step(action)
            keys.add(info["state_key"])
        assert info["success"]
        assert max(map(len, keys)) <= 64
    one = gym.make("agentgym_flow/SokobanGrid-v0", level=large(17, 19, 3), info_keys=GRID_KEYS)
    many = gym.make_vec("agentgym_flow/SokobanGrid-v0", num_envs=2, level=large(17, 19, 3), info_keys=GRID_KEYS)
    assert many.reset(seed=0)[1]["state_key"].tolist() == [one.reset(seed=0)[1]["state_key"]] * 2
    for action in [1, 3, 3, 1, 3]:
        grid, reward, *_, info = one.step(action)
        grids, rewards, *_, infos = many.step(np.array([action, action]))
        assert infos["state_key"].tolist() == [info["state_key"]] * 2
        assert (grids == grid).all()
        assert rewards.tolist() == [reward] * 2


GRID_KEYS = ("state_key", "success", "deadlock")


def test_many_boxes_of_a_large_board_have_one_key_each_way() -> None:
    for cells, most in ((100, 30), (256, 30), (257, 14), (2000, 14)):
        for count in (1, most, most + 1, 90):
            boxes = list(range(cells - count, cells))
            key = boxes_key(boxes, cells)
            assert len(f"{key}@{cells - 1:02x}") <= 64
            assert key != boxes_key([0, *boxes[1:]], cells)
            assert (key == "".join(f"{box:0{2 if cells <= 256 else 4}x}" for box in boxes)) == (count <= most)


def test_exported_levels_load_back_as_equal_boards(tmp_path: Path) -> None:
    source = LevelSource(split="valid", size=(6, 7), boxes=2)
    files = export_levels(tmp_path, source, 12)
    assert files == [tmp_path / "valid" / "000.txt"]
    assert read_levels(files[0]) == [source.level(task) for task in range(12)]
    read = LevelSource(split="valid", data=str(tmp_path))
    assert [read.level(task) for task in range(read.num_tasks)] == [source.level(task) for task in range(12)]


def test_the_command_writes_levels(tmp_path: Path) -> None:
    def export(*words: str) -> Result:
        return CliRunner().invoke(app, ["data", "export", "sokoban", str(tmp_path), *words])

    done = export("--tasks", "3", "--env-arg", "size=7", "--env-arg", "boxes=2")
    assert done.exit_code == 0, done.output
    source = LevelSource(split="valid", size=7, boxes=2)
    assert read_levels(tmp_path / "valid" / "000.txt") == [source.level(task) for task in range(3)]
    many = export("--force", "--tasks", "99999")
    assert (many.exit_code, "split 'valid' has 500 tasks, so 99999 cannot be exported" in many.stderr) == (2, True)
    wrong = export("--force", "--env-arg", "boxs=2")
    assert (wrong.exit_code, "Did you mean 'boxes'" in wrong.stderr) == (2, True)


def test_reads_a_folder_in_sorted_order(tmp_path: Path) -> None:
    write(tmp_path, TWO, "b/000.txt")
    write(tmp_path, ONE, "a/001.xsb")
    write(tmp_path, "Apache License", "LICENSE-Apache-2.0.txt")
    write(tmp_path, "about", "a/README.txt")
    write(tmp_path, "{}", "manifest.json")
    assert read_levels(str(tmp_path)) == [Level.parse(ONE), Level.parse(TWO)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: the file holds no level"),
        ("\n\n", "line 1: the file holds no level"),
        (f"; 0\n{ONE}\n\n; 1\n", "line 6: the header has no board below it; the file is cut off"),
        (f"; 0\n; 1\n{ONE}\n", "line 1: the header has no board below it"),
        (f"; 0\n{ONE}\n\n{TWO}\n", "line 6: a board without a '; number' header"),
        (f"; 0\n{ONE}\n\n; 1\n######\n#.$ @#\n", "line 8: the border is open"),
        (f"; 0\n{ONE}\n\n; 1\n######\n#.$", "line 7: a level needs exactly one player"),
        (f"{ONE}\n\n######\n#.$ @#", "line 6: the border is open"),
        (f"; 0\n{ONE}\n\n; 1\n######\n#.$ !#\n######\n", "line 8, column 5: unknown symbol '!'"),
    ],
)
def test_a_malformed_file_is_refused_by_line(tmp_path: Path, text: str, message: str) -> None:
    file = write(tmp_path, text)
    with pytest.raises(BadLevel) as caught:
        read_levels(file)
    assert str(caught.value).startswith(f"{file}: {message}")


def test_sources_without_a_readable_level_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadLevel, match="cannot be read"):
        read_levels(tmp_path / "absent.txt")
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe#")
    with pytest.raises(BadLevel, match="not a text file"):
        read_levels(tmp_path / "binary.txt")
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadLevel, match="holds no"):
        read_levels(tmp_path / "empty")


def test_the_real_sample_has_200_distinct_levels_of_four_boxes(sample_data: Path) -> None:
    levels = read_levels(sample_data / "boxoban")
    assert len(levels) == len(set(levels)) == 200
    assert {(level.height, level.width, len(level.boxes)) for level in levels} == {(10, 10, 4)}
    assert all(not set(level.boxes) & set(level.targets) for level in levels)


def test_a_level_that_is_solved_from_the_start_is_refused_by_line(tmp_path: Path) -> None:
    with pytest.raises(BadLevel, match=r"levels\.txt: line 6: every box is on a target already"):
        read_levels(write(tmp_path, "; 0\n#####\n#@$.#\n#####\n; 1\n#####\n#@* #\n#####\n"))


def test_a_byte_order_mark_is_no_part_of_a_level(tmp_path: Path) -> None:
    assert read_levels(write(tmp_path, f"\ufeff{ONE}\n")) == [Level.parse(ONE)]
    with pytest.raises(BadLevel, match="a board without a '; number' header"):  # the first line is still a header
        read_levels(write(tmp_path, f"\ufeff; 0\n{ONE}\n\n{TWO}\n"))


def test_an_evaluation_says_which_official_tasks_were_played(tmp_path: Path) -> None:
    file = write(tmp_path, f"; 0\n{ONE}\n\n; 1\n{TWO}\n\n; 2\n{ONE}\n\n; 3\n{ONE}\n")
    words = ["evaluate", "Sokoban-v0", "--data", str(file), "--split", "test", "--env-arg", "max_steps=2"]
    some = CliRunner().invoke(app, [*words, "--policy", "random", "--episodes", "3"])
    assert "2 different, 1 of 4 missing, 1 repeated" in some.stdout, some.output

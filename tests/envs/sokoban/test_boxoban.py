from __future__ import annotations

from pathlib import Path

import pytest

from agentgym_flow.envs.sokoban.boxoban import read_levels
from agentgym_flow.envs.sokoban.level import Level
from agentgym_flow.errors import BadLevel

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
        (f"; 0\n{ONE}\n\n; 1\n######\n#.$", "line 8: the row has 3 cells but the first row has 6"),
        (f"{ONE}\n\n######\n#.$ @#", "line 6: the border is open"),
        (f"; 0\n{ONE}\n\n; 1\n######\n#.$ !#\n######\n", "line 8, column 5: unknown symbol '!'"),
    ],
)
def test_a_malformed_file_is_refused_by_line(tmp_path: Path, text: str, message: str) -> None:
    file = write(tmp_path, text)
    with pytest.raises(BadLevel) as caught:
        read_levels(file)
    assert str(caught.value).startswith(f"{file}: {message}")


def test_nothing_there_no_text_and_no_files(tmp_path: Path) -> None:
    with pytest.raises(BadLevel, match="cannot be read"):
        read_levels(tmp_path / "absent.txt")
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe#")
    with pytest.raises(BadLevel, match="not a text file"):
        read_levels(tmp_path / "binary.txt")
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadLevel, match="holds no"):
        read_levels(tmp_path / "empty")


def test_the_real_sample(sample_data: Path) -> None:
    levels = read_levels(sample_data / "boxoban")
    assert len(levels) == len(set(levels)) == 200
    assert {(level.height, level.width, len(level.boxes)) for level in levels} == {(10, 10, 4)}
    assert all(not set(level.boxes) & set(level.targets) for level in levels)


def test_a_level_that_is_solved_from_the_start_is_refused_by_line(tmp_path: Path) -> None:
    with pytest.raises(BadLevel, match=r"levels\.txt: line 6: every box is on a target already"):
        read_levels(write(tmp_path, "; 0\n#####\n#@$.#\n#####\n; 1\n#####\n#@* #\n#####\n"))


def test_a_byte_order_mark_is_no_part_of_a_level(tmp_path: Path) -> None:
    plain = read_levels(write(tmp_path, "; 0\n#####\n#@$.#\n#####\n"))
    assert read_levels(write(tmp_path, "\ufeff; 0\n#####\n#@$.#\n#####\n")) == plain

"""Content in JSON files is read as typed values, and what does not fit is refused with its place."""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import pytest

from agentgym_flow._util.values import Content, read_content
from agentgym_flow.errors import BadData


class Colour(Enum):
    RED = "red"


class Part(Content, frozen=True):
    name: str
    colour: Colour = Colour.RED


class Thing(Content, frozen=True):
    parts: tuple[Part, ...]
    size: tuple[int, float]
    number: Literal["one", "many"]
    notes: dict[str, str]
    light: bool = False


GOOD = (
    '{"parts": [{"name": "a"}, {"name": "b", "colour": "red"}], "size": [1, 2], "number": "many", "notes": {"x": "y"}}'
)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "content_of_test"
    folder.mkdir()
    (folder / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, folder.name, raising=False)
    return folder


def read(package: Path, text: str) -> Any:
    (package / "thing.json").write_text(text, "utf-8")
    return read_content(package.name, "thing.json", Thing)


def test_a_file_becomes_typed_values(package: Path) -> None:
    assert read(package, GOOD) == Thing((Part("a"), Part("b")), (1, 2), "many", {"x": "y"})


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"name": "b"', '"name": 7', r"thing.json: field 'parts\[1\].name' must be str, found 7"),
        ('"size": [1, 2]', '"size": [1]', "field 'size' must be list of length 2"),
        ('"many"', '"few"', "field 'number' must be one of 'one', 'many', found 'few'"),
        ('"notes"', '"note"', "unknown field 'note'"),
        ('{"x": "y"}', '["x"]', "field 'notes' must be object"),
        ('"colour": "red"', '"colour": "blue"', r"field 'parts\[1\].colour' must be one of 'red', found 'blue'"),
        ('"number": "many", ', "", "thing.json: .*number"),
        ('"size": [1, 2]', '"size": [true, 2]', r"field 'size\[0\]' must be int, found True"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(package: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(BadData, match=message):
        read(package, GOOD.replace(old, new))

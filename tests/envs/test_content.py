"""Content in JSON files is read as typed values, and what does not fit is refused with its place."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest

from agentgym_flow.envs.content import read_content
from agentgym_flow.errors import BadData


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True)
class Part:
    name: str
    colour: Colour = Colour.RED


class Thing(NamedTuple):
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
        ('"name": "b"', '"name": 7', r"thing.json.parts\[1\].name must be <class 'str'>, not 7"),
        ('"size": [1, 2]', '"size": [1]', "thing.json.size must be"),
        ('"many"', '"few"', "thing.json.number must be"),
        ('"notes"', '"note"', "has no field 'note'"),
        ('{"x": "y"}', '["x"]', "thing.json.notes must be"),
        ('"colour": "red"', '"colour": "blue"', r"thing.json.parts\[1\].colour must be <enum 'Colour'>, not 'blue'"),
        ('"number": "many", ', "", "thing.json: .*number"),
        ('"size": [1, 2]', '"size": [true, 2]', r"thing.json.size\[0\] must be"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(package: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(BadData, match=message):
        read(package, GOOD.replace(old, new))

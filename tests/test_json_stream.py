from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow._util import records
from agentgym_flow._util.records import stream_members, stream_objects
from agentgym_flow.errors import BadData


@pytest.fixture
def tiny_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few bytes are many blocks, and every character is cut in two somewhere."""
    monkeypatch.setattr(records, "BLOCK", 1)


def written(tmp_path: Path, content: bytes | str) -> Path:
    path = tmp_path / "items_shuffle.json"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def objects(path: Path, start: int = 0) -> list[dict[str, Any]]:
    return [value for value, _ in stream_objects(path, start)]


ITEMS: list[dict[str, Any]] = [
    {"a": 1, "name": "café ¢ 家具 🛋", "c": [True, None, -1.5e3]},
    {},
    {"b": {"deep": [[], {"x": 'quote " and \\ backslash'}]}, "n": float("-inf")},
]


@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.usefixtures("tiny_blocks")
def test_every_object_and_its_offset_come_back_whatever_the_blocks(
    tmp_path: Path, ascii_only: bool, indent: int | None
) -> None:
    text = json.dumps(ITEMS, ensure_ascii=ascii_only, indent=indent) + "\n"
    path = written(tmp_path, text)
    found = list(stream_objects(path))
    assert [value for value, _ in found] == ITEMS
    for value, end in found:
        assert path.read_bytes()[:end].decode().endswith("}")
        assert objects(path, end) == ITEMS[ITEMS.index(value) + 1 :]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(
    items=st.lists(st.dictionaries(st.text(max_size=5), json_values, max_size=3), max_size=5), block=st.integers(1, 9)
)
def test_what_json_wrote_is_read_in_blocks_of_any_size(
    tmp_path_factory: pytest.TempPathFactory, items: list[dict[str, Any]], block: int
) -> None:
    path = written(
        tmp_path_factory.getbasetemp(), json.dumps(items, ensure_ascii=not block % 2).encode("utf-8", "replace")
    )
    expected = json.loads(path.read_bytes())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "BLOCK", block)
        assert objects(path) == expected
        members = {str(n): value for n, value in enumerate(expected)}
        path.write_text(json.dumps(members))
        assert dict(stream_members(path)) == members


def test_one_huge_object_is_read_with_few_attempts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = 0

    class Counting(json.JSONDecoder):
        def raw_decode(self, s: str, idx: int = 0) -> tuple[Any, int]:
            nonlocal attempts
            attempts += 1
            return super().raw_decode(s, idx)

    huge = {"text": "ab, " * 2_000_000, "list": list(range(50_000))}
    path = written(tmp_path, json.dumps([huge, {"last": True}]))
    monkeypatch.setattr(records, "_DECODER", Counting())
    monkeypatch.setattr(records, "BLOCK", 1 << 10)
    assert objects(path) == [huge, {"last": True}]
    assert attempts < 30


def test_memory_is_bound_by_an_object_not_by_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    longest = 0

    class Measuring(json.JSONDecoder):
        def raw_decode(self, s: str, idx: int = 0) -> tuple[Any, int]:
            nonlocal longest
            longest = max(longest, len(s))
            return super().raw_decode(s, idx)

    monkeypatch.setattr(records, "_DECODER", Measuring())
    monkeypatch.setattr(records, "BLOCK", 1 << 12)
    path = written(tmp_path, json.dumps([{"name": "x" * 500}] * 2_000))
    assert len(objects(path)) == 2_000
    assert longest < 1 << 14


def test_empty_arrays_and_blanks_around_are_fine(tmp_path: Path) -> None:
    assert objects(written(tmp_path, "[]")) == []
    assert objects(written(tmp_path, " \r\n[ \t] \n ")) == []
    assert objects(written(tmp_path, '\n[ {"a" : 1} \n,\n {} ]\n\n')) == [{"a": 1}, {}]
    assert list(stream_members(written(tmp_path, " { } "))) == []


BROKEN = [
    ("", 0, "array must begin"),
    ('{"a": 1}', 0, "array must begin"),
    ("<html>", 0, "array must begin"),
    ("[", 1, "cut off"),
    ('[{"a": 1}', 9, "cut off"),
    ('[{"a": 1},', 10, "cut off"),
    ('[{"a": 1}, {"b', 12, "cut off"),
    ('[{"a": 1}, {"b": tr', 17, "cut off"),
    ('[{"é": 1} {"b": 2}]', 11, "expected ',' or ']'"),
    ('[{"a": 1},]', 10, "not JSON"),
    ('[{"a": 1}] x', 11, "unexpected data"),
    ('[{"a": 1}, 7]', 11, "must be an object, got 7"),
    ('[[{"a": 1}]]', 1, "must be an object"),
    ('[{"é": é, "filler": "0123456789"}]', 8, "not JSON: Expecting value"),
    ('[{"a": "b\nc", "filler": "0123456789"}]', 9, "not JSON: Invalid control character"),
    (b'[{"a": "\xff"}]', 8, "not UTF-8"),
    ('[{"é": "'.encode() + b'\xe2\x82"}]', 9, "not UTF-8"),
    (b'[{"a": "ab\xe2\x82', 10, "not UTF-8"),
    ('[{"n": ' + "1" * 5_000 + "}]", 1, "cannot be read"),
    ("[" + '{"a":' * 200_000, 1, "nested too deeply"),
]


@pytest.mark.parametrize(("content", "byte", "problem"), BROKEN, ids=[str(n) for n in range(len(BROKEN))])
def test_damage_is_named_with_file_and_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | str, byte: int, problem: str
) -> None:
    path = written(tmp_path, content)
    for block in (1, 5, 1 << 20):
        monkeypatch.setattr(records, "BLOCK", block)
        with pytest.raises(BadData) as caught:
            objects(path)
        assert f"items_shuffle.json: byte {byte}: " in str(caught.value)
        assert problem in str(caught.value)


def test_objects_before_the_damage_are_still_yielded(tmp_path: Path) -> None:
    stream = stream_objects(written(tmp_path, '[{"a": 1}, {"b": }, {"c": "some more text here"}]'))
    assert next(stream) == ({"a": 1}, 9)
    with pytest.raises(BadData, match="byte 17"):
        next(stream)


def test_a_lost_quote_does_not_read_the_whole_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "BLOCK", 64)
    monkeypatch.setattr(records, "LONGEST", 1_000)
    path = written(tmp_path, '[{"a": "lost}, ' + "{}, " * 100_000 + "{}]")
    with pytest.raises(BadData, match=r"byte 1: the element that begins here does not end within 1000 characters"):
        objects(path)


def test_a_start_that_no_run_yielded_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, '[{"a": 1}, {"b": 2}]')
    assert objects(path, 9) == [{"b": 2}]
    for start in (3, 11, 20, 21, 10**9, -1):
        with pytest.raises(BadData, match=r"items_shuffle\.json: byte"):
            objects(path, start)


def test_what_cannot_be_opened_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.json", tmp_path):
        with pytest.raises(BadData, match="cannot be read"):
            objects(path)


@pytest.mark.usefixtures("tiny_blocks")
def test_a_number_is_not_cut_where_a_block_ends(tmp_path: Path) -> None:
    members = {"a": 1234, "b": -5.25e-3, "c": True, "d": 6}
    assert dict(stream_members(written(tmp_path, json.dumps(members)))) == members


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("[]", "object must begin"),
        ('{"a" 1}', "a ':' must follow"),
        ('{"a": 1', "cut off"),
        ("{1: 2}", "expected a name in quotes"),
        ('{"a": 1} {', "unexpected data"),
    ],
)
@pytest.mark.usefixtures("tiny_blocks")
def test_damaged_objects_are_named(tmp_path: Path, content: str, problem: str) -> None:
    with pytest.raises(BadData, match=problem):
        list(stream_members(written(tmp_path, content)))

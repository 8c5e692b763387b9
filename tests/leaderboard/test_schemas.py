"""The JSON Schemas in the package are those of the types, and say the same as the reader of the files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

import agentgym_flow.leaderboard
from agentgym_flow._util.values import typed
from agentgym_flow.errors import BadData
from agentgym_flow.leaderboard.publish import SCHEMAS, json_schema

FOLDER = Path(agentgym_flow.leaderboard.__file__).parent / "schemas"
ROOT = Path(__file__).parents[2] / "leaderboards"
SUBMISSION: dict[str, Any] = {
    "schema": "agentgym_flow.submission/1", "track": "small", "name": "a", "date": "2026-11-23", "badge": "replayed",
    "prompt": "none", "title": "A", "authors": ["b"], "command": "c", "training": {"environments": [], "data": ""},
}  # fmt: skip
CHANGES: list[dict[str, Any]] = [
    {"link": "javascript:alert(1)"}, {"link": ""}, {"link": "https://example.org"}, {"score": 1}, {"date": "2026-9-1"},
    {"badge": "verified"}, {"badge": None}, {"authors": []}, {"authors": "b"}, {"authors": ["b", 3]}, {"title": ""},
    {"title": "x" * 81}, {"track": "Small"}, {"training": {"environments": []}}, {"training": {"data": ""}},
    {"training": {"environments": ["x"], "data": "", "core_seconds": -1}}, {"sampling": {"temperature": 0}},
    {"training": {"environments": ["x"], "data": "", "core_seconds": 10}}, {"sampling": {"greedy": 1}},
    {"model": {"name": "m", "parameters": 10**16}}, {"model": {"name": "m", "parameters": True}}, {"model": {}},
    {"model": {"name": "m", "weights": "https://x.org/ "}}, {"layout": "other"}, {"layout": "conversation"},
    {"link": "https://user:word@x.org"}, {"link": "https://x.org/@a"}, {"link": "https://x\\@y.org"}, {"link": "http://x.org"},
    {"link": "https://x\u202e.org"}, {"title": "a\u200bb"}, {"title": "a\u202eb"}, {"title": "  "}, {"title": "A\n"},
    {"title": "\u65e5\u672c \U0001f389"}, {"title": "a\U000e0041"}, {"authors": ["b", "a\ufeff"]}, {"command": "a\nb"},
    {"command": "a\u2067b"}, {"model": {"name": "m\u00ad"}},
    {"stored": {"log": "0" * 64}}, {"stored": {"log": "x"}}, {"stored": {"source.py": "0" * 64}}, {"stored": []},
    {"training": {"environments": ["a\u200d"], "data": ""}},
]  # fmt: skip


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_files_are_the_schemas_of_the_types(name: str) -> None:
    write = "from agentgym_flow.leaderboard.publish import json_schema"
    assert (FOLDER / f"{name}.json").read_text("utf-8") == json_schema(name), f"write json_schema({name!r}), {write}"
    Draft202012Validator.check_schema(json.loads(json_schema(name)))


@pytest.mark.parametrize("change", [{}, *CHANGES], ids=repr)
def test_the_schema_says_the_same_as_the_reader(change: dict[str, Any]) -> None:
    value = SUBMISSION | change
    try:
        typed(value, SCHEMAS["submission-1"], BadData, "here")
    except BadData:
        reads = False
    else:
        reads = True
    assert Draft202012Validator(json.loads(json_schema("submission-1"))).is_valid(value) == reads


FILES = {
    "season-1": "seasons/*.json",
    "track-1": "tracks/*.json",
    "verdict-1": "verdicts/*/*.json",
    "submission-1": "submissions/*/*/submission.yaml",
}


@pytest.mark.parametrize("name", FILES)
def test_the_files_of_the_board_follow_the_schemas(name: str) -> None:
    value = yaml.safe_load(next(ROOT.glob(FILES[name])).read_text("utf-8"))
    Draft202012Validator(json.loads(json_schema(name))).validate(value)


def patterns(schema: Any) -> Iterator[str]:
    """Yield all patterns in a JSON Schema."""
    for name, inner in (
        schema.items() if isinstance(schema, dict) else enumerate(schema if type(schema) is list else ())
    ):
        yield from (inner,) if name == "pattern" else patterns(inner)


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_pattern_matches_the_whole_text(name: str) -> None:
    for pattern in patterns(json.loads(json_schema(name))):
        assert pattern.startswith("^")
        assert pattern.endswith("$(?!\\n)"), "`$` alone admits a final newline in Python"


@pytest.mark.parametrize("name", FILES)
def test_a_final_newline_is_refused(name: str) -> None:
    value = typed(yaml.safe_load(next(ROOT.glob(FILES[name])).read_text("utf-8")), dict[str, Any], BadData, name)
    properties = json.loads(json_schema(name))["$defs"][SCHEMAS[name].__name__]["properties"]
    checked = [field for field in value if "pattern" in properties[field] and field != "command"]
    assert checked
    for field in checked:
        with pytest.raises(BadData, match=f"field '{field}' must be"):
            typed(value | {field: value[field] + "\n"}, SCHEMAS[name], BadData, "here")

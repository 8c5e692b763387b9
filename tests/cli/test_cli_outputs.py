"""Commands that write a file refuse what is there, say so before any work, and never write over what they read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agentgym_flow.cli import app
from agentgym_flow.episodes import read_log


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stderr


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


WRITERS = {
    "evaluate": (["evaluate", "sokoban", "--episodes", 2, "--log", "out.jsonl"], "out.jsonl"),
    "collect": (["collect", "sokoban", "--episodes", 2, "--out", "out.jsonl"], "out.jsonl"),
    "collect sft": (["collect", "sokoban", "--episodes", 2, "--format", "sft", "--out", "out.jsonl"], "out.jsonl"),
    "view": (["view", "demo.jsonl", "--out", "out.html"], "out.html"),
    "view beside": (["view", "mine.jsonl"], "mine.html"),
    "play": (["play", "sokoban", "--log", "out.jsonl"], "out.jsonl"),
    "demo": (["demo", "--out", "deep"], "deep/demo.html"),
    "draw": (["workflow", "draw", "Plan -> Custom", "--out", "out.svg"], "out.svg"),
    "export": (["data", "export", "alfworld", "games", "--tasks", 1], "games/valid_seen/mine"),
    "export a shop": (["data", "export", "webshop", "shop"], "shop/items_shuffle.json"),
}


@pytest.mark.parametrize("name", WRITERS)
def test_what_exists_is_kept_unless_force_replaces_it(name: str) -> None:
    command, out = WRITERS[name]
    run("demo")
    Path("mine.jsonl").write_bytes(Path("demo.jsonl").read_bytes())
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    Path(out).write_text("mine")
    told = run(*command)
    assert told[0] == 2
    assert "already exists" in told[1]
    assert Path(out).read_text() == "mine"
    if name != "play":  # which waits for a person
        assert run(*command, "--force")[0] == 0
        assert name == "export" or Path(out).read_text() != "mine"


def test_nothing_is_played_before_the_check() -> None:
    Path("out.jsonl").write_text("mine")
    Path("loud.py").write_text("raise SystemExit('imported')")
    for command in (["evaluate", "sokoban", "--log"], ["collect", "sokoban", "--out"]):
        status, told = run(*command, "out.jsonl", "--policy", "loud:act")
        assert (status, "already exists" in told) == (2, True)


@pytest.mark.parametrize("way", ["itself", "hard link", "link", "by another path"])
def test_an_input_is_never_replaced(way: str) -> None:
    run("demo")
    out = Path("out.jsonl")
    if way == "itself":
        out = Path("demo.jsonl")
    elif way == "hard link":
        os.link("demo.jsonl", out)
    elif way == "link":
        out.symlink_to("demo.jsonl")
    else:
        out = Path("../") / Path.cwd().name / "demo.jsonl"
    status, told = run("view", "demo.jsonl", "--out", out, "--force")
    assert status == 2
    assert "is a link" in told if way == "link" else "is the input demo.jsonl" in told
    assert len(list(read_log("demo.jsonl"))) == 8


def test_what_arguments_name_is_an_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTGYM_FLOW_HOME", "home")
    Path("levels.txt").write_text("#######\n#@ $ .#\n#######\n")
    Path("passages.jsonl.unfinished").write_text('{"id": "0", "contents": "\\"A\\"\\na"}\n')
    Path("cache.db").write_text("mine")
    assert run("data", "add", "mine", "levels.txt")[0] == 0
    server = 'remote={"cache": "cache.db"}'
    for env, pairs, log in (
        ("sokoban", ["data=mine"], "levels.txt"),
        ("search", ["corpus=passages.jsonl.unfinished"], "passages.jsonl.unfinished"),
        ("search", ["corpus=passages.jsonl.unfinished"], "passages.jsonl"),  # its journal would be the input
        ("search", ["retriever=http://localhost:9", server], "cache.db"),
    ):
        before = {file: file.read_bytes() for file in Path().iterdir() if file.is_file()}
        arguments = [word for pair in pairs for word in ("--env-arg", pair)]
        status, told = run("evaluate", env, *arguments, "--episodes", 1, "--log", log, "--force")
        assert (status, "is the input" in told) == (2, True)
        assert {file: file.read_bytes() for file in Path().iterdir() if file.is_file()} == before


def test_data_is_an_input() -> None:
    Path("levels.txt").write_text("#######\n#@ $ .#\n#######\n")
    Path("games").mkdir()
    for command, option in (("evaluate", "--log"), ("collect", "--out"), ("play", "--log")):
        status, told = run(command, "sokoban", "--env-arg", "data=levels.txt", option, "levels.txt", "--force")
        assert (status, "is the input" in told) == (2, True)
    status, told = run("evaluate", "alfworld", "--data", "games", "--log", "games/log.jsonl")
    assert (status, "or in it" in told) == (2, True)
    assert Path("levels.txt").read_text().startswith("###")


@pytest.mark.parametrize("start", ["evaluate", "collect --out rows.jsonl", "credit audit"])
def test_settings_are_refused_before_a_model_is_loaded(start: str) -> None:
    status, said = run(*start.split(), "Sokoban-v0", "--policy", "hf:no-model-here", "--env-arg", "sise=6")
    assert status == 2
    assert "sise" in said
    assert "no-model-here" not in said

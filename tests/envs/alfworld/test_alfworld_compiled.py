"""Compiled games on disk: the same games, whatever is in the folder, and never more than a bounded number."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from agentgym_flow.envs.alfworld import compiled, source, tasks
from agentgym_flow.envs.alfworld.compiled import FORMAT, decoded, encoded, folder, kept_or_compiled
from agentgym_flow.envs.alfworld.env import ALFWorldEnv
from agentgym_flow.envs.alfworld.gamefile import GAME_FILE, write_game
from agentgym_flow.envs.alfworld.goal import TASK_TYPES
from agentgym_flow.envs.alfworld.source import Task
from agentgym_flow.errors import BadGame
from agentgym_flow.seeding import Stream

GOLDEN = {1: "8aea517a10ded47d"}
"""Format -> the first digits of the SHA-256 of what is written of twelve games. With another digest, raise `FORMAT`."""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(compiled.FOLDER_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def games(tmp_path: Path) -> Path:
    for number in range(3):
        write_game(tmp_path / "test" / f"game_{number}", *tasks.task_problem("test", number), ())
    return tmp_path / "test"


def of_every_type() -> list[Task]:
    return [
        source._generated("test", source._generated_by_type("test", "")[kind][k], "")
        for kind in TASK_TYPES
        for k in (0, 1)
    ]


def played(games: Path) -> list[str]:
    """Play the games as a new process would, and return what is shown."""
    source._official.cache_clear()
    env = ALFWorldEnv(data=games, split="test")
    shown = []
    for task in range(env.num_tasks):
        observation, info = env.reset(options={"task": task})
        rng = Stream("compiled", task)
        shown += [observation, repr(info)]
        for _ in range(20):
            if env.playing:
                observation, *_, info = env.step(env.sample_action(rng))
                shown += [observation, repr(info), env.describe_state()]
    return shown


def entries(cache: Path) -> list[Path]:
    return sorted(path for path in cache.rglob("*") if path.is_file())


def test_a_game_comes_back_as_it_was() -> None:
    for task in of_every_type():
        game, content = decoded(encoded(*task))
        assert (game, content) == task
        for name in ("having",):
            assert list(getattr(game, name)) == list(getattr(task.game, name))
        assert list(game.start.conditions) == list(task.game.start.conditions)
        assert game.menus == {}


def test_the_format_has_the_digest_that_was_recorded() -> None:
    written = b"".join(encoded(*task) for task in of_every_type())
    assert sha256(written).hexdigest()[:16] == GOLDEN[FORMAT], "files hold something else: raise FORMAT"


def test_games_from_the_cache_play_as_from_their_files(
    cache: Path, games: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as without:
        without.setenv(compiled.FOLDER_VARIABLE, compiled.OFF)
        expected = played(games)
        assert folder() is None
        assert not cache.exists()
    assert played(games) == expected
    assert len(entries(cache)) == 3
    monkeypatch.setattr(source, "game_in", None)  # nothing is parsed any more
    assert played(games) == expected


def test_the_cache_is_beside_the_registry_unless_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(compiled.FOLDER_VARIABLE)
    monkeypatch.setenv("AGENTGYM_FLOW_HOME", str(tmp_path))
    assert folder() == tmp_path / "cache" / f"alfworld-{FORMAT}"


@pytest.mark.parametrize(
    "damage", ["cut", "empty", "flipped", "of_another_game", "sealed_nonsense", "no_game", "a_folder"]
)
def test_damaged_and_foreign_files_are_made_again(cache: Path, games: Path, damage: str) -> None:
    expected = played(games)
    first, second, _ = entries(cache)
    good = first.read_bytes()
    digest = first.parent.name + first.stem
    if damage == "cut":
        first.write_bytes(good[:-10])
    elif damage == "empty":
        first.write_bytes(b"")
    elif damage == "flipped":
        first.write_bytes(good.replace(b"apple", b"mango") if b"apple" in good else good[:-3] + b"7" + good[-2:])
    elif damage == "of_another_game":
        shutil.copy(second, first)
    elif damage == "a_folder":
        first.unlink()
        first.mkdir()
    else:
        written = b"[" * 10 if damage == "sealed_nonsense" else json.dumps({"content": "x"}).encode()
        first.write_bytes(compiled._sealed(digest, written) + b"\n" + written)
    assert played(games) == expected
    if damage != "a_folder":
        assert first.read_bytes() == good


def test_a_folder_that_cannot_be_written_keeps_nothing(cache: Path, games: Path) -> None:
    cache.write_text("a file")
    assert played(games)
    assert cache.read_text() == "a file"


def test_a_changed_game_file_is_another_game(cache: Path, games: Path) -> None:
    before = played(games)
    write_game(games / "game_0", *tasks.task_problem("test", 7), ())
    assert played(games) != before
    assert len(entries(cache)) == 4


def test_a_broken_game_file_says_so_every_time(cache: Path, games: Path) -> None:
    file = games / "game_1" / GAME_FILE
    file.write_text(file.read_text().replace("(:init", "(:inits"))
    for _ in range(2):
        with pytest.raises(BadGame, match="unknown section ':inits'"):
            played(games)
    assert len(entries(cache)) == 1


def test_the_oldest_make_room(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "MOST_KEPT", 3 * 256)
    task = source._generated("test", 0, "")
    same = [b"%d" % number for number in range(4000) if sha256(b"%d" % number).hexdigest().startswith("00")][:8]
    for age, content in enumerate(same):
        kept_or_compiled(content, lambda: task)
        [newest] = [path for path in entries(cache) if path.stem == sha256(content).hexdigest()[2:]]
        os.utime(newest, (age, age))
    assert {path.stem for path in entries(cache)} == {sha256(content).hexdigest()[2:] for content in same[-3:]}


WRITE = """
import sys
from agentgym_flow.envs.alfworld.env import ALFWorldEnv
env = ALFWorldEnv(data=sys.argv[1], split="test")
print([env.reset(options={"task": task})[1]["state_key"] for task in range(3)])
"""


def test_several_processes_share_a_folder(cache: Path, games: Path) -> None:
    command = [sys.executable, "-c", WRITE, str(games)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert len({process.communicate()[0] for process in running}) == 1
    assert all(process.returncode == 0 for process in running)
    assert [path.suffix for path in entries(cache)] == [".json"] * 3

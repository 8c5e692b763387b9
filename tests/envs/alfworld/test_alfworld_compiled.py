"""Compiled games on disk: the same games, whatever is in the folder, and never more than a bounded number."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from agentgym_flow.core import Stream
from agentgym_flow.data import no_cache
from agentgym_flow.envs.alfworld import cache as compiled
from agentgym_flow.envs.alfworld import official, tasks
from agentgym_flow.envs.alfworld.cache import SOURCES, decoded, encoded, folder, kept_or_compiled
from agentgym_flow.envs.alfworld.compiled_game import Task
from agentgym_flow.envs.alfworld.env import ALFWorldEnv
from agentgym_flow.envs.alfworld.official import GAME_FILE, write_game
from agentgym_flow.envs.alfworld.problem import TASK_TYPES
from agentgym_flow.episodes import EpisodeRecorder, LoggedEpisode
from agentgym_flow.errors import BadGame
from agentgym_flow.replay import verify


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
        tasks._generated("test", tasks._numbers_by_type(None, "test", "")[kind][k], "")
        for kind in TASK_TYPES
        for k in (0, 1)
    ]


def played(games: Path) -> list[str]:
    """Play the games as a new process would, and return what is shown."""
    official._compiled.cache_clear()
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
    monkeypatch.setattr(official, "game_in", None)  # nothing is parsed any more
    assert played(games) == expected


def test_the_cache_is_beside_the_registry_unless_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(compiled.FOLDER_VARIABLE)
    monkeypatch.setenv("AGENTGYM_FLOW_HOME", str(tmp_path))
    assert folder() == tmp_path / "cache" / "alfworld"


@pytest.mark.parametrize(
    "damage", ["cut", "empty", "flipped", "of_another_game", "sealed_nonsense", "sealed_depth", "no_game", "a_folder"]
)
def test_damaged_and_foreign_files_are_made_again(cache: Path, games: Path, damage: str) -> None:
    expected = played(games)
    first, second, _ = entries(cache)
    good = first.read_bytes()
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
        seal(
            first, {"sealed_nonsense": b"[" * 10, "sealed_depth": b"[" * 200_000, "no_game": b'{"content":"x"}'}[damage]
        )
    assert played(games) == expected
    if damage != "a_folder":
        assert first.read_bytes() == good


def put(*path: str | int, value: Any) -> Callable[[Any], None]:
    """Return what puts a value in the place of another in the JSON of a game."""

    def change(said: Any) -> None:
        for part in path[:-1]:
            said = said[part]
        said[path[-1]] = value

    return change


WRONG = {
    "opened": put("start", "opened", value="x"),
    "conditions": put("start", "conditions", value=3),
    "a condition": put("start", "conditions", "ishot", value=-1),
    "spot": put("start", "spot", value="x"),
    "spot too large": put("start", "spot", value=999),
    "spot as truth": put("start", "spot", value=True),
    "held": put("start", "held", value=999),
    "inside": put("start", "inside", value=[]),
    "located": put("start", "located", 0, value=1 << 999),
    "words": put("words", "task", value=None),
    "help": put("words", "help", value=3),
    "put": put("words", "put", value="drop {x}"),
    "thing": put("things", 0, "name", value=None),
    "contents": put("things", 0, "contents", value="abc"),
    "fits": put("things", 0, "fits", value=0.5),
    "receptacle": put("receptacles", 0, "spot", value=-2),
    "door": put("receptacles", 0, "openable", value=1),
    "trait": put("having", "heatable", value=None),
    "knife": put("having", "knife", value=-1),
    "kind": put("receptacles", 0, "kind", value=None),
    "spots": put("spots", value=[]),
    "asked": put("goal", "thing", value=None),
    "count": put("goal", "count", value=0),
    "both forms": put("goal", "lamp", value="desklamptype"),
    "goal's condition": put("goal", "conditions", value=["isred"]),
    "content": put("content", value=None),
    "something beside": put("more", value=1),
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_what_no_compiled_game_is_is_made_again(cache: Path, change: Callable[[Any], None]) -> None:
    task = tasks._generated("test", 0, "")
    kept_or_compiled(b"a game", lambda: task)
    [file] = entries(cache)
    good = file.read_bytes()
    said = json.loads(good.partition(b"\n")[2])
    change(said)
    seal(file, json.dumps(said, separators=(",", ":")).encode())
    assert file.read_bytes() != good
    assert kept_or_compiled(b"a game", lambda: task) is task
    assert file.read_bytes() == good


def seal(file: Path, written: bytes) -> None:
    """Put into a file what is not of this game, with the digest that it should have."""
    file.write_bytes(compiled._sealed(file.parent.name + file.stem, written) + b"\n" + written)


def test_files_of_another_version_stay_beside_those_of_this_one(
    cache: Path, games: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr(compiled, "__version__", "0.0.1")
        compiled._maker.cache_clear()
        expected = played(games)
    compiled._maker.cache_clear()
    old = {path: path.read_bytes() for path in entries(cache)}
    for path in old:
        seal(path, b"what an older version wrote")
    assert played(games) == expected
    assert len(entries(cache)) == 6
    assert all(b"older" in path.read_bytes() for path in old)


def test_all_sources_that_compile_count() -> None:
    """Those that the compiler and the reader of game files import from this folder, and what they read there."""
    here = Path(compiled.__file__).parent
    found, todo = set[str](), ["cache", "compiled_game", "official"]
    while todo:
        name = todo.pop()
        found.add(name)
        imports = [node for node in ast.walk(ast.parse((here / f"{name}.py").read_text())) if hasattr(node, "module")]
        wanted = [str(node.module).removeprefix("agentgym_flow.envs.alfworld.") for node in imports]
        todo += [name for name in wanted if name not in found and (here / f"{name}.py").exists()]
    assert {f"{name}.py" for name in found} | {"alfred.pddl", "alfred.twl2"} == set(SOURCES)
    assert compiled._maker()


def test_where_no_cache_is_allowed_none_is_read_or_written(cache: Path, games: Path) -> None:
    with no_cache():
        expected = played(games)
    assert entries(cache) == []
    played(games)
    for file in entries(cache):
        lie(file)
    assert played(games) != expected
    with no_cache():  # and nothing that this process has read from one counts
        env = ALFWorldEnv(data=games, split="test")
        assert [env.reset(options={"task": task})[0] for task in range(env.num_tasks)] == [
            text for text in expected if "Welcome to TextWorld" in text
        ]


def lie(file: Path) -> None:
    """Make a game say another task, in a file that is otherwise right."""
    said = json.loads(file.read_bytes().partition(b"\n")[2])
    said["words"]["task"] = "do as you like."
    seal(file, json.dumps(said, separators=(",", ":")).encode())


def test_replay_leaves_the_cache_alone(cache: Path, games: Path) -> None:
    recorder = EpisodeRecorder(ALFWorldEnv(data=games, split="test"))
    episode = recorder.reset(seed=0, task=0)
    recorder.step("look")
    line = LoggedEpisode.of(episode)
    places = dict.fromkeys(episode.data, games)
    for file in entries(cache):
        lie(file)
    official._compiled.cache_clear()
    assert verify(line, places) is None
    assert "do as you like" in ALFWorldEnv(data=games, split="test").reset(options={"task": 0})[0]
    assert verify(line, places) is None


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
    task = tasks._generated("test", 0, "")
    name_of = {content: sha256(compiled._maker() + content).hexdigest() for content in map(b"%d".__mod__, range(4000))}
    same = [content for content, name in name_of.items() if name.startswith("00")][:8]
    for age, content in enumerate(same):
        kept_or_compiled(content, lambda: task)
        [newest] = [path for path in entries(cache) if path.stem == name_of[content][2:]]
        os.utime(newest, (age, age))
    assert {path.stem for path in entries(cache)} == {name_of[content][2:] for content in same[-3:]}


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

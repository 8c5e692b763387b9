from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from agentgym_flow import data
from agentgym_flow.errors import BadData, UnknownData


@pytest.fixture(autouse=True)
def empty_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AGENTGYM_FLOW_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_home_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert data.home() == tmp_path / "home"
    monkeypatch.delenv("AGENTGYM_FLOW_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert data.home() == tmp_path / "agentgym_flow"
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert data.home() == tmp_path / ".local" / "share" / "agentgym_flow"


def test_add_and_resolve(tmp_path: Path) -> None:
    file = tmp_path / "levels.txt"
    file.write_text("; 0\n")
    assert data.registered() == []
    added = data.add("boxoban", file)
    assert added.path == file.resolve()
    assert data.resolve("boxoban") == added
    assert data.resolve(added) is added
    second = data.add("another", tmp_path)
    assert [entry.name for entry in data.registered()] == ["another", "boxoban"]
    assert second.sha256 != added.sha256


def test_a_path_needs_no_registration(tmp_path: Path) -> None:
    file = tmp_path / "unfiltered-valid.txt"
    file.write_text("x")
    found = data.resolve(file)
    assert (found.name, found.path) == ("unfiltered-valid", file.resolve())
    assert found.sha256 == "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"


def test_adding_again_replaces(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_text("old")
    old = data.add("x", file)
    file.write_text("new")
    with pytest.raises(BadData, match="has changed since it was added; run: agentgym-flow data add x"):
        data.resolve("x")
    assert data.add("x", file).sha256 != old.sha256
    assert data.resolve("x").sha256 == data.registered()[0].sha256


def test_folders_are_hashed_by_names_and_contents(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    (folder / "b").mkdir(parents=True)
    (folder / "b" / "1.txt").write_text("one")
    (folder / "a.txt").write_text("two")
    digest = data.content_digest(folder)
    assert data.content_digest(shutil.copytree(folder, tmp_path / "copy")) == digest
    (folder / "a.txt").rename(folder / "c.txt")
    renamed = data.content_digest(folder)
    (folder / "c.txt").write_text("twO")
    assert len({digest, renamed, data.content_digest(folder)}) == 3


@pytest.mark.parametrize("name", ["", "a b", "../x", "-x", "x" * 65, "a/b", "a\n"])
def test_names_are_plain_words(name: str, tmp_path: Path) -> None:
    with pytest.raises(BadData, match="cannot name a data set"):
        data.add(name, tmp_path)


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="no file or folder"):
        data.add("x", tmp_path / "missing")
    (tmp_path / "f").write_text("")
    data.add("boxoban", tmp_path / "f")
    with pytest.raises(UnknownData, match=r"Did you mean 'boxoban'\?.*agentgym-flow data add boxban PATH"):
        data.resolve("boxban")
    (tmp_path / "f").unlink()
    with pytest.raises(BadData):
        data.resolve("boxoban")


@pytest.mark.parametrize("content", ["", "[]", '{"x": 3}', '{"x": {}}', "\x00"])
def test_a_damaged_registry_says_so(content: str, empty_registry: Path) -> None:
    empty_registry.mkdir()
    (empty_registry / "data.json").write_text(content)
    with pytest.raises(BadData, match=r"data registry .* is damaged"):
        data.registered()


def test_the_registry_is_written_whole(tmp_path: Path, empty_registry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "f").write_text("")
    data.add("first", tmp_path / "f")
    before = (empty_registry / "data.json").read_bytes()

    def fill_the_disk(file: Path, text: str, encoding: str) -> None:
        file.write_bytes(text.encode(encoding)[:5])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", fill_the_disk)
    with pytest.raises(OSError, match="No space"):
        data.add("second", tmp_path / "f")
    assert (empty_registry / "data.json").read_bytes() == before
    assert list(json.loads(before)) == ["first"]
    assert [file.name for file in empty_registry.iterdir()] == ["data.json"]


def test_an_empty_word_and_other_types_are_no_data() -> None:
    with pytest.raises(UnknownData):
        data.resolve("")
    with pytest.raises(BadData, match="a path or the name"):
        data.resolve(5)  # type: ignore[arg-type]


def test_a_registry_that_cannot_be_read_says_so(empty_registry: Path) -> None:
    (empty_registry / "data.json").mkdir(parents=True)
    with pytest.raises(BadData, match="cannot read the data registry"):
        data.registered()


def test_without_a_home_folder_the_error_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("AGENTGYM_FLOW_HOME", raising=False)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(BadData, match="export AGENTGYM_FLOW_HOME="):
        data.registered()


def test_a_registry_that_is_a_link_stays_one(tmp_path: Path, empty_registry: Path) -> None:
    empty_registry.mkdir()
    (tmp_path / "settings.json").write_text("{}")
    (empty_registry / "data.json").symlink_to(tmp_path / "settings.json")
    (tmp_path / "levels").write_text("content")
    data.add("levels", tmp_path / "levels")
    assert (empty_registry / "data.json").is_symlink()
    assert "levels" in (tmp_path / "settings.json").read_text()

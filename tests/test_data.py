from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from agentgym_flow import data
from agentgym_flow.errors import BadData, BadSetting, UnknownData


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


def test_added_data_are_found_by_their_name(tmp_path: Path) -> None:
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
    assert data.content_digest(file) == "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"


def test_the_ending_of_a_packed_file_is_not_in_its_name(tmp_path: Path) -> None:
    (tmp_path / "HumanEval.jsonl.gz").write_text("x")
    assert data.resolve(tmp_path / "HumanEval.jsonl.gz").name == "HumanEval"


def test_the_current_folder_is_named_like_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop").mkdir()
    monkeypatch.chdir(tmp_path / "shop")
    assert data.resolve(".").name == "shop"


def test_adding_again_replaces(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_text("old")
    old = data.add("x", file)
    file.write_text("new")
    with pytest.raises(BadData, match="has changed since it was added; run: agentgym-flow data add x"):
        data.resolve("x")
    assert data.add("x", file).sha256 != old.sha256
    assert data.resolve("x") == data.registered()[0]


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


def test_data_that_are_not_there_are_named(tmp_path: Path) -> None:
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
    with pytest.raises(BadSetting, match="a path or the name"):
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


# ---------------------------------------------------------------- stores
DIGEST = "5" * 64


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A folder that states its digest."""
    (tmp_path / "store" / "index").mkdir(parents=True)
    (tmp_path / "store" / "index" / "a.npy").write_bytes(b"12345")
    (tmp_path / "store" / "b").write_bytes(b"123")
    data.write_statement(tmp_path / "store", "shop", DIGEST, {"format": 1, "documents": 3})
    return tmp_path / "store"


def test_a_store_states_its_digest_and_is_not_read(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stated = data.read_statement(store)
    assert stated is not None
    assert (stated["agentgym_flow"], stated["documents"]) == ("shop", 3)
    assert stated["files"] == {"b": 3, "index/a.npy": 5}

    def read(_: Path) -> str:
        raise AssertionError("a file was read")

    monkeypatch.setattr(data, "file_digest", read)
    assert data.content_digest(store) == data.content_digest(data.resolve(store).path) == DIGEST
    assert data.add("shop", store).sha256 == DIGEST
    assert data.resolve("shop") == data.registered()[0]


def test_a_store_that_was_made_again_of_other_data_is_noticed(store: Path) -> None:
    data.add("shop", store)
    data.write_statement(store, "shop", "6" * 64, {})
    with pytest.raises(BadData, match="has changed since it was added; run: agentgym-flow data add shop"):
        data.resolve("shop")


def test_a_store_with_a_missing_or_another_file_is_damaged(store: Path) -> None:
    (store / "b").write_bytes(b"1234")
    with pytest.raises(BadData, match=r"b is not the file that .*store\.json states; make the store again"):
        data.content_digest(store)
    (store / "b").unlink()
    with pytest.raises(BadData, match=r"b is missing; make the store again"):
        data.content_digest(store)


DAMAGED = [
    3,
    {"agentgym_flow": "shop"},
    {"agentgym_flow": "shop", "digest": "55", "files": {}},
    {"agentgym_flow": 3, "digest": DIGEST, "files": {}},
    {"agentgym_flow": "shop", "digest": DIGEST, "files": 3},
]


@pytest.mark.parametrize("page", ["[", *map(json.dumps, DAMAGED)])
def test_a_damaged_statement_says_so(page: str, store: Path) -> None:
    (store / "store.json").write_text(page)
    with pytest.raises(BadData, match=r"store\.json is damaged"):
        data.content_digest(store)


def test_a_file_of_that_name_that_is_not_ours_is_content(store: Path) -> None:
    (store / "store.json").write_text("{}")
    first = data.content_digest(store)
    assert first != DIGEST
    (store / "b").write_bytes(b"321")
    assert data.content_digest(store) != first

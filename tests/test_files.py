"""Where a file is written until it is whole, and what is refused."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from agentgym_flow._util.files import (
    named_in_errors,
    partial_of,
    resumed_folder,
    write_atomically,
    write_folder_atomically,
)
from agentgym_flow._util.values import settings_in
from agentgym_flow.errors import BadData, BadSetting


def test_the_folder_is_made_and_the_partial_file_lies_beside(tmp_path: Path) -> None:
    assert partial_of(tmp_path / "deep" / "e.jsonl.gz") == tmp_path / "deep" / f"e.jsonl.gz.{os.getpid()}.partial"
    assert (tmp_path / "deep").is_dir()


@pytest.mark.parametrize("name", [".", "", ".."])
def test_a_folder_is_no_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(IsADirectoryError, match="name a file in it"):
        partial_of(Path(name))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
@pytest.mark.parametrize("through_a_link", [False, True])
def test_a_device_or_pipe_is_never_replaced(through_a_link: bool, tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    if through_a_link:
        path = tmp_path / "link"
        path.symlink_to("pipe")
    with pytest.raises(OSError, match="is a device or a pipe") as caught:
        partial_of(path)
    assert caught.value.filename == str(path)


def test_a_link_is_never_replaced(tmp_path: Path) -> None:
    link = tmp_path / "link"
    for target in ("file", "nothing"):
        link.unlink(missing_ok=True)
        (tmp_path / "file").write_text("")
        link.symlink_to(target)
        with pytest.raises(OSError, match="is a link; name the file itself"):
            partial_of(link)


def test_a_file_in_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(NotADirectoryError, match="taken is a file, not a folder") as caught:
        partial_of(tmp_path / "taken" / "e.jsonl")
    assert caught.value.filename == str(tmp_path / "taken" / "e.jsonl")


def test_an_error_names_the_file_that_the_user_knows(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left") as caught, named_in_errors(tmp_path / "e.jsonl"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert caught.value.filename == str(tmp_path / "e.jsonl")


def test_a_file_written_whole_appears_at_the_end_and_replaces_the_older_one(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "summary.json"
    for text in ("old", "new"):
        with write_atomically(path) as partial:
            partial.write_text(text)
            assert partial.parent == path.parent
            assert not path.exists() or path.read_text() == "old"
        assert path.read_text() == text
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("why"), OSError(errno.ENOSPC, "No space left")])
def test_a_file_that_is_not_finished_leaves_the_older_one(error: BaseException, tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    path.write_text("old")

    def write_half() -> None:
        with write_atomically(path) as partial:
            partial.write_text("half")
            raise error

    with pytest.raises(type(error)):
        write_half()
    assert getattr(error, "filename", str(path)) == str(path)
    assert [file.read_text() for file in tmp_path.iterdir()] == ["old"]


def test_two_writers_of_one_file_do_not_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "graph.json"
    with write_atomically(path) as first:
        monkeypatch.setattr(os, "getpid", lambda: 1)
        with write_atomically(path) as second:
            first.write_text("first")
            second.write_text("second")
        assert path.read_text() == "second"
    assert path.read_text() == "first"


def test_a_folder_comes_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "folder"

    def fail() -> None:
        with write_folder_atomically(path) as partial:
            (partial / "half").write_text("half")
            assert not path.exists()
            raise ValueError("on the way")

    with pytest.raises(ValueError, match="on the way"):
        fail()
    assert not any(path.parent.iterdir())
    path.mkdir()  # an empty one may be there
    with write_folder_atomically(path) as partial:
        (partial / "all").write_text("all")
    assert [file.name for file in path.parent.iterdir()] == ["folder"]
    assert (path / "all").read_text() == "all"


def test_an_older_folder_is_replaced_if_asked_and_stays_on_an_error(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    path.mkdir()
    (path / "older").touch()

    def fail() -> None:
        with write_folder_atomically(path, replace=True):
            raise ValueError("on the way")

    with pytest.raises(ValueError, match="on the way"):
        fail()
    assert [file.name for file in path.iterdir()] == ["older"]
    with write_folder_atomically(path, replace=True) as partial:
        (partial / "newer").touch()
        assert [file.name for file in path.iterdir()] == ["older"]
    assert [file.name for file in path.iterdir()] == ["newer"]
    assert list(tmp_path.iterdir()) == [path]
    link = tmp_path / "link"
    link.symlink_to(path)
    with pytest.raises(FileExistsError, match="already exists"), write_folder_atomically(link, replace=True):
        pytest.fail("the block must not run")


def test_a_folder_that_is_resumed_keeps_what_an_error_left(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "folder"

    def fail() -> None:
        with resumed_folder(path) as partial:
            (partial / "half").write_text("half")
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left") as caught:
        fail()
    assert caught.value.filename == str(path)
    assert not path.exists()
    with resumed_folder(path) as partial:
        assert [file.name for file in partial.iterdir()] == ["half"]
    assert [file.name for file in path.parent.iterdir()] == ["folder"]
    assert (path / "half").read_text() == "half"


@pytest.mark.parametrize("kind", ["full", "file", "link"])
@pytest.mark.parametrize("begin", [write_folder_atomically, resumed_folder])
def test_a_folder_replaces_nothing(
    begin: Callable[[Path], AbstractContextManager[Path]], kind: str, tmp_path: Path
) -> None:
    path = tmp_path / "taken"
    if kind == "full":
        path.mkdir()
        (path / "mine").touch()
    elif kind == "file":
        path.touch()
    else:
        path.symlink_to("elsewhere")
    with pytest.raises(FileExistsError, match="already exists") as caught, begin(path):
        pytest.fail("the block must not run")
    assert caught.value.filename == str(path)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "content",
    [
        *(b"a: [", b"[1, 2]", b"a", b"\xff", b"[" * 5_000, b"a: 1\na: !!python/name:os.x"),
        *(b"day: 2026-13-45", b"a: 1" + b"0" * 5_000, b"a: !!int ''", b"a: !!bool x", b"a: !!timestamp x"),
    ],
)
def test_damaged_settings_raise_the_error_of_the_caller(content: bytes, tmp_path: Path) -> None:
    pytest.importorskip("yaml", reason="it comes with the extra train")
    file = tmp_path / "config.yaml"
    for kind in (BadData, BadSetting):
        with pytest.raises(kind, match=r"config\.yaml"):
            settings_in(file, kind)  # missing
    file.write_bytes(content)
    for kind in (BadData, BadSetting):
        with pytest.raises(kind, match=r"config\.yaml"):
            settings_in(file, kind)
    file.write_text("")
    assert settings_in(file, BadData) == {}
    file.write_text("a: 1")
    assert settings_in(file, BadData) == {"a": 1}

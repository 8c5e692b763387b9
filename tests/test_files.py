"""Where a file is written until it is whole, and what is refused."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from agentgym_flow.files import naming, partial_of


def test_the_folder_is_made_and_the_partial_file_lies_beside(tmp_path: Path) -> None:
    assert partial_of(tmp_path / "deep" / "e.jsonl.gz") == tmp_path / "deep" / "e.jsonl.gz.partial"
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
    with pytest.raises(OSError, match="No space left") as caught, naming(tmp_path / "e.jsonl"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert caught.value.filename == str(tmp_path / "e.jsonl")

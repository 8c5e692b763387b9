"""Logs and weights outside the folder of a submission: in a folder, and in a data set of the Hub."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import pytest
from entries import PLACE, TRACK, YAML, board, files, lines, packed, write
from typer.testing import CliRunner

from agentgym_flow.cli import app
from agentgym_flow.episodes import read_log
from agentgym_flow.errors import BadData, BadSubmission
from agentgym_flow.leaderboard.judge import judge
from agentgym_flow.leaderboard.publish import publish
from agentgym_flow.leaderboard.site import pages
from agentgym_flow.leaderboard.store import FolderStore, HubStore, Store, complete, store_of
from agentgym_flow.leaderboard.submission import ABOUT, LOG, WEIGHTS, Submission


class FakeHub:
    """A data set: name of a file -> content."""

    def __init__(self, folder: Path, api: type) -> None:
        self.files: dict[str, bytes] = {}
        self._folder = folder
        self.api = create_autospec(api, instance=True)
        self.api.get_paths_info.side_effect = self._info
        self.api.hf_hub_download.side_effect = self._download
        self.api.upload_file.side_effect = self._upload

    def _info(self, name: str, paths: list[str], *, repo_type: str) -> list[Any]:
        from huggingface_hub.hf_api import RepoFile

        assert (name, repo_type) == ("somebody/boards", "dataset")
        return [RepoFile(path=path, size=len(self.files[path]), oid="") for path in paths if path in self.files]

    def _download(self, name: str, path: str, *, repo_type: str) -> str:
        assert (name, repo_type) == ("somebody/boards", "dataset")
        file = self._folder / path.replace("/", "-")
        file.write_bytes(self.files[path])
        return str(file)

    def _upload(self, *, path_or_fileobj: bytes, path_in_repo: str, **more: str) -> None:
        assert (more["repo_id"], more["repo_type"]) == ("somebody/boards", "dataset")
        self.files[path_in_repo] = path_or_fileobj


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    module = pytest.importorskip("huggingface_hub", reason="it comes with the extra `train`")
    fake = FakeHub(tmp_path, module.HfApi)
    monkeypatch.setattr(module, "HfApi", lambda: fake.api)
    return fake


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A board whose store is the folder `store` beside it."""
    root = board(tmp_path / "leaderboards")
    (root / "store.toml").write_text(f'place = "{tmp_path / "store"}"\n', "utf-8")
    return root


def check(store: Store) -> None:
    digest = store.put(b"weights")
    assert digest == hashlib.sha256(b"weights").hexdigest() == store.put(b"weights")
    assert store.has(digest)
    assert store.get(digest, 7) == b"weights"
    with pytest.raises(BadSubmission, match="more than 6"):
        store.get(digest, 6)
    assert not store.has("0" * 64)
    with pytest.raises(BadSubmission, match="has no file 000"):
        store.get("0" * 64, 9)


def test_a_folder_keeps_equal_files_once(root: Path, tmp_path: Path) -> None:
    store = store_of(root)
    check(store)
    [file] = [file for file in (tmp_path / "store").rglob("*") if file.is_file()]
    file.write_bytes(b"Weights")
    with pytest.raises(BadSubmission, match="is damaged: it has the SHA-256"):
        store.get(file.name, 9)


def test_a_data_set_of_the_hub_does_the_same(hub: FakeHub, root: Path) -> None:
    (root / "store.toml").write_text('place = "hub:somebody/boards"\n', "utf-8")
    store = store_of(root)
    assert store == HubStore("somebody/boards")
    check(store)
    assert len(hub.files) == hub.api.upload_file.call_count == 1
    [name] = hub.files
    hub.files[name] = b"Weights"
    with pytest.raises(BadSubmission, match="is damaged: it has the SHA-256"):
        store.get(name[3:], 9)
    hub.api.get_paths_info.side_effect = RuntimeError("no network")
    with pytest.raises(BadData, match="somebody/boards cannot be reached: no network"):
        store.has(name[3:])


@pytest.mark.parametrize("text", ["place = 3", "place = 'here'", "place = 'hub:x'", "place = '/a'\nmore = 1", "x", ""])
def test_a_damaged_store_file_is_not_the_fault_of_an_entry(root: Path, text: str) -> None:
    (root / "store.toml").write_text(text, "utf-8")
    with pytest.raises(BadData, match=r"store\.toml: "):
        store_of(root)


def stored_entry(root: Path, content: bytes | None = None, **stored: str) -> Path:
    """Add an entry whose log is in the store, or is named as `stored`."""
    digest = FolderStore(root.parent / "store").put(packed(lines()) if content is None else content)
    about = YAML + f"stored: {stored or {'log': digest}}\n"
    others = {name: raw for name, raw in files().items() if name != LOG} | {ABOUT: about.encode()}
    return write(root / "submissions" / "/".join(PLACE), others)


def test_an_entry_with_a_stored_log_is_judged_and_shown_like_any_other(root: Path, tmp_path: Path) -> None:
    plain = judge(write(tmp_path / "plain", files()), PLACE, root, jobs=0)
    folder = stored_entry(root)
    [verdict] = publish(root, jobs=0)
    assert verdict.accepted
    assert verdict.scores == plain.scores
    assert not (folder / LOG).exists()
    made = pages(root, jobs=0)
    place = "/".join(PLACE)
    assert f"{place}/episodes.html" in made
    assert LOG not in made[f"{place}/index.html"], "no link to a file that is not there"


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda root: stored_entry(root, log="0" * 64), "has no file 0000"),
        (lambda root: stored_entry(root, log="../../secret"), "must be 64 hex digits"),
        (lambda root: (stored_entry(root) / LOG).write_bytes(b""), "is also in the folder"),
        (lambda root: (stored_entry(root), (root / "store.toml").unlink()), "these leaderboards have no store"),
        (lambda root: stored_entry(root, b"x" * ((20 << 20) + 1)), "more than 20,971,520"),
    ],
)
def test_an_entry_whose_file_cannot_be_had_is_refused(root: Path, damage: Any, why: str) -> None:
    damage(root)
    verdict = judge(root / "submissions" / "/".join(PLACE), PLACE, root, jobs=0)
    assert verdict.reason is not None
    assert verdict.reason.check == "files"
    assert why in verdict.reason.message


def test_submit_puts_log_and_weights_into_the_store(root: Path, tmp_path: Path) -> None:
    def run(*words: str) -> str:
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, result.output
        return result.output

    played = str(tmp_path / "played")
    run("evaluate", "--track", str(root / "tracks" / f"{TRACK}.json"), "--policy", "scripted", "--out", played)
    for name in ("first", "second"):
        said = run(
            "submit", played, "--name", name, "--title", "T", "--author", "A", "--command", "c", "--prompt", "none",
            "--store", "--root", str(root),
        )  # fmt: skip
        assert "**Accepted**" in said
    folders = sorted((root / "submissions" / TRACK).iterdir())
    assert [sorted(file.name for file in folder.iterdir()) for folder in folders] == [["README.md", ABOUT]] * 2
    [stored] = [file for file in (tmp_path / "store").rglob("*") if file.is_file()]
    assert Submission.parse((folders[0] / ABOUT).read_bytes()).stored.log == stored.name
    with complete(folders[0], root) as whole:
        log = [*read_log(whole / LOG)]
        assert not (whole / WEIGHTS).exists()
    assert log == [episode.for_board() for episode in read_log(Path(played, LOG))]

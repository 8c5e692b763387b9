"""`.ci/nightly` notes what `make nightly` covered and says which of its parts are due."""

from __future__ import annotations

import runpy
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest


@pytest.fixture
def nightly(root: Path) -> SimpleNamespace:
    """The names of the script."""
    script = root / ".ci" / "nightly"
    if not script.exists():
        pytest.skip("needs a checkout")
    return SimpleNamespace(**runpy.run_path(str(script)))


def test_a_part_is_due_until_it_has_passed_and_again_when_a_file_changes(
    nightly: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one.txt", "two.txt"):
        (tmp_path / name).write_text(name)
    for command in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    names = nightly.due.__globals__
    monkeypatch.setitem(names, "ROOT", tmp_path)
    monkeypatch.setitem(names, "RECORD", tmp_path / "nightly.json")
    monkeypatch.setitem(names, "PARTS", {"long": ["one.txt"], "vllm": ["one.txt", "two.txt"]})

    def due() -> list[str]:
        nightly.due()
        return [line.split("; ")[-1] for line in capsys.readouterr().out.splitlines()]

    assert due() == ["long: due, it has not passed yet", "vllm: due, it has not passed yet"]
    nightly.record("vllm")
    assert due() == ["long: due, it has not passed yet", "up to date"]
    (tmp_path / "two.txt").write_text("changed")
    nightly.record("long")
    assert due() == ["up to date", "due, changed since: two.txt"]


def test_every_file_that_a_part_covers_exists(root: Path, nightly: SimpleNamespace) -> None:
    assert [path for paths in nightly.PARTS.values() for path in paths if not (root / path).exists()] == []

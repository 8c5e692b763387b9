"""Read the files that a branch changes from a git repository, without checking anything out."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from agentgym_flow.errors import BadSetting

PLAIN = "100644"
"""The mode of a plain file."""

_SECONDS = 120.0


class FileChange(NamedTuple):
    """One file that a branch changes.

    Attributes:
        path: its path in the repository.
        status: A for added, M for modified, D for deleted, T for a changed type.
        mode: the mode of the new file, such as `PLAIN`.
        blob: the git object with its content.
    """

    path: str
    status: str
    mode: str
    blob: str


class Repository:
    """A git repository on disk.

    Args:
        path: a folder in it.

    Methods raise `BadSetting` if git fails.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def commit(self, name: str) -> str:
        """Return the hash of the commit named by a branch, a tag or a hash."""
        return self._git("rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}").decode("ascii").strip()

    def changes(self, base: str, head: str) -> list[FileChange]:
        """Return the files that `head` changes since it branched off `base`."""
        options = ["--raw", "-z", "--no-renames", "--no-abbrev", "--no-ext-diff", "--no-textconv"]
        out = self._git("diff", *options, f"{self.commit(base)}...{self.commit(head)}", "--")
        words = out.decode("utf-8", "surrogateescape").split("\0")
        found = []
        for about, path in zip(words[:-1:2], words[1::2], strict=True):
            _, mode, _, blob, status = about.split(" ")
            found.append(FileChange(path, status[0], mode, blob))
        return found

    def names(self, commit: str, folder: str) -> list[str]:
        """Return the paths of all files below a folder at a commit."""
        out = self._git("ls-tree", "-r", "-z", "--name-only", self.commit(commit), "--", f"{folder}/")
        return [name for name in out.decode("utf-8", "surrogateescape").split("\0") if name]

    def size(self, blob: str) -> int:
        """Return the size of an object in bytes."""
        return int(self._git("cat-file", "-s", blob))

    def read(self, blob: str) -> bytes:
        """Return the content of an object, given by its hash or `COMMIT:PATH`."""
        return self._git("cat-file", "blob", blob)

    def _git(self, *words: str) -> bytes:
        command: Sequence[str] = ["git", "-c", "core.quotePath=false", *words]
        try:
            done = subprocess.run(command, cwd=self._path, capture_output=True, timeout=_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BadSetting(f"git {words[0]} in {self._path}: {error}") from error
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip()
            raise BadSetting(f"git {words[0]} in {self._path}: {said:.500}")
        return done.stdout

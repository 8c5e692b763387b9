"""Decide in CI whether a branch may be merged: it must add one valid submission and change nothing else."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from agentgym_flow.errors import BadSetting, BadSubmission
from agentgym_flow.leaderboard.files import REFERENCE, ROOT, SEASONS, SITE, SUBMISSIONS, TRACKS, VERDICTS
from agentgym_flow.leaderboard.judge import judge
from agentgym_flow.leaderboard.reproduce import MakePolicy
from agentgym_flow.leaderboard.submission import MOST_BYTES
from agentgym_flow.leaderboard.verdict import SubmissionVerdict

_SUBMISSIONS, _VERDICTS, _SITE = (f"{ROOT}/{name}" for name in (SUBMISSIONS, VERDICTS, SITE))
_ENTRY = re.compile(rf"{_SUBMISSIONS}/([a-z0-9-]{{1,64}})/(20[0-9]{{2}}-[01][0-9]-[0-3][0-9]-[a-z0-9-]{{1,64}})/(.+)")
_MOST_FILES = 64


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision of CI about a branch.

    Attributes:
        verdict: the verdict on the submission; None if the branch has none, or is refused itself.
        refused: why the branch itself is refused; empty if it is not.
    """

    verdict: SubmissionVerdict | None = None
    refused: str = ""

    @property
    def ok(self) -> bool:
        """Whether the leaderboards allow the branch to be merged."""
        return not self.refused and (self.verdict is None or self.verdict.accepted)

    def summary(self) -> str:
        """Return the decision in Markdown."""
        if self.refused:
            return f"**Refused.** {self.refused}\n"
        if self.verdict is None:
            return "This branch changes no submission.\n"
        again = " It plays other tasks after the merge." if self.verdict.accepted and self.verdict.rehearsal else ""
        return f"{self.verdict.summary()}{again}\n"


def decide(
    repository: Repository,
    base: str,
    head: str,
    *,
    data: Mapping[str, str | Path] | None = None,
    jobs: int | None = None,
    make_policy: MakePolicy | None = None,
    require_sandbox: bool = False,
) -> Decision:
    """Check the changes from `base` to `head`. The tracks are read from `base`.

    Submitted weights play the tasks of a rehearsal, because the secret is used only after the merge.

    Raises:
        BadSetting: a commit does not exist.
        BadTrack, BadData, MissingExtra, SandboxUnavailable: see `judge`.
    """
    changes = repository.changes(base, head)
    if not any(change.path.startswith((f"{_SUBMISSIONS}/", f"{_VERDICTS}/", f"{_SITE}/")) for change in changes):
        return Decision()
    try:
        place, blobs = _one_new_entry(repository, base, changes)
    except BadSubmission as error:
        return Decision(refused=str(error))
    with TemporaryDirectory(prefix="agentgym_flow-") as name:
        root, folder = Path(name), Path(name, "submission")
        (folder / "policy").mkdir(parents=True)
        for file, blob in blobs.items():
            (folder / file).write_bytes(repository.read(blob))
        commit = repository.commit(base)
        for part in (TRACKS, SEASONS):
            (root / part).mkdir()
            for path in repository.names(commit, f"{ROOT}/{part}"):
                if path.endswith(".json"):
                    (root / part / Path(path).name).write_bytes(repository.read(f"{commit}:{path}"))
        verdict = judge(
            folder, place, root, data=data, jobs=jobs, make_policy=make_policy, require_sandbox=require_sandbox
        )
        return Decision(verdict)


def check_name(name: str) -> None:
    """Raise `BadSubmission` if the name is reserved for reference entries, which `judge` also judges."""
    if name.startswith(REFERENCE):
        raise BadSubmission(f"names that begin with {REFERENCE!r} are for policies of the package: choose another")


def _one_new_entry(
    repository: Repository, base: str, changes: list[FileChange]
) -> tuple[tuple[str, str], dict[str, str]]:
    """Return track and folder of the only added entry, and its files as name -> blob. Raises `BadSubmission`."""
    if len(changes) > _MOST_FILES:
        raise BadSubmission(f"the branch changes {len(changes)} files; a submission adds at most {len(MOST_BYTES)}")
    places: set[tuple[str, str]] = set()
    blobs: dict[str, str] = {}
    for change in changes:
        found = _ENTRY.fullmatch(change.path)
        if found is None:
            written_by_ci = change.path.startswith((f"{_VERDICTS}/", f"{_SITE}/"))
            advice = "CI alone writes it" if written_by_ci else f"a submission only adds files below {_SUBMISSIONS}/"
            raise BadSubmission(f"the branch also changes {change.path!r:.200}: {advice}")
        track, entry, file = found.groups()
        places.add((track, entry))
        check_name(entry[11:])
        if change.status != "A":
            raise BadSubmission(f"{change.path:.200} already exists: entries do not change, so add a new one")
        if change.mode != PLAIN:
            raise BadSubmission(f"{change.path:.200} must be a plain file, and has the mode {change.mode}")
        if file not in MOST_BYTES:
            raise BadSubmission(f"{file!r:.80} is not a file of a submission. A submission has {', '.join(MOST_BYTES)}")
        if (size := repository.size(change.blob)) > MOST_BYTES[file]:
            raise BadSubmission(f"{file} has {size:,} bytes, more than {MOST_BYTES[file]:,}")
        blobs[file] = change.blob
    if len(places) != 1:
        raise BadSubmission(f"the branch adds {len(places)} entries: open a pull request for each")
    place = places.pop()
    if repository.names(base, f"{_SUBMISSIONS}/{place[0]}/{place[1]}"):
        raise BadSubmission(f"{place[0]}/{place[1]} already exists: entries do not change, so add a new one")
    return place, blobs


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

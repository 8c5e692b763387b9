"""Decide in CI whether a branch may be merged: it must add one valid submission and change nothing else."""

from __future__ import annotations

import io
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, Self

from agentgym_flow._util.values import typed
from agentgym_flow.errors import BadData, BadSetting, BadSubmission
from agentgym_flow.leaderboard.files import REFERENCE, ROOT, SEASONS, SITE, SUBMISSIONS, TRACKS, VERDICTS, Account
from agentgym_flow.leaderboard.judge import judge
from agentgym_flow.leaderboard.reproduce import MakePolicy
from agentgym_flow.leaderboard.season import Season, season_file
from agentgym_flow.leaderboard.store import STORE
from agentgym_flow.leaderboard.submission import MOST_BYTES
from agentgym_flow.leaderboard.track import Track
from agentgym_flow.leaderboard.verdict import SubmissionVerdict, verdict_files

_SUBMISSIONS, _VERDICTS, _SITE = (f"{ROOT}/{name}" for name in (SUBMISSIONS, VERDICTS, SITE))
_ENTRY = re.compile(rf"{_SUBMISSIONS}/([a-z0-9-]{{1,64}})/(20[0-9]{{2}}-[01][0-9]-[0-3][0-9]-[a-z0-9-]{{1,64}})/(.+)")
_MOST_FILES = 64


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision of CI about a branch.

    Attributes:
        verdict: the verdict on the submission; None if the branch has none, or is refused itself.
        refused: why the branch itself is refused; empty if it is not.
        redrawn: whether submitted weights will play other tasks after the merge.
    """

    verdict: SubmissionVerdict | None = None
    refused: str = ""
    redrawn: bool = False

    @classmethod
    def on(cls, verdict: SubmissionVerdict, root: Path) -> Self:
        """Return the decision that follows from a verdict of a rehearsal; `root` is the folder of the leaderboards."""
        season = Track.read(root / TRACKS / f"{verdict.track}.json").season if verdict.season else ""
        return cls(verdict, redrawn=bool(season) and not Season.read(season_file(root, season)).secret)

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
        again = ""
        if self.verdict.accepted and self.verdict.season:
            again = " These tasks are public, and they are those of the board."
            if self.redrawn:
                again = " After the merge it plays other tasks, which the season's secret draws."
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
    account: str | None = None,
    today: date | None = None,
) -> Decision:
    """Check what merging `head` into `base` changes. Tracks, seasons and earlier verdicts are read from `base`.

    Submitted weights play the tasks of a rehearsal, because the secret is used only after the merge.

    Args:
        repository: the repository.
        base: the commit to merge into.
        head: the commit to merge.
        data: paths of official data, by name.
        jobs: the number of processes for replay; None for one per core.
        make_policy: see `judge`.
        require_sandbox: see `judge`.
        account: the account that opened the pull request; None if it is not known, so that it is not checked.
        today: the day of the check; None for the current one, in UTC.

    Raises:
        BadSetting: a commit does not exist, or git is older than 2.38.
        BadTrack, BadSeason, MissingExtra, SandboxFailed, SandboxUnavailable: see `judge`.
        BadSubmission: a verdict in `base` is damaged.
    """
    forks = repository.forks(base, head)
    touched = [change for fork in forks or [base] for change in repository.changes(fork, head)]
    if not any(change.path.startswith((f"{_SUBMISSIONS}/", f"{_VERDICTS}/", f"{_SITE}/")) for change in touched):
        return Decision()
    try:
        if len(forks) != 1:
            raise BadSubmission(
                f"the branch and its base have {len(forks)} merge bases instead of one, so a merge could undo other "
                "changes: make a new branch from the current main, and add the entry's folder there"
            )
        place, blobs = _one_new_entry(repository, base, repository.changes(base, repository.merged(base, head)))
        _check_date(place[1][:10], today or datetime.now(UTC).date())
    except BadSubmission as error:
        return Decision(refused=str(error))
    with TemporaryDirectory(prefix="agentgym_flow-") as name:
        root, folder = Path(name), Path(name, "submission")
        (folder / "policy").mkdir(parents=True)
        for file, blob in blobs.items():
            (folder / file).write_bytes(repository.read(blob))
        for path, content in repository.files(base, [f"{ROOT}/{part}" for part in (TRACKS, SEASONS, VERDICTS, STORE)]):
            copy = root / Path(path).relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(content)
        before = [SubmissionVerdict.read(file) for file in verdict_files(root)]
        try:
            verdict = judge(
                folder,
                place,
                root,
                data=data,
                jobs=jobs,
                make_policy=make_policy,
                require_sandbox=require_sandbox,
                account=account,
                before=before,
            )
        except BadData as error:  # CI has no official data
            return Decision(
                refused=f"{error}. Whoever has this data checks and merges the entry: nothing is wrong with it"
            )
        return Decision.on(verdict, root)


def checked_account(name: str) -> str:
    """Return the name of an account in lower case. Raises `BadSetting` if it is none."""
    return typed(name.lower(), Account, BadSetting, f"account {name!r:.80}")


def check_name(name: str) -> None:
    """Raise `BadSubmission` if the name is reserved for reference entries, which `judge` also judges."""
    if name.startswith(REFERENCE):
        raise BadSubmission(f"names that begin with {REFERENCE!r} are for policies of the package: choose another")


MOST_DAYS = 7
"""The largest age of an entry in days, when its branch is checked."""


def _check_date(day: str, today: date) -> None:
    """Raise `BadSubmission` if the date of an entry is in the future, beyond all time zones, or long ago."""
    try:
        apart = (today - date.fromisoformat(day)).days
    except ValueError:
        raise BadSubmission(f"there is no day {day}: name the folder after the day of the submission") from None
    if not -1 <= apart <= MOST_DAYS:
        raise BadSubmission(
            f"the entry is dated {day}, and today is {today}: an entry has the date of its submission, so rename the "
            "folder and correct the date in submission.yaml"
        )


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
            raise BadSubmission(f"{change.path!r:.200} already exists: entries do not change, so add a new one")
        if change.mode != PLAIN:
            raise BadSubmission(f"{change.path!r:.200} must be a plain file, and has the mode {change.mode}")
        if file not in MOST_BYTES:
            raise BadSubmission(f"{file!r:.80} is not a file of a submission. A submission has {', '.join(MOST_BYTES)}")
        if (size := repository.size(change.blob)) > MOST_BYTES[file]:
            raise BadSubmission(f"{file} has {size:,} bytes, more than {MOST_BYTES[file]:,}")
        blobs[file] = change.blob
    if len(places) != 1:
        raise BadSubmission(f"the branch adds {len(places)} entries instead of one: open a pull request for each")
    place = places.pop()
    if repository.names(base, [f"{_SUBMISSIONS}/{place[0]}/{place[1]}"]):
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


class Merge(NamedTuple):
    """A merge: its time in UTC as in `SubmissionVerdict.merged`, its commit, and the account that it names."""

    when: str
    commit: str
    account: str


def utc(seconds: float) -> str:
    """Return a time in seconds since 1970 as in `SubmissionVerdict.merged`."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Repository:
    """A git repository on disk.

    Args:
        path: a folder in it.

    Methods raise `BadSetting` if git fails.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def is_one(self) -> bool:
        """Return whether the folder is in a repository, and git is installed."""
        try:
            return self._git("rev-parse", "--is-inside-work-tree").strip() == b"true"
        except BadSetting:
            return False

    def commit(self, name: str) -> str:
        """Return the hash of the commit named by a branch, a tag or a hash."""
        return self._git("rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}").decode("ascii").strip()

    def forks(self, base: str, head: str) -> list[str]:
        """Return the merge bases of two commits: where `head` branched off `base`. There are none without a history."""
        out = self._git("merge-base", "--all", self.commit(base), self.commit(head), no=1)
        return out.decode("ascii").split()

    def merged(self, base: str, head: str) -> str:
        """Return the tree that merging `head` into `base` gives. Raises `BadSubmission` if there are conflicts."""
        try:
            out = self._git("merge-tree", "--write-tree", "-z", self.commit(base), self.commit(head), no=1)
        except BadSetting as error:
            if "usage:" in str(error):
                raise BadSetting("this check needs `git merge-tree --write-tree`: install git 2.38 or newer") from None
            raise
        tree, _, more = out.decode("utf-8", "surrogateescape").partition("\0")
        if more:
            raise BadSubmission(
                "the branch cannot be merged without conflicts: make a new branch from the current main"
            )
        return tree

    def merge_of(self, file: Path, account: str) -> Merge | None:
        """Return the merge that has added a file; None if it is not in the history.

        The workflow writes `Account: NAME` as the first line below the subject. Without this line it is `account`.

        Raises `BadSetting` if the repository is a shallow clone.
        """
        if self._git("rev-parse", "--is-shallow-repository").strip() == b"true":
            raise BadSetting("the history is needed to know who merged an entry when: fetch it, git fetch --unshallow")
        form = "%ct%n%H%n%b"
        path = str(file.resolve())
        out = self._git("log", "-1", "--first-parent", "--diff-filter=A", f"--format={form}", "HEAD", "--", path)
        if not out.strip():
            return None
        seconds, commit, *body = out.decode("utf-8", "replace").splitlines()
        named = re.match(r"Account: (\S+)$", body[0]) if body else None
        return Merge(utc(float(seconds)), commit, checked_account(named[1]) if named else account)

    def changes(self, base: str, head: str) -> list[FileChange]:
        """Return the files that differ from one commit or tree to another."""
        options = ["--raw", "-z", "--no-renames", "--no-abbrev", "--no-ext-diff", "--no-textconv"]
        out = self._git("diff", *options, "--end-of-options", base, head, "--")
        words = out.decode("utf-8", "surrogateescape").split("\0")
        found = []
        for about, path in zip(words[:-1:2], words[1::2], strict=True):
            _, mode, _, blob, status = about.split(" ")
            found.append(FileChange(path, status[0], mode, blob))
        return found

    def names(self, commit: str, places: Sequence[str]) -> list[str]:
        """Return the paths of all files at a commit that are, or are below, one of some places."""
        out = self._git("ls-tree", "-r", "-z", "--name-only", self.commit(commit), "--", *places)
        return [name for name in out.decode("utf-8", "surrogateescape").split("\0") if name]

    def files(self, commit: str, places: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        """Yield path and content of the files that `names` returns."""
        names = self.names(commit, places)
        asked = "".join(f"{self.commit(commit)}:{name}\n" for name in names)
        out = io.BytesIO(self._git("cat-file", "--batch", given=asked.encode("utf-8", "surrogateescape")))
        for name in names:
            _, _, size = out.readline().split()
            yield name, out.read(int(size) + 1)[:-1]

    def size(self, blob: str) -> int:
        """Return the size of an object in bytes."""
        return int(self._git("cat-file", "-s", blob))

    def read(self, blob: str) -> bytes:
        """Return the content of an object."""
        return self._git("cat-file", "blob", blob)

    def _git(self, *words: str, given: bytes = b"", no: int = 0) -> bytes:
        """Return the output of git for the input `given`; `no` is a status besides 0 that is an answer."""
        command: Sequence[str] = ["git", "-c", "core.quotePath=false", *words]
        try:
            done = subprocess.run(
                command, cwd=self._path, input=given, capture_output=True, timeout=_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BadSetting(f"git {words[0]} in {self._path}: {error}") from error
        if done.returncode not in (0, no):
            said = done.stderr.decode("utf-8", "replace").strip()
            raise BadSetting(f"git {words[0]} in {self._path}: {said:.500}")
        return done.stdout

"""What is done with merged entries: compute missing verdicts, compare two entries, and audit a season.

Also the JSON Schemas of all files of the leaderboards, for programs that write them.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from agentgym_flow.envs import make_text_env
from agentgym_flow.episodes import LoggedEpisode, write_log
from agentgym_flow.errors import AgentGymFlowError, BadData, BadSetting, BadSubmission, MissingExtra, NotPublished
from agentgym_flow.leaderboard.ci import Merge, Repository, utc
from agentgym_flow.leaderboard.comparison import Comparison, compare
from agentgym_flow.leaderboard.files import DEFINITIONS, SUBMISSIONS, TRACKS, VERDICTS
from agentgym_flow.leaderboard.judge import judge
from agentgym_flow.leaderboard.reproduce import MakePolicy, TrainingSettings, season_of
from agentgym_flow.leaderboard.season import Definition, Season, TrackName, definitions, season_file
from agentgym_flow.leaderboard.store import StorePlace, complete
from agentgym_flow.leaderboard.submission import ABOUT, TRAINING, Folder, Submission
from agentgym_flow.leaderboard.track import Track, TrackTask
from agentgym_flow.leaderboard.verdict import ADDED, SubmissionVerdict, verdict_files
from agentgym_flow.play import rollout
from agentgym_flow.play.groups import EpisodeSpec

SCHEMAS: Mapping[str, Any] = {
    "season-1": Season,
    "store-1": StorePlace,
    "submission-1": Submission,
    "track-1": Track,
    "tracks-1": dict[TrackName, Definition],
    "training-1": TrainingSettings,
    "verdict-1": SubmissionVerdict,
}
"""The types of the files of the leaderboards, by the names of their JSON Schemas in the folder `schemas`."""


def json_schema(name: str) -> str:
    """Return the JSON Schema of one of `SCHEMAS`, as in its file."""
    schema = msgspec.json.schema(SCHEMAS[name])
    if name == "verdict-1":  # fields have defaults only while a verdict is being made
        needed = [name for name in SubmissionVerdict.__struct_fields__ if name not in ADDED]
        schema["$defs"]["SubmissionVerdict"]["required"] = needed
    draft = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return json.dumps({**draft, **schema}, indent=1) + "\n"


def entries(root: Path) -> list[Path]:
    """Return the folders of all submissions below `root`, in order. A folder without files is none."""
    found = (root / SUBMISSIONS).glob("*/*")
    return sorted(path for path in found if any(file.is_file() for file in path.rglob("*")))


def verdict_file(root: Path, entry: Path) -> Path:
    """Return the file with the verdict on an entry."""
    return root / VERDICTS / entry.parent.name / f"{entry.name}.json"


def publish(
    root: Path,
    *,
    data: Mapping[str, str | Path] | None = None,
    jobs: int | None = None,
    make_policy: MakePolicy | None = None,
    secrets: Mapping[str, str] | None = None,
    account: str = "",
    require_sandbox: bool = False,
) -> Iterator[SubmissionVerdict]:
    """Check each entry without a verdict, write its verdict, and yield it, in the order of their merges.

    Existing verdicts do not change. Beside the verdict on weights, a log keeps some of the episodes that they have
    played, for the site. What is wrong with one entry or one verdict does not keep the others from being
    published.

    Args:
        root: the folder of the leaderboards.
        data: paths of official data, by name.
        jobs: the number of processes for replay; None for one per core.
        make_policy: makes policies from submitted weights; None if PyTorch is not installed.
        secrets: season -> secret. Weights of a season whose secret is neither here nor revealed wait.
        account: the account of entries whose merge does not name one; empty for this project.
        require_sandbox: see `judge`.

    Raises `NotPublished` at the end if an entry has no verdict, or a verdict is damaged.
    """
    problems: list[str] = []
    before: list[SubmissionVerdict] = []
    for file in verdict_files(root):
        try:
            before.append(SubmissionVerdict.read(file))
        except BadSubmission as error:
            problems.append(f"{file}: {error}")
    waiting = [entry for entry in entries(root) if not verdict_file(root, entry).exists()]
    now = Merge(utc(time.time()), "", account)
    history = Repository(root) if waiting and Repository(root).is_one() else None
    merges: list[tuple[Merge, Path]] = []
    for entry in waiting:
        try:
            merges.append(((history and history.merge_of(entry / ABOUT, account)) or now, entry))
        except BadSetting as error:
            problems.append(f"{entry.parent.name}/{entry.name}: {error}")
    for merge, entry in sorted(merges):
        place = entry.parent.name, entry.name
        try:
            verdict = judge(
                entry,
                place,
                root,
                data=data,
                jobs=jobs,
                make_policy=make_policy,
                secrets=secrets or {},
                account=merge.account,
                before=before,
                require_sandbox=require_sandbox,
            )
        except Exception as error:  # whatever one entry does, the others are published
            problems.append(f"{'/'.join(place)}: {error or type(error).__name__}")
            # It keeps its name while it waits.
            before.append(SubmissionVerdict("/".join(place), account=merge.account, merged=merge.when))
            continue
        verdict = replace(verdict, merged=merge.when, commit=merge.commit)
        verdict.write(verdict_file(root, entry))
        before.append(verdict)
        yield verdict
    if make_policy is not None:
        for verdict in before:
            file = played_file(root / SUBMISSIONS / verdict.submission)
            if verdict.accepted and verdict.season and not file.exists():
                try:
                    _keep_played(root, verdict, make_policy)
                except AgentGymFlowError as error:
                    problems.append(f"{verdict.submission}: {error}")
    if problems:
        raise NotPublished("; ".join(problems))


MOST_EPISODES = 30
"""The largest number of episodes on the page of an entry."""


class EpisodeListing(NamedTuple):
    """A line of an entry's log: task, attempt, success, and whether it has recorded responses."""

    task: int
    attempt: int
    success: bool
    recorded: bool


def chosen(lines: Sequence[EpisodeListing], most: int = MOST_EPISODES) -> list[list[EpisodeListing]]:
    """Return the episodes to watch, by task. Up to half of them are from tasks with a failure.

    All attempts at a task stay together, unless they exceed `most`.
    """
    tasks: dict[int, list[EpisodeListing]] = {}
    for line in lines:
        tasks.setdefault(line.task, []).append(line)
    failed = [attempts for attempts in tasks.values() if not all(line.success for line in attempts)]
    solved = [attempts for attempts in tasks.values() if all(line.success for line in attempts)]
    kept: list[list[EpisodeListing]] = []

    def fill(room: int, waiting: list[list[EpisodeListing]]) -> None:
        while waiting and (left := room - sum(map(len, kept))) > 0:
            kept.append(waiting.pop(0)[:left])

    fill(most // 2, failed)
    fill(most, solved)
    fill(most, failed)
    return kept


def played_file(entry: Path) -> Path:
    """Return the log of the episodes that CI has played with an entry's weights, beside its verdict."""
    root = entry.parents[2]
    return verdict_file(root, entry).with_suffix(".jsonl.gz")


def _keep_played(root: Path, verdict: SubmissionVerdict, make_policy: MakePolicy) -> None:
    """Write the log of the episodes to watch of an accepted entry whose weights CI has played.

    The weights play these episodes again. Those that do not end as in the verdict, which can happen on a machine with
    other arithmetic, are left out. The log is empty if the weights cannot play, or if CI has trained them.
    """
    entry = root / SUBMISSIONS / verdict.submission
    track = Track.read(root / TRACKS / f"{verdict.track}.json")
    ends = {
        (row, attempt): (score, steps)
        for row, both in enumerate(zip(verdict.scores, verdict.steps, strict=True))
        for attempt, (score, steps) in enumerate(zip(*both, strict=True))
    }
    lines = [EpisodeListing(*place, score == 1, False) for place, (score, _) in ends.items()]
    specs = [EpisodeSpec(track.seed + one.task, one.task, one.attempt) for tries in chosen(lines) for one in tries]
    kept: list[LoggedEpisode] = []
    try:
        with complete(entry, root) as path:
            folder = Folder.read(path)
            policy, _ = (None, "") if TRAINING in folder.names else make_policy(folder, track)
        settings = {**track.env_settings(), "season": verdict.season}
        if policy is not None:
            for one in rollout(policy, lambda: make_text_env(track.env_id, **settings), specs, num_envs=len(specs)):
                score = float(one.success) if track.metric == "success" else one.score
                if ends[one.task, one.attempt] == (score, len(one.turns)):
                    kept.append(dataclasses.replace(LoggedEpisode.of(one).for_board(), meta=None))
    except (BadData, MissingExtra):  # of this machine, and not of the weights
        raise
    except AgentGymFlowError:
        kept = []
    write_log(played_file(entry), kept)


@dataclass(frozen=True)
class EntryComparison:
    """A comparison of two entries, and the tasks with the largest differences."""

    comparison: Comparison
    tasks: list[TrackTask]


def compared(root: Path, first: str, second: str, most: int = 20) -> EntryComparison:
    """Compare two entries, task by task if they have played the same tasks: those of the track, or equal fresh ones.

    Args:
        root: the folder of the leaderboards.
        first: `<track>/<date>-<name>`.
        second: another entry of the track.
        most: the largest number of tasks to name.

    Raises `BadSetting` if an entry does not exist or is not accepted, or the entries are of different tracks.
    """
    verdicts = _accepted(root, first), _accepted(root, second)
    tracks = {name.partition("/")[0] for name in (first, second)}
    if len(tracks) != 1:
        raise BadSetting(f"{first} and {second} are entries of different tracks")
    season = verdicts[0].season
    found = compare(verdicts[0].scores, verdicts[1].scores, most, paired=season == verdicts[1].season)
    track = Track.read(root / TRACKS / f"{tracks.pop()}.json")
    tasks = [TrackTask(one.task, "", "") if season else track.tasks[one.task] for one in found.tasks]
    return EntryComparison(found, tasks)


def _accepted(root: Path, name: str) -> SubmissionVerdict:
    file = verdict_file(root, root / SUBMISSIONS / name)
    if name.count("/") != 1 or ".." in name:
        raise BadSetting(f"{name!r:.120} is not an entry: name it TRACK/DATE-NAME")
    if not file.is_file():
        raise BadSetting(
            f"{name!r:.120} has no verdict in {root}: correct the name, or run `agentgym-flow leaderboard publish`"
        )
    verdict = SubmissionVerdict.read(file)
    if not verdict.accepted:
        raise BadSetting(f"{name} was refused, so it has no scores")
    return verdict


@dataclass(frozen=True)
class Audit:
    """One line per check, and the first problem; empty if there is none."""

    checked: list[str]
    problem: str = ""


def audit(root: Path, name: str) -> Audit:
    """Check the tracks of an open season, and the draws if its secret is revealed.

    Raises:
        BadSeason, BadTrack, BadSubmission: a file of the leaderboards is damaged.
    """
    season = Season.read(season_file(root, name))
    checked = [f"season {name}: seed and secret, where revealed, are those committed to"]
    if not season.seed:
        return Audit(checked)
    tracks = set()
    for track, definition in definitions(root).items():
        file = root / TRACKS / f"{track}-{name}.json"
        if not file.is_file():
            continue
        tracks.add(file.stem)
        there = Track.read(file)
        if there.data != definition.pinned:
            return Audit(checked, f"track {file.stem}: its official data is not that of {DEFINITIONS}")
        if not definition.here:
            checked.append(f"track {file.stem}: not checked, its official data is not here")
            continue
        try:
            made = definition.made(track, season)
        except BadData as error:
            checked.append(f"track {file.stem}: not checked, {error}")
            continue
        if there != made:
            return Audit(checked, f"track {file.stem}: the seed gives other tasks")
        checked.append(f"track {file.stem}: its tasks come from the seed")
    if not season.secret:
        return Audit(checked)
    drawn = 0
    for file in verdict_files(root):
        verdict = SubmissionVerdict.read(file)
        if verdict.track in tracks and verdict.season:
            drawn_from = verdict.drawn_from or verdict.submission_sha256
            ours = drawn_from in (verdict.weights_sha256, verdict.submission_sha256)
            if not ours or verdict.season != season_of(season.secret.encode("ascii"), drawn_from):
                return Audit(checked, f"{verdict.submission}: its tasks were not drawn with the secret")
            drawn += 1
    return Audit([*checked, f"{drawn} draws of fresh tasks come from the secret"])

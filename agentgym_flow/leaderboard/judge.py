"""Run all checks on a submission, from its files to its score, and report the check at which it fails."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from agentgym_flow.episodes import LogLimits
from agentgym_flow.errors import BadSubmission, BadTrack, MissingExtra
from agentgym_flow.leaderboard.attest import check_completions
from agentgym_flow.leaderboard.budget import MOST_SECONDS, within
from agentgym_flow.leaderboard.coverage import claims
from agentgym_flow.leaderboard.places import TRACKS
from agentgym_flow.leaderboard.reproduce import MakePolicy, fresh_track, played, season_of
from agentgym_flow.leaderboard.rules import check_rules
from agentgym_flow.leaderboard.season import FreshSeed, Season, season_file
from agentgym_flow.leaderboard.submission import ATTESTED, LOG, REPRODUCED, Folder, check_place
from agentgym_flow.leaderboard.track import Track
from agentgym_flow.leaderboard.verdict import DivergencePoint, Reason, SubmissionVerdict, scored
from agentgym_flow.replay import verify_log

MOST_UNPACKED = 256 << 20
"""The largest size of a log, uncompressed, in bytes."""


def judge(
    folder: Path,
    place: tuple[str, str],
    root: Path,
    *,
    data: Mapping[str, str | Path] | None = None,
    jobs: int | None = None,
    make_policy: MakePolicy | None = None,
    secret: str = "",
) -> SubmissionVerdict:
    """Return the verdict on the submission in a folder. Problems of the submission never raise.

    Args:
        folder: the folder with its files.
        place: the names of the track and of the folder in the repository.
        root: the folder with tracks and seasons.
        data: paths of official data, by name.
        jobs: the number of processes for replay; None for one per core.
        make_policy: makes policies from submitted weights; None if PyTorch is not installed.
        secret: the secret of the season, with which fresh tasks are drawn. Empty for a rehearsal.

    Raises:
        MissingExtra: weights are submitted, and `make_policy` is None.
        BadTrack, BadSeason: a file of the leaderboards is damaged.
        BadSetting: `secret` is not the secret of the season.
        BadData: the official data of the track is not on this machine.
    """
    verdict = SubmissionVerdict("/".join(place))
    check = "files"
    try:
        entry = Folder.read(folder)
        check_place(place, entry.about)
        verdict = replace(verdict, submission_sha256=entry.digest)
        check = "track"
        track = _track(root / TRACKS, entry.about.track)
        verdict = replace(verdict, track_sha256=track.digest)
        check = "rules"
        check_rules(entry, track)
        check = "coverage"
        limits = limits_of(track)
        said = claims(folder / LOG, track, limits)
        check = "steps"
        in_time = within(MOST_SECONDS, LOG)
        found = verify_log(folder / LOG, data, jobs=jobs, limits=limits, expect=track.episodes, on_line=in_time)
        if not found.ok:
            if found.divergences:
                line, first = found.divergences[0]
                verdict = replace(verdict, divergence=DivergencePoint(line, first.step, f"{first!s:.600}"))
            raise BadSubmission(f"{LOG}: {found.problems()[0]}")
        if entry.about.badge == ATTESTED:
            check = "completions"
            check_completions(folder / LOG, track, entry.about.prompt, limits, data)
        if entry.about.badge == REPRODUCED:
            check = "weights"
            if make_policy is None:
                raise MissingExtra.of("torch", "train")
            drawn = _drawn_with(root, track, secret)
            season = season_of(drawn.secret, entry.digest)
            policy, track = make_policy(entry, track), fresh_track(track, season)
            verdict, said = replace(verdict, season=season, rehearsal=drawn.public), played(policy, track)
        check = "score"
        verdict = scored(replace(verdict, badge=entry.about.badge), track, said)
        _check_bar(verdict, track)
    except BadSubmission as error:
        return replace(verdict, badge=None, reason=Reason(check, f"{error!s:.1000}"))
    return replace(verdict, accepted=True)


def limits_of(track: Track) -> LogLimits:
    """Return the limits on reading a log of a track."""
    return LogLimits(
        max_lines=track.episodes + 1,
        max_bytes=MOST_UNPACKED,
        max_line_bytes=1 << 22,
        max_actions=track.max_steps,
        max_action_length=1 << 17,
    )


def _drawn_with(root: Path, track: Track, secret: str) -> FreshSeed:
    if not track.season:
        return FreshSeed(secret.encode("utf-8"), public=not secret)
    return Season.read(season_file(root, track.season)).drawn_with(secret)


def _check_bar(verdict: SubmissionVerdict, track: Track) -> None:
    """Raise `BadSubmission` unless the lower end of the interval reaches the bar of the track."""
    assert verdict.score is not None
    if verdict.score.low < track.bar:
        raise BadSubmission(
            f"{track.metric} is {verdict.score.mean:.1%}, with {verdict.score.low:.1%} as the lower end of its 95 % "
            f"interval; track {track.name} lists entries from {track.bar:.1%}"
        )


def _track(tracks: Path, name: str) -> Track:
    path = tracks / f"{name}.json"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in tracks.glob("*.json")))
        raise BadSubmission(f"there is no track {name!r}; known: {known}")
    track = Track.read(path)
    if not track.tasks:
        raise BadTrack(f"track {name} has no tasks")
    return track

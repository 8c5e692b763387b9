"""Check a submission from its files to its score, and say at which check it fails."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from agentgym_flow.episode_log import LogLimits
from agentgym_flow.errors import BadSubmission, BadTrack, MissingExtra
from agentgym_flow.leaderboard.attest import check_completions
from agentgym_flow.leaderboard.coverage import claims
from agentgym_flow.leaderboard.reproduce import MakePolicy, fresh_track, played, season_of
from agentgym_flow.leaderboard.submission import ATTESTED, LOG, REPRODUCED, Folder, check_place
from agentgym_flow.leaderboard.track import Track
from agentgym_flow.leaderboard.verdict import Place, Reason, Verdict, scored
from agentgym_flow.replay import verify_log

MOST_UNPACKED = 256 << 20
"""The most bytes of a log, unpacked."""


def judge(
    folder: Path,
    place: tuple[str, str],
    tracks: Path,
    *,
    data: Mapping[str, str | Path] | None = None,
    jobs: int | None = None,
    make_policy: MakePolicy | None = None,
    secret: bytes = b"",
) -> Verdict:
    """Return the verdict on the submission in a folder; whatever is wrong with it is in there, and nothing is raised.

    Args:
        folder: where its files are.
        place: the track and the folder that it says it belongs to.
        tracks: the folder of the tracks.
        data: where official data is, by name.
        jobs: processes that step episodes again; None for one per core.
        make_policy: makes policies of submitted weights; None where that is not possible.
        secret: what the fresh tasks for submitted weights are drawn with; empty for a rehearsal.

    Raises:
        MissingExtra: weights are submitted, and there is no `make_policy`.
        BadTrack: the file of the track is damaged; the submission is not at fault.
        BadData: the official data of the track is not here.
    """
    verdict = Verdict("/".join(place))
    check = "files"
    try:
        entry = Folder.read(folder)
        check_place(place, entry.about)
        verdict = replace(verdict, submission_sha256=entry.digest)
        check = "track"
        track = _track(tracks, entry.about.track)
        verdict = replace(verdict, track_sha256=track.digest)
        check = "coverage"
        limits = limits_of(track)
        said = claims(folder / LOG, track, limits)
        check = "steps"
        found = verify_log(folder / LOG, data, jobs=jobs, limits=limits, expect=track.episodes)
        if not found.ok:
            if found.divergences:
                line, first = found.divergences[0]
                verdict = replace(verdict, divergence=Place(line, first.step, f"{first!s:.600}"))
            raise BadSubmission(f"{LOG}: {found.problems()[0]}")
        if entry.about.badge == ATTESTED:
            check = "completions"
            check_completions(folder / LOG, track, entry.about.prompt, limits, data)
        if entry.about.badge == REPRODUCED:
            check = "weights"
            if make_policy is None:
                raise MissingExtra.of("torch", "train")
            season = season_of(secret, entry.digest)
            policy, track = make_policy(entry, track), fresh_track(track, season)
            verdict, said = replace(verdict, season=season, rehearsal=not secret), played(policy, track)
    except BadSubmission as error:
        return replace(verdict, reason=Reason(check, f"{error!s:.1000}"))
    return scored(replace(verdict, accepted=True, badge=entry.about.badge), track, said)


def limits_of(track: Track) -> LogLimits:
    """Return what is read of the log of a track."""
    return LogLimits(
        max_lines=track.episodes + 1,
        max_bytes=MOST_UNPACKED,
        max_line_bytes=1 << 22,
        max_actions=track.max_steps,
        max_action_length=1 << 17,
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

"""Audit a season: check that its tracks and draws follow from the seed and the secret in its commitment."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from agentgym_flow.leaderboard.definitions import definitions
from agentgym_flow.leaderboard.places import TRACKS
from agentgym_flow.leaderboard.publish import entries, verdict_file
from agentgym_flow.leaderboard.reproduce import season_of
from agentgym_flow.leaderboard.season import Season, season_file
from agentgym_flow.leaderboard.track import Track
from agentgym_flow.leaderboard.verdict import SubmissionVerdict


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
    for definition in definitions(root):
        file = root / TRACKS / f"{definition.name}-{name}.json"
        if not file.is_file():
            continue
        tracks.add(file.stem)
        if not definition.here:
            checked.append(f"track {file.stem}: not checked, its official data is not here")
        elif Track.read(file) != definition.made(season):
            return Audit(checked, f"track {file.stem}: the seed gives other tasks")
        else:
            checked.append(f"track {file.stem}: its tasks come from the seed")
    if not season.secret:
        return Audit(checked)
    drawn = 0
    for folder in entries(root):
        file = verdict_file(root, folder)
        if folder.parent.name not in tracks or not file.is_file():
            continue
        verdict = SubmissionVerdict.read(file)
        if verdict.season:
            if verdict.season != season_of(season.secret.encode("ascii"), verdict.submission_sha256):
                return Audit(checked, f"{verdict.submission}: its tasks were not drawn with the secret")
            drawn += 1
    return Audit([*checked, f"{drawn} draws of fresh tasks come from the secret"])

"""The folders and files of the leaderboards, in a repository and on disk."""

from __future__ import annotations

from pathlib import Path

from agentgym_flow.errors import UnknownTrack

ROOT = "leaderboards"
"""The root folder of the leaderboards in the repository."""

SEASONS, TRACKS, SUBMISSIONS, VERDICTS, SITE = "seasons", "tracks", "submissions", "verdicts", "site"
"""The folders below the root."""

DEFINITIONS = "tracks.toml"
"""The file below the root that defines the tracks of every season."""

REFERENCE = "reference-"
"""The prefix of the names of reference entries, which are not ranked."""


def track_file(name: str, root: Path = Path(ROOT)) -> Path:
    """Return the file of a track, given by its path or its name. Raises `UnknownTrack`."""
    if name.endswith(".json") and Path(name).is_file():
        return Path(name)
    file = root / TRACKS / f"{name}.json"
    if "/" in name or not file.is_file():
        known = sorted(one.stem for one in (root / TRACKS).glob("*.json"))
        raise UnknownTrack.among(name, known, f"Tracks are files in {root / TRACKS}; a path to one works as well.")
    return file

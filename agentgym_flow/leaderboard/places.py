"""Where the parts of the boards are, in a repository and on disk."""

from __future__ import annotations

from pathlib import Path

from agentgym_flow.errors import UnknownTrack

ROOT = "leaderboards"
"""The folder of the repository with seasons, tracks, submissions, verdicts and the site."""

SEASONS, TRACKS, SUBMISSIONS, VERDICTS, SITE = "seasons", "tracks", "submissions", "verdicts", "site"
"""The folders in it."""

DEFINITIONS = "tracks.toml"
"""The file in it that says what tracks a season has."""


REFERENCE = "reference-"
"""How the names of entries begin that are there for reference: they are not ranked."""


def track_file(name: str, root: Path = Path(ROOT)) -> Path:
    """Return the file of a track: a path, or a name in the folder of the boards. Raises `UnknownTrack`."""
    if name.endswith(".json") and Path(name).is_file():
        return Path(name)
    file = root / TRACKS / f"{name}.json"
    if "/" in name or not file.is_file():
        known = sorted(one.stem for one in (root / TRACKS).glob("*.json"))
        raise UnknownTrack.among(name, known, f"Tracks are files in {root / TRACKS}; a path to one works as well.")
    return file

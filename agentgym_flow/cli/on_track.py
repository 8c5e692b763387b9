"""`agentgym-flow evaluate --track`: play the tasks of a track, and write the log and the result into one folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from agentgym_flow.errors import BadSetting
from agentgym_flow.leaderboard.places import track_file
from agentgym_flow.leaderboard.submission import LOG
from agentgym_flow.leaderboard.submit import write_evaluation
from agentgym_flow.leaderboard.track import Track

_OF_TRACK = ("env", "split", "episodes", "attempts", "task_type", "seed", "env_arg", "dataset", "log")


@dataclass(frozen=True)
class OnTrack:
    """The tasks of an evaluation on a track, and its output folder.

    Attributes:
        track: the track.
        folder: the folder for the log and the result.
        env_kwargs: the arguments of the environment.
    """

    track: Track
    folder: Path
    env_kwargs: dict[str, Any]

    @property
    def log(self) -> Path:
        """The file of the log."""
        return self.folder / LOG

    @property
    def episodes(self) -> int:
        """The number of tasks."""
        return len(self.track.tasks)

    def write(self, result: dict[str, Any]) -> None:
        """Write the result beside the log."""
        write_evaluation(self.folder, self.track.name, result)


def on_track(context: typer.Context, name: str, out: Path | None, data: str | None) -> OnTrack:
    """Return the evaluation that `--track` and `--out` describe.

    Raises:
        BadSetting: an option sets what the track already fixes, or `--out` is missing.
        UnknownTrack, BadTrack, BadData: the track does not exist, or its tasks or data differ from those installed.
    """
    for other in _OF_TRACK:
        source = context.get_parameter_source(other)
        if source is not None and source.name == "COMMANDLINE":
            given = "ENV" if other == "env" else "--" + other.replace("_", "-")
            raise BadSetting(f"--track sets the episodes and the output files: leave {given} out")
    if out is None:
        raise BadSetting("--track needs --out, the folder for the log and the result")
    track = Track.read(track_file(name))
    where = dict.fromkeys(track.data, data) if data is not None else None
    track.check(where)
    settings = {key: value for key, value in track.env_settings(where).items() if key != "split"}
    out.mkdir(parents=True, exist_ok=True)
    return OnTrack(track, out, settings)

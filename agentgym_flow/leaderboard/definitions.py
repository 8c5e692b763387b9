"""The definitions of tracks, from one TOML file. A season adds the tasks."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from agentgym_flow import data as registry
from agentgym_flow.errors import BadTrack
from agentgym_flow.leaderboard import schemas
from agentgym_flow.leaderboard.places import DEFINITIONS
from agentgym_flow.leaderboard.season import Season
from agentgym_flow.leaderboard.track import Track, make_track


@dataclass(frozen=True, slots=True)
class Definition:
    """A track without tasks. The fields are those of the schema `tracks-1.json`.

    Attributes:
        name: the name of the track, without the season.
        title: one line for the board.
        env_id: the environment, such as `agentgym_flow/Sokoban-v0`.
        tasks: the number of tasks from the split; None for all.
        kwargs: arguments of the environment.
        data: the name under which official data must be registered; empty for generated tasks.
        split, attempts, rules, prompts, metric, bar, core_seconds: see `Track`.
    """

    name: str
    title: str
    env_id: str
    tasks: int | None = None
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    data: str = ""
    split: str = "test"
    attempts: int = 1
    rules: str = "open"
    prompts: tuple[str, ...] = ("compact", "choice", "text")
    metric: str = "success"
    bar: float = 0.0
    core_seconds: float = 0.0

    @property
    def here(self) -> bool:
        """Whether its tasks can be created on this machine."""
        return not self.data or registry.place(self.data) is not None

    def made(self, season: Season) -> Track:
        """Return the track of a season. Raises `BadTrack` or `BadData`."""
        drawn = {"data": self.data} if self.data else {"season": season.seed}
        return make_track(
            self.env_id,
            f"{self.name}-{season.name}",
            self.title,
            season=season.name,
            tasks=self.tasks,
            kwargs={**self.kwargs, **drawn},
            split=self.split,
            attempts=self.attempts,
            rules=self.rules,
            prompts=self.prompts,
            metric=self.metric,
            bar=self.bar,
            core_seconds=self.core_seconds,
        )

    @classmethod
    def _of(cls, name: str, value: Mapping[str, Any]) -> Self:
        made: dict[str, Any] = {key: tuple(one) if key == "prompts" else one for key, one in value.items()}
        return cls(name, **made)


def definitions(root: Path) -> list[Definition]:
    """Return the definitions in the file of the leaderboards; none without a file. Raises `BadTrack`."""
    file = root / DEFINITIONS
    if not file.is_file():
        return []
    try:
        value = tomllib.loads(file.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadTrack(f"{file.name}: not TOML ({error})") from None
    schemas.check("tracks-1", value, BadTrack, file.name)
    return [Definition._of(name, one) for name, one in value.items()]


def made_tracks(root: Path, season: Season) -> Iterator[tuple[Definition, Track | None]]:
    """Yield each definition with its track of an open season; None if its official data is not on this machine.

    Raises `BadTrack` or `BadData`.
    """
    if not season.seed:
        raise BadTrack(f"season {season.name} is not open: its seed is not revealed yet")
    for definition in definitions(root):
        yield definition, definition.made(season) if definition.here else None

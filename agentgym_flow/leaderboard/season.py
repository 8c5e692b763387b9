"""A season of the leaderboards, its commitment to two random numbers, and the definitions of its tracks.

Before a season opens, its file contains the SHA-256 of both numbers. The *seed* is revealed when the season opens. It
generates the task lists of the tracks, so training on them before is impossible. The *secret* is revealed when the
season closes. Until then it draws fresh tasks for submitted weights; afterwards, anyone can check these draws.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

from agentgym_flow import data as registry
from agentgym_flow._util.files import write_atomically
from agentgym_flow._util.values import decode_file
from agentgym_flow.errors import BadSeason, BadSetting, BadTrack
from agentgym_flow.leaderboard.files import DEFINITIONS, SEASONS, check_schema
from agentgym_flow.leaderboard.track import Track, make_track

SCHEMA = "agentgym_flow.season/1"
"""The `schema` of the file of a season."""


class FreshSeed(NamedTuple):
    """The secret that draws fresh tasks, and whether it is public."""

    secret: bytes
    public: bool


@dataclass(frozen=True, slots=True)
class Season:
    """The file of a season. Its fields are those of the schema `season-1.json`.

    Attributes:
        schema: `SCHEMA`.
        name: the name, such as `s1`; also the name of its file.
        opens: the first day, year-month-day.
        closes: the last day.
        seed_sha256: the SHA-256 of the seed (64 hex digits, as ASCII).
        secret_sha256: the SHA-256 of the secret (64 hex digits, as ASCII).
        seed: the seed; empty until the season opens.
        secret: the secret; empty until the season closes.
    """

    schema: str
    name: str
    opens: str
    closes: str
    seed_sha256: str
    secret_sha256: str
    seed: str = ""
    secret: str = ""

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the season in a file. Raises `BadSeason` if it cannot be read or is inconsistent."""
        try:
            raw = path.read_bytes()
        except OSError as error:
            raise BadSeason(f"{path.name} cannot be read ({error.strerror})") from None
        value = decode_file(raw, BadSeason, path.name)
        check_schema("season-1", value, BadSeason, path.name)
        season = cls(**value)
        if season.name != path.stem:
            raise BadSeason(f"{path.name}: the season is called {season.name!r}, so its file must have this name")
        for what in ("seed", "secret"):
            shown = getattr(season, what)
            if shown and _sha256(shown) != getattr(season, f"{what}_sha256"):
                raise BadSeason(f"{path.name}: the {what} is not the one that was committed to")
        if season.secret and not season.seed:
            raise BadSeason(f"{path.name}: the secret is revealed, and the seed is not")
        return season

    def write(self, path: Path) -> None:
        """Write the season."""
        with write_atomically(path) as partial:
            partial.write_text(json.dumps(asdict(self), indent=1) + "\n", "utf-8")

    def opened(self, seed: str) -> Season:
        """Return the season with its seed revealed. Raises `BadSeason` if this is not its seed."""
        return self._revealed("seed", seed)

    def closed(self, secret: str) -> Season:
        """Return the season with its secret revealed. Raises `BadSeason` if this is not its secret."""
        return self._revealed("secret", secret)

    def drawn_with(self, given: str) -> FreshSeed:
        """Return the secret that draws fresh tasks: the given or the revealed one.

        Without either, the draw is a rehearsal with public tasks. Raises `BadSetting` if `given` is not the secret of
        this season.
        """
        if given and _sha256(given) != self.secret_sha256:
            raise BadSetting(f"the given secret is not that of season {self.name}")
        return FreshSeed((given or self.secret).encode("ascii"), public=bool(self.secret) or not given)

    def _revealed(self, what: str, value: str) -> Season:
        if _sha256(value) != getattr(self, f"{what}_sha256"):
            raise BadSeason(f"season {self.name}: this is not the {what} that was committed to")
        return replace(self, **{what: value})


def new_season(name: str, opens: str, closes: str) -> tuple[Season, str, str]:
    """Return a new season with its commitment, its seed and its secret."""
    seed, secret = secrets.token_hex(32), secrets.token_hex(32)
    season = Season(SCHEMA, name, opens, closes, _sha256(seed), _sha256(secret))
    check_schema("season-1", asdict(season), BadSeason, f"season {name}")
    return season, seed, secret


def season_file(root: Path, name: str) -> Path:
    """Return the file of a season."""
    return root / SEASONS / f"{name}.json"


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


@dataclass(frozen=True, slots=True)
class Definition:
    """A track without tasks, as in the file `tracks.toml`, whose schema is `tracks-1.json`.

    Attributes:
        name: the name of the track, without the season.
        title: one line for the board.
        env_id: the environment, such as `agentgym_flow/Sokoban-v0`.
        data: the name under which official data must be registered; empty for generated tasks.
        split: the split.
        kwargs: arguments of the environment.
        others: further arguments of `make_track`.
    """

    name: str
    title: str
    env_id: str
    data: str
    split: str
    kwargs: Mapping[str, Any]
    others: Mapping[str, Any]

    @property
    def here(self) -> bool:
        """Whether its tasks can be created on this machine."""
        return not self.data or registry.place(self.data) is not None

    def made(self, season: Season) -> Track:
        """Return the track of a season. Raises `BadTrack` or `BadData`."""
        drawn = {"data": self.data} if self.data else {"season": season.seed}
        kwargs, name = {**self.kwargs, **drawn}, f"{self.name}-{season.name}"
        return make_track(
            self.env_id, name, self.title, season=season.name, kwargs=kwargs, split=self.split, **self.others
        )


def definitions(root: Path) -> list[Definition]:
    """Return the definitions in the file of the leaderboards; none without a file. Raises `BadTrack`."""
    file = root / DEFINITIONS
    if not file.is_file():
        return []
    try:
        value = tomllib.loads(file.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadTrack(f"{file.name}: not TOML ({error})") from None
    check_schema("tracks-1", value, BadTrack, file.name)
    defaults = {"data": "", "split": "test", "kwargs": {}}
    found = []
    for name, one in value.items():
        own = {key: one.pop(key, default) for key, default in defaults.items()}
        found.append(Definition(name, one.pop("title"), one.pop("env_id"), **own, others=one))
    return found


def made_tracks(root: Path, season: Season) -> Iterator[tuple[Definition, Track | None]]:
    """Yield each definition with its track of an open season; None if its official data is not on this machine.

    Raises `BadTrack` or `BadData`.
    """
    if not season.seed:
        raise BadTrack(f"season {season.name} is not open: its seed is not revealed yet")
    for definition in definitions(root):
        yield definition, definition.made(season) if definition.here else None

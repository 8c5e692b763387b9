"""A season of the leaderboards, its commitment to two random numbers, and the definitions of its tracks.

Before a season opens, its file contains the SHA-256 of both numbers. The *seed* is revealed when the season opens. It
generates the task lists of the tracks, so training on them before is impossible. The *secret* is revealed when the
season closes. Until then it draws fresh tasks for submitted weights; afterwards, anyone can check these draws. The
first draws of season s0 were made from the digests of all files, later ones are made from those of the weights.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

from msgspec import Meta, field
from msgspec.structs import asdict, replace

from agentgym_flow import data as registry
from agentgym_flow._util.files import write_atomically
from agentgym_flow._util.values import decode_file, typed
from agentgym_flow.envs import make_text_env
from agentgym_flow.errors import AgentGymFlowError, BadData, BadSeason, BadTrack
from agentgym_flow.leaderboard.files import (
    DEFINITIONS,
    SEASONS,
    BoardRecord,
    CoreSeconds,
    Day,
    Digest,
    DigestOrNone,
    Share,
    Text,
    whole,
)
from agentgym_flow.leaderboard.track import Counts, Metric, Split, Track, make_track

SCHEMA = "agentgym_flow.season/1"
"""The `schema` of the file of a season."""


class FreshSeed(NamedTuple):
    """The secret that draws fresh tasks, and whether it is public."""

    secret: bytes
    public: bool


class Season(BoardRecord, frozen=True):
    """The file of a season.

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

    schema: Literal["agentgym_flow.season/1"]
    name: Annotated[str, whole("[a-z0-9]{1,16}", "lower-case letters and digits")]
    opens: Day
    closes: Day
    seed_sha256: Digest
    secret_sha256: Digest
    seed: DigestOrNone
    secret: DigestOrNone

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the season in a file. Raises `BadSeason` if it cannot be read or is inconsistent."""
        try:
            raw = path.read_bytes()
        except OSError as error:
            raise BadSeason(f"{path.name} cannot be read ({error.strerror})") from None
        season = typed(decode_file(raw, BadSeason, path.name), cls, BadSeason, path.name)
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

    def drawn_with(self, given: str | None) -> FreshSeed:
        """Return the secret that draws fresh tasks: the revealed or the given one.

        None is for a rehearsal, whose tasks are public: without a revealed secret it draws with the empty one. Raises
        `BadSeason` if the secret is not revealed, and `given` is empty or another one.
        """
        if given is not None and not self.secret and _sha256(given) != self.secret_sha256:
            wrong = "is not the given one" if given else "is missing"
            raise BadSeason(f"the secret of season {self.name} {wrong}: set it in AGENTGYM_FLOW_SEASON_SECRETS")
        return FreshSeed((self.secret or given or "").encode("ascii"), public=bool(self.secret) or given is None)

    def _revealed(self, what: str, value: str) -> Season:
        if _sha256(value) != getattr(self, f"{what}_sha256"):
            raise BadSeason(f"season {self.name}: this is not the {what} that was committed to")
        return replace(self, **{what: value})


def new_season(name: str, opens: str, closes: str) -> tuple[Season, str, str]:
    """Return a new season with its commitment, its seed and its secret."""
    seed, secret = secrets.token_hex(32), secrets.token_hex(32)
    value = [SCHEMA, name, opens, closes, _sha256(seed), _sha256(secret), "", ""]
    named = dict(zip(Season.__struct_fields__, value, strict=True))
    return typed(named, Season, BadSeason, f"season {name}"), seed, secret


def season_file(root: Path, name: str) -> Path:
    """Return the file of a season."""
    return root / SEASONS / f"{name}.json"


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


class Definition(BoardRecord, frozen=True):
    """A track without tasks, as in the file `tracks.toml` under its name without the season.

    Attributes:
        title: one line for the board.
        env_id: the environment, such as `agentgym_flow/Sokoban-v0`.
        tasks: the number of tasks; None for all.
        kwargs: arguments of the environment.
        data: the name under which official data must be registered; empty for generated tasks.
        data_tasks: the number of tasks that the split of the official data has; 0 if it was never measured.
        data_sha256: the SHA-256 that logs hold for the split of the official data; empty if it was never measured.

    The other fields are arguments of `make_track`.
    """

    title: Text
    env_id: str
    tasks: Annotated[int, Meta(ge=1, le=20_000)] | None = None
    kwargs: Annotated[dict[str, Any], Meta(max_length=32)] = field(default_factory=dict)
    data: str = ""
    data_tasks: Annotated[int, Meta(ge=0)] = 0
    data_sha256: DigestOrNone = ""
    split: Split = "test"
    attempts: Annotated[int, Meta(ge=1, le=64)] = 1
    rules: str = "open"
    prompts: Annotated[tuple[str, ...], Meta(min_length=1)] = ("compact", "choice", "text")
    metric: Metric = "success"
    bar: Share = 0.0
    core_seconds: CoreSeconds = 0.0
    counts: Counts = "first"

    @property
    def here(self) -> bool:
        """Whether its tasks can be created on this machine."""
        return not self.data or registry.place(self.data) is not None

    @property
    def pinned(self) -> dict[str, str]:
        """The official data of its tracks: name -> SHA-256."""
        return {self.data: self.data_sha256} if self.data else {}

    def made(self, name: str, season: Season) -> Track:
        """Return the track of a season.

        Raises:
            BadTrack: the definition does not fit its environment.
            BadData: the official data is not that of the definition.
        """
        arguments = asdict(self)
        for field_name in ("data", "data_tasks", "data_sha256"):
            del arguments[field_name]
        arguments["kwargs"] = {**self.kwargs, **({"data": self.data} if self.data else {"season": season.seed})}
        if self.data:
            self._check_data(name, arguments["kwargs"])
        return make_track(name=f"{name}-{season.name}", season=season.name, **arguments)

    def _check_data(self, name: str, kwargs: Mapping[str, Any]) -> None:
        """Raise `BadData` unless the official data on this machine is the one that the definition names."""
        with closing(make_text_env(self.env_id, **kwargs, split=self.split)) as env:
            found = f"{env.num_tasks:,} tasks in {self.split!r} and SHA-256 {env.data.get(self.data)}"
            if (env.data, env.num_tasks) == (self.pinned, self.data_tasks):
                return
        if not self.data_sha256:
            raise BadData(
                f"{DEFINITIONS} states neither data_tasks nor data_sha256 of track {name!r}, so it is unknown "
                f"whether official data {self.data!r} is what its title says; here it has {found}"
            )
        raise BadData(
            f"official data {self.data!r} on this machine is not that of track {name!r}, which has "
            f"{self.data_tasks:,} tasks and SHA-256 {self.data_sha256}; here it has {found}: get the published "
            f"version and run agentgym-flow data add {self.data} PATH"
        )


def definitions(root: Path) -> Mapping[str, Definition]:
    """Return the definitions in the file of the leaderboards by name; none without a file. Raises `BadTrack`."""
    file = root / DEFINITIONS
    if not file.is_file():
        return {}
    try:
        value = tomllib.loads(file.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadTrack(f"{file.name}: not TOML ({error})") from None
    return typed(value, dict[TrackName, Definition], BadTrack, file.name)


TrackName = Annotated[str, whole("[a-z0-9][a-z0-9-]{0,47}", "a name in lower case with digits and hyphens")]


def made_tracks(root: Path, season: Season) -> Iterator[tuple[str, Definition, Track | AgentGymFlowError | None]]:
    """Yield each definition with its name and its track of an open season.

    The track is None if its official data is not registered, and the error if it cannot be made: one track that cannot
    be made must not prevent the others.

    Raises `BadTrack` if the season is not open, or the file of the definitions is damaged.
    """
    if not season.seed:
        raise BadTrack(f"season {season.name} is not open: its seed is not revealed yet")
    for name, definition in definitions(root).items():
        try:
            yield name, definition, definition.made(name, season) if definition.here else None
        except AgentGymFlowError as error:
            yield name, definition, error

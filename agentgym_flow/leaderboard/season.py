"""A season: its tasks and the draws for submitted weights come from two numbers that are committed to beforehand.

The file of a season has the SHA-256 of both before it opens. The *seed* is revealed when it opens: the task lists of
the tracks are made from it, so training on them before is impossible. The *secret* is revealed when it closes: until
then it draws fresh tasks for submitted weights, and from then on everybody can draw them again.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple, Self

from agentgym_flow._util.files import whole
from agentgym_flow._util.strict_json import decode_file
from agentgym_flow.errors import BadSeason, BadSetting
from agentgym_flow.leaderboard import schemas
from agentgym_flow.leaderboard.places import SEASONS

SCHEMA = "agentgym_flow.season/1"
"""The `schema` of the file of a season."""


class FreshSeed(NamedTuple):
    """What fresh tasks are drawn with, and whether anybody could know it."""

    secret: bytes
    public: bool


@dataclass(frozen=True, slots=True)
class Season:
    """The file of a season; its fields are those of the schema `season-1.json`.

    Attributes:
        schema: `SCHEMA`.
        name: such as `s1`; the name of its file.
        opens: its first day, year-month-day.
        closes: its last day.
        seed_sha256: of the seed's 64 hex digits, as ASCII.
        secret_sha256: of the secret's, alike.
        seed: empty until the season opens.
        secret: empty until it closes.
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
        """Return the season of a file. Raises `BadSeason` if it cannot be read, or says what does not fit."""
        try:
            raw = path.read_bytes()
        except OSError as error:
            raise BadSeason(f"{path.name} cannot be read ({error.strerror})") from None
        value = decode_file(raw, BadSeason, path.name)
        schemas.check("season-1", value, BadSeason, path.name)
        season = cls(**value)
        if season.name != path.stem:
            raise BadSeason(f"{path.name}: the season is called {season.name!r}, its file must be called like it")
        for what in ("seed", "secret"):
            shown = getattr(season, what)
            if shown and _sha256(shown) != getattr(season, f"{what}_sha256"):
                raise BadSeason(f"{path.name}: the {what} is not the one that was committed to")
        if season.secret and not season.seed:
            raise BadSeason(f"{path.name}: a season opens before it closes, and there is no seed")
        return season

    def write(self, path: Path) -> None:
        """Write the season."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole(path) as partial:
            partial.write_text(json.dumps(asdict(self), indent=1) + "\n", "utf-8")

    def opened(self, seed: str) -> Season:
        """Return the season with its seed. Raises `BadSeason` if it is another one."""
        return self._shown("seed", seed)

    def closed(self, secret: str) -> Season:
        """Return the season with its secret. Raises `BadSeason` if it is another one."""
        return self._shown("secret", secret)

    def drawn_with(self, given: str) -> FreshSeed:
        """Return what fresh tasks are drawn with: the given secret, or the revealed one.

        Without either it is a rehearsal, whose tasks anybody can know. Raises `BadSetting` if `given` is not the secret
        of this season.
        """
        if given and _sha256(given) != self.secret_sha256:
            raise BadSetting(f"the secret that is given is not that of season {self.name}")
        return FreshSeed((given or self.secret).encode("ascii"), public=bool(self.secret) or not given)

    def _shown(self, what: str, value: str) -> Season:
        if _sha256(value) != getattr(self, f"{what}_sha256"):
            raise BadSeason(f"season {self.name}: this is not the {what} that was committed to")
        return replace(self, **{what: value})


def new_season(name: str, opens: str, closes: str) -> tuple[Season, str, str]:
    """Return a season that is committed to, its seed and its secret."""
    seed, secret = secrets.token_hex(32), secrets.token_hex(32)
    season = Season(SCHEMA, name, opens, closes, _sha256(seed), _sha256(secret))
    schemas.check("season-1", asdict(season), BadSeason, f"season {name}")
    return season, seed, secret


def season_file(root: Path, name: str) -> Path:
    """Return the file of a season below the folder of the boards."""
    return root / SEASONS / f"{name}.json"


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()

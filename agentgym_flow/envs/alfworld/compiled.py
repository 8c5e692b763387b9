"""Compiled games on disk, so that the first start of an official game reads kilobytes instead of parsing its PDDL.

A game is kept under the SHA-256 of its `game.tw-pddl` in the folder that `AGENTGYM_FLOW_CACHE` names, by default
`cache` in the folder of the registry; `off` keeps none. Files that cannot be read, are damaged or belong to another
game or version are ignored and written again. A folder that cannot be written is no error: a cache only saves time.
Nothing in it is executed. Files come whole or not at all, so any number of processes can share a folder.

A file is a line with a digest and then JSON, about 5 kB. A folder holds at most `MOST_KEPT` of them, which is more than
all splits of the official data; the oldest make room for new ones.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from hashlib import sha256
from operator import attrgetter
from pathlib import Path
from typing import Any

from agentgym_flow.data import home
from agentgym_flow.envs.alfworld.game import Game, Receptacle, Start, Thing
from agentgym_flow.envs.alfworld.goal import Goal
from agentgym_flow.envs.alfworld.grammar import Words
from agentgym_flow.errors import BadData
from agentgym_flow.files import whole

FORMAT = 1
"""To be raised whenever a file would hold something else than before, or the same file would mean something else."""

FOLDER_VARIABLE = "AGENTGYM_FLOW_CACHE"
OFF = "off"

MOST_KEPT = 1 << 14
"""Games of one folder; 256 folders by the first byte of the digest share them out."""

_RECEPTACLE = attrgetter(*Receptacle.__slots__)
_THING = attrgetter(*Thing.__slots__)
_START = attrgetter(*Start.__slots__)
_WORDS = attrgetter(*Words.__slots__)
_PLAIN = ("spots", "spot_names", "standing_at", "goal_places")
_AS_THEY_ARE = ("having", "wanted", "goal_lamps")


def kept_or_compiled(content: bytes, compile_it: Callable[[], tuple[Game, str]]) -> tuple[Game, str]:
    """Return the game of a game file and the identity of what is played, from the cache or by `compile_it`.

    `content` are the bytes of the file. What `compile_it` raises passes through.
    """
    digest = sha256(content).hexdigest()
    path = _path(digest)
    if path is None:
        return compile_it()
    found = _read(path, digest)
    if found is None:
        found = compile_it()
        _write(path, digest, found)
    return found


def folder() -> Path | None:
    """Return the folder of compiled games of this format; None if none are kept."""
    chosen = os.environ.get(FOLDER_VARIABLE, "")
    if chosen == OFF:
        return None
    try:
        return (Path(chosen) if chosen else home() / "cache") / f"alfworld-{FORMAT}"
    except BadData:  # this user has no home folder
        return None


def _path(digest: str) -> Path | None:
    where = folder()
    return None if where is None else where / digest[:2] / f"{digest[2:]}.json"


def _read(path: Path, digest: str) -> tuple[Game, str] | None:
    try:
        said, _, written = path.read_bytes().partition(b"\n")
        return decoded(written) if said == _sealed(digest, written) else None
    except (OSError, ValueError, TypeError, LookupError):
        return None


def _write(path: Path, digest: str, found: tuple[Game, str]) -> None:
    written = encoded(*found)
    try:
        with whole(path) as partial:
            partial.write_bytes(_sealed(digest, written) + b"\n" + written)
        _make_room(path.parent)
    except OSError:
        pass


def _sealed(digest: str, written: bytes) -> bytes:
    """Return what the first line of a file must say: nothing else is this game, whole."""
    return sha256(digest.encode("ascii") + written).hexdigest().encode("ascii")


def _make_room(folder: Path) -> None:
    """Remove the oldest files of a folder that has more than its share."""
    files = list(folder.glob("*.json"))
    too_many = len(files) - MOST_KEPT // 256
    if too_many > 0:
        for file in sorted(files, key=lambda file: file.stat().st_mtime_ns)[:too_many]:
            file.unlink()


# ---------------------------------------------------------------- a game as JSON
def encoded(game: Game, content: str) -> bytes:
    """Return a compiled game and its identity as JSON; `decoded` gives them back, equal and in the same order."""
    goal = game.goal
    return json.dumps(
        {
            "content": content,
            "receptacles": [_RECEPTACLE(one) for one in game.receptacles],
            "things": [_THING(one) for one in game.things],
            "receptacles_at": game.receptacles_at,
            "start": _START(game.start),
            "goal": [goal.thing, goal.place, goal.lamp, goal.count, sorted(goal.conditions), sorted(goal.traits)],
            "words": _WORDS(game.words),
            **{name: getattr(game, name) for name in (*_PLAIN, *_AS_THEY_ARE)},
        },
        separators=(",", ":"),
    ).encode("ascii")


def decoded(written: bytes) -> tuple[Game, str]:
    """Return what `encoded` was given. Raises `ValueError`, `TypeError` or `LookupError` for what it did not write."""
    said: dict[str, Any] = json.loads(written)
    thing, place, lamp, count, conditions, traits = said["goal"]
    spot, held, inside, located, opened, marks = said["start"]
    rest: dict[str, Any] = {name: tuple(said[name]) for name in _PLAIN} | {name: said[name] for name in _AS_THEY_ARE}
    game = Game(
        receptacles=tuple([Receptacle(*one) for one in said["receptacles"]]),
        things=tuple([Thing(n, k, fits, None if c is None else tuple(c)) for n, k, fits, c in said["things"]]),
        receptacles_at=tuple(map(tuple, said["receptacles_at"])),
        start=Start(spot, held, tuple(inside), tuple(located), opened, marks),
        goal=Goal(thing, place, lamp, count, frozenset(conditions), frozenset(traits)),
        words=Words(*said["words"]),
        **rest,
    )
    return game, str(said["content"])

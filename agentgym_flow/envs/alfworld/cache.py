"""A cache of compiled games on disk, so that starting an official game does not parse its PDDL again.

The cache is in the folder `AGENTGYM_FLOW_CACHE`, by default `cache` in the folder of the registry; `off` disables it.
The name of a file is the SHA-256 of the `game.tw-pddl`, the version of this package and the source code that compiles
games, so other versions use other files. Files that cannot be read, are damaged, belong to another game or contain
impossible values are ignored and written again. Errors of writing are ignored, because the cache only saves time.
Nothing in it is executed. Writes are atomic, so processes can share a folder.

The digest in a file detects damage but not manipulation: a user who can write to the folder decides which games are
played. Therefore replay, which verifies logs of others, does not use the cache (`data.no_cache`).

A file is a line with a digest followed by JSON, about 5 kB in total. A folder has at most `MOST_KEPT` files, which is
more than the number of official games; the oldest files are deleted first.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

import msgspec

from agentgym_flow._util import __version__
from agentgym_flow._util.files import write_atomically
from agentgym_flow.data import home, may_cache
from agentgym_flow.envs.alfworld.compiled_game import (
    ARRIVALS,
    MARKS,
    NOWHERE,
    PUT_FEEDBACKS,
    PUTS,
    TRAITS,
    CompiledGame,
    GameObject,
    InitialState,
    Receptacle,
    Task,
    Words,
)
from agentgym_flow.envs.alfworld.problem import CONDITIONS, ALFWorldGoal
from agentgym_flow.errors import BadData

SOURCES = (
    "alfred.pddl",
    "alfred.twl2",
    "cache.py",
    "compiled_game.py",
    "domain.py",
    "grammar.py",
    "official.py",
    "problem.py",
)
"""The files in this package that affect compilation."""

FOLDER_VARIABLE = "AGENTGYM_FLOW_CACHE"
OFF = "off"

MOST_KEPT = 1 << 14
"""The limit on games. They are distributed over 256 folders by the first byte of the digest."""


def kept_or_compiled(content: bytes, compile_it: Callable[[], Task]) -> Task:
    """Return the game of a game file and its identity, from the cache or from `compile_it`.

    `content` is the content of the file. Errors of `compile_it` propagate.
    """
    where, maker = folder(), _maker()
    if where is None or not maker:
        return compile_it()
    digest = sha256(maker + content).hexdigest()
    path = where / digest[:2] / f"{digest[2:]}.json"
    found = _read(path, digest)
    if found is None:
        found = compile_it()
        _write(path, digest, found)
    return found


def folder() -> Path | None:
    """Return the folder of compiled games; None if there is no cache."""
    chosen = os.environ.get(FOLDER_VARIABLE, "")
    if chosen == OFF or not may_cache():
        return None
    try:
        return (Path(chosen) if chosen else home() / "cache") / "alfworld"
    except BadData:  # the user has no home folder
        return None


@lru_cache(maxsize=1)
def _maker() -> bytes:
    """Return the digest of the version and the source that compile; empty if the source is not installed."""
    maker = sha256(__version__.encode("ascii"))
    try:
        for name in SOURCES:
            maker.update(sha256(files(__package__).joinpath(name).read_bytes()).digest())
    except OSError:
        return b""
    return maker.digest()


def _read(path: Path, digest: str) -> Task | None:
    try:
        said, _, written = path.read_bytes().partition(b"\n")
        return decoded(written) if said == _sealed(digest, written) else None
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None


def _write(path: Path, digest: str, found: Task) -> None:
    written = encoded(*found)
    try:
        with write_atomically(path) as partial:
            partial.write_bytes(_sealed(digest, written) + b"\n" + written)
        _make_room(path.parent)
    except OSError:
        pass


def _sealed(digest: str, written: bytes) -> bytes:
    """Return the first line of a file, a digest of its name and content."""
    return sha256(digest.encode("ascii") + written).hexdigest().encode("ascii")


def _make_room(folder: Path) -> None:
    """Remove the oldest files of a folder if it has too many."""
    files = list(folder.glob("*.json"))
    too_many = len(files) - MOST_KEPT // 256
    if too_many > 0:
        for file in sorted(files, key=lambda file: file.stat().st_mtime_ns)[:too_many]:
            file.unlink()


# ---------------------------------------------------------------- a game as JSON
class _KeptGame(msgspec.Struct, forbid_unknown_fields=True):
    """The content of a file: the identity of a game, and the arguments of `CompiledGame`."""

    content: str
    receptacles: tuple[Receptacle, ...]
    things: tuple[GameObject, ...]
    spots: tuple[str, ...]
    spot_names: tuple[str, ...]
    having: Mapping[str, int]
    start: InitialState
    goal: ALFWorldGoal
    words: Words


_ARGUMENTS = _KeptGame.__struct_fields__[1:]


def encoded(game: CompiledGame, content: str) -> bytes:
    """Return a compiled game and its identity as JSON; `decoded` returns equal values in the same order."""
    kept = _KeptGame(content, *(getattr(game, name) for name in _ARGUMENTS))
    plain = msgspec.to_builtins(kept, order="deterministic")
    return json.dumps(plain, separators=(",", ":")).encode("ascii")  # sets may have more than 64 bits


def decoded(written: bytes) -> Task:
    """Return the game and the identity that `encoded` has written.

    Raises `ValueError`, `LookupError` or `RecursionError` for other input.
    """
    kept = msgspec.convert(json.loads(written), _KeptGame)
    kept.having = {trait: kept.having[trait] for trait in TRAITS}
    kept.start = replace(kept.start, conditions={name: kept.start.conditions[name] for name in MARKS})
    if not _is_sound(kept):
        raise ValueError("no compiled game")
    game = CompiledGame(*(getattr(kept, name) for name in _ARGUMENTS))
    # Encoding again proves that the file has all values in order, and nothing else.
    if encoded(game, kept.content) != written:
        raise ValueError("no compiled game")
    return Task(game, kept.content)


def _is_sound(game: _KeptGame) -> bool:
    """Return whether the parts of a game have the sizes and ranges of a compiled game."""
    start, goal, words = game.start, game.goal, game.words
    receptacles, things, spots = len(game.receptacles), len(game.things), len(game.spots)
    return (
        (len(game.spot_names), len(start.located), len(start.inside)) == (spots, spots, receptacles)
        and all(NOWHERE <= place.spot < spots for place in game.receptacles)
        and 0 <= start.spot < spots
        and NOWHERE <= start.held < things
        and _are_sets([*start.inside, *start.located, *start.conditions.values(), *game.having.values()], things)
        and _are_sets([start.opened, *[thing.fits for thing in game.things]], receptacles)
        and (goal.place is None) != (goal.lamp is None)
        and 1 <= goal.count < (3 if goal.lamp is None else 2)
        and goal.conditions <= CONDITIONS.keys()
        and goal.traits <= set(CONDITIONS.values())
        and words.put in PUTS
        and words.put_feedback in PUT_FEEDBACKS
        and words.arrive in ARRIVALS
    )


def _are_sets(values: list[int], members: int) -> bool:
    return min(values) >= 0 and max(values) < 1 << members

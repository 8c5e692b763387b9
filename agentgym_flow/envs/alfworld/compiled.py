"""Compiled games on disk, so that the first start of an official game reads kilobytes instead of parsing its PDDL.

A game is kept in the folder that `AGENTGYM_FLOW_CACHE` names, by default `cache` in the folder of the registry; `off`
keeps none. Its name is the SHA-256 of its `game.tw-pddl`, of this package's version and of the source that compiles:
what another version or another source made has another name. Files that cannot be read, are damaged, belong to another
game or say what compiling never makes are ignored and written again. A folder that cannot be written is no error: a
cache only saves time. Nothing in it is executed. Files come whole or not at all, so any number of processes can share a
folder.

The digest in a file finds damage, not intent: whoever can write to this folder decides what is played. Replay, which
checks what others say, therefore leaves the cache alone (`data.no_cache`).

A file is a line with a digest and then JSON, about 5 kB. A folder holds at most `MOST_KEPT` of them, which is more than
all splits of the official data; the oldest make room for new ones, those of other versions among them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256
from importlib.resources import files
from operator import attrgetter
from pathlib import Path
from typing import Any

from agentgym_flow import __version__
from agentgym_flow._util.files import whole
from agentgym_flow.data import home, may_cache
from agentgym_flow.envs.alfworld.compiled_game import (
    MARKS,
    NOWHERE,
    TRAITS,
    CompiledGame,
    GameObject,
    InitialState,
    Receptacle,
)
from agentgym_flow.envs.alfworld.goal import CONDITIONS, ALFWorldGoal
from agentgym_flow.envs.alfworld.grammar import ARRIVALS, PUT_FEEDBACKS, PUTS, Words
from agentgym_flow.errors import BadData

SOURCES = (
    "alfred.pddl",
    "alfred.twl2",
    "compiled.py",
    "compiled_game.py",
    "domain.py",
    "gamefile.py",
    "goal.py",
    "grammar.py",
    "names.py",
    "pddl.py",
    "source.py",
    "syntax.py",
    "twl2.py",
)
"""The files beside this one that decide what a game file is compiled to."""

FOLDER_VARIABLE = "AGENTGYM_FLOW_CACHE"
OFF = "off"

MOST_KEPT = 1 << 14
"""Games of one folder; 256 folders by the first byte of the digest share them out."""

_RECEPTACLE = attrgetter(*Receptacle.__slots__)
_THING = attrgetter(*GameObject.__slots__)
_START = attrgetter(*InitialState.__slots__)
_WORDS = attrgetter(*Words.__slots__)
_PLAIN = ("spots", "spot_names", "standing_at", "goal_places", "having", "wanted", "goal_lamps")


def kept_or_compiled(content: bytes, compile_it: Callable[[], tuple[CompiledGame, str]]) -> tuple[CompiledGame, str]:
    """Return the game of a game file and the identity of what is played, from the cache or by `compile_it`.

    `content` are the bytes of the file. What `compile_it` raises passes through.
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
    """Return the folder of compiled games; None if none are kept here."""
    chosen = os.environ.get(FOLDER_VARIABLE, "")
    if chosen == OFF or not may_cache():
        return None
    try:
        return (Path(chosen) if chosen else home() / "cache") / "alfworld"
    except BadData:  # this user has no home folder
        return None


@lru_cache(maxsize=1)
def _maker() -> bytes:
    """Return the digest of the version and the source that compile; nothing where the source is not installed."""
    maker = sha256(__version__.encode("ascii"))
    try:
        for name in SOURCES:
            maker.update(sha256(files(__package__).joinpath(name).read_bytes()).digest())
    except OSError:
        return b""
    return maker.digest()


def _read(path: Path, digest: str) -> tuple[CompiledGame, str] | None:
    try:
        said, _, written = path.read_bytes().partition(b"\n")
        return decoded(written) if said == _sealed(digest, written) else None
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None


def _write(path: Path, digest: str, found: tuple[CompiledGame, str]) -> None:
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
def encoded(game: CompiledGame, content: str) -> bytes:
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
            **{name: getattr(game, name) for name in _PLAIN},
        },
        separators=(",", ":"),
    ).encode("ascii")


def decoded(written: bytes) -> tuple[CompiledGame, str]:
    """Return what `encoded` was given.

    Raises `ValueError`, `TypeError`, `LookupError`, `AttributeError` or `RecursionError` for what it did not write, and
    for what no compiled game is.
    """
    said: dict[str, Any] = json.loads(written)
    thing, place, lamp, count, conditions, traits = said["goal"]
    spot, held, inside, located, opened, marks = said["start"]
    game = CompiledGame(
        receptacles=tuple([Receptacle(*one) for one in said["receptacles"]]),
        things=tuple([GameObject(n, k, fits, None if c is None else tuple(c)) for n, k, fits, c in said["things"]]),
        spots=tuple(said["spots"]),
        spot_names=tuple(said["spot_names"]),
        having={trait: said["having"][trait] for trait in TRAITS},
        start=InitialState(spot, held, tuple(inside), tuple(located), opened, {name: marks[name] for name in MARKS}),
        goal=ALFWorldGoal(thing, place, lamp, count, frozenset(conditions), frozenset(traits)),
        words=Words(*said["words"]),
    )
    content = said["content"]
    # Written again: what follows from the parts must be what the file says, in its order and with nothing beside it.
    if type(content) is not str or not _is_sound(game) or encoded(game, content) != written:
        raise ValueError("no compiled game")
    return game, content


def _is_sound(game: CompiledGame) -> bool:
    """Return whether the parts of a game have the types and ranges that compiling gives them."""
    start, goal, words = game.start, game.goal, game.words
    receptacles, things, spots = len(game.receptacles), len(game.things), len(game.spots)
    texts: list[object] = [*game.spots, *game.spot_names, goal.thing, words.task]
    sets_of_things = [*start.inside, *start.located, *start.conditions.values(), *game.having.values()]
    for place in game.receptacles:
        texts += [place.name, place.kind]
    for thing in game.things:
        texts += [thing.name, thing.kind, *(thing.contents or ())]
    return (
        {str}.issuperset(map(type, texts))
        and (len(game.spot_names), len(start.located), len(start.inside)) == (spots, spots, receptacles)
        and all(type(place.openable) is bool and _is_number(place.spot, NOWHERE, spots) for place in game.receptacles)
        and _is_number(start.spot, 0, spots)
        and _is_number(start.held, NOWHERE, things)
        and _are_sets(sets_of_things, things)
        and _are_sets([start.opened, *[thing.fits for thing in game.things]], receptacles)
        and type(goal.place if goal.lamp is None else goal.lamp) is str
        and None in (goal.place, goal.lamp)
        and _is_number(goal.count, 1, 3 if goal.lamp is None else 2)
        and goal.conditions <= CONDITIONS.keys()
        and goal.traits <= set(CONDITIONS.values())
        and words.put in PUTS
        and words.put_feedback in PUT_FEEDBACKS
        and words.arrive in ARRIVALS
        and type(words.help) in (str, type(None))
    )


def _is_number(value: object, least: int, below: int) -> bool:
    return type(value) is int and least <= value < below


def _are_sets(values: list[int], members: int) -> bool:
    return {int}.issuperset(map(type, values)) and min(values) >= 0 and max(values) < 1 << members

"""What can be done at a moment of a game: moves, the commands that make them, and which of them are on offer.

`go to` is missing for the receptacles at the agent's own spot, as such a move would change nothing. The other walks are
always there, and are kept once for a game; what is on offer is kept for each situation.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from agentgym_flow.envs.alfworld.compiled_game import FRIDGES, MICROWAVES, NOWHERE, SINKS, CompiledGame, members

_MENUS_KEPT = 256  # per game; more situations than an episode of 50 steps can meet

# What a command does: the first entry of a move.
LOOK, INVENTORY, HELP, GO, OPEN, CLOSE, TAKE, PUT, EXAMINE, EXAMINE_THING, USE, HEAT, CLEAN, COOL, SLICE = range(15)

_VERB = (
    "look", "inventory", "help", "go to", "open", "close", "take", "put", "examine", "examine", "use",
    "heat", "clean", "cool", "slice",
)  # fmt: skip
_ON_PLACE = (GO, OPEN, CLOSE, EXAMINE)
_TREATMENTS = ((CLEAN, "cleanable", SINKS), (COOL, "coolable", FRIDGES), (HEAT, "heatable", MICROWAVES))

Move = tuple[int, int, int]
"""What to do, and to which thing or receptacle with which other one; `NOWHERE` for none."""


class CommandContext(Protocol):
    """What of a game in play decides what can be done; `agentgym_flow.envs.alfworld.game.ALFWorldGame` is one."""

    game: CompiledGame
    spot: int
    held: int
    inside: list[int]
    located: list[int]
    opened: int


class Menu(NamedTuple):
    """What can be done in one situation: all commands, sorted, and the moves of those that are not walks."""

    commands: tuple[str, ...]
    moves: Mapping[str, Move]


def command_of(game: CompiledGame, move: Move) -> str:
    """Return the command that makes a move."""
    kind, first, second = move
    receptacles, things = game.receptacles, game.things
    if kind in _ON_PLACE:
        return f"{_VERB[kind]} {receptacles[first].name}"
    if kind in (TAKE, PUT):
        template = "take {o} from {r}" if kind == TAKE else game.words.put
        return template.format(o=things[first].name, r=receptacles[second].name)
    if kind in (USE, EXAMINE_THING):
        return f"{_VERB[kind]} {things[first].name}"
    if kind in (CLEAN, HEAT, COOL, SLICE):
        tool = things[second].name if kind == SLICE else receptacles[second].name
        return f"{_VERB[kind]} {things[first].name} with {tool}"
    return _VERB[kind]


def ways(game: CompiledGame) -> Mapping[str, Move]:
    """Return all walks of a game by their commands, sorted, those to the agent's own spot included."""
    found: Mapping[str, Move] | None = game.menus.get(NOWHERE)
    if found is None:
        goals = [(GO, index, NOWHERE) for index, place in enumerate(game.receptacles) if place.spot != NOWHERE]
        found = game.menus[NOWHERE] = dict(sorted((command_of(game, goal), goal) for goal in goals))
    return found


def walks(game: CompiledGame, spot: int) -> tuple[str, ...]:
    """Return the commands that lead away from a spot, sorted."""
    found: tuple[str, ...] | None = game.menus.get(spot)
    if found is None:
        here = {command_of(game, (GO, place, NOWHERE)) for place in game.receptacles_at[spot]}
        found = game.menus[spot] = tuple(command for command in ways(game) if command not in here)
    return found


def menu(play: CommandContext) -> Menu:
    """Return what can be done now."""
    game, spot, inside = play.game, play.spot, play.inside
    cuttable = play.located[spot] & game.having["sliceable"] if play.held != NOWHERE else 0
    doors = play.opened & game.standing_at[spot]
    key = (spot, play.held, doors, cuttable, *[inside[place] for place in game.receptacles_at[spot]])
    found: Menu | None = game.menus.get(key)
    if found is None:
        if len(game.menus) > _MENUS_KEPT:
            game.menus.clear()
        moves = {command_of(game, move): move for move in _offers(play)}
        commands = sorted(moves)
        first_after = bisect_left(commands, _VERB[GO])
        found = Menu((*commands[:first_after], *walks(game, spot), *commands[first_after:]), moves)
        game.menus[key] = found
    return found


def _offers(play: CommandContext) -> Iterable[Move]:
    game, held = play.game, play.held
    yield LOOK, NOWHERE, NOWHERE
    yield INVENTORY, NOWHERE, NOWHERE
    if game.words.help is not None:
        yield HELP, NOWHERE, NOWHERE
    for place in game.receptacles_at[play.spot]:
        yield from _offers_at(play, place)
    if held != NOWHERE:
        yield EXAMINE_THING, held, NOWHERE
        if game.having["knife"] >> held & 1:
            for thing in members(play.located[play.spot] & game.having["sliceable"]):
                yield SLICE, thing, held


def _offers_at(play: CommandContext, place: int) -> Iterable[Move]:
    game, receptacle, held = play.game, play.game.receptacles[place], play.held
    is_open = bool(play.opened >> place & 1)
    yield EXAMINE, place, NOWHERE
    if receptacle.openable:
        yield CLOSE if is_open else OPEN, place, NOWHERE
    for thing in members(play.inside[place] & game.having["toggleable"]):
        yield USE, thing, NOWHERE
    reachable = is_open or not receptacle.openable
    if held == NOWHERE:
        for thing in members(play.inside[place] & game.having["pickupable"] if reachable else 0):
            yield TAKE, thing, place
        return
    if reachable and game.things[held].fits >> place & 1:
        yield PUT, held, place
    for kind, trait, kinds in _TREATMENTS:
        if receptacle.kind in kinds and game.having[trait] >> held & 1:
            yield kind, held, place

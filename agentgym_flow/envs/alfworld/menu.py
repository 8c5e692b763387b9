"""The commands that are possible at a moment of a game.

There is no `go to` for receptacles at the agent's own spot, because it would change nothing. All other walks are always
possible and are listed once per game. Everything else is computed once per situation.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from agentgym_flow.envs.alfworld import moves
from agentgym_flow.envs.alfworld.compiled_game import FRIDGES, MICROWAVES, NOWHERE, SINKS, CompiledGame, members
from agentgym_flow.envs.alfworld.moves import Move, command_of

if TYPE_CHECKING:
    from agentgym_flow.envs.alfworld.game import ALFWorldGame

_MENUS_KEPT = 256  # per game; an episode of 50 steps meets fewer situations

_TREATMENTS = (
    (moves.CLEAN, "cleanable", SINKS),
    (moves.COOL, "coolable", FRIDGES),
    (moves.HEAT, "heatable", MICROWAVES),
)


class Menu(NamedTuple):
    """The commands of one situation, sorted, and the moves of those that are not walks."""

    commands: tuple[str, ...]
    moves: Mapping[str, Move]


def ways(game: CompiledGame) -> Mapping[str, Move]:
    """Return all walks of a game by their commands, sorted, including those to the agent's own spot."""
    found: Mapping[str, Move] | None = game.menus.get(NOWHERE)
    if found is None:
        goals = [(moves.GO, index, NOWHERE) for index, place in enumerate(game.receptacles) if place.spot != NOWHERE]
        found = game.menus[NOWHERE] = dict(sorted((command_of(game, goal), goal) for goal in goals))
    return found


def walks(game: CompiledGame, spot: int) -> tuple[str, ...]:
    """Return the commands that lead away from a spot, sorted."""
    found: tuple[str, ...] | None = game.menus.get(spot)
    if found is None:
        here = {command_of(game, (moves.GO, place, NOWHERE)) for place in game.receptacles_at[spot]}
        found = game.menus[spot] = tuple(command for command in ways(game) if command not in here)
    return found


def menu(game: ALFWorldGame) -> Menu:
    """Return the commands that are possible now."""
    compiled, spot, inside = game.compiled, game.spot, game.inside
    cuttable = game.located[spot] & compiled.having["sliceable"] if game.held != NOWHERE else 0
    doors = game.opened & compiled.standing_at[spot]
    key = (spot, game.held, doors, cuttable, *[inside[place] for place in compiled.receptacles_at[spot]])
    found: Menu | None = compiled.menus.get(key)
    if found is None:
        if len(compiled.menus) > _MENUS_KEPT:
            compiled.menus.clear()
        offers = {command_of(compiled, move): move for move in _offers(game)}
        commands = sorted(offers)
        first_after = bisect_left(commands, moves.VERB[moves.GO])
        found = Menu((*commands[:first_after], *walks(compiled, spot), *commands[first_after:]), offers)
        compiled.menus[key] = found
    return found


def _offers(game: ALFWorldGame) -> Iterable[Move]:
    compiled, held = game.compiled, game.held
    yield moves.LOOK, NOWHERE, NOWHERE
    yield moves.INVENTORY, NOWHERE, NOWHERE
    if compiled.words.help is not None:
        yield moves.HELP, NOWHERE, NOWHERE
    for place in compiled.receptacles_at[game.spot]:
        yield from _offers_at(game, place)
    if held != NOWHERE:
        yield moves.EXAMINE_THING, held, NOWHERE
        if compiled.having["knife"] >> held & 1:
            for thing in members(game.located[game.spot] & compiled.having["sliceable"]):
                yield moves.SLICE, thing, held


def _offers_at(game: ALFWorldGame, place: int) -> Iterable[Move]:
    compiled, receptacle, held = game.compiled, game.compiled.receptacles[place], game.held
    is_open = bool(game.opened >> place & 1)
    yield moves.EXAMINE, place, NOWHERE
    if receptacle.openable:
        yield moves.CLOSE if is_open else moves.OPEN, place, NOWHERE
    for thing in members(game.inside[place] & compiled.having["toggleable"]):
        yield moves.USE, thing, NOWHERE
    reachable = is_open or not receptacle.openable
    if held == NOWHERE:
        for thing in members(game.inside[place] & compiled.having["pickupable"] if reachable else 0):
            yield moves.TAKE, thing, place
        return
    if reachable and compiled.things[held].fits >> place & 1:
        yield moves.PUT, held, place
    for kind, trait, kinds in _TREATMENTS:
        if receptacle.kind in kinds and compiled.having[trait] >> held & 1:
            yield kind, held, place

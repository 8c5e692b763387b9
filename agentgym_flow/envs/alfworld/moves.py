"""What a command does: its kind, and the things and receptacles that it is about."""

from __future__ import annotations

from agentgym_flow.envs.alfworld.compiled_game import CompiledGame

LOOK, INVENTORY, HELP, GO, OPEN, CLOSE, TAKE, PUT, EXAMINE, EXAMINE_THING, USE, HEAT, CLEAN, COOL, SLICE = range(15)

READING = (LOOK, INVENTORY, HELP, EXAMINE, EXAMINE_THING)
"""The kinds that change nothing."""
DOOR, HAND, TREATMENT = (OPEN, CLOSE), (TAKE, PUT), (CLEAN, HEAT, COOL, SLICE)

VERB = (
    "look", "inventory", "help", "go to", "open", "close", "take", "put", "examine", "examine", "use",
    "heat", "clean", "cool", "slice",
)  # fmt: skip
"""Kind -> how its command begins; a game's words can replace `put`."""

Move = tuple[int, int, int]
"""The kind, the thing or receptacle that it is about, and the other one that it needs; `NOWHERE` for none."""

_ON_PLACE = (GO, OPEN, CLOSE, EXAMINE)


def command_of(game: CompiledGame, move: Move) -> str:
    """Return the command that makes a move."""
    kind, first, second = move
    receptacles, things = game.receptacles, game.things
    if kind in _ON_PLACE:
        return f"{VERB[kind]} {receptacles[first].name}"
    if kind in HAND:
        template = "take {o} from {r}" if kind == TAKE else game.words.put
        return template.format(o=things[first].name, r=receptacles[second].name)
    if kind in (USE, EXAMINE_THING):
        return f"{VERB[kind]} {things[first].name}"
    if kind in TREATMENT:
        tool = things[second].name if kind == SLICE else receptacles[second].name
        return f"{VERB[kind]} {things[first].name} with {tool}"
    return VERB[kind]

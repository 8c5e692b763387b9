"""The rules and state of one ALFWorld episode.

Texts and rules are exactly those of the original engine (`alfworld` 0.4.2 on TextWorld 1.7.0), including its quirks.
The benchmark `alfworld_differential.py` plays both in lock step. The rules follow from the domain (`domain.py`), the
grammar (`grammar.py`), and TextWorld's interpretation of them:

- There is no `go to` for receptacles at the agent's own spot, because it would change nothing. All other walks are
  always possible.
- An object can be examined only while it is held. Heating, cooling and lamps work behind a closed door.
- Lists are in the order of ids. If a thing was taken from a receptacle and put elsewhere at the same spot, `look` lists
  it once for every receptacle that it left, because TextWorld stores that it is *not* in those.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

from agentgym_flow.envs.alfworld.compiled_game import (
    FRIDGES,
    MARKS,
    MICROWAVES,
    NOWHERE,
    READING,
    SINKS,
    VERB,
    CompiledGame,
    Kind,
    Move,
    members,
)

NOTHING_HAPPENS = "Nothing happens."
"""The observation after a text that is not a possible command."""

_HELD, _OPENED, _INSIDE = 0, 1, 2  # their positions among the numbers that `state_key` digests

WELCOME = "-= Welcome to TextWorld, ALFRED! =-"

_KEPT = 256  # menus and listings per game; an episode of 50 steps meets fewer situations

_TREATMENTS = (
    (Kind.CLEAN, "cleanable", SINKS),
    (Kind.COOL, "coolable", FRIDGES),
    (Kind.HEAT, "heatable", MICROWAVES),
)


class Menu(NamedTuple):
    """The commands of one situation, sorted, and the moves of those that are not walks."""

    commands: tuple[str, ...]
    moves: Mapping[str, Move]


class ALFWorldGame:
    """A game in play.

    Attributes:
        compiled: the immutable part of the game.
        spot: the spot of the agent.
        held: the held thing, or `NOWHERE`.
        inside: for each receptacle, the set of things in it.
        located: for each spot, the set of things there. Taking a thing removes it only from the present spot.
        left: for each receptacle, the set of things that were taken out of it.
        opened: the set of open receptacles.
        conditions: `"isclean"`, `"ishot"`, `"iscool"`, `"istoggled"`, `"issliced"` -> the set of things.
    """

    __slots__ = (
        "_offered", "_parts", "_world", "compiled", "conditions", "held", "inside", "left", "located", "opened", "spot",
    )  # fmt: skip

    def __init__(self, compiled: CompiledGame) -> None:
        start = compiled.start
        self.compiled = compiled
        self.spot = start.spot
        self.held = start.held
        self.inside = list(start.inside)
        self.located = list(start.located)
        self.left = [0] * len(compiled.receptacles)
        self.opened = start.opened
        self.conditions = dict(start.conditions)
        self._world = ""  # this and `_offered` are computed on demand and reset by every change
        self._offered: Menu | None = None
        self._parts: list[str] = []  # the numbers of which `_world` is the digest, updated in place; empty at first

    def __deepcopy__(self, memo: dict[int, Any]) -> ALFWorldGame:
        return self.copy()

    def copy(self) -> ALFWorldGame:
        """Return an independent copy that shares `compiled`."""
        other = object.__new__(ALFWorldGame)
        other.compiled, other.spot, other.held, other.opened = self.compiled, self.spot, self.held, self.opened
        other.inside, other.located, other.left = self.inside.copy(), self.located.copy(), self.left.copy()
        other.conditions = self.conditions.copy()
        other._world, other._offered, other._parts = self._world, self._offered, self._parts.copy()
        return other

    # ---------------------------------------------------------------- playing
    def start(self) -> str:
        """Return the introduction: the place of the agent, the receptacles of the room, and the task."""
        if self.compiled.receptacles_at[self.spot]:
            around = self._look()
        else:
            standing = [f"a {place.name}" for place in self.compiled.receptacles if place.spot != NOWHERE]
            around = f"You are in the middle of a room. Looking quickly around you, you see {_listing(standing)}."
        return f"{WELCOME}\n\n{around}\n\nYour task is to: {self.compiled.words.task}"

    def act(self, command: str) -> tuple[str, bool]:
        """Apply `command`; return the observation, and whether it was one of `commands()`.

        Surrounding white space is ignored. Everything else must match exactly.
        """
        command = command.strip()
        move = self.move(command)
        if move is None:
            return NOTHING_HAPPENS, False
        return self.make(move), True

    def move(self, command: str) -> Move | None:
        """Return the move that a command makes now; None if it is not possible."""
        found = self._menu().moves.get(command) or self.compiled.ways().get(command)
        if found is not None and found[0] == Kind.GO and self.compiled.receptacles[found[1]].spot == self.spot:
            return None
        return found

    def text(self, move: Move) -> str:
        """Return the command that makes a move."""
        return self.compiled.command(move)

    def make(self, move: Move) -> str:
        """Apply a move that is possible now; return the observation."""
        kind, first, second = move
        if kind == Kind.GO:
            place = self.compiled.receptacles[first]
            self.spot = place.spot
            self._offered = None
            arrived = self.compiled.words.arrive.format(r=place.name, l=self.compiled.spot_names[place.spot])
            return f"{arrived} {self._content(first)}"
        if kind in READING:
            return self._told(kind, first)
        self._world = ""
        self._offered = None
        if kind in (Kind.OPEN, Kind.CLOSE):
            return self._door(kind, first)
        if kind in (Kind.TAKE, Kind.PUT):
            return self._hand(kind, first, second)
        return self._treat(kind, first, second)

    @property
    def won(self) -> bool:
        """Whether the goal holds now."""
        compiled, goal = self.compiled, self.compiled.goal
        wanted = compiled.wanted
        for condition in goal.conditions:
            wanted &= self.conditions[condition]
        if goal.lamp is not None:
            lit = compiled.goal_lamps & self.conditions["istoggled"]
            here = any(self.inside[place] & lit for place in compiled.receptacles_at[self.spot]) if lit else False
            return here and self.held != NOWHERE and bool(wanted >> self.held & 1)
        for place in compiled.goal_places:  # noqa: SIM110 (any() takes twice the time, and every step asks)
            if (self.inside[place] & wanted).bit_count() >= goal.count:
                return True
        return False

    @property
    def deadlock(self) -> bool:
        """Whether the agent holds a thing that no receptacle accepts and that the task does not need.

        In official games as well, the agent can take some things that it can never put down.
        """
        compiled, held = self.compiled, self.held
        if held == NOWHERE or compiled.things[held].fits or compiled.wanted >> held & 1:
            return False
        return not (compiled.having["knife"] >> held & 1 and "issliced" in compiled.goal.conditions)

    # ---------------------------------------------------------------- possible commands
    def commands(self) -> list[str]:
        """Return a new sorted list of the possible commands."""
        return [*self._menu().commands]

    def _menu(self) -> Menu:
        """Return the commands that are possible now, computed once per situation."""
        if self._offered is not None:
            return self._offered
        compiled, spot, inside = self.compiled, self.spot, self.inside
        cuttable = self.located[spot] & compiled.having["sliceable"] if self.held != NOWHERE else 0
        doors = self.opened & compiled.standing_at[spot]
        key = (spot, self.held, doors, cuttable, *[inside[place] for place in compiled.receptacles_at[spot]])
        found: Menu | None = compiled.menus.get(key)
        if found is None:
            if len(compiled.menus) > _KEPT:
                compiled.menus.clear()
            offers = {compiled.command(move): move for move in self._offers()}
            commands = sorted(offers)
            first_after = bisect_left(commands, VERB[Kind.GO])
            found = Menu((*commands[:first_after], *compiled.walks(spot), *commands[first_after:]), offers)
            compiled.menus[key] = found
        self._offered = found
        return found

    def _offers(self) -> Iterable[Move]:
        compiled, held = self.compiled, self.held
        yield Kind.LOOK, NOWHERE, NOWHERE
        yield Kind.INVENTORY, NOWHERE, NOWHERE
        if compiled.words.help is not None:
            yield Kind.HELP, NOWHERE, NOWHERE
        for place in compiled.receptacles_at[self.spot]:
            yield from self._offers_at(place)
        if held != NOWHERE:
            yield Kind.EXAMINE_THING, held, NOWHERE
            if compiled.having["knife"] >> held & 1:
                for thing in members(self.located[self.spot] & compiled.having["sliceable"]):
                    yield Kind.SLICE, thing, held

    def _offers_at(self, place: int) -> Iterable[Move]:
        compiled, receptacle, held = self.compiled, self.compiled.receptacles[place], self.held
        is_open = bool(self.opened >> place & 1)
        yield Kind.EXAMINE, place, NOWHERE
        if receptacle.openable:
            yield Kind.CLOSE if is_open else Kind.OPEN, place, NOWHERE
        for thing in members(self.inside[place] & compiled.having["toggleable"]):
            yield Kind.USE, thing, NOWHERE
        reachable = is_open or not receptacle.openable
        if held == NOWHERE:
            for thing in members(self.inside[place] & compiled.having["pickupable"] if reachable else 0):
                yield Kind.TAKE, thing, place
            return
        if reachable and compiled.things[held].fits >> place & 1:
            yield Kind.PUT, held, place
        for kind, trait, kinds in _TREATMENTS:
            if receptacle.kind in kinds and compiled.having[trait] >> held & 1:
                yield kind, held, place

    # ---------------------------------------------------------------- effects of moves
    def _door(self, kind: int, place: int) -> str:
        name = self.compiled.receptacles[place].name
        self.opened = self.opened & ~(1 << place) if kind == Kind.CLOSE else self.opened | 1 << place
        if self._parts:
            self._parts[_OPENED] = str(self.opened)
        return f"You close the {name}." if kind == Kind.CLOSE else f"You open the {name}. {self._content(place)}"

    def _hand(self, kind: int, thing: int, place: int) -> str:
        bit = 1 << thing
        template = self.compiled.words.put_feedback
        if kind == Kind.TAKE:
            template = "You pick up the {o} from the {r}."
            self.held = thing
            self.inside[place] &= ~bit
            self.located[self.spot] &= ~bit
            self.left[place] |= bit
        else:
            self.held = NOWHERE
            self.inside[place] |= bit
            self.located[self.spot] |= bit
            self.left[place] &= ~bit
        self._rewrite(place)
        return template.format(o=self.compiled.things[thing].name, r=self.compiled.receptacles[place].name)

    def _treat(self, kind: int, thing: int, tool: int) -> str:
        self._parts.clear()
        bit, now = 1 << thing, self.conditions
        name = self.compiled.things[thing].name
        if kind == Kind.USE:
            now["istoggled"] |= bit
            return f"You turn on the {name}."
        if kind == Kind.SLICE:
            now["issliced"] |= bit
            return f"You sliced the {name} with the {self.compiled.things[tool].name}."
        if kind == Kind.CLEAN:
            now["isclean"] |= bit
            verb = "clean"
        else:
            verb, gained, lost = ("heat", "ishot", "iscool") if kind == Kind.HEAT else ("cool", "iscool", "ishot")
            now[gained] |= bit
            now[lost] &= ~bit
        return f"You {verb} the {name} using the {self.compiled.receptacles[tool].name}."

    # ---------------------------------------------------------------- observations
    def _told(self, kind: int, about: int) -> str:
        if kind == Kind.LOOK:
            return self._look()
        if kind == Kind.INVENTORY:
            return self.inventory()
        if kind == Kind.EXAMINE:
            return self._content(about)
        if kind == Kind.EXAMINE_THING:
            return self._thing(about)
        return self.compiled.words.help or ""

    def inventory(self) -> str:
        """Return the observation of `inventory`."""
        if self.held == NOWHERE:
            return "You are not carrying anything."
        return f"You are carrying: a {self.compiled.things[self.held].name}."

    def _content(self, place: int) -> str:
        receptacle = self.compiled.receptacles[place]
        if not receptacle.openable:
            start = f"On the {receptacle.name}, you see "
        elif self.opened >> place & 1:
            start = f"The {receptacle.name} is open. In it, you see "
        else:
            return f"The {receptacle.name} is closed."
        mask, listings = self.inside[place], self.compiled.listings
        listing = listings.get(mask)
        if listing is None:
            if len(listings) > _KEPT:
                listings.clear()
            names = [f"a {self.compiled.things[thing].name}" for thing in members(mask)]
            listing = listings[mask] = _listing(names)
        return f"{start}{listing}."

    def _look(self) -> str:
        compiled = self.compiled
        facing = compiled.receptacles_at[self.spot]
        if not facing:
            return "You are in the middle of a room. Looking quickly around you, you see nothing."
        beside = [
            f"a {compiled.things[thing].name}"
            for thing in members(self.located[self.spot])
            for place in facing
            if self.left[place] >> thing & 1
        ]
        names = _listing([compiled.receptacles[place].name for place in facing])
        return f"You are facing the {names}. Next to it, you see {_listing(beside)}."

    def _thing(self, index: int) -> str:
        thing, traits = self.compiled.things[index], self.compiled.having
        if thing.contents is not None:
            return f"This is a normal {thing.name}. In it, you see {_listing([f'a {n}' for n in thing.contents])}."
        clean, hot, cool, on, sliced = (bool(self.conditions[c] >> index & 1) for c in MARKS)
        temperature = "hot" if hot else "cool" if cool else ""
        if temperature and not clean and not sliced:
            return f"This is a {'hot' if hot else 'cold'} {thing.name}."
        if temperature or clean:
            words = " and ".join(word for word in (temperature, "clean" if clean else "") if word)
            return f"This is a {words}{' sliced' if sliced else ''} {thing.name}."
        if on and traits["toggleable"] >> index & 1:
            return f"This {thing.name} is on."
        if sliced and traits["sliceable"] >> index & 1:
            return f"This is a sliced {thing.name}."
        return f"There's nothing special about {thing.name}."

    # ---------------------------------------------------------------- state
    def state_key(self) -> str:
        """Return the identity of the state: the spot, and a digest of everything else that affects the future.

        It omits facts that can no longer change a reward or a command: conditions that the goal does not require,
        conditions of other things, and the locations of things that no knife in the game can slice.
        """
        if not self._world:
            self._parts = self._parts or self._written()
            self._world = blake2b(",".join(self._parts).encode("ascii"), digest_size=12).hexdigest()
        return f"{self.spot}@{self._world}"

    def _written(self) -> list[str]:
        """Return the numbers that `state_key` digests: hand, doors, contents, locations and conditions."""
        compiled = self.compiled
        numbers = [
            self.held,
            self.opened,
            *self.inside,
            *[here & self._cuttable for here in self.located],
            *[self.conditions[condition] & compiled.wanted for condition in sorted(compiled.goal.conditions)],
            self.conditions["istoggled"] & compiled.goal_lamps,
        ]
        return [str(number) for number in numbers]

    def _rewrite(self, place: int) -> None:
        """Update `_parts` after a thing moved between a receptacle at this spot and the hand."""
        parts = self._parts
        if parts:
            parts[_HELD] = str(self.held)
            parts[_INSIDE + place] = str(self.inside[place])
            parts[_INSIDE + len(self.inside) + self.spot] = str(self.located[self.spot] & self._cuttable)

    @property
    def _cuttable(self) -> int:
        """The set of things that can be sliced; empty if the game has no knife."""
        return self.compiled.having["sliceable"] if self.compiled.having["knife"] else 0

    def describe(self) -> str:
        """Return the full state as readable text: a line for each receptacle, then the agent."""
        compiled = self.compiled
        lines = []
        for index, place in enumerate(compiled.receptacles):
            door = (" (open)" if self.opened >> index & 1 else " (closed)") if place.openable else ""
            lines.append(f"{place.name}{door}: {', '.join(map(self._state_of, members(self.inside[index]))) or '-'}")
        here = ", ".join(compiled.receptacles[place].name for place in compiled.receptacles_at[self.spot])
        held = "nothing" if self.held == NOWHERE else self._state_of(self.held)
        return "\n".join([*lines, f"You are at: {here or 'the middle of the room'}", f"You hold: {held}"])

    def _state_of(self, thing: int) -> str:
        marks = [name.removeprefix("is") for name, mask in self.conditions.items() if mask >> thing & 1]
        return self.compiled.things[thing].name + (f" ({', '.join(marks)})" if marks else "")

    def facts(self) -> frozenset[tuple[str, ...]]:
        """Return the facts that are true now and can change, with the names that players read.

        The agent's spot is a raw id. `("not_inreceptacle", thing, receptacle)` results from a `take`.
        """
        compiled = self.compiled
        thing = [item.name for item in compiled.things]
        place = [item.name for item in compiled.receptacles]
        found: set[tuple[str, ...]] = {("atlocation", compiled.spots[self.spot])}
        if self.held != NOWHERE:
            found.add(("holds", thing[self.held]))
        for predicate, sets in (("inreceptacle", self.inside), ("not_inreceptacle", self.left)):
            found.update((predicate, thing[i], place[r]) for r, mask in enumerate(sets) for i in members(mask))
        found.update(
            ("objectatlocation", thing[i], compiled.spots[s])
            for s, mask in enumerate(self.located)
            for i in members(mask)
        )
        found.update(("opened", place[r]) for r in members(self.opened))
        for condition, mask in self.conditions.items():
            found.update((condition, thing[i]) for i in members(mask))
        return frozenset(found)


def _listing(items: Sequence[str]) -> str:
    if not items:
        return "nothing"
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])}, and {items[-1]}"

"""Play one ALFWorld game in two engines in lock step: comparison after each command, and the choice of commands.

Shared by `alfworld_differential.py` and the tests, so that both do the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from agentgym_flow.core import Stream

SCHEMAS = (
    "look", "inventory", "help", "go to", "open", "close", "take", "put", "examine a place", "examine a thing",
    "use", "heat", "clean", "cool", "slice",
)  # fmt: skip
"""The 15 actions of ALFWorld's domain; `move` is counted as `put`."""

_MANIPULATIONS = ("open", "close", "take", "put", "use", "heat", "clean", "cool", "slice")
_NONSENSE, _ANY = 5, 30
"""Percentages of invalid commands, and of commands drawn from all offered ones. The rest handles objects."""

_TOOLS = {"heat": "microwave", "cool": "fridge", "clean": "sinkbasin"}
_FOOD = frozenset({"apple", "bread", "egg", "lettuce", "potato", "tomato"})
_WARES = frozenset(
    {"bowl", "cup", "mug", "pan", "plate", "pot", "cloth", "spoon", "fork", "kettle", "ladle", "spatula"}
)
_KNIVES = frozenset({"knife", "butterknife"})
_LAMPS = frozenset({"desklamp", "floorlamp"})


class Engine(Protocol):
    """The interface of both engines; see `agentgym_flow.envs.alfworld.game.ALFWorldGame`."""

    def start(self) -> str: ...
    def act(self, command: str) -> tuple[str, bool]: ...
    def commands(self) -> list[str]: ...
    @property
    def won(self) -> bool: ...
    def facts(self) -> frozenset[tuple[str, ...]]: ...


@dataclass
class Tally:
    """Counts of steps, of steps by schema, and of rare situations."""

    steps: int = 0
    schemas: Counter[str] = field(default_factory=Counter)
    situations: Counter[str] = field(default_factory=Counter)

    def add(self, command: str, told: str, valid: bool, engine: Engine) -> None:
        """Count one step of `engine`."""
        self.steps += 1
        if valid:
            self.schemas[schema_of(command, engine)] += 1
        self.situations["no command"] += not valid
        self.situations["won"] += engine.won
        if told.startswith("You are facing"):
            self.situations["look at a shared spot"] += "," in told.partition(".")[0]
            self.situations["look with something beside"] += not told.endswith("you see nothing.")

    def update(self, other: Tally) -> None:
        """Add another tally."""
        self.steps += other.steps
        self.schemas.update(other.schemas)
        self.situations.update(other.situations)


@dataclass(frozen=True)
class Difference:
    """The first difference between two engines: what differs, both values, and the commands before it."""

    what: str
    ours: object
    real: object
    history: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.what}\n  ours: {self.ours}\n  real: {self.real}\n  after: {list(self.history)}"


def lockstep(ours: Engine, real: Engine, wanderer: Wanderer, steps: int, tally: Tally) -> Difference | None:
    """Play both engines for `steps` commands; return the first difference, or None. Counts into `tally`."""
    history: list[str] = []
    pairs: list[tuple[str, object, object]] = [("introduction", ours.start(), real.start())]
    for _ in range(steps):
        if found := _difference(pairs + _standing(ours, real), history):
            return found
        command = wanderer.next(ours)
        history.append(command)
        answer = ours.act(command)
        pairs = [("answer", answer, real.act(command))]
        tally.add(command, *answer, ours)
    return _difference(pairs + _standing(ours, real), history)


def _standing(ours: Engine, real: Engine) -> list[tuple[str, object, object]]:
    return [
        ("commands", ours.commands(), real.commands()),
        ("won", ours.won, real.won),
        ("facts", ours.facts(), real.facts()),
    ]


def _difference(pairs: Sequence[tuple[str, object, object]], history: Sequence[str]) -> Difference | None:
    for what, ours, real in pairs:
        if ours != real:
            if isinstance(ours, (list, frozenset)) and isinstance(real, (list, frozenset)) and set(ours) != set(real):
                ours, real = sorted(set(ours) - set(real)), sorted(set(real) - set(ours))
                what = f"{what}, those that the other lacks"
            return Difference(what, ours, real, tuple(history))
    return None


def schema_of(command: str, engine: Engine) -> str:
    """Return the schema in `SCHEMAS` of a command that `engine` offered."""
    command = command.strip()
    if command.startswith("examine "):
        return "examine a thing" if ("holds", command.removeprefix("examine ")) in engine.facts() else "examine a place"
    if command.startswith("go to "):
        return "go to"
    verb = command.partition(" ")[0]
    return "put" if verb == "move" else verb


class Wanderer:
    """Chooses commands for both engines: first a walkthrough, then errands and random commands.

    Errands lead to situations that random commands rarely reach: an object heated, cooled, cleaned and sliced, one
    knife at a time; a lamp switched on; an object carried back and forth between the receptacles of one spot.

    Args:
        stream: the random stream.
        walkthrough: the first commands.
    """

    def __init__(self, stream: Stream, walkthrough: Sequence[str] = ()) -> None:
        self._stream = stream
        self._walkthrough = list(walkthrough)
        self._errand: Iterator[str] = iter(())
        self._seen: list[str] = []

    def next(self, engine: Engine) -> str:
        """Return the next command, based on the state of `engine`; one in twenty is nonsense."""
        if self._walkthrough:
            return self._walkthrough.pop(0)
        commands = engine.commands()
        self._seen.append(self._stream.choice(commands))
        chance = self._stream.below(100)
        if chance < _NONSENSE:
            return self._nonsense()
        if chance < _NONSENSE + _ANY:
            return self._stream.choice(commands)
        if (wish := self._wish(engine)) is not None:
            return wish
        handling = [command for command in commands if schema_of(command, engine) in _MANIPULATIONS]
        return self._stream.choice(handling or commands)

    def _wish(self, engine: Engine) -> str | None:
        """Return the next command of the current errand; if there is none, perhaps start another errand."""
        for wish in self._errand:
            if wish in engine.commands():
                return wish
        if self._stream.below(2):
            errands = (self._treat, self._treat, self._switch_on, self._shift)
            self._errand = self._stream.choice(errands)(_View(engine))
        return None

    def _nonsense(self) -> str:
        command = self._stream.choice(self._seen)
        words = command.split(" ")
        alter = self._stream.below(10)
        if alter < 6:
            return (
                command.upper(), command.title(), command.replace(" ", "  "), " ".join(words[:-1]), f"{command}0",
                command.replace("move", "put").replace(" to ", " in/on "),
            )[alter]  # fmt: skip
        if alter < 8:
            return f"\t {command}\n"  # surrounding white space is ignored
        return command if alter == 8 else ""  # a command for another state

    def _treat(self, view: _View) -> Iterator[str]:
        """Heat, cool, clean and slice one object, in any order, and look at it."""
        things = view.kinds(_FOOD) or view.kinds(_WARES)
        if not things:
            return
        thing = self._stream.choice(things)
        for verb in self._stream.sample((*_TOOLS, "slice"), 3):
            if verb == "slice":
                yield from self._slice(view, thing)
                continue
            yield from self._fetch(view, thing)
            for tool in view.places(_TOOLS[verb]):
                yield f"go to {tool}"
                yield f"{verb} {thing} with {tool}"
                yield f"examine {thing}"
        yield from self._fetch(view, thing)
        yield f"examine {thing}"

    def _slice(self, view: _View, thing: str) -> Iterator[str]:
        knives = view.kinds(_KNIVES)
        if not knives:
            return
        knife = self._stream.choice(knives)
        yield from self._put_down(view)
        yield from self._fetch(view, knife)
        for place in view.where(thing):
            yield f"go to {place}"  # the door may be closed
            yield f"slice {thing} with {knife}"
            yield f"slice {thing} with {knife}"
        yield from self._put_down(view)

    def _switch_on(self, view: _View) -> Iterator[str]:
        for lamp in view.kinds(_LAMPS):
            for place in view.where(lamp):
                yield f"go to {place}"
                yield f"use {lamp}"
                yield "look"

    def _shift(self, view: _View) -> Iterator[str]:
        """Repeatedly move objects between two receptacles of a spot."""
        for walk in self._walks(view, 3):
            if len(view.here()) < 2:
                yield walk
        yield from self._put_down(view)
        for place in view.here():
            yield f"open {place}"
        for _ in range(3):
            takes = [command for command in view.engine.commands() if command.startswith("take ")]
            if not takes:
                return
            yield self._stream.choice(takes)
            puts = [command for command in view.engine.commands() if schema_of(command, view.engine) == "put"]
            if puts:
                yield self._stream.choice(puts)
            yield "look"

    def _fetch(self, view: _View, thing: str) -> Iterator[str]:
        if view.held() == thing:
            return
        yield from self._put_down(view)
        for place in view.where(thing):
            yield f"go to {place}"
            yield f"open {place}"
            yield f"take {thing} from {place}"

    def _walks(self, view: _View, number: int) -> list[str]:
        """Return at most `number` random walks that are possible now."""
        walks = [command for command in view.engine.commands() if command.startswith("go to ")]
        return self._stream.sample(walks, min(number, len(walks)))

    def _put_down(self, view: _View) -> Iterator[str]:
        """Put down the held object: here, or in one of a few random receptacles."""
        for walk in ["", *self._walks(view, 6)]:
            thing = view.held()
            if thing is None:
                return
            place = walk.removeprefix("go to ")
            yield from (walk, f"open {place}")
            for command in view.engine.commands():
                if schema_of(command, view.engine) == "put":
                    yield command


class _View:
    """The facts of an engine that the errands need, computed anew each time."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def held(self) -> str | None:
        return next((fact[1] for fact in self.engine.facts() if fact[0] == "holds"), None)

    def kinds(self, words: frozenset[str]) -> list[str]:
        """Return the objects of these kinds that are in a receptacle, sorted."""
        return sorted({f[1] for f in self.engine.facts() if f[0] == "inreceptacle" and f[1].split(" ")[0] in words})

    def where(self, thing: str) -> list[str]:
        """Return the receptacles that hold an object, sorted."""
        return sorted(fact[2] for fact in self.engine.facts() if fact[:2] == ("inreceptacle", thing))

    def places(self, word: str) -> list[str]:
        """Return the receptacles of a kind, sorted."""
        targets = {command.removeprefix("go to ") for command in self.engine.commands() if command.startswith("go to ")}
        return sorted(place for place in targets | set(self.here()) if place.split(" ")[0] == word)

    def here(self) -> list[str]:
        """Return the receptacles at the agent's spot, sorted."""
        names = [c.removeprefix("examine ") for c in self.engine.commands() if c.startswith("examine ")]
        return [name for name in names if name != self.held()]

"""The immutable part of a game, compiled once and shared by all its episodes: places, things, words and commands.

Things and receptacles are numbered in the order of their ids, which is the order of all lists in observations. Sets of
them are integers with one bit for each.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, Self

from agentgym_flow.core import stable_hash
from agentgym_flow.envs.alfworld.problem import ALFWorldGoal, PDDLProblem, read_goal
from agentgym_flow.errors import BadGame

NOWHERE = -1
"""The spot of a receptacle that cannot be reached, and the held thing of an empty hand."""

SINKS = ("sinktype", "sinkbasintype")
MICROWAVES = ("microwavetype",)
FRIDGES = ("fridgetype",)
KNIVES = ("knifetype", "butterknifetype")

TRAITS = ("pickupable", "cleanable", "heatable", "coolable", "toggleable", "sliceable")
"""The predicates for properties of things that never change."""

MARKS = ("isclean", "ishot", "iscool", "istoggled", "issliced")
"""The predicates for properties of things that can change."""


class Kind:
    """What a command does."""

    LOOK, INVENTORY, HELP, GO, OPEN, CLOSE, TAKE, PUT, EXAMINE, EXAMINE_THING, USE, HEAT, CLEAN, COOL, SLICE = range(15)


READING = (Kind.LOOK, Kind.INVENTORY, Kind.HELP, Kind.EXAMINE, Kind.EXAMINE_THING)
"""The kinds that change nothing."""

VERB = (
    "look", "inventory", "help", "go to", "open", "close", "take", "put", "examine", "examine", "use",
    "heat", "clean", "cool", "slice",
)  # fmt: skip
"""Kind -> how its command begins; a game's words can replace `put`."""

Move = tuple[int, int, int]
"""The kind, the thing or receptacle that it is about, and the other one that it needs; `NOWHERE` for none."""

PUTS = ("move {o} to {r}", "put {o} in/on {r}")
"""The commands for putting an object down, in current and in older games."""

PUT_FEEDBACKS = ("You move the {o} to the {r}.", "You put the {o} in/on the {r}.")
"""The observations after these commands."""

ARRIVALS = ("You arrive at {r}.", "You arrive at {l}.")
"""The observations after `go to`: current games name the receptacle, older games the location (`loc 12`)."""

HELP = """\
These commands are understood, with the names that you have read in the place of the capitals:
  look                  say where you are and what is near
  inventory             say what you carry
  go to PLACE           walk to a receptacle
  open PLACE            open the receptacle you are at
  close PLACE           close it
  examine NAME          look at a receptacle you are at, or at what you hold
  take THING from PLACE
  move THING to PLACE
  use THING             switch a lamp on
  clean THING with PLACE, heat THING with PLACE, cool THING with PLACE
  slice THING with KNIFE
Whatever else you say, nothing happens."""
"""The text of `help` in generated games."""


@dataclass(frozen=True, slots=True)
class Words:
    """The sentences that differ between games.

    `{o}`, `{r}` and `{l}` stand for the names of the object, the receptacle and the location.

    Attributes:
        task: the text in the introduction after "Your task is to: ", with the full stop.
        put: the command for putting an object down, one of `PUTS`.
        put_feedback: the observation after it, one of `PUT_FEEDBACKS`.
        help: the text of `help`; None if the game has no such command.
        arrive: the observation after `go to`, one of `ARRIVALS`; a space and the content of the receptacle follow.
    """

    task: str
    put: str
    put_feedback: str
    help: str | None
    arrive: str = ARRIVALS[0]

    @classmethod
    def current(cls, task: str) -> Self:
        """Return the words of a current game, with our own help text."""
        return cls(task, PUTS[0], PUT_FEEDBACKS[0], HELP, ARRIVALS[0])

    @classmethod
    def old(cls, task: str) -> Self:
        """Return the words of a game from before ALFWorld 0.4: "put", named locations, and no help."""
        return cls(task, PUTS[1], PUT_FEEDBACKS[1], None, ARRIVALS[1])


@dataclass(frozen=True, slots=True)
class Receptacle:
    """A receptacle: its name, its kind (`"cabinettype"`), its spot, and whether it has a door."""

    name: str
    kind: str
    spot: int
    openable: bool


@dataclass(frozen=True, slots=True)
class GameObject:
    """An object: its name, its kind (`"appletype"`), the set of receptacles that accept it, and its contents.

    `contents` is None for objects that are not containers. The contents never change.
    """

    name: str
    kind: str
    fits: int
    contents: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class InitialState:
    """The facts at the start that can change; see the attributes of `ALFWorldGame`."""

    spot: int
    held: int
    inside: tuple[int, ...]
    located: tuple[int, ...]
    opened: int
    conditions: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class CompiledGame:
    """A game that can be played: places, things, what they can do, and the goal. Copies share it.

    Attributes:
        receptacles: in the order of their ids.
        things: in the order of their ids.
        spots: the ids of the locations of the agent, receptacles and things.
        spot_names: their names, such as `loc 12`, which only old games print.
        having: trait -> the set of things that have it: those of `TRAITS`, and `"knife"`.
        start: the state at the start.
        goal: the goal.
        words: the sentences that differ between game files.
        receptacles_at: for each spot, the receptacles there, in their order.
        standing_at: the same as sets.
        wanted: the set of things that can satisfy the goal by their kind and traits.
        goal_places: the receptacles that the goal accepts; empty for looking at something in light.
        goal_lamps: the set of lamps that the goal accepts.
        menus: the commands of situations that were met before; filled and emptied by `ALFWorldGame`.
        listings: sets of things that were met before -> their names in a sentence; likewise.
    """

    receptacles: tuple[Receptacle, ...]
    things: tuple[GameObject, ...]
    spots: tuple[str, ...]
    spot_names: tuple[str, ...]
    having: Mapping[str, int]
    start: InitialState
    goal: ALFWorldGoal
    words: Words
    receptacles_at: tuple[tuple[int, ...], ...] = field(init=False)
    standing_at: tuple[int, ...] = field(init=False)
    wanted: int = field(init=False)
    goal_places: tuple[int, ...] = field(init=False)
    goal_lamps: int = field(init=False)
    menus: dict[Any, Any] = field(init=False, compare=False, repr=False)
    listings: dict[int, str] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        having = {**self.having, "knife": _mask_where(thing.kind in KNIVES for thing in self.things)}
        wanted = _mask_where(thing.kind == self.goal.thing for thing in self.things)
        for trait in self.goal.traits:
            wanted &= having[trait]
        standing: list[list[int]] = [[] for _ in self.spots]
        for index, receptacle in enumerate(self.receptacles):
            if receptacle.spot != NOWHERE:
                standing[receptacle.spot].append(index)
        lamps = _mask_where(thing.kind == self.goal.lamp for thing in self.things)
        derived = {
            "having": having,
            "receptacles_at": tuple(map(tuple, standing)),
            "standing_at": tuple(sum(1 << index for index in here) for here in standing),
            "wanted": wanted,
            "goal_places": tuple(self.receptacles_of([self.goal.place])),
            "goal_lamps": lamps & having["toggleable"],
            "menus": {},
            "listings": {},
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    def __copy__(self) -> CompiledGame:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledGame:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # Menus and listings are left out: they can be larger than the game and are quickly computed again.
        return CompiledGame, tuple(getattr(self, item.name) for item in fields(self) if item.init)

    def receptacles_of(self, kinds: Collection[str | None]) -> list[int]:
        """Return the receptacles of any of these kinds, in their order."""
        return [index for index, receptacle in enumerate(self.receptacles) if receptacle.kind in kinds]

    def command(self, move: Move) -> str:
        """Return the command that makes a move."""
        kind, first, second = move
        receptacles, things = self.receptacles, self.things
        if kind in (Kind.GO, Kind.OPEN, Kind.CLOSE, Kind.EXAMINE):
            return f"{VERB[kind]} {receptacles[first].name}"
        if kind in (Kind.TAKE, Kind.PUT):
            template = "take {o} from {r}" if kind == Kind.TAKE else self.words.put
            return template.format(o=things[first].name, r=receptacles[second].name)
        if kind in (Kind.USE, Kind.EXAMINE_THING):
            return f"{VERB[kind]} {things[first].name}"
        if kind in (Kind.CLEAN, Kind.HEAT, Kind.COOL, Kind.SLICE):
            tool = things[second].name if kind == Kind.SLICE else receptacles[second].name
            return f"{VERB[kind]} {things[first].name} with {tool}"
        return VERB[kind]

    def ways(self) -> Mapping[str, Move]:
        """Return all walks by their commands, sorted, including those to the agent's own spot."""
        found: Mapping[str, Move] | None = self.menus.get(NOWHERE)
        if found is None:
            goals = [(Kind.GO, i, NOWHERE) for i, place in enumerate(self.receptacles) if place.spot != NOWHERE]
            found = self.menus[NOWHERE] = dict(sorted((self.command(goal), goal) for goal in goals))
        return found

    def walks(self, spot: int) -> tuple[str, ...]:
        """Return the commands that lead away from a spot, sorted."""
        found: tuple[str, ...] | None = self.menus.get(spot)
        if found is None:
            here = {self.command((Kind.GO, place, NOWHERE)) for place in self.receptacles_at[spot]}
            found = self.menus[spot] = tuple(command for command in self.ways() if command not in here)
        return found


def members(mask: int) -> Iterator[int]:
    """Yield the numbers whose bits are set, in ascending order."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


# ---------------------------------------------------------------- compiling
def compile_game(problem: PDDLProblem, words: Words, where: str = "game") -> CompiledGame:
    """Return the compiled game of a problem in ALFRED's domain.

    Raises `BadGame` if the rules do not cover the problem (two agents, a receptacle in two places, a goal of another
    form); `where` is the name of the file in the message.
    """
    return _Compiler(problem, words, where).game()


class Task(NamedTuple):
    """A game that is ready to be played.

    Attributes:
        game: the compiled game.
        content: the identity of the game without its wording.
    """

    game: CompiledGame
    content: str


def prepared(problem: PDDLProblem, words: Words, where: str) -> Task:
    """Return a problem as a game that is ready to be played. Raises `BadGame` like `compile_game`."""
    # Of the wording, only the parts that affect commands.
    content = stable_hash([sorted(problem.facts), problem.goal, words.put, words.help is not None])
    return Task(compile_game(problem, words, where), content)


class _Compiler:
    """Compiles one problem."""

    def __init__(self, problem: PDDLProblem, words: Words, where: str) -> None:
        self.problem = problem
        self.words = words
        self.where = where
        self.facts: dict[str, list[tuple[str, ...]]] = defaultdict(list)
        mentioned: set[str] = set()
        for predicate, *arguments in problem.facts:
            self.facts[predicate].append(tuple(arguments))
            mentioned.update(arguments)
        self.names = display_names(mentioned)
        kinds = problem.objects
        self.things = sorted(name for name in mentioned if kinds.get(name) == "object")
        self.receptacles = sorted(name for name in mentioned if kinds.get(name) == "receptacle")
        self.thing_index = {name: index for index, name in enumerate(self.things)}
        self.receptacle_index = {name: index for index, name in enumerate(self.receptacles)}
        places = (arguments[-1] for key in _PLACING for arguments in self.facts[key])
        self.spots = tuple(sorted(set(places)))
        self.spot_index = {name: index for index, name in enumerate(self.spots)}

    def game(self) -> CompiledGame:
        return CompiledGame(
            things=self._things(),
            receptacles=self._receptacles(),
            spots=self.spots,
            spot_names=tuple(self.names[spot] for spot in self.spots),
            having={trait: self._mask(self.facts[trait]) for trait in TRAITS},
            start=self._start(),
            goal=read_goal(self.problem.goal, self.where),
            words=self.words,
        )

    def _things(self) -> tuple[GameObject, ...]:
        kinds = self._single("objecttype")
        held_by: dict[str, list[str]] = {name: [] for (name,) in self.facts["isreceptacleobject"]}
        for inner, outer in sorted(self.facts["inreceptacleobject"]):
            if outer in held_by and inner != outer:
                held_by[outer].append(self.names[inner])
        fits = self._fits()
        return tuple(
            GameObject(
                self.names[name],
                kinds.get(name, ""),
                fits.get(kinds.get(name, ""), 0),
                tuple(held_by[name]) if name in held_by else None,
            )
            for name in self.things
        )

    def _fits(self) -> dict[str, int]:
        """Return kind of thing -> the set of receptacles that accept it."""
        of_kind: dict[str, int] = defaultdict(int)
        for name, kind in self._single("receptacletype").items():
            of_kind[kind] |= 1 << self.receptacle_index[name]
        fits: dict[str, int] = defaultdict(int)
        for receptacle_kind, thing_kind in self.facts["cancontain"]:
            fits[thing_kind] |= of_kind.get(receptacle_kind, 0)
        return fits

    def _receptacles(self) -> tuple[Receptacle, ...]:
        kinds, places = self._single("receptacletype"), self._single("receptacleatlocation")
        openable = {name for (name,) in self.facts["openable"]}
        return tuple(
            Receptacle(
                self.names[name],
                kinds.get(name, ""),
                self.spot_index[places[name]] if name in places else NOWHERE,
                name in openable,
            )
            for name in self.receptacles
        )

    def _start(self) -> InitialState:
        at = self._single("atlocation")
        if len(at) != 1:
            raise BadGame(f"{self.where}: {len(at)} agents have a location; exactly one must")
        held = [thing for _, thing in self.facts["holds"]]
        if len(held) > 1 or len(held) != len(self.facts["holdsany"]):
            raise BadGame(f"{self.where}: the agent may hold one thing, and then 'holdsAny' must be true of it too")
        inside, located = [0] * len(self.receptacles), [0] * len(self.spots)
        for thing, receptacle in self.facts["inreceptacle"]:
            inside[self.receptacle_index[receptacle]] |= 1 << self.thing_index[thing]
        for thing, spot in self.facts["objectatlocation"]:
            located[self.spot_index[spot]] |= 1 << self.thing_index[thing]
        opened = 0
        for (receptacle,) in self.facts["opened"]:
            opened |= 1 << self.receptacle_index[receptacle]
        return InitialState(
            spot=self.spot_index[next(iter(at.values()))],
            held=self.thing_index[held[0]] if held else NOWHERE,
            inside=tuple(inside),
            located=tuple(located),
            opened=opened,
            conditions={name: self._mask(self.facts[name]) for name in MARKS},
        )

    def _single(self, predicate: str) -> dict[str, str]:
        """Return first argument -> second argument of a relation that is a function."""
        values: dict[str, str] = {}
        for first, second in self.facts[predicate]:
            if values.setdefault(first, second) != second:
                raise BadGame(
                    f"{self.where}: {first} has two values of {predicate}, {values[first]} and {second}; "
                    "give each one only"
                )
        return values

    def _mask(self, unary: Iterable[tuple[str, ...]]) -> int:
        mask = 0
        for (name,) in unary:
            mask |= 1 << self.thing_index[name]
        return mask


_PLACING = ("receptacleatlocation", "objectatlocation", "atlocation")


def _mask_where(flags: Iterable[bool]) -> int:
    return sum(1 << index for index, flag in enumerate(flags) if flag)


# ---------------------------------------------------------------- names that players read
SEPARATOR = "_bar_"
"""The replacement of `|` in ids."""


def display_names(ids: Iterable[str]) -> dict[str, str]:
    """Return the name of every id, as in ALFWorld's own tools, such as `apple 2` for `apple_bar__minus_01_dot_20_...`.

    A name is the part of the id before the first `_bar_`, and a number. For each word, the numbers follow the sorted
    ids in *descending* order, so a list in the order of ids reads `cabinet 6, cabinet 5, ...`.

    An id without `_bar_` keeps its text, followed by a space, as in the original. `ids` are all ids in the facts of the
    problem, because each of them affects the numbers.
    """
    ordered = sorted(set(ids))
    left = Counter(_word(name) for name in ordered if SEPARATOR in name)
    names = {}
    for original in ordered:
        name = original
        word = _word(name)
        if SEPARATOR in name:
            names[name] = f"{word} {left[word]}"
            left[word] -= 1
        else:
            for code, symbol in (("_minus_", "-"), ("_plus_", "+"), ("_dot_", "."), ("_comma_", ",")):
                name = name.replace(code, symbol)
            names[original] = f"{name} "
    return names


def _word(name: str) -> str:
    # The id of a basin begins with the id of its sink: "sink_bar_..._bar_sinkbasin".
    return name.partition(SEPARATOR)[0] + ("basin" if "basin" in name else "")

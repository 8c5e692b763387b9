"""The policies that need no training: the expert, and a scripted policy that plays from the text alone.

The expert knows where everything is and finds a short plan for any task from any state. All walks cost one step, so the
length of a plan is its number of stops and of actions there. It tries all suitable things, places and tools and takes
the shortest plan. It does not combine two errands in one round; `benchmarks/alfworld_expert.py` measures the difference
to the optimum.

The scripted policy is a baseline between random play and the expert. It explores one receptacle after the other, in the
order of the introduction, until it has seen the wanted things, and then does the errand. It cannot read tasks in free
wording, and only explores then. `docs/policies.md` has its success rates.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from agentgym_flow.envs.alfworld.compiled_game import FRIDGES, MICROWAVES, NOWHERE, READING, SINKS, Kind, Move, members
from agentgym_flow.envs.alfworld.game import ALFWorldGame
from agentgym_flow.envs.alfworld.notes import THING, ALFWorldNotes, TaskRequirements, kind_of, notes_of, read_task
from agentgym_flow.envs.alfworld.rooms import TWO

if TYPE_CHECKING:
    from agentgym_flow.episodes import PolicyOutput
    from agentgym_flow.policies.base import PolicyInput

_TOOLS = {"isclean": (Kind.CLEAN, SINKS), "ishot": (Kind.HEAT, MICROWAVES), "iscool": (Kind.COOL, FRIDGES)}
_PAIRED = 4  # for tasks with two things, only pairs of this number of nearest things are tried


class ALFWorldExpert:
    """Plays one game, and plans again only in states that are not on its present plan."""

    def __init__(self) -> None:
        self._plan: dict[str, Move] = {}

    def next(self, game: ALFWorldGame) -> Move | None:
        """Return the next move of a short plan; None if the goal is reached or cannot be reached."""
        if game.state_key() not in self._plan:
            found = shortest_plan(game)
            if not found:
                return None
            self._plan.clear()
            ahead = game.copy()
            for move in found:
                self._plan.setdefault(ahead.state_key(), move)
                ahead.make(move)
        return self._plan[game.state_key()]


def shortest_plan(game: ALFWorldGame) -> list[Move] | None:
    """Return the shortest plan that the expert finds, or None. It does not change `game`."""
    if game.won:
        return []
    start = _Plan(game.copy(), [])
    goal = game.compiled.goal
    tries = _plans_to_look(start) if goal.lamp is not None else _plans_to_place(start, goal.count)
    best = min(tries, key=len, default=None)
    return None if best is None else best.moves


def least_moves(game: ALFWorldGame) -> int | None:
    """Return the smallest number of moves to the goal by breadth-first search; None if it cannot be reached.

    This is a reference for the expert in games with a few things and receptacles, which have thousands of states. A
    whole room has too many.
    """
    if game.won:
        return 0
    seen, queue = {game.state_key()}, deque([(game, 0)])
    while queue:
        now, made = queue.popleft()
        for command in now.commands():
            move = now.move(command)
            if move is None or move[0] in READING or move[0] == Kind.CLOSE:
                continue  # never part of a shortest plan
            after = now.copy()
            after.make(move)
            if after.won:
                return made + 1
            if after.state_key() not in seen:
                seen.add(after.state_key())
                queue.append((after, made + 1))
    return None


class _Plan:
    """A list of moves, and the state after them."""

    __slots__ = ("game", "moves")

    def __init__(self, game: ALFWorldGame, moves: list[Move]) -> None:
        self.game = game
        self.moves = moves

    def __len__(self) -> int:
        return len(self.moves)

    def copy(self) -> _Plan:
        return _Plan(self.game.copy(), self.moves.copy())

    def do(self, kind: int, first: int, second: int = NOWHERE) -> None:
        self.game.make((kind, first, second))
        self.moves.append((kind, first, second))

    def stand_at(self, place: int) -> None:
        if self.game.spot != self.game.compiled.receptacles[place].spot:
            self.do(Kind.GO, place)

    def reach_into(self, place: int) -> None:
        self.stand_at(place)
        if self.game.compiled.receptacles[place].openable and not self.game.opened >> place & 1:
            self.do(Kind.OPEN, place)


def _plans_to_place(start: _Plan, count: int) -> Iterator[_Plan]:
    """Yield a plan for every way to bring the things to their destination."""
    compiled, game = start.game.compiled, start.game
    for place in compiled.goal_places:
        if compiled.receptacles[place].spot == NOWHERE:
            continue
        there = [thing for thing in members(game.inside[place] & compiled.wanted) if not _lacking(game, thing)]
        others = [thing for thing in members(compiled.wanted) if thing not in there]
        alone = [(thing, plan) for thing in others for plan in _plans_to_bring(start, thing, place)]
        if len(there) == count - 1:
            yield from (plan for _, plan in alone)
            continue
        alone.sort(key=lambda found: len(found[1]))
        nearest = list(dict.fromkeys(thing for thing, _ in alone))[:_PAIRED]
        for first, plan in alone:
            for second in nearest:
                if first in nearest and second != first:
                    yield from _plans_to_bring(plan, second, place)


def _plans_to_bring(start: _Plan, thing: int, place: int) -> Iterator[_Plan]:
    """Yield plans after which `thing` is in `place` and in the condition that the goal requires."""
    if _lacking(start.game, thing) == ["issliced"] and start.game.inside[place] >> thing & 1:
        yield from _plans_to_slice(start, thing)  # no need to move it
    for plan in _plans_to_prepare(start, thing):
        # A thing can be in two receptacles. If it is taken from one, it is still in the other.
        if not plan.game.inside[place] >> thing & 1:
            if not plan.game.compiled.things[thing].fits >> place & 1:
                continue
            plan.reach_into(place)
            plan.do(Kind.PUT, thing, place)
        yield plan


def _plans_to_look(start: _Plan) -> Iterator[_Plan]:
    """Yield a plan for every way to look at a wanted thing under a lamp."""
    compiled = start.game.compiled
    for thing in members(compiled.wanted):
        for ready in _plans_to_prepare(start, thing):
            for place, lamps in enumerate(ready.game.inside):
                for lamp in members(lamps & compiled.goal_lamps):
                    if compiled.receptacles[place].spot == NOWHERE:
                        continue
                    plan = ready.copy()
                    plan.stand_at(place)
                    if not plan.game.conditions["istoggled"] >> lamp & 1:
                        plan.do(Kind.USE, lamp)
                    yield plan


def _lacking(game: ALFWorldGame, thing: int) -> list[str]:
    return [name for name in sorted(game.compiled.goal.conditions) if not game.conditions[name] >> thing & 1]


def _plans_to_prepare(start: _Plan, thing: int) -> Iterator[_Plan]:
    """Yield plans after which the agent holds `thing` in the condition that the goal requires."""
    lacking = _lacking(start.game, thing)
    for before in _plans_to_slice(start, thing) if "issliced" in lacking else [start]:
        for plan in _plans_to_hold(before, thing):
            if all(_treat(plan, thing, condition) for condition in lacking if condition in _TOOLS):
                yield plan


def _treat(plan: _Plan, thing: int, condition: str) -> bool:
    """Clean, heat or cool the held thing; return whether that is possible."""
    kind, kinds = _TOOLS[condition]
    compiled = plan.game.compiled
    tools = [tool for tool in compiled.receptacles_of(kinds) if compiled.receptacles[tool].spot != NOWHERE]
    if not tools:
        return False
    tool = min(tools, key=lambda place: compiled.receptacles[place].spot != plan.game.spot)
    plan.stand_at(tool)
    plan.do(kind, thing, tool)
    return True


def _plans_to_slice(start: _Plan, thing: int) -> Iterator[_Plan]:
    """Yield plans that slice `thing` with a knife where it is."""
    compiled = start.game.compiled
    for knife in members(compiled.having["knife"]):
        for armed in _plans_to_hold(start, knife):
            for spot, located in enumerate(armed.game.located):
                if located >> thing & 1 and compiled.receptacles_at[spot]:
                    plan = armed.copy()
                    plan.stand_at(compiled.receptacles_at[spot][0])
                    plan.do(Kind.SLICE, thing, knife)
                    yield plan


def _plans_to_hold(start: _Plan, thing: int) -> Iterator[_Plan]:
    """Yield plans after which the agent holds `thing`, each independent of `start`."""
    game = start.game
    if game.held == thing:
        yield start.copy()
    elif game.compiled.having["pickupable"] >> thing & 1:
        for place, inside in enumerate(game.inside):
            if inside >> thing & 1 and game.compiled.receptacles[place].spot != NOWHERE:
                plan = start.copy() if game.held == NOWHERE else _plan_to_put_down(start, place)
                if plan is not None:
                    plan.reach_into(place)
                    plan.do(Kind.TAKE, thing, place)
                    yield plan


def _plan_to_put_down(start: _Plan, on_the_way_to: int) -> _Plan | None:
    """Return a plan that puts down the held thing: here or on the way if possible, otherwise elsewhere."""
    game = start.game
    receptacles, fits = game.compiled.receptacles, game.compiled.things[game.held].fits
    no_detour = (game.spot, receptacles[on_the_way_to].spot)

    def cost(place: int) -> tuple[bool, bool]:
        shut = receptacles[place].openable and not game.opened >> place & 1
        # Opening the receptacle of the next thing is not an extra step.
        return receptacles[place].spot not in no_detour, shut and place != on_the_way_to

    places = [place for place in members(fits) if receptacles[place].spot != NOWHERE]
    if not places:
        return None
    plan = start.copy()
    place = min(places, key=cost)
    plan.reach_into(place)
    plan.do(Kind.PUT, game.held, place)
    return plan


# ---------------------------------------------------------------- the scripted policy
class _Memory(NamedTuple):
    """The information of an episode so far: the receptacles in the order of the introduction, and the notes."""

    places: list[str]
    notes: ALFWorldNotes

    @classmethod
    def of(cls, policy_input: PolicyInput) -> _Memory:
        introduction = policy_input.episode.observation.partition("you see ")[2].partition("Your task")[0]
        return cls(THING.findall(introduction), notes_of(policy_input))

    def where(self, kind: str, task: TaskRequirements) -> list[tuple[str, str]]:
        """Return the known things of a kind that are not yet at their destination, each with its receptacle."""
        return [
            (thing, place)
            for place, things in self.notes.inside.items()
            for thing in things or ()
            if kind_of(thing) == kind and not task.is_done(thing, place, self.notes.treated)
        ]

    def begun(self, task: TaskRequirements) -> list[str]:
        """Return the receptacles that already have one of the wanted things."""
        inside, treated = self.notes.inside, self.notes.treated
        return [place for place, things in inside.items() if any(task.is_done(t, place, treated) for t in things or ())]


class Housekeeper:
    """Explores all receptacles until it knows the wanted things, then does the task. Reads only what the agent sees."""

    name = "scripted"

    def act(self, inputs: Sequence[PolicyInput]) -> list[PolicyOutput]:
        """Return one action per input, which depends only on what its episode has shown."""
        from agentgym_flow.episodes import PolicyOutput  # which the environment does not need for its expert

        return [PolicyOutput(_action(policy_input)) for policy_input in inputs]


def _action(policy_input: PolicyInput) -> str:
    task, memory = read_task(policy_input.info["goal"]), _Memory.of(policy_input)
    commands: list[str] = policy_input.info["admissible_actions"]
    if task is None:
        return _explore(memory, commands)
    if memory.notes.held:
        return _with_it(task, memory, commands)
    for thing, place in memory.where(task.thing, task):
        return _here_or_go(f"take {thing} from {place}", place, commands)
    return _explore(memory, commands)


def _with_it(task: TaskRequirements, memory: _Memory, commands: list[str]) -> str:
    """Return the next command with the wanted thing in the hand."""
    held = memory.notes.held
    if task.is_light:
        for lamp, place in memory.where(task.place, task):
            return _here_or_go(f"use {lamp}", place, commands)
        return _explore(memory, commands)
    if not task.is_ready(held, memory.notes.treated):
        stations = [place for place in memory.places if kind_of(place) == task.station]
        return _here_or_go(f"{task.verb} {held} with {stations[0]}", stations[0], commands) if stations else "look"
    places = [place for place in memory.places if task.goes_to(place)]
    if task.task_type == TWO:  # the second thing goes to the receptacle of the first
        places = memory.begun(task) or places
    for place in places:
        puts = [command for command in commands if command.startswith(("move ", "put ")) and command.endswith(place)]
        return puts[0] if puts else _here_or_go("", place, commands)
    return "look"


def _explore(memory: _Memory, commands: list[str]) -> str:
    """Return a command towards the first unexplored receptacle."""
    for place in memory.places:
        if memory.notes.inside.get(place) is None:
            return _here_or_go("", place, commands)
    return "look"


def _here_or_go(command: str, place: str, commands: list[str]) -> str:
    """Return `command` if it is possible, else a step towards it: walk to `place`, or open it."""
    for step in (command, f"go to {place}", f"open {place}"):
        if step in commands:
            return step
    return f"examine {place}"

"""The expert, which knows where everything is and finds a short plan for any task from any state.

All walks cost one step, so the length of a plan is its number of stops and of actions there. The expert tries all
suitable things, places and tools and takes the shortest plan. It does not combine two errands in one round;
`benchmarks/alfworld_expert.py` measures the difference to the optimum.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from agentgym_flow.envs.alfworld import moves
from agentgym_flow.envs.alfworld.compiled_game import FRIDGES, MICROWAVES, NOWHERE, SINKS, members
from agentgym_flow.envs.alfworld.game import ALFWorldGame
from agentgym_flow.envs.alfworld.moves import Move

_TOOLS = {"isclean": (moves.CLEAN, SINKS), "ishot": (moves.HEAT, MICROWAVES), "iscool": (moves.COOL, FRIDGES)}
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
            if move is None or move[0] in moves.READING or move[0] == moves.CLOSE:
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
            self.do(moves.GO, place)

    def reach_into(self, place: int) -> None:
        self.stand_at(place)
        if self.game.compiled.receptacles[place].openable and not self.game.opened >> place & 1:
            self.do(moves.OPEN, place)


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
            plan.do(moves.PUT, thing, place)
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
                        plan.do(moves.USE, lamp)
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
                    plan.do(moves.SLICE, thing, knife)
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
                    plan.do(moves.TAKE, thing, place)
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
    plan.do(moves.PUT, game.held, place)
    return plan

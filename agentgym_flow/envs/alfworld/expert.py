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

    def next(self, play: ALFWorldGame) -> Move | None:
        """Return the next move of a short plan; None if the goal is reached or cannot be reached."""
        if play.state_key() not in self._plan:
            found = shortest_plan(play)
            if not found:
                return None
            self._plan.clear()
            ahead = play.copy()
            for move in found:
                self._plan.setdefault(ahead.state_key(), move)
                ahead.make(move)
        return self._plan[play.state_key()]


def shortest_plan(play: ALFWorldGame) -> list[Move] | None:
    """Return the shortest plan that the expert finds, or None. It does not change `play`."""
    if play.won:
        return []
    start = _Plan(play.copy(), [])
    goal = play.game.goal
    tries = _plans_to_look(start) if goal.lamp is not None else _plans_to_place(start, goal.count)
    best = min(tries, key=len, default=None)
    return None if best is None else best.moves


def least_moves(play: ALFWorldGame) -> int | None:
    """Return the smallest number of moves to the goal by breadth-first search; None if it cannot be reached.

    This is a reference for the expert in games with a few things and receptacles, which have thousands of states. A
    whole room has too many.
    """
    if play.won:
        return 0
    seen, queue = {play.state_key()}, deque([(play, 0)])
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

    __slots__ = ("moves", "play")

    def __init__(self, play: ALFWorldGame, moves: list[Move]) -> None:
        self.play = play
        self.moves = moves

    def __len__(self) -> int:
        return len(self.moves)

    def copy(self) -> _Plan:
        return _Plan(self.play.copy(), self.moves.copy())

    def do(self, kind: int, first: int, second: int = NOWHERE) -> None:
        self.play.make((kind, first, second))
        self.moves.append((kind, first, second))

    def stand_at(self, place: int) -> None:
        if self.play.spot != self.play.game.receptacles[place].spot:
            self.do(moves.GO, place)

    def reach_into(self, place: int) -> None:
        self.stand_at(place)
        if self.play.game.receptacles[place].openable and not self.play.opened >> place & 1:
            self.do(moves.OPEN, place)


def _plans_to_place(start: _Plan, count: int) -> Iterator[_Plan]:
    """Yield a plan for every way to bring the things to their destination."""
    game, play = start.play.game, start.play
    for place in game.goal_places:
        if game.receptacles[place].spot == NOWHERE:
            continue
        there = [thing for thing in members(play.inside[place] & game.wanted) if not _lacking(play, thing)]
        others = [thing for thing in members(game.wanted) if thing not in there]
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
    if _lacking(start.play, thing) == ["issliced"] and start.play.inside[place] >> thing & 1:
        yield from _plans_to_slice(start, thing)  # no need to move it
    for plan in _plans_to_prepare(start, thing):
        # A thing can be in two receptacles. If it is taken from one, it is still in the other.
        if not plan.play.inside[place] >> thing & 1:
            if not plan.play.game.things[thing].fits >> place & 1:
                continue
            plan.reach_into(place)
            plan.do(moves.PUT, thing, place)
        yield plan


def _plans_to_look(start: _Plan) -> Iterator[_Plan]:
    """Yield a plan for every way to look at a wanted thing under a lamp."""
    game = start.play.game
    for thing in members(game.wanted):
        for ready in _plans_to_prepare(start, thing):
            for place, lamps in enumerate(ready.play.inside):
                for lamp in members(lamps & game.goal_lamps):
                    if game.receptacles[place].spot == NOWHERE:
                        continue
                    plan = ready.copy()
                    plan.stand_at(place)
                    if not plan.play.conditions["istoggled"] >> lamp & 1:
                        plan.do(moves.USE, lamp)
                    yield plan


def _lacking(play: ALFWorldGame, thing: int) -> list[str]:
    return [name for name in sorted(play.game.goal.conditions) if not play.conditions[name] >> thing & 1]


def _plans_to_prepare(start: _Plan, thing: int) -> Iterator[_Plan]:
    """Yield plans after which the agent holds `thing` in the condition that the goal requires."""
    lacking = _lacking(start.play, thing)
    for before in _plans_to_slice(start, thing) if "issliced" in lacking else [start]:
        for plan in _plans_to_hold(before, thing):
            if all(_treat(plan, thing, condition) for condition in lacking if condition in _TOOLS):
                yield plan


def _treat(plan: _Plan, thing: int, condition: str) -> bool:
    """Clean, heat or cool the held thing; return whether that is possible."""
    kind, kinds = _TOOLS[condition]
    game = plan.play.game
    tools = [tool for tool in game.receptacles_of(kinds) if game.receptacles[tool].spot != NOWHERE]
    if not tools:
        return False
    tool = min(tools, key=lambda place: game.receptacles[place].spot != plan.play.spot)
    plan.stand_at(tool)
    plan.do(kind, thing, tool)
    return True


def _plans_to_slice(start: _Plan, thing: int) -> Iterator[_Plan]:
    """Yield plans that slice `thing` with a knife where it is."""
    game = start.play.game
    for knife in members(game.having["knife"]):
        for armed in _plans_to_hold(start, knife):
            for spot, located in enumerate(armed.play.located):
                if located >> thing & 1 and game.receptacles_at[spot]:
                    plan = armed.copy()
                    plan.stand_at(game.receptacles_at[spot][0])
                    plan.do(moves.SLICE, thing, knife)
                    yield plan


def _plans_to_hold(start: _Plan, thing: int) -> Iterator[_Plan]:
    """Yield plans after which the agent holds `thing`, each independent of `start`."""
    play = start.play
    if play.held == thing:
        yield start.copy()
    elif play.game.having["pickupable"] >> thing & 1:
        for place, inside in enumerate(play.inside):
            if inside >> thing & 1 and play.game.receptacles[place].spot != NOWHERE:
                plan = start.copy() if play.held == NOWHERE else _plan_to_put_down(start, place)
                if plan is not None:
                    plan.reach_into(place)
                    plan.do(moves.TAKE, thing, place)
                    yield plan


def _plan_to_put_down(start: _Plan, on_the_way_to: int) -> _Plan | None:
    """Return a plan that puts down the held thing: here or on the way if possible, otherwise elsewhere."""
    play = start.play
    receptacles, fits = play.game.receptacles, play.game.things[play.held].fits
    no_detour = (play.spot, receptacles[on_the_way_to].spot)

    def cost(place: int) -> tuple[bool, bool]:
        shut = receptacles[place].openable and not play.opened >> place & 1
        # Opening the receptacle of the next thing is not an extra step.
        return receptacles[place].spot not in no_detour, shut and place != on_the_way_to

    places = [place for place in members(fits) if receptacles[place].spot != NOWHERE]
    if not places:
        return None
    plan = start.copy()
    place = min(places, key=cost)
    plan.reach_into(place)
    plan.do(moves.PUT, play.held, place)
    return plan

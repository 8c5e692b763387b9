"""A competent player who knows where everything is: a short plan for any task, from any state.

All walks cost one step, so a plan is as long as its number of different stops and of things done there. The oracle
tries every thing, place and tool that could serve and takes the shortest plan. What it does not consider is doing two
errands on one round; `benchmarks/alfworld_oracle.py` measures how near it comes to the optimum.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from agentgym_flow.envs.alfworld import moves
from agentgym_flow.envs.alfworld.compiled_game import FRIDGES, MICROWAVES, NOWHERE, SINKS, CompiledGame, members
from agentgym_flow.envs.alfworld.game import ALFWorldGame
from agentgym_flow.envs.alfworld.moves import Move

_TOOLS = {"isclean": (moves.CLEAN, SINKS), "ishot": (moves.HEAT, MICROWAVES), "iscool": (moves.COOL, FRIDGES)}
_PAIRED = 4  # of the things that could be one of two, only so many of the nearest are tried together


class Oracle:
    """Plays one game; remembers its plan while it is followed.

    Args:
        game: the game it plays.
    """

    def __init__(self, game: CompiledGame) -> None:
        self._game = game
        self._plan: dict[str, Move] = {}

    def next(self, play: ALFWorldGame) -> Move | None:
        """Return the next move of a short plan from here; None when the goal is reached or out of reach."""
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
    """Return the shortest plan that the oracle sees from here; None when it sees none. `play` is not changed."""
    if play.won:
        return []
    start = _Trial(play.copy(), [])
    goal = play.game.goal
    tries = _looking(start) if goal.lamp is not None else _placing(start, goal.count)
    best = min(tries, key=len, default=None)
    return None if best is None else best.moves


def least_moves(play: ALFWorldGame) -> int | None:
    """Return the least number of moves to the goal, by breadth-first search over all states; None when there is no way.

    The measure of the oracle, on games with a handful of things and receptacles: there are thousands of states then,
    and beyond all counting in a whole room.
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


class _Trial:
    """A state that a plan leads to, and the plan."""

    __slots__ = ("moves", "play")

    def __init__(self, play: ALFWorldGame, moves: list[Move]) -> None:
        self.play = play
        self.moves = moves

    def __len__(self) -> int:
        return len(self.moves)

    def copy(self) -> _Trial:
        return _Trial(self.play.copy(), self.moves.copy())

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


def _placing(start: _Trial, count: int) -> Iterator[_Trial]:
    """Yield a plan for every way to bring the things where they belong."""
    game, play = start.play.game, start.play
    for place in game.goal_places:
        if game.receptacles[place].spot == NOWHERE:
            continue
        there = [thing for thing in members(play.inside[place] & game.wanted) if not _lacking(play, thing)]
        others = [thing for thing in members(game.wanted) if thing not in there]
        alone = [(thing, trial) for thing in others for trial in _brought(start, thing, place)]
        if len(there) == count - 1:
            yield from (trial for _, trial in alone)
            continue
        alone.sort(key=lambda found: len(found[1]))
        nearest = list(dict.fromkeys(thing for thing, _ in alone))[:_PAIRED]
        for first, trial in alone:
            for second in nearest:
                if first in nearest and second != first:
                    yield from _brought(trial, second, place)


def _brought(start: _Trial, thing: int, place: int) -> Iterator[_Trial]:
    """Yield plans after which `thing` is in `place`, in the condition that the goal asks for."""
    if _lacking(start.play, thing) == ["issliced"] and start.play.inside[place] >> thing & 1:
        yield from _sliced(start, thing)  # it is cut where it lies
    for trial in _ready(start, thing):
        # A thing can be in two receptacles; taken out of one, it is still in the other.
        if not trial.play.inside[place] >> thing & 1:
            if not trial.play.game.things[thing].fits >> place & 1:
                continue
            trial.reach_into(place)
            trial.do(moves.PUT, thing, place)
        yield trial


def _looking(start: _Trial) -> Iterator[_Trial]:
    """Yield a plan for every way to look at a wanted thing under a lamp."""
    game = start.play.game
    for thing in members(game.wanted):
        for ready in _ready(start, thing):
            for place, lamps in enumerate(ready.play.inside):
                for lamp in members(lamps & game.goal_lamps):
                    if game.receptacles[place].spot == NOWHERE:
                        continue
                    trial = ready.copy()
                    trial.stand_at(place)
                    if not trial.play.conditions["istoggled"] >> lamp & 1:
                        trial.do(moves.USE, lamp)
                    yield trial


def _lacking(play: ALFWorldGame, thing: int) -> list[str]:
    return [name for name in sorted(play.game.goal.conditions) if not play.conditions[name] >> thing & 1]


def _ready(start: _Trial, thing: int) -> Iterator[_Trial]:
    """Yield plans after which `thing` is in the hand and in the condition that the goal asks for."""
    lacking = _lacking(start.play, thing)
    for before in _sliced(start, thing) if "issliced" in lacking else [start]:
        for trial in _in_hand(before, thing):
            if all(_treat(trial, thing, condition) for condition in lacking if condition in _TOOLS):
                yield trial


def _treat(trial: _Trial, thing: int, condition: str) -> bool:
    """Clean, heat or cool what is in the hand; return whether that is possible."""
    kind, kinds = _TOOLS[condition]
    game = trial.play.game
    tools = [tool for tool in game.receptacles_of(kinds) if game.receptacles[tool].spot != NOWHERE]
    if not tools:
        return False
    tool = min(tools, key=lambda place: game.receptacles[place].spot != trial.play.spot)
    trial.stand_at(tool)
    trial.do(kind, thing, tool)
    return True


def _sliced(start: _Trial, thing: int) -> Iterator[_Trial]:
    """Yield plans that slice `thing`: with a knife in the hand, where the thing is."""
    game = start.play.game
    for knife in members(game.having["knife"]):
        for armed in _in_hand(start, knife):
            for spot, located in enumerate(armed.play.located):
                if located >> thing & 1 and game.receptacles_at[spot]:
                    trial = armed.copy()
                    trial.stand_at(game.receptacles_at[spot][0])
                    trial.do(moves.SLICE, thing, knife)
                    yield trial


def _in_hand(start: _Trial, thing: int) -> Iterator[_Trial]:
    """Yield plans after which `thing` is in the hand, each independent of `start`."""
    play = start.play
    if play.held == thing:
        yield start.copy()
    elif play.game.having["pickupable"] >> thing & 1:
        for place, inside in enumerate(play.inside):
            if inside >> thing & 1 and play.game.receptacles[place].spot != NOWHERE:
                trial = start.copy() if play.held == NOWHERE else _empty_handed(start, place)
                if trial is not None:
                    trial.reach_into(place)
                    trial.do(moves.TAKE, thing, place)
                    yield trial


def _empty_handed(start: _Trial, on_the_way_to: int) -> _Trial | None:
    """Return a plan that puts down what is held: best here, or where the way leads anyhow, or elsewhere."""
    play = start.play
    receptacles, fits = play.game.receptacles, play.game.things[play.held].fits
    no_detour = (play.spot, receptacles[on_the_way_to].spot)

    def cost(place: int) -> tuple[bool, bool]:
        shut = receptacles[place].openable and not play.opened >> place & 1
        # Opening the door where the next thing lies is no extra step.
        return receptacles[place].spot not in no_detour, shut and place != on_the_way_to

    places = [place for place in members(fits) if receptacles[place].spot != NOWHERE]
    if not places:
        return None
    trial = start.copy()
    place = min(places, key=cost)
    trial.reach_into(place)
    trial.do(moves.PUT, play.held, place)
    return trial

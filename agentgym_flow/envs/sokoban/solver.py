"""Finds a push-optimal plan from any state of a level, and tests for deadlocks.

A* searches states (boxes, region of the player), so walks are free and only pushes count. The lower bound is an exact
minimum assignment of boxes to targets by push distance (Junghanns and Schaeffer, "Sokoban: Enhancing general
single-agent search methods using domain knowledge", 2001). The search skips states with a box on a dead square or
frozen off target. A second pass minimises moves among the plans with the fewest pushes.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from agentgym_flow.envs.sokoban.bitboard import (
    Position,
    Regions,
    State,
    cells_of,
    flood,
    mask_of,
    moves_of,
    pushes,
    search_by_pulls,
)
from agentgym_flow.envs.sokoban.level import TARGET, WALL, Level
from agentgym_flow.errors import SearchLimit

UNREACHABLE = 10_000
"""The push distance to a target that a box cannot reach; greater than the length of any plan."""

MAX_EXPANSIONS = 200_000
"""The limit on expanded states; boards of ten by ten with four boxes need far fewer."""

MAX_COMPARED = 10_000
"""The limit on placements in the search for the fewest moves; it does not apply to one box."""

Arrivals = dict[int, tuple[int, int]]
"""Mask of the player's cell -> (fewest moves to it, placement of the boxes before the last push)."""


class Deadlocks:
    """Tests for deadlocks that use only the walls and targets of a level.

    `is_dead` is sound: if it returns True, the position cannot be solved. It is not complete, because boxes can block
    each other in ways that only a search finds.

    Attributes:
        width: number of columns of the board.
        floor: mask of the cells that the player can reach without boxes.
        targets: mask of the targets.
        dead_squares: mask of the cells from which a single box cannot be pushed to any target.
        push_distance: for every cell, the pushes of a single box to each target, in ascending order of targets.
    """

    def __init__(self, level: Level) -> None:
        self.width = width = level.width
        board = (1 << len(level.cells)) - 1
        walls = mask_of(i for i, code in enumerate(level.cells) if code & WALL)
        self.targets = mask_of(i for i, code in enumerate(level.cells) if code & TARGET)
        self.floor = flood(1 << level.player, board & ~walls, width)
        self._walls = board & ~self.floor
        tables = [self._pull_distances(target) for target in cells_of(self.targets)]
        self.push_distance = [tuple(t.get(cell, UNREACHABLE) for t in tables) for cell in range(len(level.cells))]
        dead = mask_of(cell for cell, row in enumerate(self.push_distance) if min(row) == UNREACHABLE)
        self.dead_squares = dead
        self._dead_beside = dead << 1 & dead >> 1
        self._dead_above_and_below = dead << width & dead >> width

    def __deepcopy__(self, memo: dict[int, Any]) -> Deadlocks:
        return self  # immutable, so clones of an environment share it

    def _pull_distances(self, target: int) -> dict[int, int]:
        """Return cell -> fewest pushes of a single box to `target`, for the best start of the player."""
        layers, _ = search_by_pulls(self.floor, 1 << target, self.width, 4 * self.floor.bit_count())
        distances: dict[int, int] = {}
        for pushes_left, layer in enumerate(layers):
            for box, _ in layer:
                distances.setdefault(box.bit_length() - 1, pushes_left)
        return distances

    def is_dead(self, boxes: int) -> bool:
        """Return whether it is certain that these boxes cannot all reach targets."""
        return bool(boxes & self.dead_squares or self.frozen(boxes) & ~self.targets)

    def frozen(self, boxes: int) -> int:
        """Return the mask of the boxes that no solution can move.

        It is the largest set in which every box is blocked along both axes: by a wall, by another box of the set, or by
        dead squares on both sides. No box of the set can be the first to move.
        """
        held = boxes
        width = self.width
        while True:
            solid = self._walls | held
            still = (
                held
                & (solid << 1 | solid >> 1 | self._dead_beside)
                & (solid << width | solid >> width | self._dead_above_and_below)
            )
            if still == held:
                return held
            held = still


@lru_cache(maxsize=1024)
def deadlocks(level: Level) -> Deadlocks:
    """Return the (cached) deadlock tables of a level."""
    return Deadlocks(level)


def assignment_cost(costs: list[tuple[int, ...]]) -> int:
    """Return the cost of a minimum assignment for a square cost matrix (Hungarian method)."""
    size = len(costs)
    row_price, column_price = [0] * size, [0] * size
    row_of = [-1] * (size + 1)  # row assigned to each column; the extra column holds the row being inserted
    for row in range(size):
        row_of[size] = row
        column = size
        slack = [UNREACHABLE * 100] * size
        previous = [size] * size
        done = [False] * (size + 1)
        while row_of[column] != -1:
            done[column] = True
            current = row_of[column]
            best, following = UNREACHABLE * 100, size
            for other in range(size):
                if not done[other]:
                    reduced = costs[current][other] - row_price[current] - column_price[other]
                    if reduced < slack[other]:
                        slack[other], previous[other] = reduced, column
                    if slack[other] < best:
                        best, following = slack[other], other
            for other in range(size):
                if done[other]:
                    row_price[row_of[other]] += best
                    column_price[other] -= best
                else:
                    slack[other] -= best
            row_price[row] += best
            column = following
        while column != size:
            row_of[column] = row_of[previous[column]]
            column = previous[column]
        row_of[size] = -1
    return sum(costs[row_of[column]][column] for column in range(size))


class _LevelSearch:
    """One search with its two passes, and the lower bounds of all placements so far."""

    def __init__(self, tables: Deadlocks, max_expansions: int) -> None:
        self._tables = tables
        self._max_expansions = max_expansions
        self._bounds: dict[int, int] = {}

    def bound(self, boxes: int) -> int:
        """Return a lower bound on the pushes from a placement to the end; at least `UNREACHABLE` if it is dead."""
        bound = self._bounds.get(boxes)
        if bound is None:
            tables = self._tables
            if tables.is_dead(boxes):
                bound = UNREACHABLE
            else:
                bound = assignment_cost([tables.push_distance[cell] for cell in cells_of(boxes)])
            self._bounds[boxes] = bound
        return bound

    def fewest_pushes(self, start: Position) -> list[int] | None:
        """Return the placements along a push-optimal solution, or None if there is none (A*).

        Raises `SearchLimit` if it needs more than `max_expansions` states.
        """
        width, floor = self._tables.width, self._tables.floor
        regions = Regions(floor, width)
        first = (start[0], regions.around(start[1], start[0]))
        reached: dict[State, tuple[int, State | None]] = {first: (0, None)}
        expanded: set[State] = set()
        bound = self.bound(start[0])
        # In a tie, states with fewer pushes left come first, then newer states.
        frontier = [(bound, bound, 0, first)] if bound < UNREACHABLE else []
        while frontier:
            total, left, _, state = heapq.heappop(frontier)
            if left == 0:
                placements = [state[0]]
                while (before := reached[state][1]) is not None:
                    placements.append(before[0])
                    state = before
                return placements[::-1]
            if state in expanded:
                continue
            expanded.add(state)
            if len(expanded) > self._max_expansions:
                raise SearchLimit(f"no plan within {self._max_expansions} expanded states; raise max_expansions")
            done = total - left + 1
            for boxes, player in pushes(*state, floor & ~state[0], width):
                bound = self.bound(boxes)
                if bound >= UNREACHABLE:
                    continue
                after = (boxes, regions.around(player, boxes))
                if after not in reached or done < reached[after][0]:
                    reached[after] = (done, state)
                    heapq.heappush(frontier, (done + bound, bound, -len(reached), after))
        return None

    def _useful_pushes(self, boxes: int, left: int) -> list[tuple[int, Position]]:
        """Return (mask of the player's cell, board after) of the pushes after which `left` more pushes can suffice."""
        width = self._tables.width
        free = self._tables.floor & ~boxes
        useful = []
        for after in pushes(boxes, free, free, width):
            if self.bound(after[0]) <= left:
                box, moved = after[1], after[0] & ~boxes
                useful.append(
                    (box * box // moved, after)
                )  # the player's and the box's new cell are symmetric about the box
        return useful

    def fewest_moves(self, start: Position, count: int, max_compared: int) -> list[int] | None:
        """Return the placements along a solution with `count` pushes, the minimum, and the fewest moves.

        A dynamic program over pushes computes the fewest moves for every placement and every cell of the player after
        a push. Returns None if it visits more than `max_compared` placements of several boxes.
        """
        width, floor = self._tables.width, self._tables.floor
        layers: list[dict[int, Arrivals]] = [{start[0]: {start[1]: (0, 0)}}]
        visited = 0
        for done in range(1, count + 1):
            visited += len(layers[-1])
            if visited > max_compared and start[0].bit_count() > 1:
                return None
            layer: dict[int, Arrivals] = {}
            for boxes, players in layers[-1].items():
                options = self._useful_pushes(boxes, count - done)
                stands = 0
                for stand, _ in options:
                    stands |= stand
                for moves, cells in _wave(players, stands, floor & ~boxes, width):
                    for stand, (after, player) in options:
                        if stand & cells:
                            arrivals = layer.setdefault(after, {})
                            if player not in arrivals or moves + 1 < arrivals[player][0]:
                                arrivals[player] = (moves + 1, boxes)
            layers.append(layer)
        return self._backtrack(layers)

    def _backtrack(self, layers: list[dict[int, Arrivals]]) -> list[int]:
        """Return the placements along the solution with the fewest moves."""
        width, floor = self._tables.width, self._tables.floor
        ((boxes, players),) = layers[-1].items()
        player = min(players, key=lambda cell: players[cell][0])
        placements = [boxes]
        for layer, before in zip(layers[:0:-1], layers[-2::-1], strict=True):
            moves, boxes = layer[boxes][player]
            stand = player * player // (placements[-1] & ~boxes)
            for player, (earlier, _) in before[boxes].items():
                arrival = next(iter(_wave({player: (earlier, 0)}, stand, floor & ~boxes, width)), None)
                if arrival is not None and arrival[0] + 1 == moves:
                    break
            placements.append(boxes)
        return placements[::-1]


def _wave(starts: Arrivals, goals: int, free: int, width: int) -> Iterator[tuple[int, int]]:
    """Yield (fewest moves, mask of the cells reached with them) for the cells of `goals`, nearest first.

    Args:
        starts: the possible cells of the player with their numbers of moves.
        goals: mask of the cells to reach.
        free: mask of the cells on which the player can walk.
        width: number of columns of the board.
    """
    waiting = sorted(((moves, player) for player, (moves, _) in starts.items()), reverse=True)
    reached = front = moves = 0
    while goals and (front or waiting):
        if not front:
            moves = waiting[-1][0]
        while waiting and waiting[-1][0] <= moves:
            front |= waiting.pop()[1]
        reached |= front
        if front & goals:
            yield moves, front & goals
            goals &= ~front
        front = (front << 1 | front >> 1 | front << width | front >> width) & free & ~reached
        moves += 1


def solve(
    level: Level,
    player: int | None = None,
    boxes: Iterable[int] | None = None,
    max_expansions: int = MAX_EXPANSIONS,
    max_compared: int = MAX_COMPARED,
) -> list[str] | None:
    """Return a plan with the fewest pushes from any state of a level, as words of `ACTIONS`.

    With one box, it has the fewest moves of all push-optimal plans. With several boxes too, unless this needs more than
    `max_compared` placements. The plan is deterministic.

    Args:
        level: the walls and targets, and the default start.
        player: flat index of the player, in the region of the level's player; None for the level's start.
        boxes: flat indices of the boxes, as many as targets; None for the level's start.
        max_expansions: the limit on expanded states.
        max_compared: the limit on placements in the search for fewer moves; 0 to skip this search.

    Returns:
        The plan; `[]` if every box is on a target; None if the state cannot be solved.

    Raises:
        SearchLimit: the search needs more than `max_expansions` states.
    """
    tables = deadlocks(level)
    start_cell = level.player if player is None else player
    start = (mask_of(level.boxes if boxes is None else boxes), 1 << start_cell)
    search = _LevelSearch(tables, max_expansions)
    placements = search.fewest_pushes(start)
    if placements is None:
        return None
    if max_compared:
        placements = search.fewest_moves(start, len(placements) - 1, max_compared) or placements
    return moves_of(placements, start_cell, tables.floor, tables.width)

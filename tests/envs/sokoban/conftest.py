"""An independent referee: the rules and an unpruned search on coordinates, without any of the package's engines."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence

import pytest

from agentgym_flow.envs.sokoban.level import Level

DELTAS = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}

Cell = tuple[int, int]
Position = tuple[Cell, frozenset[Cell]]


class Referee:
    """One level as sets of (row, column)."""

    def __init__(self, level: Level) -> None:
        grid = {
            (row, column): symbol
            for row, line in enumerate(level.xsb().split("\n"))
            for column, symbol in enumerate(line)
        }
        self.width = level.width
        self.walls = {cell for cell, symbol in grid.items() if symbol == "#"}
        self.targets = frozenset(cell for cell, symbol in grid.items() if symbol in ".*+")
        boxes = frozenset(cell for cell, symbol in grid.items() if symbol in "$*")
        (player,) = (cell for cell, symbol in grid.items() if symbol in "@+")
        self.start: Position = (player, boxes)

    def position(self, player: int, boxes: Iterable[int]) -> Position:
        return divmod(player, self.width), frozenset(divmod(box, self.width) for box in boxes)

    def step(self, position: Position, word: str) -> tuple[Position, bool]:
        """Return the position after a move, and whether a box was pushed; a blocked move changes nothing."""
        (row, column), boxes = position
        down, right = DELTAS[word]
        ahead = (row + down, column + right)
        beyond = (row + 2 * down, column + 2 * right)
        if ahead in self.walls:
            return position, False
        if ahead not in boxes:
            return (ahead, boxes), False
        if beyond in self.walls or beyond in boxes:
            return position, False
        return (ahead, boxes - {ahead} | {beyond}), True

    def play(self, plan: Sequence[str], start: Position | None = None) -> tuple[Position, int]:
        """Return the last position and the number of pushes; every word must change something."""
        position, total = start or self.start, 0
        for word in plan:
            after, pushed = self.step(position, word)
            assert after != position, f"{word} does nothing"
            position, total = after, total + pushed
        return position, total

    def solved(self, position: Position) -> bool:
        return position[1] == self.targets

    def optimum(self, start: Position | None = None) -> tuple[int, int] | None:
        """Return (pushes, moves) of the solution with the fewest pushes and then the fewest moves, or None."""
        first = start or self.start
        best = {first: (0, 0)}
        queue = [((0, 0), 0, first)]
        count = 0
        while queue:
            cost, _, position = heapq.heappop(queue)
            if cost > best[position]:
                continue
            if self.solved(position):
                return cost
            for word in DELTAS:
                after, pushed = self.step(position, word)
                total = (cost[0] + pushed, cost[1] + 1)
                if after not in best or total < best[after]:
                    best[after] = total
                    count += 1
                    heapq.heappush(queue, (total, count, after))
        return None


@pytest.fixture(scope="session")
def referee() -> Callable[[Level], Referee]:
    return Referee

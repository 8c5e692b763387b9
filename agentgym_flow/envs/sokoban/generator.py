"""Generate levels: a room from a random walk, then a search backwards from the solved board.

Rooms are made as in gym-sokoban, by a random walk that stamps small patterns of floor. The start is found by a
breadth-first search by *pulls* over states (boxes, region of the player), from the solved board with the player in any
region. The depth of a state is the smallest number of pushes that solve it. So difficulty is a setting, and every level
is solvable by construction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from agentgym_flow.core import Stream
from agentgym_flow.envs.sokoban.bitboard import State, cells_of, mask_of, moves_of, nth_cell, search_by_pulls, steps
from agentgym_flow.envs.sokoban.level import BOX, FLOOR_BITS_TO_CODES, TARGET, Level
from agentgym_flow.envs.sokoban.solver import MAX_COMPARED, solve
from agentgym_flow.errors import BadSetting, shown

MAX_CELLS = 255
"""The largest number of cells of a generated level, because its symmetries are stored in bytes."""

MAX_ROOMS = 1000
"""The number of rooms after which settings are declared impossible."""

MAX_WORK = 500_000
"""The work, in searched states, after which settings are declared impossible: about three seconds. For rooms of up to
8x8 with a few boxes, `MAX_ROOMS` is reached first."""

HOPELESS_WORK, HOPELESS_SHARE = 150_000, 0.75
"""After `HOPELESS_WORK`, about a second, settings are declared impossible if the hardest level so far needs less than
this share of `min_pushes`, because rooms do not differ that much."""

_BOARD_WORK, _PLAN_WORK = 5, 500  # the costs of a board and of a plan, in states

MAX_STATES = 5000
"""The limit on states in one room. If there are more, depths are exact but deeper states may be missing."""

_STAMPS = ("---###---", "-#--#--#-", "---##--#-", "----##-#-", "---##-##-")
"""The 3x3 patterns of floor around a step of the walk, row by row; each is connected and includes its centre."""

_TURNS = 28
"""The number of outcomes, of 80 equally likely ones, that draw a new heading of the walk (35 %)."""


def default_max_steps(height: int, width: int) -> int:
    """Return the step budget of an episode on a board of this size: 20 up to 6x6, 50 up to 7x7, else 200."""
    if height * width <= 36:
        return 20
    return 50 if height * width <= 49 else 200


@dataclass(frozen=True, slots=True)
class LevelSettings:
    """The settings of generated levels.

    Attributes:
        size: rows and columns, including the border of walls.
        boxes: the number of boxes.
        min_pushes: the minimum number of pushes of an optimal solution.
        max_moves: the maximum number of moves of the expert's plan; None for the default step budget of this size.

    Raises:
        BadSetting: a value is out of range; the message names the value and the range.
    """

    size: tuple[int, int] = (6, 6)
    boxes: int = 1
    min_pushes: int = 1
    max_moves: int | None = None

    def __post_init__(self) -> None:
        for name in ("boxes", "min_pushes", "max_moves"):
            value = getattr(self, name)
            if not (type(value) is int and value >= 1) and not (name == "max_moves" and value is None):
                raise BadSetting(f"{name} must be an integer of at least 1, got {shown(value)}")
        if len(self.size) != 2 or not all(type(side) is int for side in self.size):
            raise BadSetting(f"size must be two integers (rows, columns), got {shown(self.size)}")
        height, width = self.size
        if min(height, width) < 3 or max(height, width) < 5 or height * width > MAX_CELLS:
            raise BadSetting(f"size must be from 3x5 (walls included) to {MAX_CELLS} cells, got {height}x{width}")
        most = ((height - 2) * (width - 2) - 1) // 2
        if self.boxes > most:
            raise BadSetting(f"boxes must be at most {most} on {height}x{width}, got {self.boxes}")
        if self.move_limit < self.min_pushes:
            budget = f"the default step budget of {height}x{width}" if self.max_moves is None else "max_moves"
            raise BadSetting(f"min_pushes must be at most {self.move_limit}, {budget}; got {self.min_pushes}")

    @property
    def move_limit(self) -> int:
        """The maximum number of moves of the expert's plan, with the default applied."""
        return default_max_steps(*self.size) if self.max_moves is None else self.max_moves


def generate(settings: LevelSettings, stream: Stream, accept: Callable[[bytes], bool] | None = None) -> Level:
    """Return a new level, which depends only on the settings, the position of the stream and `accept`.

    The starts of each room are tried from the hardest to the easiest. The result is the first that is accepted, needs
    `min_pushes`, and has an expert's plan of at most `max_moves`. The player starts anywhere in its region.

    Args:
        settings: the settings of the level.
        stream: the source of all randomness.
        accept: whether a board may be used, given its `height * width` bit codes without the player; None accepts all.

    Raises:
        BadSetting: there is no such level within `MAX_ROOMS` and `MAX_WORK`; the message says which setting to relax.
    """
    height, width = settings.size
    deepest = work = rooms = 0
    while rooms < MAX_ROOMS and work <= (HOPELESS_WORK if deepest < HOPELESS_SHARE * settings.min_pushes else MAX_WORK):
        rooms += 1
        floor = build_room(height, width, stream)
        targets = _place_targets(floor, settings.boxes, width, stream)
        if not targets:
            continue
        layers, parents = search_by_pulls(floor, targets, width, MAX_STATES)
        room = _Room(settings, floor, targets, parents)
        for depth in range(len(layers) - 1, settings.min_pushes - 1, -1):
            for state in layers[depth]:
                level = room.level(state, depth, stream, accept)
                if level is not None:
                    return level
                if work + room.work > MAX_WORK:
                    break
        work += len(parents) + room.work
        if len(layers) - 1 > deepest:
            starts = (depth for depth, layer in enumerate(layers) for boxes, _ in layer if not boxes & targets)
            deepest = max(deepest, *starts, 0)
    raise BadSetting(_advice(settings, rooms, deepest, accept is None))


@lru_cache(maxsize=64)
def _walk_tables(height: int, width: int) -> tuple[list[int], list[list[int]], list[list[int]]]:
    """Return the interior cells, the next cell by heading and cell, and the mask by stamp and cell."""
    interior = [row * width + column for row in range(1, height - 1) for column in range(1, width - 1)]
    inside = set(interior)
    cells = range(height * width)
    ahead = [[cell + step if cell + step in inside else cell for cell in cells] for step in steps(width)]
    offsets = [
        [(i // 3 - 1) * width + i % 3 - 1 for i, symbol in enumerate(stamp) if symbol == "#"] for stamp in _STAMPS
    ]
    stamps = [[mask_of(cell + o for o in around if cell + o in inside) for cell in cells] for around in offsets]
    return interior, ahead, stamps


def build_room(height: int, width: int, stream: Stream) -> int:
    """Return the mask of the floor of a random room, which is connected and does not touch the border."""
    interior, ahead, stamps = _walk_tables(height, width)
    cell = stream.choice(interior)
    heading = stream.below(4)
    kinds = len(stamps)
    outcomes = 80 * kinds
    length = 17 * (height + width) // 10
    whole_walk = stream.below(outcomes**length)  # one draw for all steps is several times faster
    floor = 0
    for _ in range(length):
        whole_walk, outcome = divmod(whole_walk, outcomes)
        if outcome < _TURNS * kinds:
            heading = outcome // kinds % 4
        cell = ahead[heading][cell]
        floor |= stamps[outcome % kinds][cell]
    return floor


def _place_targets(floor: int, count: int, width: int, stream: Stream) -> int:
    """Return the mask of `count` random targets from which a box can be pulled, or 0 if there are too few."""
    pullable = 0
    for shift in (1, width):
        pullable |= (floor >> shift & floor >> 2 * shift) | (floor << shift & floor << 2 * shift)
    pullable &= floor
    if pullable.bit_count() < count:
        return 0
    targets = 0
    for _ in range(count):
        target = nth_cell(pullable, stream.below(pullable.bit_count()))
        targets |= target
        pullable ^= target
    return targets


class _Room:
    """A searched room, which provides starts."""

    def __init__(self, settings: LevelSettings, floor: int, targets: int, parents: dict[State, State | None]) -> None:
        self._settings = settings
        self._floor = floor
        self._targets = targets
        self._parents = parents
        self._refused: set[int] = set()
        self.work = 0
        height, width = settings.size
        bits = format(floor, f"0{height * width}b")[::-1].encode()
        self._empty = bytearray(bits.translate(FLOOR_BITS_TO_CODES))
        for cell in cells_of(targets):
            self._empty[cell] = TARGET

    def level(self, state: State, depth: int, stream: Stream, accept: Callable[[bytes], bool] | None) -> Level | None:
        """Return the level that starts in `state`, `depth` pushes before the end; None if it is not accepted."""
        boxes, region = state
        if boxes & self._targets or boxes in self._refused:
            return None
        self.work += _BOARD_WORK
        cells = self._empty.copy()
        for cell in cells_of(boxes):
            cells[cell] = BOX
        board = bytes(cells)
        if accept is not None and not accept(board):
            self._refused.add(boxes)
            return None
        player = nth_cell(region, stream.below(region.bit_count())).bit_length() - 1
        level = Level(*self._settings.size, board, player)
        return level if self._is_short(level, state, depth) else None

    def _is_short(self, level: Level, state: State, depth: int) -> bool:
        """Return whether the expert's plan is within the limit, decided by the cheapest sufficient test."""
        limit = self._settings.move_limit
        longest_walk = self._floor.bit_count() - self._settings.boxes - 1
        if depth * (longest_walk + 1) <= limit:
            return True
        if self._settings.boxes > 1:
            self.work += _PLAN_WORK
            # The expert's plan is never longer than the first push-optimal one.
            return any(len(solve(level, max_compared=compared) or ()) <= limit for compared in (0, MAX_COMPARED))
        placements = []
        following: State | None = state
        while following is not None:
            placements.append(following[0])
            following = self._parents[following]
        return len(moves_of(placements, level.player, self._floor, level.width)) <= limit


def _advice(settings: LevelSettings, rooms: int, deepest: int, any_split: bool) -> str:
    """Return the reason why no level was found, with the settings to change."""
    height, width = settings.size
    boxes = f"{settings.boxes} box{'es' if settings.boxes > 1 else ''}"
    what = f"no level of {height}x{width} with {boxes} in {rooms} rooms"
    if deepest == 0:
        return f"{what}: the rooms are too small; raise size or lower boxes"
    pushes, moves = settings.min_pushes, settings.move_limit
    if deepest < pushes:
        return f"{what}: the hardest needs {deepest} pushes; lower min_pushes (now {pushes}) or raise size"
    wanted = f"a plan of at most {moves} moves" + ("" if any_split else " on a board of this split")
    more = "size" if settings.max_moves is None else f"max_moves (now {moves})"
    return f"{what} has {wanted}: raise {more} or lower min_pushes (now {pushes})"

"""Boards as Python integers: bit *i* is cell *i* of a row-major board, so a step is a shift.

There are no bounds checks. Callers pass floors that do not touch the edge of the board, so shifts never wrap around.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from agentgym_flow.envs.sokoban.level import ACTIONS, offsets

Position = tuple[int, int]
"""(mask of the boxes, mask of the player's cell)."""

State = tuple[int, int]
"""(mask of the boxes, mask of the region in which the player can walk)."""


def cells_of(mask: int) -> Iterator[int]:
    """Yield the flat indices in `mask`, ascending."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def mask_of(cells: Iterable[int]) -> int:
    """Return the mask of flat indices."""
    mask = 0
    for cell in cells:
        mask |= 1 << cell
    return mask


def nth_cell(mask: int, n: int) -> int:
    """Return the mask of the cell with rank `n` in `mask`, counted from 0."""
    for _ in range(n):
        mask &= mask - 1
    return mask & -mask


def flood(seed: int, free: int, width: int) -> int:
    """Return the cells of `free` that are connected to `seed`, a subset of `free`."""
    region = seed
    while True:
        grown = (region | region << 1 | region >> 1 | region << width | region >> width) & free
        if grown == region:
            return region
        region = grown


class Regions:
    """The regions in which the player can walk, for any placement of the boxes, with a cache."""

    def __init__(self, floor: int, width: int) -> None:
        self._floor = floor
        self._width = width
        self._known: dict[int, list[int]] = {}

    def around(self, player: int, boxes: int) -> int:
        """Return the mask of the cells that the player (a mask of one cell) can reach."""
        known = self._known.get(boxes)
        if known is None:
            known = self._known[boxes] = []
        else:
            for region in known:
                if region & player:
                    return region
        region = flood(player, self._floor & ~boxes, self._width)
        known.append(region)
        return region


def pushes(boxes: int, reach: int, free: int, width: int) -> list[Position]:
    """Return the boards after each possible push by a player in the region `reach`; boxes move within `free`."""
    after = []
    for shift in (1, width):
        movable = boxes & reach << shift & free >> shift
        while movable:
            box = movable & -movable
            movable ^= box
            after.append((boxes ^ box ^ box << shift, box))
        movable = boxes & reach >> shift & free << shift
        while movable:
            box = movable & -movable
            movable ^= box
            after.append((boxes ^ box ^ box >> shift, box))
    return after


def pulls(boxes: int, reach: int, width: int) -> list[Position]:
    """Return the boards from which one push leads to `boxes` with the player in the region `reach`."""
    before = []
    for shift in (1, width):
        movable = boxes & reach >> shift & reach >> 2 * shift
        while movable:
            box = movable & -movable
            movable ^= box
            before.append((boxes ^ box ^ box << shift, box << 2 * shift))
        movable = boxes & reach << shift & reach << 2 * shift
        while movable:
            box = movable & -movable
            movable ^= box
            before.append((boxes ^ box ^ box >> shift, box >> 2 * shift))
    return before


def search_by_pulls(
    floor: int, targets: int, width: int, max_states: int
) -> tuple[list[list[State]], dict[State, State | None]]:
    """Search backwards from the solved board, breadth first.

    Args:
        floor: mask of all cells that are not wall.
        targets: mask of the targets.
        width: number of columns of the board.
        max_states: the search stops after the layer in which it has found this number of states.

    Returns:
        The states in layers, where states of layer *d* have an optimal solution of exactly *d* pushes; and for every
        state the next state of an optimal solution (None for solved states). Complete if there are at most
        `max_states` states.
    """
    regions = Regions(floor, width)
    free = floor & ~targets
    solved: list[State] = []
    while free:
        solved.append((targets, regions.around(free & -free, targets)))
        free ^= solved[-1][1]
    parents: dict[State, State | None] = dict.fromkeys(solved)
    layers = [solved]
    while layers[-1] and len(parents) < max_states:
        layer: list[State] = []
        for state in layers[-1]:
            for boxes, player in pulls(*state, width):
                before = (boxes, regions.around(player, boxes))
                if before not in parents:
                    parents[before] = state
                    layer.append(before)
        layers.append(layer)
    return layers if layers[-1] else layers[:-1], parents


def walk(start: int, goal: int, free: int, width: int) -> list[str]:
    """Return the words of a shortest walk from cell `start` to cell `goal` through `free`; the goal must be reachable.

    If there are several, the result is the first in the lexicographic order of `ACTIONS`.
    """
    here = 1 << start
    layers = [1 << goal]
    while not layers[-1] & here:
        region = layers[-1]
        layers.append((region | region << 1 | region >> 1 | region << width | region >> width) & free)
    words = []
    cell = start
    for layer in reversed(layers[:-1]):
        for word, step in zip(ACTIONS, offsets(width), strict=True):
            if layer >> cell + step & 1:
                words.append(word)
                cell += step
                break
    return words


def moves_of(placements: Sequence[int], player: int, floor: int, width: int) -> list[str]:
    """Return the moves with which the player pushes the boxes from each placement to the next.

    Args:
        placements: masks of the boxes; consecutive masks differ by one push.
        player: flat index of the player's start.
        floor: mask of all cells that are not wall.
        width: number of columns of the board.
    """
    word_of = dict(zip(offsets(width), ACTIONS, strict=True))
    words = []
    for boxes, after in pairwise(placements):
        box = (boxes & ~after).bit_length() - 1
        step = (after & ~boxes).bit_length() - 1 - box
        words += walk(player, box - step, floor & ~boxes, width)
        words.append(word_of[step])
        player = box
    return words

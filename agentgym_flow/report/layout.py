"""The layout of a state graph: columns by distance from the start, with few crossings and straight edges.

This is the layered drawing of K. Sugiyama, S. Tagawa and M. Toda (1981). Barycentre sweeps order each column. The
heights in a column are then a least-squares fit to the heights of neighbours, with a minimum gap.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise

_SWEEPS = 12


def hop_distances(start: str, successors: Mapping[str, Iterable[str]]) -> dict[str, int]:
    """Return the number of edges from `start` to each node that can be reached from it."""
    hops = {start: 0}
    queue = deque([start])
    while queue:
        node = queue.popleft()
        for after in successors.get(node, ()):
            if after not in hops:
                hops[after] = hops[node] + 1
                queue.append(after)
    return hops


def layered(
    nodes: Sequence[str], edges: Sequence[tuple[str, str]], start: str, *, gap: float, ends: Collection[str] = ()
) -> dict[str, tuple[int, float]]:
    """Return the column and the height of every node, and of the waypoints of `ends`.

    Args:
        nodes: distinct names. Nodes that cannot be reached from `start` share the last column.
        edges: pairs of names; self-loops are ignored.
        start: the node of column 0.
        gap: the minimum vertical distance of two nodes in a column.
        ends: nodes without successors, which are placed behind all their predecessors.
    """
    successors: dict[str, list[str]] = {}
    for source, target in edges:
        successors.setdefault(source, []).append(target)
    hops = hop_distances(start, successors)
    reached = [end for end in ends if end in hops and end != start]
    before = {end: [hops[source] for source, target in edges if target == end and source in hops] for end in reached}
    hops |= {end: max(columns) + 1 for end, columns in before.items()}
    hops |= {waypoint(end, column): column for end in before for column in range(min(before[end]) + 1, hops[end])}
    last = max(hops.values()) + 1
    columns: list[list[str]] = [[] for _ in range(last + 1)]
    for node in [*hops, *(node for node in nodes if node not in hops)]:
        columns[hops.get(node, last)].append(node)
    neighbours = _neighbours_by_side(columns, _in_steps(edges, hops, before))
    return _heights(_order(columns, neighbours), neighbours, gap)


def waypoint(end: str, column: int) -> str:
    """Return the name of the point at which edges to one of the `ends` of `layered` cross a column."""
    return f"{end} via {column}"


def _in_steps(
    edges: Iterable[tuple[str, str]], hops: Mapping[str, int], ends: Collection[str]
) -> list[tuple[str, str]]:
    """Return the edges, with edges to `ends` split into one piece per column, if their source has a column."""
    pieces: dict[tuple[str, str], None] = {}
    for source, target in edges:
        way = [source, target]
        if target in ends and source in hops:
            way[1:1] = (waypoint(target, column) for column in range(hops[source] + 1, hops[target]))
        pieces.update(dict.fromkeys(pairwise(way)))
    return list(pieces)


Neighbours = dict[str, tuple[list[str], list[str]]]
"""For each node, its neighbours in the previous and in the next column."""


def _neighbours_by_side(columns: list[list[str]], edges: Iterable[tuple[str, str]]) -> Neighbours:
    column_of = {node: i for i, column in enumerate(columns) for node in column}
    neighbours: Neighbours = {node: ([], []) for node in column_of}
    for source, target in edges:
        for near, far in ((source, target), (target, source)):
            step = column_of[far] - column_of[near]
            if step in (-1, 1):
                neighbours[near][step > 0].append(far)
    return neighbours


def _order(columns: list[list[str]], neighbours: Neighbours) -> list[list[str]]:
    """Return the columns in the best order that barycentre sweeps in both directions find, by number of crossings."""
    best, fewest = [list(c) for c in columns], _crossings(columns, neighbours)
    for sweep in range(_SWEEPS):
        forward = sweep % 2 == 0
        sequence = range(1, len(columns)) if forward else range(len(columns) - 2, -1, -1)
        for i in sequence:
            fixed = {node: place for place, node in enumerate(columns[i - 1 if forward else i + 1])}
            columns[i] = _by_barycentre(columns[i], {n: neighbours[n][0 if forward else 1] for n in columns[i]}, fixed)
        crossings = _crossings(columns, neighbours)
        if crossings < fewest:
            best, fewest = [list(c) for c in columns], crossings
    return best


def _by_barycentre(column: list[str], linked: Mapping[str, list[str]], fixed: Mapping[str, int]) -> list[str]:
    def weight(item: tuple[int, str]) -> float:
        place, node = item
        places = [fixed[other] for other in linked[node]]
        return sum(places) / len(places) if places else place

    return [node for _, node in sorted(enumerate(column), key=weight)]


def _crossings(columns: Sequence[Sequence[str]], neighbours: Neighbours) -> int:
    """Count the crossings of edges between neighbouring columns."""
    total = 0
    for left, right in pairwise(columns):
        place = {node: i for i, node in enumerate(right)}
        seen: list[int] = []
        for node in left:
            ends = sorted(place[other] for other in neighbours[node][1])
            total += sum(len(seen) - bisect_left(seen, end + 1) for end in ends)
            for end in ends:
                insort(seen, end)
    return total


def _heights(columns: list[list[str]], neighbours: Neighbours, gap: float) -> dict[str, tuple[int, float]]:
    height = {node: (i - (len(column) - 1) / 2) * gap for column in columns for i, node in enumerate(column)}
    for sweep in range(_SWEEPS):
        side = sweep % 2
        for column in columns if side == 0 else reversed(columns):
            wished = []
            for node in column:
                linked = neighbours[node][side] or [node]
                wished.append(sum(height[other] for other in linked) / len(linked))
            height.update(zip(column, _spread(wished, gap), strict=True))
    return {node: (i, height[node]) for i, column in enumerate(columns) for node in column}


def _spread(wished: Sequence[float], gap: float) -> list[float]:
    """Return the heights nearest to `wished` (least squares) with the same order and at least `gap` between them."""
    blocks: list[tuple[float, int]] = []  # (sum, count) of `wished - i * gap`; pooled while the means decrease
    for i, value in enumerate(wished):
        total, count = value - i * gap, 1
        while blocks and blocks[-1][0] / blocks[-1][1] > total / count:
            before, size = blocks.pop()
            total, count = total + before, count + size
        blocks.append((total, count))
    level = [total / count for total, count in blocks for _ in range(count)]
    return [value + i * gap for i, value in enumerate(level)]

"""The picture of a group's state graph: visited states, their distances to success, and a path to success.

States are in columns by distance from the start, with few crossings and straight edges: the layered drawing of
K. Sugiyama, S. Tagawa and M. Toda (1981). Barycentre sweeps order each column. The heights in a column are then a
least-squares fit to the heights of neighbours, with a minimum gap.
"""

from __future__ import annotations

import math
import textwrap
from bisect import bisect_left, insort
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from agentgym_flow.episodes import Group
from agentgym_flow.report.rendering import ink_on, ramp, shortened
from agentgym_flow.rewards import StateGraph
from agentgym_flow.rewards.relabel import turn_edges

MAX_NODES = 300
_MARGIN = 40.0
_LEGEND = 64.0
_SCALES = ((40, 17.0, 100.0, 54.0), (120, 11.0, 70.0, 34.0), (MAX_NODES, 8.0, 54.0, 24.0))  # nodes, radius, column, gap
_MIN_WIDTH = 660.0

MAX_NAMED = 30
"""The largest number of states for which a line below each state says how it was reached."""
_NAMED_SCALE = (17.0, 186.0, 78.0)  # radius, column, gap
_LINE, _LINES = 27, 2  # characters per line, and lines
_WAY = 80  # characters per action in what led to a state


@dataclass(frozen=True, slots=True)
class NodePicture:
    """A drawn state. `text` is its first observation; `fill` and `potential` are None without a known path to success.

    If the text is empty or another state of the group has the same text, `way` has the actions that first led to this
    state. `lines` are drawn below the state and name the last action, shortened.
    """

    key: str
    x: float
    y: float
    fill: str | None
    ink: str
    label: str
    distance: int | None
    potential: float | None
    visits: int
    text: str
    way: str
    lines: tuple[str, ...]
    start: bool
    success: bool
    on_path: bool


@dataclass(frozen=True, slots=True)
class EdgePicture:
    """A drawn transition: the SVG path, its thickness, and the actions with their counts."""

    path: str
    width: float
    on_path: bool
    text: str


@dataclass(frozen=True, slots=True)
class GraphPicture:
    """The data of `templates/graph.svg.j2`, in pixels. `lowest` is the potential with the darkest colour."""

    width: float
    height: float
    radius: float
    nodes: list[NodePicture]
    edges: list[EdgePicture]
    left_out: int
    attempts: int
    successes: int
    lowest: float
    legend: list[tuple[float, str]] = field(default_factory=lambda: [(i / 12, ramp(i / 12)) for i in range(13)])


@dataclass(slots=True)
class _Transitions:
    """The states and transitions in the turns of a group."""

    start: str
    text: dict[str, str]
    way: dict[str, str]
    visits: Counter[str]
    moves: dict[tuple[str, str], Counter[str]]
    goals: set[str]


def picture(group: Group, graph: StateGraph, max_nodes: int = MAX_NODES) -> GraphPicture:
    """Arrange the states of `group` with the potentials of `graph`: at most `max_nodes`, nearest to the success path.

    If actions have several words, and there are at most `MAX_NAMED` states, each state is labelled with the action that
    led to it.
    """
    seen = _observe(group)
    path = _success_path(seen, graph)
    kept = _nearest(seen, path, max_nodes)
    moves = {pair: actions for pair, actions in seen.moves.items() if pair[0] in kept and pair[1] in kept}
    named = len(kept) <= MAX_NAMED and any(" " in action for actions in moves.values() for action in actions)
    radius, column, gap = _NAMED_SCALE if named else _scale(len(kept))
    margin = _MARGIN + (column / 3 if named else 0.0)
    ends = {target for _, target in moves} - {source for source, _ in moves} if named else set()
    place = layered(sorted(kept), sorted(moves), seen.start, gap=gap, ends=ends)
    top = min(y for _, y in place.values())
    at = {
        key: (round(margin + col * column, 1), round(_MARGIN + _LEGEND + y - top, 1)) for key, (col, y) in place.items()
    }
    steps = set(pairwise(path))
    most = max((sum(actions.values()) for actions in moves.values()), default=1)
    edges = [
        EdgePicture(
            _curve([at[key] for key in _way(a, b, place)], radius, place[b][0] - place[a][0]),
            round(1 + 3.5 * (sum(actions.values()) / most) ** 0.5, 2),
            (a, b) in steps,
            ", ".join(f"{action} \N{MULTIPLICATION SIGN}{count}" for action, count in sorted(actions.items())),
        )
        for (a, b), actions in sorted(moves.items(), key=lambda item: item[0] in steps)
    ]
    lowest = min((graph.potential(key) for key in kept if graph.distance(key) is not None), default=0.0)
    lines = _lines(moves) if named else {}
    nodes = [_node(key, at[key], seen, graph, set(path), radius, lowest, lines.get(key, ())) for key in kept]
    nodes.sort(key=lambda node: (node.x, node.y))
    return GraphPicture(
        width=max(_MIN_WIDTH, max(x for x, _ in at.values()) + margin),
        height=max(y for _, y in at.values()) + _MARGIN + (14.0 * _LINES if named else 0.0),
        radius=radius,
        nodes=nodes,
        edges=edges,
        left_out=len(seen.visits) - len(kept),
        attempts=len(group),
        successes=sum(episode.success for episode in group),
        lowest=lowest,
    )


def _scale(count: int) -> tuple[float, float, float]:
    """Return the radius, the column width and the vertical gap for a number of states."""
    return next(scale[1:] for scale in _SCALES if count <= scale[0] or scale is _SCALES[-1])


def _lines(moves: dict[tuple[str, str], Counter[str]]) -> dict[str, tuple[str, ...]]:
    """Return short lines for each state: the action that led to it most often, and the number of other actions."""
    reached: dict[str, Counter[str]] = defaultdict(Counter)
    for (_, target), actions in moves.items():
        reached[target].update(actions)
    return {key: _shortened(actions) for key, actions in reached.items()}


def _shortened(actions: Counter[str]) -> tuple[str, ...]:
    action = min(actions, key=lambda action: (-actions[action], action))
    room = _LINES - (len(actions) > 1)
    lines = textwrap.wrap(action, _LINE, max_lines=room, placeholder=" \N{HORIZONTAL ELLIPSIS}")
    others = {1: (), 2: ("and another",)}.get(len(actions), (f"and {len(actions) - 1} others",))
    return (*lines, *others)


def _observe(group: Group) -> _Transitions:
    first = group.episodes[0]
    seen = _Transitions(first.state_key, {}, {}, Counter(), defaultdict(Counter), set())
    for episode in group:
        done: list[str] = []
        seen.text.setdefault(episode.state_key, episode.observation)
        seen.way.setdefault(episode.state_key, "")
        seen.visits[episode.state_key] += 1
        for turn, source, target, _ in turn_edges(episode):
            if source != target:
                done.append(shortened(turn.action, _WAY))
            seen.text.setdefault(target, turn.next_observation)
            seen.way.setdefault(target, ", ".join(done))
            seen.visits[target] += 1
            if source != target:
                seen.moves[source, target][turn.action] += 1
            if turn.success:
                seen.goals.add(target)
    alike = Counter(seen.text.values())
    seen.way = {key: way for key, way in seen.way.items() if alike[text := seen.text[key]] > 1 or not text}
    return seen


def _success_path(seen: _Transitions, graph: StateGraph) -> list[str]:
    """Return the states on the shortest observed path from the start to a success; empty if there is none."""
    successors: dict[str, list[str]] = defaultdict(list)
    for source, target in sorted(seen.moves):
        successors[source].append(target)
    path = [seen.start]
    while path[-1] not in seen.goals:
        here = graph.distance(path[-1])
        closer = [key for key in successors[path[-1]] if here is not None and graph.distance(key) == here - 1]
        if not closer:
            return []
        path.append(max(closer, key=lambda key: seen.visits[key]))
    return path


def _nearest(seen: _Transitions, path: list[str], limit: int) -> list[str]:
    """Return at most `limit` states, breadth-first from the success path (or the start), ignoring directions."""
    linked: dict[str, set[str]] = defaultdict(set)
    for source, target in seen.moves:
        linked[source].add(target)
        linked[target].add(source)
    kept = dict.fromkeys(path or [seen.start])
    queue = deque(kept)
    while queue:
        for key in sorted(linked[queue.popleft()], key=lambda key: (-seen.visits[key], key)):
            if key not in kept:
                kept[key] = None
                queue.append(key)
    return list(kept)[:limit]


def _node(
    key: str,
    at: tuple[float, float],
    seen: _Transitions,
    graph: StateGraph,
    path: Iterable[str],
    radius: float,
    lowest: float,
    lines: tuple[str, ...],
) -> NodePicture:
    distance = graph.distance(key)
    potential = None if distance is None else graph.potential(key)
    shade = 0.0 if potential is None else _shade(potential, lowest)
    return NodePicture(
        key=key,
        x=at[0],
        y=at[1],
        fill=None if potential is None else ramp(shade),
        ink=ink_on(shade),
        label="" if potential is None or radius < _SCALES[0][1] else f"{potential:.2f}",
        distance=distance,
        potential=potential,
        visits=seen.visits[key],
        text=seen.text[key],
        way=seen.way.get(key, ""),
        lines=("start",) if key == seen.start and lines else lines,
        start=key == seen.start,
        success=key in seen.goals,
        on_path=key in path,
    )


def _shade(potential: float, lowest: float) -> float:
    """Return the position of a potential on the ramp. It is logarithmic, so that all steps of a long path differ."""
    if not 0.0 < lowest < 1.0:
        return potential
    return 1.0 - math.log(potential) / math.log(lowest)


def _way(source: str, target: str, place: Mapping[str, tuple[int, float]]) -> list[str]:
    """Return the nodes of an edge: both ends, and the waypoints between them, if there are any."""
    between = (waypoint(target, column) for column in range(place[source][0] + 1, place[target][0]))
    return [source, *(key for key in between if key in place), target]


def _curve(points: Sequence[tuple[float, float]], radius: float, columns: int) -> str:
    """Return the SVG path of an edge from rim to rim: an S forward (`columns` > 0), an arc sideways and backward."""
    (ax, ay), (bx, by) = points[0], points[-1]
    rim = 0.75 * radius
    if columns > 0:
        path = f"M{ax + radius:.1f} {ay:.1f}"
        stops = [(ax + radius, ay), *points[1:-1], (bx - radius - 3, by)]
        for (x, y), (to_x, to_y) in pairwise(stops):
            middle = (x + to_x) / 2
            path += f"C{middle:.1f} {y:.1f} {middle:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}"
        return path
    if columns == 0:
        down = 1 if by > ay else -1
        ax, bx = ax + rim, bx + rim + 1
        ay, by = ay + down * rim, by - down * (rim + 1)
        return f"M{ax:.1f} {ay:.1f}Q{ax + 1.6 * radius:.1f} {(ay + by) / 2:.1f} {bx:.1f} {by:.1f}"
    ax, ay, bx, by = ax - rim, ay + rim, bx + rim + 1, by + rim + 1
    bow = max(ay, by) + radius * (0.4 - 0.25 * columns)
    return f"M{ax:.1f} {ay:.1f}Q{(ax + bx) / 2:.1f} {bow:.1f} {bx:.1f} {by:.1f}"


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

"""The graph of the states of one task, with the distance of each state to success; and a store of graphs by task.

The graph merges the observed steps of several attempts at one task. The distance of a state is the smallest number of
observed steps from it to a success. Its potential is `gamma ** distance`, so 1 at a success, or `unknown_potential` if
no observed path leads to one (RewardFlow, tmlr-group). The published code computes these values by 1,000 sweeps over
all edges and guesses success from the sign of the first reward. Here success is a flag, and distances are exact after
every edge.

Updates are cheap because a new edge can only shorten paths. If `src -> dst` shortens the distance of `src`, the
improvement propagates backwards to predecessors until it changes nothing more. Once a task has been seen a few times,
most edges improve nothing and cost a few dictionary look-ups, independent of the number of earlier episodes.
"""

from __future__ import annotations

import json
import os
from collections import OrderedDict, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, get_args

from agentgym_flow._util.files import write_atomically
from agentgym_flow._util.values import is_number
from agentgym_flow.core import check_positive
from agentgym_flow.errors import BadData, BadSetting, UnknownOption, shown

SCHEMA = "agentgym_flow.state_graph/1"
"""The name of the file format of one graph."""

EdgeMode = Literal["directed", "symmetric"]
"""Whether steps count in both directions. Symmetric edges make irreversible moves look harmless."""

SETTINGS = ("gamma", "edges", "unknown_potential", "max_nodes")
"""The names of a graph's settings."""

_UNREACHED = 1 << 62


class Node(NamedTuple):
    """A state.

    Attributes:
        key: its identity within the task.
        distance: observed steps to the nearest success, or None if no path is known.
        potential: in [0, 1].
        success: whether the task is achieved in this state.
    """

    key: str
    distance: int | None
    potential: float
    success: bool


class Edge(NamedTuple):
    """An observed step: the keys of both states, the action, and the number of visits."""

    src: str
    action: str
    dst: str
    visits: int


class StateGraph:
    """States of one task with exact distances to success, updated with every step.

    A graph with `max_nodes` states rejects new states, even a success, and counts them in `refused`. It still updates
    edges between known states. Therefore `max_nodes` should exceed the number of states that are seen before the first
    success.

    Args:
        gamma: the discount per step of distance, in (0, 1].
        edges: `"directed"`, or `"symmetric"` to count every step in both directions.
        unknown_potential: the potential of states without a known path to success, in [0, 1].
        max_nodes: the largest number of states, or None for no limit.

    Raises:
        BadSetting: a number is outside its range.
        UnknownOption: `edges` is unknown.
    """

    def __init__(
        self,
        *,
        gamma: float = 0.9,
        edges: EdgeMode = "directed",
        unknown_potential: float = 0.0,
        max_nodes: int | None = None,
    ) -> None:
        if not (is_number(gamma) and 0.0 < gamma <= 1.0):
            raise BadSetting(f"gamma of a state graph must be in (0, 1], got {shown(gamma)}")
        if not (is_number(unknown_potential) and 0.0 <= unknown_potential <= 1.0):
            raise BadSetting(f"unknown_potential must be in [0, 1], got {shown(unknown_potential)}")
        if edges not in get_args(EdgeMode):
            raise UnknownOption.among(edges, get_args(EdgeMode))
        self.gamma = float(gamma)
        self.edge_mode: EdgeMode = edges
        self.unknown_potential = float(unknown_potential)
        self.max_nodes = None if max_nodes is None else check_positive("max_nodes", max_nodes)
        self.refused = 0
        self._ids: dict[str, int] = {}
        self._keys: list[str] = []
        self._distances: list[int] = []
        self._behind: list[set[int]] = []  # the predecessors of each state
        self._visits: dict[tuple[int, str, int], int] = {}
        self._outcomes: dict[tuple[int, str], int] = {}  # (state, action) -> number of different next states
        self._aliased = 0

    def __len__(self) -> int:
        """Return the number of states."""
        return len(self._keys)

    def __contains__(self, key: object) -> bool:
        return key in self._ids

    def __repr__(self) -> str:
        return f"StateGraph({len(self)} states, {len(self._visits)} edges, {self.num_successes} successes)"

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments that create an empty graph like this one."""
        values = (self.gamma, self.edge_mode, self.unknown_potential, self.max_nodes)
        return dict(zip(SETTINGS, values, strict=True))

    # ---------------------------------------------------------------- observing
    def add_state(self, key: str, *, success: bool = False) -> bool:
        """Add a state if it is new, and mark it if it is a success; return False if the state was rejected."""
        node = self._intern(key)
        if node is None:
            return False
        if success:
            self._improve(node, 0)
        return True

    def add(self, src: str, action: str, dst: str, *, success: bool = False) -> bool:
        """Observe one step; `success` means that the task is achieved in `dst`. Return False if a state was rejected.

        A step that stays in the same state counts as a visit and does not affect distances.
        """
        tail, head = self._intern(src), self._intern(dst)
        if head is not None and success:
            self._improve(head, 0)
        if tail is None or head is None:
            return False
        self._count(tail, action, head)
        if tail != head:
            self._link(tail, head)
            if self.edge_mode == "symmetric":
                self._link(head, tail)
        return True

    def _intern(self, key: str) -> int | None:
        node = self._ids.get(key)
        if node is None:
            if self.max_nodes is not None and len(self._keys) >= self.max_nodes:
                self.refused += 1
                return None
            node = self._ids[key] = len(self._keys)
            self._keys.append(key)
            self._distances.append(_UNREACHED)
            self._behind.append(set())
        return node

    def _count(self, tail: int, action: str, head: int, visits: int = 1) -> None:
        edge = (tail, action, head)
        seen = self._visits.get(edge, 0)
        self._visits[edge] = seen + visits
        if not seen:
            outcomes = self._outcomes.get((tail, action), 0) + 1
            self._outcomes[tail, action] = outcomes
            self._aliased += outcomes == 2

    def _link(self, tail: int, head: int) -> None:
        self._behind[head].add(tail)
        if self._distances[head] != _UNREACHED:
            self._improve(tail, self._distances[head] + 1)

    def _improve(self, node: int, distance: int) -> None:
        """Lower the distance of `node`, and of all states whose path through it becomes shorter."""
        if distance >= self._distances[node]:
            return
        self._distances[node] = distance
        self._spread(deque([node]))

    def _spread(self, queue: deque[int]) -> None:
        distances = self._distances
        while queue:
            node = queue.popleft()
            through = distances[node] + 1
            for before in self._behind[node]:
                if through < distances[before]:
                    distances[before] = through
                    queue.append(before)

    def recompute(self) -> None:
        """Compute all distances anew by one breadth-first search from all successes. They do not change."""
        successes = [node for node, distance in enumerate(self._distances) if distance == 0]
        self._distances = [_UNREACHED] * len(self._keys)
        for node in successes:
            self._distances[node] = 0
        self._spread(deque(successes))

    # ---------------------------------------------------------------- reading
    def distance(self, key: str) -> int | None:
        """Return the observed steps from `key` to the nearest success; None if the path or the state is unknown."""
        node = self._ids.get(key)
        if node is None or self._distances[node] == _UNREACHED:
            return None
        return self._distances[node]

    def potential(self, key: str) -> float:
        """Return `gamma ** distance`, or `unknown_potential` if the distance is unknown."""
        distance = self.distance(key)
        return self.unknown_potential if distance is None else self.gamma**distance

    def nodes(self) -> Iterator[Node]:
        """Yield the states in the order of their first visits."""
        for key in self._keys:
            distance = self.distance(key)
            yield Node(key, distance, self.potential(key), distance == 0)

    def edges(self) -> Iterator[Edge]:
        """Yield the observed steps in the order of their first visits, including steps that stay in place."""
        for (tail, action, head), visits in self._visits.items():
            yield Edge(self._keys[tail], action, self._keys[head], visits)

    @property
    def num_successes(self) -> int:
        """The number of states in which the task is achieved."""
        return self._distances.count(0)

    @property
    def num_choices(self) -> int:
        """The number of different (state, action) pairs."""
        return len(self._outcomes)

    @property
    def num_aliased(self) -> int:
        """The number of (state, action) pairs that led to several states, by chance or because keys omit something."""
        return self._aliased

    @property
    def aliased_share(self) -> float:
        """`num_aliased / num_choices`, 0 for an empty graph. The higher it is, the more optimistic are potentials."""
        return self._aliased / len(self._outcomes) if self._outcomes else 0.0

    # ---------------------------------------------------------------- saving
    def to_dict(self) -> dict[str, Any]:
        """Return the graph as JSON-serialisable data, sorted by key, so that equal graphs give equal data."""
        order = sorted(range(len(self._keys)), key=self._keys.__getitem__)
        rank = {node: place for place, node in enumerate(order)}
        return {
            "schema": SCHEMA,
            **self.settings,
            "refused": self.refused,
            "keys": [self._keys[node] for node in order],
            "successes": [rank[node] for node in order if self._distances[node] == 0],
            "steps": sorted([rank[tail], action, rank[head], n] for (tail, action, head), n in self._visits.items()),
        }

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """Return the graph that `to_dict` returned as `data`. Raises `BadData` if `data` is damaged."""
        try:
            if data["schema"] != SCHEMA:
                raise BadData(f"a state graph has the schema {SCHEMA!r}, found {data['schema']!r}")
            graph = cls(**{name: data[name] for name in SETTINGS})
            for key in data["keys"]:
                graph._intern(str(key))
            places = range(len(graph))
            for src, action, dst, visits in data["steps"]:
                tail, head = places.index(src), places.index(dst)  # ValueError for an unknown state
                graph._count(tail, str(action), head, int(visits))
                if tail != head:
                    graph._behind[head].add(tail)
                    if graph.edge_mode == "symmetric":
                        graph._behind[tail].add(head)
            for node in data["successes"]:
                graph._distances[places.index(node)] = 0
            graph.refused = int(data["refused"])
        except BadData:
            raise
        except (KeyError, TypeError, IndexError, ValueError, OverflowError) as error:
            raise BadData(f"the state graph is damaged ({type(error).__name__}: {error})") from None
        graph.recompute()
        return graph

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the graph to a JSON file atomically."""
        write_json(path, self.to_dict())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Return the graph in a file. Raises `BadData` if it is missing or damaged."""
        return cls.from_dict(read_json(path, "state graph"))


def outcome_node(key: str, *, terminated: bool, success: bool) -> str:
    """Return the node for the state after a step; terminal states get a separate node for each outcome.

    If a success and a failure with the same state key shared a node, the failure would be worth as much as the success.
    Keys that already name their outcome (`end:...`, the contract of `TextEnv`) are returned unchanged.
    """
    named = f"end:{'success' if success else 'fail'}:"
    return key if not terminated or key.startswith(named) else named + key


# ---------------------------------------------------------------- files
def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Write `value` to `path` atomically and create its folder. Raises `OSError`, for example if the disk is full."""
    with write_atomically(Path(path)) as partial:
        partial.write_text(json.dumps(value, allow_nan=False, separators=(",", ":")) + "\n", "ascii")


def read_json(path: str | os.PathLike[str], what: str) -> Any:
    """Return the content of `path`. Raises `BadData` if `what` is missing or cannot be read."""
    try:
        return json.loads(Path(path).read_text("ascii"))
    except FileNotFoundError:
        raise BadData(f"there is no {what} at {path}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise BadData(f"{path} is not a readable {what} ({error})") from None


# ---------------------------------------------------------------- graphs of several tasks
STORE_SCHEMA = "agentgym_flow.graph_store/1"
"""The name of the file format of a store."""


class GraphStore:
    """One `StateGraph` per task key; the least recently used graphs are evicted.

    Wrappers in one process that get the same store learn from each other. Processes do not share memory: with
    `AsyncVectorEnv`, wrap the vector environment (`VectorRewardFlow`), not its sub-environments.

    Args:
        gamma: the discount per step of distance in every graph; 0.9 as published.
        edges: `"directed"` or `"symmetric"`.
        unknown_potential: the potential of states without a known path to success.
        max_graphs: the largest number of graphs; `evicted` counts those that were removed.
        max_nodes: the largest number of states of one graph.

    Raises:
        BadSetting: a number is outside its range.
        UnknownOption: `edges` is unknown.
    """

    def __init__(
        self,
        *,
        gamma: float = 0.9,
        edges: EdgeMode = "directed",
        unknown_potential: float = 0.0,
        max_graphs: int = 4096,
        max_nodes: int = 100_000,
    ) -> None:
        self.max_graphs = check_positive("max_graphs", max_graphs)
        self.evicted = 0
        self._blank = StateGraph(gamma=gamma, edges=edges, unknown_potential=unknown_potential, max_nodes=max_nodes)
        self._graphs: OrderedDict[str, StateGraph] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of tasks with a graph."""
        return len(self._graphs)

    def __contains__(self, task_key: object) -> bool:
        return task_key in self._graphs

    def __iter__(self) -> Iterator[str]:
        """Yield the task keys, the least recently used first."""
        return iter(self._graphs)

    @property
    def gamma(self) -> float:
        """The discount per step of distance."""
        return self._blank.gamma

    def graph(self, task_key: str) -> StateGraph:
        """Return the graph of a task and mark it as just used; create an empty graph if there is none."""
        graph = self._graphs.get(task_key)
        if graph is None:
            graph = self._graphs[task_key] = StateGraph(**self._blank.settings)
            while len(self._graphs) > self.max_graphs:
                self._graphs.popitem(last=False)
                self.evicted += 1
        else:
            self._graphs.move_to_end(task_key)
        return graph

    def peek(self, task_key: str) -> StateGraph:
        """Return the graph of a task for reading, or an empty graph; the store does not change."""
        return self._graphs.get(task_key, self._blank)

    def to_dict(self) -> dict[str, Any]:
        """Return the store as JSON-serialisable data, the least recently used graph first."""
        return {
            "schema": STORE_SCHEMA,
            **self._blank.settings,
            "max_graphs": self.max_graphs,
            "evicted": self.evicted,
            "graphs": [[task_key, graph.to_dict()] for task_key, graph in self._graphs.items()],
        }

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """Return the store that `to_dict` returned as `data`. Raises `BadData` if `data` is damaged."""
        try:
            if data["schema"] != STORE_SCHEMA:
                raise BadData(f"a graph store has the schema {STORE_SCHEMA!r}, found {data['schema']!r}")
            store = cls(**{name: data[name] for name in (*SETTINGS, "max_graphs")})
            store.evicted = int(data["evicted"])
            for task_key, graph in data["graphs"]:
                store._graphs[str(task_key)] = StateGraph.from_dict(graph)
        except BadData:
            raise
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise BadData(f"the graph store is damaged ({type(error).__name__}: {error})") from None
        return store

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all graphs to a JSON file atomically."""
        write_json(path, self.to_dict())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Return the store in a file. Raises `BadData` if it is missing or damaged."""
        return cls.from_dict(read_json(path, "graph store"))

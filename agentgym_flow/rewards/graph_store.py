"""State graphs by task, to share between environments and runs."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Self

from agentgym_flow.core import check_positive
from agentgym_flow.errors import BadData
from agentgym_flow.rewards.state_graph import SETTINGS, EdgeMode, StateGraph, read_json, write_json

SCHEMA = "agentgym_flow.graph_store/1"
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
            "schema": SCHEMA,
            **self._blank.settings,
            "max_graphs": self.max_graphs,
            "evicted": self.evicted,
            "graphs": [[task_key, graph.to_dict()] for task_key, graph in self._graphs.items()],
        }

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """Return the store that `to_dict` returned as `data`. Raises `BadData` if `data` is damaged."""
        try:
            if data["schema"] != SCHEMA:
                raise BadData(f"a graph store has the schema {SCHEMA!r}, found {data['schema']!r}")
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

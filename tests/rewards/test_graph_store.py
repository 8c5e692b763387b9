"""A store keeps one graph per task, forgets the least recently used, and survives files."""

from __future__ import annotations

import json
import pickle

import pytest

from agentgym_flow.errors import BadData, BadSetting
from agentgym_flow.rewards import GraphStore


def test_a_task_always_gets_the_same_graph():
    store = GraphStore(gamma=0.5, edges="symmetric", unknown_potential=0.1, max_nodes=7)
    graph = store.graph("t")
    assert store.graph("t") is graph
    assert (graph.gamma, graph.edge_mode, graph.unknown_potential, graph.max_nodes) == (0.5, "symmetric", 0.1, 7)
    assert store.graph("u") is not graph
    assert len(store) == 2
    assert "t" in store


def test_the_least_recently_used_task_is_forgotten_first():
    store = GraphStore(max_graphs=2)
    store.graph("a").add_state("x")
    store.graph("b")
    store.graph("a")
    store.graph("c")
    assert list(store) == ["a", "c"]
    assert store.evicted == 1
    assert len(store.graph("a")) == 1
    assert len(store.graph("b")) == 0


def test_a_store_survives_files_json_and_pickle(tmp_path):
    store = GraphStore(gamma=0.8, max_graphs=2)
    for task in "abc":
        store.graph(task).add("s", "go", task, success=True)
    store.save(tmp_path / "graphs.json")
    copies = [
        GraphStore.load(tmp_path / "graphs.json"),
        GraphStore.from_dict(json.loads(json.dumps(store.to_dict()))),
        pickle.loads(pickle.dumps(store)),
    ]
    for copy in copies:
        assert copy.to_dict() == store.to_dict()
        assert copy.graph("b").potential("s") == pytest.approx(0.8)
        assert list(copy) == ["c", "b"]


def test_bad_settings_and_bad_files_are_named(tmp_path):
    with pytest.raises(BadSetting, match="max_graphs"):
        GraphStore(max_graphs=0)
    with pytest.raises(BadSetting, match="gamma"):
        GraphStore(gamma=2.0)
    with pytest.raises(BadData, match="there is no graph store"):
        GraphStore.load(tmp_path / "none.json")
    for data in (
        [],
        {"schema": "else"},
        {**GraphStore().to_dict(), "graphs": [["t", {}]]},
        {**GraphStore().to_dict(), "gamma": 9},
        {**GraphStore().to_dict(), "evicted": float("inf")},
    ):
        with pytest.raises(BadData):
            GraphStore.from_dict(data)
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(BadData, match="not a readable graph store"):
        GraphStore.load(tmp_path / "deep.json")

"""Distances are exact at every moment, whatever the order of what was seen."""

from __future__ import annotations

import itertools
import json
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow.errors import BadData, BadSetting, UnknownOption
from agentgym_flow.rewards.credit.rewardflow import sweep_values
from agentgym_flow.rewards.state_graph import Edge, StateGraph, outcome_node

# A step: source, action, destination. Few names, so that paths meet.
names = st.sampled_from("abcdefgh")
steps = st.lists(st.tuples(names, st.sampled_from("xy"), names), max_size=25)
modes = st.sampled_from(["directed", "symmetric"])


def flagged(stream, successes):
    return [(src, action, dst, dst in successes) for src, action, dst in stream]


def build(stream, **settings) -> StateGraph:
    graph = StateGraph(**settings)
    for src, action, dst, success in stream:
        graph.add(src, action, dst, success=success)
    return graph


def search(stream, symmetric: bool) -> dict[str, int]:
    """An independent oracle: distances by repeated relaxation of a plain edge list until nothing changes."""
    pairs = {(src, dst) for src, _, dst, _ in stream}
    if symmetric:
        pairs |= {(dst, src) for src, dst in pairs}
    found = {dst: 0 for _, _, dst, success in stream if success}
    changed = True
    while changed:
        changed = False
        for src, dst in pairs:
            if dst in found and found[dst] + 1 < found.get(src, 10**9):
                found[src] = found[dst] + 1
                changed = True
    return found


@given(steps, st.sets(st.sampled_from("abcdefgh"), max_size=3), modes)
def test_incremental_distances_equal_a_full_search_after_every_step(stream, successes, mode):
    graph = StateGraph(edges=mode)
    seen = []
    for step in flagged(stream, successes):
        graph.add(*step[:3], success=step[3])
        seen.append(step)
        expected = search(seen, mode == "symmetric")
        assert {node.key: node.distance for node in graph.nodes() if node.distance is not None} == expected
    before = graph.to_dict(), list(graph.nodes())
    graph.recompute()
    assert (graph.to_dict(), list(graph.nodes())) == before


@given(steps, st.sets(st.sampled_from("abcdefgh"), max_size=3), modes, st.randoms(use_true_random=False))
def test_the_order_of_observations_does_not_matter(stream, successes, mode, random):
    shuffled = flagged(stream, successes)
    graph = build(shuffled, edges=mode)
    random.shuffle(shuffled)
    other = build(shuffled, edges=mode)
    assert graph.to_dict() == other.to_dict()
    assert {n.key: n.potential for n in graph.nodes()} == {n.key: n.potential for n in other.nodes()}


@given(steps, st.sets(st.sampled_from("abcdefgh"), max_size=3), modes)
def test_distances_only_fall_and_potentials_only_rise(stream, successes, mode):
    graph = StateGraph(edges=mode)
    best: dict[str, float] = {}
    for src, action, dst, success in flagged(stream, successes):
        graph.add(src, action, dst, success=success)
        for node in graph.nodes():
            assert node.potential >= best.get(node.key, 0.0)
            assert 0.0 <= node.potential <= 1.0
            best[node.key] = node.potential


@given(steps, st.sets(st.sampled_from("abcdefgh"), min_size=1, max_size=3), st.sampled_from([0.5, 0.9, 0.95, 1.0]))
def test_the_search_gives_the_values_of_a_thousand_sweeps(stream, successes, gamma):
    stream = flagged(stream, successes)
    graph = build(stream, gamma=gamma)
    numbers = {node.key: i for i, node in enumerate(graph.nodes())}
    rewards = [10.0 * node.success for node in graph.nodes()]
    edges = [(numbers[edge.src], numbers[edge.dst]) for edge in graph.edges() if edge.src != edge.dst]
    swept = sweep_values(rewards, edges, gamma)
    assert [10 * node.potential for node in graph.nodes()] == pytest.approx(list(swept), rel=1e-12, abs=0)


def test_the_worked_example_has_its_distances_and_potentials():
    walks = ["SABW", "SASAX", "SSBW", "SXXXX"]
    graph = StateGraph(gamma=0.9)
    for walk in walks:
        for src, dst in itertools.pairwise(walk):
            graph.add(src, f"to {dst}", dst, success=dst == "W")
    assert {n.key: n.distance for n in graph.nodes()} == {"S": 2, "A": 2, "B": 1, "W": 0, "X": None}
    assert [graph.potential(k) for k in "WBASX"] == pytest.approx([1.0, 0.9, 0.81, 0.81, 0.0])
    assert Edge("S", "to A", "A", 3) in set(graph.edges())
    assert Edge("X", "to X", "X", 3) in set(graph.edges())


def test_a_step_that_stays_in_place_shortens_nothing():
    graph = build([("a", "wait", "a", False), ("a", "wait", "a", False)], edges="symmetric")
    assert graph.distance("a") is None
    graph.add("a", "go", "b", success=True)
    assert graph.distance("a") == 1


def test_symmetric_edges_make_irreversible_moves_look_recoverable():
    stream = [("s", "on", "goal", True), ("s", "jump", "pit", False)]
    assert build(stream).potential("pit") == 0.0
    assert build(stream, edges="symmetric").potential("pit") == pytest.approx(0.81)


def test_unknown_states_take_the_unknown_potential():
    graph = build([("a", "go", "b", False)], unknown_potential=0.25)
    assert graph.potential("a") == graph.potential("never seen") == 0.25
    assert graph.distance("never seen") is None
    assert "never seen" not in graph


def test_pairs_with_several_outcomes_are_counted_as_aliased():
    graph = build([("a", "go", "b", False), ("a", "go", "b", False), ("a", "stay", "a", False)])
    assert (graph.num_choices, graph.num_aliased, graph.aliased_share) == (2, 0, 0.0)
    graph.add("a", "go", "a")
    graph.add("a", "go", "c")
    assert (graph.num_choices, graph.num_aliased, graph.aliased_share) == (2, 1, 0.5)
    assert StateGraph().aliased_share == 0.0


def test_a_full_graph_refuses_states_but_goes_on_relaxing():
    graph = StateGraph(max_nodes=3)
    assert graph.add("a", "1", "b")
    assert graph.add("b", "1", "c")
    assert not graph.add("c", "1", "d", success=True)
    assert not graph.add_state("e")
    assert (len(graph), graph.refused, graph.distance("a")) == (3, 2, None)
    assert graph.add_state("c", success=True)
    assert graph.distance("a") == 2
    assert graph.add("a", "2", "c")
    assert graph.distance("a") == 1


def test_seeing_the_same_again_does_no_relaxation():
    class Counting(StateGraph):
        improvements = 0

        def _spread(self, queue):
            self.improvements += 1
            super()._spread(queue)

    graph = Counting()
    walk = [(str(i), "on", str(i + 1), i == 49) for i in range(50)]
    for src, action, dst, success in walk:
        graph.add(src, action, dst, success=success)
    first = graph.improvements
    for _ in range(100):
        for src, action, dst, success in walk:
            graph.add(src, action, dst, success=success)
    assert graph.improvements == first > 0


@given(steps, st.sets(st.sampled_from("abcdefgh"), max_size=3), modes)
def test_a_graph_survives_json_and_pickle(stream, successes, mode):
    graph = build(flagged(stream, successes), edges=mode, gamma=0.8, unknown_potential=0.1, max_nodes=6)
    data = graph.to_dict()
    for copy in (StateGraph.from_dict(json.loads(json.dumps(data))), pickle.loads(pickle.dumps(graph))):
        assert copy.to_dict() == data
        assert {n.key: n.distance for n in copy.nodes()} == {n.key: n.distance for n in graph.nodes()}
        copy.add("a", "later", "b", success=True)
        reference = StateGraph.from_dict(data)
        reference.add("a", "later", "b", success=True)
        assert copy.to_dict() == reference.to_dict()


def test_saving_is_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "graph.json"
    graph = build([("a", "go \udc80 ü", "b", True)])  # a policy's lone surrogate has no UTF-8 form
    graph.save(path)
    assert StateGraph.load(path).to_dict() == graph.to_dict()
    saved = path.read_bytes()

    def full_disk(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full_disk)
    graph.add("b", "on", "c")
    with pytest.raises(OSError, match="No space"):
        graph.save(path)
    assert path.read_bytes() == saved
    assert [p.name for p in tmp_path.iterdir()] == ["graph.json"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not a readable state graph"),
        ("[]", "damaged"),
        ('{"schema": "other/1"}', "schema"),
        ('{"schema": "agentgym_flow.state_graph/1", "gamma": 7}', "damaged"),
    ],
)
def test_damaged_files_are_named(tmp_path, text, message):
    path = tmp_path / "graph.json"
    path.write_text(text)
    with pytest.raises(BadData, match=message):
        StateGraph.load(path)
    with pytest.raises(BadData, match="there is no state graph"):
        StateGraph.load(tmp_path / "other.json")


def test_a_file_that_points_outside_its_states_is_damaged():
    data = build([("a", "go", "b", True)]).to_dict()
    for broken in (
        {"successes": [-1]},
        {"steps": [[0, "go", 2, 1]]},
        {"steps": [[-1, "go", 1, 1]]},
        {"refused": float("inf")},
    ):
        with pytest.raises(BadData):
            StateGraph.from_dict({**data, **broken})


def test_settings_out_of_range_are_refused():
    with pytest.raises(BadSetting, match="gamma"):
        StateGraph(gamma=0.0)
    with pytest.raises(BadSetting, match="gamma"):
        StateGraph(gamma=float("nan"))
    with pytest.raises(BadSetting, match="unknown_potential"):
        StateGraph(unknown_potential=1.5)
    with pytest.raises(BadSetting, match="max_nodes"):
        StateGraph(max_nodes=0)
    with pytest.raises(UnknownOption, match="Did you mean 'directed'"):
        StateGraph(edges="direct")


def test_each_outcome_is_a_node_of_its_own():
    assert outcome_node("k", terminated=False, success=False) == "k"
    assert outcome_node("k", terminated=True, success=True) == "end:success:k"
    assert outcome_node("k", terminated=True, success=False) == "end:fail:k"
    assert outcome_node("end:fail:k", terminated=True, success=False) == "end:fail:k"
    assert outcome_node("end:fail:k", terminated=True, success=True) != "end:fail:k"

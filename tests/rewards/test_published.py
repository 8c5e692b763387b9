"""The released code's graph, defects included: what it finds, next to what ours finds."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow.episodes import Group
from agentgym_flow.rewards import group_graph
from agentgym_flow.rewards.credit.rewardflow import published_step_rewards, published_values, sweep_values

SETTINGS = {"gamma": 0.9, "edges": "directed", "bridge_noops": False}


def rewards_of(group, success=10.0):
    return [[success * turn.success for turn in episode.turns] for episode in group]


def plain_sweeps(rewards, edges, gamma, sweeps):
    """The same updates, written as loops."""
    values = list(rewards)
    for _ in range(sweeps):
        values = [
            max([values[node], *(gamma * values[head] for tail, head in edges if tail == node)])
            for node in range(len(values))
        ]
    return values


@given(
    st.lists(st.integers(-3, 10).map(float), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12),
    st.integers(0, 20),
)
def test_sweeps_equal_plain_loops(rewards, edges, sweeps):
    edges = [(tail % len(rewards), head % len(rewards)) for tail, head in edges]
    assert list(sweep_values(rewards, edges, 0.9, sweeps)) == plain_sweeps(rewards, edges, 0.9, sweeps)


def test_the_worked_example_has_the_published_values(worked_example):
    values = published_values(worked_example, rewards_of(worked_example), loop_turns=4, **SETTINGS)
    assert values == pytest.approx({"W": 10.0, "B": 9.0, "A": 8.1, "S": 8.1, "X": 0.0})
    steps = published_step_rewards(worked_example, rewards_of(worked_example), 4, values)
    assert steps == [
        pytest.approx([0.0, 0.9, 1.0]),
        pytest.approx([0.0, 0.0, 0.0, 0.0]),
        pytest.approx([0.0, 0.9, 1.0]),
        pytest.approx([-8.1, 0.0, 0.0, 0.0]),
    ]


def test_symmetric_edges_change_only_the_pit(worked_example):
    settings = {**SETTINGS, "edges": "symmetric"}
    values = published_values(worked_example, rewards_of(worked_example), loop_turns=4, **settings)
    assert values == pytest.approx({"W": 10.0, "B": 9.0, "A": 8.1, "S": 8.1, "X": 7.29})
    steps = published_step_rewards(worked_example, rewards_of(worked_example), 4, values)
    assert steps[3][0] == pytest.approx(-0.81)


def test_a_shared_terminal_key_takes_the_value_of_the_first_writer(make_episode):
    """Two answers end at one empty page; published, both are worth 1 or both 0 by order, ours keeps them apart."""
    found = []
    for order in itertools.permutations([("s", "success"), ("s", "fail")]):
        group = Group([make_episode(["s", ""], end) for _, end in order])
        found.append(published_values(group, rewards_of(group, 1.0), loop_turns=4, **SETTINGS)[""])
        graph = group_graph(group)
        assert (graph.potential("end:success:"), graph.potential("end:fail:")) == (1.0, 0.0)
    assert found == [1.0, 0.0]


def test_success_on_the_last_turn_of_the_loop_never_enters(make_episode):
    group = Group([make_episode("sabW", "success")])
    values = published_values(group, rewards_of(group), loop_turns=3, **SETTINGS)
    assert values == {"s": 0.0, "a": 0.0, "b": 0.0}
    assert published_step_rewards(group, rewards_of(group), 3, values) == [[0.0, 0.0, 10.0]]
    assert group_graph(group).potential("s") == pytest.approx(0.729)


def test_negative_rewards_spread(make_episode):
    """A chain of Sokoban's -0.1 shrinks towards 0 away from the dead end, a cycle decays to nothing; ours gives 0."""
    chain = Group([make_episode("sabcd", "cut", rewards=[-0.1] * 4), make_episode("s" + "e" * 9, "cut")])
    values = published_values(chain, [[-0.1] * 4, [0.0] * 9], loop_turns=9, **SETTINGS)
    assert [values[k] for k in "dcba"] == pytest.approx([-0.1, -0.09, -0.081, -0.0729])
    assert not any(node.potential for node in group_graph(chain).nodes())

    values = sweep_values([-0.1, -0.1], [(0, 1), (1, 0)], 0.9)
    assert values == pytest.approx([-0.1 * 0.9**1000] * 2, rel=1e-9, abs=0.0)
    assert abs(values[0]) == pytest.approx(1.7e-47, rel=0.1, abs=0.0)

"""Potentials written on the turns of a group, and the defects of the published graph that must not come back."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow.episodes import Group
from agentgym_flow.errors import BadSetting, UnknownOption
from agentgym_flow.rewards import RelabelMetrics, group_graph, relabel

walks = st.lists(
    st.tuples(st.text("abcde", min_size=1, max_size=7), st.sampled_from(["success", "fail", "cut", "stop"])),
    min_size=1,
    max_size=4,
).map(lambda found: [("s" + path, end) for path, end in found])


def group_of(make_episode, found) -> Group:
    return Group([make_episode(path, end, attempt=i) for i, (path, end) in enumerate(found)])


def potentials(episode) -> list[float]:
    """The potentials along an episode, the first state first."""
    for turn, following in itertools.pairwise(episode.turns):
        assert turn.phi_next == following.phi
    return [episode.turns[0].phi, *(turn.phi_next for turn in episode.turns)]


def labels(group):
    return [[(t.phi, t.phi_next, t.anchor) for t in episode.turns] for episode in group]


def test_the_worked_example_gets_its_potentials(worked_example):
    relabel(worked_example)
    first, second, third, fourth = worked_example.episodes
    assert potentials(first) == pytest.approx([0.81, 0.81, 0.9, 1.0])
    assert potentials(second) == pytest.approx([0.81, 0.81, 0.81, 0.81, 0.0])  # the last step is kept
    assert potentials(third) == pytest.approx([0.81, 0.81, 0.9, 1.0])
    assert potentials(fourth) == pytest.approx([0.81, 0.0, 0.0, 0.0, 0.0])
    assert [t.anchor for t in worked_example.episodes[0].turns] == ["maze:1/S", "maze:1/A", "maze:1/B"]


def test_symmetric_edges_change_only_the_pit(worked_example):
    """The last A -> X is in the graph too, so X is one step from A either way."""
    graph = group_graph(worked_example, edges="symmetric")
    assert [graph.potential(k) for k in "SABX"] == pytest.approx([0.81, 0.81, 0.9, 0.729])


def test_the_worked_example_has_its_metrics(worked_example):
    found = relabel(worked_example)
    assert (found.groups, found.groups_without_success) == (1, 0)
    assert (found.unique_states, found.total_states, found.turns) == (5, 18, 14)
    assert (found.singleton_turns, found.positive_turns) == (0, 11)
    assert (found.choices, found.aliased_choices) == (9, 0)
    assert found.seconds > 0.0
    assert (found.singleton_share, found.aliased_share) == (0.0, 0.0)
    assert found.positive_share == pytest.approx(11 / 14)


def test_metrics_add_up(make_episode, worked_example):
    lost = Group([make_episode("sabc", actions=["go", "go", "go"]), make_episode("saac", actions=["go", "go", "go"])])
    both = sum([relabel(worked_example), relabel(lost)], start=RelabelMetrics())
    assert (both.groups, both.groups_without_success, both.turns) == (2, 1, 20)
    assert both.singleton_turns == 1  # b was left once
    assert both.aliased_choices == 1  # "go" in a led to b, a and c
    empty = RelabelMetrics()
    assert (empty.singleton_share, empty.positive_share, empty.aliased_share) == (0.0, 0.0, 0.0)


def test_success_on_the_last_turn_of_the_longest_episode_counts(make_episode):
    """The published loop never sees that state, so its only success would leave all potentials 0."""
    group = group_of(make_episode, [("sabW", "success"), ("sab", "cut")])
    relabel(group)
    assert [t.phi_next for t in group.episodes[0].turns] == pytest.approx([0.81, 0.9, 1.0])


def test_outcomes_that_share_a_key_stay_apart_in_any_order(make_episode):
    """With one node for both, the first writer would decide what the right and the wrong answer are worth."""
    for order in itertools.permutations([("sqT", "success"), ("srT", "fail")]):
        group = group_of(make_episode, order)
        relabel(group)
        reached = {e.turns[-1].success: e.turns[-1].phi_next for e in group}
        assert reached == {True: 1.0, False: 0.0}
        assert {e.turns[-1].success: e.turns[0].phi_next for e in group} == pytest.approx({True: 0.9, False: 0.0})


def test_a_truncation_is_no_outcome(make_episode):
    group = group_of(make_episode, [("sab", "cut"), ("sabW", "success")])
    relabel(group)
    assert group.episodes[0].turns[-1].phi_next == pytest.approx(0.9)  # b is b, out of time or not


def test_rewards_decide_nothing(make_episode):
    """Sokoban pays -0.1 a step and +1 for a box on its target: neither is a success, and neither spreads."""
    group = Group([make_episode("sab", "cut", rewards=[-0.1, 1.0])])
    assert relabel(group).groups_without_success == 1
    assert [(t.phi, t.phi_next) for t in group.turns] == [(0.0, 0.0), (0.0, 0.0)]
    unpaid = Group([make_episode("saW", "success", rewards=[-0.1, -0.1])])
    relabel(unpaid)
    assert [t.phi_next for t in unpaid.turns] == [0.9, 1.0]


@given(walks, st.randoms(use_true_random=False))
def test_the_order_of_attempts_does_not_matter(make_episode, found, random):
    group = group_of(make_episode, found)
    relabel(group)
    shuffled = list(group.episodes)
    random.shuffle(shuffled)
    before = {id(e): [(t.phi, t.phi_next, t.anchor) for t in e.turns] for e in group}
    other = Group(shuffled)
    relabel(other)
    assert {id(e): [(t.phi, t.phi_next, t.anchor) for t in e.turns] for e in other} == before


@given(walks)
def test_relabelling_again_writes_the_same(make_episode, found):
    group = group_of(make_episode, found)
    relabel(group)
    once = labels(group)
    relabel(group)
    assert labels(group) == once
    for turn in group.turns:
        assert turn.phi is not None
        assert turn.phi_next is not None
        assert 0.0 <= turn.phi <= 1.0
        assert turn.phi >= 0.9 * turn.phi_next - 1e-12  # a step shows a path


def test_bridging_attaches_the_next_step_to_the_state_before(make_episode):
    """An observation such as "Nothing happens." is a state key of its own; bridged, it is no state at all."""
    plain = group_of(make_episode, [("sNaW", "success")])
    plain.episodes[0].turns[0].action_valid = False
    relabel(plain)
    assert [t.phi for t in plain.turns] == pytest.approx([0.729, 0.81, 0.9])
    assert relabel(plain, bridge_noops=True).unique_states == 3
    assert potentials(plain.episodes[0]) == pytest.approx([0.81, 0.81, 0.9, 1.0])
    assert [t.anchor for t in plain.turns] == ["maze:1/s", "maze:1/s", "maze:1/a"]


def test_bridging_follows_a_function_and_never_skips_an_ending(make_episode):
    group = group_of(make_episode, [("slaW", "success")])
    looks = group_graph(group, bridge_noops=lambda turn: turn.action in ("to l", "to W"))
    assert sorted(node.key for node in looks.nodes()) == ["a", "end:success:W", "s"]
    assert looks.distance("s") == 2


def test_invalid_actions_that_change_nothing_need_no_bridging(make_episode):
    group = Group([make_episode("ssaW", "success", invalid=[0])])
    relabel(group)
    bare = labels(group)
    relabel(group, bridge_noops=True)
    assert labels(group) == bare


def test_episodes_without_turns_are_tolerated(make_episode):
    group = Group([make_episode("s"), make_episode("saW", "success")])
    assert relabel(group).total_states == 4
    alone = Group([make_episode("s")])
    assert relabel(alone) != RelabelMetrics()
    assert "s" in group_graph(alone)


def test_settings_out_of_range_are_refused(worked_example):
    with pytest.raises(BadSetting):
        relabel(worked_example, gamma=1.1)
    with pytest.raises(UnknownOption):
        relabel(worked_example, edges="undirected")

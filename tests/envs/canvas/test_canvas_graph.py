"""The graph: what nodes can be, where they stand, edits that apply whole or not at all, identity, statistics."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError

import pytest
from canvas_graphs import nodes, op, ops, par, workflows
from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow.core import stable_hash
from agentgym_flow.envs.canvas.operators import ADVERTISED, CHECKERS, ENSEMBLES, INPUTS, OPERATORS, OUTPUTS, STANDARD
from agentgym_flow.envs.canvas.workflow import (
    UNDO_DEPTH,
    Chain,
    Conditional,
    Loop,
    Node,
    OperatorNode,
    Parallel,
    Workflow,
    every,
    form,
    statistics,
)
from agentgym_flow.errors import BadWorkflow

MIXED = Workflow(
    (
        op("Plan"),
        Parallel((ops("Custom"), (op("Programmer"), Loop(ops("Review", "Revise"), 2)))),
        Conditional(op("Verify"), (), (par("Custom", "Programmer"), op("ScEnsemble"))),
    )
)
MIXED_IDS = [
    "node_1", "node_2", "node_2_p0", "node_2_p1_s0", "node_2_p1_s1", "node_2_p1_s1_l0", "node_2_p1_s1_l1", "node_3",
    "node_3_cond", "node_3_fail_s0", "node_3_fail_s0_p0", "node_3_fail_s0_p1", "node_3_fail_s1",
]  # fmt: skip


# -------------------------------------------------------------------- operators
def test_there_are_fourteen_operators_and_two_are_not_advertised() -> None:
    assert set(STANDARD) == {
        "Plan", "Decompose", "Programmer", "Custom", "AnswerGenerate", "Test", "Review", "Verify", "Revise",
        "ScEnsemble", "MdEnsemble", "Aggregate", "Format", "CustomCodeGenerate",
    }  # fmt: skip
    assert set(STANDARD) - set(ADVERTISED) == {"CustomCodeGenerate", "MdEnsemble"}
    assert (CHECKERS, ENSEMBLES) == (("Test", "Review", "Verify"), ("ScEnsemble", "MdEnsemble", "Aggregate"))


@pytest.mark.parametrize("spec", [OPERATORS[name] for name in STANDARD], ids=lambda spec: spec.name)
def test_what_is_declared_of_an_operator_has_a_type(spec) -> None:
    assert set(spec.inputs) <= set(INPUTS)
    assert set(spec.outputs) <= set(OUTPUTS)
    assert "problem" in spec.inputs
    assert ("passed" in spec.outputs) == (spec.name in CHECKERS)
    assert ("candidates" in spec.inputs) == (spec.name in ENSEMBLES)
    assert len(spec.instruction) > 20
    assert spec.summary


# -------------------------------------------------------------------- nodes
@pytest.mark.parametrize("name", ["Solver", "plan", "", "Plan ", "x" * 1_000_000, "\ud800"])
def test_an_operator_that_does_not_exist_is_refused_when_it_is_made(name: str) -> None:
    """Spec 5, row 1: upstream pends such a name for ever."""
    with pytest.raises(BadWorkflow) as refusal:
        OperatorNode(name)
    assert len(str(refusal.value)) < 300
    str(refusal.value).encode("utf-8")


def test_the_closest_operator_is_guessed() -> None:
    with pytest.raises(BadWorkflow, match=r"Did you mean Programmer\?"):
        OperatorNode("Programer")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Parallel((ops("Custom"),)), "at least two"),
        (lambda: Parallel((ops("Custom"), ())), "at least two"),
        (lambda: par("Custom", "ScEnsemble"), "ScEnsemble gathers"),
        (lambda: par("Aggregate", "Custom"), "Aggregate gathers"),
        (lambda: Conditional(op("Plan"), ops("Revise")), "Plan gives no verdict"),
        (lambda: Conditional(op("Verify")), "at least one"),
        (lambda: Loop((), 2), "at least one"),
        (lambda: Loop(ops("Custom"), 0), "1 to 10"),
        (lambda: Loop(ops("Custom"), 11), "1 to 10"),
        (lambda: Loop(ops("Custom"), True), "1 to 10"),
    ],
)
def test_what_cannot_be_is_refused(make, words: str) -> None:
    with pytest.raises(BadWorkflow, match=words):
        make()


def test_an_ensemble_may_gather_within_a_branch() -> None:
    assert Parallel(((par("Custom", "Programmer"), op("ScEnsemble")), ops("Custom")))


def test_instructions_are_kept_as_they_are_but_for_blanks_around_and_half_pairs() -> None:
    assert op("Plan", " \r\n a\rb\x00 \t").instruction == "a\rb\x00"
    assert op("Plan", "half \ud83d pair").instruction == "half \ufffd pair"


# -------------------------------------------------------------------- places
def test_ids_are_positions_and_all_are_listed() -> None:
    assert list(MIXED.places) == MIXED_IDS
    assert MIXED.place("node_2_p1_s1_l1").node == op("Revise")
    assert MIXED.place("node_3_cond").node == op("Verify")


def test_ids_stay_distinct_after_delete_and_add() -> None:
    """Spec 5, row 7: upstream numbers by length, so delete and add make twins of which one cannot be addressed."""
    workflow = Workflow(ops("Plan", "Custom", "Verify")).remove("node_1").insert(op("Format"))
    assert [(place.id, place.node) for place in workflow.places.values()] == [
        ("node_1", op("Custom")),
        ("node_2", op("Verify")),
        ("node_3", op("Format")),
    ]
    assert workflow.remove("node_3").nodes == ops("Custom", "Verify")


@given(workflows)
def test_every_node_has_one_id_and_every_id_leads_to_its_node(chain: Chain) -> None:
    workflow = Workflow(chain)
    assert [place.node for place in workflow.places.values()] == list(every(chain))
    for place in workflow.places.values():
        found: Node = chain[place.path[0]]
        for slot, index in zip(place.path[1::2], place.path[2::2], strict=True):
            found = found.chains[slot][index]
        assert found is place.node


# -------------------------------------------------------------------- edits
def test_insertion_is_at_a_position_or_at_the_end() -> None:
    workflow = Workflow(ops("Plan", "Format"))
    assert workflow.insert(op("Custom"), 1).nodes == ops("Plan", "Custom", "Format")
    assert workflow.insert(op("Custom"), 0).nodes == ops("Custom", "Plan", "Format")
    assert workflow.insert(op("Custom")).nodes == workflow.insert(op("Custom"), 2).nodes
    for position in (-1, 3, 10**30):
        with pytest.raises(BadWorkflow, match="from 0 to 2"):
            workflow.insert(op("Custom"), position)


@pytest.mark.parametrize(
    ("place", "left"),
    [
        ("node_1", None),
        ("node_2_p1_s0", (ops("Custom"), (Loop(ops("Review", "Revise"), 2),))),
        ("node_2_p1_s1_l0", (ops("Custom"), (op("Programmer"), Loop(ops("Revise"), 2)))),
    ],
)
def test_removal_closes_the_gap(place: str, left) -> None:
    workflow = MIXED.remove(place)
    assert workflow.nodes == (MIXED.nodes[1:] if left is None else (op("Plan"), Parallel(left), MIXED.nodes[2]))


@pytest.mark.parametrize(
    "place", ["node_2_p0", "node_3_cond", "node_3_fail_s0_p1", "node_9", "", "node_01", "x" * 10**6]
)
def test_an_edit_that_cannot_be_is_refused_and_changes_nothing(place: str) -> None:
    before = pickle.dumps(MIXED.nodes)
    with pytest.raises(BadWorkflow) as refusal:
        MIXED.remove(place)
    assert len(str(refusal.value)) < 400
    assert pickle.dumps(MIXED.nodes) == before


def test_a_branch_goes_with_its_last_node_as_long_as_two_stay() -> None:
    workflow = Workflow((par("Custom", "Programmer", "AnswerGenerate"),)).remove("node_1_p1")
    assert workflow.nodes == (par("Custom", "AnswerGenerate"),)


def test_replacement_works_at_any_depth() -> None:
    workflow = MIXED.replace("node_2_p1_s1_l1", op("Custom", "start over"))
    assert workflow.place("node_2_p1_s1_l1").node == op("Custom", "start over")
    assert list(workflow.places) == MIXED_IDS
    with pytest.raises(BadWorkflow, match="Plan gives no verdict"):
        MIXED.replace("node_3_cond", op("Plan"))
    with pytest.raises(BadWorkflow, match="exactly one operator"):
        MIXED.replace("node_3_cond", par("Custom", "Custom"))


def test_workflows_are_values() -> None:
    workflow = Workflow(ops("Plan"))
    other = workflow.insert(op("Custom"))
    assert workflow.nodes == ops("Plan")
    with pytest.raises(FrozenInstanceError):
        workflow.nodes = ()  # type: ignore[misc]
    assert copy.deepcopy(other) == pickle.loads(pickle.dumps(other)) == other
    assert hash(copy.deepcopy(other)) == hash(other)


# -------------------------------------------------------------------- undo
def test_undo_takes_back_one_edit_after_the_other() -> None:
    steps = [Workflow()]
    for edit in (
        lambda w: w.insert(op("Plan")),
        lambda w: w.insert(par("Custom", "Programmer")),
        lambda w: w.replace("node_2_p1", op("Custom", "another way")),
        lambda w: w.remove("node_1"),
    ):
        steps.append(edit(steps[-1]))
    workflow = steps[-1]
    for step in reversed(steps[:-1]):
        workflow = workflow.undo()
        assert workflow == step
        assert workflow.identity == step.identity
    with pytest.raises(BadWorkflow, match="no edit to undo"):
        workflow.undo()


def test_what_can_be_undone_is_bounded_and_is_no_part_of_the_identity() -> None:
    workflow = Workflow()
    for _ in range(2 * UNDO_DEPTH):
        workflow = workflow.insert(op("Plan")).remove("node_1")
    assert len(workflow.history) == UNDO_DEPTH
    assert workflow == Workflow()
    assert workflow.identity == Workflow().identity


# -------------------------------------------------------------------- identity
@given(workflows, workflows)
def test_identity_is_equal_if_and_only_if_the_graph_is(one: Chain, other: Chain) -> None:
    assert Workflow(one).identity == Workflow(pickle.loads(pickle.dumps(one))).identity
    assert (Workflow(one).identity == Workflow(other).identity) == (one == other)
    assert Workflow(one).identity == stable_hash([form(node) for node in one])


@given(workflows.filter(bool), st.data())
def test_changing_any_one_node_changes_the_identity(chain: Chain, data: st.DataObject) -> None:
    workflow = Workflow(chain)
    place = data.draw(st.sampled_from(list(workflow.places.values())))
    other = data.draw(nodes.filter(lambda node: node != place.node))
    try:
        changed = workflow.replace(place.id, other)
    except BadWorkflow:
        return
    assert changed.identity != workflow.identity


def test_identity_tells_apart_what_is_easily_confused() -> None:
    graphs = [
        (),
        ops("Custom"),
        (op("Custom", "Custom"),),
        ops("Custom", "Custom"),
        (par("Custom", "Custom"),),
        (Loop(ops("Custom"), 2),),
        (Loop(ops("Custom"), 3),),
        (Loop(ops("Custom", "Custom"), 2),),
        (Loop((Loop(ops("Custom"), 2),), 2),),
        (Parallel((ops("Custom", "Custom"), ops("Custom"))),),
        (Parallel((ops("Custom"), ops("Custom", "Custom"))),),
        (Conditional(op("Verify"), ops("Custom"), ()),),
        (Conditional(op("Verify"), (), ops("Custom")),),
        (Conditional(op("Verify"), ops("Custom"), ops("Custom")),),
    ]
    assert len({Workflow(graph).identity for graph in graphs}) == len(graphs)


def test_the_identity_is_the_same_in_every_process() -> None:
    assert Workflow().identity == "4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945"
    assert MIXED.identity == "436fb98b83cc7489a3979e6824eca91632c8c09d1f4efd896eafdc11057968fd"


# -------------------------------------------------------------------- statistics
def test_statistics_count_operators_structures_and_calls() -> None:
    counted = statistics(MIXED.nodes)
    names = ["Plan", "Custom", "Programmer", "Review", "Revise", "Verify", "ScEnsemble"]
    assert list(counted.kinds.items()) == list(zip(names, [1, 2, 2, 1, 1, 1, 1], strict=True))
    assert counted._replace(kinds={}) == (3, 9, {}, 3, 2, 1, 1, 0, 11)
    assert statistics(()) == (0, 0, {}, 0, 0, 0, 0, 0, 0)


def test_most_calls_is_what_a_run_can_come_to() -> None:
    inner = Loop((par("Custom", "Programmer"), op("ScEnsemble")), 4)
    both = Conditional(op("Test"), ops("Custom"), (Loop((inner,), 3),))
    assert statistics((both,)).most_calls == 1 + 3 * 4 * 3
    assert statistics((op("Plan", "with words"),)).instructions == 1

"""Applying actions: what is accepted, what is refused and why, when a workflow is finished, and that one always can."""

from __future__ import annotations

import pytest
from canvas_graphs import instructions, op, operators, ops, par
from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow.envs.canvas.actions import Action, Add, Delete, Edit, Finish, Modify, SetPrompt, apply
from agentgym_flow.envs.canvas.reading import read_action
from agentgym_flow.envs.canvas.workflow import Chain, Conditional, Loop, Parallel, Workflow, statistics
from agentgym_flow.envs.canvas.workflow.rules import (
    PUBLISHED,
    PUBLISHED_FINISH,
    Circumstances,
    FinishRules,
    Language,
    is_long,
)
from agentgym_flow.errors import BadSetting

LANGUAGE = Language()
LAX = FinishRules()
START = Workflow((op("Plan", "name the unknowns"), par("Custom", "Programmer"), Loop(ops("Review", "Revise"), 2)))


def does(action: Action, workflow: Workflow = START, language: Language = LANGUAGE, rules: FinishRules = LAX) -> Edit:
    return apply(action, workflow, language, rules)


# -------------------------------------------------------------------- edits
@pytest.mark.parametrize(
    ("action", "nodes"),
    [
        (Add(op("Format")), (*START.nodes, op("Format"))),
        (Add(op("Format"), 0), (op("Format"), *START.nodes)),
        (Delete("node_2"), (START.nodes[0], START.nodes[2])),
        (Delete("node_3_l0"), (*START.nodes[:2], Loop(ops("Revise"), 2))),
        (Modify("node_1", op("Decompose")), (op("Decompose"), *START.nodes[1:])),
        (Modify("node_1", op("Plan", "in two steps")), (op("Plan", "in two steps"), *START.nodes[1:])),
        (Modify("node_2_p1", op("Custom", "another way")),
         (START.nodes[0], Parallel((ops("Custom"), (op("Custom", "another way"),))), START.nodes[2])),
        (SetPrompt("node_3_l1", "keep the units"),
         (*START.nodes[:2], Loop((op("Review"), op("Revise", "keep the units")), 2))),
    ],
)  # fmt: skip
def test_what_is_accepted(action: Action, nodes: Chain) -> None:
    edit = does(action)
    assert edit.accepted
    assert not edit.reason
    assert not edit.finished
    assert edit.workflow.nodes == nodes
    assert edit.workflow.undo() == START


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        (Add(op("Format"), 4), "There is no position 4: positions go from 0 to 3."),
        (Delete("node_4"),
         "There is no node 'node_4': node_1, node_2, node_2_p0, node_2_p1, node_3, node_3_l0, node_3_l1."),
        (Delete("node_2_p0"), "A parallel needs at least two branches, and none can be empty."),
        (Modify("node_2", op("Custom")),
         "node_2 is a parallel, and modify works on operators: node_2_p0, node_2_p1."),
        (Modify("node_2_p0", op("ScEnsemble")),
         "ScEnsemble gathers branches: it goes after the parallel, not into it."),
        (SetPrompt("node_3", "be exact"),
         "node_3 is a loop, and set_prompt works on operators: node_3_l0, node_3_l1."),
        (SetPrompt("node_1", "four"), "A prompt has 5 to 4000 characters."),
        (SetPrompt("node_1", "x" * 4001), "A prompt has 5 to 4000 characters."),
        (Add(op("Format", "four")), "An instruction has 5 to 4000 characters, this has 4."),
    ],
)  # fmt: skip
def test_what_is_refused_changes_nothing(action: Action, reason: str) -> None:
    edit = does(action)
    assert edit.reason == reason
    assert not edit.accepted
    assert edit.workflow is START


def test_the_published_language_deletes_top_level_nodes_only() -> None:
    edit = does(Delete("node_3_l0"), language=PUBLISHED)
    assert edit.reason.startswith("node_3_l0 is part of a structure")
    assert does(Delete("node_3"), language=PUBLISHED).accepted


@pytest.mark.parametrize(
    ("action", "language"),
    [
        (Add(op("Format")), Language(most_operators=5)),
        (Add(op("Format")), Language(most_calls=7)),
        (Add(Loop((par("Custom", "Custom"),), 2)), Language(most_depth=2)),
        (Add(Loop((par("Custom", "Custom"),), 2)), Language(nesting=False)),
        (Modify("node_1", op("Format")), Language(operators=("Plan", "Custom", "Programmer", "Review", "Revise"))),
    ],
)
def test_no_edit_leads_out_of_the_language(action: Action, language: Language) -> None:
    assert not does(action, language=language).accepted


def test_an_edit_that_changes_nothing_is_accepted() -> None:
    assert does(Modify("node_2_p0", op("Custom"))) == Edit(START)


# -------------------------------------------------------------------- finish
SIX = Workflow(ops("Plan", "Programmer", "Test", "Format", "Plan"))


@pytest.mark.parametrize(
    ("nodes", "lacks"),
    [
        ((), ["at least 5 operators, it has 0", "a solver", "a checker", "a parallel, a conditional or a loop"]),
        (ops("Plan", "Custom", "Verify", "Format", "Plan"), ["a parallel, a conditional or a loop"]),
        ((op("Plan"), par("Custom", "Programmer"), op("Verify")), ["at least 5 operators, it has 4"]),
        ((op("Plan"), par("Plan", "Decompose"), op("Verify"), op("Format")), ["a solver"]),
        ((op("Plan"), par("Custom", "Programmer"), op("Aggregate"), op("Format")), ["a checker"]),
        ((op("Plan"), op("Custom"), Conditional(op("Verify"), (), ops("Revise")), op("Format")), []),
        ((op("Plan"), Loop(ops("Custom", "Revise", "Review"), 2), op("Format")), []),
    ],
)
def test_the_published_finish_rules_say_what_is_lacking(nodes: Chain, lacks: list[str]) -> None:
    missing = PUBLISHED_FINISH.missing(statistics(nodes))
    assert len(missing) == len(lacks)
    assert all(words.startswith(lack) for words, lack in zip(missing, lacks, strict=True))
    edit = does(Finish(), Workflow(nodes), rules=PUBLISHED_FINISH)
    assert edit.finished == edit.accepted == (not lacks)
    assert all(lack in edit.reason for lack in lacks)


GOOD = (op("Plan"), op("Custom"), Conditional(op("Verify"), (), ops("Revise")), op("Plan"))


@pytest.mark.parametrize(
    ("circumstances", "lacks"),
    [
        (Circumstances(), ""),
        (Circumstances(tests=True), "Test, because"),
        (Circumstances(code=True), "Programmer or Test, because"),
        (Circumstances(result="1 apple"), ""),
        (Circumstances(result="1\n2"), "Format, because"),
        (Circumstances(result="x" * 61), "Format, because"),
        (Circumstances(result="It is 4, because 2 + 2 = 4."), "Format, because"),
    ],
)
def test_finish_rules_look_at_the_task_and_the_result(circumstances: Circumstances, lacks: str) -> None:
    missing = PUBLISHED_FINISH.missing(statistics(GOOD), circumstances)
    assert [words[: len(lacks)] for words in missing] == ([lacks] if lacks else [])
    assert not LAX.missing(statistics(GOOD), circumstances)


def test_the_lax_rules_ask_for_one_operator() -> None:
    assert does(Finish(), Workflow()).reason == (
        "The workflow cannot be finished yet. It needs at least 1 operator, it has 0."
    )
    assert does(Finish("42"), Workflow(ops("Plan"))) == Edit(Workflow(ops("Plan")), finished=True)


def test_what_is_long() -> None:
    assert not is_long(" 42 \n")
    assert not is_long("x" * 60)
    assert is_long("so the answer is 42")


# -------------------------------------------------------------------- no dead state
LANGUAGES = [Language(most_operators=6, most_calls=20), PUBLISHED]
RULES = [LAX, PUBLISHED_FINISH]


@pytest.mark.parametrize(
    "text",
    [
        "<action>add</action><operator>Verifier</operator>",
        "<action>add</action><operator>Veri fy</operator>",
        "<action>modify</action><target>node_2</target><operator>Custom</operator>",
    ],
)
def test_what_pends_for_ever_upstream_is_refused_at_once(text: str) -> None:
    """Spec 5, row 1: after such an action upstream takes all later text for a prompt; finish is out of reach."""
    reading = read_action(text)
    edit = does(reading.action) if reading.action else Edit(START, reading.reason)
    assert edit.reason
    assert edit.workflow is START
    assert does(Finish(), edit.workflow).finished


_targets = st.sampled_from(["node_1", "node_2", "node_2_p0", "node_1_cond", "node_1_pass", "node_3_l0", "node_7"])
_any_action: st.SearchStrategy[Action] = st.one_of(
    st.builds(Add, st.one_of(operators(), st.just(par("Custom", "Plan")), st.just(Loop(ops("Custom"), 3))),
              st.one_of(st.none(), st.integers(0, 3))),
    st.just(Add(Conditional(op("Verify"), ops("Revise"), (Loop(ops("Custom"), 2),)))),
    st.builds(Delete, _targets), st.builds(Modify, _targets, operators()), st.builds(SetPrompt, _targets, instructions),
)  # fmt: skip


@given(st.lists(_any_action, max_size=15), st.sampled_from(LANGUAGES), st.sampled_from(RULES))
def test_every_state_that_can_be_reached_can_be_left_and_finished(
    actions: list[Action], language: Language, rules: FinishRules
) -> None:
    workflow = Workflow()
    for action in actions:
        edit = apply(action, workflow, language, rules)
        assert edit.accepted or edit.workflow is workflow
        workflow = edit.workflow
        language.check(workflow.nodes)
    exits: list[Action] = [Delete("node_1") for _ in workflow.nodes]
    exits += [Add(node) for node in rules.simplest(language)]
    for action in exits:
        edit = apply(action, workflow, language, rules)
        assert edit.accepted, edit.reason
        workflow = edit.workflow
    worst = Circumstances(code=True, tests=True, result="because " * 20)
    assert apply(Finish(), workflow, language, rules, worst).finished


@pytest.mark.parametrize("rules", [LAX, PUBLISHED_FINISH, FinishRules(least_operators=7, checker=True)])
def test_the_simplest_workflow_can_be_handed_in(rules: FinishRules) -> None:
    worst = Circumstances(code=True, tests=True, result="because " * 20)
    assert rules.missing(statistics(rules.simplest(LANGUAGE)), worst) == []


@pytest.mark.parametrize(
    ("rules", "language", "words"),
    [
        (PUBLISHED_FINISH, Language(operators=("Custom", "Verify", "Format")), "one of Test"),
        (FinishRules(checker=True), Language(operators=("Custom",)), "one of Test, Review, Verify"),
        (FinishRules(structure=True), Language(most_depth=1), "at most 1 levels"),
        (FinishRules(least_operators=9), Language(most_operators=8), "at most 8 operators"),
    ],
)
def test_rules_that_nothing_can_meet_are_refused_beforehand(rules: FinishRules, language: Language, words: str) -> None:
    with pytest.raises(BadSetting, match=words):
        rules.simplest(language)


def test_rules_are_checked() -> None:
    with pytest.raises(BadSetting, match="least_operators"):
        FinishRules(least_operators=0)

"""The action language: both written forms, what is repaired and what is refused, and that no text raises or stalls."""

from __future__ import annotations

import json
from typing import Any

import pytest
from canvas_graphs import ROOMY, flat_nodes, instructions, nodes, op, operators, ops, par
from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow.envs.canvas.actions import Action, Add, Delete, Finish, Modify, SetPrompt
from agentgym_flow.envs.canvas.operators import STANDARD
from agentgym_flow.envs.canvas.reading import Reading, read_action, write_action
from agentgym_flow.envs.canvas.workflow import Conditional, Loop, Parallel
from agentgym_flow.envs.canvas.workflow.rules import PUBLISHED, Language
from agentgym_flow.envs.canvas.workflow.text import Repair

targets = st.sampled_from(["node_1", "node_2_p0", "node_3_fail_s1"])
positions = st.one_of(st.none(), st.integers(0, 999_999))
others: st.SearchStrategy[Action] = st.one_of(
    st.builds(Delete, targets),
    st.builds(Modify, targets, operators()),
    st.builds(SetPrompt, targets, instructions.filter(lambda text: bool(text.strip()))),
    st.builds(Finish, st.one_of(st.just(""), st.text(max_size=20), st.just("</answer> [answer] {42}"))),
)
actions = st.one_of(st.builds(Add, nodes, positions), others)


# -------------------------------------------------------------------- writing and reading back
@given(actions, st.sampled_from(["tags", "json"]), st.booleans(), st.sampled_from(["passed", "failed"]))
def test_what_is_written_reads_back_as_the_same_action_without_repairs(
    action: Action, form: Any, strict: bool, first: Any
) -> None:
    language = Language(first_case=first)
    written = write_action(action, language, form)
    assert read_action(written, language, strict=strict) == Reading(action)
    if form == "json":
        assert read_action(json.loads(written), language, strict=strict) == Reading(action)


@given(st.builds(Add, flat_nodes, positions), st.sampled_from(["tags", "json"]))
def test_flat_actions_read_back_in_the_published_language(action: Add, form: Any) -> None:
    assert read_action(write_action(action, PUBLISHED, form), PUBLISHED, strict=True) == Reading(action)


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("<action>add</action><operator>Plan</operator>", Add(op("Plan"))),
        (" <action> add </action>\n<operator> Plan </operator>\n", Add(op("Plan"))),
        ("<action>add</action><operator>Plan</operator><position>0</position>", Add(op("Plan"), 0)),
        ("<action>add</action><structure>operator</structure><operator>Plan</operator>", Add(op("Plan"))),
        ("<action>add</action><structure>parallel</structure><operators>Custom,Programmer</operators>",
         Add(par("Custom", "Programmer"))),
        ("<action>add</action><structure>parallel</structure><operators>Custom; Programmer Plan</operators>",
         Add(par("Custom", "Programmer", "Plan"))),
        ("<action>add</action><structure>parallel</structure><operators>Plan -> Custom, [Plan, Custom]</operators>",
         Add(Parallel((ops("Plan", "Custom"), (par("Plan", "Custom"),))))),
        ("<action>add</action><structure>conditional</structure><condition>Verify</condition><true>Revise</true>"
         "<false>done</false>", Add(Conditional(op("Verify"), ops("Revise"), ()))),
        ("<action>add</action><structure>conditional</structure><condition>Verify</condition><true>done</true>"
         "<false>Revise -> Format</false>", Add(Conditional(op("Verify"), (), ops("Revise", "Format")))),
        ("<action>add</action><structure>conditional</structure><condition>Test</condition><true>Custom</true>",
         Add(Conditional(op("Test"), ops("Custom"), ()))),
        ("<action>add</action><structure>loop</structure><operators>Review,Revise</operators><count>2</count>",
         Add(Loop(ops("Review", "Revise"), 2))),
        ("<action>add</action><structure>loop</structure><operators>Revise</operators>", Add(Loop(ops("Revise"), 3))),
        ("<action>delete</action><target>node_2</target>", Delete("node_2")),
        ("<action>modify</action><target>node_2</target><operator>Custom</operator>", Modify("node_2", op("Custom"))),
        ("<action>set_prompt</action><target>node_2</target><prompt>be exact</prompt>",
         SetPrompt("node_2", "be exact")),
        ("<action>finish</action>", Finish()),
        ("<action>finish</action><answer>42</answer>", Finish("42")),
    ],
)  # fmt: skip
def test_the_published_form_is_read_strictly(text: str, action: Action) -> None:
    assert read_action(text, strict=True) == Reading(action)


def test_the_true_case_is_the_one_that_the_language_says() -> None:
    text = (
        "<action>add</action><structure>conditional</structure><condition>Verify</condition><true>Revise</true>"
        "<false>done</false>"
    )
    assert read_action(text).action == Add(Conditional(op("Verify"), passed=ops("Revise")))
    assert read_action(text, PUBLISHED).action == Add(Conditional(op("Verify"), failed=ops("Revise")))


@pytest.mark.parametrize(
    ("written", "action"),
    [
        ({"action": "add", "operator": "Plan", "prompt": "name the unknowns"}, Add(op("Plan", "name the unknowns"))),
        ({"action": "add", "operator": "Plan", "position": 2}, Add(op("Plan"), 2)),
        ({"action": "add", "structure": "parallel", "operators": ["Custom", "Plan -> Programmer"]},
         Add(Parallel((ops("Custom"), ops("Plan", "Programmer"))))),
        ({"action": "add", "structure": "parallel", "operators": "Custom, Programmer"},
         Add(par("Custom", "Programmer"))),
        ({"action": "add", "structure": "loop", "operators": ["Review", "Revise"], "count": 4},
         Add(Loop(ops("Review", "Revise"), 4))),
        ({"action": "add", "structure": "conditional", "condition": "Test", "true": "done", "false": "Programmer"},
         Add(Conditional(op("Test"), (), ops("Programmer")))),
        ({"action": "finish"}, Finish()),
    ],
)  # fmt: skip
def test_actions_as_objects_are_read_without_repairs(written: dict[str, Any], action: Action) -> None:
    assert read_action(written, strict=True) == Reading(action)
    assert read_action(json.dumps(written), strict=True) == Reading(action)
    assert read_action(json.dumps(written, indent=2)) == Reading(action)


# -------------------------------------------------------------------- prompts that come with the action
def test_an_inline_prompt_is_honoured() -> None:
    """Spec 1.2: upstream reads it and throws it away, so that every operator costs two rounds."""
    text = "<action>add</action><operator>Custom</operator><prompt>If a < b & b < c,\nsay so.</prompt>"
    assert read_action(text, strict=True).action == Add(op("Custom", "If a < b & b < c,\nsay so."))
    text = "<action>modify</action><target>node_1</target><operator>Custom</operator><prompt>start over</prompt>"
    assert read_action(text, strict=True).action == Modify("node_1", op("Custom", "start over"))


def test_the_operators_of_a_structure_take_one_prompt_each_in_their_order() -> None:
    text = (
        "<action>add</action><structure>conditional</structure><condition>Verify</condition><true>Revise</true>"
        "<false>Format</false><prompt>check the sum</prompt><prompt></prompt><prompt>just a number</prompt>"
    )
    both = Conditional(op("Verify", "check the sum"), ops("Revise"), (op("Format", "just a number"),))
    assert read_action(text, strict=True).action == Add(both)
    parallel = {"action": "add", "structure": "parallel", "operators": ["Custom", 'Custom "by hand"', "Custom"]}
    branches = ((op("Custom", "by words"),), (op("Custom", "by hand"),), (op("Custom", "by heart"),))
    assert read_action({**parallel, "prompt": ["by words", "by heart"]}).action == Add(Parallel(branches))
    refused = read_action({**parallel, "prompt": ["by words", "by heart", "by chance"]}, strict=True)
    assert refused == Reading(None, "there are more prompts than operators")


@pytest.mark.parametrize("line_end", ["\r", "\r\n", "\x85", "\u2028", "\x00"])
def test_no_character_of_a_prompt_can_break_anything(line_end: str) -> None:
    """Spec 5, row 10: upstream puts prompts into generated source, and a carriage return breaks the whole of it."""
    text = f"<action>add</action><operator>Custom</operator><prompt>first{line_end}'''second\"</prompt>"
    assert read_action(text, strict=True).action == Add(op("Custom", f"first{line_end}'''second\""))


# -------------------------------------------------------------------- repairs
ADD_PLAN = "<action>add</action><operator>Plan</operator>"


@pytest.mark.parametrize(
    ("text", "action", "repairs"),
    [
        ("[action]add[/action][operator]Plan[/operator]", Add(op("Plan")), ["brackets"]),
        ("<ACTION>add</ACTION><Operator>Plan</Operator>", Add(op("Plan")), ["tag_case"]),
        ("<action>ADD</action><operator>plan</operator>", Add(op("Plan")), ["word_case", "operator_case"]),
        (f"I will plan first.\n{ADD_PLAN}", Add(op("Plan")), ["text_around"]),
        (f"```xml\n{ADD_PLAN}\n```", Add(op("Plan")), ["text_around"]),
        (f"<think>I could <action>finish</action> now</think>{ADD_PLAN}", Add(op("Plan")), ["thinking"]),
        (f"or <action>finish</action> now</think>{ADD_PLAN}", Add(op("Plan")), ["thinking"]),
        (f"{ADD_PLAN}<think>was that right", Add(op("Plan")), ["thinking"]),
        (f"[THINK]or <action>finish</action>[/THINK]{ADD_PLAN}", Add(op("Plan")), ["thinking"]),
        (f"[think]or <action>finish</action>< / think >{ADD_PLAN}", Add(op("Plan")), ["thinking"]),
        (f"<think>in <think> and </think>: <action>finish</action></think>{ADD_PLAN}", Add(op("Plan")), ["thinking"]),
        ('<think>not {"action": "finish"}</think>{"action": "add", "operator": "Plan"}', Add(op("Plan")), ["thinking"]),
        ("<think>not finish</think>\nPlan", Add(op("Plan")), ["thinking", "bare_word"]),
        (f"<think>hm</think>{ADD_PLAN}<prompt>use <think> tags</prompt>", Add(op("Plan", "use <think> tags")),
         ["thinking"]),
        (f"{ADD_PLAN}<action>finish</action>", Add(op("Plan")), ["more_actions"]),
        ("<action>add<operator>Plan</operator>", Add(op("Plan")), ["unclosed_tag"]),
        ("<action>add</action><operator>Plan", Add(op("Plan")), ["unclosed_tag"]),
        (f"An <action> is wanted: {ADD_PLAN}", Add(op("Plan")), ["text_around", "unclosed_tag"]),
        ("<operator>Plan</operator><action>add</action></answer>", Add(op("Plan")), ["stray_tag"]),
        (f"{ADD_PLAN}<operator>Custom</operator>", Add(op("Plan")), ["repeated_field"]),
        (f"{ADD_PLAN}<target>node_1</target>", Add(op("Plan")), ["needless_field"]),
        ("<action>parallel</action><operators>Custom,Plan</operators>", Add(par("Custom", "Plan")),
         ["structure_as_action"]),
        ("<action>add</action><structure>loop</structure><operators>Custom</operators><count>99</count>",
         Add(Loop(ops("Custom"), 10)), ["loop_count"]),
        ("<action>delete</action><target>Node_2</target>", Delete("node_2"), ["target"]),
        ("<action>modify</action><target>node_2_true</target><operator>Plan</operator>",
         Modify("node_2_pass", op("Plan")), ["target"]),
        ("<action>set_prompt</action><target>node_1</target><prompt>cut off in the mid",
         SetPrompt("node_1", "cut off in the mid"), ["unclosed_tag"]),
        ("finish", Finish(), ["bare_word"]),
        ("Programmer\n", Add(op("Programmer")), ["bare_word"]),
        ('Here: {"action": "finish"}', Finish(), ["text_around"]),
        ('```json\n{"action": "add", "operator": "plan", "why": 3, "prompt": null}\n```', Add(op("Plan")),
         ["text_around", "needless_field", "needless_field", "operator_case"]),
    ],
)  # fmt: skip
def test_what_models_write_is_read_with_good_will_and_noted(text: str, action: Action, repairs: list[str]) -> None:
    reading = read_action(text)
    assert (reading.action, reading.reason) == (action, "")
    assert [repair.kind for repair in reading.repairs] == repairs
    strict = read_action(text, strict=True)
    assert strict.action is None
    assert strict.reason


def test_repairs_are_plain_data() -> None:
    reading = read_action(f"caf\u00e9 \ud800\n\x1b[2J {'x' * 1000}{ADD_PLAN}")
    assert reading.repairs == (Repair("text_around", "caf\\xe9 \\ud800\\n\\x1b[2J " + "x" * 36),)


# -------------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    "text",
    [
        "", " ", "do not finish yet", "I would rather not finish.", "Let us add Plan.", "Plan and Custom", "finish!",
        "API error: 500", "<think>add Plan</think>", "<think>add Plan", "<think>Plan</think>", "Plan -> Custom",
        '<think>{"action": "finish"}', "<reasoning><action>finish</action>", "null", "[]", "3", "{}", "{",
        '{"action": "fi', '{"action": ["finish"]}', '{"action": "add", "operator": 3}', '["action", "finish"]',
        '{"action": "add", "action": "finish"}', "<prompt><action>finish</action></prompt>",
    ],
)  # fmt: skip
@pytest.mark.parametrize("strict", [False, True])
def test_what_is_no_action_never_becomes_one(text: str, strict: bool) -> None:
    """Spec 1.3: upstream takes a negated finish for one, a mere mention for `add`, and makes up actions on errors."""
    reading = read_action(text, strict=strict)
    assert reading.action is None
    assert 10 < len(reading.reason) < 300
    assert not reading.repairs


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<action>run</action>", "no action 'run'"),
        ("<action>add</action>", "needs operator"),
        ("<action>add</action><operator></operator>", "needs operator"),
        ("<action>add</action><operator>Planner</operator>", "Did you mean Plan?"),
        ("<action>add</action><operator>Plan -> Custom</operator>", "exactly one operator"),
        ("<action>add</action><structure>tree</structure>", "no structure 'tree'"),
        ("<action>add</action><structure>parallel</structure>", "needs operators"),
        ("<action>add</action><structure>parallel</structure><operators>Custom</operators>", "at least two"),
        ("<action>add</action><structure>parallel</structure><operators>Custom,ScEnsemble</operators>", "ScEnsemble"),
        ("<action>add</action><structure>conditional</structure><true>Plan</true>", "needs condition"),
        ("<action>add</action><structure>conditional</structure><condition>Plan</condition>", "verdict"),
        ("<action>add</action><structure>conditional</structure><condition>Test</condition>", "at least one"),
        ("<action>add</action><structure>loop</structure><operators>Plan</operators><count>2.5</count>", "integer"),
        ("<action>add</action><operator>Plan</operator><position>-1</position>", "counted from 0"),
        ("<action>add</action><operator>Plan</operator><position>" + "9" * 5000 + "</position>", "counted from 0"),
        ("<action>delete</action>", "needs target"),
        ("<action>delete</action><target>Plan</target>", "id of a node"),
        ("<action>delete</action><target>node_1 and node_2</target>", "id of a node"),
        ("<action>modify</action><target>node_1</target>", "needs operator"),
        ("<action>set_prompt</action><target>node_1</target>", "needs prompt"),
        ("<action>set_prompt</action><target>node_1</target><prompt> </prompt>", "needs prompt"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("strict", [False, True])
def test_what_is_wrong_with_an_action_is_said(text: str, words: str, strict: bool) -> None:
    reading = read_action(text, strict=strict)
    assert reading.action is None
    assert words in reading.reason


@pytest.mark.parametrize(
    "written",
    [{}, {"action": None}, {"action": "add", "operator": ["Plan"]},
     {"action": "add", "operator": "Plan", "position": True},
     {"action": "add", "operator": "Plan", "position": 10**5000}, {3: 4}, {"action": "finish", "answer": 42}],
)  # fmt: skip
def test_an_object_that_is_no_action_is_refused(written: dict[Any, Any]) -> None:
    reading = read_action(written)
    assert reading.action is None
    assert reading.reason


@pytest.mark.heavy
@pytest.mark.parametrize(
    "text",
    [
        "<" * 1_000_000, "<action>" * 125_000, "<prompt>" * 125_000, "</prompt>" * 111_000, "<think>" * 140_000,
        "</think>" * 125_000, "< " * 500_000, "<" + " " * 1_000_000, "[action]add" * 90_000, "{" * 1_000_000,
        '{"a":' * 200_000, "[" * 1_000_000, "&lt;" * 250_000, '{"action": ' + "9" * 1_000_000 + "}",
        "<action>add</action><operator>" + "Plan " * 200_000, "<action>add</action><operator>" + "x" * 1_000_000,
        "<action>add</action><structure>parallel</structure><operators>" + "[" * 1_000_000 + "</operators>",
        "<action>" + "a" * 1_000_000 + "</action>", "<true>done</true>" * 60_000, "\ud800" * 1_000_000,
        "<action>set_prompt</action>" + "<prompt></prompt>" * 60_000,
        "<action>delete</action><target>" + "_true" * 200_000,
    ],
)  # fmt: skip
@pytest.mark.parametrize("strict", [False, True])
def test_a_text_of_a_million_characters_is_one_reading(text: str, strict: bool) -> None:
    reading = read_action(text, strict=strict)
    assert len(reading.reason) < 500
    assert sum(len(repair.detail) for repair in reading.repairs) < 2000
    reading.reason.encode("utf-8")


_pieces = st.sampled_from(
    ["<action>", "</action>", "[action]", "[/action]", "add", "finish", "delete", "<operator>", "</operator>", "Plan",
     "<prompt>", "</prompt>", "be exact", "<think>", "</think>", "<structure>", "loop", "</structure>", "<operators>",
     "</operators>", "<count>", "</count>", "7", "->", ",", "{", "}", '"action"', ":", '"', "\n", " ", "\ud800", "&lt;"]
)  # fmt: skip


@given(st.one_of(st.lists(_pieces, max_size=25).map("".join), st.text(max_size=50)), st.booleans())
def test_no_text_raises(text: str, strict: bool) -> None:
    reading = read_action(text, strict=strict)
    assert (reading.action is None) == bool(reading.reason)
    if reading.action is not None:
        assert read_action(write_action(reading.action, ROOMY), ROOMY, strict=True) == Reading(reading.action)
    if strict:
        assert not reading.repairs


@given(st.lists(_pieces, max_size=25).map("".join))
def test_leniency_changes_nothing_about_what_is_right(text: str) -> None:
    strict = read_action(text, strict=True)
    if strict.action is not None:
        assert read_action(text) == strict


def test_every_operator_can_be_added_by_its_bare_name() -> None:
    assert all(read_action(name).action == Add(op(name)) for name in STANDARD)

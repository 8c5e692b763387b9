"""Turns: prompts inline or one by one, what waits and what does not, and that no state of waiting is a trap."""

from __future__ import annotations

import copy
import pickle

import pytest
from canvas_graphs import op, ops, par
from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow.envs.canvas.actions import Add
from agentgym_flow.envs.canvas.drafting import CanvasDraft, Drafting, TurnResult, prompt_in
from agentgym_flow.envs.canvas.reading import write_action
from agentgym_flow.envs.canvas.workflow import Conditional, Workflow
from agentgym_flow.envs.canvas.workflow.rules import PUBLISHED, PUBLISHED_FINISH, FinishRules, Language
from agentgym_flow.envs.canvas.workflow.text import to_text
from agentgym_flow.errors import BadSetting

INLINE = Drafting()
TWO_PHASE = Drafting(prompting="two_phase")
ADD_CUSTOM = "<action>add</action><operator>Custom</operator>"
ADD_BOTH = "<action>add</action><structure>parallel</structure><operators>Custom,Programmer</operators>"


def turns(drafting: Drafting, *texts: str, draft: CanvasDraft | None = None) -> list[TurnResult]:
    found = []
    draft = draft or CanvasDraft()
    for text in texts:
        found.append(drafting.turn(text, draft))
        draft = found[-1].draft
    return found


def test_inline_an_operator_takes_one_turn() -> None:
    """Spec 1.2: upstream ignores an inline prompt, so that one operator always takes two."""
    (turn,) = turns(INLINE, f"{ADD_CUSTOM}<prompt>be exact</prompt>")
    assert turn.edited
    assert turn.draft == CanvasDraft(Workflow((op("Custom", "be exact"),)))
    (turn,) = turns(INLINE, ADD_CUSTOM)
    assert turn.draft.workflow.nodes == ops("Custom")
    assert turn.draft.asked is None


def test_in_two_phases_an_operator_takes_two_turns_and_a_structure_one_more_than_it_has_operators() -> None:
    one, two = turns(TWO_PHASE, ADD_CUSTOM, "be exact")
    assert (one.accepted, one.edited, one.draft.workflow.nodes, one.draft.asked) == (True, False, (), op("Custom"))
    assert (two.accepted, two.edited, two.draft) == (True, True, CanvasDraft(Workflow((op("Custom", "be exact"),))))
    many = turns(TWO_PHASE, ADD_BOTH, "reason in words", "count with a program")
    assert [turn.edited for turn in many] == [False, False, True]
    assert [turn.draft.asked for turn in many] == [op("Custom"), op("Programmer"), None]
    assert to_text(many[-1].draft.workflow.nodes) == '[Custom "reason in words", Programmer "count with a program"]'


def test_the_published_example_takes_the_published_rounds() -> None:
    drafting = Drafting(PUBLISHED, PUBLISHED_FINISH, "two_phase")
    found = turns(
        drafting,
        "<action>add</action><operator>Programmer</operator>",
        "compute exactly, return the value",
        "<action>finish</action>",
        "<action>add</action><structure>conditional</structure><condition>Verify</condition><true>Revise</true>"
        "<false>done</false>",
        "recompute independently",
        "repair using the checker's notes",
        "<action>add</action><structure>parallel</structure><operators>Custom,ScEnsemble</operators>",
        "<action>add</action><operator>Review</operator>",
        "look for mistakes",
        "<action>add</action><operator>Format</operator>",
        "only the number",
        "<action>finish</action>",
    )
    assert [turn.accepted for turn in found] == [n not in (2, 6) for n in range(12)]
    assert [turn.edited for turn in found] == [n in (1, 5, 8, 10) for n in range(12)]
    assert [turn.finished for turn in found] == [n == 11 for n in range(12)]
    text = to_text(found[-1].draft.workflow.nodes, PUBLISHED, instructions=False)
    assert text == "Programmer -> Verify ? Revise : done -> Review -> Format"


def test_prompts_that_come_along_are_not_asked_for() -> None:
    one, two = turns(TWO_PHASE, f"{ADD_BOTH}<prompt></prompt><prompt>by program</prompt>", "by words")
    assert one.draft.asked == op("Custom")
    assert to_text(two.draft.workflow.nodes) == '[Custom "by words", Programmer "by program"]'
    (turn,) = turns(TWO_PHASE, f"{ADD_CUSTOM}<prompt>be exact</prompt>")
    assert turn.edited


def test_modify_waits_for_its_prompt_too() -> None:
    start = CanvasDraft(Workflow((op("Custom", "be exact"), par("Custom", "Plan"))))
    text = "<action>modify</action><target>node_2_p1</target><operator>Programmer</operator>"
    one, two = turns(TWO_PHASE, text, "write a loop", draft=start)
    assert one.draft.workflow == start.workflow
    assert two.draft.workflow.place("node_2_p1").node == op("Programmer", "write a loop")


@pytest.mark.parametrize(
    "text",
    [
        "<action>add</action><operator>Verifier</operator>",
        "<action>add</action><operator>Custom</operator><position>7</position>",
        "<action>modify</action><target>node_1</target><operator>Custom</operator>",
        "<action>modify</action><target>node_5</target><operator>Custom</operator>",
        "<action>modify</action><target>node_1_p0</target><operator>Aggregate</operator>",
    ],
)
def test_nothing_waits_that_could_not_be_done(text: str) -> None:
    """Spec 5, row 1: upstream lets an unknown operator, or another operator for a structure, wait for ever."""
    start = CanvasDraft(Workflow((par("Custom", "Plan"),)))
    (turn,) = turns(TWO_PHASE, text, draft=start)
    assert turn.reason
    assert turn.draft is start


def test_what_does_not_fit_any_more_is_refused_with_its_last_prompt_at_the_latest() -> None:
    drafting = Drafting(Language(most_operators=1), prompting="two_phase")
    start = CanvasDraft(Workflow(ops("Plan")))
    assert drafting.turn(ADD_CUSTOM, start).draft is start


# -------------------------------------------------------------------- leaving
def test_too_short_a_prompt_is_asked_for_again() -> None:
    one, two, three = turns(TWO_PHASE, ADD_CUSTOM, " hm ", "x" * 4001)
    assert two.draft is three.draft is one.draft
    assert two.reason == "A prompt has 5 to 4000 characters. Write the prompt for Custom."


def test_another_action_drops_the_one_that_waits() -> None:
    """Spec 1.2: upstream takes every text for the prompt while it waits, `finish` too."""
    start = CanvasDraft(Workflow((op("Plan", "in steps"),)))
    _, turn = turns(TWO_PHASE, ADD_CUSTOM, "<action>finish</action>", draft=start)
    assert turn.finished
    assert turn.draft == start
    _, turn = turns(TWO_PHASE, ADD_CUSTOM, "<action>add</action><operator>Format</operator>", draft=start)
    assert turn.draft.asked == op("Format")


def test_a_refused_action_leaves_the_one_that_waits() -> None:
    one, two = turns(TWO_PHASE, ADD_CUSTOM, "<action>finish</action>")
    assert two.reason.startswith("The workflow cannot be finished yet")
    assert two.draft is one.draft


_texts = st.sampled_from(
    [ADD_CUSTOM, ADD_BOTH, "be exact", "hm", "", "<action>delete</action><target>node_1</target>", "<think>so",
     "<action>modify</action><target>node_1</target><operator>Format</operator>", "<action>finish</action>",
     "<action>add</action><operator>Nothing</operator>", "<action>modify</action><target>node_9</target>"]
)  # fmt: skip


@given(st.lists(_texts, max_size=12), st.sampled_from(["inline", "two_phase"]))
def test_from_every_state_the_workflow_can_be_finished(texts: list[str], prompting) -> None:
    drafting = Drafting(Language(most_operators=6), FinishRules(checker=True), prompting)
    draft = CanvasDraft()
    for text in texts:
        turn = drafting.turn(text, draft)
        assert turn.accepted or turn.draft is draft
        draft = turn.draft
    exits = ["<action>delete</action><target>node_1</target>"] * len(draft.workflow.nodes)
    for node in drafting.finish.simplest(drafting.language):
        exits += [write_action(Add(node)), *(["do it well"] if prompting == "two_phase" else [])]
    assert turns(drafting, *exits, "<action>finish</action>", draft=draft)[-1].finished


# -------------------------------------------------------------------- prompts in texts
@pytest.mark.parametrize(
    ("text", "prompt", "repairs"),
    [
        ("  be exact \n", "be exact", ""),
        ("a < b and [c], in <b>bold</b>", "a < b and [c], in <b>bold</b>", ""),
        ("\n<prompt> be exact</prompt> ", "be exact", ""),
        ("<prompt>reason in <think> tags, <answer>then</answer></prompt>",
         "reason in <think> tags, <answer>then</answer>", ""),
        ("Here: <Prompt>be exact</PROMPT> thanks", "be exact", "tag_case text_around"),
        ("<action>set_prompt</action><prompt>be exact</prompt>", "be exact", "stray_tag text_around"),
        ("<prompt>be exact</prompt><prompt>be quick</prompt>", "be exact", "prompts_left"),
        ("<prompt>be exact", "be exact", "unclosed_tag"),
        ("</prompt>be exact<prompt>twice", "twice", "stray_tag unclosed_tag text_around"),
        ("be exact</prompt>", "be exact", "stray_tag"),
        ("<think>hm <think>hm</think>be exact", "be exact", "thinking"),
        ("<think>perhaps <prompt>be quick</prompt>?</think><prompt>be exact</prompt>", "be exact", "thinking"),
        ("so <prompt>be quick</prompt></think>be exact", "be exact", "thinking"),
        ("be exact<think>was that", "be exact", "thinking"),
        ("<operator>be exact</operator>", "be exact", "stray_tag"),
        ("<think>hm</think><answer>solve it</answer> trailing", "solve it trailing", "thinking stray_tag"),
        ("<think>nothing else", "", "thinking"),
    ],
)  # fmt: skip
def test_the_prompt_in_a_text_is_found_and_repairs_noted(text: str, prompt: str, repairs: str) -> None:
    """What is overlooked is a repair, and a strict reading overlooks nothing: the action goes on waiting."""
    found, overlooked = prompt_in(text)
    assert (found, " ".join(repair.kind for repair in overlooked)) == (prompt, repairs)
    one, two = turns(TWO_PHASE, ADD_CUSTOM, text)
    if prompt:
        assert two.draft.workflow.nodes == (op("Custom", prompt),)
        assert two.repairs == overlooked
    strict = Drafting(prompting="two_phase", strict=True).turn(text, one.draft)
    if repairs:
        assert strict.draft is one.draft
        assert strict.reason.startswith(f"This is not a prompt alone: {repairs.replace(' ', ', ')}. Write")
        assert "for Custom" in strict.reason
    else:
        assert strict == two


def test_repairs_of_prompts_say_what_was_there() -> None:
    _, repairs = prompt_in("Sure!\n<Prompt>be exact</prompt><answer>42</answer>")
    assert repairs == (("tag_case", "Prompt"), ("stray_tag", "answer"), ("text_around", r"Sure!\n42"))


@pytest.mark.heavy
@pytest.mark.parametrize(
    "text",
    [
        "<prompt>" * 120_000, "</think>" * 120_000, "<think>" * 140_000, "<" * 10**6, "x" * 10**6,
        "<think></think>a" * 60_000, "<prompt></prompt>" * 60_000, "</prompt>abc" * 80_000,
    ],
)  # fmt: skip
def test_a_prompt_of_a_million_characters_is_one_turn(text: str) -> None:
    one, two = turns(TWO_PHASE, ADD_CUSTOM, text)
    assert two.draft is one.draft
    assert two.reason


# -------------------------------------------------------------------- identity and settings
def test_drafts_differ_in_what_waits() -> None:
    nodes = Workflow((op("Plan", "in steps"),))
    texts = ["", ADD_CUSTOM, f"{ADD_CUSTOM}<position>0</position>", ADD_BOTH, f"{ADD_BOTH}<prompt>first</prompt>",
             "<action>modify</action><target>node_1</target><operator>Custom</operator>"]  # fmt: skip
    drafts = [TWO_PHASE.turn(text, CanvasDraft(nodes)).draft for text in texts]
    assert len({draft.identity for draft in drafts}) == len(drafts)
    assert drafts[0].identity == nodes.identity


def test_drafts_and_turns_copy_and_pickle() -> None:
    for turn in turns(TWO_PHASE, ADD_BOTH, "by words", "by program", ADD_CUSTOM, "<action>finish</action>"):
        turn.draft.workflow.places, turn.draft.identity  # noqa: B018 (what is computed once travels, too)
        assert copy.deepcopy(turn) == pickle.loads(pickle.dumps(turn)) == turn
        assert pickle.loads(pickle.dumps(turn)).draft.identity == turn.draft.identity


def test_rules_that_cannot_be_met_are_refused_at_the_start() -> None:
    with pytest.raises(BadSetting, match="has none of them"):
        Drafting(Language(operators=("Plan",)), FinishRules(checker=True))


def test_strict_turns_refuse_what_needs_repair() -> None:
    text = "[action]add[/action][operator]Plan[/operator]"
    assert not Drafting(strict=True).turn(text, CanvasDraft()).accepted
    turn = INLINE.turn(text, CanvasDraft())
    assert [repair.kind for repair in turn.repairs] == ["brackets"]
    assert INLINE.turn({"action": "add", "operator": "Plan"}, CanvasDraft()).draft == turn.draft


def test_a_conditional_asks_for_its_prompts_in_the_order_in_which_it_is_written() -> None:
    text = write_action(Add(Conditional(op("Verify"), ops("Format"), ops("Revise"))))
    found = turns(TWO_PHASE, text, "check it", "shorten it", "repair it")
    both = Conditional(op("Verify", "check it"), (op("Format", "shorten it"),), (op("Revise", "repair it"),))
    assert [turn.draft.asked for turn in found] == [*ops("Verify", "Format", "Revise"), None]
    assert found[-1].draft.workflow.nodes == (both,)

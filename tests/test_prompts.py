"""Prompt templates: what is shown, and that no completion can break the parser."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow.episodes import Episode, PolicyOutput, Turn
from agentgym_flow.errors import BadSetting, UnknownEnvironment, UnknownOption, UnknownTemplate
from agentgym_flow.prompts import (
    CLOSE_THOUGHT,
    ChoiceTemplate,
    ConversationTemplate,
    TextTemplate,
    WordTemplate,
    history_window,
    template_for,
    templates_of,
)
from agentgym_flow.prompts.templates import tagged_action


def turn(number: int, *, valid: bool = True) -> Turn:
    return Turn(
        observation=f"room {number}",
        state_key=str(number),
        output=PolicyOutput(f"go {number}"),
        reward=0.0,
        next_observation=f"room {number + 1}",
        next_state_key=str(number + 1),
        terminated=False,
        truncated=False,
        action_valid=valid,
        success=False,
        score=0.0,
    )


def policy_input(turns: list[Turn], **info: Any) -> Any:
    episode = Episode("e", {}, {}, "train", 0, "e:0", "find the key", 0, 0, 9, "room 0", "0", turns=turns)
    shown = {"goal": "find the key", "admissible_actions": [], "action_templates": [], **info}
    return SimpleNamespace(
        observation=f"room {len(turns)}",
        info=shown,
        episode=episode,
        candidates=lambda: [*shown["admissible_actions"], "say[key]"],
    )


@pytest.mark.parametrize(
    ("completion", "action"),
    [
        ("<action>up</action>", "up"),
        ("<think>left or up?</think>\n<action> up </action> done", "up"),
        ("<action>up</action><action>down</action>", "down"),
        ("<action>up</action> or <action>down", "up"),
        ("</action><action>up</action>", "up"),
        ("<action>up</action></action>", "up"),
        ("<action><action>up</action>", "up"),
        ("<action>go to\ndesk 1</action>", "go to\ndesk 1"),
        ("<action></action>", ""),
    ],
)
def test_the_action_is_what_stands_between_the_last_tags(completion: str, action: str) -> None:
    assert tagged_action(completion, tags_required=True) == action
    assert tagged_action(completion) == action


@pytest.mark.parametrize(
    "completion", ["up", " up\n", "left, then up", "<action>up", "up</action>", "<Action>up</Action>"]
)
def test_without_both_tags_nothing_is_guessed(completion: str) -> None:
    assert tagged_action(completion, tags_required=True) == ""
    assert tagged_action(completion) == completion.strip()


@given(st.text())
def test_parsing_never_raises(completion: str) -> None:
    here = policy_input([], admissible_actions=["wait"])
    for template in (
        TextTemplate(),
        TextTemplate(tags_required=False),
        ChoiceTemplate(),
        ChoiceTemplate(tags_required=False),
    ):
        assert isinstance(template.parse_action(completion, here), str)
        assert isinstance(template.parse_action(f"<action>{completion}</action>", here), str)


@pytest.mark.parametrize("env", ["Sokoban", "ALFWorld", "WebShop", "Search"])
@pytest.mark.parametrize("required", [True, False])
@pytest.mark.parametrize("think", [True, False])
@pytest.mark.parametrize("name", ["text", "choice"])
def test_a_prompt_asks_for_the_answers_that_demonstrations_have(
    env: str, required: bool, think: bool, name: str
) -> None:
    template = template_for(f"agentgym_flow/{env}-v0", name, {"tags_required": required, "think": think})
    assert isinstance(template, TextTemplate)
    action = "search[a name]"
    here = policy_input([], goal="a goal", admissible_actions=[action], action_templates=[])
    answer = template.format_action(action, here)
    asked = template._how_to_answer()
    tag = "search" if env == "Search" and name == "text" else "action"
    assert (answer is not None and answer.startswith(f"<{tag}>")) == (f"<{tag}>" in asked)
    assert (CLOSE_THOUGHT in asked) is think
    if not (think and tag == "action" and not required):
        assert answer is not None
        assert any(closing in f"{answer}\n" for closing in template.closings)


@pytest.mark.parametrize("env", ["Sokoban", "ALFWorld", "WebShop", "Search"])
def test_actions_and_turns_are_shown_only_where_wanted(env: str) -> None:
    here = policy_input([], goal="a goal", admissible_actions=["look around"], action_templates=["search[{query}]"])
    shown, hidden = (
        template_for(f"agentgym_flow/{env}-v0", "text", {"lists_actions": wanted, "numbers_turns": wanted}).prompt(here)
        for wanted in (True, False)
    )
    assert "1 of at most 9" in shown
    assert "of at most" not in hidden
    assert ("look around" in shown) == (env != "Search")
    assert "look around" not in hidden


def test_an_answer_is_read_back_as_the_action() -> None:
    here = policy_input([], admissible_actions=["go 1", "wait"])
    for required, written in ((True, "<action>wait</action>"), (False, "wait")):
        template = TextTemplate(tags_required=required)
        assert template.format_action("wait", here) == written
        assert template.parse_action(written, here) == "wait"
        assert template.format_action(" wait", here) is None
    for required, written in ((True, "<action>2</action>"), (False, "2")):
        chooser = ChoiceTemplate(tags_required=required)
        assert chooser.format_action("wait", here) == written
        assert chooser.parse_action(written, here) == "wait"
        assert chooser.format_action("sleep", here) is None


def test_a_choice_is_a_number_of_the_list_and_nothing_else() -> None:
    here = policy_input([], admissible_actions=["go 1", "wait"])
    read = [
        ChoiceTemplate(tags_required=False).parse_action(text, here) for text in ("1", " 3\n", "<action>2</action>")
    ]
    assert read == ["go 1", "say[key]", "wait"]
    for text in ("0", "4", "-1", "+1", "1.", "1.0", "wait", "", "1 2", "²", "٣", "9" * 5000):
        assert ChoiceTemplate(tags_required=False).parse_action(text, here) == ""
    assert ChoiceTemplate().parse_action("1", here) == ""  # tags are required


def test_a_choice_is_shown_with_numbers_and_rules() -> None:
    here = policy_input([turn(0)], admissible_actions=["go 1", "wait"], action_templates=["say[{text}]"])
    chooser, offered = ChoiceTemplate(rules="RULES"), "Actions you can choose from:\n1. go 1\n2. wait\n3. say[key]"
    assert chooser.name == "choice"
    assert chooser.prompt(here) == (
        "RULES\n\n"
        "Your task: find the key\n\n"
        "What happened lately:\n\nObservation 1:\nroom 0\nAction 1: go 0\n\n"
        f"Turn 2 of at most 9. The observation now:\nroom 1\n\n{offered}\n\n"
        "First reason about the situation inside <think> and </think>. "
        "Then give exactly one number of an action inside <action> and </action>."
    )
    assert chooser.follow_up(here) == f"Turn 2 of at most 9. The observation now:\nroom 1\n\n{offered}"


def test_a_follow_up_says_what_came_of_the_action_and_no_more() -> None:
    template = TextTemplate(rules="The rules.")
    told = template.follow_up(policy_input([turn(0)], admissible_actions=["go 1", "wait"]))
    assert told == "Turn 2 of at most 9. The observation now:\nroom 1\n\nActions you can take now: go 1, wait"
    assert template.follow_up(policy_input([turn(0, valid=False)])).startswith(
        "Your last action was not accepted.\n\nTurn 2"
    )
    assert isinstance(template, ConversationTemplate)
    assert not isinstance(template_for("agentgym_flow/Sokoban-v0", "compact"), ConversationTemplate)


def test_history_is_numbered_from_the_start_of_the_episode() -> None:
    turns = [turn(n) for n in range(4)] + [turn(4, valid=False)]
    assert history_window(turns, 2) == (
        "Observation 4:\nroom 3\nAction 4: go 3\n\nObservation 5:\nroom 4\nAction 5: go 4 (not accepted)"
    )
    assert history_window(turns, 0) == ""
    assert history_window([], 2) == ""
    assert history_window(turns, 99).startswith("Observation 1:")


def test_the_text_prompt_says_everything_once() -> None:
    prompt = TextTemplate(rules="RULES", history=1).prompt(
        policy_input([turn(0), turn(1)], admissible_actions=["open door", "wait"], action_templates=["say[{text}]"])
    )
    assert prompt == (
        "RULES\n\n"
        "Your task: find the key\n\n"
        "What happened lately:\n\nObservation 2:\nroom 1\nAction 2: go 1\n\n"
        "Turn 3 of at most 9. The observation now:\nroom 2\n\n"
        "Actions you can take now: open door, wait\nActions to fill in: say[{text}]\n\n"
        "First reason about the situation inside <think> and </think>. "
        "Then give exactly one action inside <action> and </action>."
    )


def test_the_first_prompt_has_no_history_and_thinking_can_be_left_out() -> None:
    prompt = TextTemplate(think=False).prompt(policy_input([]))
    assert "lately" not in prompt
    assert "<think>" not in prompt
    assert "Actions" not in prompt
    assert TextTemplate().messages(policy_input([])) == [
        {"role": "user", "content": TextTemplate().prompt(policy_input([]))}
    ]


def test_the_actions_of_the_moment_can_be_left_out() -> None:
    shown = policy_input([], admissible_actions=["up", "down"], action_templates=["say[...]"])
    for listed in (True, False):
        template = TextTemplate(lists_actions=listed)
        for text in (template.prompt(shown), template.follow_up(policy_input([turn(1)], **shown.info))):
            assert ("up, down" in text) == ("say[...]" in text) == listed
            assert "room" in text
        assert template.format_action("up", shown) == "<action>up</action>"


def test_turns_without_numbers_give_equal_situations_equal_prompts() -> None:
    template = TextTemplate(numbers_turns=False, history=0)
    first, later = policy_input([]), policy_input([turn(1)])
    first.observation = later.observation
    assert template.prompt(first) == template.prompt(later)
    assert "Turn" not in template.prompt(first)
    assert template.follow_up(later).startswith(later.observation)


def test_the_cells_of_a_sokoban_board_can_be_named() -> None:
    template = template_for("agentgym_flow/Sokoban-v0", "text", {"names_cells": True, "history": 0})
    shown = policy_input([])
    shown.observation = "# # # #\n# S X #\n# _ √ #\n# # # #"
    assert f"{shown.observation}\nYou: 1,1. Boxes: 1,2 2,2. Targets: 1,1 2,2." in template.prompt(shown)


def test_fields_of_a_template_can_be_set() -> None:
    sokoban = "agentgym_flow/Sokoban-v0"
    template = template_for(sokoban, "text", {"rules": "Push.", "think": False})
    assert (template.rules, template.think) == ("Push.", False)
    assert template_for(sokoban, "text", {}) == template_for(sokoban, "text") != template
    with pytest.raises(UnknownOption, match=r"'rule'. Did you mean 'rules'"):
        template_for(sokoban, "text", {"rule": "Push."})
    with pytest.raises(UnknownOption, match="'compact' has no settings"):
        template_for(sokoban, "compact", {"rules": "Push."})
    with pytest.raises(BadSetting, match="setting think of prompt template 'text' must be of type bool, got 'no'"):
        template_for(sokoban, "text", {"think": "no"})
    with pytest.raises(BadSetting, match="history"):
        template_for(sokoban, "text", {"history": -1})


def test_a_negative_history_is_refused() -> None:
    with pytest.raises(BadSetting, match="history"):
        TextTemplate(history=-1)


def test_templates_are_found_by_environment_and_name() -> None:
    assert set(templates_of("agentgym_flow/Sokoban-v0")) == {"text", "choice", "compact", "compact-turned"}
    assert "Sokoban" in template_for("agentgym_flow/Sokoban-v0").prompt(policy_input([]))
    # An environment without prompt templates of its own has the generic one.
    assert templates_of("CartPole-v1") == {
        "text": TextTemplate(),
        "choice": ChoiceTemplate(),
        "compact": WordTemplate(),
    }


def test_unknown_names_propose_the_closest() -> None:
    with pytest.raises(UnknownTemplate, match="'compact'"):
        template_for("agentgym_flow/Sokoban-v0", "kompakt")
    with pytest.raises(UnknownEnvironment, match="Sokoban-v0"):
        template_for("agentgym_flow/Sokobann-v0")

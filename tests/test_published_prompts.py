"""Published prompts: exactly what the originals write and read, from their own files; and strangers' files."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow.envs import make_text_env
from agentgym_flow.envs.alfworld.published_prompt import ALFWorldPrompt, ReActPrompt
from agentgym_flow.envs.search.published_prompt import SearchR1Prompt, VerlAgentSearchPrompt, passages
from agentgym_flow.envs.sokoban.published_prompt import SokobanPrompt
from agentgym_flow.envs.webshop.published_prompt import WebShopPrompt
from agentgym_flow.episodes import Episode, PolicyOutput, Turn
from agentgym_flow.errors import BadPromptFile, BadSetting, UnknownTemplate
from agentgym_flow.play import EpisodeSpec, rollout
from agentgym_flow.policies import PolicyInput
from agentgym_flow.prompts import (
    ConversationTemplate,
    PromptFile,
    PromptTemplate,
    TextTemplate,
    TranscriptTemplate,
    template_for,
    valid_turns,
)
from agentgym_flow.prompts import files as prompt_files
from agentgym_flow.rewards.credit.comparison import penalise_invalid

ENVS: dict[str, dict[str, Any]] = {"ALFWorld": {}, "Sokoban": {"min_pushes": 4}, "WebShop": {}, "Search": {}}
START = EpisodeSpec(11, 4, 0)


def env_id(name: str) -> str:
    return f"agentgym_flow/{name}-v0"


@pytest.fixture
def published(sample_data: Path) -> Path:
    return sample_data / "prompts"


def constants(file: Path) -> dict[str, str]:
    """The templates of an upstream module, read independently of the package."""
    tree = ast.parse(file.read_text("utf-8"))
    return {n.targets[0].id: n.value.value for n in tree.body if isinstance(n, ast.Assign)}  # type: ignore[attr-defined]


Say = Callable[[str], str]


def played(name: str, look: Callable[[PolicyInput], None], completion: Say | None = None, **settings: Any) -> Episode:
    """An episode of the expert, with one invalid action on the way, seen turn by turn."""

    def act(inputs: list[PolicyInput]) -> list[PolicyOutput]:
        for policy_input in inputs:
            look(policy_input)
        actions = ["dance" if len(v.episode.turns) == 1 else v.env.expert_action() or "look" for v in inputs]
        return [PolicyOutput(action, None if completion is None else completion(action)) for action in actions]

    make_env = partial(make_text_env, env_id(name), **{"split": "valid", **ENVS[name], **settings})
    [episode] = rollout(SimpleNamespace(name="stumbling", act=act), make_env, [START])
    assert len(episode.turns) > 2
    return episode


# ---------------------------------------------------------------- verl-agent: its templates formatted independently
def history(turns: list[tuple[str, str]]) -> dict[str, Any]:
    first = max(0, len(turns) - 2)
    lines = []
    for i in range(first, len(turns)):
        seen, did = turns[i]
        lines.append(f"[Observation {i + 1}: '{seen}', Action {i + 1}: '{did}']")
    return {
        "step_count": len(turns),
        "history_length": len(lines),
        "action_history": "\n".join(lines),
        "current_step": len(turns) + 1,
    }


def alfworld(policy_input: PolicyInput, text: Mapping[str, str]) -> str:
    commands = "\n ".join(["'" + c + "'" for c in policy_input.info["admissible_actions"] if c != "help"])
    now = {"current_observation": policy_input.observation, "admissible_actions": commands}
    turns = [(t.observation, t.action) for t in policy_input.episode.turns]
    if not turns:
        return text["ALFWORLD_TEMPLATE_NO_HIS"].format(**now)
    first = policy_input.episode.observation
    task = first[first.find("Your task is to: ") + len("Your task is to: ") :].strip()
    return text["ALFWORLD_TEMPLATE"].format(task_description=task, **now, **history(turns))


def sokoban(policy_input: PolicyInput, text: Mapping[str, str]) -> str:
    def board(rows: str) -> str:
        return "\n".join(re.sub(r"(\S) ?", " \\1 \t", row) for row in rows.splitlines())

    turns = [
        (board(t.observation), "Still" if t.action == "dance" else t.action.title()) for t in policy_input.episode.turns
    ]
    if not turns:
        return text["SOKOBAN_TEMPLATE_NO_HIS"].format(current_observation=board(policy_input.observation))
    return text["SOKOBAN_TEMPLATE"].format(current_observation=board(policy_input.observation), **history(turns))


def webshop(policy_input: PolicyInput, text: Mapping[str, str]) -> str:
    def page(observation: str) -> str:
        return " [SEP] ".join(
            "'" + p + "'" for p in observation.split(f"{policy_input.info['goal']} [SEP] ")[1].split(" [SEP] ")
        )

    searches = ["search[<your query>]", "click[search]"] if policy_input.observation.startswith("WebShop") else []
    now = {
        "task_description": policy_input.info["goal"],
        "current_observation": page(policy_input.observation),
        "available_actions": "\n".join("'" + a + "'," for a in [*searches, *policy_input.info["admissible_actions"]]),
    }
    turns = [(page(t.observation), t.action) for t in policy_input.episode.turns]
    plain = text["WEBSHOP_TEMPLATE_NO_HIS"].format(**now)
    full = text["WEBSHOP_TEMPLATE"].format(**now, **history(turns))
    return full if turns and len(full) <= 13000 else plain


def search(policy_input: PolicyInput, text: Mapping[str, str]) -> str:
    question = policy_input.info["goal"]
    if not policy_input.episode.turns:
        return text["SEARCH_TEMPLATE_NO_HIS"].format(task_description=question)
    steps = []
    for n, turn in enumerate(policy_input.episode.turns, 1):
        shown, said = "", ""
        if turn.action != "dance":
            said = "<search>" + turn.action[len("search[") : -1] + "</search>"
            docs = re.sub(
                r"^Doc (\d+)\(Title: (.*?)\) (?=[A-Z\"])", r'Doc \1: "\2"\n', turn.next_observation, flags=re.M
            )
            shown = "<information>" + json.dumps({"result": docs + "\n"}) + "</information>"
        steps.append(f"Step {n}:{said} {shown}\n")
    full = {"task_description": question, "step_count": len(steps), "memory_context": "\n".join(steps[-4:])}
    return text["SEARCH_TEMPLATE"].format(**full)


FORMATTED = {"ALFWorld": alfworld, "Sokoban": sokoban, "WebShop": webshop, "Search": search}


OFFICIAL = {"ALFWorld": "alfworld", "WebShop": "webshop"}


@pytest.mark.parametrize(("name", "data"), [*((name, None) for name in ENVS), *OFFICIAL.items()])
def test_verl_agents_prompts_are_those_of_its_templates(name: str, data: str | None, published: Path) -> None:
    file = published / "verl_agent" / f"{name.lower()}.py.txt"
    template, text = template_for(env_id(name), f"verl_agent:{file}"), constants(file)
    prompts: list[str] = []

    def look(policy_input: PolicyInput) -> None:
        prompts.append(template.prompt(policy_input))
        assert prompts[-1] == FORMATTED[name](policy_input, text)
        assert template.messages(policy_input) == [{"role": "user", "content": prompts[-1]}]

    played(name, look, **({} if data is None else {"data": str(published.parent / data)}))
    assert len(set(prompts)) > 2
    assert template_for(env_id(name), f"verl_agent:{file.parent}").name == template.name  # the folder does as well
    assert re.fullmatch("verl_agent@[0-9a-f]{12}", template.name)
    assert not isinstance(template, ConversationTemplate)


HERE: Any = SimpleNamespace(info={}, episode=SimpleNamespace(turns=[]))
LONG = "I would like to go to the desk 1 because it is there, so GO TO Desk 1"


@pytest.mark.parametrize(
    ("completion", "alfworld", "webshop", "sokoban", "well_formed"),
    [
        ("<think>so</think><action>Go to Desk 1</action>", "go to desk 1", "go to desk 1", "still", True),
        ("<action>look</action>", "look", "look", "still", False),  # without a thought: played all the same
        ("<Think>so</Think><ACTION> Up </ACTION>", "up", "up", "up", False),
        ("</think><think><action>push the box down, not up</action>", *["push the box down, not up"] * 2, "up", True),
        ("<think>so</think><action>click[沙发]</action>", "click[沙发]", "click[沙发]", "still", False),
        ("<think>so</think></action><action>left</action>", "", "", "still", True),
        ("<think>so</think><action>a</action><action>left</action>", "a", "a", "still", True),
        ("<think>one inside <action> and </action></think><action>left</action>", "and", "and", "still", True),
        ("<think>not <action>up</action>, but", "up", "up", "up", False),
        (LONG, LONG.lower()[-30:], LONG.lower()[-20:], "still", False),
        ("up", "up", "up", "still", False),
        ("", "", "", "still", False),
    ],
)
def test_completions_are_read_as_verl_agents_parsers_read_them(
    completion: str, alfworld: str, webshop: str, sokoban: str, well_formed: bool, published: Path
) -> None:
    given: dict[str, Any] = {n: template_for(env_id(n), f"verl_agent:{published / 'verl_agent'}") for n in ENVS}
    parsed = [given[name].parse_action(completion, HERE) for name in ("ALFWorld", "WebShop", "Sokoban")]
    assert parsed == [alfworld, webshop, sokoban]
    assert given["ALFWorld"].well_formed(completion) == given["WebShop"].well_formed(completion) == well_formed
    # Sokoban's own: the word must be there, and a Chinese character does not matter.
    assert given["Sokoban"].well_formed(completion) == (well_formed and sokoban != "still")


def test_malformed_answers_pay_instead_of_refused_actions(published: Path) -> None:
    template = of(published, "ALFWorld", "verl_agent:verl_agent")
    said = [
        "<think>so</think><action>dance</action>",
        "<action>look</action>",
        None,
        "<think>a</think><action>b</action>",
    ]
    turns = [
        Turn("", "", PolicyOutput("look", one), 0.0, "", "", False, False, one != said[0], False, 0.0) for one in said
    ]
    batch: Any = [[SimpleNamespace(turns=turns)]]
    assert penalise_invalid(batch, [[[0.0] * 4]], 0.5, valid_turns(template)) == [[[0.0, -0.5, -0.5, 0.0]]]
    assert penalise_invalid(batch, [[[0.0] * 4]], 0.5, valid_turns(TextTemplate())) == [[[-0.5, 0.0, 0.0, 0.0]]]


@pytest.mark.parametrize(
    ("completion", "verl_agent", "search_r1", "well_formed"),
    [
        ("<think>so</think><search> Ada </search>", "search[Ada]", "search[Ada]", True),
        ("<answer>\nParis\n</answer> done", "answer[Paris]", "answer[Paris]", True),
        ("<SEARCH>Ada</SEARCH>", "search[Ada]", "", True),
        ("<search>a</search><information>x</information><answer>b</answer>", "search[a]", "search[a]", False),
        # An answer before a search: one parser reads searches first, the other whatever comes first.
        ("<answer>b</answer> or <search>a</search>", "search[a]", "answer[b]", False),
        ("<search>a</search><search>b</search>", "search[a]", "search[a]", False),
        ("<search>a <answer>b</answer></search>", "answer[b]", "search[a <answer>b</answer>]", False),
        ("<search>沙发</search>", "search[沙发]", "search[沙发]", False),
        # The published parsers read thoughts like everything else.
        ("<think>no <search>query</search></think><search>a</search>", "search[query]", "search[query]", False),
        ("<think>I can give <answer>Paris</answer> only when sure.</think>", "answer[Paris]", "answer[Paris]", True),
        ("<answer>Par", "", "", False),
        ("no block", "", "", False),
    ],
)
def test_searches_are_read_as_the_published_parsers_read_them(
    completion: str, verl_agent: str, search_r1: str, well_formed: bool, published: Path
) -> None:
    one: Any = template_for(env_id("Search"), f"verl_agent:{published / 'verl_agent'}")
    assert (one.parse_action(completion, HERE), one.well_formed(completion)) == (verl_agent, well_formed)
    for file in ("nq_search.py.txt", "infer.py.txt"):
        other = template_for(env_id("Search"), f"search_r1:{published / 'search_r1' / file}")
        assert other.parse_action(completion, HERE) == search_r1


PATHS = {
    "ALFWorld": ("verl_agent:verl_agent", "react:react"),
    "Sokoban": ("verl_agent:verl_agent",),
    "WebShop": ("verl_agent:verl_agent",),
    "Search": ("verl_agent:verl_agent", "search_r1:search_r1", "search_r1:search_r1/infer.py.txt"),
}
EVERY = [(env, path) for env, paths in PATHS.items() for path in paths]


def of(published: Path, env: str, path: str) -> PromptTemplate:
    name, _, file = path.partition(":")
    return template_for(env_id(env), f"{name}:{published / file}")


@pytest.mark.parametrize(("env", "path"), EVERY)
def test_the_experts_actions_have_answers_that_are_read_back(env: str, path: str, published: Path) -> None:
    template, asked = of(published, env, path), []

    def look(policy_input: PolicyInput) -> None:
        action = policy_input.env.expert_action()
        asked.append(template.format_action(action, policy_input))
        assert template.parse_action(asked[-1] or "", policy_input) == action
        for action in policy_input.candidates()[:5]:
            answer = template.format_action(action, policy_input)
            assert answer is None or template.parse_action(answer, policy_input) == action

    played(env, look)


@given(st.text(), st.sampled_from(["<search>", "</search>", "<action>", "</action>", "<answer>", "</answer>", "\n"]))
def test_no_completion_raises(text: str, tag: str) -> None:
    for template in (ALFWorldPrompt, ReActPrompt, SokobanPrompt, WebShopPrompt, VerlAgentSearchPrompt, SearchR1Prompt):
        action = template.parse_action(
            template.__new__(template), f"{text}{tag}{text}", HERE
        )  # parsing needs no prompts
        assert isinstance(action, str)


# ---------------------------------------------------------------- Search-R1
def question_of(published: Path) -> str:
    code = (published / "search_r1" / "nq_search.py.txt").read_text("utf-8")
    found = re.search(r'prefix = f"""(.*?)"""', code, re.DOTALL)
    assert found
    return found[1].replace("\\\n", "").replace("\\n", "\n")


def documents(observation: str) -> str:
    return re.sub(r"^(Doc \d+\(Title: )(.*?)(\) (?=[A-Z\"]))", r'\1"\2"\3', observation, flags=re.MULTILINE)


GENERATION = """
def execute_predictions(predictions):
    next_obs = []
    for action in predictions:
        if not action:
            next_obs.append('')
        elif action == 'search':
            next_obs.append(f'\\n\\n<information>{results.pop(0).strip()}</information>\\n\\n')
        else:
            next_obs.append(f'\\nThat was neither. \\
Please do one of the two.\\n')
"""
"""Shaped like Search-R1's generation.py; the words are ours."""


@pytest.mark.parametrize("note", [False, True])
def test_search_r1s_episode_is_one_text(note: bool, published: Path, tmp_path: Path) -> None:
    (tmp_path / "nq_search.py").write_bytes((published / "search_r1" / "nq_search.py.txt").read_bytes())
    if note:
        (tmp_path / "generation.py").write_text(GENERATION)
    template = template_for(env_id("Search"), f"search_r1:{tmp_path}")
    assert isinstance(template, TranscriptTemplate)
    refused = "\nThat was neither. Please do one of the two.\n"
    asked, text, before = question_of(published), "", None

    def look(policy_input: PolicyInput) -> None:
        nonlocal text, before
        question = asked.replace("{question}", policy_input.info["goal"])
        if not policy_input.episode.turns:
            text = question
            assert text.count("<answer>") == 2  # the prompt names the tags and shows an example
        else:
            turn = policy_input.episode.turns[-1]
            came = f"\n\n<information>{documents(turn.next_observation)}</information>\n\n"
            if turn.action == "dance":
                came = refused if note else template.follow_up(policy_input)
            assert template.follow_up(policy_input) == came
            text += said(turn.action).partition("</search>")[0] + (
                "</search>" if "</search>" in said(turn.action) else ""
            )
            text += came
            assert template.messages(policy_input)[1:] == [{"role": "assistant", "content": text[len(question) :]}]
        assert template.messages(policy_input)[0] == {"role": "user", "content": question}
        assert template.prompt(policy_input) == text

    def said(action: str) -> str:
        if action == "dance":
            return "<think>hm</think> I dance"
        return f"<think>hm</think> <{action.partition('[')[0]}> {action.partition('[')[2][:-1]} </search> and more"

    played("Search", look, said)


def test_search_r1s_script_writes_an_empty_line_before_every_answer(published: Path) -> None:
    file = published / "search_r1" / "infer.py.txt"
    template = template_for(env_id("Search"), f"search_r1:{file}")
    assert not isinstance(template, ConversationTemplate)
    step = re.search(r"curr_search_template = '(.*?)'", file.read_text("utf-8"))
    assert step
    text = ""

    def look(policy_input: PolicyInput) -> None:
        nonlocal text
        if not policy_input.episode.turns:
            text = question_of(published).replace("{question}", policy_input.info["goal"])
        else:
            turn = policy_input.episode.turns[-1]
            found = "" if turn.action == "dance" else documents(turn.next_observation) + "\n"
            text += (
                step[1]
                .replace("\\n", "\n")
                .format(output_text=f"<search>{turn.action[7:-1]}</search>", search_results=found)
            )
            text = text.replace("<search></search>", "dance")
        assert template.prompt(policy_input) == text

    played("Search", look)


def test_a_question_gets_its_mark(published: Path) -> None:
    template = of(published, "Search", "search_r1:search_r1")
    policy_input: Any = SimpleNamespace(info={"goal": " who wrote it "}, episode=SimpleNamespace(turns=[]))
    assert template.prompt(policy_input).endswith("Question: who wrote it?\n")


def test_titles_may_have_parentheses() -> None:
    lines = "Doc 1(Title: Bell (1996 album)) It (really) rang.\nDoc 2(Title: ) no title\nDoc 3(Title: odd :() Text"
    titles = [(passage.title, passage.text) for passage in passages(lines)]
    assert titles == [("Bell (1996 album)", "It (really) rang."), ("", "no title"), ("odd :(", "Text")]
    assert passages("Nothing was found.") == []


# ---------------------------------------------------------------- ReAct
NOTEBOOK = {
    "cells": [
        {"cell_type": "markdown", "source": ["prompt = 'none'"]},
        {"cell_type": "code", "source": ["!pip install alfworld\n"]},
        {
            "cell_type": "code",
            "source": ["for v in w:\n", "    prompt = 'Look:\\n' + d[f'{v}_1'] + d[f'{v}_0'] + '\\nDo:\\n'\n"],
        },
        {"cell_type": "code", "source": ["def run(prompt):\n", "    prompt = ''\n"]},
    ]
}
"""Shaped like ReAct's alfworld.ipynb; the words are ours."""


@pytest.mark.parametrize("notebook", [False, True])
def test_reacts_episode_is_one_text(notebook: bool, published: Path, tmp_path: Path) -> None:
    examples = json.loads((published / "react" / "alfworld_3prompts.json").read_text("utf-8"))
    (tmp_path / "alfworld_3prompts.json").write_text(json.dumps(examples), "utf-8")
    if notebook:
        (tmp_path / "alfworld.ipynb").write_text(json.dumps(NOTEBOOK), "utf-8")
    template = template_for(env_id("ALFWorld"), f"react:{tmp_path}")
    assert isinstance(template, TranscriptTemplate)
    text = ""

    def look(policy_input: PolicyInput) -> None:
        nonlocal text
        if not policy_input.episode.turns:
            word = {"pick_two_obj_and_place": "puttwo", "look_at_obj_in_light": "examine"}.get(
                policy_input.info["task_type"]
            )
            word = word or policy_input.info["task_type"].split("_")[1].replace("and", "put")
            shown = examples[f"react_{word}_1"] + examples[f"react_{word}_0"]
            room = "\n".join(policy_input.observation.split("\n\n")[1:])
            assert shown in template.prompt(policy_input)
            assert room.startswith("You are in the middle of a room.")
            text = f"Look:\n{shown}\nDo:\n{room}\n>" if notebook else template.prompt(policy_input)
            assert text.endswith(f"{room}\n>")
        else:
            turn = policy_input.episode.turns[-1]
            told = "OK." if turn.action.startswith("think:") else turn.next_observation
            text += f" {turn.action}\n{told}\n>"
            assert template.follow_up(policy_input) == f"\n{told}\n>"
        assert template.prompt(policy_input) == text

    played("ALFWorld", look)
    assert template.parse_action(" think: so\nOK.\n> look", HERE) == "think: so"
    assert template.parse_action("<think>look</think>go", HERE) == "<think>look</think>go"  # as the original


def test_a_thought_of_react_costs_a_step_and_is_answered_ok(published: Path) -> None:
    template = of(published, "ALFWorld", "react:react")
    assert isinstance(template, ConversationTemplate)
    prompts: list[str] = []

    def act(inputs: list[PolicyInput]) -> list[PolicyOutput]:
        prompts.append(template.prompt(inputs[0]))
        assert len(prompts) == 1 or template.follow_up(inputs[0]) == "OK.\n>"  # the line has ended already
        return [PolicyOutput("think: I look first.", " think: I look first.\n")]

    make_env = partial(make_text_env, env_id("ALFWorld"), split="valid", max_steps=3)
    [episode] = rollout(SimpleNamespace(name="thinker", act=act), make_env, [START])
    assert [turn.next_observation for turn in episode.turns] == ["Nothing happens."] * 3
    assert prompts[2] == prompts[0] + 2 * " think: I look first.\nOK.\n>"


# ---------------------------------------------------------------- files of strangers
def test_what_is_wrong_with_a_name_is_said(published: Path) -> None:
    file = published / "verl_agent" / "alfworld.py.txt"
    with pytest.raises(UnknownTemplate, match=r"as .*verl_agent:PATH|verl_agent:PATH"):
        template_for(env_id("ALFWorld"), "verl_agent")
    with pytest.raises(UnknownTemplate, match="file that you name"):
        template_for(env_id("ALFWorld"), "verl_agent:")
    with pytest.raises(UnknownTemplate, match=r"'react:'.*Known: verl_agent:PATH"):
        template_for(env_id("Sokoban"), f"react:{file}")
    with pytest.raises(UnknownTemplate, match="No prompt template"):
        template_for(env_id("Canvas"), f"verl_agent:{file}")
    with pytest.raises(UnknownTemplate, match="Did you mean 'react:PATH'"):
        template_for(env_id("ALFWorld"), f"reakt:{file}")
    with pytest.raises(BadPromptFile, match="no string SOKOBAN_TEMPLATE_NO_HIS"):
        template_for(env_id("Sokoban"), f"verl_agent:{file}")
    with pytest.raises(BadPromptFile, match="no string prefix"):
        template_for(env_id("Search"), f"search_r1:{file}")
    with pytest.raises(BadPromptFile, match="no string react_put_1"):
        template_for(env_id("ALFWorld"), f"react:{file}")


TWO = 'ALFWORLD_TEMPLATE_NO_HIS = "{current_observation} {admissible_actions}"\nALFWORLD_TEMPLATE = '
PLACES = "{current_observation}{admissible_actions}{task_description}{step_count}{history_length}{action_history}"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "no string ALFWORLD_TEMPLATE_NO_HIS"),
        (TWO + "open('/etc/passwd').read()", "no string ALFWORLD_TEMPLATE,"),
        (TWO + f"'{PLACES}'", "fills in .*current_step"),
        (TWO + f"'{PLACES}{{current_step}}{{more}}'", "more"),
        (TWO + f"'{PLACES}{{current_step:>999999999}}'", "not a plain name"),
        (TWO + f"'{PLACES}{{current_step.__class__}}'", "not a plain name"),
        (TWO + f"'{PLACES}{{current_step!r}}'", "not a plain name"),
        (TWO + f"'{PLACES}{{current_step'", "cannot be filled in"),
        (TWO + "''", "is empty|has the places"),
        (TWO + "'{'\n(", "cannot be parsed as Python .line 3"),
        ("x = " + "(" * 5000, "cannot be parsed as Python"),
        ("x = " + "-" * 60_000 + "1", "cannot be parsed as Python"),
        ("x = '\0'", "cannot be parsed as Python"),
        (b"x = '\xff'", "not text in UTF-8"),
        (b"#" * (prompt_files.LARGEST + 1), "more than 1,048,576 bytes"),
    ],
)
def test_a_file_that_does_not_do_is_refused_with_the_reason(content: str | bytes, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "alfworld.py"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(BadPromptFile, match=problem):
        template_for(env_id("ALFWorld"), f"verl_agent:{file}")


def test_prompts_are_found_in_folders_and_other_files(tmp_path: Path) -> None:
    with pytest.raises(BadPromptFile, match="no file or folder"):
        PromptFile.read(str(tmp_path / "none.py"))
    with pytest.raises(BadPromptFile, match=r"no files that end in \.py"):
        PromptFile.read(str(tmp_path))
    (tmp_path / "a.json").write_text('{"x": "{not a place", "y": ["deep"], "z": ""}')
    assert PromptFile.read(str(tmp_path)).text("x") == "{not a place"
    (tmp_path / "b.py").write_text('x: str = "another"')
    with pytest.raises(BadPromptFile, match="two different strings x"):
        PromptFile.read(str(tmp_path)).text("x")
    (tmp_path / "c.py.txt").write_text('p = "{a}"\nq = f"{a}" + "-" + f"{a.b}"')
    (tmp_path / "d.py").write_text('p = "{a} and {a}"')
    with pytest.raises(BadPromptFile, match="two different strings p"):
        PromptFile.read(str(tmp_path)).template("p", "a")
    template = PromptFile.read(str(tmp_path)).template("q", "a", "...")
    assert (template.places, template.texts) == (("a", "..."), ("", "-", ""))
    (tmp_path / "e.json").write_text("[" * 100_000)
    with pytest.raises(BadPromptFile, match=r"e\.json cannot be parsed as JSON"):
        PromptFile.read(str(tmp_path))
    for number in range(prompt_files.MOST_FILES):
        (tmp_path / f"{number}.py").touch()
    with pytest.raises(BadPromptFile, match="more than 64 files"):
        PromptFile.read(str(tmp_path))


def test_the_cells_of_a_notebook_are_read_or_named(tmp_path: Path) -> None:
    file = tmp_path / "a.ipynb"

    def read(*sources: Any) -> PromptFile:
        file.write_text(json.dumps({"cells": [{"cell_type": "code", "source": source} for source in sources]}))
        return PromptFile.read(str(file))

    said = "x = '''What?\n!important\n%s'''"
    commands = ["!ls\n", "%matplotlib inline\n", "if True:\n", "    !pwd\n", "gym?\n", said]
    assert read("%%bash\nx=1 && y", commands).text("x") == "What?\n!important\n%s"
    assert read(said).text("x") == "What?\n!important\n%s"  # one string instead of lines
    for damaged in ("x = (", ["!ls\n", "x = 'cut"], ["!ls\n"] * 100):
        with pytest.raises(BadPromptFile, match=r"a\.ipynb: cell 2 cannot be parsed|a\.ipynb cannot be parsed as JSON"):
            read("x = 'y'", damaged)
    with pytest.raises(BadPromptFile, match="cell 1 is not text"):
        read(None)


def test_nothing_of_a_file_is_run(tmp_path: Path) -> None:
    file = tmp_path / "evil.py"
    file.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nimport nowhere\nx = 'y'")
    assert PromptFile.read(str(file)).text("x") == "y"
    assert not (tmp_path / "ran").exists()


def test_the_name_tells_other_prompts_apart(tmp_path: Path) -> None:
    names = set()
    for number, text in enumerate([PLACES, PLACES + ".", PLACES]):
        file = tmp_path / f"{number}.py"
        file.write_text(f"{TWO}'{text}{{current_step}}'\nunrelated = '{number}'")
        names.add(template_for(env_id("ALFWorld"), f"verl_agent:{file}").name)
    assert len(names) == 2


def test_webshops_prompt_needs_its_own_pages(published: Path) -> None:
    template = of(published, "WebShop", "verl_agent:verl_agent")
    policy_input: Any = SimpleNamespace(
        episode=SimpleNamespace(observation="Instruction:\nbuy", turns=[]), observation="", info={}
    )
    with pytest.raises(BadSetting, match="observation_mode='text'"):
        template.prompt(policy_input)

"""The weaknesses of the published code (specification, section 5), and for each the tests that it would fail.

| row | weakness | tests |
|---|---|---|
| 1 | what pends for ever | test_row_1_nothing_pends_that_cannot_be_done, test_canvas_edits.py::test_what_pends_for_ever_upstream_is_refused_at_once, test_canvas_machine.py::test_no_order_of_texts_leads_into_a_trap |
| 2 | loops are never rewarded | test_structure_score.py::test_loops_are_structures |
| 3 | text is rewarded, not what ran | test_structure_score.py::test_what_did_not_run_or_did_not_matter_is_worth_nothing, test_canvas_interpreter.py::test_nothing_is_merged_dropped_or_cut |
| 4 | what comes after Aggregate is dropped | test_row_4_what_comes_after_aggregate_is_handed_in, test_canvas_interpreter.py::test_what_comes_after_aggregate_counts |
| 5 | repaired code is lost | test_row_5_a_repaired_program_is_handed_in, test_canvas_interpreter.py::test_a_repaired_program_is_what_goes_on |
| 6 | finish changes nothing | test_row_6_finish_ends_the_episode_and_an_answer_tag_is_worth_nothing, test_structure_score.py::test_an_unfinished_design_is_worth_less |
| 7 | two nodes with one id | test_row_7_ids_stay_unique_and_lead_to_their_nodes, test_canvas_graph.py::test_ids_stay_distinct_after_delete_and_add |
| 8 | stale results from the cache | test_row_8_another_prompt_is_another_result, test_canvas_interpreter.py::test_another_instruction_is_another_call, test_canvas_interpreter.py::test_failures_are_not_kept |
| 9 | failures are dressed up as results | test_row_9_a_failure_is_told_and_no_result, test_canvas_interpreter.py::test_a_failure_makes_nothing_and_is_named |
| 10 | a carriage return breaks the workflow | test_row_10_no_character_of_a_prompt_changes_the_workflow, test_canvas_interpreter.py::test_instructions_are_data |
| 11 | problems are taken for multiple choice | test_row_11_no_task_bans_an_operator, test_canvas_extract.py::test_what_is_no_multiple_choice_has_no_options |
| 12 | the tests that score leak | test_row_12_hidden_tests_are_never_shown, test_row_12_passing_the_public_tests_is_not_enough, test_canvas_correctness.py::test_only_hidden_tests_score_and_only_public_ones_are_shown, test_canvas_correctness.py::test_a_text_that_says_pass_proves_nothing |
| 13 | no sandbox | test_canvas_interpreter.py::test_nothing_here_turns_text_into_code, test_canvas_correctness.py::test_a_gold_answer_is_never_run, test_sandbox_hostile.py::test_no_hostile_program_escapes, test_sandbox_forging.py::test_a_wrong_program_never_passes |
| 14 | a fixed judge and model, a fixed interpreter, kills by name | test_canvas_backend_openai.py::test_no_model_and_no_server_is_guessed, test_row_14_no_path_of_an_interpreter_and_no_kill_by_name |
| 15 | a missing setting means another model | test_row_15_nothing_stands_in_for_a_missing_model, test_canvas_backend_openai.py::test_no_model_and_no_server_is_guessed |
| 16 | globals and races | test_row_16_episodes_in_32_threads_are_those_played_alone, test_canvas_interpreter.py::test_one_interpreter_serves_many_threads, test_canvas_rules.py::test_a_call_gives_the_same_in_any_order_and_in_32_threads |
| 17 | unseeded chance | test_row_17_the_seed_decides_everything, test_canvas_calibration.py::test_one_worker_and_thirty_two_threads_give_the_same_bytes, test_cwrpo_training.py::test_the_seed_decides_the_first_weights_of_adapters, test_resume.py::test_a_resumed_run_equals_one_that_never_stopped |
| 18 | modules nobody can read, prints, errors that are swallowed, evaluation without its settings | test_row_18_modules_are_short_and_swallow_no_errors, test_canvas_evaluate_llm.py::test_a_set_is_evaluated_and_its_log_verified_without_the_server |

The linter refuses prints in the package.
"""  # noqa: E501 (a table's row is one line)

from __future__ import annotations

import ast
import copy
import json
import random
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pytest

from agentgym_flow.envs.canvas.env import CanvasEnv
from agentgym_flow.envs.canvas.operators import STANDARD
from agentgym_flow.errors import BadSetting, ResetNeeded
from agentgym_flow.problems.tasks.source import generated
from agentgym_flow.testing import play

FINISH = "<action>finish</action>"
CONDITIONAL = "<action>add</action><structure>conditional</structure><condition>{}</condition>"
CHECKED = CONDITIONAL + "<true>done</true><false>Revise</false>"


def add(name: str, prompt: str = "") -> str:
    told = f"<prompt>{prompt}</prompt>" if prompt else ""
    return f"<action>add</action><operator>{name}</operator>{told}"


def canvas(**settings: Any) -> CanvasEnv:
    env = gym.make("agentgym_flow/Canvas-v0", disable_env_checker=True, **{"split": "valid", **settings}).unwrapped
    assert isinstance(env, CanvasEnv)
    return env


class Played(NamedTuple):
    env: CanvasEnv
    moments: list[play.Moment]

    @property
    def workflow(self) -> dict[str, Any]:
        told: dict[str, Any] = self.moments[-1].info["workflow"]
        return told


def played(*actions: str, task: int = 0, **settings: Any) -> Played:
    env = canvas(**settings)
    moments = [play.start(env, 0, task)]
    moments += [play.advance(env, action) for action in actions]
    return Played(env, moments)


# ---------------------------------------------------------------- 1
@pytest.mark.parametrize("prompting", ["inline", "two_phase"])
@pytest.mark.parametrize(
    "trap",
    [
        add("Verifier"),
        add("custom code"),
        "<action>modify</action><target>node_1</target><operator>Custom</operator>",
        "<action>modify</action><target>node_9</target><operator>Custom</operator>",
    ],
)
def test_row_1_nothing_pends_that_cannot_be_done(trap: str, prompting: str) -> None:
    """Upstream takes all later text for the prompt of what it cannot do; here `finish` still ends the episode."""
    loop = "<action>add</action><structure>loop</structure><operators>Custom</operators><prompt>be exact</prompt>"
    game = played(loop, trap, prompting=prompting)
    assert game.moments[-1].info["action_valid"] is False
    assert game.env.game.draft.waiting is None
    assert play.advance(game.env, FINISH).terminated


# ---------------------------------------------------------------- 4
def test_row_4_what_comes_after_aggregate_is_handed_in() -> None:
    """A solution that Aggregate made is still checked, revised and formatted."""
    parallel = "<action>add</action><structure>parallel</structure><operators>Custom, AnswerGenerate</operators>"
    repaired = 0
    for task in range(60):
        game = played(parallel, add("Aggregate"), CHECKED.format("Verify"), task=task, family="arithmetic")
        before, after = game.moments[2].info["workflow"], game.workflow
        assert game.env.game.run.made_by[-1].place.startswith("node_3")
        failed = not after["checks"][0][2]
        assert failed or before["result"] == after["result"]
        repaired += failed and before["result"] != after["result"]
    assert repaired > 3


# ---------------------------------------------------------------- 5
def test_row_5_a_repaired_program_is_handed_in() -> None:
    """A conditional Test after Programmer tests the program, and what Revise makes of it is what is scored."""
    repaired = 0
    for task in range(40):
        game = played(add("Programmer"), CHECKED.format("Test"), add("Test"), FINISH, task=task, family="code")
        told = game.workflow
        if len(told["checks"]) == 2 and not told["checks"][0][2] and told["checks"][1][2]:
            session = game.env.game
            assert session.run is not None
            assert session.run.value is not None
            assert "def " in session.run.value.code
            assert game.moments[-1].reward == session.task.score("", session.run.value.code)
            repaired += game.moments[-1].reward == 1.0
    assert repaired > 3


# ---------------------------------------------------------------- 6
def test_row_6_finish_ends_the_episode_and_an_answer_tag_is_worth_nothing() -> None:
    for task in range(12):
        answers = generated("arithmetic", "valid", task).problem.answers
        tagged = f"<action>finish</action><answer>{answers[0]}</answer>"
        with_tag, without = (
            played(add("AnswerGenerate"), end, task=task, family="arithmetic") for end in (tagged, FINISH)
        )
        assert with_tag.moments[-1].terminated
        assert with_tag.moments[-1].reward == without.moments[-1].reward
        with pytest.raises(ResetNeeded):
            with_tag.env.step(add("Custom"))
        unfinished = played(add("AnswerGenerate"), add("Verify"), max_steps=2, task=task, family="arithmetic")
        assert unfinished.moments[-1].truncated
        assert unfinished.moments[-1].reward == 0.0


# ---------------------------------------------------------------- 7
def test_row_7_ids_stay_unique_and_lead_to_their_nodes() -> None:
    delete = "<action>delete</action><target>node_1</target>"
    game = played(add("Plan"), add("Custom"), add("Verify"), delete, add("Format"), delete, add("Review"))
    assert [node["id"] for node in game.workflow["graph"]] == ["node_1", "node_2", "node_3"]
    assert [node["name"] for node in game.workflow["graph"]] == ["Verify", "Format", "Review"]
    for number, name in enumerate(("Verify", "Format", "Review"), 1):
        one = copy.deepcopy(game.env)
        moment = play.advance(
            one, f"<action>set_prompt</action><target>node_{number}</target><prompt>be exact</prompt>"
        )
        told = [node["name"] for node in moment.info["workflow"]["graph"] if node["instruction"]]
        assert told == [name]
        assert f"  node_{number}: {name}" in moment.observation


# ---------------------------------------------------------------- 8
@pytest.mark.parametrize("name", ["Custom", "AnswerGenerate", "Programmer", "Revise"])
def test_row_8_another_prompt_is_another_result(name: str) -> None:
    """`set_prompt` asks again: what is shown is what a new workflow with that prompt gives."""
    changed = 0
    before = [add("Custom")] if name == "Revise" else []
    told = "mind the new price, the percent, both ends and minutes"
    prompt = f"<target>node_{len(before) + 1}</target><prompt>{told}</prompt>"
    for task in range(90):
        game = played(*before, add(name), f"<action>set_prompt</action>{prompt}", task=task, family="arithmetic")
        fresh = played(*before, add(name, told), task=task, family="arithmetic")
        for key in ("result", "checks", "run"):
            assert game.workflow[key] == fresh.workflow[key]
        changed += game.moments[-2].info["workflow"]["result"] != game.workflow["result"]
    assert changed > 0


# ---------------------------------------------------------------- 9
def test_row_9_a_failure_is_told_and_no_result() -> None:
    numbers = [n for n in range(120) if generated("code", "valid", n).endless][:3]
    assert numbers
    for task in numbers:
        game = played(add("Programmer"), FINISH, task=task, family="code")
        told, shown = game.moments[1].info["workflow"], game.moments[1].observation
        assert told["failed"] == [["node_1", "Programmer", "The program was run and did not end."]]
        assert (told["results"], told["result"], told["ran"]) == (0, "", [])
        assert "Failed: node_1 Programmer: The program was run and did not end." in shown
        assert "Result: none" in shown
        assert game.moments[-1].reward == 0.0


# ---------------------------------------------------------------- 10
@pytest.mark.parametrize(
    "mark", ["\r", "\r\n", "\n", "\x00", "\u2028", '"""', "'", "\\", "${x}", "{0}", "%s", "\ud800"]
)
def test_row_10_no_character_of_a_prompt_changes_the_workflow(mark: str) -> None:
    edit = json.dumps({"action": "add", "operator": "Programmer", "prompt": f"mind the {mark} percent"})
    plain = played(add("Plan"), add("Programmer", "mind the percent"), CHECKED.format("Verify"), task=3)
    odd = played(add("Plan"), edit, CHECKED.format("Verify"), task=3)
    assert odd.workflow["text"] == plain.workflow["text"] == "Plan -> Programmer -> Verify ? done : Revise"
    assert odd.workflow["ran"][:3] == ["Plan", "Programmer", "Verify"]


# ---------------------------------------------------------------- 11
def test_row_11_no_task_bans_an_operator() -> None:
    """Upstream takes "choose ... e" and "f(a)" for a multiple choice and bans Programmer."""
    for task in range(0, 60):
        env = canvas(split="test")
        moment = play.start(env, 0, task)
        assert moment.info["workflow"]["usable"] == list(STANDARD)
        offered = [play.advance(copy.deepcopy(env), add(name)).info["action_valid"] for name in STANDARD]
        assert all(offered)


# ---------------------------------------------------------------- 12
def test_row_12_hidden_tests_are_never_shown() -> None:
    """Neither an observation nor `info` has one, whatever was run; nor has any input of an operator."""
    for task in range(12):
        problem = generated("code", "valid", task).problem
        public = set(problem.public_tests.checks)
        hidden = [check for check in problem.hidden_tests.checks if check not in public]
        assert hidden
        game = played(
            add("Plan"), add("Programmer"), CHECKED.format("Test"), CHECKED.format("Review"), add("Format"), FINISH,
            task=task, family="code",
        )  # fmt: skip
        shown = "\n".join(moment.observation + json.dumps(moment.info) for moment in game.moments)
        shown += game.env.render() or ""
        for check in hidden:
            asked = check.removeprefix("assert ").partition(" == ")[0]
            assert check not in shown
            assert asked not in shown.replace(problem.shown(), "")
        assert problem.solution.strip() not in shown


def test_row_12_passing_the_public_tests_is_not_enough() -> None:
    fooled = 0
    for task in range(60):
        game = played(add("Programmer"), add("Test"), FINISH, task=task, family="code")
        checks = game.workflow["checks"]
        fooled += bool(checks) and checks[0][2] and game.moments[-1].reward == 0.0
    assert fooled > 3


# ---------------------------------------------------------------- 15
def test_row_15_nothing_stands_in_for_a_missing_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    with pytest.raises(BadSetting, match="needs the name of a model"):
        canvas(executor="openai", base_url="http://127.0.0.1:9/v1")
    with pytest.raises(BadSetting, match="is for executor='openai'"):
        canvas(model="some-model")
    env = canvas(executor="openai", model="some-model")
    with pytest.raises(BadSetting, match="base_url"):
        env.reset(seed=0)


# ---------------------------------------------------------------- 16
def test_row_16_episodes_in_32_threads_are_those_played_alone() -> None:
    shared = canvas()
    barrier = threading.Barrier(32)

    def work(number: int, *, alone: bool) -> list[str]:
        env = canvas() if number % 2 else copy.deepcopy(shared)
        if not alone:
            barrier.wait(60)
        return play.fingerprints(list(play.episode(env, number, "mixed", limit=8)))

    alone = [work(number, alone=True) for number in range(32)]
    with ThreadPoolExecutor(32) as pool:
        together = list(pool.map(lambda number: work(number, alone=False), range(32)))
    assert together == alone


# ---------------------------------------------------------------- 17
def test_row_17_the_seed_decides_everything() -> None:
    """Votes included: another seed, other votes; the same seed, the same ones, whatever the global chance says."""
    parallel = (
        "<action>add</action><structure>parallel</structure><operators>Custom, AnswerGenerate, Programmer</operators>"
    )
    seen: dict[int, set[str]] = {}
    for noise in (1, 2):
        random.seed(noise)
        np.random.seed(noise)  # noqa: NPY002 - the global state must not matter
        for seed in range(12):
            env = canvas(family="qa", split="test")
            play.start(env, seed, 4)
            for action in (parallel, add("MdEnsemble")):
                moment = play.advance(env, action)
            seen.setdefault(seed, set()).add(play.fingerprint(moment.info))
    assert all(len(results) == 1 for results in seen.values())
    assert len(set.union(*seen.values())) > 6


def sources(root: Path) -> dict[Path, str]:
    files = [*(root / "agentgym_flow").rglob("*.py"), *(root / "baselines").rglob("*.py")]
    return {file: file.read_text("utf-8") for file in files}


def test_row_14_no_path_of_an_interpreter_and_no_kill_by_name(root: Path) -> None:
    for file, source in sources(root).items():
        found = re.search(r"\b(?:pkill|killall)\b|/bin/python|\.killpg\(0", source)
        assert found is None, f"{file}: {found}"


def test_row_18_modules_are_short_and_swallow_no_errors(root: Path) -> None:
    for file, source in sources(root).items():
        assert len(source) < 30_000, f"{file} has {len(source)} characters"
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ExceptHandler):
                assert node.type is not None, f"{file}, line {node.lineno}: an except without a class"


# ---------------------------------------------------------------- the table
def test_every_test_of_the_table_exists(root: Path) -> None:
    files = {file.name: file for file in (root / "tests").rglob("test_*.py")}
    rows = re.findall(r"^\| (\d+) \| [^|]+ \| (.+) \|$", __doc__ or "", re.MULTILINE)
    assert [int(row) for row, _ in rows] == list(range(1, 19))
    for row, listed in rows:
        for one in listed.split(", "):
            file, _, name = one.rpartition("::")
            source = files[file or Path(__file__).name].read_text("utf-8")
            names = {node.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)}
            assert name in names, f"row {row} names {one}, which does not exist"

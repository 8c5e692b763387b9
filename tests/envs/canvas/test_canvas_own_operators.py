"""A fifteenth operator is one class: simulator, server, object, training, logs and pictures take it as it is."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import gymnasium as gym
import operators_of_others
import pytest
from backend_calls import chat_server, says
from operators_of_others import Debate, Doubt, Jury

import agentgym_flow
from agentgym_flow.envs import make_text_env
from agentgym_flow.envs.canvas.backends.openai_compatible import OpenAIBackend
from agentgym_flow.envs.canvas.env import CanvasEnv
from agentgym_flow.envs.canvas.operators import OPERATORS, STANDARD, Operator, Role, Solver, base
from agentgym_flow.envs.canvas.operators.base import CheckerOdds
from agentgym_flow.envs.canvas.operators.calls import OpCall, OpResult, Value
from agentgym_flow.envs.canvas.policies import Designer
from agentgym_flow.envs.canvas.prompt import VOCABULARY
from agentgym_flow.episodes import read_log
from agentgym_flow.errors import BadSetting, UnknownOption
from agentgym_flow.play import evaluate
from agentgym_flow.policies import make_policy
from agentgym_flow.prompts import template_for
from agentgym_flow.replay import verify_log
from agentgym_flow.report import workflow_svg
from agentgym_flow.rewards import StructureReward

ENV_ID = "agentgym_flow/Canvas-v0"
BOTH = [*STANDARD, Debate, Doubt]
ADD = "<action>add</action><operator>{}</operator>"
CHECKED = (
    "<action>add</action><structure>conditional</structure><condition>Doubt</condition>"
    "<true>done</true><false>Revise</false>"
)
FINISH = "<action>finish</action>"


def canvas(**settings: Any) -> CanvasEnv:
    return cast("CanvasEnv", make_text_env(ENV_ID, **{"split": "valid", **settings}))


def begun(task: int = 18, **settings: Any) -> CanvasEnv:
    env = canvas(**settings)
    env.reset(seed=0, options={"task": task})
    return env


def told(env: CanvasEnv) -> dict[str, Any]:
    return env.info()


# ---------------------------------------------------------------- the simulator
def test_it_is_played_in_the_simulator() -> None:
    env = begun(operators=BOTH)
    *_, info = env.step(ADD.format("Debate"))
    assert info["action_valid"]
    assert info["workflow"]["ran"] == ["Debate"]
    *_, info = env.step(CHECKED)
    assert [check[1] for check in info["workflow"]["checks"]] == ["Doubt"]
    assert info["workflow"]["usable"] == [*STANDARD, "Debate", "Doubt"]
    _, reward, terminated, _, info = env.step(FINISH)
    assert (terminated, reward, info["success"]) == (True, 1.0, True)


@pytest.mark.parametrize("spec", ["operators_of_others:Debate", Debate, "Debate"])
def test_it_is_named_in_three_ways(spec: Any) -> None:
    env = begun(operators=[spec, "Format"])
    assert env.settings["operators"] == ["operators_of_others:Debate", "Format"]
    assert env.step(ADD.format("debate"))[4]["repairs"] == ["operator_case"]


def test_its_odds_decide() -> None:
    solved = dict.fromkeys(("Debate", "Custom"), 0)
    for name in solved:
        for task in range(0, 90, 3):
            env = begun(task, operators=BOTH, family="arithmetic")
            env.step(ADD.format(name))
            solved[name] += env.step(FINISH)[4]["success"]
    assert solved["Debate"] >= 25 > 20 > solved["Custom"]


def test_without_odds_it_is_not_offered_in_the_simulator() -> None:
    with pytest.warns(UserWarning, match="does not offer Jury: give a class odds"):
        env = begun(operators=["Custom", Jury])
    assert env.step(ADD.format("Jury"))[4]["workflow"]["usable"] == ["Custom"]
    assert not env.step(ADD.format("Jury"))[4]["action_valid"]
    with pytest.raises(BadSetting, match="at least one operator"), pytest.warns(UserWarning, match="Jury"):
        canvas(operators=[Jury])


def test_expert_and_script_use_it() -> None:
    env = begun(3, operators=["Debate", "Doubt", "Revise", "Format"])
    while env.playing:
        *_, info = env.step(env.expert_action() or FINISH)
    assert info["success"]
    for task in (3, 18, 21):
        env = begun(task, operators=["Debate", "Doubt", "Revise"])
        while env.playing:
            policy_input = SimpleNamespace(
                info=told(env), episode=SimpleNamespace(turns=[None] * env.steps, max_steps=20)
            )
            *_, info = env.step(Designer().act([policy_input])[0].action)
        assert info["workflow"]["finished"]
        assert {"Debate", "Doubt"} <= set(info["workflow"]["operators"])


def test_the_proposals_have_it_and_are_accepted() -> None:
    env = begun(operators=BOTH)
    offered = [action for action in env.candidates() if "Debate" in action or "Doubt" in action]
    assert len(offered) >= 5
    for action in offered:
        again = pickle.loads(pickle.dumps(env))
        assert again.step(action)[4]["action_valid"], action


def test_where_it_is_not_offered_nothing_tells_that_it_is_registered() -> None:
    """Else a log could be verified only by whoever has imported the same modules."""
    env = begun()
    observation, *_, info = env.step(ADD.format("Debate"))
    assert "There is no operator 'Debate'" in observation
    assert not info["action_valid"]
    shown = json.dumps([observation, info, env.candidates(), prompt(env, "text"), prompt(env, "compact")])
    assert not any(name in shown.replace("'Debate'", "") for name in ("Debate", "Doubt", "Jury"))


# ---------------------------------------------------------------- prompts and descriptions
def prompt(env: CanvasEnv, name: str) -> str:
    episode = SimpleNamespace(turns=[], max_steps=20)
    policy_input: Any = SimpleNamespace(observation="", info=told(env), episode=episode, candidates=env.candidates)
    return template_for(ENV_ID, name).prompt(policy_input)


def test_the_prompt_describes_it_and_descriptions_can_be_replaced() -> None:
    assert "- Debate: argues for and against, then answers" in prompt(begun(operators=BOTH), "text")
    env = begun(operators=BOTH, descriptions={"Debate": "quarrels", "Plan": "thinks ahead"})
    text = prompt(env, "text")
    assert "- Debate: quarrels\n" in text
    assert "- Plan: thinks ahead\n" in text
    assert env.settings["descriptions"] == {"Debate": "quarrels", "Plan": "thinks ahead"}
    assert told(env)["task_key"] == told(begun(operators=BOTH))["task_key"]
    asked = begun(operators=BOTH, descriptions={"Debate": "quarrels"}, prompting="two_phase")
    assert "write the prompt for Debate, which quarrels." in asked.step(ADD.format("Debate"))[0]


@pytest.mark.parametrize(
    ("told", "error"),
    [
        ({"Debate": "x"}, UnknownOption),
        ({"Plan": "two\nlines"}, BadSetting),
        ({"Plan": "x" * 301}, BadSetting),
        ({"Plan": ""}, BadSetting),
        (["Plan"], BadSetting),
    ],
)
def test_descriptions_that_cannot_be_are_refused(told: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        canvas(descriptions=told)


# ---------------------------------------------------------------- servers and objects
class ByHand:
    """An executor of one's own, which lets the class do the work."""

    def run(self, call: OpCall) -> OpResult:
        model: Any = SimpleNamespace(ask=lambda **_: "252")
        return OpResult("ok", OPERATORS[call.operator].run(model, call.inputs))


def test_it_is_played_by_an_object() -> None:
    env = begun(operators=[Debate, Jury, "Custom"], executor=ByHand(), family="arithmetic")
    *_, info = env.step(ADD.format("Debate"))
    assert (info["workflow"]["ran"], info["workflow"]["result"]) == (["Debate"], "252")
    *_, info = env.step(ADD.format("Jury"))
    assert info["workflow"]["failed"] == [["node_2", "Jury", "Jury works on 3 results or more; here: 1"]]
    env.step("<action>delete</action><target>node_1</target>")
    env.step("<action>delete</action><target>node_1</target>")
    env.step("<action>add</action><structure>parallel</structure><operators>Custom, Custom, Debate</operators>")
    *_, info = env.step(ADD.format("Jury"))
    assert info["workflow"]["ran"][-1] == "Jury"
    refused = env.step("<action>add</action><structure>parallel</structure><operators>Jury, Custom</operators>")
    assert "gathers branches" in refused[0]


def server_settings(url: str, **more: Any) -> dict[str, Any]:
    return {"executor": "openai", "model": "small", "base_url": url, "executor_settings": {"retries": 0, **more}}


def test_it_is_played_by_a_server_and_its_log_is_checked_without(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    with chat_server(default=says("252")) as server:
        settings = server_settings(f"{server.url}/v1", models={"Doubt": "large"})
        settings |= {"operators": ["Debate", "Doubt", "Revise"], "family": "arithmetic"}
        evaluate(make_policy("scripted", ENV_ID), ENV_ID, num_episodes=2, env_kwargs=settings, log=log)
        asked = list(server.asked)
    forms = [request["messages"][0]["content"] for request in asked]
    assert any("Give the arguments alone." in form for form in forms)
    assert any("Give the answer alone." in form for form in forms)
    assert {request["model"] for request in asked} == {"small", "large"}
    for request in asked:
        assert (request["model"] == "large") == ("Find a reason" in request["messages"][-1]["content"])
    assert verify_log(log).ok
    assert next(iter(read_log(log))).kwargs["operators"][0] == "operators_of_others:Debate"


def test_servers_take_turns_and_one_that_is_gone_is_passed_over() -> None:
    with chat_server(default=says("4")) as one, chat_server(default=says("4")) as two:
        backend = OpenAIBackend("small", [f"{one.url}/v1", f"{two.url}/v1"], retries=0, timeout=5.0)
        call = OpCall("Custom", "t", "node_1", 0, {"problem": "2 + 2?"}, "", 0)
        assert all(backend.run(call).value == Value(text="4") for _ in range(6))
        assert (len(one.asked), len(two.asked)) == (3, 3)
        gone = OpenAIBackend("small", ["http://127.0.0.1:9/v1", f"{one.url}/v1"], retries=0, timeout=5.0)
        assert all(gone.run(call).value == Value(text="4") for _ in range(3))
        by_model = OpenAIBackend(
            "small", {"small": f"{one.url}/v1", "large": [f"{two.url}/v1"]}, models={"Custom": "large"}, retries=0
        )
        before = len(one.asked)
        assert by_model.run(call).value == Value(text="4")
        assert (len(one.asked), two.asked[-1]["model"]) == (before, "large")


@pytest.mark.parametrize(
    ("urls", "models", "said"),
    [
        ([], None, "several are a list"),
        ({"small": "http://a/v1"}, {"Plan": "large"}, "'large' has no URL"),
        ({"small": "http://a/v1", "other": "http://b/v1"}, None, "'other' has a URL but is not used"),
        ("http://a/v1", {"Plann": "large"}, "Did you mean Plan?"),
        ("http://a/v1", {"Plan": ""}, "names of models"),
        (7, None, "a URL is a text"),
    ],
)
def test_servers_and_models_that_cannot_be_are_refused(urls: Any, models: Any, said: str) -> None:
    with pytest.raises(BadSetting, match=said):
        OpenAIBackend("small", urls, models=models)


# ---------------------------------------------------------------- logs
def agentgym(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "agentgym_flow", *words], cwd=cwd, capture_output=True, text=True)


@pytest.mark.heavy
def test_a_log_does_not_import_what_it_names(tmp_path: Path) -> None:
    source = Path(operators_of_others.__file__).read_text("utf-8")
    (tmp_path / "my_operators.py").write_text(source, "utf-8")
    operators = '["my_operators:Debate", "Verify", "Revise", "Format"]'
    words = ("--policy", "scripted", "--episodes", "3", "--log", "log.jsonl")
    played = agentgym("evaluate", ENV_ID, *words, "--env-arg", f"operators={operators}", cwd=tmp_path)
    assert played.returncode == 0, played.stdout + played.stderr
    assert "Debate" in (tmp_path / "log.jsonl").read_text()
    bare = agentgym("verify", "log.jsonl", cwd=tmp_path)
    assert bare.returncode == 1
    said = " ".join((bare.stdout + bare.stderr).split())
    assert "is not imported because a log names it" in said
    assert "--import my_operators" in said
    assert agentgym("verify", "log.jsonl", "--import", "my_operators", cwd=tmp_path).returncode == 0


def test_an_environment_crosses_to_another_process_with_its_operators(tmp_path: Path) -> None:
    env = begun(operators=["Debate", "Format"])
    env.step(ADD.format("Debate"))
    (tmp_path / "env.pickle").write_bytes(pickle.dumps(env))
    code = (
        "import pickle, sys; env = pickle.load(open('env.pickle', 'rb'));"
        "print(env.step('<action>add</action><operator>Debate</operator>')[4]['workflow']['ran'])"
    )
    path = [str(Path(operators_of_others.__file__).parent), str(Path(agentgym_flow.__file__).parents[1])]
    surroundings = {"PYTHONPATH": ":".join(path), "PATH": ""}
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=surroundings, capture_output=True, text=True)
    assert run.stdout.strip() == "['Debate', 'Debate']", run.stderr


# ---------------------------------------------------------------- training, rewards, pictures
def test_the_compact_prompt_holds_it() -> None:
    env = begun(operators=BOTH)
    plain: Any = template_for(ENV_ID, "compact")
    assert plain.vocabulary == VOCABULARY  # whatever is registered: the weights of others were made for these words
    template = plain.for_settings(env.settings)
    assert plain.for_settings({}) == plain
    assert template.vocabulary[: len(VOCABULARY)] == VOCABULARY
    assert {"Debate", "vote-Debate", "warned-Debate", "Doubt", "mend-Doubt", "Doubt-failed"} <= set(template.vocabulary)
    episode = SimpleNamespace(turns=[], max_steps=20)
    for move in ("Debate", "mend-Doubt", "try-Doubt"):
        policy_input: Any = SimpleNamespace(observation="", info=told(env), episode=episode, candidates=env.candidates)
        action = template.parse_action(move, policy_input)
        assert template.format_action(action, policy_input) == move
        assert env.step(action)[4]["action_valid"]
        policy_input.info = told(env)
        words = template.prompt(policy_input).split()
        assert move in words
        assert set(words) <= set(template.vocabulary)
    assert template.parse_action("Debate", SimpleNamespace(info=told(begun()), episode=episode)) == ""


def test_the_structure_reward_counts_it() -> None:
    env = StructureReward(gym.make(ENV_ID, split="valid", operators=BOTH), profile="paper", min_operators=2)
    env.reset(seed=0, options={"task": 18})
    *_, info = env.step(ADD.format("Debate"))
    assert info["structure"] == 0.0
    *_, info = env.step(ADD.format("Doubt"))
    assert info["structure"] == 0.4  # a checker, and operators enough


def test_finish_counts_it_as_published() -> None:
    env = begun(operators=BOTH, finish="published")
    assert any("Revise, Debate)" in lack for lack in told(env)["workflow"]["missing"])
    env.step(ADD.format("Debate"))
    *_, info = env.step(CHECKED)
    assert not any("a solver" in lack or "a checker" in lack for lack in info["workflow"]["missing"])


def test_its_picture_has_its_role() -> None:
    env = begun(operators=BOTH)
    *_, info = env.step(ADD.format("Debate"))
    assert info["workflow"]["graph"][0]["role"] == "solver"
    assert "node_1: Debate (solver)" in workflow_svg(info["workflow"]["graph"])


# ---------------------------------------------------------------- classes that cannot be operators
@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"name": "no blanks"}, "identifier"),
        ({"name": "done"}, "identifier"),
        ({"name": "x3"}, "identifier"),
        ({"name": "finish"}, "identifier"),
        ({"summary": "x" * 301}, "301 characters"),
        ({"form": 3}, "form"),
        ({"inputs": None}, "inputs"),
        ({"outputs": 3}, "outputs"),
        ({"branches": True}, "branches"),
        ({"name": "PLAN"}, "choose another name"),
        ({"name": "Debate"}, "choose another name"),
        ({"summary": ""}, "summary"),
        ({"instruction": "two\nlines"}, "instruction"),
        ({"inputs": ("problem", "answer")}, "'answer'"),
        ({"outputs": ("thought",)}, "'thought'"),
        ({"meets": {"beauty"}}, "'beauty'"),
        ({"odds": CheckerOdds({})}, "SolverOdds"),
        ({"branches": -1}, "branches"),
    ],
)
def test_a_class_that_cannot_be_an_operator_is_refused(fields: dict[str, Any], said: str) -> None:
    good = {"name": "Fresh", "summary": "is new", "instruction": "Be new."}
    before = dict(OPERATORS)
    with pytest.raises(BadSetting, match=said):
        type("Fresh", (Solver,), {**good, **fields})
    assert dict(OPERATORS) == before


def test_a_class_without_a_role_is_refused_and_one_without_a_name_is_a_base() -> None:
    with pytest.raises(BadSetting, match="derive from"):
        type("Bare", (Operator,), {"name": "Bare", "summary": "is bare", "instruction": "Be bare."})
    assert type("Base", (Solver,), {}).role is Role.SOLVER


@pytest.mark.parametrize(
    ("named", "error", "said"),
    [
        ([Solver], BadSetting, "a class derived from Operator with a name"),
        ([7], BadSetting, "a class derived from Operator"),
        ([type("Odd", (), {"name": []})], BadSetting, "a class derived from Operator"),
        (["json:loads"], BadSetting, "a class derived from Operator"),
        (["no_such_module:Debate"], UnknownOption, "no module"),
        (["operators_of_others:Debat"], UnknownOption, "Did you mean 'Debate'"),
        ([Debate, "Debate"], BadSetting, "different names"),
        (["Debat"], UnknownOption, "Did you mean 'Debate'"),
    ],
)
def test_what_is_no_operator_is_refused(named: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        canvas(operators=named)


def test_a_class_that_is_defined_again_takes_the_place_of_the_old_one() -> None:
    fields = {"name": "Again", "summary": "is new", "instruction": "Be new.", "__module__": "somewhere"}
    try:
        type("Again", (Solver,), fields)
        second = type("Again", (Solver,), fields)
        assert type(OPERATORS["Again"]) is second
    finally:
        base._registered.pop("Again", None)

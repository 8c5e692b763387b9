"""Running workflows: who gets what, which case runs, what is called again, and what came of what."""

from __future__ import annotations

import ast
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from canvas_graphs import op, ops, par, workflows
from hypothesis import given
from recording_backend import RecordingBackend

from agentgym_flow.envs.canvas.operators import INPUTS, OPERATORS, STANDARD, FieldType
from agentgym_flow.envs.canvas.operators.calls import OpCall, OpResult, Value, WorkflowProblem
from agentgym_flow.envs.canvas.workflow import Chain, Conditional, Loop, statistics
from agentgym_flow.envs.canvas.workflow import interpreter as interpreter_module
from agentgym_flow.envs.canvas.workflow.interpreter import Cache, Interpreter
from agentgym_flow.envs.canvas.workflow.run import RunStep, StepId, WorkflowRun
from agentgym_flow.envs.canvas.workflow.text import read

PROBLEM = WorkflowProblem("task-1", "How many?", "count", ("assert count() == 4",))
FAILS = Value(passed=False, notes="off by one")
BROKEN = OpResult("error", text="the server is away")


def ran(text: str | Chain, backend: RecordingBackend | None = None, **settings: object) -> WorkflowRun:
    nodes = read(text) if isinstance(text, str) else text
    return Interpreter(backend or RecordingBackend(), **settings).run(nodes, PROBLEM)  # type: ignore[arg-type]


def places(run: WorkflowRun) -> list[str]:
    return [step.id.place for step in run.steps]


# -------------------------------------------------------------------- what operators are given
def test_every_operator_gets_the_inputs_that_are_declared_and_no_others() -> None:
    backend = RecordingBackend()
    names = [name for name in STANDARD if name != "Decompose"]
    ran(ops("Decompose", *names), backend)
    assert backend.operators == ["Decompose", *names]
    for call in backend.calls:
        assert tuple(call.inputs) == OPERATORS[call.operator].inputs
        for name, value in call.inputs.items():
            match INPUTS[name]:
                case FieldType.TEXT:
                    assert isinstance(value, str)
                case FieldType.TEXTS:
                    assert all(isinstance(item, str) for item in value)
                case FieldType.VALUES:
                    assert all(isinstance(item, Value) for item in value)
                case _:
                    assert value is None or isinstance(value, Value)
        assert call.inputs["problem"] == "How many?"
        assert (call.task_id, call.seed) == ("task-1", 0)


def test_the_result_of_each_node_goes_to_the_next() -> None:
    assert ran("Custom -> Revise -> Format").answer == "Format(Revise(Custom(-)))"


def test_planners_read_the_raw_problem_and_the_plan_stays_at_hand() -> None:
    backend = RecordingBackend()
    ran("Custom -> Plan -> Decompose -> Custom -> Format", backend)
    assert set(backend.inputs("Decompose")) == {"problem"}
    given_ = backend.inputs("Custom")
    assert given_["previous"].text == "Decompose()"
    assert given_["plan"].text == "Plan()"
    assert given_["pieces"] == ("a", "b", "c")


def test_instruction_and_place_are_in_the_call() -> None:
    backend = RecordingBackend()
    ran('[Custom "by hand", Custom] -> Aggregate', backend, seed=7)
    assert [(call.place, call.instruction, call.seed) for call in backend.calls] == [
        ("node_1_p0", "by hand", 7),
        ("node_1_p1", "", 7),
        ("node_2", "", 7),
    ]


# -------------------------------------------------------------------- parallel
def test_branches_start_from_the_same_result_and_are_gathered_in_their_order() -> None:
    run = ran("Plan -> [Custom, Programmer -> Revise] -> ScEnsemble")
    assert run.answer == "ScEnsemble([Custom(Plan()),Revise(Programmer(Plan()))])"


def test_several_results_reach_an_operator_that_is_no_ensemble_as_they_are() -> None:
    backend = RecordingBackend()
    assert ran("[Custom, Revise] -> Format", backend).answer == "Format([Custom(-),Revise(-)])"
    assert len(backend.inputs("Format")["solution"]) == 2
    nothing_gathers = ran("[Custom, Revise]")
    assert nothing_gathers.answer == "Custom(-)\nRevise(-)"
    assert nothing_gathers.value is None
    assert [value.text for value in nothing_gathers.results] == ["Custom(-)", "Revise(-)"]


def test_inner_branches_are_gathered_with_the_outer_ones() -> None:
    backend = RecordingBackend()
    ran("[[Custom, Revise], Format] -> Aggregate", backend)
    assert [value.text for value in backend.inputs("Aggregate")["candidates"]] == [
        "Custom(-)",
        "Revise(-)",
        "Format(-)",
    ]


@pytest.mark.parametrize(
    ("text", "shares"),
    [
        ("Decompose -> [Custom, Custom]", [("a", "c"), ("b",)]),
        ("Decompose -> [Custom, Custom, Custom]", [("a",), ("b",), ("c",)]),
        ("Decompose -> [Custom, Custom, Custom, Custom]", [("a",), ("b",), ("c",), ("a",)]),
        ("Decompose -> [Custom -> Custom, Custom]", [("a", "c"), ("a", "c"), ("b",)]),
        ("Decompose -> Custom -> [Custom, Custom]", [("a", "b", "c")] * 3),
        ("Decompose -> Custom", [("a", "b", "c")]),
        ("[Custom, Custom]", [(), ()]),
    ],
)
def test_branches_right_after_decompose_share_the_sub_problems_out(text: str, shares: list[tuple[str, ...]]) -> None:
    """Spec 1.6: upstream gives each branch the whole list, and its feedback advises one branch per sub-problem."""
    backend = RecordingBackend()
    ran(f"{text} -> Aggregate -> Custom", backend)
    *given_, last = [call.inputs["pieces"] for call in backend.calls if call.operator == "Custom"]
    assert given_ == shares
    assert last == ()
    assert backend.inputs("Aggregate")["pieces"] == (("a", "b", "c") if "Decompose" in text else ())


# -------------------------------------------------------------------- conditional
@pytest.mark.parametrize(
    ("passed", "text", "answer"),
    [
        (True, "Custom -> Verify ? done : Revise", "Custom(-)"),
        (False, "Custom -> Verify ? done : Revise", "Revise(Custom(-))"),
        (True, "Custom -> Verify ? Format : Revise", "Format(Custom(-))"),
        (False, "Custom -> Verify ? Format : Revise", "Revise(Custom(-))"),
        (True, "Custom -> Verify ? Format : done", "Format(Custom(-))"),
        (False, "Custom -> Verify ? Format : done", "Custom(-)"),
        (False, "Custom -> Verify ? done : (Revise -> Format) -> AnswerGenerate",
         "AnswerGenerate(Format(Revise(Custom(-))))"),
    ],
)  # fmt: skip
def test_the_case_that_the_check_decides_on_runs(passed: bool, text: str, answer: str) -> None:
    """Spec 1.6: upstream runs the operator for a pass when the check fails."""
    assert ran(text, RecordingBackend({"Verify": Value(passed=passed)})).answer == answer


def test_neither_case_runs_when_the_check_itself_fails() -> None:
    for broken in (BROKEN, OpResult("timeout"), Value(text="I think so")):
        run = ran("Custom -> Verify ? Format : Revise", RecordingBackend({"Verify": broken}))
        assert run.answer == "Custom(-)"
        assert [step.operator for step in run.failures] == ["Verify"]


def test_notes_reach_revise_as_long_as_the_solution_stands() -> None:
    backend = RecordingBackend({"Review": FAILS})
    ran("Custom -> Review -> Revise", backend)
    assert backend.inputs("Revise")["notes"] == FAILS
    assert backend.inputs("Revise")["solution"].text == "Custom(-)"
    ran("Custom -> Review ? done : Revise", backend)
    assert backend.inputs("Revise")["notes"] == FAILS
    ran("Custom -> Review -> Custom -> Revise", backend)
    assert backend.inputs("Revise")["notes"] is None


# -------------------------------------------------------------------- code
def test_test_gets_the_program_and_the_public_tests() -> None:
    """Spec 5, row 5: upstream tests the output of the program; row 12: it repairs against the tests that score."""
    backend = RecordingBackend({"Programmer": Value(text="4", code="def count(): return 4")})
    ran("Programmer -> Review -> Test ? done : Programmer", backend)
    given_ = backend.inputs("Test")
    assert given_["solution"].code == "def count(): return 4"
    assert given_["tests"] == PROBLEM.tests
    assert given_["entry_point"] == "count"


def test_a_repaired_program_is_what_goes_on() -> None:
    """Spec 5, row 5: upstream drops it."""
    repaired = Value(text="4", code="def count(): return 4", passed=True)
    for text in ("Programmer -> Test", "Programmer -> Test ? done : Revise"):
        run = ran(text, RecordingBackend({"Programmer": Value(text="5", code="bad"), "Test": repaired}))
        assert run.value == repaired
    backend = RecordingBackend({"Programmer": Value(text="5", code="bad"), "Test": repaired})
    ran("Programmer -> Test -> Verify", backend)
    assert backend.inputs("Verify")["solution"].code == "def count(): return 4"


# -------------------------------------------------------------------- loops and lengths
def test_loops_run_as_often_as_they_say() -> None:
    """Spec 5, row 3: upstream merges equal neighbours, so that `(Custom) * 3` runs once, and caps at 5."""
    assert ran("(Custom) * 3").answer == "Custom(Custom(Custom(-)))"
    run = ran("((Revise -> Format) * 2 -> Custom) * 10")
    assert [step.id.attempt for step in run.steps if step.operator == "Revise"] == list(range(20))
    assert [step.id.attempt for step in run.steps if step.operator == "Custom"] == list(range(10))
    assert len({step.id for step in run.steps}) == len(run.steps) == 50


def test_nothing_is_merged_dropped_or_cut() -> None:
    """Spec 5, row 3: upstream merges duplicates, drops Test where there is no code, and stops after 15 stages."""
    backend = RecordingBackend()
    names = ["Custom", "Custom", "Test", *["Revise"] * 30, "Format"]
    run = ran(ops(*names), backend)
    assert backend.operators == [step.operator for step in run.steps] == names


@given(workflows)
def test_a_run_calls_no_more_than_the_workflow_can(chain: Chain) -> None:
    if statistics(chain).most_calls <= 100:
        run = ran(chain)
        assert len(run.steps) <= statistics(chain).most_calls
        assert len({step.id for step in run.steps}) == len(run.steps)


def test_what_comes_after_aggregate_counts() -> None:
    """Spec 5, row 4: upstream discards what Verify, Revise and Format make once Aggregate has run."""
    assert ran("[Custom, Custom] -> Aggregate -> Revise -> Format").answer == (
        "Format(Revise(Aggregate([Custom(-),Custom(-)])))"
    )


def test_the_empty_workflow_makes_nothing() -> None:
    assert ran("") == WorkflowRun((), (), ())
    assert ran("").answer == ""
    assert ran("").value is None


@pytest.mark.parametrize("instruction", ["a\rb", "a'''b\"\"\"\\", "}{\u2028 %s {0}", "import os; os._exit(1)"])
def test_instructions_are_data(instruction: str) -> None:
    """Spec 5, row 10: upstream turns the workflow into source, which one carriage return breaks."""
    run = ran((op("Custom", instruction), op("Verify"), op("Format")))
    assert run.answer == f"Format(Custom:{instruction}(-))"
    assert len(run.steps) == 3


# -------------------------------------------------------------------- failures
def test_a_failure_makes_nothing_and_is_named() -> None:
    """Spec 5, row 9: upstream turns errors into texts that are flagged as success."""
    run = ran("Custom -> Revise -> Format", RecordingBackend({"Revise": BROKEN}))
    assert run.answer == "Format(Custom(-))"
    assert [(step.id.place, step.result.text) for step in run.failures] == [("node_2", "the server is away")]
    assert ran("Custom", RecordingBackend({"Custom": OpResult("timeout")})).results == ()


def test_a_failed_branch_is_no_candidate() -> None:
    backend = RecordingBackend({"Programmer": BROKEN})
    assert ran("Plan -> [Custom, Programmer] -> Aggregate", backend).answer == "Aggregate([Custom(Plan())])"
    assert ran("Custom -> [Programmer, Programmer] -> Format", backend).answer == "Format(Custom(-))"


def test_a_branch_that_only_checks_hands_the_solution_on() -> None:
    assert ran("Custom -> [Verify, Revise] -> Aggregate").answer == "Aggregate([Custom(-),Revise(Custom(-))])"


@pytest.mark.parametrize(
    ("operator", "value", "said"),
    [
        ("Verify", Value(text="yes"), "Verify gave no verdict"),
        ("Decompose", Value(text="1. a"), "Decompose gave no items"),
        ("Programmer", Value(text="4"), "Programmer gave no code"),
        ("Custom", Value(), "Custom gave no text"),
        ("Custom", OpResult("ok"), "Custom gave no value"),
    ],
)
def test_a_value_without_what_is_declared_is_a_failure(operator: str, value: Value, said: str) -> None:
    (step,) = ran((op(operator),), RecordingBackend({operator: value})).steps
    assert (step.ok, step.result.text, step.result.value) == (False, said, None)


def test_a_failure_never_carries_a_value() -> None:
    backend = RecordingBackend({"Custom": OpResult("error", Value("error: 500"), "500", 3)})
    run = ran("Custom", backend)
    assert run.results == ()
    assert run.tokens == 3


def test_what_a_backend_raises_passes_through() -> None:
    def bug(call: OpCall) -> Value:
        raise ZeroDivisionError(call.place)

    for concurrent in (False, True):
        with pytest.raises(ZeroDivisionError, match="node_1_p1"):
            ran("[Custom, Revise, Revise]", RecordingBackend({"Revise": bug}), concurrent=concurrent)


# -------------------------------------------------------------------- the cache
def test_what_was_called_before_is_not_called_again() -> None:
    backend, cache = RecordingBackend(), Cache()
    first = ran("Plan -> Custom", backend, cache=cache)
    second = ran("Plan -> Custom -> Format", backend, cache=cache)
    assert backend.operators == ["Plan", "Custom", "Format"]
    assert [step.cached for step in first.steps + second.steps] == [False, False, True, True, False]
    assert second.answer == ran("Plan -> Custom -> Format").answer


@pytest.mark.parametrize("operator", STANDARD)
def test_another_instruction_is_another_call(operator: str) -> None:
    """Spec 5, row 8: upstream leaves the prompts of Plan and others out, so that set_prompt changes nothing."""
    backend, cache = RecordingBackend(), Cache()
    ran((op(operator, "first words"),), backend, cache=cache)
    ran((op(operator, "other words"),), backend, cache=cache)
    ran((op(operator, "first words"),), backend, cache=cache)
    assert [call.instruction for call in backend.calls] == ["first words", "other words"]


def test_failures_are_not_kept() -> None:
    """Spec 5, row 8: upstream keeps them, and repeats them for ever."""
    results = iter([BROKEN, OpResult("timeout"), Value(text="unlike what is declared"), Value(passed=True)])
    backend, cache = RecordingBackend({"Verify": lambda call: next(results)}), Cache()
    runs = [ran("Verify", backend, cache=cache) for _ in range(5)]
    assert [run.steps[0].ok for run in runs] == [False, False, False, True, True]
    assert len(backend.calls) == 4
    assert len(cache) == 1


BASE = OpCall("Custom", "t", "node_1", 0, {"problem": "p", "previous": Value("x")}, "say it", 0)


@pytest.mark.parametrize(
    "changes",
    [
        {"operator": "Revise"}, {"task_id": "u"}, {"place": "node_2"}, {"attempt": 1}, {"instruction": ""}, {"seed": 1},
        {"inputs": {"problem": "q", "previous": Value("x")}}, {"inputs": {"problem": "p"}},
        {"inputs": {"problem": "p", "previous": None}}, {"inputs": {"problem": "p", "previous": (Value("x"),)}},
        *({"inputs": {"problem": "p", "previous": value}} for value in
          (Value("y"), Value("x", code="c"), Value("x", items=("i",)), Value("x", passed=True), Value("x", notes="n"),
           Value("x", data={"tags": ["slip"]}), Value("x", passed=False))),
    ],
)  # fmt: skip
def test_the_identity_of_a_call_has_everything_in_it(changes: dict[str, object]) -> None:
    same, other = OpCall(**_plain(BASE)), OpCall(**{**_plain(BASE), **changes})
    assert same.identity == BASE.identity
    assert other.identity != BASE.identity
    assert same.digest == BASE.digest != other.digest


def _plain(call: OpCall) -> dict[str, Any]:
    return {name: getattr(call, name) for name in OpCall.__dataclass_fields__}


def test_tokens_and_cost_count_calls_and_not_the_cache() -> None:
    answer = OpResult("ok", Value("4"), tokens=10, cost=0.5)
    backend, cache = RecordingBackend({"Custom": answer, "Format": answer}), Cache()
    for text, tokens, cost in (("Custom", 10, 0.5), ("Custom -> Format", 10, 0.5), ("Custom -> Format", 0, 0.0)):
        run = ran(text, backend, cache=cache)
        assert (run.tokens, run.cost) == (tokens, cost)


# -------------------------------------------------------------------- threads
WIDE = (
    "Plan -> [[Custom, Programmer] -> ScEnsemble, (Revise -> [Format, Custom]) * 3, Verify ? done : Custom]"
    " -> Aggregate"
)


def test_a_run_is_the_same_in_any_order_of_threads() -> None:
    alone = ran(WIDE, RecordingBackend())
    waits = random.Random(5)

    class Sleepy(RecordingBackend):
        def run(self, call: OpCall) -> OpResult:
            time.sleep(waits.random() / 200)
            return super().run(call)

    for _ in range(5):
        assert ran(WIDE, Sleepy(), concurrent=True, cache=Cache()) == alone


def test_branches_really_run_at_once_and_nested_ones_too() -> None:
    barrier = threading.Barrier(4, timeout=30)

    def together(call: OpCall) -> Value:
        barrier.wait()
        return Value("here")

    backend = RecordingBackend({"Custom": together})
    run = ran("[[Custom, Custom], [Custom, Custom]] -> Aggregate", backend, concurrent=True)
    assert run.answer == "Aggregate([here,here,here,here])"


def test_one_interpreter_serves_many_threads() -> None:
    """Spec 5, row 16: upstream shares one executor and its lists between 32 threads."""
    interpreter = Interpreter(RecordingBackend(), cache=Cache(), concurrent=True)
    texts = [WIDE, f"{WIDE} -> Format", "Custom -> Format", "Custom -> Revise"] * 4
    with ThreadPoolExecutor(8) as pool:
        runs = list(pool.map(lambda text: interpreter.run(read(text), PROBLEM), texts))
    for text, run in zip(texts, runs, strict=True):
        alone = ran(text)
        assert (run.results, run.made_by) == (alone.results, alone.made_by)
        assert [step.id for step in run.steps] == [step.id for step in alone.steps]


def test_nothing_here_turns_text_into_code() -> None:
    """Spec 5, row 13: upstream runs generated workflows with `exec` in its own process."""
    folder = Path(interpreter_module.__file__).parents[1]
    rooms = (folder, *(folder / name for name in ("actions", "operators", "workflow")))
    files = [file for room in rooms for file in room.glob("*.py")]
    assert len(files) > 15
    for file in files:
        called = {
            node.func.id
            for node in ast.walk(ast.parse(file.read_text("utf-8")))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        assert not called & {"exec", "eval", "compile", "__import__"}, file


# -------------------------------------------------------------------- influence
def influential(run: WorkflowRun) -> list[str]:
    return [step.id.place for step in run.influential]


@pytest.mark.parametrize(
    ("text", "passed", "expected"),
    [
        ("Plan -> Custom -> Format", True, ["node_1", "node_2", "node_3"]),
        ("Custom -> Plan", True, ["node_2"]),
        ("Format -> Plan -> Custom", True, ["node_2", "node_3"]),
        ("Custom -> Verify", True, ["node_1"]),
        ("Custom -> Verify -> Format", True, ["node_1", "node_3"]),
        ("Custom -> Verify -> Revise", True, ["node_1", "node_2", "node_3"]),
        ("Custom -> Verify ? done : Revise", True, ["node_1", "node_2_cond"]),
        ("Custom -> Verify ? done : Revise", False, ["node_1", "node_2_cond", "node_2_fail"]),
        ("Custom -> Verify ? done : Plan", False, ["node_1", "node_2_cond", "node_2_fail"]),
        ("[Custom, Programmer] -> Aggregate", True, ["node_1_p0", "node_1_p1", "node_2"]),
        ("[Custom, Plan -> Programmer]", True, ["node_1_p0", "node_1_p1_s0", "node_1_p1_s1"]),
        ("Decompose -> [Custom, Custom]", True, ["node_1", "node_2_p0", "node_2_p1"]),
        ("(Plan) * 3", True, ["node_1_l0"]),
        ("(Custom) * 3", True, ["node_1_l0"] * 3),
    ],
)
def test_exactly_the_steps_that_the_answer_came_from_are_influential(
    text: str, passed: bool, expected: list[str]
) -> None:
    """Spec 6.4: what only ran, or was only written down, earns nothing."""
    run = ran(text, RecordingBackend({"Verify": Value(passed=passed, notes="noted")}))
    assert influential(run) == expected


def test_a_check_that_gives_another_solution_is_influential() -> None:
    run = ran("Custom -> Verify -> Format", RecordingBackend({"Verify": Value("5", passed=False)}))
    assert influential(run) == ["node_1", "node_2", "node_3"]


def test_steps_say_what_they_read() -> None:
    run = ran("Plan -> Custom -> Verify ? Format : done")
    assert run.steps[-1] == RunStep(
        StepId("node_3_pass", 0),
        "Format",
        OpResult("ok", Value("Format(Custom(Plan()))")),
        False,
        (StepId("node_3_cond", 0), StepId("node_2", 0)),
        run.steps[-1].call,
    )
    assert places(run) == ["node_1", "node_2", "node_3_cond", "node_3_pass"]


def test_a_graph_built_by_hand_runs_like_one_that_was_read() -> None:
    by_hand = (op("Plan"), par("Custom", "Programmer"), Conditional(op("Verify"), (), (Loop(ops("Revise"), 2),)))
    assert ran(by_hand) == ran("Plan -> [Custom, Programmer] -> Verify ? done : (Revise) * 2")

"""What each operator asks, runs and makes, with a model that says what it is told to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import pytest
from backend_calls import CUSTOM, call_of
from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow import sandbox
from agentgym_flow.envs.canvas.operators import OPERATORS, STANDARD
from agentgym_flow.envs.canvas.operators.calls import (
    Execution,
    ExecutionResult,
    Messages,
    Model,
    OpCall,
    OperatorFailed,
    RunCode,
    Value,
    in_sandbox,
    read_program,
    read_verdict,
    without_thoughts,
)
from agentgym_flow.envs.canvas.workflow.interpreter import _lacks
from agentgym_flow.errors import SandboxUnavailable

GOOD = "def double(x):\n    return 2 * x\n"
BAD = "def double(x):\n    return 3 * x\n"
TESTS = ("assert double(2) == 4", "assert double(0) == 0")


def fenced(code: str) -> str:
    return f"Here it is:\n```python\n{code}```\nDone."


SAID = {
    "Plan": "1. Count.\n2. Take away.",
    "Decompose": "1. How many at first?\n2. How many are eaten?",
    "Programmer": fenced("def solve():\n    return 4\n"),
    "AnswerGenerate": "6 - 2 is 4.\n<answer>4</answer>",
    "CustomCodeGenerate": fenced(GOOD),
    "Review": "Right.\nVerdict: pass",
    "Verify": "I get 5.\nVerdict: fail",
    "ScEnsemble": "Choice: 2",
    "MdEnsemble": "Choice: 1",
}


class Means(NamedTuple):
    """What a model is made of, besides its call."""

    reply: Callable[[Messages], str]
    run_code: RunCode
    repairs: int


def model_of(call: OpCall, means: Means) -> Model:
    operator = OPERATORS[call.operator]
    return Model(call, *means, instruction=operator.instruction, form=operator.form)


def work(call: OpCall, means: Means) -> Value:
    return OPERATORS[call.operator].run(model_of(call, means), call.inputs)


def messages(call: OpCall) -> Messages:
    return model_of(call, Speaker().means()).messages()


class Speaker:
    """Says one thing after the other, and the last one again and again."""

    def __init__(self, *said: str) -> None:
        self.said = list(said)
        self.asked: list[Messages] = []
        self.executed: list[Execution] = []

    def ask(self, conversation: Messages) -> str:
        self.asked.append(conversation)
        return self.said.pop(0) if len(self.said) > 1 else self.said[0]

    def means(self, outcomes: Callable[[Execution], ExecutionResult] | None = None, repairs: int = 2) -> Means:
        def run_code(order: Execution) -> ExecutionResult:
            self.executed.append(order)
            return ExecutionResult("ok", "4") if outcomes is None else outcomes(order)

        return Means(self.ask, run_code, repairs)

    @property
    def read(self) -> str:
        """All that was asked at last."""
        return "\n".join(message["content"] for message in self.asked[-1])


def made(call: OpCall, *said: str, run: Callable[[Execution], ExecutionResult] | None = None) -> Value:
    return work(call, Speaker(*said).means(run))


@pytest.mark.parametrize("operator", STANDARD)
def test_every_operator_makes_what_it_declares(operator: str) -> None:
    call = call_of(operator, tests=TESTS, solution=Value(code=GOOD) if operator == "Test" else Value(text="four"))
    value = made(call, SAID.get(operator, "four"))
    assert not _lacks(OPERATORS[operator], value)


@pytest.mark.parametrize("operator", STANDARD)
def test_every_operator_follows_its_instruction(operator: str) -> None:
    """Published: AnswerGenerate and ScEnsemble ignored theirs."""
    failing = operator == "Test"
    solution = Value(code=BAD) if failing else Value(text="four")
    for instruction in ("", "mind the twelve camels"):
        model = Speaker(fenced(GOOD) if failing else SAID.get(operator, "four"))
        outcomes = iter([ExecutionResult("failed", problem="no"), ExecutionResult("ok")])
        means = model.means((lambda _: next(outcomes)) if failing else None)  # noqa: B023
        work(call_of(operator, instruction, tests=TESTS, solution=solution), means)
        assert (instruction or OPERATORS[operator].instruction) in model.read
        assert ("twelve camels" in model.read) is bool(instruction)
        assert "How many apples are left?" in model.read


def test_inputs_are_shown_once_and_empty_ones_not() -> None:
    plan = Value(text="1. Count.", items=("Count.",))
    (_, shown) = messages(call_of("Custom", plan=plan, previous=plan, pieces=("one", "two")))
    assert shown["content"].count("1. Count.") == 1
    assert "1. one\n2. two" in shown["content"]
    (_, bare) = messages(CUSTOM)
    assert bare["content"].count("##") == 2  # the problem and the instruction
    (_, several) = messages(call_of("Custom", previous=(Value(text="a"), Value(code="b()", text="7"))))
    assert "1. a\n2. ```python\nb()\n```\nIts output:\n7" in several["content"]
    (_, checked) = messages(call_of("Revise", notes=Value(passed=False, notes="It is five.")))
    assert "The solution fails.\nIt is five." in checked["content"]


def test_a_plan_without_a_list_is_a_failure() -> None:
    value = made(call_of("Plan"), "Sure:\n1. Count\n   all apples.\n**2.** Take 2) away.\nStep 3: Done.")
    assert value.items == ("Count\nall apples.", "Take 2) away.", "Done.")
    assert made(call_of("Decompose"), "- one\n- two").items == ("one", "two")
    for reply in ("I would count them.", "1.\n2.", "42 apples and 7.5 pears"):
        with pytest.raises(OperatorFailed, match="no numbered list"):
            made(call_of("Plan"), reply)


def test_an_answer_outside_its_tags_is_a_failure() -> None:
    assert made(call_of("AnswerGenerate"), "a <answer>3</answer> no: <ANSWER>\n4 </ANSWER>") == Value(text="4")
    for reply in ("4", "<answer></answer>", "<answer>4"):
        with pytest.raises(OperatorFailed, match="no <answer>"):
            made(call_of("AnswerGenerate"), reply)


@pytest.mark.parametrize("operator", ["Verify", "Review"])
@pytest.mark.parametrize(
    ("reply", "passed"),
    [
        ("Fine.\nVerdict: pass", True),
        ("**Verdict: PASS**\n", True),
        ("`Verdict: fail`.", False),
        ("## verdict: **failed**", False),
        ("Verdict: fail\nso Verdict: pass would be wrong", False),
        ("", None),
        ("pass", None),
        ("It is right.", None),
        ("Verdict: maybe", None),
        ("Verdict: not pass", None),
        ("Verdict: pass or fail", None),
        ("The verdict: pass", None),
        ("Verdict: pass\nVerdict: fail", None),
        ('{"is_correct": true}', None),
    ],
)
def test_a_verdict_that_cannot_be_read_is_no_pass(operator: str, reply: str, passed: bool | None) -> None:
    if passed is None:
        with pytest.raises(OperatorFailed, match="verdict"):
            made(call_of(operator), reply)
    else:
        assert made(call_of(operator), reply).passed is passed


@given(st.text(alphabet="Verdict: pasfil*\n", max_size=60))
def test_only_a_line_of_its_own_passes(reply: str) -> None:
    try:
        passed, _ = read_verdict(reply)
    except OperatorFailed:
        return
    lines = [line.strip(" *`_#>.").lower().replace(" ", "").replace("*", "") for line in reply.splitlines()]
    assert (f"verdict:{'pass' if passed else 'fail'}") in "\n".join(lines)


def test_checkers_need_something_to_check() -> None:
    for operator in ("Verify", "Review", "Revise", "Format"):
        model = Speaker("Verdict: pass")
        with pytest.raises(OperatorFailed, match="no solution"):
            work(call_of(operator, solution=None), model.means())
        assert not model.asked


# ---------------------------------------------------------------- programs


def test_a_program_is_run_and_gives_its_answer() -> None:
    model = Speaker(SAID["Programmer"])
    value = work(call_of("Programmer"), model.means())
    assert (value.text, value.code) == ("4", "def solve():\n    return 4\n")
    assert model.executed == [Execution(value.code, "solve")]
    model = Speaker(fenced(GOOD))
    value = work(call_of("Programmer", entry_point="double"), model.means())
    assert (value.text, value.code) == ("", GOOD)  # the program is the answer, whatever it prints
    assert model.executed == [Execution(GOOD + "\ndouble\n")]  # which fails where nothing of that name is


def test_a_program_that_fails_is_given_back() -> None:
    outcomes = iter([ExecutionResult("failed", problem="a colon is missing in line 7"), ExecutionResult("ok", "4")])
    model = Speaker(fenced("first\n"), fenced("second\n"))
    value = work(call_of("Programmer"), model.means(lambda _: next(outcomes)))
    assert value.code == "second\n"
    assert "a colon is missing in line 7" in model.read
    assert "first" in model.read


def test_a_program_that_keeps_failing_is_an_error() -> None:
    model = Speaker(fenced("1 / 0\n"))
    with pytest.raises(OperatorFailed, match="does not run: division"):
        work(call_of("Programmer"), model.means(lambda _: ExecutionResult("failed", problem="division by zero")))
    assert len(model.asked) == 3
    model = Speaker(fenced("1 / 0\n"))
    with pytest.raises(OperatorFailed, match="no walls"):
        work(call_of("Programmer"), model.means(lambda _: ExecutionResult("error", problem="no walls here")))
    assert len(model.asked) == 1  # the program is not at fault


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (fenced("a = 1\n"), "a = 1\n"),
        ("```\na = 1\n```", "a = 1\n"),
        ("```python\nfirst\n```\nor\n```py\nsecond\n```", "second\n"),
        ("```python\ndef f(): ...\n```\nUse it:\n```python\nprint(g(2))\n```", "def f(): ...\n"),
        ("def f():\n    return 1", "def f():\n    return 1\n"),
        ("```bash\nls\n```", None),
        ("```python\nnever closed", None),
        ("```python\n\n```", None),
        ("I define the answer as 4.", None),
    ],
)
def test_programs_are_found(reply: str, code: str | None) -> None:
    if code is None:
        with pytest.raises(OperatorFailed, match="no block"):
            read_program(reply, "f")
    else:
        assert read_program(reply, "f") == code


def test_tests_decide_on_a_program_and_no_model_is_asked() -> None:
    call = call_of("Test", tests=TESTS, entry_point="double", solution=Value(code=GOOD))
    model = Speaker("Verdict: pass")
    assert work(call, model.means()).passed is True
    assert not model.asked
    assert model.executed == [Execution(GOOD, "double", TESTS)]
    value = made(call, "Verdict: pass. It passes!", run=lambda _: ExecutionResult("failed", problem="2 is not 4"))
    assert (value.passed, value.notes, value.code) == (False, "2 is not 4", "")


def test_a_repaired_program_takes_the_place_of_the_solution() -> None:
    """Published: the repair was lost."""
    call = call_of("Test", tests=TESTS, entry_point="double", solution=Value(code=BAD))
    value = made(
        call,
        fenced(BAD + "# still\n"),
        fenced(GOOD),
        run=lambda order: (
            ExecutionResult("ok") if order.code == GOOD else ExecutionResult("failed", problem="6 is not 4")
        ),
    )
    assert (value.passed, value.code) == (True, GOOD)
    assert "6 is not 4" in value.notes
    lost = made(call, fenced(BAD), run=lambda _: ExecutionResult("failed", problem="6 is not 4"))
    assert (lost.passed, lost.code) == (False, "")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"tests": ()}, "no public tests"),
        ({"solution": None}, "no single solution"),
        ({"solution": (Value(code=GOOD), Value(code=BAD))}, "no single solution"),
        ({"solution": Value(text="double it")}, "no program"),
    ],
)
def test_what_cannot_be_tested_does_not_pass(more: dict[str, Value], said: str) -> None:
    call = call_of("Test", **{"tests": TESTS, "solution": Value(code=GOOD), **more})
    with pytest.raises(OperatorFailed, match=said):
        made(call, "Verdict: pass")


def test_a_judge_that_cannot_tell_does_not_pass() -> None:
    call = call_of("Test", tests=TESTS, solution=Value(code=GOOD))
    model = Speaker(fenced(GOOD))
    with pytest.raises(OperatorFailed, match="could not be run"):
        work(call, model.means(lambda _: ExecutionResult("error", problem="unsupported")))
    assert not model.asked  # there is nothing to repair


def test_revising_a_program_makes_a_program_that_runs() -> None:
    solution = Value(text="5", code="def solve(): return 5\n", data={"function": "solve"})
    model = Speaker(SAID["Programmer"])
    value = work(call_of("Revise", solution=solution), model.means())
    assert (value.text, value.code) == ("4", "def solve():\n    return 4\n")
    assert model.executed == [Execution(value.code, "solve")]
    assert made(call_of("Revise"), "four").code == ""
    assert made(call_of("Format", solution=solution), "5") == Value(text="5")
    program = Value(code=GOOD, data={"function": ""})
    assert made(call_of("Format", solution=program), fenced(GOOD)).code == GOOD
    with pytest.raises(OperatorFailed, match="no block"):
        made(call_of("Format", solution=program), "it doubles")


def test_thoughts_are_left_out_and_nothing_else_is_a_failure() -> None:
    assert without_thoughts("<think>a\nb</think>\n four ") == "four"
    assert without_thoughts("a, b</think>four") == "four"  # the prompt had opened it
    assert without_thoughts("[THINK]<answer>3</answer>?[/THINK]\nfour<think>or") == "four"
    assert without_thoughts("print(x[think])") == "print(x[think])"
    for reply in ("<think>a", " <think>", "<think>a</think>\n", "", " "):
        with pytest.raises(OperatorFailed):
            without_thoughts(reply)


def test_the_sandbox_tells_results_failures_and_errors_apart() -> None:
    try:
        if sandbox.probe().level != "strong":
            pytest.skip("the sandbox is not strong on this machine")
    except SandboxUnavailable:
        pytest.skip("there is no sandbox on this machine")
    assert in_sandbox(Execution("def solve():\n    return 6 * 7\n", "solve")) == ExecutionResult("ok", "42")
    assert in_sandbox(Execution("print(1)")) == ExecutionResult("ok", "1\n")
    assert in_sandbox(Execution(GOOD, "double", TESTS)) == ExecutionResult("ok")
    objects = Execution("class A: pass\ndef make(): return A()", "make", ("assert make()",))
    assert in_sandbox(objects).status == "error"  # the judge cannot tell
    for order in (
        Execution("def solve(): pass", "solve"),
        Execution("x = 1", "solve"),
        Execution("1 / 0"),
        Execution(BAD, "double", TESTS),
        Execution("print('every test passed')\nraise SystemExit(0)", "double", TESTS),
    ):
        found = in_sandbox(order)
        assert (found.status, found.output) == ("failed", "")
        assert found.problem


def test_without_a_sandbox_every_execution_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object, **__: object) -> None:
        raise SandboxUnavailable("no walls here")

    for name in ("run", "call", "check"):
        monkeypatch.setattr(sandbox, name, none)
    for order in (Execution("x"), Execution("x", "f"), Execution("x", "f", TESTS)):
        assert in_sandbox(order) == ExecutionResult("error", problem="no walls here")


# ---------------------------------------------------------------- ensembles


def test_a_choice_gives_the_candidate_itself() -> None:
    candidates = (Value(text="3"), Value(text="4", code=GOOD, passed=True, notes="fine", data={"function": ""}))
    chosen = made(call_of("ScEnsemble", candidates=candidates), "**Choice: 2**")
    assert chosen == Value(text="4", code=GOOD, data={"function": ""})
    for reply in ("2", "Choice: 3", "Choice: 0", "Choice: two", "Choice: 1\nChoice: 2", "Choice: 1 or 2"):
        with pytest.raises(OperatorFailed):
            made(call_of("ScEnsemble", candidates=candidates), reply)


@pytest.mark.parametrize("operator", ["ScEnsemble", "MdEnsemble"])
def test_one_candidate_needs_no_choice(operator: str) -> None:
    model = Speaker("no")
    assert work(call_of(operator, candidates=(Value(text="4"),)), model.means()) == Value(text="4")
    assert not model.asked
    with pytest.raises(OperatorFailed, match="no solution"):
        work(call_of(operator, candidates=()), model.means())


def test_votes_are_for_candidates_and_not_for_places() -> None:
    candidates = tuple(Value(text=name) for name in ("apple", "pear", "plum"))
    orders = []

    def voting_for(name: str) -> Callable[[Messages], str]:
        def ask(conversation: Messages) -> str:
            lines = conversation[1]["content"].splitlines()
            order = [line[3:] for line in lines if line[:2] in ("1.", "2.", "3.")]
            orders.append(tuple(order))
            return f"Choice: {order.index(name) + 1}"

        return ask

    call = call_of("MdEnsemble", candidates=candidates)
    for name in ("apple", "pear", "plum"):
        del orders[:]
        assert work(call, Means(voting_for(name), lambda _: ExecutionResult("ok"), 0)) == Value(text=name)
        assert len(orders) == 3  # after three of five votes it is decided
    first = list(orders)
    del orders[:]
    work(call, Means(voting_for("plum"), lambda _: ExecutionResult("ok"), 0))
    assert orders == first  # the same in every process
    shown: Counter[tuple[str, ...]] = Counter()
    for seed in range(40):
        del orders[:]
        another = call_of("MdEnsemble", candidates=candidates, seed=seed)
        work(another, Means(voting_for("plum"), lambda _: ExecutionResult("ok"), 0))
        shown.update(orders)
    assert len(shown) == 6  # every order comes


def test_of_equal_votes_the_earlier_candidate_wins() -> None:
    votes = iter(["plum", "pear", "pear", "plum", "apple"])

    def ask(conversation: Messages) -> str:
        lines = conversation[1]["content"].splitlines()
        order = [line[3:] for line in lines if line[:2] in ("1.", "2.", "3.")]
        return f"Choice: {order.index(next(votes)) + 1}"

    candidates = tuple(Value(text=name) for name in ("apple", "pear", "plum"))
    call = call_of("MdEnsemble", candidates=candidates)
    assert work(call, Means(ask, lambda _: ExecutionResult("ok"), 0)) == Value(text="pear")
    assert next(votes, None) is None


def test_an_aggregate_of_programs_is_a_program_and_of_texts_a_text() -> None:
    assert made(call_of("Aggregate", pieces=("a", "b")), "fifteen") == Value(text="fifteen")
    programs = (Value(code=GOOD), Value(code=BAD))
    assert made(call_of("Aggregate", candidates=programs), fenced(GOOD)) == Value(code=GOOD)

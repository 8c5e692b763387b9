"""The standard operators by role: planners, solvers, checkers, revisers, ensembles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from agentgym_flow.envs.canvas.operators.base import (
    VOTES,
    Checker,
    CheckerOdds,
    Ensemble,
    EnsembleOdds,
    Planner,
    PlannerOdds,
    Reviser,
    ReviserOdds,
    Solver,
    SolverOdds,
    chances,
)
from agentgym_flow.envs.canvas.operators.calls import (
    PROGRAM_FORM,
    Execution,
    Input,
    Model,
    OperatorFailed,
    Value,
    message,
    read_answer,
    read_choice,
    read_program,
    repair_request,
    solutions,
    written,
)


class Plan(Planner):
    """Gives later solvers a plan to follow."""

    name = "Plan"
    summary = "writes a numbered plan for the problem"
    instruction = (
        "Write a short numbered plan for solving the problem. Name the quantities or facts each step needs."
        " Do not solve it yet."
    )
    odds = PlannerOdds()


class Decompose(Planner):
    """Splits the problem into sub-problems."""

    name = "Decompose"
    summary = "splits the problem into sub-problems; parallel branches right after it share them out"
    instruction = "Split the problem into numbered sub-problems that can be solved one by one. Do not solve them."
    leaves = "pieces"
    odds = PlannerOdds()


FUNCTION = "solve"
"""The function that returns the answer if the problem does not name one."""

_CODE_INPUTS = ("problem", "entry_point", "plan", "pieces", "previous")


class Programmer(Solver):
    """Writes a program and runs it; the model repairs programs that fail."""

    name = "Programmer"
    inputs = _CODE_INPUTS
    outputs = ("text", "code")
    summary = "writes a Python program, runs it, and gives its code and its output"
    instruction = (
        "Write a Python program that solves the problem. If a function is asked for by name, write it;"
        " otherwise define solve() without arguments and return the answer from it."
    )
    form = PROGRAM_FORM
    meets = frozenset({"solver", "code"})
    odds = SolverOdds(
        chances(
            slip=0.0, nuance=0.9, trap=0.85, omission=0.8, part=0.9, wobble=0.53, edge=0.65, corner=0.85, hop=0.95,
            distraction=0.95,
        ),
        beyond=frozenset({"qa"}),
        program="run",
    )  # fmt: skip

    def run(self, model: Model, inputs: Mapping[str, Input]) -> Value:
        """Return a working program, with its result if the problem does not name a function."""
        asked_for = str(inputs["entry_point"])
        form = f"{PROGRAM_FORM} It defines {FUNCTION}(), which takes nothing and returns the answer."
        conversation = model.messages(form="" if asked_for else form)
        return written(conversation, model, "" if asked_for else FUNCTION, asked_for)


class Custom(Solver):
    """Answers in words."""

    name = "Custom"
    summary = "reasons in words and answers"
    instruction = "Solve the problem with what is known so far. Reason briefly, and end with the answer."
    odds = SolverOdds(
        chances(
            slip=0.65, nuance=0.06, trap=0.85, omission=0.8, part=0.9, wobble=0.53, edge=0.85, corner=0.85, hop=0.7,
            distraction=0.75,
        ),
        wordy=True,
    )  # fmt: skip


class AnswerGenerate(Solver):
    """Thinks, then gives the answer alone."""

    name = "AnswerGenerate"
    summary = "thinks step by step and gives a short final answer"
    instruction = "Think step by step about the problem, then give the final answer alone."
    form = "Think first, then give the final answer alone between <answer> and </answer>."
    odds = SolverOdds(
        chances(
            slip=0.55, nuance=0.9, trap=0.85, omission=0.8, part=0.9, wobble=0.53, edge=0.9, corner=0.9, hop=0.1,
            distraction=0.75,
        ),
        beyond=frozenset({"code"}),
    )  # fmt: skip

    def run(self, model: Model, inputs: Mapping[str, Input]) -> Value:
        """Return the content of the reply's answer tag."""
        return Value(text=read_answer(model.ask()))


class CustomCodeGenerate(Solver):
    """Writes a program without running it. The published rules of `finish` do not count it as a solver."""

    name = "CustomCodeGenerate"
    inputs = _CODE_INPUTS
    outputs = ("text", "code")
    summary = "writes code and does not run it"
    instruction = "Write the Python function that is asked for. Give the code alone."
    form = PROGRAM_FORM
    meets = frozenset()
    odds = SolverOdds(
        chances(
            slip=0.0, nuance=0.85, trap=0.85, omission=0.8, part=0.9, wobble=0.53, edge=0.65, corner=0.85, hop=0.95,
            distraction=0.95,
        ),
        beyond=frozenset({"arithmetic", "qa"}),
        program="written",
    )  # fmt: skip

    def run(self, model: Model, inputs: Mapping[str, Input]) -> Value:
        """Return the program of the reply."""
        return Value(code=read_program(model.ask(), str(inputs["entry_point"])))


class Test(Checker):
    """Runs the public tests, and has the model repair a program that fails."""

    name = "Test"
    inputs = ("problem", "entry_point", "tests", "solution")
    summary = "runs the public tests on the code"
    instruction = "Run the public tests on the code. If one fails, say which and why, and repair the code."
    form = PROGRAM_FORM
    meets = frozenset({"checker", "tests", "code"})
    odds = CheckerOdds({}, runs_tests=True)

    def run(self, model: Model, inputs: Mapping[str, Input]) -> Value:
        """Return the verdict of the tests, with the repaired program if there is one."""
        solution, function = inputs["solution"], str(inputs["entry_point"])
        tests = cast("tuple[str, ...]", inputs["tests"])
        if not tests:
            raise OperatorFailed("there are no public tests to run")
        if not isinstance(solution, Value):
            raise OperatorFailed("there is no single solution to test")
        code = solution.code or _program_in(solution.text, function)
        if not code:
            raise OperatorFailed("the solution holds no program to test")
        ran = model.run_code(Execution(code, function, tests))
        if ran.status == "ok":
            return Value(passed=True, notes="Every public test passed.")
        first, conversation = ran, model.messages()
        conversation[-1] = message("user", f"{conversation[-1]['content']}\n\n## What the tests found\n{ran.problem}")
        for _ in range(model.repairs):
            if ran.status == "error":
                break
            reply = model.ask(conversation)
            code = _program_in(reply, function)
            if not code:
                break  # the verdict stays as it is
            ran = model.run_code(Execution(code, function, tests))
            if ran.status == "ok":
                notes = f"Repaired; every public test passes now. Before: {first.problem}"
                return Value(code=code, passed=True, notes=notes, data=solution.data)
            conversation = repair_request(conversation, reply, ran.problem)
        if ran.status == "error":
            raise OperatorFailed(f"the tests could not be run: {ran.problem}")
        return Value(passed=False, notes=first.problem)


class Review(Checker):
    """Reads the solution."""

    name = "Review"
    summary = "reads the solution critically and says what is wrong with it"
    instruction = "Read the solution critically. Say whether it answers the problem, and name each fault you find."
    odds = CheckerOdds(
        chances(
            slip=0.1, nuance=0.25, trap=0.94, omission=0.3, part=0.1, wobble=0.08, edge=0.1, corner=0.94, hop=0.3,
            distraction=0.1,
        ),
        demands=chances(convention=0.95),
    )  # fmt: skip


class Verify(Checker):
    """Solves the problem again."""

    name = "Verify"
    summary = "solves the problem again by itself and compares"
    instruction = "Solve the problem again on your own, compare with the solution, and say whether they agree."
    odds = CheckerOdds(
        chances(
            slip=0.72, nuance=0.1, trap=0.1, omission=0.3, part=0.1, wobble=0.08, edge=0.3, corner=0.08, hop=0.3,
            distraction=0.94,
        ),
        demands=chances(belief=0.95),
    )  # fmt: skip


def _program_in(text: str, function: str) -> str:
    """Return the program in a text, or an empty text."""
    try:
        return read_program(text, function)
    except OperatorFailed:
        return ""


class Revise(Reviser):
    """Corrects what the last checker found."""

    name = "Revise"
    summary = "rewrites the solution with the notes of the last checker"
    instruction = "Rewrite the solution so that every fault in the notes is gone. Change nothing that is right."
    form = "Give the whole new solution, without a word on what you changed."
    meets = frozenset({"solver"})
    odds = ReviserOdds(
        chances(
            slip=0.95, nuance=0.6, trap=0.95, omission=0.35, part=0.1, wobble=0.3, edge=0.95, corner=0.95, hop=0.35,
            distraction=0.95,
        ),
    )  # fmt: skip

    def run(self, model: Model, inputs: Mapping[str, Input]) -> Value:
        """Return the new solution. A program stays a program, and runs again if the old one was run."""
        (solution, *others) = solutions(inputs["solution"])
        if others or not solution.code:
            return Value(text=model.ask())
        function = solution.data.get("function") if isinstance(solution.data, dict) else None
        if function is None:  # it was never run
            return Value(code=read_program(model.ask(form=PROGRAM_FORM)), data=solution.data)
        return written(model.messages(form=PROGRAM_FORM), model, function)


class Format(Reviser):
    """Reduces the solution to its answer."""

    name = "Format"
    inputs = ("problem", "solution")
    summary = "cuts the solution down to the answer"
    instruction = "Give only the final answer that the solution arrives at, as short as the problem allows."
    form = "Give the final answer alone: no sentence around it, no explanation."
    meets = frozenset({"format"})
    odds = ReviserOdds(None)

    def run(self, model: Model, inputs: Mapping[str, Input]) -> Value:
        """Return the answer, or the program if the solution is one without output."""
        (solution, *others) = solutions(inputs["solution"])
        if others or not solution.code or solution.text:
            return Value(text=model.ask())
        return Value(code=read_program(model.ask(form=PROGRAM_FORM)), data=solution.data)


_CHOICE = "Compare briefly, then end with one line `Choice: N`, where N is the number of a candidate."


class ScEnsemble(Ensemble):
    """Chooses once."""

    name = "ScEnsemble"
    summary = "picks the most consistent of several solutions"
    instruction = "Compare the candidates and give the one that most of them support."
    form = _CHOICE
    odds = EnsembleOdds("text")

    def run(self, model: Model, inputs: Mapping[str, Input]) -> Value:
        """Return the candidate that the model chooses; a single one is returned without asking."""
        candidates = solutions(inputs["candidates"])
        place = read_choice(model.ask(), len(candidates)) if len(candidates) > 1 else 0
        return _solution(candidates[place])


class MdEnsemble(Ensemble):
    """Votes several times."""

    name = "MdEnsemble"
    summary = "picks one of several solutions by repeated votes over shuffled lists"
    instruction = "Vote for the best candidate several times, in changing orders, and give the winner."
    form = _CHOICE
    odds = EnsembleOdds("meaning")

    def run(self, model: Model, inputs: Mapping[str, Input]) -> Value:
        """Return the candidate with the most votes; ties go to the earlier one."""
        candidates = solutions(inputs["candidates"])
        chance = model.chance("canvas votes")
        votes: Counter[int] = Counter()
        while len(candidates) > 1 and votes.total() < VOTES and max(votes.values(), default=0) <= VOTES // 2:
            order = chance.sample(range(len(candidates)), len(candidates))
            reply = model.ask(candidates=tuple(candidates[place] for place in order))
            votes[order[read_choice(reply, len(candidates))]] += 1
        return _solution(candidates[max(range(len(candidates)), key=lambda place: (votes[place], -place))])


class Aggregate(Ensemble):
    """Combines the results of branches."""

    name = "Aggregate"
    inputs = ("problem", "pieces", "candidates")
    summary = "combines the results of branches into one answer"
    instruction = "Combine the results into one answer to the whole problem."
    meets = frozenset({"solver"})
    odds = EnsembleOdds("pieces")

    def run(self, model: Model, inputs: Mapping[str, Input]) -> Value:
        """Return one answer, or one program if all candidates are programs without output."""
        candidates = solutions(inputs["candidates"])
        if all(candidate.code and not candidate.text for candidate in candidates):
            return Value(code=read_program(model.ask(form=PROGRAM_FORM)))
        return Value(text=model.ask())


def _solution(candidate: Value) -> Value:
    return replace(candidate, items=(), passed=None, notes="")

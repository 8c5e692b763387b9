"""The standard solvers."""

from __future__ import annotations

from collections.abc import Mapping

from agentgym_flow.envs.canvas.operators import replies
from agentgym_flow.envs.canvas.operators.base import Solver
from agentgym_flow.envs.canvas.operators.calls import Input, Value
from agentgym_flow.envs.canvas.operators.model import PROGRAM_FORM, Model, written
from agentgym_flow.envs.canvas.operators.odds import SolverOdds, chances

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
        return Value(text=replies.answer(model.ask()))


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
        return Value(code=replies.program(model.ask(), str(inputs["entry_point"])))

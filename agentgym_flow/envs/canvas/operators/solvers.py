"""Operators that make a solution."""

from __future__ import annotations

from collections.abc import Mapping

from agentgym_flow.envs.canvas.operators import replies
from agentgym_flow.envs.canvas.operators.base import Solver
from agentgym_flow.envs.canvas.operators.calls import Input, Value
from agentgym_flow.envs.canvas.operators.model import (
    PROGRAM_FORM,
    Model,
    written,
)
from agentgym_flow.envs.canvas.operators.odds import Mistake, SolverOdds

FUNCTION = "solve"
"""The function that gives the answer where none is asked for by name."""

_CODE_INPUTS = ("problem", "entry_point", "plan", "pieces", "previous")


class Programmer(Solver):
    """Writes a program and runs it; one that fails is given back to be repaired."""

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
        {
            Mistake.SLIP: 0.00,
            Mistake.NUANCE: 0.90,
            Mistake.TRAP: 0.85,
            Mistake.OMISSION: 0.80,
            Mistake.PART: 0.90,
            Mistake.WOBBLE: 0.53,
            Mistake.EDGE: 0.65,
            Mistake.CORNER: 0.85,
            Mistake.HOP: 0.95,
            Mistake.DISTRACTION: 0.95,
        },
        beyond=frozenset({"qa"}),
        program="run",
    )

    def run(self, model: Model, inputs: Mapping[str, Input]) -> Value:
        """Return a program that runs, with its result where no function is asked for by name."""
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
        {
            Mistake.SLIP: 0.65,
            Mistake.NUANCE: 0.06,
            Mistake.TRAP: 0.85,
            Mistake.OMISSION: 0.80,
            Mistake.PART: 0.90,
            Mistake.WOBBLE: 0.53,
            Mistake.EDGE: 0.85,
            Mistake.CORNER: 0.85,
            Mistake.HOP: 0.70,
            Mistake.DISTRACTION: 0.75,
        },
        wordy=True,
    )


class AnswerGenerate(Solver):
    """Thinks, then gives the answer alone."""

    name = "AnswerGenerate"
    summary = "thinks step by step and gives a short final answer"
    instruction = "Think step by step about the problem, then give the final answer alone."
    form = "Think first, then give the final answer alone between <answer> and </answer>."
    odds = SolverOdds(
        {
            Mistake.SLIP: 0.55,
            Mistake.NUANCE: 0.90,
            Mistake.TRAP: 0.85,
            Mistake.OMISSION: 0.80,
            Mistake.PART: 0.90,
            Mistake.WOBBLE: 0.53,
            Mistake.EDGE: 0.90,
            Mistake.CORNER: 0.90,
            Mistake.HOP: 0.10,
            Mistake.DISTRACTION: 0.75,
        },
        beyond=frozenset({"code"}),
    )

    def run(self, model: Model, inputs: Mapping[str, Input]) -> Value:
        """Return what stands in the answer tag of the reply."""
        return Value(text=replies.answer(model.ask()))


class CustomCodeGenerate(Solver):
    """Writes a program and does not run it. The published rules of `finish` do not count it as a solver."""

    name = "CustomCodeGenerate"
    inputs = _CODE_INPUTS
    outputs = ("text", "code")
    summary = "writes code and does not run it"
    instruction = "Write the Python function that is asked for. Give the code alone."
    form = PROGRAM_FORM
    meets = frozenset()
    odds = SolverOdds(
        {
            Mistake.SLIP: 0.00,
            Mistake.NUANCE: 0.85,
            Mistake.TRAP: 0.85,
            Mistake.OMISSION: 0.80,
            Mistake.PART: 0.90,
            Mistake.WOBBLE: 0.53,
            Mistake.EDGE: 0.65,
            Mistake.CORNER: 0.85,
            Mistake.HOP: 0.95,
            Mistake.DISTRACTION: 0.95,
        },
        beyond=frozenset({"arithmetic", "qa"}),
        program="written",
    )

    def run(self, model: Model, inputs: Mapping[str, Input]) -> Value:
        """Return the program of the reply."""
        return Value(code=replies.program(model.ask(), str(inputs["entry_point"])))

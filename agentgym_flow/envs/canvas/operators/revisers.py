"""The standard revisers."""

from __future__ import annotations

from collections.abc import Mapping

from agentgym_flow.envs.canvas.operators import replies
from agentgym_flow.envs.canvas.operators.base import Reviser
from agentgym_flow.envs.canvas.operators.calls import Input, Value
from agentgym_flow.envs.canvas.operators.model import PROGRAM_FORM, Model, solutions, written
from agentgym_flow.envs.canvas.operators.odds import ReviserOdds, chances


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
            return Value(code=replies.program(model.ask(form=PROGRAM_FORM)), data=solution.data)
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
        return Value(code=replies.program(model.ask(form=PROGRAM_FORM)), data=solution.data)

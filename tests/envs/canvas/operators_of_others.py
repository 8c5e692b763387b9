"""Operators of another package: with odds for the simulator, and without."""

from __future__ import annotations

from collections.abc import Mapping

from agentgym_flow.envs.canvas.operators import Checker, Ensemble, Solver
from agentgym_flow.envs.canvas.operators.base import CheckerOdds, Mistake, SolverOdds
from agentgym_flow.envs.canvas.operators.calls import Input, Model, Value


class Debate(Solver):
    """Argues twice, and answers."""

    name = "Debate"
    summary = "argues for and against, then answers"
    instruction = "Argue for and against each possible answer."
    odds = SolverOdds({Mistake.TRAP: 0.05, Mistake.NUANCE: 0.05})

    def run(self, model: Model, inputs: Mapping[str, Input]) -> Value:
        arguments = model.ask(form="Give the arguments alone.")
        return Value(text=model.ask(form="Give the answer alone.", previous=Value(text=arguments)))


class Doubt(Checker):
    """Only its name and its words are new."""

    name = "Doubt"
    summary = "looks for a reason why the solution is wrong"
    instruction = "Find a reason why the solution is wrong."
    odds = CheckerOdds(dict.fromkeys(Mistake, 0.9))


class Jury(Ensemble):
    """Needs three candidates, and nobody knows what the simulator should make of it."""

    name = "Jury"
    summary = "lets a jury decide"
    instruction = "Decide as a jury would."
    branches = 3

"""The standard ensembles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from agentgym_flow.envs.canvas.operators import replies
from agentgym_flow.envs.canvas.operators.base import Ensemble
from agentgym_flow.envs.canvas.operators.calls import Input, Value
from agentgym_flow.envs.canvas.operators.model import PROGRAM_FORM, Model, solutions
from agentgym_flow.envs.canvas.operators.odds import VOTES, EnsembleOdds

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
        place = replies.choice(model.ask(), len(candidates)) if len(candidates) > 1 else 0
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
            votes[order[replies.choice(reply, len(candidates))]] += 1
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
            return Value(code=replies.program(model.ask(form=PROGRAM_FORM)))
        return Value(text=model.ask())


def _solution(candidate: Value) -> Value:
    return replace(candidate, items=(), passed=None, notes="")

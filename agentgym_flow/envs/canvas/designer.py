"""A script that designs a workflow for the task at hand: reads it, picks a solver, has the solution checked and mended.

It reads the task and what the feedback shows, and nothing hidden; when a check does not pass it adds what mends, and it
tries another solver when one fails. `docs/canvas.md` has its figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_flow.envs.canvas.actions.kinds import Action, Add, Delete, Finish
from agentgym_flow.envs.canvas.actions.reading import write_action
from agentgym_flow.envs.canvas.cues import Cues, cues_of
from agentgym_flow.envs.canvas.finishing import is_long
from agentgym_flow.envs.canvas.language import Language
from agentgym_flow.envs.canvas.operators import CHECKERS, ENSEMBLES, OPERATORS, STANDARD, Role, of_role
from agentgym_flow.envs.canvas.proposals import TRIES, mending, sharing, voting
from agentgym_flow.envs.canvas.workflow.nodes import Loop, Node, OperatorNode

MOST_CHECKS = 2
"""A checker is added at most so often."""

_SOLVERS: Mapping[str, tuple[str, ...]] = {
    "arithmetic": ("Programmer", "AnswerGenerate", "Custom"),
    "code": ("Programmer", "CustomCodeGenerate", "Custom"),
    "qa": ("AnswerGenerate", "Custom"),
}
_CHECKERS: Mapping[str, tuple[str, ...]] = {
    "arithmetic": ("Verify", "Review"),
    "code": ("Test", "Review"),
    "qa": ("Verify", "Review"),
}
_GATHERERS: Mapping[str, tuple[str, ...]] = {
    "arithmetic": ("ScEnsemble", "Aggregate", "MdEnsemble"),
    "code": ("ScEnsemble", "Aggregate", "MdEnsemble"),
    "qa": ("MdEnsemble", "ScEnsemble", "Aggregate"),
}


def next_edit(problem: str, told: Mapping[str, Any], left: int) -> Action:
    """Return the next edit of a workflow, or its end.

    Args:
        problem: the task as it is shown.
        told: the workflow and its last run; see `summary.summary`.
        left: the turns that are left, this one included.
    """
    cues, usable = cues_of(problem), told["usable"]
    solvers = [name for name in (*_order(cues), *_others(Role.SOLVER, usable)) if name in usable]
    if left <= 1:
        return Finish()
    if told["failed"] and told["failed"][-1][1] in solvers and not told["results"]:
        return Delete(f"node_{len(told['graph'])}")
    node = _next_node(cues, told, [name for name in solvers if name not in _failed(told)] or solvers)
    if node is None and told["missing"]:
        node = _needed(told["missing"], told, solvers)
    return Finish() if node is None else Add(node)


def _needed(missing: Sequence[str], told: Mapping[str, Any], solvers: Sequence[str]) -> Node:
    """Return something that finishing still asks for."""
    words, usable = missing[0], told["usable"]
    for name in ("Format", "Test", "Programmer"):
        if words.startswith(name) and name in usable:
            return OperatorNode(name)
    if words.startswith("a solver") and solvers:
        return OperatorNode(solvers[0])
    checker = next((name for name in (*CHECKERS, *_others(Role.CHECKER, usable)) if name in usable), "")
    if checker and "Revise" in usable:
        return mending(checker)
    harmless = OperatorNode(checker or ("Format" if "Format" in usable else usable[0]))
    return Loop((harmless,), 1) if "loop" in words else harmless


def _order(cues: Cues) -> Sequence[str]:
    """Return the solvers, the most fitting first."""
    if cues.endless:
        return "CustomCodeGenerate", "Custom", "Programmer"
    if cues.twist and not cues.numbers:
        return "Custom", "AnswerGenerate", "Programmer"
    return _SOLVERS[cues.family]


def _others(role: Role, usable: Sequence[str]) -> tuple[str, ...]:
    """Return the operators of a role that no rule of thumb is about: those that are not standard."""
    return of_role(role, tuple([name for name in usable if name not in STANDARD]))


def _failed(told: Mapping[str, Any]) -> set[str]:
    return {operator for _, operator, _ in told["failed"]}


def _next_node(cues: Cues, told: Mapping[str, Any], solvers: Sequence[str]) -> Node | None:
    """Return what to add next; None when nothing more would help."""
    has, usable = told["counts"], told["usable"]
    if not any(name in has for name in solvers) and solvers:
        if cues.parts and {"Decompose", "Aggregate"} <= set(usable):
            return sharing(solvers[0]) if "Decompose" in has else OperatorNode("Decompose")
        if cues.accounts:
            return voting(solvers[0])
        if cues.steps and "Plan" in usable and "Plan" not in has:
            return OperatorNode("Plan")
        return OperatorNode(solvers[0], cues.warning)
    if told["results"] > 1:
        gatherers = ("Aggregate",) if "Decompose" in has else _GATHERERS[cues.family]
        known = (*gatherers, *ENSEMBLES, *_others(Role.ENSEMBLE, usable))
        gather = next((name for name in known if name in usable), "")
        if gather:
            return OperatorNode(gather)
    return _next_check(cues, told) or _ending(told)


def _next_check(cues: Cues, told: Mapping[str, Any]) -> Node | None:
    """Return a check with what mends; None when all have passed, or have been tried twice."""
    has, usable = told["counts"], told["usable"]
    for checker in (*_CHECKERS[cues.family], *_others(Role.CHECKER, usable)):
        if checker not in usable or (cues.accounts and checker != "Test"):
            continue
        verdicts = [passed for _, operator, passed, _ in told["checks"] if operator == checker]
        if checker in _failed(told):  # it cannot work on this solution
            continue
        if has.get(checker, 0) < MOST_CHECKS and (not verdicts or not verdicts[-1]):
            return _mending(checker, told)
    return None


def _mending(checker: str, told: Mapping[str, Any]) -> Node:
    """Return a check that has the solution revised until it passes, as far as the language allows that."""
    if "Revise" not in told["usable"]:
        return OperatorNode(checker)
    return Loop((mending(checker),), TRIES) if told["nesting"] else mending(checker)


def _ending(told: Mapping[str, Any]) -> Node | None:
    """Return what cuts the result down to the answer, where it is more than that."""
    wanted = is_long(told["result"]) and "Format" in told["usable"] and "Format" not in told["counts"]
    return OperatorNode("Format") if wanted else None


class Designer:
    """Designs a workflow by rules of thumb. Reads the goal, `info["workflow"]` and the turns left."""

    name = "scripted"

    def act(self, views: Sequence[Any]) -> list[Any]:
        """Return one move per view, each a function of what its episode has shown."""
        from agentgym_flow.policies.base import Move

        return [Move(_action(view)) for view in views]


def _action(view: Any) -> str:
    left = view.episode.max_steps - len(view.episode.turns)
    told = view.info["workflow"]
    if told["asked"] and left > 1:
        return OPERATORS[told["asked"]].instruction
    return write_action(next_edit(view.info["goal"], told, left), Language(first_case=told["first_case"]))

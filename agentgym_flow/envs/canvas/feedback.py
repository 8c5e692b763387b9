"""What is reported of a workflow and its run: the feedback after a turn as text, and the same as plain data for `info`.

Texts that operators made are shown cut and in one line, so that nothing in them can pass for a line of ours. Hints are
an expert of a few rules; they give much of the task away, and can be left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from agentgym_flow.envs.canvas.actions.drafting import Drafting, TurnResult
from agentgym_flow.envs.canvas.operators import OPERATORS, Role, of_role
from agentgym_flow.envs.canvas.workflow.graph import Chain, Loop, OperatorNode, Workflow
from agentgym_flow.envs.canvas.workflow.plain import NOTES_LENGTH, one_line, plain_graph, plain_run
from agentgym_flow.envs.canvas.workflow.rules import Circumstances, Language, is_long
from agentgym_flow.envs.canvas.workflow.run import RunStep, WorkflowRun
from agentgym_flow.envs.canvas.workflow.text import to_text

RESULT_LENGTH = 300
"""Characters of a result that are shown, as published."""


@dataclass(frozen=True, slots=True)
class Feedback:
    """How feedback is written.

    Attributes:
        drafting: the rules that hold; the finish rules that are not met yet are always shown.
        hints: whether it says what to do next.
    """

    drafting: Drafting
    hints: bool = True

    def text(
        self, turn: TurnResult, run: WorkflowRun | None, circumstances: Circumstances | None = None, left: int = -1
    ) -> str:
        """Return the feedback on a turn.

        Args:
            turn: what came of it.
            run: the last run of the workflow as it is now; None when there is none.
            circumstances: what the finish rules look at.
            left: how many turns are left; negative for no word about it.
        """
        workflow = turn.draft.workflow
        lines = [_status(turn, self.drafting)]
        if turn.repairs:
            lines.append(f"Overlooked in what you wrote: {', '.join(dict.fromkeys(r.kind for r in turn.repairs))}")
        lines += graph_lines(workflow, self.drafting.language)
        if run is not None and run.steps:
            lines += run_lines(run)
        lacks = self.drafting.finish.missing(workflow.statistics, circumstances)
        if not turn.finished:
            lines.append(f"Needed before finish: {'; '.join(lacks) or 'nothing more'}")
        if self.hints and not turn.finished:
            hint = hint_for(turn, run, self.drafting, circumstances or Circumstances(), lacks)
            lines += [f"Hint: {hint}"] if hint else []
        if left >= 0 and not turn.finished:
            lines.append(f"Turns left: {left}")
        return "\n".join(lines)


def _status(turn: TurnResult, drafting: Drafting) -> str:
    if turn.reason:
        return f"Refused: {turn.reason}"
    if turn.finished:
        return "Finished: the workflow is handed in."
    asked = turn.draft.asked
    if asked is not None:
        return f"Waiting: write the prompt for {asked.name}, which {drafting.offer.descriptions[asked.name]}."
    return "Done."


def graph_lines(workflow: Workflow, language: Language) -> list[str]:
    """Return the workflow in a line, its nodes with their ids, one a line, and its counts in a line."""
    if not workflow.nodes:
        return ["Workflow: (empty)"]
    counted = workflow.statistics
    kinds = ", ".join(f"{name} {count}" for name, count in counted.kinds.items())
    structures = f"parallel {counted.parallel}, conditional {counted.conditional}, loop {counted.loop}"
    return [
        f"Workflow: {_in_a_line(workflow.nodes, language)}",
        "Nodes:",
        *(f"{'  ' * (len(place.path) // 2 + 1)}{place.id}: {_named(place.node)}" for place in workflow.places.values()),
        f"Counts: {counted.operators} operators ({kinds}); {structures}; depth {counted.depth}; at most"
        f" {counted.most_calls} calls",
    ]


@lru_cache(maxsize=1 << 8)  # feedback and `info` of a turn both say it
def _in_a_line(nodes: Chain, language: Language) -> str:
    return to_text(nodes, language, instructions=False)


def _named(node: object) -> str:
    match node:
        case OperatorNode(name, instruction):
            return f'{name} "{one_line(instruction, NOTES_LENGTH)}"' if instruction else name
        case Loop(_, count):
            return f"loop, {count} times"
        case _:
            return str(getattr(node, "kind", ""))


def _checks(step: RunStep) -> bool:
    return OPERATORS[step.operator].role is Role.CHECKER


def run_lines(run: WorkflowRun) -> list[str]:
    """Return what a run brought: checks, failures and the result, one a line."""
    lines = []
    for step in run.steps:
        where = f"{step.id.place} {step.operator}" + (f", time {step.id.attempt + 1}" if step.id.attempt else "")
        value = step.result.value
        if value is None:
            lines.append(f"Failed: {where}: {one_line(step.result.text or step.result.status, NOTES_LENGTH)}")
        elif _checks(step):
            notes = f": {one_line(value.notes, NOTES_LENGTH)}" if value.notes else ""
            lines.append(f"Check: {where}: {'passed' if value.passed else 'did not pass'}{notes}")
    if not run.results:
        return [*lines, "Result: none"]
    if len(run.results) == 1:
        return [*lines, f"Result: {one_line(run.answer, RESULT_LENGTH)}"]
    each = RESULT_LENGTH // len(run.results) + 20
    shown = (f"({n}) {one_line(value.text or value.code, each)}" for n, value in enumerate(run.results, 1))
    return [*lines, f"Result: {len(run.results)} that nothing has gathered: {' '.join(shown)}"]


def hint_for(
    turn: TurnResult, run: WorkflowRun | None, drafting: Drafting, circumstances: Circumstances, lacks: Sequence[str]
) -> str:
    """Return what a person with some experience would do next; empty while a prompt is asked for.

    Args:
        turn: what came of the last turn.
        run: the last run of the workflow; None when there is none.
        drafting: the rules that hold.
        circumstances: what the finish rules look at.
        lacks: what finishing still asks for.
    """
    if turn.draft.waiting is not None:
        return ""
    counted = turn.draft.workflow.statistics
    kinds = counted.kinds
    usable, others = drafting.language.operators, drafting.offer.others
    solvers, checkers = drafting.finish.meeting("solver"), drafting.finish.meeting("checker")

    def first(*names: str) -> str:
        return next((name for name in names if name in usable), "")

    solver = first(*(("Programmer", "Custom") if circumstances.code else ("Custom", "Programmer")), *solvers)
    if solver and not any(name in kinds for name in solvers):
        return f"add a solver, such as {solver}"
    if run is not None and run.failures:
        failed = run.failures[-1]
        return f"{failed.id.place} failed; modify or delete it"
    gather = first("ScEnsemble", "Aggregate", *of_role(Role.ENSEMBLE, others))
    if run is not None and len(run.results) > 1 and gather:
        return f"gather the branches, with {gather} for instance"
    checker = first(*(("Test",) if circumstances.tests else ()), "Verify", "Review", *of_role(Role.CHECKER, others))
    if checker and not any(name in kinds for name in checkers):
        return f"have the solution checked, by {checker} for instance"
    if run is not None and _unheard(run, solvers) and first("Revise"):
        return "a check did not pass; add Revise after it, or put it into a conditional that revises"
    if is_long(circumstances.result) and "Format" not in kinds and first("Format"):
        return "the result is more than an answer; add Format"
    return f"add what finish needs: {lacks[0]}" if lacks else "finish"


def _unheard(run: WorkflowRun, solvers: Sequence[str]) -> bool:
    """Return whether the last check did not pass and nothing worked on the solution after it."""
    last = next((n for n, step in reversed(list(enumerate(run.steps))) if _checks(step)), None)
    if last is None or not run.steps[last].ok:
        return False
    value = run.steps[last].result.value
    later = {step.operator for step in run.steps[last + 1 :]}
    return value is not None and not value.passed and not later & {"Revise", *solvers}


def summary(
    workflow: Workflow, drafting: Drafting, run: WorkflowRun | None, about: Circumstances, *, finished: bool
) -> dict[str, Any]:
    """Return everything that can be reported of a workflow without the answer, fresh and JSON-able.

    Args:
        workflow: the workflow.
        drafting: the rules it is made by.
        run: its last run; None when it has none.
        about: what the finish rules look at.
        finished: whether it was handed in.
    """
    counted, language = workflow.statistics, drafting.language
    steps = run.steps if run is not None else ()
    return {
        "text": _in_a_line(workflow.nodes, language),
        "graph": plain_graph(workflow.nodes),
        "run": [] if run is None else plain_run(run),
        "operators": [place.node.name for place in workflow.places.values() if isinstance(place.node, OperatorNode)],
        "counts": dict(counted.kinds),
        "structures": {"parallel": counted.parallel, "conditional": counted.conditional, "loop": counted.loop},
        "depth": counted.depth,
        "finished": finished,
        "missing": drafting.finish.missing(counted, about),
        "usable": list(language.operators),
        "descriptions": dict(drafting.offer.descriptions),
        "meets": {need: list(names) for need, names in drafting.offer.meets.items()},
        "nesting": language.nesting,
        "prompting": drafting.prompting,
        "first_case": language.first_case,
        "ran": [step.operator for step in steps if step.ok],
        "checks": [_check(step) for step in steps if step.ok and OPERATORS[step.operator].role is Role.CHECKER],
        "failed": [_failure(step) for step in steps if not step.ok],
        "results": len(run.results) if run is not None else 0,
        "result": one_line(run.answer, RESULT_LENGTH) if run is not None else "",
        "calls": len(steps),
    }


def _check(step: RunStep) -> list[Any]:
    """Return the place, the operator, the verdict and the notes of a check."""
    value = step.result.value
    assert value is not None, "a call that worked has a value"
    return [step.id.place, step.operator, bool(value.passed), one_line(value.notes, NOTES_LENGTH)]


def _failure(step: RunStep) -> list[str]:
    """Return the place, the operator and what is said of a call that failed."""
    return [step.id.place, step.operator, one_line(step.result.text or step.result.status, NOTES_LENGTH)]

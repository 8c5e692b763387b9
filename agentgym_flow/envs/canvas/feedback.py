"""Reports on a workflow and its run: the feedback after a turn as text, and plain data for `info`.

Texts of operators are shortened and shown in one line, so they cannot imitate other lines of the feedback. Hints follow
a few expert rules; they reveal much about the task, and can be disabled.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from agentgym_flow.envs.canvas.drafting import Drafting, TurnResult
from agentgym_flow.envs.canvas.operators import OPERATORS, Role, of_role
from agentgym_flow.envs.canvas.workflow import Chain, Loop, OperatorNode, Workflow
from agentgym_flow.envs.canvas.workflow.rules import Circumstances, Language, is_long
from agentgym_flow.envs.canvas.workflow.run import NOTES_LENGTH, RunStep, WorkflowRun, one_line, plain_graph, plain_run
from agentgym_flow.envs.canvas.workflow.text import to_text

RESULT_LENGTH = 300
"""The maximum number of characters shown of a result, as published."""


def feedback_text(
    drafting: Drafting,
    turn: TurnResult,
    run: WorkflowRun | None,
    circumstances: Circumstances | None = None,
    *,
    hints: bool = True,
    left: int = -1,
) -> str:
    """Return the feedback on a turn.

    Args:
        drafting: the rules of turns; unmet requirements of `finish` are always shown.
        turn: its outcome.
        run: the last run of the current workflow, or None.
        circumstances: the facts for the finish rules.
        hints: whether to suggest the next edit.
        left: the number of turns left; not shown if negative.
    """
    workflow = turn.draft.workflow
    lines = [_status(turn, drafting)]
    if turn.repairs:
        lines.append(f"Overlooked in what you wrote: {', '.join(dict.fromkeys(r.kind for r in turn.repairs))}")
    lines += graph_lines(workflow, drafting.language)
    if run is not None and run.steps:
        lines += run_lines(run)
    if turn.finished:
        return "\n".join(lines)
    lacks = drafting.finish.missing(workflow.statistics, circumstances)
    lines.append(f"Needed before finish: {'; '.join(lacks) or 'nothing more'}")
    if hints and (hint := hint_for(turn, run, drafting, circumstances or Circumstances(), lacks)):
        lines.append(f"Hint: {hint}")
    if left >= 0:
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
    """Return lines with the workflow, its nodes with their ids, and its counts."""
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


@lru_cache(maxsize=1 << 8)  # feedback and `info` of a turn both contain it
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


def _is_check(step: RunStep) -> bool:
    return OPERATORS[step.operator].role is Role.CHECKER


def run_lines(run: WorkflowRun) -> list[str]:
    """Return lines with the checks, failures and results of a run."""
    lines = []
    for step in run.steps:
        where = f"{step.id.place} {step.operator}" + (f", time {step.id.attempt + 1}" if step.id.attempt else "")
        value = step.result.value
        if value is None:
            lines.append(f"Failed: {where}: {one_line(step.result.text or step.result.status, NOTES_LENGTH)}")
        elif _is_check(step):
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
    """Return the next edit that an experienced person would make; empty while a prompt is requested.

    Args:
        turn: the outcome of the last turn.
        run: the last run of the workflow, or None.
        drafting: the rules of turns.
        circumstances: the facts for the finish rules.
        lacks: the unmet requirements of `finish`.
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
    """Return whether the last check did not pass and no operator worked on the solution after it."""
    last = next((n for n, step in reversed(list(enumerate(run.steps))) if _is_check(step)), None)
    if last is None or not run.steps[last].ok:
        return False
    value = run.steps[last].result.value
    later = {step.operator for step in run.steps[last + 1 :]}
    return value is not None and not value.passed and not later & {"Revise", *solvers}


def summary(
    workflow: Workflow, drafting: Drafting, run: WorkflowRun | None, about: Circumstances, *, finished: bool
) -> dict[str, Any]:
    """Return a new JSON-able report on a workflow, without the right answer.

    Args:
        workflow: the workflow.
        drafting: the rules of turns.
        run: its last run, or None.
        about: the facts for the finish rules.
        finished: whether it was submitted.
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
        "checks": [
            [step.id.place, step.operator, bool(value.passed), one_line(value.notes, NOTES_LENGTH)]
            for step in steps
            if (value := step.result.value) is not None and _is_check(step)
        ],
        "failed": [
            [step.id.place, step.operator, one_line(step.result.text or step.result.status, NOTES_LENGTH)]
            for step in steps
            if not step.ok
        ],
        "results": len(run.results) if run is not None else 0,
        "result": one_line(run.answer, RESULT_LENGTH) if run is not None else "",
        "calls": len(steps),
    }

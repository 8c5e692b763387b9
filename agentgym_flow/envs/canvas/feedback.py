"""What a policy is shown after a turn: what came of it, the graph with every id, counts, results, and hints if wanted.

Texts that operators made are shown cut and in one line, so that nothing in them can pass for a line of ours. Hints are
an expert of a few rules; they give much of the task away, and can be left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentgym_flow.envs.canvas.drafting import Drafting, Turn
from agentgym_flow.envs.canvas.dsl import to_text
from agentgym_flow.envs.canvas.finishing import Circumstances, is_long
from agentgym_flow.envs.canvas.language import Language
from agentgym_flow.envs.canvas.operators import OPERATORS, Role, of_role
from agentgym_flow.envs.canvas.run import Run, Step
from agentgym_flow.envs.canvas.workflow.graph import Workflow
from agentgym_flow.envs.canvas.workflow.nodes import Loop, OperatorNode

RESULT_LENGTH = 300
"""Characters of a result that are shown, as published."""

NOTES_LENGTH = 150
"""Characters of an instruction or a checker's notes that are shown."""


@dataclass(frozen=True, slots=True)
class Feedback:
    """How feedback is written.

    Attributes:
        drafting: the rules that hold; the finish rules that are not met yet are always shown.
        hints: whether it says what to do next.
    """

    drafting: Drafting
    hints: bool = True

    def text(self, turn: Turn, run: Run | None, circumstances: Circumstances | None = None, left: int = -1) -> str:
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


def one_line(text: str, length: int) -> str:
    """Return `text` in one printable line of at most `length` characters."""
    line = " ".join(text[: 4 * length].split())
    shown = line if line.isprintable() else "".join(mark if mark.isprintable() else "?" for mark in line)
    return shown if len(shown) <= length and len(text) <= 4 * length else f"{shown[: length - 3]}..."


def _status(turn: Turn, drafting: Drafting) -> str:
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
        f"Workflow: {to_text(workflow.nodes, language, instructions=False)}",
        "Nodes:",
        *(f"{'  ' * (len(place.path) // 2 + 1)}{place.id}: {_named(place.node)}" for place in workflow.places.values()),
        f"Counts: {counted.operators} operators ({kinds}); {structures}; depth {counted.depth}; at most"
        f" {counted.most_calls} calls",
    ]


def _named(node: object) -> str:
    match node:
        case OperatorNode(name, instruction):
            return f'{name} "{one_line(instruction, NOTES_LENGTH)}"' if instruction else name
        case Loop(_, count):
            return f"loop, {count} times"
        case _:
            return str(getattr(node, "kind", ""))


def _checks(step: Step) -> bool:
    return OPERATORS[step.operator].role is Role.CHECKER


def run_lines(run: Run) -> list[str]:
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
    turn: Turn, run: Run | None, drafting: Drafting, circumstances: Circumstances, lacks: Sequence[str]
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


def _unheard(run: Run, solvers: Sequence[str]) -> bool:
    """Return whether the last check did not pass and nothing worked on the solution after it."""
    last = next((n for n, step in reversed(list(enumerate(run.steps))) if _checks(step)), None)
    if last is None or not run.steps[last].ok:
        return False
    value = run.steps[last].result.value
    later = {step.operator for step in run.steps[last + 1 :]}
    return value is not None and not value.passed and not later & {"Revise", *solvers}

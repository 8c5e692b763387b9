"""A workflow and its last run as plain data: what rewards, scripts and pictures read in `info["workflow"]`."""

from __future__ import annotations

from typing import Any

from agentgym_flow.envs.canvas.drafting import Drafting
from agentgym_flow.envs.canvas.dsl import to_text
from agentgym_flow.envs.canvas.feedback import NOTES_LENGTH, RESULT_LENGTH, one_line
from agentgym_flow.envs.canvas.finishing import Circumstances
from agentgym_flow.envs.canvas.operators import OPERATORS, Role
from agentgym_flow.envs.canvas.plain import plain_graph, plain_run
from agentgym_flow.envs.canvas.run import Run, Step
from agentgym_flow.envs.canvas.workflow.graph import Workflow
from agentgym_flow.envs.canvas.workflow.nodes import OperatorNode


def summary(
    workflow: Workflow, drafting: Drafting, run: Run | None, about: Circumstances, *, finished: bool
) -> dict[str, Any]:
    """Return everything that can be told of a workflow without the answer, fresh and JSON-able.

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
        "text": to_text(workflow.nodes, language, instructions=False) if workflow.nodes else "",
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


def _check(step: Step) -> list[Any]:
    """Return the place, the operator, the verdict and the notes of a check."""
    value = step.result.value
    assert value is not None, "a call that worked has a value"
    return [step.id.place, step.operator, bool(value.passed), one_line(value.notes, NOTES_LENGTH)]


def _failure(step: Step) -> list[str]:
    """Return the place, the operator and what is said of a call that failed."""
    return [step.id.place, step.operator, one_line(step.result.text or step.result.status, NOTES_LENGTH)]

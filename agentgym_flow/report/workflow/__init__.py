"""Pictures of workflows: the graph that a policy of Canvas builds, and what happened when it ran, as SVG or a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from agentgym_flow import __version__
from agentgym_flow.errors import BadSetting
from agentgym_flow.report.rendering import security_policy, source, templates
from agentgym_flow.report.workflow.data import operators, read_graph, read_run
from agentgym_flow.report.workflow.layout import Direction
from agentgym_flow.report.workflow.picture import WorkflowPicture, picture, said_of

__all__ = ["Direction", "WorkflowPicture", "workflow_html", "workflow_picture", "workflow_svg"]

STYLE = "workflow.css"
"""The style sheet that a page with pictures needs."""

Plain = Sequence[Mapping[str, Any]]
"""A graph or a run as plain data; `data.read_graph` and `data.read_run` say what is in it."""


def workflow_svg(graph: Plain, run: Plain | None = None, *, direction: Direction = "right") -> str:
    """Return the picture of a workflow as a standalone SVG document, light or dark as the reader's system is.

    Args:
        graph: the workflow, as Canvas has it in `info["workflow"]["graph"]`; it may be empty.
        run: the calls of a run, as in `info["workflow"]["run"]`; the picture says what ran, what the result depends on,
            what failed, and the verdicts of checks.
        direction: `"right"`, or `"down"` for a narrow page.

    Raises `BadSetting` when the data or the direction are not like that.
    """
    made = workflow_picture(graph, run, direction=direction)
    return templates().get_template("workflow.svg.j2").render(picture=made, style=Markup(source(STYLE)))


def workflow_html(
    graph: Plain, run: Plain | None = None, *, title: str = "Workflow", direction: Direction = "right"
) -> str:
    """Return the picture on a page that loads nothing, with every instruction whole in a table below it.

    The arguments, and what is raised, are those of `workflow_svg`; `title` is the heading.
    """
    made = workflow_picture(graph, run, direction=direction)
    calls = read_run(run or ())
    style = source("page.css", STYLE)
    return (
        templates()
        .get_template("workflow.html.j2")
        .render(
            title=title,
            version=__version__,
            policy=security_policy(style),
            style=Markup(style),
            picture=made,
            ran=run is not None,
            rows=[
                (operator, "\n".join(map(said_of, calls.get(operator.id, ()))) or "did not run")
                for operator in operators(read_graph(graph))
            ],
        )
    )


def workflow_picture(graph: Plain, run: Plain | None = None, *, direction: Direction = "right") -> WorkflowPicture:
    """Return what the templates draw. The arguments, and what is raised, are those of `workflow_svg`."""
    if direction not in ("right", "down"):
        raise BadSetting(f"direction is 'right' or 'down', got {direction!r:.40}")
    return picture(read_graph(graph), None if run is None else read_run(run), direction)

"""Pictures of Canvas workflows, and of the calls in a run of them, as SVG or as a page."""

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
"""A graph or a run as plain data, described in `data.read_graph` and `data.read_run`."""


def workflow_svg(graph: Plain, run: Plain | None = None, *, direction: Direction = "right") -> str:
    """Return the picture of a workflow as a standalone SVG document, light or dark like the reader's system.

    Args:
        graph: the workflow, as in Canvas's `info["workflow"]["graph"]`; it may be empty.
        run: the calls of a run, as in `info["workflow"]["run"]`. The picture then shows which operators ran, affected
            the result or failed, and the verdicts of checks.
        direction: `"right"`, or `"down"` for a narrow page.

    Raises `BadSetting` if the data or the direction is malformed.
    """
    made = workflow_picture(graph, run, direction=direction)
    return templates().get_template("workflow.svg.j2").render(picture=made, style=Markup(source(STYLE)))


def workflow_html(
    graph: Plain, run: Plain | None = None, *, title: str = "Workflow", direction: Direction = "right"
) -> str:
    """Return the picture on a self-contained page, with a table of all complete instructions below it.

    `title` is the heading. Other arguments and the errors are those of `workflow_svg`.
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
    """Return the data of the templates. The arguments and the errors are those of `workflow_svg`."""
    if direction not in ("right", "down"):
        raise BadSetting(f"direction is 'right' or 'down', got {direction!r:.40}")
    return picture(read_graph(graph), None if run is None else read_run(run), direction)

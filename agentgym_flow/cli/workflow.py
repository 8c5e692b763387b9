"""`agentgym-flow workflow`: draw a workflow given as one line of text, and check it against the rules of Canvas."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentgym_flow._util.files import check_new, write_atomically
from agentgym_flow.cli.console import printed, say, show_facts, stdout
from agentgym_flow.cli.options import Commands, Force
from agentgym_flow.errors import BadSetting, BadWorkflow

if TYPE_CHECKING:
    from agentgym_flow.envs.canvas.workflow import Chain
    from agentgym_flow.envs.canvas.workflow.rules import Language

app = Commands(help="Draw and check Canvas workflows, given as one line of text.", no_args_is_help=True)

Text = Annotated[
    str,
    typer.Argument(
        metavar="WORKFLOW", help="A workflow such as 'Plan -> [Custom, Programmer] -> Verify ? done : Revise'."
    ),
]
Published = Annotated[
    bool,
    typer.Option("--published", help="Use the published language: in `Verify ? A : B`, A runs if the check fails."),
]


@app.command("draw")
def draw(
    text: Text,
    out: Annotated[Path, typer.Option()],
    down: Annotated[bool, typer.Option("--down")] = False,
    published: Published = False,
    force: Force = False,
) -> None:
    """Draw a workflow as SVG or HTML. Size limits are not checked.

    Options:
        out: The file to write: .svg, or .html with a table of all instructions.
        down: Draw from top to bottom, for a narrow page.
    """
    from agentgym_flow.envs.canvas.workflow.run import plain_graph
    from agentgym_flow.report import workflow_html, workflow_svg

    ending = out.suffix.lower()
    if ending not in (".svg", ".html"):
        raise BadSetting(f"--out takes a name that ends in .svg or .html, got {out.name!r}")
    check_new(out, replace=force)
    graph = plain_graph(_read(text, _language(published)))
    picture = (workflow_svg if ending == ".svg" else workflow_html)(graph, direction="down" if down else "right")
    with write_atomically(out) as partial:
        partial.write_text(picture, "utf-8", newline="\n")
    say(str(out))


@app.command("check")
def check(text: Text, published: Published = False) -> None:
    """Show the parts of a workflow. Exits with status 0 if the language allows it, and with 1 if a rule forbids it.

    Exits with status 2 if the text cannot be parsed as a workflow.
    """
    from agentgym_flow.envs.canvas.workflow import statistics
    from agentgym_flow.envs.canvas.workflow.text import to_text

    rules = _language(published)
    nodes = _read(text, rules)
    counted = statistics(nodes)
    rows = {
        "read as": to_text(nodes, rules) or "(empty)",
        "operators": f"{counted.operators}"
        + (f" ({', '.join(f'{name} {count}' for name, count in counted.kinds.items())})" if counted.kinds else ""),
        "instructions": str(counted.instructions),
        "structures": f"parallel {counted.parallel}, conditional {counted.conditional}, loop {counted.loop}",
        "depth": str(counted.depth),
        "calls of a run": f"at most {counted.most_calls}",
    }
    show_facts(rows, style="bold")
    try:
        rules.check(nodes)
    except BadWorkflow as refusal:
        stdout().print("[red]refused:[/]", printed(str(refusal)), soft_wrap=True)
        raise typer.Exit(1) from None
    stdout().print("[green]can be built[/]")


def _language(published: bool) -> Language:
    from agentgym_flow.envs.canvas.operators import OPERATORS
    from agentgym_flow.envs.canvas.workflow.rules import PUBLISHED, Language

    return PUBLISHED if published else Language(operators=tuple(OPERATORS))  # also those of `--import`


def _read(text: str, language: Language) -> Chain:
    """Return the workflow of any size that a text describes. Raises `BadWorkflow` if the text is not a workflow."""
    from agentgym_flow.envs.canvas.workflow.text import Reader

    return Reader(language).chain_of(text) if text.strip() else ()

"""The program `agentgym-flow`: its commands, its options, and how it reports errors."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from agentgym_flow._util import __version__
from agentgym_flow._util.signals import wait_passively
from agentgym_flow.cli import (
    credit,
    data,
    dataflow,
    doctor,
    evaluate,
    exports,
    imports,
    leaderboard,
    logs,
    play,
    rescore,
    servers,
    simulate,
    train,
    validate,
    workflow,
)
from agentgym_flow.cli.console import printed, stderr
from agentgym_flow.cli.options import Commands
from agentgym_flow.errors import AgentGymFlowError

BAD_INPUT = 2
"""The exit status after an error that the message explains; 1 means that a check said no, 130 is Ctrl-C."""


class _Group(TyperGroup):
    """Prints errors of this package and of the file system as one line, without a traceback."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Accept `--import MODULE` anywhere on the command line, and the names of training settings in all commands."""
        if ctx.parent is None:
            args = [*_imports(args), *(args if "train" in args[:1] else _respelled(args))]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (AgentGymFlowError, OSError) as error:
            if ctx.params["traceback"] or isinstance(error, BrokenPipeError):
                raise
            _explain(error)
            raise typer.Exit(BAD_INPUT) from None


def _imports(args: list[str]) -> list[str]:
    """Remove `--import MODULE` and `--import=MODULE` from the arguments, and return them."""
    taken: list[str] = []
    place = 0
    while place < len(args) and args[place] != "--":
        width = 2 if args[place] == "--import" else int(args[place].startswith("--import="))
        taken += args[place : place + width]
        del args[place : place + width]
        place += not width
    return taken


SPELLINGS = {"--env_kwargs": "--env-arg", "--output_dir": "--out"}
"""Names of training settings, which `train` takes itself -> the options of the other commands."""


def _respelled(args: list[str]) -> list[str]:
    """Return the arguments with options in the documented spelling."""
    end = args.index("--") if "--" in args else len(args)
    words = (arg.partition("=") for arg in args[:end])
    return [*(SPELLINGS.get(name, name) + equals + value for name, equals, value in words), *args[end:]]


def _explain(error: Exception) -> None:
    sentence = str(error)
    if isinstance(error, OSError) and error.strerror is not None:
        # Files of ours have a name; what has none is the output.
        place = "cannot write the output" if error.filename is None else error.filename
        sentence = f"{place}: {error.strerror}"
    stderr().print("[bold red]error:[/]", printed(sentence), soft_wrap=True)
    _discard_unwritten()


def _discard_unwritten() -> None:
    """Discard buffered standard output that cannot be written; Python would try again at exit and fail."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        with suppress(OSError):  # a stream without a file
            output, nowhere = sys.stdout.fileno(), os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, output)
            os.close(nowhere)


app = Commands(
    cls=_Group,
    name="agentgym-flow",
    help="Environments, dense rewards and verifiable episodes for LLM agents.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"agentgym_flow {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    traceback: Annotated[
        bool, typer.Option("--traceback", help="Show the Python traceback of an error (for developers).")
    ] = False,
    modules: Annotated[
        list[str] | None,
        typer.Option(
            "--import",
            metavar="MODULE",
            help="Import a module that registers environments. Repeatable; can be given anywhere on the command line.",
        ),
    ] = None,
) -> None:
    """Take the options that all commands share; `version` and `traceback` are read elsewhere."""
    if ctx.invoked_subcommand == "validate":  # which imports in another process, within its time
        return
    for module in modules or ():
        from agentgym_flow.core import import_environments

        import_environments(module)


app.command("list")(doctor.list_envs)
app.command("play")(play.play)
app.command("demo")(doctor.demo)
app.command("evaluate")(evaluate.evaluate)
app.command("collect")(evaluate.collect)
app.command("train", context_settings=train.PASS_ON)(train.train)
app.command("explain")(train.explain)
app.command("push")(exports.push)
app.command("verify")(logs.verify)
app.command("import")(imports.import_)
app.command("compare")(logs.compare)
app.command("rescore")(rescore.rescore)
app.command("validate")(validate.validate)
app.command("view")(logs.view)
app.command("shop")(servers.shop)
app.command("mcp")(servers.mcp)
app.command("worker")(dataflow.worker)
app.command("doctor")(doctor.doctor)
app.command("submit")(leaderboard.submit)
app.add_typer(credit.app, name="credit")
app.add_typer(data.app, name="data")
app.add_typer(exports.app, name="export")
dataflow.app.command("evaluate")(dataflow.evaluate)
dataflow.app.command("simulate")(simulate.simulate)
dataflow.app.command("trace")(simulate.trace)
dataflow.app.command("serve")(dataflow.serve)
dataflow.app.command("status")(dataflow.status)
app.add_typer(dataflow.app, name="dataflow")
app.add_typer(leaderboard.app, name="leaderboard")
app.add_typer(servers.app, name="retriever")
app.add_typer(servers.harbor, name="harbor")
app.add_typer(workflow.app, name="workflow")


def main() -> None:
    """Run the program on the arguments of the process, and exit with its status."""
    wait_passively()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a board must not stop the program on a terminal that cannot show it
            stream.reconfigure(errors="replace")
    try:
        try:
            app(prog_name="agentgym-flow")
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:  # the reader has left, as `head` does
        _discard_unwritten()
        sys.exit(1)
    except OSError as error:  # help or a last line that cannot be written
        _explain(error)
        sys.exit(BAD_INPUT)

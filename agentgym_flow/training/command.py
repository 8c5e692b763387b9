"""A training run as a command: its exit status, errors in one line, and what an interrupted run says.

The baselines start with `command`; `agentgym-flow train` calls `run_command` after reading its own options.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from agentgym_flow._util.signals import exit_status
from agentgym_flow.errors import AgentGymFlowError, BadSetting, OtherProcessFailed
from agentgym_flow.play import console_here
from agentgym_flow.training.config import AgentConfig, Configs
from agentgym_flow.training.config_file import parse_configs
from agentgym_flow.training.models import quiet
from agentgym_flow.training.processes import leave
from agentgym_flow.training.recipe import run_to_resume, train
from agentgym_flow.training.results import Results
from agentgym_flow.training.run_folder import MANIFEST, checkpoints, is_finished
from agentgym_flow.training.warm_start import fit_demonstrations


def run_command(configs: Configs, console: Console, run: Callable[[Configs, Console], Results | None] = train) -> int:
    """Run `run` as a command. Return its exit status: 0, 1 if a log has problems, 130 or 143 after a signal.

    A finished run that is resumed has status 0. Raises what `run` raises.
    """
    console.quiet = console.quiet or os.environ.get("RANK", "0") != "0"  # several processes of a launcher
    if lowered := fit_demonstrations(configs[0], configs[1]):
        console.print(lowered, style="yellow", soft_wrap=True, markup=False)
    if configs[0].resume is not None and is_finished(path := run_to_resume(configs)):
        console.print(f"The run in {path} is finished: there is nothing to resume.", soft_wrap=True, markup=False)
        return leave(0)
    try:
        results = run(configs, console)
    except KeyboardInterrupt as interrupt:
        console.print(interrupted(Path(configs[2].output_dir)), soft_wrap=True, markup=False)
        return leave(exit_status(interrupt))
    return leave(1 if results is not None and results.problems else 0)


def interrupted(folder: Path) -> str:
    """Return what is saved of an interrupted run, and how to resume it."""
    steps = [path.name for path in checkpoints(folder)]
    if (folder / "checkpoint" / MANIFEST).exists():
        saved = "The trained policy is saved; only the evaluation that was interrupted is played again."
    elif steps:
        saved = f"Training is saved up to {steps[-1]}."
    elif (folder / "warm_start" / MANIFEST).exists():
        saved = "The cloned policy is saved; what followed is done again."
    else:
        saved = "Nothing is saved yet, so a resumed run starts with cloning."
    how = "the same command and --resume true"
    if "MAKELEVEL" in os.environ:  # set by make for the programs that it starts
        how = 'make quickstart ARGS="--resume true" (and the other ARGS of this run)'
    return f"Interrupted. {saved} Resume with {how}."


def command(settings: type[AgentConfig], arguments: Sequence[str] | None = None) -> int:
    """Run a baseline from the command line and return its exit status: as `run_command`, and 1 after an error.

    Args:
        settings: the baseline's configuration, with its paper's constants as defaults.
        arguments: the command line; None: `sys.argv`.
    """
    console = console_here()
    quiet()
    try:
        configs = parse_configs(arguments, settings)
        chosen = configs[2].credit
        if chosen != settings.credit:
            raise BadSetting(f"this baseline is {settings.credit}, not {chosen}: use agentgym-flow train {chosen}")
        return run_command(configs, console)
    except (AgentGymFlowError, OSError) as error:
        console.quiet = isinstance(error, OtherProcessFailed)  # that process prints the reason
        console.print(f"[red]{type(error).__name__}[/red]: {escape(str(error))}", highlight=False, soft_wrap=True)
        return leave(1)

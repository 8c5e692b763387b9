"""`agentgym-flow worker`: play episodes for a trainer elsewhere."""

from __future__ import annotations

import multiprocessing
import os
import secrets
import signal
import socket
import threading
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from agentgym_flow._util.signals import signals_go_to, sigterm_raises
from agentgym_flow.cli.console import note
from agentgym_flow.errors import FlowDown

LEAVING = 10.0
"""Seconds for which a stopping worker tries to reach a manager that does not answer."""


def worker(
    join: Annotated[str, typer.Option(metavar="URL", help="The address of the manager, or of a relay.")],
    token_file: Annotated[
        Path | None,
        typer.Option(help="The file with the workers' token. By default it is read from AGENTGYM_FLOW_TOKEN."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="The name of this worker at the manager.", show_default="host and process")
    ] = None,
    num_envs: Annotated[int, typer.Option(min=1, help="Episodes played in parallel.")] = 16,
    versions: Annotated[int, typer.Option(min=1, help="How many versions of the weights the worker holds.")] = 2,
    deadline: Annotated[
        float, typer.Option(min=0.1, help="Seconds without an answer after which the worker exits with an error.")
    ] = 600.0,
    stay: Annotated[bool, typer.Option("--stay", help="When all runs are finished, wait for the next one.")] = False,
) -> None:
    """Join a dataflow and play its episodes. Workers may join and leave at any time.

    When all runs are finished, the worker exits with status 0. On Ctrl-C (status 0) or SIGTERM (status 143) it returns
    its unfinished episodes to the manager, so that other workers play them.
    """
    from agentgym_flow.dataflow.network.client import HttpFlow, read_token
    from agentgym_flow.dataflow.rollout import RolloutService

    flow = HttpFlow(join, read_token(token_file), deadline=deadline)
    called = name or f"{socket.gethostname()}-{os.getpid()}"
    called += f"-{secrets.token_hex(2)}"  # a worker that is replaced is another one
    service = RolloutService(flow, name=called, num_envs=num_envs, versions=versions, stay=stay)
    asked: list[int] = []

    def leave(number: int, frame: FrameType | None) -> None:
        if asked:  # once more: at once
            raise KeyboardInterrupt
        asked.append(number)
        flow.deadline = min(flow.deadline, LEAVING)
        service.stop()

    threading.Thread(target=follow_trainer, daemon=True).start()
    note(f"worker {called} joins {flow.url}; Ctrl-C lets it leave")
    with sigterm_raises(), signals_go_to(leave):  # the first, because the second leaves defaults alone
        try:
            service.run()
        except FlowDown:
            if not asked:
                raise
    flow.close()
    if asked == [signal.SIGTERM]:
        raise typer.Exit(128 + signal.SIGTERM)


def follow_trainer() -> None:
    """Stop this process with SIGTERM when the trainer that started it has ended; do nothing if none has."""
    trainer = multiprocessing.parent_process()
    if trainer is not None:
        trainer.join()
        os.kill(os.getpid(), signal.SIGTERM)

"""`agentgym-flow worker`: play episodes for a trainer elsewhere."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from agentgym_flow._util.signals import signals_go_to, sigterm_raises
from agentgym_flow.cli.console import note
from agentgym_flow.errors import FlowDown

LEAVING = 10.0
"""Seconds that a worker that was asked to end tries to reach a manager that does not answer."""


def worker(
    join: Annotated[str, typer.Option(metavar="URL", help="The address of the manager, or of a relay.")],
    token_file: Annotated[
        Path | None, typer.Option(help="The file with the token of workers; otherwise AGENTGYM_FLOW_TOKEN has it.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="What the manager calls this worker.", show_default="host and process")
    ] = None,
    num_envs: Annotated[int, typer.Option(min=1, help="Episodes played at a time.")] = 16,
    versions: Annotated[int, typer.Option(min=1, help="Versions of the weights that there is room for.")] = 2,
    deadline: Annotated[
        float, typer.Option(min=0.1, help="Seconds without an answer after which the worker ends with an error.")
    ] = 600.0,
    stay: Annotated[bool, typer.Option("--stay", help="Wait for the next run when all runs are finished.")] = False,
    parent: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Join a dataflow and play its episodes. Workers may join and leave at any time.

    When all runs are finished, the worker ends with status 0. Ctrl-C (status 0) and SIGTERM (status 143) give
    unfinished episodes back, so that others play them.
    """
    from agentgym_flow.dataflow.network.http_client import HttpFlow
    from agentgym_flow.dataflow.network.tokens import read_token
    from agentgym_flow.dataflow.rollout.service import RolloutService

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

    if parent is not None:
        threading.Thread(target=follow, args=(parent,), daemon=True).start()
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


def follow(parent: int) -> None:
    """Ask this process to end when the one that started it is gone."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os.kill(os.getpid(), signal.SIGTERM)

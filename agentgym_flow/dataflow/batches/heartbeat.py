"""The heartbeat of a trainer, which makes no other calls while it trains."""

from __future__ import annotations

import threading
from contextlib import suppress

from agentgym_flow.dataflow.records import Claim, Flow
from agentgym_flow.errors import AgentGymFlowError

BEAT = 5.0
"""Seconds between two heartbeats."""


class Heartbeat:
    """A thread that sends a manager a heartbeat every `BEAT` seconds, until `end` is called.

    Args:
        flow: the manager.
        claim: of the trainer.
    """

    def __init__(self, flow: Flow, claim: Claim) -> None:
        self._flow, self._claim = flow, claim
        self._ended = threading.Event()
        threading.Thread(target=self._run, name="heartbeat", daemon=True).start()

    def end(self) -> None:
        """Stop."""
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(BEAT):
            with suppress(AgentGymFlowError):  # the next batch will raise it
                self._flow.beat(self._claim)

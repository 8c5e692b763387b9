"""What lets a manager know that a trainer is alive while it trains and asks for nothing."""

from __future__ import annotations

import threading
from contextlib import suppress

from agentgym_flow.dataflow.records import Claim, Flow
from agentgym_flow.errors import AgentGymFlowError

BEAT = 5.0
"""Seconds between two signs of life."""


class SignsOfLife:
    """A thread that tells a manager every `BEAT` seconds that a trainer is alive, until `end` is called.

    Args:
        flow: the manager.
        claim: of the trainer.
    """

    def __init__(self, flow: Flow, claim: Claim) -> None:
        self._flow, self._claim = flow, claim
        self._ended = threading.Event()
        threading.Thread(target=self._run, name="signs of life", daemon=True).start()

    def end(self) -> None:
        """Give no more signs."""
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(BEAT):
            with suppress(AgentGymFlowError):  # the next batch raises it
                self._flow.beat(self._claim)

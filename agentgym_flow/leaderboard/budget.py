"""How long one submission may be checked."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from agentgym_flow.errors import BadSubmission
from agentgym_flow.policies import Policy, PolicyInput, PolicyOutput

MOST_SECONDS = 300.0
"""For how long the episodes of a submission are stepped again, in seconds. 500 honest ones take at most 30."""

MOST_CORE_SECONDS = 600.0
"""For how long submitted weights play: five minutes on two cores."""


def within(seconds: float, what: str) -> Callable[[int], None]:
    """Return a function to call now and then; it raises `BadSubmission` once `seconds` have passed since now."""
    end = time.monotonic() + seconds

    def check(line: int) -> None:
        if time.monotonic() > end:
            raise BadSubmission(f"{what}: not done after {seconds:g} seconds, at line {line}")

    return check


class BudgetedPolicy:
    """A policy whose moves may take so many core-seconds in all; then `act` raises `BadSubmission`."""

    def __init__(self, policy: Policy, core_seconds: float) -> None:
        self.name = policy.name
        self._policy = policy
        self._end = time.process_time() + core_seconds
        self._core_seconds = core_seconds

    def act(self, views: Sequence[PolicyInput]) -> Sequence[PolicyOutput]:
        """Return the moves of the policy."""
        if time.process_time() > self._end:
            raise BadSubmission(f"the policy cannot play the track in {self._core_seconds:g} core-seconds")
        return self._policy.act(views)

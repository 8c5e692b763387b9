"""Time limits for checking one submission."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from agentgym_flow.errors import BadSubmission
from agentgym_flow.policies import Policy, PolicyInput, PolicyOutput

MOST_SECONDS = 300.0
"""The time limit for replaying the episodes of a submission. Honest submissions of 500 episodes take at most 30 s."""

MOST_CORE_SECONDS = 600.0
"""The time limit for evaluating submitted weights: five minutes on two cores."""


def within(seconds: float, what: str) -> Callable[[int], None]:
    """Return a function that raises `BadSubmission` if it is called more than `seconds` after now."""
    end = time.monotonic() + seconds

    def check(line: int) -> None:
        if time.monotonic() > end:
            raise BadSubmission(f"{what}: not done after {seconds:g} seconds, at line {line}")

    return check


class BudgetedPolicy:
    """A policy with a limit on its total core-seconds. When they are used up, `act` raises `BadSubmission`."""

    def __init__(self, policy: Policy, core_seconds: float) -> None:
        self.name = policy.name
        self._policy = policy
        self._end = time.process_time() + core_seconds
        self._core_seconds = core_seconds

    def act(self, inputs: Sequence[PolicyInput]) -> Sequence[PolicyOutput]:
        """Return the outputs of the policy."""
        if time.process_time() > self._end:
            raise BadSubmission(f"the policy cannot play the track in {self._core_seconds:g} core-seconds")
        return self._policy.act(inputs)

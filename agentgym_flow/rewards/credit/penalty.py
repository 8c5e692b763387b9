"""The invalid-action penalty: subtract credit from turns with an invalid action."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import attrgetter

from agentgym_flow.episodes import Group, Turn
from agentgym_flow.errors import BadSetting
from agentgym_flow.rewards.credit.comparison import Advantages

IsValid = Callable[[Turn], bool]
"""Whether a turn gets no penalty."""

ACCEPTED: IsValid = attrgetter("action_valid")
"""The environment accepted the action."""


def penalise_invalid(
    batch: Sequence[Group],
    advantages: Advantages,
    penalty: float,
    is_valid: IsValid = ACCEPTED,
    policy: str | None = None,
) -> Advantages:
    """Return A(turn) - `penalty` * [the turn was invalid] for every turn of `policy`; None for all turns.

    The released code of GiGPO and RewardFlow subtracts the penalty from the score of the turn, before the comparison
    with its group. There a group with only invalid turns learns nothing from it, and standard deviations rescale it.
    Here it is subtracted from the advantage, so an invalid turn always costs the same, and valid turns are unaffected.
    This is the policy gradient of an immediate reward of -`penalty`, with the same expectation as with a baseline.

    Raises `BadSetting` if `penalty` is negative or not finite.
    """
    check_penalty(penalty)
    return [
        [
            [
                a - penalty * (not is_valid(turn) and turn.is_by(policy))
                for turn, a in zip(episode.turns, of_turns, strict=True)
            ]
            for episode, of_turns in zip(group, of_group, strict=True)
        ]
        for group, of_group in zip(batch, advantages, strict=True)
    ]


def check_penalty(penalty: float) -> None:
    """Raise `BadSetting` unless `penalty` is a finite number, at least 0."""
    if not (math.isfinite(penalty) and penalty >= 0):
        raise BadSetting(f"invalid_action_penalty must be a finite number, at least 0, got {penalty!r}")

"""The invalid-action penalty: it falls on invalid turns only, by the same amount whatever the group did."""

from __future__ import annotations

import math

import pytest

from agentgym_flow.episodes import Episode, Group, PolicyOutput, Turn
from agentgym_flow.errors import BadSetting
from agentgym_flow.rewards.credit.comparison import penalise_invalid


def turn(valid: bool) -> Turn:
    return Turn("", "s", PolicyOutput("up"), 0.0, "", "s", False, False, valid, False, 0.0)


def episode(*valid: bool, attempt: int = 0) -> Episode:
    turns = [turn(v) for v in valid]
    return Episode("e", {}, {}, "train", 0, "e:0", "", 0, attempt, 9, "", "s", turns=turns)


BATCH = [Group([episode(True, False), episode(False, attempt=1)]), Group([episode(False, False)])]
ADVANTAGES = [[[1.0, 1.0], [-1.0]], [[0.0, 0.0]]]


def test_invalid_turns_pay_and_valid_ones_keep_theirs() -> None:
    assert penalise_invalid(BATCH, ADVANTAGES, 0.25) == [[[1.0, 0.75], [-1.25]], [[-0.25, -0.25]]]
    assert penalise_invalid(BATCH, ADVANTAGES, 0.0) == ADVANTAGES
    assert ADVANTAGES == [[[1.0, 1.0], [-1.0]], [[0.0, 0.0]]]  # not changed in place


@pytest.mark.parametrize("penalty", [-0.1, math.inf, math.nan])
def test_other_numbers_are_refused(penalty: float) -> None:
    with pytest.raises(BadSetting, match="invalid_action_penalty"):
        penalise_invalid(BATCH, ADVANTAGES, penalty)


def test_shapes_must_agree() -> None:
    with pytest.raises(ValueError, match="shorter"):
        penalise_invalid(BATCH, ADVANTAGES[:1], 0.1)

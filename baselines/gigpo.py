"""GiGPO: a second comparison inside the group, between turns that were decided in the same state.

L. Feng and others. Group-in-group policy optimization for LLM agent training. 2025.

Attempts at one task begin in the same state and often come back to states that others saw. All turns of the group that
were decided in one state s are an anchor group: different actions in the same situation. Each is worth the discounted
rewards that followed it,

    R(i, t) = sum over k >= t of gamma ** (k - t) * r(i, k)

and the advantage of a turn adds both comparisons, within the group and within the anchor group:

    A(i, t) = [R_i - mean(R over the group)] + weight * [R(i, t) - mean(R(j, u) over turns (j, u) decided in s)]

So a detour on the way to a success gets less than the short way, wherever two attempts met. A turn alone in its state
gets 0 from the second part, and what happens elsewhere in the graph of states does not reach it: that is what
RewardFlow adds.

The paper divides either by the standard deviation or by 1 (its F_norm) and finds 1 the safer choice in hard
environments; `--credit_settings '{"norm": "std"}'` is the other one. Anchor states are compared by the environment's
state key, never by similarity of texts. The released scripts also penalise invalid actions and leaving the reference
model: `--invalid_action_penalty 0.1 --beta 0.01`.

The formula in code is `agentgym_flow/rewards/credit/gigpo.py`; `baselines/plain.py` is the whole loop
without the trainer. To launch it, with any setting of the trainer as `--key value`:

    python -m baselines.gigpo --output_dir runs/gigpo
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from agentgym_flow.training.config import AgentConfig
from agentgym_flow.training.recipe import command


@dataclass
class GiGPO(AgentConfig):
    """The settings of the trainer, with the constants of the paper."""

    credit: str = "gigpo"
    credit_settings: dict[str, Any] | str | None = field(
        default_factory=lambda: {
            "gamma": 0.95,  # discount of the rewards that follow a turn
            "weight": 1.0,  # of the comparison within a state against that of episodes (omega)
            "norm": "mean",  # subtract means, divide by 1 (F_norm)
        }
    )


main = partial(command, GiGPO)
"""Run from the command line; return the exit status (130 after Ctrl-C)."""


if __name__ == "__main__":
    sys.exit(main())

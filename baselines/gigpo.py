"""GiGPO: a second comparison inside the group, between turns taken in the same state.

L. Feng and others. Group-in-group policy optimization for LLM agent training. 2025.

Attempts at one task start in the same state and often return to states that other attempts visited. All turns of the
group that were taken in one state s are an anchor group: different actions in the same situation. The value of each is
the discounted sum of later rewards,

    R(i, t) = sum over k >= t of gamma ** (k - t) * r(i, k)

and the advantage of a turn adds both comparisons, within the group and within the anchor group:

    A(i, t) = [R_i - mean(R over the group)] + weight * [R(i, t) - mean(R(j, u) over turns (j, u) taken in s)]

So a detour on the way to a success gets a smaller advantage than the short way, wherever two attempts met. A turn alone
in its state gets 0 from the second part. Other parts of the graph of states do not affect it; RewardFlow adds that.

The paper divides by the standard deviation or by 1 (its F_norm) and finds 1 the safer choice in hard environments;
`--credit_settings '{"norm": "std"}'` selects the other. Anchor states are compared by the environment's state key,
never by similarity of texts. The released scripts also penalise invalid actions and the distance to the reference
model: `--invalid_action_penalty 0.1 --beta 0.01`.

The formula in code is in `agentgym_flow/rewards/credit/comparison.py`. `baselines/plain.py` is the whole loop without
the trainer. Launch it with any setting of the trainer as `--key value`:

    python -m baselines.gigpo --out runs/gigpo
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from agentgym_flow.training.main_settings import exit_if_misspelled

if __name__ == "__main__":  # the imports below take seconds
    exit_if_misspelled()

from agentgym_flow.training.command import command
from agentgym_flow.training.config import AgentConfig


@dataclass
class GiGPO(AgentConfig):
    """The trainer's settings, with the constants of the paper."""

    credit: str = "gigpo"
    credit_settings: dict[str, Any] | str | None = field(
        default_factory=lambda: {
            "gamma": 0.95,  # discount of later rewards
            "weight": 1.0,  # weight of the comparison within a state (omega)
            "norm": "mean",  # subtract means, divide by 1 (F_norm)
        }
    )


main = partial(command, GiGPO)
"""Run from the command line; return the exit status (130 after Ctrl-C)."""


if __name__ == "__main__":
    sys.exit(main())

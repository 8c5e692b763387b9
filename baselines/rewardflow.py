"""RewardFlow: dense credit for every turn from the graph of the states that a group of attempts visited.

RewardFlow: tmlr-group/RewardFlow on GitHub. 2026.

Attempts at one task visit common states. They are merged into one graph, with an edge for every step of any attempt,
and every state gets the potential

    phi(s) = gamma ** (fewest observed steps from s to a success),    0 if no success was observed from s

So the success of one attempt is credit for every attempt that came near it, including failed ones. A turn is compared
with the other turns taken in the same state by the potential of its next state, and the episode's advantage within its
group is added:

    A(i, t) = [R_i - mean(R over the group)] + weight * [phi(s') - mean(phi(s') over turns taken in the same state)]

GiGPO uses what this attempt achieved after the turn, RewardFlow what the best attempt achieved from there. The
difference phi(s') - phi(s) would give the same advantage, because all compared turns have the same s.

As published, means are subtracted and not divided by standard deviations; with division the estimator is that of
GraphGPO (`agentgym-flow train graphgpo`). The released code differs from the paper in several places, see
`agentgym_flow.rewards.credit.rewardflow`; `--credit_settings '{"reproduce_official": true}'` reproduces it.

The formula in code is `agentgym_flow/rewards/credit/rewardflow.py`. `baselines/plain.py` is the whole loop without the
trainer. Launch it with any setting of the trainer as `--key value`:

    python -m baselines.rewardflow --out runs/rewardflow
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
class RewardFlow(AgentConfig):
    """The trainer's settings, with the constants of the paper."""

    credit: str = "rewardflow"
    credit_settings: dict[str, Any] | str | None = field(
        default_factory=lambda: {
            "gamma": 0.9,  # discount of the potential per step away from success
            "weight": 1.0,  # weight of the comparison within a state
            "norm": "mean",  # subtract means, do not divide by standard deviations
        }
    )


main = partial(command, RewardFlow)
"""Run from the command line; return the exit status (130 after Ctrl-C)."""


if __name__ == "__main__":
    sys.exit(main())

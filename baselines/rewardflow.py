"""RewardFlow: dense credit for every turn from the graph of the states that a group of attempts has seen.

RewardFlow: tmlr-group/RewardFlow on GitHub. 2026.

Several attempts at one task visit common states. Merge them into one graph, with an edge for every step that any of
them took, and give every state its potential

    phi(s) = gamma ** (fewest observed steps from s to a success),    0 where no success was seen from s

so that a success of one attempt is credit for every attempt that came near it, also for those that failed. A turn is
then compared with the other turns that were decided in the same state, by the potential of the state it led to,
together with the episode's advantage within its group:

    A(i, t) = [R_i - mean(R over the group)] + weight * [phi(s') - mean(phi(s') over turns decided in the same state)]

Where GiGPO asks how this attempt went on after the turn, RewardFlow asks how the best attempt went on from there. The
difference phi(s') - phi(s) would give the same advantage: all turns that are compared leave the same s.

As published, means are subtracted and not divided by standard deviations; with division the estimator is that of
GraphGPO (`agentgym-flow train graphgpo`). The released code differs from the paper in several places; how is told in
`agentgym_flow.rewards.credit.published`, and `--credit_settings '{"compat": true}'` does as it does.

The formula in code is `agentgym_flow/rewards/credit/rewardflow.py`; `baselines/plain.py` is the whole loop
without the trainer. To launch it, with any setting of the trainer as `--key value`:

    python -m baselines.rewardflow --output_dir runs/rewardflow
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from agentgym_flow.training.config import AgentConfig
from agentgym_flow.training.recipe import command


@dataclass
class RewardFlow(AgentConfig):
    """The settings of the trainer, with the constants of the paper."""

    credit: str = "rewardflow"
    credit_settings: dict[str, Any] | str | None = field(
        default_factory=lambda: {
            "gamma": 0.9,  # potential lost per step away from success
            "weight": 1.0,  # of the comparison within a state against that of episodes
            "norm": "mean",  # subtract means, do not divide by standard deviations
        }
    )


main = partial(command, RewardFlow)
"""Run from the command line; return the exit status (130 after Ctrl-C)."""


if __name__ == "__main__":
    sys.exit(main())

"""CWRPO: trains policies that design workflows, by comparing the returns of several attempts at one task.

FlowSteer: beita6969/FlowSteer on GitHub. 2026.

An agent builds a workflow step by step on a canvas that responds to every edit. The return is known at the end of the
episode: R = -1 + S + c [S >= 1], where S scores the design of the workflow and c the correctness of its answer, so
correctness counts only if the design is complete (`--reward structure`, see `agentgym_flow.rewards.structure`).
Every turn of attempt i gets

    A(i) = (R_i - mean(R)) / (std(R) + 1e-6)

With r the probability ratio of a sampled token to the sampling policy, m = 1 on tokens of the policy and 0 on tokens of
the canvas, |tau_i| the number of tokens with m = 1 in an episode, and N episodes, the objective is

    1/N sum_i 1/|tau_i| sum_t m(i,t) min(r A_i, clip(r, 1 - .2, 1 + .2) A_i)  -  .005 KL(policy || reference)

So long and short designs have equal weight, while GRPO here takes its mean over all tokens of a batch.

Differences from the released code, which has no ratio, no clipping and no KL term: all three are implemented; attempts
at the same task are compared, instead of single attempts at six unrelated tasks of a data set
(`--credit_settings '{"scope": "task_type", "reproduce_official": true}'` reproduces that); tokens are the sampled ones
in their real contexts; nothing is cut to 1,024 tokens. On the canvas a row is a whole episode (`--layout turn` if that
is too long). `--mask_observations false` is the ablation without the mask.

The formula in code is `agentgym_flow/rewards/credit/cwrpo.py` (advantages, and the weight 1/|tau_i| of episodes).
`baselines/plain.py` is the whole loop without the trainer. Launch this file with any setting of the trainer as
`--key value`:

    python -m baselines.cwrpo --env Canvas-v0 --out runs/cwrpo

Other environments have no designs: R is then the environment's own return, and a row is a turn.
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
class CWRPO(AgentConfig):
    """The trainer's settings, with the constants of the paper."""

    credit: str = "cwrpo"
    credit_settings: dict[str, Any] | str | None = field(
        default_factory=lambda: {
            "outcome": "return",  # the value of the design, not only success
            "scope": "group",  # attempts at one task; "task_type" is the published scope
            "credit": "terminal",  # one advantage for all turns; "turn" uses discounted future rewards
        }
    )
    epsilon_high: float | None = 0.2  # symmetric clipping; `epsilon` is .2 for every algorithm
    beta: float = 0.005  # weight of the KL divergence to the model at the start of training


main = partial(command, CWRPO)
"""Run from the command line; return the exit status (130 after Ctrl-C)."""


if __name__ == "__main__":
    sys.exit(main())

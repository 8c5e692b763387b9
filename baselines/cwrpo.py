"""CWRPO: the objective that trains designers of workflows, from attempts at one task compared by what they are worth.

FlowSteer: beita6969/FlowSteer on GitHub. 2026.

An agent builds a workflow step by step on a canvas that answers every edit. What an episode is worth is known at its
end: R = -1 + S + c [S >= 1], with S the design of the workflow and c the correctness of its answer, so correctness
counts once the design lacks nothing (`--reward structure`, see `agentgym_flow.rewards.structure_score`). Every turn of
attempt i gets

    A(i) = (R_i - mean(R)) / (std(R) + 1e-6)

and with r the ratio of a sampled token to the policy at sampling, m = 1 on what the policy said and 0 on what the
canvas answered, |tau_i| the tokens with m = 1 of an episode, and N episodes, the objective is

    1/N sum_i 1/|tau_i| sum_t m(i,t) min(r A_i, clip(r, 1 - .2, 1 + .2) A_i)  -  .005 KL(policy || reference)

So a long design counts as much as a short one, where GRPO here takes its mean over all tokens of a batch.

What is done otherwise than in the released code, which has no ratio, no clipping and no KL term: these three are there;
what is compared are attempts at the same task, not single attempts at six unrelated ones of a data set
(`--credit_settings '{"scope": "task_type", "compat": true}'` does as published); tokens are those that were sampled, in
their real contexts; nothing is cut to 1,024 tokens. On the canvas a row is a whole episode (`--layout turn` where that
is too long); `--mask_observations false` is the ablation without the mask.

The formula in code is `agentgym_flow/rewards/credit/cwrpo.py` (advantages, and the weight 1/|tau_i| of episodes);
`baselines/plain.py` is the whole loop without the trainer. To launch it, with any setting of the trainer as
`--key value`:

    python -m baselines.cwrpo --env_id agentgym_flow/Canvas-v0 --output_dir runs/cwrpo

Elsewhere there are no designs: there R is the environment's own return, and a row is a turn.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from agentgym_flow.training.config import AgentConfig
from agentgym_flow.training.recipe import command


@dataclass
class CWRPO(AgentConfig):
    """The settings of the trainer, with the constants of the paper."""

    credit: str = "cwrpo"
    credit_settings: dict[str, Any] | str | None = field(
        default_factory=lambda: {
            "outcome": "return",  # not only success: what the design is worth
            "scope": "group",  # attempts at one task; "task_type" is the published one
            "credit": "terminal",  # one advantage for all turns; "turn" discounts what came later
        }
    )
    epsilon_high: float | None = 0.2  # clipped alike on both sides; `epsilon` is .2 for every algorithm
    beta: float = 0.005  # of the KL divergence to the model as it is when training begins


main = partial(command, CWRPO)
"""Run from the command line; return the exit status (130 after Ctrl-C)."""


if __name__ == "__main__":
    sys.exit(main())

"""GRPO: one advantage per episode, in standard deviations from the mean of its group.

Z. Shao and others. DeepSeekMath: pushing the limits of mathematical reasoning in open language models. 2024.

Proximal policy optimization needs a value network that predicts returns. GRPO instead plays every task several times
and uses the mean of the group. With R_i the outcome of attempt i (1 for a success, 0 otherwise) every turn t of it gets

    A(i, t) = (R_i - mean(R)) / (std(R) + 1e-6)

where mean and standard deviation (of the sample, n - 1) are taken over the group. A group without successes, or without
failures, gives no signal. In an attempt that succeeds by luck on its last turn, all detours get the same advantage.

Every sampled token then contributes to the clipped objective of PPO,

    min(r A, clip(r, 1 - low, 1 + high) A),    r = policy(token) / policy at sampling(token)

Differences from the paper: the mean is over all tokens of a batch, so that tokens of long and short answers have equal
weight; the clipping is wider above than below (DAPO, 2025); and there is no KL penalty, because a tiny policy should
leave its warm start (`--beta 0.04` is the paper's). All baselines here share these choices, so that a comparison
measures the estimators alone.

The formula in code is in `agentgym_flow/rewards/credit/comparison.py`. `baselines/plain.py` is the whole loop without
the trainer. Launch it with any setting of the trainer as `--key value`:

    python -m baselines.grpo --out runs/grpo
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
class GRPO(AgentConfig):
    """The trainer's settings, with the constants of the paper."""

    credit: str = "grpo"
    credit_settings: dict[str, Any] | str | None = field(
        default_factory=lambda: {
            "norm": "std",  # divide by the standard deviation of the group
        }
    )


main = partial(command, GRPO)
"""Run from the command line; return the exit status (130 after Ctrl-C)."""


if __name__ == "__main__":
    sys.exit(main())

"""RLOO: one advantage per episode, its outcome relative to the mean of the other attempts at the same task.

A. Ahmadian and others. Back to basics: revisiting REINFORCE style optimization for learning from human feedback in
LLMs. 2024. The estimator is that of W. Kool and others, Buy 4 REINFORCE samples, get a baseline for free! 2019.

REINFORCE with a baseline is unbiased if the baseline does not depend on the sample from which it is subtracted. So the
baseline of each of the n attempts at a task is the mean of the n - 1 others. With R_i the outcome of attempt i (1 for a
success, 0 otherwise) every turn t of it gets

    A(i, t) = R_i - 1 / (n - 1) * sum of R_j over j != i  =  n / (n - 1) * (R_i - mean(R))

There is no division by a standard deviation, which in GRPO increases the weight of tasks that are nearly always or
nearly never solved: here a rare success in a group of n counts 1, a rare failure -1.

The paper takes one step per batch, on samples of the current policy, and so needs no clipping. We take several
minibatches of each batch, and therefore keep PPO's clipped objective, as the other baselines do; on the first minibatch
the ratio is 1 and the gradient is the paper's. `--steps_per_generation 1` with a `--per_device_train_batch_size` four
times as large is the paper's single step.

The formula in code is in `agentgym_flow/rewards/credit/comparison.py`. `baselines/plain.py` is the whole loop without
the trainer. Launch it with any setting of the trainer as `--key value`:

    python -m baselines.rloo --out runs/rloo
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
class RLOO(AgentConfig):
    """The trainer's settings, with the constants of the paper."""

    credit: str = "rloo"
    credit_settings: dict[str, Any] | str | None = field(
        default_factory=lambda: {
            "outcome": "success",  # 1 or 0 at the end of an episode; "return" is the sum of rewards
        }
    )


main = partial(command, RLOO)
"""Run from the command line; return the exit status (130 after Ctrl-C)."""


if __name__ == "__main__":
    sys.exit(main())

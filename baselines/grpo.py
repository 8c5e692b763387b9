"""GRPO: one advantage per episode, in standard deviations from the mean of its group.

Z. Shao and others. DeepSeekMath: pushing the limits of mathematical reasoning in open language models. 2024.

Proximal policy optimization needs a value network to say what was to be expected. GRPO asks the policy itself: it
plays every task several times, and the group's mean takes the place of the value. With R_i the outcome of attempt i
(1 for a success, 0 otherwise) every turn t of it gets

    A(i, t) = (R_i - mean(R)) / (std(R) + 1e-6)

where mean and standard deviation (of the sample, n - 1) are taken over the group. A group that only fails, or only
succeeds, teaches nothing. An attempt that wins by luck on its last turn praises all of its detours as much.

Every sampled token then moves the policy by the clipped objective of PPO,

    min(r A, clip(r, 1 - low, 1 + high) A),    r = policy(token) / policy at sampling(token)

What is done otherwise than in the paper: the mean is over all tokens of a batch, so that long answers do not count
less; the clipping is wider above than below (DAPO, 2025); and the penalty for leaving a reference model is off, because
a tiny policy is to leave its warm start (`--beta 0.04` is the paper's). These are the same in all baselines here, so
that a comparison is one of estimators.

    python -m baselines.grpo --output_dir runs/grpo
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console

from agentgym_flow.training.config import AgentConfig, Configs
from agentgym_flow.training.recipe import command, opened
from agentgym_flow.training.results import Results


@dataclass
class GRPO(AgentConfig):
    """The settings of the trainer, with the constants of the paper."""

    credit: str = "grpo"
    credit_settings: dict[str, Any] | str | None = field(
        default_factory=lambda: {
            "norm": "std",  # divide by the standard deviation of the group
        }
    )


def train(configs: Configs, console: Console) -> Results:
    """Run the whole recipe; `configs` are the settings of the run, of cloning and of training."""
    with opened(configs, console) as recipe:
        # 1. Warm start. Where no attempt succeeds there is nothing to compare: a policy has to succeed now and then.
        recipe.clone()

        # 2. The test tasks, before: sampled and greedy.
        recipe.examine("before")

        # 3. GRPO. Groups of attempts at one task; the outcome against the group; clipped steps of PPO.
        recipe.learn()

        # 4. The same test tasks, after; then every logged episode is stepped again.
        recipe.examine("after")
        return recipe.finish()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; return the exit status (130 after Ctrl-C)."""
    return command(train, GRPO, arguments)


if __name__ == "__main__":
    sys.exit(main())

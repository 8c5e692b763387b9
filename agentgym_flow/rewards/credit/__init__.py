"""Credit: one advantage per turn, from the outcomes of a batch of groups. Pure functions.

Every function takes a batch (a sequence of `Group`s) and returns advantages as nested lists,
`advantages[group][episode][turn]`.

- `grpo`: the outcome against the group, in standard deviations (Shao et al., 2024).
- `rloo`: the outcome against the mean of the others (Ahmadian et al., 2024).
- `gigpo`: that of an episode, plus the discounted return of a turn against other turns decided in the same state
  (Feng et al., 2025).
- `rewardflow`: that of an episode, plus the potential of the state reached, in the graph of the whole group, against
  other turns decided in the same state. `graphgpo` is the same with standard deviations.
- `cwrpo`: as `grpo`, from returns, and the loss is a mean over episodes instead of tokens (FlowSteer, 2026).

Each is a file of its own, which reads as its paper does; `comparison` has what they share, and `registry` finds a
function by its name or by the `module:function` of a user.

Arguments that all share:

- `outcome`: what an episode is worth. `"success"` is 1 or 0; `"return"` is the sum of native rewards.
- `scope`: which episodes an episode is compared with: its `"group"`, all of its `"task_type"` in the batch, or the
  whole `"batch"`. The comparison of turns stays within the group (that of `cwrpo` follows the scope).
- `statistics`: `"episode"` counts every episode once (default); `"turn"` counts it once per turn, so that long ones
  weigh more.
- `norm` (of `grpo`, `gigpo` and `rewardflow`): `"mean"` subtracts the mean; `"std"` also divides by the sample standard
  deviation + 1e-6. Samples that are all equal give 0.
- `compat`: True reproduces the released code of RewardFlow and GiGPO: 10 for a success, statistics per turn (unless
  you say otherwise), and an episode alone keeps its raw outcome. States are what its code takes for them: for `gigpo`
  the observation, for `rewardflow` and `graphgpo` the environment's `compat_key`, which the recorder has to keep
  (`COMPAT_READS`), in the graph of `agentgym_flow.rewards.credit.published`. For `cwrpo` it is the code of FlowSteer.
- `policy`: the name of one of several policies that share the episodes. Its turns are compared with its own turns only,
  and its episodes with others in which it acted, as in Dr. MAS (2026), where `statistics` is `"turn"`. The turns of
  other policies get 0. What an episode or a turn is worth, and the graph of `rewardflow`, come from all turns. None
  (default) makes no difference between policies.

An episode alone in its scope, or a turn alone in its state, is compared with itself and gets 0. Similar but unequal
states are never merged, as the published code can do by text similarity: a state key says what is equal. Errors:
`UnknownOption` for a word that is none of these, `BadSetting` for a number out of range, `BadData` for a reward that
is not finite.

An algorithm that also weighs whole episodes (CWRPO) has a second pure function of the same batch, in `WEIGHTS`, that
returns `weights[group][episode]`; without one every episode has weight 1.
"""

from agentgym_flow.rewards.credit.cwrpo import cwrpo, trajectory_weights
from agentgym_flow.rewards.credit.gigpo import gigpo
from agentgym_flow.rewards.credit.grpo import grpo
from agentgym_flow.rewards.credit.registry import (
    COMPAT_READS,
    CREDIT,
    WEIGHTS,
    CreditFunction,
    WeightFunction,
    credit_function,
    settings_of,
)
from agentgym_flow.rewards.credit.rewardflow import graphgpo, rewardflow
from agentgym_flow.rewards.credit.rloo import rloo

__all__ = [
    "COMPAT_READS",
    "CREDIT",
    "WEIGHTS",
    "CreditFunction",
    "WeightFunction",
    "credit_function",
    "cwrpo",
    "gigpo",
    "graphgpo",
    "grpo",
    "rewardflow",
    "rloo",
    "settings_of",
    "trajectory_weights",
]

"""Credit: one advantage per turn, from the outcomes of a batch of groups. Pure functions.

Every function takes a batch (a sequence of `Group`s) and returns advantages as nested lists,
`advantages[group][episode][turn]`.

- `grpo`: the outcome relative to the group, in standard deviations (Shao et al., 2024).
- `rloo`: the outcome relative to the mean of the other episodes (Ahmadian et al., 2024).
- `gigpo`: the episode's advantage, plus the discounted return of a turn relative to other turns from the same state
  (Feng et al., 2025).
- `rewardflow`: the episode's advantage, plus the potential of the next state in the graph of the whole group, relative
  to other turns from the same state. `graphgpo` is the same with standard deviations.
- `cwrpo`: as `grpo` with returns; the loss is a mean over episodes instead of tokens (FlowSteer, 2026).

Each function has its own file that follows its paper. `comparison` contains the shared parts, and `registry` finds a
function by its name or by a user's `module:function`.

All functions have these arguments:

- `outcome`: the value of an episode. `"success"` is 1 or 0; `"return"` is the sum of native rewards.
- `scope`: the episodes that an episode is compared with: its `"group"`, all of its `"task_type"` in the batch, or the
  whole `"batch"`. Turns are always compared within the group, except that `cwrpo` uses the scope.
- `statistics`: `"episode"` counts every episode once (default); `"turn"` counts it once per turn, so that long episodes
  have more weight.
- `norm` (of `grpo`, `gigpo` and `rewardflow`): `"mean"` subtracts the mean; `"std"` also divides by the sample standard
  deviation + 1e-6. If all samples are equal, the result is 0.
- `reproduce_official`: True reproduces the released code of RewardFlow and GiGPO: a success is worth 10, statistics are
  per turn by default, and a single episode keeps its raw outcome. States are represented as in that code: by the
  observation for `gigpo`, and for `rewardflow` and `graphgpo` by the environment's `official_key`, which the recorder
  must keep (`OFFICIAL_READS`), in the graph of `agentgym_flow.rewards.credit.published`. For `cwrpo` it reproduces
  FlowSteer.
- `policy`: the name of one of several policies that share the episodes. Its turns are compared only with its own turns,
  and its episodes with others in which it acted, as in Dr. MAS (2026), which uses `statistics="turn"`. Turns of other
  policies get 0. The values of episodes and turns and the graph of `rewardflow` come from all turns. None (default)
  treats all policies as one.

An episode alone in its scope, or a turn alone in its state, is compared with itself and gets 0. States are equal if
their keys are equal. Similar states are never merged, although the published code can do so by text similarity. Errors:
`UnknownOption` for an unknown word, `BadSetting` for a number out of range, `BadData` for a reward that is not finite.

An algorithm with weights for episodes (CWRPO) has a second pure function of the same batch in `WEIGHTS`, which returns
`weights[group][episode]`. For other algorithms every episode has weight 1.
"""

from agentgym_flow.rewards.credit.cwrpo import cwrpo, trajectory_weights
from agentgym_flow.rewards.credit.gigpo import gigpo
from agentgym_flow.rewards.credit.grpo import grpo
from agentgym_flow.rewards.credit.registry import (
    CREDIT,
    OFFICIAL_READS,
    WEIGHTS,
    CreditFunction,
    WeightFunction,
    credit_function,
    settings_of,
)
from agentgym_flow.rewards.credit.rewardflow import graphgpo, rewardflow
from agentgym_flow.rewards.credit.rloo import rloo

__all__ = [
    "CREDIT",
    "OFFICIAL_READS",
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

"""CWRPO (FlowSteer, 2026): credit and weights of the objective that trains workflow designers. Pure functions.

For N episodes, with the ratio r of a sampled token to the policy at sampling, m = 1 on the tokens of the policy, and
n_i the number of these tokens in episode i,

    J = 1/N sum_i 1/n_i sum_t m(i,t) min(r A_i, clip(r, 1 - eps, 1 + eps) A_i)  -  beta KL(policy, reference)

`cwrpo` computes A, and `trajectory_weights` computes 1/n_i. As for every algorithm, the trainer computes ratio,
clipping and the KL term. The released code has none of these three.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Literal

from agentgym_flow.episodes import Group, Turn
from agentgym_flow.errors import BadSetting
from agentgym_flow.rewards.credit.comparison import (
    Advantages,
    Outcome,
    Scope,
    Statistics,
    TurnTable,
    Weights,
    check_gamma,
    check_shared,
    check_word,
    compared,
    discounted,
    episode_advantages,
    rewards_of,
)

Assignment = Literal["terminal", "turn"]
"""The value of a turn: the outcome of its episode, or the discounted return from the turn on."""


def cwrpo(
    batch: Sequence[Group],
    *,
    outcome: Outcome = "return",
    scope: Scope = "group",
    statistics: Statistics | None = None,
    credit: Assignment = "terminal",
    gamma: float = 0.95,
    reproduce_official: bool = False,
    policy: str | None = None,
) -> Advantages:
    """Return A = (outcome - mean) / std over the scope; the loss weights each episode by 1 / its length.

    By default attempts at one task are compared (`scope="group"`). The paper compares all episodes of one data set
    (`scope="task_type"`), where easy tasks get high advantages. With `reproduce_official` the standard deviation is
    that of the population and at least .01, as in the released code; otherwise it is the sample standard deviation +
    1e-6.

    With `credit="turn"`, the value of a turn is its return, discounted by `gamma`, and it is compared with all turns of
    the scope. With `"terminal"`, all turns of an episode have the value of its outcome. If all episodes of a scope have
    equal outcomes, advantages are 0 in both cases.

    Raises `BadSetting` for `statistics="episode"` with `credit="turn"`, which compares turns.
    """
    check_shared(outcome, scope, statistics, reproduce_official)
    check_word(credit, Assignment)
    check_gamma(gamma)
    if credit == "turn" and statistics == "episode":
        raise BadSetting("credit turn compares turns, so statistics cannot count episodes: leave it out")
    norm = "floor" if reproduce_official else "std"
    table = TurnTable(batch, policy)
    if credit == "terminal":
        return table.nested(episode_advantages(table, outcome, scope, norm, statistics, reproduce_official=False))
    rewards = [rewards_of(episode, outcome, reproduce_official=False) for episode in table.episodes]
    returns = [value for of_episode in rewards for value in discounted(of_episode, gamma)]
    scopes = table.scopes(scope)
    outcomes: dict[Hashable, set[float]] = defaultdict(set)
    for episode, of_episode, key in zip(table.episodes, rewards, scopes, strict=True):
        if episode.counts_for(policy):
            outcomes[key].add(math.fsum(of_episode))
    keys = [scopes[owner] for owner in table.owners]
    found = compared(returns, keys, table.own, norm)
    # Of equal outcomes, returns differ only because of the discount.
    return table.nested([value if len(outcomes[key]) > 1 else 0.0 for value, key in zip(found, keys, strict=True)])


def trajectory_weights(batch: Sequence[Group], *, observations: bool = False, policy: str | None = None) -> Weights:
    """Return 1 / length per episode, multiplied by a factor that makes the mean weight of a trained token 1.

    With these weights every episode has equal influence on a mean over tokens. The length of an episode is the number
    of tokens of the policy, or the number of turns if they have no tokens.

    Args:
        batch: the groups.
        observations: also count the tokens of observations, for layouts that train on them.
        policy: count only the tokens of this policy; None counts those of all policies.
    """
    lengths = [[_length(episode.turns_by(policy), observations) for episode in group] for group in batch]
    played = [length for of_group in lengths for length in of_group if length]
    mean = sum(played) / len(played) if played else 1.0
    return [[mean / length if length else 1.0 for length in of_group] for of_group in lengths]


def _length(turns: Sequence[Turn], observations: bool) -> int:
    """Return the number of trained tokens of turns that form one conversation."""
    if observations and turns:
        first, last = turns[0], turns[-1]
        return (
            len(last.output.prompt_ids or ())
            + len(last.output.completion_ids or ())
            - len(first.output.prompt_ids or ())
        )
    return sum(1 if turn.output.completion_ids is None else len(turn.output.completion_ids) for turn in turns)

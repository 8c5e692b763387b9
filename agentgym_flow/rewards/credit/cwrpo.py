"""CWRPO (FlowSteer, 2026): credit and weights of the objective that trains workflow designers. Pure functions.

For N episodes, with the ratio r of a sampled token to the policy at sampling, m = 1 on the tokens of the policy, and
n_i the number of these tokens in episode i,

    J = 1/N sum_i 1/n_i sum_t m(i,t) min(r A_i, clip(r, 1 - eps, 1 + eps) A_i)  -  beta KL(policy, reference)

`cwrpo` computes A, and `trajectory_weights` computes 1/n_i. As for every algorithm, the trainer computes ratio,
clipping and the KL term. The released code has none of these three.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Literal

from agentgym_flow.episodes import Episode, Group, Turn
from agentgym_flow.errors import BadSetting
from agentgym_flow.rewards.credit.comparison import (
    Advantages,
    Outcome,
    Scope,
    Statistics,
    Weights,
    baseline,
    check_gamma,
    check_shared,
    check_word,
    discounted,
    episode_advantages,
    per_turn,
    rewards_of,
    scope_key,
    worth,
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
    if credit == "turn":
        return _of_turns(batch, outcome, scope, norm, gamma, policy)
    of_episodes = episode_advantages(batch, outcome, scope, norm, statistics, reproduce_official=False, policy=policy)
    return per_turn(batch, of_episodes, policy)


def _of_turns(
    batch: Sequence[Group], outcome: Outcome, scope: Scope, norm: str, gamma: float, policy: str | None
) -> Advantages:
    worths: dict[Hashable, set[float]] = defaultdict(set)
    samples: dict[Hashable, list[float]] = defaultdict(list)
    returns = []
    for place, group in enumerate(batch):
        of_group = [discounted(rewards_of(episode, outcome, reproduce_official=False), gamma) for episode in group]
        returns.append(of_group)
        for episode, of_turns in zip(group, of_group, strict=True):
            key = scope_key(scope, place, episode)
            if episode.counts_for(policy):
                worths[key].add(worth(episode, outcome, reproduce_official=False))
            samples[key] += [value for turn, value in zip(episode.turns, of_turns, strict=True) if turn.is_by(policy)]
    baselines = {key: baseline(values, norm) for key, values in samples.items()}

    def compared(place: int, episode: Episode, of_turns: list[float]) -> list[float]:
        key = scope_key(scope, place, episode)
        if len(worths[key]) <= 1:  # returns differ only because of the discount
            return [0.0] * len(of_turns)
        mean, divisor = baselines[key]
        turns = zip(episode.turns, of_turns, strict=True)
        return [(value - mean) / divisor if turn.is_by(policy) else 0.0 for turn, value in turns]

    return [
        [compared(place, episode, of_turns) for episode, of_turns in zip(group, of_group, strict=True)]
        for place, (group, of_group) in enumerate(zip(batch, returns, strict=True))
    ]


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
        return len(last.prompt_ids or ()) + len(last.completion_ids or ()) - len(first.prompt_ids or ())
    return sum(1 if turn.completion_ids is None else len(turn.completion_ids) for turn in turns)

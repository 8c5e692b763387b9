"""CWRPO (FlowSteer, 2026): credit and weights of the objective that trains workflow designers. Pure functions.

For N episodes, with the ratio r of a sampled token to the policy at sampling, m = 1 on what the policy said, and n_i
the number of these tokens in episode i,

    J = 1/N sum_i 1/n_i sum_t m(i,t) min(r A_i, clip(r, 1 - eps, 1 + eps) A_i)  -  beta KL(policy, reference)

`cwrpo` gives A and `trajectory_weights` the 1/n_i; ratio, clipping and the KL term are the trainer's, as for every
algorithm here. The released code has none of the three.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Literal

from agentgym_flow.episode import Episode, Group, Turn
from agentgym_flow.rewards.credit.comparison import (
    Advantages,
    Outcome,
    Scope,
    Statistics,
    Weights,
    baseline,
    check_gamma,
    check_word,
    discounted,
    episode_advantages,
    per_turn,
    rewards_of,
    scope_key,
    worth,
)

Assignment = Literal["terminal", "turn"]
"""What a turn is worth: the outcome of its episode, or the discounted return from the turn on."""


def cwrpo(
    batch: Sequence[Group],
    *,
    outcome: Outcome = "return",
    scope: Scope = "group",
    statistics: Statistics | None = None,
    credit: Assignment = "terminal",
    gamma: float = 0.95,
    compat: bool = False,
    policy: str | None = None,
) -> Advantages:
    """Return A = (outcome - mean) / std over the scope; the loss weighs episodes by 1 / their length.

    Attempts at one task are compared (`scope="group"`). As published it is everything from one data set
    (`scope="task_type"`), attempts at other tasks: then an easy task is praised for being easy. With `compat` the
    standard deviation is that of the population and at least .01, as in the released code, where 1e-6 is added here to
    that of the sample.

    With `credit="turn"` a turn is worth the sum of the rewards from it on, discounted by `gamma`, and is compared with
    all turns of the scope; with `"terminal"` that sum is the episode's outcome for all of its turns. A scope whose
    episodes are all worth the same gives 0 either way.
    """
    check_word(credit, Assignment)
    check_gamma(gamma)
    norm = "floor" if compat else "std"
    if credit == "turn":
        return _of_turns(batch, outcome, scope, norm, gamma, policy)
    of_episodes = episode_advantages(batch, outcome, scope, norm, statistics, compat=False, policy=policy)
    return per_turn(batch, of_episodes, policy)


def _of_turns(
    batch: Sequence[Group], outcome: Outcome, scope: Scope, norm: str, gamma: float, policy: str | None
) -> Advantages:
    worths: dict[Hashable, set[float]] = defaultdict(set)
    samples: dict[Hashable, list[float]] = defaultdict(list)
    returns = []
    for place, group in enumerate(batch):
        of_group = [discounted(rewards_of(episode, outcome, compat=False), gamma) for episode in group]
        returns.append(of_group)
        for episode, of_turns in zip(group, of_group, strict=True):
            key = scope_key(scope, place, episode)
            if episode.counts_for(policy):
                worths[key].add(worth(episode, outcome, compat=False))
            samples[key] += [value for turn, value in zip(episode.turns, of_turns, strict=True) if turn.is_by(policy)]
    baselines = {key: baseline(values, norm) for key, values in samples.items()}

    def compared(place: int, episode: Episode, of_turns: list[float]) -> list[float]:
        key = scope_key(scope, place, episode)
        if len(worths[key]) <= 1:  # what differs is only how long they took
            return [0.0] * len(of_turns)
        mean, divisor = baselines[key]
        turns = zip(episode.turns, of_turns, strict=True)
        return [(value - mean) / divisor if turn.is_by(policy) else 0.0 for turn, value in turns]

    return [
        [compared(place, episode, of_turns) for episode, of_turns in zip(group, of_group, strict=True)]
        for place, (group, of_group) in enumerate(zip(batch, returns, strict=True))
    ]


def trajectory_weights(batch: Sequence[Group], *, observations: bool = False, policy: str | None = None) -> Weights:
    """Return 1 / length per episode, up to a factor that makes the mean weight of a trained token 1.

    With these every episode counts the same in a mean over tokens, however long it is. Its length is the number of
    tokens the policy said, or of its turns where they have no tokens.

    Args:
        batch: the groups.
        observations: also count the tokens of the observations between them, where these are trained on.
        policy: count only what this one of several policies said; None counts all of them.
    """
    lengths = [[_length(episode.turns_by(policy), observations) for episode in group] for group in batch]
    played = [length for of_group in lengths for length in of_group if length]
    mean = sum(played) / len(played) if played else 1.0
    return [[mean / length if length else 1.0 for length in of_group] for of_group in lengths]


def _length(turns: Sequence[Turn], observations: bool) -> int:
    """Return the number of trained tokens of some turns; observations are those of one conversation."""
    if observations and turns:
        first, last = turns[0], turns[-1]
        return len(last.prompt_ids or ()) + len(last.completion_ids or ()) - len(first.prompt_ids or ())
    return sum(1 if turn.completion_ids is None else len(turn.completion_ids) for turn in turns)

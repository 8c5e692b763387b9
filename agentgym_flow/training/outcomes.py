"""What the groups of a batch came to: lost episodes, groups without variance, counts and metrics.

An episode is *lost* if the environment or the policy raised in it. It says nothing about the policy, so lost episodes
are neither trained on nor compared with, and their groups continue without them. If an episode is compared within its
group and is the only one left, it has an advantage only for turns from a state that it visited more than once (see
`agentgym_flow.rewards.credit`). A group without episodes is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from agentgym_flow.episodes import TRUNCATED_BY, Episode, Group
from agentgym_flow.errors import BadSetting
from agentgym_flow.play import ERROR
from agentgym_flow.rewards.credit.comparison import ACCEPTED, IsValid


def is_lost(episode: Episode) -> bool:
    """Return whether the environment or the policy raised in this episode."""
    return ERROR in episode.meta


def without_lost(groups: Iterable[Group]) -> list[Group]:
    """Return the groups without their lost episodes; groups that become empty are left out."""
    left = ((group, [episode for episode in group if not is_lost(episode)]) for group in groups)
    return [group if len(episodes) == len(group) else Group(episodes) for group, episodes in left if episodes]


def ended_alike(group: Group, outcome: str = "success", policy: str | None = None) -> bool:
    """Return whether the group has no variance: all members have equal values, or at most one was not lost.

    `outcome` is the value of an episode, as for credit functions: `success`, or `return` for the sum of rewards.
    Episodes without turns of `policy` are ignored; None stands for all policies.
    """
    left = [episode for episode in group if not is_lost(episode) and episode.counts_for(policy)]
    return len({_value(episode, outcome) for episode in left}) <= 1


def _value(episode: Episode, outcome: str) -> float:
    return float(episode.success) if outcome == "success" else episode.total_reward


@dataclass
class TrainingOutcomes:
    """Counts over all processes since training began, including episodes that were not trained on.

    Attributes:
        batches: number of batches.
        episodes: number of episodes.
        env_steps: number of environment steps.
        lost_episodes: number of lost episodes.
    """

    batches: int = 0
    episodes: int = 0
    env_steps: int = 0
    lost_episodes: int = 0

    def count(self, groups: Iterable[Group]) -> None:
        """Add the groups of one batch."""
        self.batches += 1
        for episode in (episode for group in groups for episode in group):
            self.episodes += 1
            self.env_steps += len(episode.turns)
            self.lost_episodes += is_lost(episode)


def outcome_metrics(
    groups: Sequence[Group],
    *,
    outcome: str = "success",
    invalid_action_penalty: float = 0.0,
    is_valid: IsValid = ACCEPTED,
    policy: str | None = None,
) -> dict[str, float]:
    """Return means over episodes: success, native return, length and others. Lost episodes count as they ended.

    Metrics that TRL's trainer has too have its names: `reward` and `reward_std` are the mean and the standard deviation
    of the values that are compared (see `ended_alike`), `frac_reward_zero_std` is the fraction of groups without
    variance, and of completions, the answers of single turns, `completions/mean_length` is the number of tokens and
    `completions/clipped_ratio` the fraction that was cut at `max_completion_length`.

    `truncated` is the fraction of episodes that the step budget ended without success.

    `invalid_actions` is the fraction of turns whose action the environment rejected, `invalid_penalty` the mean penalty
    of a turn for answers that are not `is_valid`, and `out_of_context` the fraction of episodes that ended because they
    no longer fitted into the model's context.

    With `policy` the means are over its turns and the episodes in which it acted, whose whole return counts. Raises
    `BadSetting` if there is no such episode.
    """
    episodes = [episode for group in groups for episode in group if episode.counts_for(policy)]
    if not episodes:
        raise BadSetting(f"policy {policy!r} acted in none of the episodes")
    turns = [turn for episode in episodes for turn in episode.turns_by(policy)]
    invalid = sum(not turn.action_valid for turn in turns) / max(1, len(turns))
    penalised = sum(not is_valid(turn) for turn in turns) / max(1, len(turns))
    acted = [group for group in groups if any(episode.counts_for(policy) for episode in group)]
    alike = sum(ended_alike(group, outcome, policy) for group in acted)
    values = [_value(episode, outcome) for episode in episodes]
    return {
        "reward": sum(values) / len(values),
        "reward_std": float(np.std(values, ddof=1)) if len(values) > 1 else 0.0,
        "frac_reward_zero_std": alike / len(acted),
        "success": sum(episode.success for episode in episodes) / len(episodes),
        "return": sum(episode.total_reward for episode in episodes) / len(episodes),
        "length": len(turns) / len(episodes),
        "truncated": sum(episode.truncated and not episode.success for episode in episodes) / len(episodes),
        "invalid_actions": invalid,
        "invalid_penalty": invalid_action_penalty * penalised,
        "completions/mean_length": sum(len(turn.output.completion_ids or ()) for turn in turns) / max(1, len(turns)),
        "completions/clipped_ratio": sum(turn.output.cut for turn in turns) / max(1, len(turns)),
        "out_of_context": sum(TRUNCATED_BY in episode.meta for episode in episodes) / len(episodes),
    }

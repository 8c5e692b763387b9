"""What came of the episodes of a batch: which groups have something to compare, which episodes were lost, and figures.

An episode is *lost* when the environment or the policy raised in it. That says nothing about how good the policy is, so
a lost episode neither trains nor is compared with: its group goes on with the others. A group may come down to one
episode, which is compared with itself and gets no advantage from that (see `agentgym_flow.rewards.credit`), or to none,
and is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agentgym_flow.episode import Episode, Group
from agentgym_flow.errors import BadSetting
from agentgym_flow.rewards.credit.penalty import ACCEPTED, IsValid
from agentgym_flow.rollout import ERROR


def is_lost(episode: Episode) -> bool:
    """Return whether the environment or the policy raised in this episode."""
    return ERROR in episode.meta


def without_lost(groups: Iterable[Group]) -> list[Group]:
    """Return the groups without their lost episodes; a group that has no other is left out."""
    left = ((group, [episode for episode in group if not is_lost(episode)]) for group in groups)
    return [group if len(episodes) == len(group) else Group(episodes) for group, episodes in left if episodes]


def ended_alike(group: Group, outcome: str = "success", policy: str | None = None) -> bool:
    """Return whether the group has no variance: all members are worth the same, or at most one was not lost.

    Members in which only others than `policy` acted do not count; None stands for all policies.

    `outcome` is what an episode is worth, as for credit functions: `success`, or `return` for the sum of rewards.
    """
    left = [episode for episode in group if not is_lost(episode) and episode.counts_for(policy)]
    return len({episode.success if outcome == "success" else episode.total_reward for episode in left}) <= 1


@dataclass
class TrainingOutcomes:
    """What all processes have played since training began, also what was not trained on.

    Attributes:
        batches: how many batches of groups.
        episodes: how many episodes.
        env_steps: how many steps they had.
        lost_episodes: in how many of them the environment or the policy raised.
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
    """Return means over the episodes of some groups: success, native return and length; lost ones as they stood.

    `invalid_actions` is the share of turns whose action the environment did not accept, and `invalid_penalty` the mean
    penalty of a turn, which those pay that are not `is_valid`.
    `zero_variance_groups` is the share of groups whose members all ended alike.

    With `policy` they are over the turns of that one of several policies, and over the episodes in which it acted, with
    the whole return of these. Raises `BadSetting` when there is no such episode.
    """
    episodes = [episode for group in groups for episode in group if episode.counts_for(policy)]
    if not episodes:
        raise BadSetting(f"policy {policy!r} acted in none of the episodes")
    turns = [turn for episode in episodes for turn in episode.turns_by(policy)]
    invalid = sum(not turn.action_valid for turn in turns) / max(1, len(turns))
    penalised = sum(not is_valid(turn) for turn in turns) / max(1, len(turns))
    acted = [group for group in groups if any(episode.counts_for(policy) for episode in group)]
    alike = sum(ended_alike(group, outcome, policy) for group in acted)
    return {
        "success": sum(episode.success for episode in episodes) / len(episodes),
        "return": sum(episode.total_reward for episode in episodes) / len(episodes),
        "length": len(turns) / len(episodes),
        "invalid_actions": invalid,
        "invalid_penalty": invalid_action_penalty * penalised,
        "zero_variance_groups": alike / len(acted),
    }

"""Dynamic sampling: play on until the batch is full of groups that have something to compare.

A group whose members all ended alike has no variance, and gives no advantage that compares episodes. DAPO (Yu et al.,
2025) plays further tasks in place of such groups, so that every update is made of as many groups as the settings say.
That costs episodes which nobody trains on; they are counted with the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agentgym_flow.episode import Group


@dataclass(frozen=True, slots=True)
class SampledBatch:
    """The groups of one batch.

    Attributes:
        batch: the groups to train on, in the order in which they were played.
        played: all groups that were played for it, these and those left out.
        kept: how many groups of `batch` have variance.
        rounds: how often was played.
    """

    batch: list[Group]
    played: list[Group]
    kept: int
    rounds: int


def collect(
    play: Callable[[int, int], list[Group]], wanted: int, *, alike: Callable[[Group], bool], max_rounds: int = 1
) -> SampledBatch:
    """Return a batch of `wanted` groups; for those that ended alike others are played, as long as rounds are left.

    A round plays as many groups as are still missing, so none with variance is ever left out. When the last round has
    been played, groups that ended alike take the places that are left, the first ones first: every batch has `wanted`
    groups. With one round it is all that was played.

    Args:
        play: given the number of the round (0, 1, ...) and of the groups, plays that many.
        wanted: the size of the batch in groups; at least 1.
        alike: whether a group has no variance.
        max_rounds: the most rounds; at least 1.
    """
    played: list[Group] = []
    places, rounds = wanted, 0
    while places and rounds < max_rounds:
        played += play(rounds, places)
        places = wanted - sum(not alike(group) for group in played)
        rounds += 1
    kept, batch = wanted - places, []
    for group in played:
        if alike(group):
            places -= 1
            if places < 0:
                continue
        batch.append(group)
    return SampledBatch(batch, played, kept, rounds)

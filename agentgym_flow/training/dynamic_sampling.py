"""Dynamic sampling: play until the batch is full of groups with variance.

A group whose members all have the same outcome has no variance, so its episodes get no advantage over each other. DAPO
(Yu et al., 2025) replaces such groups by groups of further tasks, so that every update uses a full batch. This costs
episodes that are not trained on; they are counted with the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agentgym_flow.episodes import Group


@dataclass(frozen=True, slots=True)
class SampledBatch:
    """The groups of one batch.

    Attributes:
        batch: the groups to train on, in the order of play.
        played: all groups that were played, including discarded ones.
        kept: the number of groups in `batch` with variance.
        rounds: the number of rounds.
    """

    batch: list[Group]
    played: list[Group]
    kept: int
    rounds: int


def collect(
    play: Callable[[int, int], list[Group]], wanted: int, *, alike: Callable[[Group], bool], max_rounds: int = 1
) -> SampledBatch:
    """Return a batch of `wanted` groups, replacing groups without variance while rounds are left.

    A round plays as many groups as are still missing, so groups with variance are never discarded. After the last round
    the first groups without variance fill the remaining places: every batch has `wanted` groups. With one round it has
    all groups that were played.

    Args:
        play: plays groups, given the number of the round (from 0) and the number of groups.
        wanted: groups in the batch; at least 1.
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

"""Episodes on their way from workers to a trainer: fetched, stepped again, then refused or kept for their group.

A trainer may step only a random share p of them again, and believe what workers tell of the others. Which ones is drawn
when they have come, so no worker can know. One that forges a share f of N episodes is caught with probability
1 - (1 - p)^(f N). A worker's name proves nothing, so it is not a worker that loses the trust: after the first lie all
that was believed and not used yet is stepped again, and from then on every episode is.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from agentgym_flow.dataflow.records import Arrival, Attempt, Claim, Flow, Slot, SlotId
from agentgym_flow.dataflow.wire import Receiver
from agentgym_flow.episode import Episode, Group
from agentgym_flow.errors import Forged
from agentgym_flow.rollout import ERROR


class CompleteGroup(NamedTuple):
    """A group of which all episodes are there.

    Attributes:
        group: the episodes.
        played: what names them.
        update: the earliest update of the policy in training with which one of them was played.
        number: of the commit that made it complete.
    """

    group: Group
    played: list[Attempt]
    update: int
    number: int


class Inbox:
    """What has arrived for one policy in one stream, and was not used yet.

    Args:
        flow: the manager.
        claim: of the trainer.
        receiver: makes what steps episodes again; called with the first arrival.
        check: the share of them that are.

    Attributes:
        rejected: how many episodes were refused.
        check: as given; 1 after the first that was forged.
    """

    def __init__(self, flow: Flow, claim: Claim, receiver: Callable[[], Receiver], check: float = 1.0) -> None:
        self.rejected = 0
        self.check = check
        self._chance = random.SystemRandom()
        self._believed: set[Attempt] = set()
        self._flow, self._claim = flow, claim
        self._make_receiver = receiver
        self._made: Receiver | None = None
        self._last = 0
        self._arrived: dict[SlotId, tuple[Arrival, Episode]] = {}

    def fetch(self, wait: float) -> None:
        """Take in what has arrived; if that is nothing yet, wait for up to so many seconds.

        Raises what `Flow.arrivals` raises.
        """
        for arrival in self._flow.arrivals(self._claim, self._last, wait):
            self._last = max(self._last, arrival.number)
            self._take(arrival)

    def _take(self, arrival: Arrival) -> None:
        try:
            self._arrived[arrival.slot.id] = arrival, self._episode(arrival)
        except Forged as error:
            self.rejected += 1
            self._flow.reject(self._claim, arrival.played, str(error))
            self._doubt()

    def _doubt(self) -> None:
        """Believe nothing any more, nor what was believed and is not used yet."""
        self.check = 1.0
        doubted = [arrival for arrival, _ in self._arrived.values() if arrival.played in self._believed]
        self._believed.clear()
        for arrival in doubted:
            del self._arrived[arrival.slot.id]
            self._take(arrival)

    @property
    def _receiver(self) -> Receiver:
        if self._made is None:
            self._made = self._make_receiver()
        return self._made

    def _episode(self, arrival: Arrival) -> Episode:
        if arrival.payload:
            believed = self.check < 1 and self._chance.random() >= self.check
            make = self._receiver.believe if believed else self._receiver.replay
            episode = make(arrival.slot, arrival.payload, arrival.steps)
            if believed:
                self._believed.add(arrival.played)
            return episode
        episode = self._receiver.begin(arrival.slot)
        episode.meta[ERROR] = {"class": "LostEpisode", "message": arrival.reason}
        return episode

    def group(self, slots: Sequence[Slot]) -> CompleteGroup | None:
        """Return the group of these slots; None as long as one of them is missing."""
        if any(slot.id not in self._arrived for slot in slots):
            return None
        arrivals, episodes = zip(*(self._arrived[slot.id] for slot in slots), strict=True)
        return CompleteGroup(
            Group([*episodes]),
            [one.played for one in arrivals],
            min(one.updates[self._claim.policy] for one in arrivals),
            max(one.number for one in arrivals),
        )

    def forget(self, played: Iterable[Attempt]) -> None:
        """Let go of these episodes. Another one of the same slot, which has arrived since, stays."""
        for attempt in played:
            if attempt.slot in self._arrived and self._arrived[attempt.slot][0].played == attempt:
                del self._arrived[attempt.slot]
                self._believed.discard(attempt)

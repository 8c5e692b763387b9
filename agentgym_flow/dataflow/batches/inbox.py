"""Episodes that arrive from workers: the trainer fetches them, replays them, and rejects them or keeps them by group.

A trainer may replay only a random share p of the episodes and trust the workers' reports on the others. It draws these
after their arrival, so workers cannot know them. A worker that forges a share f of N episodes is caught with
probability 1 - (1 - p)^(f N). Workers can choose their names, so trust is not withdrawn by worker: after the first
forgery, the trainer replays all trusted episodes that it has not used yet, and every later episode.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import NamedTuple

from agentgym_flow.dataflow.records import Arrival, Attempt, Claim, Flow, Slot, SlotId
from agentgym_flow.dataflow.wire import Receiver
from agentgym_flow.episodes import Episode, Group
from agentgym_flow.errors import Forged
from agentgym_flow.play import ERROR


class CompleteGroup(NamedTuple):
    """A group whose episodes have all arrived.

    Attributes:
        group: the episodes.
        played: their attempts.
        update: the earliest update, of the policy in training, that played one of them.
        number: of the commit that completed it.
    """

    group: Group
    played: list[Attempt]
    update: int
    number: int


class Inbox:
    """The episodes of one policy in one stream that have arrived and were not used yet.

    Args:
        flow: the manager.
        claim: of the trainer.
        receiver: returns the receiver, which replays episodes; called at the first arrival.
        check: the share of episodes that are replayed.

    Attributes:
        rejected: how many episodes were rejected.
        check: as given; 1 after the first forgery.
    """

    def __init__(self, flow: Flow, claim: Claim, receiver: Callable[[], Receiver], check: float = 1.0) -> None:
        self.rejected = 0
        self.check = check
        self._chance = random.SystemRandom()
        self._trusted: set[Attempt] = set()
        self._flow, self._claim = flow, claim
        self._receiver = cache(receiver)
        self._last = 0
        self._arrived: dict[SlotId, tuple[Arrival, Episode]] = {}

    def fetch(self, wait: float) -> None:
        """Fetch the episodes that have arrived; if there are none, wait for up to `wait` seconds.

        Raises whatever `Flow.arrivals` raises.
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
            self._stop_trusting()

    def _stop_trusting(self) -> None:
        """Replay all later episodes, and the trusted ones that are not used yet."""
        self.check = 1.0
        trusted = [arrival for arrival, _ in self._arrived.values() if arrival.played in self._trusted]
        self._trusted.clear()
        for arrival in trusted:
            del self._arrived[arrival.slot.id]
            self._take(arrival)

    def _episode(self, arrival: Arrival) -> Episode:
        receiver = self._receiver()
        if arrival.payload:
            trusted = self.check < 1 and self._chance.random() >= self.check
            receive = receiver.trust if trusted else receiver.replay
            episode = receive(arrival.slot, arrival.payload, arrival.steps)
            if trusted:
                self._trusted.add(arrival.played)
            return episode
        episode = receiver.begin(arrival.slot)
        episode.meta[ERROR] = {"class": "LostEpisode", "message": arrival.reason}
        return episode

    def group(self, slots: Sequence[Slot]) -> CompleteGroup | None:
        """Return the group of these slots; None if one of them is missing."""
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
        """Drop these episodes. Later attempts at the same slots stay."""
        for attempt in played:
            if attempt.slot in self._arrived and self._arrived[attempt.slot][0].played == attempt:
                del self._arrived[attempt.slot]
                self._trusted.discard(attempt)

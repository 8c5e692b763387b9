"""Episodes on their way from workers to a trainer: fetched, stepped again, then refused or kept for their group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from agentgym_flow.dataflow.records import Arrival, Flow, Slot, SlotId
from agentgym_flow.dataflow.wire import Receiver
from agentgym_flow.episode import Episode, Group
from agentgym_flow.errors import Forged
from agentgym_flow.rollout import ERROR


class Inbox:
    """What has arrived for one policy in one stream, and was not used yet.

    Args:
        flow: the manager.
        stream: the stream.
        policy: the policy in training.
        receiver: makes what steps episodes again; called with the first arrival.

    Attributes:
        rejected: how many episodes were refused.
    """

    def __init__(self, flow: Flow, stream: str, policy: str, receiver: Callable[[], Receiver]) -> None:
        self.rejected = 0
        self._flow = flow
        self._stream, self._policy = stream, policy
        self._make_receiver = receiver
        self._made: Receiver | None = None
        self._last = 0
        self._arrived: dict[SlotId, tuple[Arrival, Episode]] = {}

    def fetch(self, wait: float) -> None:
        """Take in what has arrived; if that is nothing yet, wait for up to so many seconds.

        Raises what `Flow.arrivals` raises.
        """
        for arrival in self._flow.arrivals(self._stream, self._policy, self._last, wait):
            self._last = max(self._last, arrival.number)
            try:
                episode = self._episode(arrival)
            except Forged as error:
                self.rejected += 1
                self._flow.reject(self._stream, arrival.slot.id, arrival.attempt, str(error))
            else:
                self._arrived[arrival.slot.id] = arrival, episode

    @property
    def _receiver(self) -> Receiver:
        if self._made is None:
            self._made = self._make_receiver()
        return self._made

    def _episode(self, arrival: Arrival) -> Episode:
        if arrival.payload:
            return self._receiver.replay(arrival.slot, arrival.payload, arrival.steps)
        episode = self._receiver.begin(arrival.slot)
        episode.meta[ERROR] = {"class": "LostEpisode", "message": arrival.reason}
        return episode

    def group(self, slots: Sequence[Slot]) -> Group | None:
        """Return the group of these slots; None as long as one of them is missing."""
        if all(slot.id in self._arrived for slot in slots):
            return Group([self._arrived[slot.id][1] for slot in slots])
        return None

    def update_of(self, slots: Sequence[Slot]) -> int:
        """Return the earliest update of the policy with which a slot of a whole group was played."""
        return min(self._arrived[slot.id][0].updates[self._policy] for slot in slots)

    def completed(self, slots: Sequence[Slot]) -> int:
        """Return the number of the commit that made a group whole."""
        return max(self._arrived[slot.id][0].number for slot in slots)

    def forget(self, slots: Iterable[SlotId]) -> None:
        """Let go of the episodes of these slots."""
        for slot in slots:
            del self._arrived[slot]

"""A script of calls on a manager, whose answers are the same wherever the manager is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from little_worker import held, played

from agentgym_flow.dataflow.bookkeeping.journal import digest_of
from agentgym_flow.dataflow.bookkeeping.manager import Manager
from agentgym_flow.dataflow.records import Attempt, Claim, Flow, Slot
from agentgym_flow.dataflow.weights import header
from agentgym_flow.errors import AgentGymFlowError

SETUP = {"policies": ["a"], "staleness": 0, "env": "game", "café": [1, 2.5, None, True]}
WEIGHTS = bytes(range(256)) * 5000


class MessageStore:
    """Weights as they came."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, int], bytes] = {}

    def digest(self, message: bytes) -> str:
        """As a store of weights, for a message that is one: another engine may have such a store."""
        return header(message).digest if b"agentgym_flow.weights" in message else digest_of(message)

    def put(self, policy: str, version: int, message: bytes) -> None:
        self.kept[policy, version] = message

    def get(self, policy: str, version: int, have: int | None) -> bytes:
        return self.kept[policy, version]

    def prune(self, policy: str, versions: Any) -> None:
        pass


def manager(**settings: Any) -> Manager:
    return Manager(**{"store": MessageStore(), **settings})


def slots(batch: int, groups: int = 2, samples: int = 2) -> list[Slot]:
    return [Slot(batch, group, sample, group, 2**60 + 7) for group in range(groups) for sample in range(samples)]


def opened(flow: Flow, batch: int = 0) -> Claim:
    """A stream with two groups of two slots to play."""
    claim = flow.open("s", "a", 0, SETUP, "trainer")
    flow.publish(claim, 0, 0, WEIGHTS)
    flow.admit(claim, slots(batch))
    return claim


def trace(flow: Flow) -> list[Any]:
    """Make the calls; return what came back, errors as their class and message."""
    answers: list[Any] = []

    def say(call: Callable[..., Any], *args: Any) -> Any:
        try:
            answer = call(*args)
        except AgentGymFlowError as error:
            answer = (type(error), str(error))
        answers.append(answer)
        return answer

    say(flow.describe)
    say(flow.lease, "w", 0)
    say(flow.arrivals, Claim("nowhere", "a", 1), 0)
    say(flow.open, "s", "b", 0, SETUP, "trainer of b")
    old = say(flow.open, "s", "a", 0, SETUP, "first")
    claim = say(flow.open, "s", "a", 0, SETUP, "second")
    say(flow.open, "s", "a", 0, SETUP, "second")
    say(flow.open, "s", "a", 0, SETUP, "first")
    say(flow.admit, old, slots(0))
    say(flow.admit, claim, slots(0))
    say(flow.admit, claim, [slots(0)[0]._replace(task=5)])
    say(flow.lease, "w", 4)
    say(flow.publish, claim, 0, 3, WEIGHTS)
    say(flow.publish, old, 0, 3, WEIGHTS)
    leases = say(flow.lease, "w", 3, 0.01)
    say(flow.renew, "w", [held(lease) for lease in leases])
    say(flow.renew, "w", [held(leases[0])._replace(attempt=9)])
    say(flow.commit, "w", [played(leases[0]), played(leases[1])])
    say(flow.commit, "w", [played(leases[0])])
    say(flow.commit, "w", [played(leases[2])._replace(digests={"a": "of other weights"})])
    leases[2] = say(flow.lease, "u", 1)[0]
    say(flow.fail, "u", held(leases[2]), "it broke")
    say(flow.commit, "w", [played(leases[2])])
    say(flow.fetch, "a", 1, None)
    arrivals = say(flow.arrivals, claim, 0, 0.01)
    say(flow.reject, claim, arrivals[0].played, "it is not what its tokens come to")
    rest = say(flow.lease, "v", 9)
    say(flow.give_back, "v", [held(rest[0])])
    rest[0] = say(flow.lease, "v", 1)[0]
    say(flow.commit, "v", [played(lease) for lease in rest])
    say(flow.ack, claim, 0, [Attempt(slot.id, 1) for slot in slots(0)], [])
    last = say(flow.arrivals, claim, 0)
    say(flow.ack, claim, 0, [one.played for one in last], [])
    say(flow.ack, claim, 1, [last[0].played], [])
    say(flow.beat, claim)
    say(flow.beat, claim._replace(policy="b"))
    say(flow.keep, claim, 1)
    say(flow.arrivals, claim, 0)
    say(flow.arrivals, claim, 1000)  # what a trainer knows and the journal has lost
    say(flow.publish, claim, 9, 9, WEIGHTS)
    say(flow.open, "s", "a", 9, SETUP, "third")
    say(flow.open, "t", "c", 9, {"policies": ["c"]}, "of another stream")
    say(flow.beat, claim._replace(epoch=7))
    say(lambda: flow.status()["streams"]["s"]["states"])
    return answers

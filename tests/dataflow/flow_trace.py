"""A script of calls on a manager, whose answers are the same wherever the manager is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from little_worker import held, played

from agentgym_flow.dataflow.bookkeeping.manager import Manager
from agentgym_flow.dataflow.records import Flow, Slot
from agentgym_flow.errors import AgentGymFlowError

SETUP = {"policies": ["a"], "staleness": 0, "env": "game", "café": [1, 2.5, None, True]}
WEIGHTS = bytes(range(256)) * 5000


class MessageStore:
    """Weights as they came."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, int], bytes] = {}

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


def opened(flow: Flow, batch: int = 0) -> None:
    """A stream with two groups of two slots to play."""
    flow.open("s", "a", 0, SETUP)
    flow.publish("a", 0, 0, WEIGHTS)
    flow.admit("s", slots(batch))


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
    say(flow.arrivals, "nowhere", "a", 0)
    say(flow.open, "s", "b", 0, SETUP)
    say(lambda: flow.open("s", "a", 0, SETUP)["states"])
    say(flow.admit, "s", slots(0))
    say(flow.admit, "s", [slots(0)[0]._replace(task=5)])
    say(flow.lease, "w", 4)
    say(flow.publish, "a", 0, 3, WEIGHTS)
    leases = say(flow.lease, "w", 3, 0.01)
    say(flow.renew, "w", [held(lease) for lease in leases])
    say(flow.renew, "w", [held(leases[0])._replace(attempt=9)])
    say(flow.commit, "w", [played(leases[0]), played(leases[1])])
    say(flow.commit, "w", [played(leases[0])])
    say(flow.fail, "w", held(leases[2]), "it broke")
    say(flow.commit, "w", [played(leases[2])])
    say(flow.fetch, "a", 1, None)
    arrivals = say(flow.arrivals, "s", "a", 0, 0.01)
    say(flow.reject, "s", arrivals[0].slot.id, arrivals[0].attempt, "it is not what its tokens come to")
    rest = say(flow.lease, "v", 9)
    say(flow.commit, "v", [played(lease) for lease in rest])
    say(flow.ack, "s", "a", 0, [slot.id for slot in slots(0)], [])
    say(flow.ack, "s", "a", 1, [(0, 0, 0)], [])
    say(flow.beat, "a")
    say(flow.beat, "b")
    say(flow.keep, "s", "a", 1)
    say(flow.arrivals, "s", "a", 0)
    say(lambda: flow.status()["streams"]["s"]["states"])
    return answers

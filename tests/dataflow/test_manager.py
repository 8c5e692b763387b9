"""The manager as trainers and workers call it."""

from __future__ import annotations

from agentgym_flow.dataflow.manager import Manager
from agentgym_flow.dataflow.records import Commit, Held, Lease, Slot, Verdict

SETUP = {"policies": ["a"], "env": "game"}


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def slots(batch: int, groups: int = 2, samples: int = 2) -> list[Slot]:
    return [Slot(batch, group, sample, group, 7) for group in range(groups) for sample in range(samples)]


def played(lease: Lease) -> Commit:
    return Commit(Held(lease.stream, lease.slot.id, lease.attempt), f"{lease.slot} with {lease.weights}")


def test_a_batch_goes_round() -> None:
    manager = Manager(staleness=0)
    manager.open("s", "a", 0, SETUP)
    assert manager.publish("a", 0, 0, b"weights") == 1
    manager.admit("s", slots(0))
    leases = manager.lease("w", 8)
    assert [lease.slot for lease in leases] == slots(0)
    assert manager.fetch("a", leases[0].weights["a"], None) == b"weights"
    assert manager.commit("w", [played(lease) for lease in leases]) == [Verdict.ACCEPTED] * 4
    arrivals = manager.arrivals("s", "a", 0)
    assert [one.slot for one in arrivals] == slots(0)
    assert arrivals[0].payload == played(leases[0]).payload
    manager.ack("s", "a", 0, [one.slot.id for one in arrivals], [])
    manager.keep("s", "a", 1)
    assert manager.status()["streams"]["s"]["states"]["trained"] == 4

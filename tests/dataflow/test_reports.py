"""Trusted episodes: an honest one equals its replay, and malformed ones are rejected."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from test_wire import SLOTS, STEPS, WORLDS, recorded, sokoban

from agentgym_flow.dataflow.batches.inbox import Inbox
from agentgym_flow.dataflow.records import Arrival, Attempt, Claim
from agentgym_flow.dataflow.wire import encode
from agentgym_flow.errors import Forged

Rows = list[list[Any]]


@pytest.mark.parametrize("name", WORLDS)
def test_an_honest_episode_is_the_same_trusted_or_replayed(name: str) -> None:
    world, receiver = WORLDS[name](), WORLDS[name]().receiver()
    for slot, episode, _ in recorded(name):
        payload = encode(episode, report=True)
        found = receiver.trust(slot, payload, world.steps)
        assert found == receiver.replay(slot, payload, world.steps) == episode
        assert repr(found) == repr(episode)


def payload_with(change: Callable[[Rows], object]) -> str:
    lines = encode(recorded("sokoban")[0][1], report=True).split("\n")
    rows = json.loads(lines[2])
    change(rows)
    return "\n".join([*lines[:2], json.dumps(rows)])


def put(turn: int, place: int, value: Any) -> Callable[[Rows], None]:
    def change(rows: Rows) -> None:
        rows[turn][place] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        put(0, 0, "a better board"),
        put(1, 1, "end:success"),
        lambda rows: put(0, 2, not rows[0][2])(rows),
        put(-1, 6, 1.0),
        put(2, 9, [3, 4, 5]),
    ],
)
def test_a_lie_is_trusted_or_caught(change: Callable[[Rows], None]) -> None:
    """Observation, state, validity, score and prompt: whoever steps again finds out."""
    assert sokoban().receiver().trust(SLOTS[0], payload_with(change), STEPS).turns
    with pytest.raises(Forged, match="the report on the turns differs from the replay"):
        sokoban().receiver().replay(SLOTS[0], payload_with(change), STEPS)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda rows: rows.pop(), "not a list for each of 5"),
        (lambda rows: rows[1].pop(), "must be list of length 10"),
        (put(0, 0, 7), "from 0: field .\\[0\\].next_observation. must be str, found 7"),
        (put(0, 2, 1), "\\[0\\].action_valid. must be bool, found 1"),
        (put(1, 3, True), "turn 2: the episode is reported to end"),
        (put(1, 6, float("nan")), "score. must be float >= 0"),
        (put(1, 6, 2.0), "score. must be float <= 1.0, found 2.0"),
        (put(1, 8, {"workflow": 1}), "turn 2: .*workflow.* of info is reported"),
        (put(1, 9, []), "turn 2: a prompt is reported"),
        (put(1, 9, [1 << 40]), "turn 2: a prompt is reported"),
        (put(1, 9, [1] * 100_000), "turn 2: a prompt of 100000 tokens"),
    ],
)
def test_what_no_model_can_be_trained_on_is_refused(change: Callable[[Rows], object], match: str) -> None:
    with pytest.raises(Forged, match=match):
        sokoban().receiver().trust(SLOTS[0], payload_with(change), STEPS)


@pytest.mark.parametrize("facts", ["", "[", "{}", "[[[" * 9999])
def test_what_is_no_list_is_refused(facts: str) -> None:
    payload = payload_with(lambda rows: None).rpartition("\n")[0] + f"\n{facts}"
    with pytest.raises(Forged, match="the report on the turns"):
        sokoban().receiver().trust(SLOTS[0], payload, STEPS)


def test_a_trusted_episode_of_another_task_is_refused() -> None:
    with pytest.raises(Forged, match="task: the log has 0, but 1 was requested"):
        sokoban().receiver().trust(SLOTS[0]._replace(task=1), payload_with(lambda rows: None), STEPS)


class Lying:
    """A manager that brings an episode with a lie, and one that is lost."""

    def __init__(self) -> None:
        self.rejected: list[Attempt] = []

    def arrivals(self, claim: Claim, after: int, wait: float) -> list[Arrival]:
        payload = payload_with(put(-1, 6, 1.0)).encode()
        of = STEPS, dict.fromkeys(STEPS, 0)
        return [Arrival(1, SLOTS[0], 1, *of, payload), Arrival(2, SLOTS[1], 2, *of, b"", "it broke")]

    def reject(self, claim: Claim, attempt: Attempt, reason: str) -> None:
        self.rejected.append(attempt)


def test_an_episode_that_is_rejected_after_its_group_was_made_is_not_lost() -> None:
    flow = Lying()
    inbox = Inbox(flow, Claim("s", next(iter(STEPS)), 1), sokoban().receiver, check=0.0)  # type: ignore[arg-type]
    inbox.fetch(0.0)
    group = inbox.group(SLOTS[:2])
    assert group is not None
    assert [inbox.is_lost(one) for one in group.played] == [False, True]
    inbox._stop_trusting()  # as after a lie in another group
    assert flow.rejected == [group.played[0]]
    assert [inbox.is_lost(one) for one in group.played] == [False, True]

"""The check that makes state graphs true: equal state keys within one task have equal futures.

Random play and a walk through the states collect different histories that reach the same key. Every step that is taken
on the way must agree with every step of the same action from the same key: if all single steps do, so do the futures.
So a key that forgets something is found as soon as it has been left from two states that differ. Steps go where that is
likely: to the key that was left least often, from the visit whose history is least like those that were left already.
"""

from __future__ import annotations

import copy
from typing import Any, ClassVar, NamedTuple

from agentgym_flow.core import TextEnv
from agentgym_flow.seeding import Stream
from agentgym_flow.testing import play
from agentgym_flow.testing.suite import TextSuite, Variant

_PROMISED = ("state_key", "success", "admissible_actions", "action_valid")
_MOST_WAITING = 16
"""Visits of one key that wait to be left; a later one takes the place of a random one."""
_MOST_AGAIN = 8
"""Candidates that are tried when a key is left again; the first time it is all of them."""
_WALK = 4
"""Steps of the random walk that begins where a visit was left."""


class KeyVisit(NamedTuple):
    """A clone in some state.

    Attributes:
        env: the clone.
        key: its key.
        actions: what led there.
        accepted: how many of them were accepted.
        passed: every key on the way, with what was done there.
    """

    env: TextEnv
    key: str
    actions: tuple[str, ...]
    accepted: int
    passed: frozenset[tuple[str, str]]


class KeyStep(NamedTuple):
    """What the first step of an action from a key came to, and the actions that had led there."""

    reward: float
    terminated: bool
    promised: dict[str, Any]
    history: tuple[str, ...]


class KeyRecord:
    """What is known of one key.

    Attributes:
        waiting: visits that have not been left.
        left: the histories of those that have been.
        counts: how many accepted actions led here.
        shown: the first visit's admissible actions and success.
        came: how many visits came.
    """

    def __init__(self, first: KeyVisit) -> None:
        self.waiting: list[KeyVisit] = []
        self.left: list[frozenset[tuple[str, str]]] = []
        self.counts: set[int] = set()
        self.shown = _shown(first)
        self.came = 0

    def add(self, visit: KeyVisit, rng: Stream) -> None:
        """Keep a visit, unless one with the same steps in its history is here or too many are."""
        self.came += 1
        self.counts.add(visit.accepted)
        if any(visit.passed == other.passed for other in self.waiting) or visit.passed in self.left:
            return
        if len(self.waiting) < _MOST_WAITING:
            self.waiting.append(visit)
        elif (at := rng.below(self.came)) < _MOST_WAITING:
            self.waiting[at] = visit

    def take(self) -> KeyVisit:
        """Return the waiting visit whose history is least like those of the visits that have been left."""

        def unlike(number: int) -> float:
            return min((_apart(self.waiting[number], one) for one in self.left), default=0.0)

        at = max(range(len(self.waiting)), key=unlike)
        visit = self.waiting.pop(at)
        self.left.append(visit.passed)
        return visit


class Histories:
    """Walks through the states of one environment under one task; every step is compared with those before it.

    Raises `AssertionError` where two of them disagree.
    """

    def __init__(self, start: TextEnv, most_states: int) -> None:
        self.most_states = most_states
        self.places: dict[str, KeyRecord] = {}
        self.steps: dict[tuple[str, str], KeyStep] = {}
        self.rng = Stream("histories")
        self.root = KeyVisit(start, start.state_key(), (), 0, frozenset())
        self._came(self.root)

    def wander(self, walks: int, length: int) -> None:
        """Random walks from the start, with refused actions in between."""
        for walk in range(walks):
            visit, rng = _cloned(self.root), Stream("wander", walk)
            self._walk(visit, ("mixed", "random", "expert")[walk % 3], rng, length)

    def explore(self, times: int) -> None:
        """Leave every known state by its candidates, up to `times` times as often as there may be states."""
        for number in range(times * self.most_states):
            place = self._next()
            if place is None:
                return
            visit = place.take()
            actions = visit.env.candidates()
            if len(place.left) > 1 and len(actions) > _MOST_AGAIN:
                actions = self.rng.sample(actions, _MOST_AGAIN)
            for action in actions:
                self._step(_cloned(visit), action)
            if number >= self.most_states:  # what candidates leave out, and where nothing new is near
                self._walk(_cloned(visit), "mixed", Stream("future", number), _WALK)

    def _next(self) -> KeyRecord | None:
        """Return the place that was left least often, of those where a visit waits; the first of them."""
        among = [place for place in list(self.places.values())[: self.most_states] if place.waiting]
        return min(among, key=lambda place: len(place.left), default=None)

    def _walk(self, visit: KeyVisit, policy: str, rng: Stream, length: int) -> None:
        for _ in range(length):
            following = self._step(visit, play.choose(visit.env, policy, rng), copied=True)
            if following is None:
                return
            visit = following

    def _step(self, visit: KeyVisit, action: str, *, copied: bool = False) -> KeyVisit | None:
        """Step the clone of a visit, compare, and return the visit after it; None when the episode is over."""
        moment = play.advance(visit.env, action)
        promised = {key: moment.info[key] for key in _PROMISED}
        known = self.steps.setdefault(
            (visit.key, action), KeyStep(moment.reward, moment.terminated, promised, visit.actions)
        )
        _compare(known, moment, visit, action)
        if moment.over:
            return None
        accepted = visit.accepted + moment.info["action_valid"]
        passed = visit.passed | {(visit.key, action)}
        after = KeyVisit(visit.env, moment.info["state_key"], (*visit.actions, action), accepted, passed)
        self._came(_cloned(after) if copied else after)
        return after

    def _came(self, visit: KeyVisit) -> None:
        place = self.places.get(visit.key)
        if place is None:
            if len(self.places) >= 4 * self.most_states:
                return
            place = self.places[visit.key] = KeyRecord(visit)
        admissible, success, history = place.shown
        who = f"the histories {list(history)} and {list(visit.actions)} reach the key {visit.key!r}"
        assert admissible == visit.env.admissible_actions(), f"{who}, but admissible_actions differ"
        assert success == visit.env.success(), f"{who}, but success differs"
        place.add(visit, self.rng)


def _shown(visit: KeyVisit) -> tuple[list[str], bool, tuple[str, ...]]:
    return visit.env.admissible_actions(), visit.env.success(), visit.actions


def _cloned(visit: KeyVisit) -> KeyVisit:
    return visit._replace(env=copy.deepcopy(visit.env))


def _apart(visit: KeyVisit, passed: frozenset[tuple[str, str]]) -> float:
    """Return how different two histories are: the share of their steps that only one of them has."""
    return len(visit.passed ^ passed) / max(1, len(visit.passed | passed))


def _compare(known: KeyStep, moment: play.Moment, visit: KeyVisit, action: str) -> None:
    """Raise `AssertionError` unless a step came to what the first one of its action from its key came to."""
    who = f"the histories {list(known.history)} and {list(visit.actions)} reach the key {visit.key!r}"
    after = f"after {action!r:.80}"
    assert known.reward == moment.reward, f"{who}, but {after} the rewards are {known.reward} and {moment.reward}"
    assert known.terminated == moment.terminated, f"{who}, but only one of them terminates {after}"
    for key in _PROMISED:
        one, two = known.promised[key], moment.info[key]
        assert one == two, (
            f"{who}, but {after} {key} is {one!r:.100} and {two!r:.100}: "
            "the key forgets something that decides the future"
        )


class KeyChecks(TextSuite):
    """Merged states are the same state."""

    key_states: ClassVar[int] = 40
    """How many states per task are explored for different histories."""
    key_departures: ClassVar[int] = 2
    """How often a state is left by all of its candidates, each time after another history, on average."""
    key_tasks: ClassVar[int] = 2
    """How many tasks are explored."""
    has_detours: ClassVar[bool] = True
    """Whether some state can be reached by histories of different length (one step there and back is enough)."""

    def test_equal_state_keys_have_equal_futures(self, variant: Variant) -> None:
        """The same further actions give equal rewards, terminations, success, admissible actions and keys."""
        env = self.make(variant, max_steps=1 << 30)
        merges = False
        for task in self.sampled_tasks(env, self.key_tasks):
            play.start(env, 0, task)
            histories = Histories(env, self.key_states)
            histories.wander(9, 14)
            histories.explore(self.key_departures)
            merges |= any(len(place.counts) > 1 for place in histories.places.values())
        assert merges or not self.has_detours, (
            "no state key was reached by more and by fewer valid actions: a key that counts steps or holds the history "
            "merges nothing (set has_detours = False if no state of this environment can be reached twice)"
        )

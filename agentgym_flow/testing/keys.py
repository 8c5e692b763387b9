"""Check that equal state keys within one task have equal futures, which state graphs rely on.

Random play and an exploration of the states collect different histories that reach the same key. All steps with the
same action from the same key must agree; then complete futures agree, too. A key that omits part of the state is
detected when two different states with this key have been left by the same action. To find such cases early, the
exploration continues at the key that was left least often, from the visit with the most different history.
"""

from __future__ import annotations

import copy
from typing import Any, ClassVar, NamedTuple

from agentgym_flow.core import Stream, TextEnv
from agentgym_flow.testing import play
from agentgym_flow.testing.suite import TextSuite, Variant

_PROMISED = ("state_key", "success", "admissible_actions", "action_valid")
_MOST_WAITING = 16
"""The number of stored visits of one key; a further visit replaces a random one."""
_MOST_AGAIN = 8
"""The number of candidates that are tried from a repeated visit of a key. From the first visit, all are tried."""
_WALK = 4
"""The number of steps of a random walk from a visit."""


class KeyVisit(NamedTuple):
    """A visit of a state.

    Attributes:
        env: a clone of the environment in this state.
        key: the state key.
        actions: the actions that led here.
        accepted: the number of these actions that were valid.
        passed: all (key, action) pairs on the way.
    """

    env: TextEnv
    key: str
    actions: tuple[str, ...]
    accepted: int
    passed: frozenset[tuple[str, str]]


class KeyStep(NamedTuple):
    """The result of the first step with an action from a key, and the actions that had led to the key."""

    reward: float
    terminated: bool
    promised: dict[str, Any]
    history: tuple[str, ...]


class KeyRecord:
    """All visits of one key.

    Attributes:
        waiting: visits that have not been explored.
        left: the histories of the explored visits.
        counts: the numbers of valid actions that led here.
        shown: the first visit's admissible actions, success and history.
        came: the number of visits.
    """

    def __init__(self, first: KeyVisit) -> None:
        self.waiting: list[KeyVisit] = []
        self.left: list[frozenset[tuple[str, str]]] = []
        self.counts: set[int] = set()
        self.shown = _shown(first)
        self.came = 0

    def add(self, visit: KeyVisit, rng: Stream) -> None:
        """Store a visit, unless one with the same history is stored or there are too many."""
        self.came += 1
        self.counts.add(visit.accepted)
        if any(visit.passed == other.passed for other in self.waiting) or visit.passed in self.left:
            return
        if len(self.waiting) < _MOST_WAITING:
            self.waiting.append(visit)
        elif (at := rng.below(self.came)) < _MOST_WAITING:
            self.waiting[at] = visit

    def take(self) -> KeyVisit:
        """Return the waiting visit whose history differs most from those of the explored visits."""

        def unlike(number: int) -> float:
            return min((_apart(self.waiting[number], one) for one in self.left), default=0.0)

        at = max(range(len(self.waiting)), key=unlike)
        visit = self.waiting.pop(at)
        self.left.append(visit.passed)
        return visit


class Histories:
    """Explores the states of one task, and compares every step with earlier ones.

    Raises `AssertionError` if two steps disagree.
    """

    def __init__(self, start: TextEnv, most_states: int) -> None:
        self.most_states = most_states
        self.places: dict[str, KeyRecord] = {}
        self.steps: dict[tuple[str, str], KeyStep] = {}
        self.rng = Stream("histories")
        self.root = KeyVisit(start, start.state_key(), (), 0, frozenset())
        self._came(self.root)

    def wander(self, walks: int, length: int) -> None:
        """Take random walks from the start, which include invalid actions."""
        for walk in range(walks):
            visit, rng = _cloned(self.root), Stream("wander", walk)
            self._walk(visit, ("mixed", "random", "expert")[walk % 3], rng, length)

    def explore(self, times: int) -> None:
        """Try the candidates of known states, from up to `times * most_states` visits."""
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
            if number >= self.most_states:  # also try other actions than candidates, and look further ahead
                self._walk(_cloned(visit), "mixed", Stream("future", number), _WALK)

    def _next(self) -> KeyRecord | None:
        """Return the first key with a waiting visit that was left least often."""
        among = [place for place in list(self.places.values())[: self.most_states] if place.waiting]
        return min(among, key=lambda place: len(place.left), default=None)

    def _walk(self, visit: KeyVisit, policy: str, rng: Stream, length: int) -> None:
        for _ in range(length):
            following = self._step(visit, play.choose(visit.env, policy, rng), copied=True)
            if following is None:
                return
            visit = following

    def _step(self, visit: KeyVisit, action: str, *, copied: bool = False) -> KeyVisit | None:
        """Step the clone of a visit, compare the result, and return the next visit; None if the episode is over."""
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
    """Return the difference of two histories: the share of their steps that only one of them has."""
    return len(visit.passed ^ passed) / max(1, len(visit.passed | passed))


def _compare(known: KeyStep, moment: play.Moment, visit: KeyVisit, action: str) -> None:
    """Raise `AssertionError` unless a step agrees with the first step of the same action from the same key."""
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
    """States with equal keys are equivalent."""

    key_states: ClassVar[int] = 40
    """The number of states per task to explore."""
    key_departures: ClassVar[int] = 2
    """The average number of visits with different histories from which the candidates of a state are tried."""
    key_tasks: ClassVar[int] = 2
    """The number of tasks to explore."""
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

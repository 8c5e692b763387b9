"""Checks of states: equal state keys have equal futures, and the contract holds for any order of calls.

State graphs rely on the keys. Random play and an exploration of the states collect different histories that reach the
same key. All steps with the same action from the same key must agree; then complete futures agree, too. A key that
omits part of the state is detected when two different states with this key have been left by the same action. To find
such cases early, the exploration continues at the key that was left least often, from the visit with the most different
history.

A Hypothesis state machine resets, steps (candidates, random and expert actions, any text), clones, pickles and replays
in any order, and checks the contract on every result.
"""

from __future__ import annotations

import copy
import pickle
from functools import partial
from typing import Any, ClassVar, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from agentgym_flow.core import Stream, TextEnv
from agentgym_flow.errors import ResetNeeded
from agentgym_flow.testing import play
from agentgym_flow.testing.steps import ANY_TEXT, broken_rules
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
        self.shown = (first.env.admissible_actions(), first.env.success(), first.actions)
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
            """Return the difference to the most similar one: the share of the steps that only one of the two has."""
            mine = self.waiting[number].passed
            return min((len(mine ^ other) / max(1, len(mine | other)) for other in self.left), default=0.0)

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
        # The first step with an action from a key, and the actions that had led to the key.
        self.steps: dict[tuple[str, str], tuple[play.Moment, tuple[str, ...]]] = {}
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
            among = [place for place in list(self.places.values())[: self.most_states] if place.waiting]
            if not among:
                return
            place = min(among, key=lambda place: len(place.left))  # the first of those that were left least often
            visit = place.take()
            actions = visit.env.candidates()
            if len(place.left) > 1 and len(actions) > _MOST_AGAIN:
                actions = self.rng.sample(actions, _MOST_AGAIN)
            for action in actions:
                self._step(_cloned(visit), action)
            if number >= self.most_states:  # also try other actions than candidates, and look further ahead
                self._walk(_cloned(visit), "mixed", Stream("future", number), _WALK)

    def _walk(self, visit: KeyVisit, policy: str, rng: Stream, length: int) -> None:
        for _ in range(length):
            following = self._step(visit, play.choose(visit.env, policy, rng), copied=True)
            if following is None:
                return
            visit = following

    def _step(self, visit: KeyVisit, action: str, *, copied: bool = False) -> KeyVisit | None:
        """Step the clone of a visit, compare the result, and return the next visit; None if the episode is over."""
        moment = play.advance(visit.env, action)
        _compare(*self.steps.setdefault((visit.key, action), (moment, visit.actions)), moment, visit)
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


def _cloned(visit: KeyVisit) -> KeyVisit:
    return visit._replace(env=copy.deepcopy(visit.env))


def _compare(known: play.Moment, history: tuple[str, ...], moment: play.Moment, visit: KeyVisit) -> None:
    """Raise `AssertionError` unless a step agrees with the first step of the same action from the same key."""
    who = f"the histories {list(history)} and {list(visit.actions)} reach the key {visit.key!r}"
    after = f"after {moment.action!r:.80}"
    assert known.reward == moment.reward, f"{who}, but {after} the rewards are {known.reward} and {moment.reward}"
    assert known.terminated == moment.terminated, f"{who}, but only one of them terminates {after}"
    for key in _PROMISED:
        one, two = known.info[key], moment.info[key]
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


NONSENSE = st.integers(0, len(play.NONSENSE) - 1).map(lambda number: play.NONSENSE[number])
"""An invalid text, drawn by its number, because Hypothesis prints strategies, and one text has a megabyte."""


class ContractMachine(RuleBasedStateMachine):
    """One environment under random calls, with the record of the episode so far."""

    def __init__(self, suite: TextSuite, variant: Variant) -> None:
        super().__init__()
        self.suite = suite
        self.variant = variant

    @initialize(seed=st.integers(0, 1 << 31), max_steps=st.sampled_from([1, 3, 50]))
    def make(self, seed: int, max_steps: int) -> None:
        """Make the environment and start its first episode."""
        self.kwargs = {**self.variant, "max_steps": max_steps}
        self.env: TextEnv = self.suite.make(self.kwargs)
        self.begin(seed)

    def begin(self, seed: int) -> None:
        """Start an episode, and record its moments."""
        self.seed = seed
        self.moments = [play.start(self.env, seed)]

    @property
    def playing(self) -> bool:
        """Whether the episode is running."""
        return not self.moments[-1].over

    def do(self, action: str) -> None:
        """Take a step and check it."""
        before = self.moments[-1]
        moment = play.advance(self.env, action)
        self.moments.append(moment)
        if not moment.info["action_valid"]:
            what = f"the invalid action {action!r:.80}"
            assert moment.info["state_key"] == before.info["state_key"], f"{what} changes state_key"
            assert not moment.terminated, f"{what} terminates the episode"
            assert action not in before.info["admissible_actions"], f"the admissible action {action!r:.80} is refused"

    @rule(seed=st.integers(0, 1 << 31))
    def reset(self, seed: int) -> None:
        """Start another episode, during or after the present one."""
        self.begin(seed)

    @precondition(lambda self: self.playing)
    @rule(number=st.integers(0, 1 << 16))
    def step_candidate(self, number: int) -> None:
        """Take one of the candidates."""
        candidates = self.env.candidates()
        if candidates:
            self.do(candidates[number % len(candidates)])

    @precondition(lambda self: self.playing)
    @rule(number=st.integers(0, 1 << 16))
    def step_random(self, number: int) -> None:
        """Take a random valid action."""
        action = self.env.sample_action(Stream("machine", number))
        self.do(action)
        assert self.moments[-1].info["action_valid"], f"sample_action drew {action!r}, which is refused"

    @precondition(lambda self: self.playing)
    @rule(count=st.integers(1, 4))
    def step_expert(self, count: int) -> None:
        """Take a few actions of the expert."""
        for _ in range(count):
            action = self.env.expert_action() if self.playing else None
            if action is None:
                return
            self.do(action)
            assert self.moments[-1].info["action_valid"], f"the expert's action {action!r} is refused"

    @precondition(lambda self: self.playing)
    @rule(text=st.one_of(ANY_TEXT, NONSENSE))
    def step_text(self, text: str) -> None:
        """Take any text as the action."""
        self.do(text)

    @rule(stray_steps=st.integers(0, 3))
    def clone(self, stray_steps: int) -> None:
        """Continue with a deep copy, after the original has taken other steps and a reset."""
        original, self.env = self.env, copy.deepcopy(self.env)
        if self.playing:
            for number in range(stray_steps):
                if play.advance(original, original.sample_action(Stream("stray", number))).over:
                    break
        play.start(original, self.seed + 1)

    @rule()
    def pickle(self) -> None:
        """Continue with a pickled and restored copy."""
        self.env = pickle.loads(pickle.dumps(self.env))

    @rule()
    def replay(self) -> None:
        """The same seed and actions give the same episode in a new environment."""
        env = self.suite.make(self.kwargs)
        again = [play.start(env, self.seed), *(play.advance(env, moment.action) for moment in self.moments[1:])]
        apart = play.difference(self.moments, again)
        assert apart is None, f"the episode replays differently: {apart}"

    @invariant()
    def contract_holds(self) -> None:
        """The result of the last call follows the contract."""
        last = self.moments[-1]
        for broken in broken_rules(last, self.suite.success_threshold):
            raise AssertionError(broken)
        for key in ("task", "task_key", "goal"):
            assert last.info[key] == self.moments[0].info[key], f"info[{key!r}] changes during an episode"
        assert self.env.state_key() == last.info["state_key"], "state_key() and info['state_key'] differ"
        steps, most = len(self.moments) - 1, self.kwargs["max_steps"]
        assert self.env.steps == steps, f"env.steps is {self.env.steps} after {steps} steps"
        assert last.over or steps < most, f"the episode goes on after {steps} steps with max_steps={most}"
        assert not last.truncated or steps == most, f"truncated after {steps} steps with max_steps={most}"

    @invariant()
    def ended_episodes_are_over(self) -> None:
        """After the end, a step raises and changes nothing."""
        if not self.playing:
            with pytest.raises(ResetNeeded):
                self.env.step("")
            assert self.env.state_key() == self.moments[-1].info["state_key"], "a refused step changes the state"


class StateMachineChecks(TextSuite):
    """The contract holds for any order of calls."""

    machine_phases: Any = tuple(Phase)
    """The phases of Hypothesis. Without `Phase.shrink`, a failure is reported sooner, but with a longer program."""

    def test_any_sequence_of_calls(self, variant: Variant) -> None:
        """Run the state machine. A failure is printed as a minimal program that reproduces it."""
        run_state_machine_as_test(
            partial(ContractMachine, self, variant),  # type: ignore[arg-type] # any factory will do
            settings=settings(
                max_examples=self.machine_examples,
                stateful_step_count=self.machine_steps,
                deadline=None,
                derandomize=True,
                database=None,
                phases=[phase for phase in self.machine_phases if phase is not Phase.reuse],
                suppress_health_check=list(HealthCheck),
            ),
        )

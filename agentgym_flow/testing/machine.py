"""A Hypothesis state machine that calls the methods of an environment in any order.

Its rules reset, step (candidates, random and expert actions, any text), clone, pickle and replay. After every rule it
checks the contract on the result.
"""

from __future__ import annotations

import copy
import pickle
from functools import partial
from typing import Any

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
from agentgym_flow.testing.actions import ANY_TEXT
from agentgym_flow.testing.information import broken_rules
from agentgym_flow.testing.suite import TextSuite, Variant

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

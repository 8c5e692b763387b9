"""A Hypothesis state machine that drives an environment through every kind of call, in any order.

Rules reset, step (valid, random, expert, any text), clone, pickle and replay; after every rule the contract is checked
on what came back.
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

from agentgym_flow.core import TextEnv
from agentgym_flow.errors import ResetNeeded
from agentgym_flow.seeding import Stream
from agentgym_flow.testing import play
from agentgym_flow.testing.actions import ANY_TEXT
from agentgym_flow.testing.information import broken_rules
from agentgym_flow.testing.suite import TextSuite, Variant

NONSENSE = st.integers(0, len(play.NONSENSE) - 1).map(lambda number: play.NONSENSE[number])
"""One of the texts. By number, because Hypothesis prints its strategies when it retries, and one text is a megabyte."""


class ContractMachine(RuleBasedStateMachine):
    """One environment under random treatment, with the episode so far as the witness."""

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
        """Start an episode; from here on all moments are kept."""
        self.seed = seed
        self.moments = [play.start(self.env, seed)]

    @property
    def playing(self) -> bool:
        """Whether the episode goes on."""
        return not self.moments[-1].over

    def do(self, action: str) -> None:
        """Step and check what one step alone can show."""
        before = self.moments[-1]
        moment = play.advance(self.env, action)
        self.moments.append(moment)
        if not moment.info["action_valid"]:
            assert moment.info["state_key"] == before.info["state_key"], (
                f"the invalid action {action!r:.80} changes state_key"
            )
            assert not moment.terminated, f"the invalid action {action!r:.80} terminates the episode"
            assert action not in before.info["admissible_actions"], f"the admissible action {action!r:.80} is refused"

    @rule(seed=st.integers(0, 1 << 31))
    def reset(self, seed: int) -> None:
        """Start another episode, in mid-episode or after an end."""
        self.begin(seed)

    @precondition(lambda self: self.playing)
    @rule(number=st.integers(0, 1 << 16))
    def step_candidate(self, number: int) -> None:
        """Take one of the proposed actions."""
        candidates = self.env.candidates()
        if candidates:
            self.do(candidates[number % len(candidates)])

    @precondition(lambda self: self.playing)
    @rule(number=st.integers(0, 1 << 16))
    def step_random(self, number: int) -> None:
        """Take a random valid action."""
        self.do(self.env.sample_action(Stream("machine", number)))
        assert self.moments[-1].info["action_valid"], (
            f"sample_action drew {self.moments[-1].action!r}, which is refused"
        )

    @precondition(lambda self: self.playing)
    @rule(count=st.integers(1, 4))
    def step_expert(self, count: int) -> None:
        """Follow the expert for a while."""
        for _ in range(count):
            action = self.env.expert_action() if self.playing else None
            if action is None:
                return
            self.do(action)
            assert self.moments[-1].info["action_valid"], f"the expert's action {action!r} is refused"

    @precondition(lambda self: self.playing)
    @rule(text=st.one_of(ANY_TEXT, NONSENSE))
    def step_text(self, text: str) -> None:
        """Say anything."""
        self.do(text)

    @rule(stray_steps=st.integers(0, 3))
    def clone(self, stray_steps: int) -> None:
        """Go on with a deep copy while the original is played elsewhere and reset."""
        original, self.env = self.env, copy.deepcopy(self.env)
        if self.playing:
            for number in range(stray_steps):
                if play.advance(original, original.sample_action(Stream("stray", number))).over:
                    break
        play.start(original, self.seed + 1)

    @rule()
    def pickle(self) -> None:
        """Go on with what comes out of a pickle."""
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
        """What the last call returned keeps the contract."""
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
        """After the end a step raises and changes nothing."""
        if not self.playing:
            with pytest.raises(ResetNeeded):
                self.env.step("")
            assert self.env.state_key() == self.moments[-1].info["state_key"], "a refused step changes the state"


class StateMachineChecks(TextSuite):
    """Any order of calls keeps the contract."""

    machine_phases: Any = tuple(Phase)
    """The phases of Hypothesis; without `Phase.shrink` a failure is found sooner and told longer."""

    def test_any_sequence_of_calls(self, variant: Variant) -> None:
        """Run the state machine; a failure is printed as the shortest program that shows it."""
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

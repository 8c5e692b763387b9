"""Checks of invalid actions: text never raises, uses up a step, and does not change the state if it is invalid."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentgym_flow.core import Stream, TextEnv
from agentgym_flow.errors import ResetNeeded
from agentgym_flow.testing import play
from agentgym_flow.testing.suite import TextSuite, Variant

ANY_TEXT = st.text(st.characters(), max_size=60)
"""Any Unicode text, including lone surrogates and control characters."""


def mutated_actions(env: TextEnv) -> list[str]:
    """Return actions of `env`, and the same actions cut, doubled or in capitals."""
    real = [*env.candidates(), *env.action_templates(), *(env.sample_action(Stream("garble", i)) for i in range(4))]
    if (expert := env.expert_action()) is not None:
        real.append(expert)
    pieces = {
        piece
        for action in real
        for piece in (action, action[:-1], action[1:], action[: len(action) // 2], action * 2, action.upper())
    }
    return sorted(pieces)


def garbled(env: TextEnv) -> st.SearchStrategy[str]:
    """Return texts that are similar to actions of `env`, but mostly invalid: mutated actions mixed with any text."""
    pieces = st.sampled_from(["", *mutated_actions(env)])
    return st.one_of(ANY_TEXT, st.lists(st.one_of(pieces, ANY_TEXT), max_size=3).map("".join))


class ActionChecks(TextSuite):
    """Policies may send any text."""

    def test_invalid_actions_change_nothing(self, variant: Variant) -> None:
        """Invalid texts keep key, score and admissible actions, cost one step, and get the reward of doing nothing."""
        for env in self._early_states(variant):
            idle, longest = self._idle_reward(env), env.max_action_length
            for text in (*play.NONSENSE, "x" * longest, "x" * (longest + 1)):
                clone = copy.deepcopy(env)
                moment = self._say(clone, text)
                where = f"after the invalid text {text!r:.40} in {env.describe_state()!r:.200}"
                assert moment.info["action_valid"] is False, f"action_valid is {moment.info['action_valid']!r} {where}"
                assert moment.info["state_key"] == env.state_key(), f"state_key changes {where}"
                assert not moment.terminated, f"the episode terminates {where}"
                assert moment.info["score"] == env.score(), f"the score changes {where}"
                admissible = moment.info["admissible_actions"]
                assert admissible == env.admissible_actions(), f"admissible_actions changes {where}"
                assert clone.steps == env.steps + 1, f"{clone.steps - env.steps} steps are counted instead of 1 {where}"
                idle = moment.reward if idle is None else idle
                assert moment.reward == idle, f"the reward is {moment.reward}, not {idle} as for doing nothing, {where}"

    def test_invalid_actions_use_up_the_budget(self, variant: Variant) -> None:
        """Empty actions lead to truncation after exactly `max_steps` steps, with the key of the first state."""
        env = self.make(variant, max_steps=4)
        first = play.start(env, self.seeds[0])
        for number in range(1, 5):
            moment = play.advance(env, "")
            assert moment.truncated is (number == 4), f"truncated is {moment.truncated} after step {number} of 4"
            assert moment.terminated is False, "an empty action terminates the episode"
        assert moment.info["state_key"] == first.info["state_key"], "four empty actions change state_key"

    def test_budget_and_rules_never_end_together(self, variant: Variant) -> None:
        """A win in the last step of the budget terminates the episode; with a smaller budget it is truncated."""
        fresh = self.make(variant)
        won = list(play.episode(fresh, self.seeds[0], "expert", limit=fresh.max_steps))
        assert won[-1].terminated, "the expert's episode is not terminated by the rules"
        needed = len(won) - 1
        for budget in (needed, needed - 1) if needed > 1 else (needed,):
            env = self.make(variant, max_steps=budget)
            play.start(env, self.seeds[0])
            for moment in won[1 : budget + 1]:
                last = play.advance(env, moment.action)
            ends = (last.terminated, last.truncated)
            wanted = (True, False) if budget == needed else (False, True)
            assert ends == wanted, (
                f"the task is won in {needed} steps; with max_steps={budget} the last step has (terminated, truncated) "
                f"= {ends}, not {wanted}"
            )

    def test_preparing_steps_changes_nothing(self, variant: Variant) -> None:
        """Calls of `prepare_steps`, also with actions that are not taken later, do not change episodes."""
        alone = [list(play.episode(self.make(variant), seed)) for seed in self.seeds]
        envs = [self.make(variant) for _ in self.seeds]
        together = [[play.start(env, seed)] for env, seed in zip(envs, self.seeds, strict=True)]
        for number in range(1, max(map(len, alone))):
            going = [i for i, moments in enumerate(alone) if number < len(moments)]
            strays = [play.choose(envs[i], "random", Stream("stray", number, i)) for i in going]
            for actions in (strays, [alone[i][number].action for i in going]):
                type(envs[0]).prepare_steps([envs[i] for i in going], actions)
            for i in going:
                together[i].append(play.advance(envs[i], alone[i][number].action))
            type(envs[0]).prepare_steps(envs, [""] * len(envs))
        for seed, one, other in zip(self.seeds, alone, together, strict=True):
            apart = play.difference(one, other)
            assert apart is None, f"with prepare_steps seed {seed} plays differently: {apart}"

    def test_step_outside_an_episode_is_refused(self, variant: Variant) -> None:
        """`step` before the first reset and after the end raises `ResetNeeded`."""
        with pytest.raises(ResetNeeded):
            self.make(variant).step("")
        for policy in ("random", "expert"):
            env = self.make(variant)
            moment = list(play.episode(env, self.seeds[0], policy, limit=env.max_steps))[-1]
            assert moment.over, f"the episode is not over after max_steps={env.max_steps} steps"
            for _ in range(2):
                with pytest.raises(ResetNeeded):
                    env.step("")
            assert env.state_key() == moment.info["state_key"], "a refused step changes the state"

    def test_any_text_is_a_normal_step(self, variant: Variant) -> None:
        """Fuzzed texts and mutated actions never raise, and invalid ones change nothing."""
        env = self.make(variant, max_steps=1 << 30)
        states = [
            copy.deepcopy(env)
            for policy in ("random", "expert")
            for moment in play.episode(env, self.seeds[0], policy, limit=10)
            if not moment.over
        ]

        def check(state: TextEnv, text: str) -> None:
            moment = self._say(copy.deepcopy(state), text)
            assert isinstance(moment.info["action_valid"], bool), f"action_valid is not a bool after {text!r}"
            if not moment.info["action_valid"]:
                assert moment.info["state_key"] == state.state_key(), f"the refused text {text!r} changes state_key"
                assert not moment.terminated, f"the refused text {text!r} terminates the episode"

        for state in states:
            for text in mutated_actions(state):
                check(state, text)

        @settings(
            max_examples=20 * self.machine_examples,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(st.one_of([st.tuples(st.just(state), garbled(state)) for state in states]))
        def fuzz(case: tuple[TextEnv, str]) -> None:
            check(*case)

        fuzz()

    def _early_states(self, variant: Variant) -> Iterator[TextEnv]:
        """Yield clones of the environment in a few states of random and expert play."""
        env = self.make(variant)
        for policy in ("random", "expert"):
            for number, moment in enumerate(play.episode(env, self.seeds[0], policy, limit=7)):
                if not moment.over and number in (0, 3, 6):
                    yield copy.deepcopy(env)

    def _idle_reward(self, env: TextEnv) -> float | None:
        """Return the reward of a valid action that changes nothing in this state; None if there is none."""
        if self.idle_reward is not None:
            return self.idle_reward
        for action in env.candidates():
            moment = play.advance(copy.deepcopy(env), action)
            if moment.info["action_valid"] and not moment.terminated and moment.info["state_key"] == env.state_key():
                return moment.reward
        return None

    @staticmethod
    def _say(env: TextEnv, text: str) -> play.Moment:
        try:
            return play.advance(env, text)
        except Exception as error:
            raise AssertionError(
                f"step({text!r:.80}) raises {type(error).__name__}: {error}; text never raises"
            ) from error

"""Checks of `info` and of actions: `info` is complete, plain and correct, and policies may send any text.

Text never raises and uses up a step; if it is invalid, it does not change the state.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentgym_flow.core import MAX_CANDIDATES, Stream, TextEnv
from agentgym_flow.errors import ResetNeeded
from agentgym_flow.testing import play
from agentgym_flow.testing.suite import TextSuite, Variant

CONTRACT: dict[str, type] = {
    "task": int,
    "task_key": str,
    "task_type": str,
    "goal": str,
    "state_key": str,
    "success": bool,
    "score": float,
    "action_valid": bool,
    "admissible_actions": list,
    "action_templates": list,
}
"""The keys of `info` at every reset and step of every environment, and their exact types."""

INTERPRETER_TEXT = re.compile(
    r"Traceback \(most recent call|<[\w.]+ object at 0x| at 0x[0-9a-f]{6,}>|File \"[^\"]+\", line \d+"
)
"""Text of the Python interpreter, which observations must not contain."""


def not_plain(value: Any, path: str) -> str | None:
    """Return where `value` contains something other than plain JSON data; None if it does not."""
    if type(value) is dict:
        for key, item in value.items():
            if type(key) is not str:
                return f"{path} has the key {key!r}, which is not a str"
            if found := not_plain(item, f"{path}[{key!r}]"):
                return found
    elif type(value) is list:
        for index, item in enumerate(value):
            if found := not_plain(item, f"{path}[{index}]"):
                return found
    elif not (value is None or type(value) in (str, int, float, bool)):
        return f"{path} is a {type(value).__name__}"
    return None


def broken_rules(moment: play.Moment, threshold: float = 1.0) -> Iterator[str]:
    """Yield the rules of the contract that one moment of a text environment breaks, in words."""
    info = moment.info
    for key, kind in CONTRACT.items():
        if key not in info:
            yield f"info has no {key!r}"
            return
        if type(info[key]) is not kind:
            yield f"info[{key!r}] is a {type(info[key]).__name__}, not {kind.__name__}"
            return
    if not isinstance(moment.observation, str):
        yield f"the observation is a {type(moment.observation).__name__}, not str"
    elif found := INTERPRETER_TEXT.search(moment.observation):
        yield f"the observation shows the interpreter's text {found.group()!r}; say it in the environment's own words"
    if moment.terminated and moment.truncated:
        yield "terminated and truncated are both true; the rules' ending wins, so truncated must be false"
    if type(moment.reward) not in (int, float) or moment.reward != moment.reward or abs(moment.reward) == float("inf"):
        yield f"the reward is {moment.reward!r}, not a finite number"
    key, success, score = info["state_key"], info["success"], info["score"]
    if not 0 < len(key) <= 64:
        yield f"state_key has {len(key)} characters; 1 to 64 are allowed"
    if moment.terminated:
        wanted = "end:success:" if success else "end:fail:"
        if not key.startswith(wanted):
            yield f"the terminal state_key is {key!r}, but with success={success} it must start with {wanted!r}"
    elif key.startswith("end:"):
        yield f"state_key is {key!r} though the rules have not ended the episode (truncation keeps the state's own key)"
    if not 0.0 <= score <= 1.0:
        yield f"score is {score!r}, outside [0, 1]"
    if success != (score >= threshold):
        yield f"success is {success} at score {score!r}; it must be exactly score >= {threshold}"
    if moment.action is None and not info["action_valid"]:
        yield "action_valid is False at reset"
    for name in ("admissible_actions", "action_templates"):
        if any(type(item) is not str for item in info[name]) or len(set(info[name])) != len(info[name]):
            yield f"{name} must be different strings, found {info[name]!r:.200}"
    if set(info["admissible_actions"]) & set(info["action_templates"]):
        yield "admissible_actions holds a template; it must hold playable strings only"


class InformationChecks(TextSuite):
    """`info` is complete, plain and correct."""

    def test_info_keeps_the_contract(self, variant: Variant) -> None:
        """All keys have their types and are consistent with each other, at reset and at every step."""
        env = self.make(variant)
        for seed in self.seeds:
            for policy in ("mixed", "random", "expert"):
                first: play.Moment | None = None
                for moment in play.episode(env, seed, policy):
                    where = f"after {moment.action!r:.80} (seed {seed}, policy {policy})"
                    for broken in broken_rules(moment, self.success_threshold):
                        raise AssertionError(f"{broken}; {where}")
                    first = first or moment
                    for key in ("task", "task_key", "task_type", "goal"):
                        assert moment.info[key] == first.info[key], f"info[{key!r}] changes during an episode, {where}"
                        mine = getattr(env, key)
                        assert moment.info[key] == mine, f"info[{key!r}] is not the environment's {mine!r:.80}, {where}"
                    assert 0 <= moment.info["task"] < env.num_tasks, f"info['task'] is not a task of the split, {where}"
                    told = env.task_type_of(moment.info["task"])
                    assert moment.info["task_type"] == told, f"info['task_type'] is not {told!r}, {where}"
                    described = env.describe_state()
                    assert isinstance(described, str), f"describe_state() is not a string, {where}"
                    assert described, f"describe_state() is empty, {where}"

    def test_info_is_plain_data(self, variant: Variant) -> None:
        """`info` contains only str, int, float, bool, None, lists and dicts: no arrays, tuples or NaN."""
        for moment in play.episode(self.make(variant), self.seeds[0]):
            found = not_plain(moment.info, "info")
            assert found is None, f"{found}; info must be plain data that any process can read"
            json.dumps(moment.info, allow_nan=False)

    def test_optional_info_is_told_on_request(self, variant: Variant) -> None:
        """Keys of `optional_info` are present exactly if they are requested, are plain, and change nothing else."""
        silent, asked = self.make(variant), self.make(variant)
        asked.request_info(asked.optional_info)
        moments = play.episode(silent, self.seeds[0]), play.episode(asked, self.seeds[0])
        for without, told in zip(*moments, strict=True):
            added = {key: told.info.get(key) for key in asked.optional_info}
            for key in asked.optional_info:
                assert key not in without.info, f"info has the optional key {key!r}, and nobody asked for it"
                assert key in told.info, f"info has no {key!r}, which was asked for"
            found = not_plain(added, "info")
            assert found is None, f"{found}; info must be plain data that any process can read"
            expected = replace(without, info=without.info | added)
            assert told == expected, "asking for optional keys of info changes the episode"

    def test_proposed_actions_are_accepted(self, variant: Variant) -> None:
        """Admissible actions, candidates and sampled actions are valid, and the lists have a fixed order."""
        for env in self._states_of_play(variant):
            admissible, candidates = env.admissible_actions(), env.candidates()
            where = f"in the state {env.describe_state()!r:.200}"
            assert admissible == env.admissible_actions(), f"the order of admissible_actions is not fixed, {where}"
            assert candidates == env.candidates(), f"candidates() is not deterministic, {where}"
            assert len(candidates) <= MAX_CANDIDATES, f"{len(candidates)} candidates, over {MAX_CANDIDATES}, {where}"
            assert len(set(candidates)) == len(candidates), f"candidates() repeats itself, {where}"
            left_out = [a for a in admissible if a not in candidates] if len(admissible) <= MAX_CANDIDATES else []
            assert not left_out, f"candidates() leaves out the admissible action {left_out[0]!r}, {where}"
            drawn = [env.sample_action(Stream("sample", i)) for i in range(4)]
            again = [env.sample_action(Stream("sample", i)) for i in range(4)]
            assert drawn == again, f"sample_action does not draw from the stream it is given alone, {where}"
            sources = [("admissible", admissible), ("candidates", candidates), ("sample_action", drawn)]
            for source, action in {a: (s, a) for s, actions in sources for a in actions}.values():
                valid = copy.deepcopy(env).step(action)[4]["action_valid"]
                assert valid, f"{source} proposes {action!r:.100}, but the rules refuse it {where}"

    def test_closed_language_is_listed_completely(self, variant: Variant) -> None:
        """If there is no template, every action that the rules accept is in `admissible_actions`."""
        known: dict[str, None] = {}
        for env in self._states_of_play(variant):
            known.update(dict.fromkeys([*env.admissible_actions(), env.sample_action(Stream("closed", len(known)))]))
            if env.action_templates():
                continue
            where = f"in {env.describe_state()!r:.200}"
            for action in [a for a in known if a not in env.admissible_actions()][:MAX_CANDIDATES]:
                accepted = copy.deepcopy(env).step(action)[4]["action_valid"]
                assert not accepted, f"{action!r} is valid {where} but not in admissible_actions"

    def _states_of_play(self, variant: Variant) -> Iterator[TextEnv]:
        """Yield the environment in each state of a few episodes, except the last one."""
        env = self.make(variant)
        for seed in self.seeds:
            for policy in ("random", "expert"):
                for moment in play.episode(env, seed, policy, limit=20):
                    if not moment.over:
                        yield env


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
                envs[0].external.prepare_steps([envs[i] for i in going], actions)
            for i in going:
                together[i].append(play.advance(envs[i], alone[i][number].action))
            envs[0].external.prepare_steps(envs, [""] * len(envs))
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

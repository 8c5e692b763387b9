"""Checks of vector environments and of numeric variants, with their action masks and vector entry points."""

from __future__ import annotations

import copy
import itertools
import pickle
from collections.abc import Sequence
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from agentgym_flow.core import Stream
from agentgym_flow.testing import play
from agentgym_flow.testing.suite import Suite, TextSuite, Variant


def _drive(vector: Any, actions: list[list[Any]], seed: int, manual_reset: bool = False) -> list[Any]:
    """Return copies of all results of a vector environment for the rows of `actions`, one row per step."""
    results: list[Any] = [copy.deepcopy(vector.reset(seed=seed))]
    over = np.zeros(vector.num_envs, bool)
    for row in actions:
        if manual_reset and over.any():
            results.append(copy.deepcopy(vector.reset(options={"reset_mask": over})))
        batch = np.asarray(row) if isinstance(vector.action_space, gym.spaces.MultiDiscrete) else tuple(row)
        results.append(copy.deepcopy(vector.step(batch)))
        over = results[-1][2] | results[-1][3]
    return results


def _first_difference(mine: list[Any], theirs: list[Any]) -> str | None:
    """Return the first call and part in which two runs of `_drive` differ; None if they are equal."""
    for number, (one, other) in enumerate(zip(mine, theirs, strict=True)):
        names = ("observations", "rewards", "terminations", "truncations", "infos")
        for name, left, right in zip(names if len(one) == 5 else ("observations", "infos"), one, other, strict=True):
            if name == "infos" and play.fingerprint(left) != play.fingerprint(right):
                key = play.differing_key(left, right)
                return f"call {number}: infos[{key!r}] is {left.get(key)!r:.300} against {right.get(key)!r:.300}"
            if play.fingerprint(left) != play.fingerprint(right):
                return f"call {number}: {name} are {left!r:.300} against {right!r:.300}"
    return None


class TextVectorChecks(TextSuite):
    """`gymnasium.make_vec` works with text, in one process and in several without shared memory."""

    def test_vector_environments_play_like_single_ones(self, variant: Variant) -> None:
        """Synchronous and asynchronous vector environments (without shared memory) give the same texts."""
        self.spec()
        single = [list(play.episode(self.make(variant), 10 + i, "random", limit=5)) for i in range(2)]
        length = min(len(moments) for moments in single)
        actions = [[moments[step].action for moments in single] for step in range(1, length)]
        runs = []
        for mode, settings in (("sync", {}), ("async", {"shared_memory": False})):
            vector = gym.make_vec(self.env_id, 2, vectorization_mode=mode, vector_kwargs=settings, **variant)
            try:
                runs.append(_drive(vector, actions, seed=10))
            finally:
                vector.close()
            for number, result in enumerate(runs[-1]):
                expected = tuple(moments[number].observation for moments in single)
                assert tuple(result[0]) == expected, f"{mode}: call {number} differs from single environments"
        apart = _first_difference(*runs)
        assert apart is None, f"sync and async vector environments differ: {apart}"

    def test_shared_memory_refuses_text(self, variant: Variant) -> None:
        """Asynchronous environments with shared memory raise, instead of always returning the same wrong string."""
        self.spec()
        try:
            vector = gym.make_vec(self.env_id, 2, vectorization_mode="async", **variant)
        except ValueError:  # from Gymnasium, for a space without shared memory
            return
        vector.close(terminate=True)
        pytest.fail(
            "AsyncVectorEnv with shared memory accepts the text space and would corrupt observations; use UnicodeText"
        )


class MaskChecks(Suite):
    """`info["action_mask"]` marks the `Discrete` actions that change the state, or those that `is_marked` accepts."""

    def test_action_mask_equals_brute_force(self, variant: Variant) -> None:
        """The mask is a new int8 array of shape (n,) at reset and every step, with 1 for exactly the marked actions."""
        env = self.make(variant)
        count = int(env.action_space.n)
        before = None
        for seed in self.seeds:
            observation, info = env.reset(seed=seed)
            rng, over = Stream("mask", seed), False
            while not over:
                mask = info.get("action_mask")
                assert isinstance(mask, np.ndarray), f"info['action_mask'] is a {type(mask).__name__}, not an array"
                assert mask.dtype == np.int8, f"the action mask has dtype {mask.dtype}, not int8"
                assert mask.shape == (count,), f"the action mask has shape {mask.shape}, not ({count},)"
                assert before is None or not np.shares_memory(mask, before), "two calls return the same action mask"
                start = int(env.action_space.start)
                truth = [int(self.is_marked(env, start + number, observation)) for number in range(count)]
                assert mask.tolist() == truth, f"the action mask is {mask.tolist()}, but should be {truth}"
                before = mask
                observation, _, terminated, truncated, info = env.step(play.choose(env, "random", rng))
                over = terminated or truncated

    def is_marked(self, env: Any, action: int, observation: Any) -> bool:
        """Return whether the mask should mark `action`: by default, whether it changes the `observation`.

        Override this method if the mask has another meaning. It steps copies, never `env`.
        """
        return not np.array_equal(copy.deepcopy(env).step(action)[0], observation)


class FaceChecks(Suite):
    """A numeric variant behaves like its text environment."""

    text_id: ClassVar[str | None] = None
    """The id of the text environment; None if there is none."""

    def text_of(self, number: int, info: dict[str, Any]) -> str:
        """Return the text of action `number` in this state; by default the admissible action with that number."""
        return str(info["admissible_actions"][number])

    def test_numeric_face_plays_like_the_text_face(self, variant: Variant) -> None:
        """Equal seeds and actions give equal rewards, ends, and values of the common keys of `info`."""
        if self.text_id is None:
            pytest.skip("no text face is named")
        for seed in self.seeds:
            numeric, text = self.make(variant), play.make(self.text_id, self.env_module, variant)
            said = play.start(text, seed)
            for moment in play.episode(numeric, seed, "random", limit=numeric.max_steps):
                if moment.action is not None:
                    number = moment.action - int(numeric.action_space.start)
                    said = play.advance(text, self.text_of(number, said.info))
                for name in ("reward", "terminated", "truncated"):
                    mine, theirs = getattr(moment, name), getattr(said, name)
                    assert mine == theirs, f"{name} is {mine} here and {theirs} on {self.text_id}, seed {seed}"
                for key in sorted(moment.info.keys() & said.info.keys()):
                    mine, theirs = moment.info[key], said.info[key]
                    assert mine == theirs, f"info[{key!r}]: {mine!r} here and {theirs!r} on {self.text_id}, seed {seed}"


class VectorEntryPointChecks(Suite):
    """The vector entry point behaves like `SyncVectorEnv` of single environments."""

    vector_num_envs: ClassVar[int] = 5
    """The number of environments."""
    vector_steps: ClassVar[int] = 60
    """The number of steps that are compared."""
    vector_settings: ClassVar[Sequence[Variant]] = ({},)
    """Additional arguments for both sides of the comparison, tried one after the other, for example for `info`."""
    vector_max_steps: ClassVar[tuple[int, ...]] = (3, 11)
    """The step budgets of the comparison, which are small, so that episodes end."""

    def _pair(self, variant: Variant, mode: AutoresetMode) -> tuple[Any, Any]:
        fast = gym.make_vec(
            self.env_id,
            self.vector_num_envs,
            vectorization_mode="vector_entry_point",
            **{**variant, "autoreset_mode": mode},
        )
        slow = SyncVectorEnv([lambda: self.make(variant)] * self.vector_num_envs, autoreset_mode=mode)
        return fast, slow

    @pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name)
    def test_vector_entry_point_equals_sync(self, variant: Variant, mode: AutoresetMode) -> None:
        """Equal seeds and actions give equal observations, rewards, flags and infos in every autoreset mode."""
        if self.spec().vector_entry_point is None:
            pytest.skip("there is no vector entry point")
        for max_steps, more in itertools.product(self.vector_max_steps, self.vector_settings):
            fast, slow = self._pair({**variant, **more, "max_steps": max_steps}, mode)
            found = fast.metadata.get("autoreset_mode")
            assert found == mode, f"metadata['autoreset_mode'] is {found}, not the requested {mode}"
            for name in ("single_observation_space", "single_action_space", "observation_space", "action_space"):
                mine, theirs = getattr(fast, name), getattr(slow, name)
                assert mine == theirs, f"{name} is {mine}, not {theirs}"
            rng = Stream("vector", mode.name, max_steps)
            start, count = int(fast.single_action_space.start), int(fast.single_action_space.n)
            actions = [[start + rng.below(count) for _ in range(fast.num_envs)] for _ in range(self.vector_steps)]
            manual = mode is AutoresetMode.DISABLED
            apart = _first_difference(_drive(fast, actions, 7, manual), _drive(slow, actions, 7, manual))
            assert apart is None, f"the vector entry point is not SyncVectorEnv (max_steps={max_steps}): {apart}"
            self._check_stream_and_pickle(fast, slow, actions[:3])
            fast.close()
            slow.close()

    @staticmethod
    def _check_stream_and_pickle(fast: Any, slow: Any, actions: list[list[int]]) -> None:
        """A reset without a seed and a pickled copy both continue like `SyncVectorEnv`."""
        restored = pickle.loads(pickle.dumps(fast))
        for vector in (fast, restored):
            other = copy.deepcopy(slow)
            apart = _first_difference([vector.reset()], [other.reset()])
            assert apart is None, f"reset() without a seed goes on differently than SyncVectorEnv's: {apart}"
            row = np.asarray(actions[0])
            apart = _first_difference([vector.step(row)], [other.step(row)])
            assert apart is None, f"after reset() the vector entry point plays differently: {apart}"

    def test_vector_observations_are_fresh(self, variant: Variant) -> None:
        """No array is returned by two calls."""
        if self.spec().vector_entry_point is None:
            pytest.skip("there is no vector entry point")
        fast, slow = self._pair(variant, AutoresetMode.NEXT_STEP)
        slow.close()
        first, info = fast.reset(seed=1)
        kept = copy.deepcopy((first, info))
        later = fast.step(np.full(fast.num_envs, int(fast.single_action_space.start)))
        assert not np.shares_memory(first, later[0]), "two calls return the same observation array"
        assert play.fingerprint(kept) == play.fingerprint((first, info)), "a step overwrites what reset() had returned"
        for key, value in info.items():
            if isinstance(value, np.ndarray) and isinstance(later[4].get(key), np.ndarray):
                assert not np.shares_memory(value, later[4][key]), f"two calls return the same array infos[{key!r}]"

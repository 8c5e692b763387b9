"""Checks that returned objects belong to the caller, and that environments can be copied during an episode."""

from __future__ import annotations

import copy
import itertools
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np

from agentgym_flow.core import Stream
from agentgym_flow.testing import play
from agentgym_flow.testing.suite import Suite, Variant


def containers(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield all arrays, lists and dicts in `value`, including itself, with their paths."""
    if isinstance(value, np.ndarray):
        yield path, value
    elif isinstance(value, dict):
        yield path, value
        for key, item in value.items():
            yield from containers(item, f"{path}[{key!r}]")
    elif isinstance(value, (list, tuple)):
        if isinstance(value, list):
            yield path, value
        for index, item in enumerate(value):
            yield from containers(item, f"{path}[{index}]")


def overwrite(value: Any) -> None:
    """Overwrite all arrays, lists and dicts in `value`."""
    for _, found in list(containers(value, "")):
        if isinstance(found, np.ndarray):
            if found.flags.writeable and found.dtype != object:
                found.fill(1)
        else:
            found.clear()


def _shared(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return bool(np.shares_memory(one, other))
    return one is other


class ObjectChecks(Suite):
    """Returned objects are new ones, and pickles and deep copies are clones."""

    def test_returned_objects_are_fresh(self, variant: Variant) -> None:
        """No array, list or dict is returned twice, at any depth (Gymnasium's checker ignores lists)."""
        env = self.make(variant)
        rng, calls = Stream("fresh"), [env.reset(seed=0), env.reset(seed=0)]
        over = False
        while not over and len(calls) < 10:
            observation, _, terminated, truncated, info = env.step(play.choose(env, "mixed", rng))
            calls.append((observation, info))
            over = terminated or truncated
        pools = [[*containers(obs, "observation"), *containers(info, "info")] for obs, info in calls]
        for pool, later in itertools.combinations(pools, 2):
            for (path, one), (other_path, other) in itertools.product(pool, later):
                assert not _shared(one, other), (
                    f"{path} of one call and {other_path} of a later call are the same object: whoever keeps the "
                    "first sees it change; return a new one on every call"
                )

    def test_writing_to_returned_objects_changes_nothing(self, variant: Variant) -> None:
        """A caller may overwrite returned objects without an effect on the episode."""
        for seed in self.seeds:
            reference = list(play.episode(self.make(variant), seed))
            env = self.make(variant)
            observation, info = env.reset(seed=seed)
            for moment in reference[1:]:
                overwrite(observation)
                overwrite(info)
                observation, reward, terminated, truncated, info = env.step(moment.action)
                now = copy.deepcopy(play.Moment(moment.action, observation, reward, terminated, truncated, info))
                apart = play.difference([moment], [now])
                assert apart is None, f"overwriting returned data changes a later step ({moment.action!r:.60}): {apart}"

    def test_pickles_in_mid_episode(self, variant: Variant) -> None:
        """An environment restored from a pickle continues exactly like the original."""
        self._check_copies(variant, "a pickled", lambda env: pickle.loads(pickle.dumps(env)))

    def test_deep_copy_is_a_clone(self, variant: Variant) -> None:
        """`copy.deepcopy(env.unwrapped)` continues exactly like the original, and neither affects the other."""
        self._check_copies(variant, "a deep-copied", copy.deepcopy)

    def _check_copies(self, variant: Variant, name: str, duplicate: Any) -> None:
        for seed in self.seeds[:2]:
            reference = list(play.episode(self.make(variant), seed, "random"))
            env = self.make(variant)
            play.start(env, seed)
            for number, moment in enumerate(reference[1:]):
                if number in (0, 1, 5):
                    self._check_copy(name, env, duplicate, reference[1 + number :])
                apart = play.difference([moment], [play.advance(env, moment.action)])
                assert apart is None, f"playing on in {name} environment disturbs the original: {apart}"
            apart = play.difference([play.start(duplicate(env), None)], [play.start(env, None)])
            assert apart is None, f"{name} environment draws another next task from reset(): {apart}"

    @staticmethod
    def _check_copy(name: str, env: Any, duplicate: Any, expected: list[play.Moment]) -> None:
        twin, stray = duplicate(env), duplicate(env)
        # The stray takes other steps first. If it shares state, the twin or the original changes.
        rng = Stream("stray")
        for _ in range(6):
            if play.advance(stray, play.choose(stray, "expert", rng)).over:
                break
        play.start(stray, 99)
        apart = play.difference(expected, [play.advance(twin, moment.action) for moment in expected])
        assert apart is None, f"{name} environment does not go on like the original: {apart}"

"""Checks that the seed determines an episode, in any process and for any global random state."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, ClassVar

import numpy as np
import pytest

from agentgym_flow.errors import AgentGymFlowError, BadSetting, UnknownOption, UnknownSplit, UnknownTask
from agentgym_flow.testing import play
from agentgym_flow.testing.suite import Suite, Variant


@contextmanager
def _child(hash_seed: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process that plays jobs, and kill it at the end of the block."""
    surroundings = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    pipe = subprocess.PIPE
    child = subprocess.Popen(
        [sys.executable, "-m", "agentgym_flow.testing.play"], stdin=pipe, stdout=pipe, stderr=pipe, env=surroundings
    )
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


class DeterminismChecks(Suite):
    """Equal seeds and actions give exactly equal episodes."""

    process_seconds: ClassVar[float] = 600.0
    """The time limit for another process to play the same episodes."""

    def test_equal_seeds_give_equal_episodes(self, variant: Variant) -> None:
        """Two instances, and one instance used again, play equal episodes from equal seeds."""
        used = self.make(variant)
        for seed in self.seeds:
            first = list(play.episode(used, seed))
            for name, env in (("another instance", self.make(variant)), ("the same instance", used)):
                apart = play.difference(first, list(play.episode(env, seed)))
                assert apart is None, f"{name} plays seed {seed} differently the second time: {apart}"

    def test_other_processes_give_equal_episodes(self) -> None:
        """Two processes with other hash seeds play the same episodes: no set order, no hash(str), no address."""
        jobs = [[dict(v), seed, policy] for v in self.variants for seed in self.seeds for policy in ("mixed", "expert")]
        request = json.dumps({"env_id": self.env_id, "module": self.env_module, "jobs": jobs})
        with ExitStack() as ending:
            children = [ending.enter_context(_child(hash_seed)) for hash_seed in ("1", "2")]
            for child in children:  # both run in parallel with this process
                assert child.stdin is not None
                with suppress(BrokenPipeError):  # the process has failed, which is reported below
                    child.stdin.write(request.encode())
                    child.stdin.close()
                child.stdin = None
            here = play.play_jobs(self.env_id, self.env_module, jobs)
            for child in children:
                try:
                    output, complaint = child.communicate(timeout=self.process_seconds)
                except subprocess.TimeoutExpired:
                    pytest.fail(
                        f"a fresh process has not played {len(jobs)} episodes in {self.process_seconds} seconds"
                    )
                said = complaint.decode("utf-8", "replace")[-2000:]
                assert child.returncode == 0, f"the environment fails in a fresh process:\n{said}"
                for job, mine, theirs in zip(jobs, here, json.loads(output), strict=True):
                    assert mine == theirs, (
                        f"the episode {job} plays differently in another process; look for hash() of a string, set "
                        "order or anything read from outside"
                    )

    def test_different_seeds_give_different_episodes(self, variant: Variant) -> None:
        """Twelve seeds do not all give the same start."""
        env = self.make(variant)
        self._needs_several_tasks(env)
        starts = {play.fingerprint([m.observation, m.info]) for m in (play.start(env, seed) for seed in range(12))}
        assert len(starts) > 1, "twelve seeds give one and the same start: reset ignores its seed"

    def test_reset_without_seed_continues_the_stream(self, variant: Variant) -> None:
        """`reset()` continues the seeded stream: it is repeatable, and does not always give the same start."""
        runs = []
        self._needs_several_tasks(self.make(variant))
        for env in (self.make(variant), self.make(variant)):
            runs.append([play.start(env, 5), *(play.start(env, None) for _ in range(8))])
        apart = play.difference(*runs)
        assert apart is None, f"reset() after reset(seed=5) is not repeatable: {apart}"
        starts = {play.fingerprint([m.observation, m.info]) for m in runs[0]}
        assert len(starts) > 1, "eight resets without a seed all repeat the seeded start: the stream does not advance"

    def test_global_random_state_is_left_alone(self, variant: Variant) -> None:
        """The environment neither changes nor uses the global state of `random` and `numpy.random`."""
        saved = random.getstate(), np.random.get_state()  # noqa: NPY002 - the legacy global state is what is checked
        runs = []
        try:
            for noise in (1, 2):
                random.seed(noise)
                np.random.seed(noise)  # noqa: NPY002
                before = random.getstate(), play.fingerprint(list(np.random.get_state()))  # noqa: NPY002
                env = self.make(variant)
                runs.append([m for policy in ("mixed", "expert") for m in play.episode(env, 4, policy)])
                env.render()
                env.close()
                after = random.getstate(), play.fingerprint(list(np.random.get_state()))  # noqa: NPY002
                assert before[0] == after[0], "the environment changes the global state of `random`; use seeding.Stream"
                assert before[1] == after[1], "the environment changes the global state of `numpy.random`"
        finally:
            random.setstate(saved[0])
            np.random.set_state(saved[1])  # noqa: NPY002
        apart = play.difference(*runs)
        assert apart is None, f"the global random state has an influence on the episode: {apart}"

    def test_bad_reset_arguments_are_typed_errors(self, variant: Variant) -> None:
        """An unknown option, split or task raises its own error class, and the environment remains usable.

        Only test tasks have seasons, so `season` with another split is an error.
        """
        env = self.make(variant)
        many = env.unwrapped.num_tasks
        self._refuses(UnknownOption, "an option 'no_such_option'", lambda: env.reset(options={"no_such_option": 1}))
        for task in (-1, many, "0", 1.5, True):
            self._refuses(UnknownTask, f"task {task!r}", lambda task=task: env.reset(options={"task": task}))
        self._refuses(UnknownSplit, "a split 'no-such-split'", lambda: self.make(variant, split="no-such-split"))
        with pytest.raises((BadSetting, UnknownOption, TypeError)):
            self.make(variant, split="train", season="0f")
        apart = play.difference(list(play.episode(env, 1)), list(play.episode(self.make(variant), 1)))
        assert apart is None, f"a refused reset leaves something behind: {apart}"

    @staticmethod
    def _needs_several_tasks(env: Any) -> None:
        if env.num_tasks == 1:
            pytest.skip("with a single task all seeds may start alike")

    @staticmethod
    def _refuses(kind: type[AgentGymFlowError], what: str, attempt: object) -> None:
        assert callable(attempt)
        try:
            attempt()
        except kind:
            return
        except Exception as error:
            pytest.fail(f"{what} raises {type(error).__name__} instead of {kind.__name__}")
        pytest.fail(f"{what} is accepted; {kind.__name__} should name what exists")

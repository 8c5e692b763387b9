"""Checks that an episode is determined by its seed and actions: in any process, in copies, and from a log.

Returned objects belong to the caller. The settings in a log recreate the same environment.
"""

from __future__ import annotations

import copy
import itertools
import json
import os
import pickle
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from agentgym_flow.core import Stream, canonical
from agentgym_flow.episodes import Episode, EpisodeRecorder, read_log, write_log
from agentgym_flow.errors import AgentGymFlowError, BadSetting, UnknownOption, UnknownSplit, UnknownTask
from agentgym_flow.replay import verify
from agentgym_flow.testing import play
from agentgym_flow.testing.suite import Suite, TextSuite, Variant, label


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
                both_arrays = isinstance(one, np.ndarray) and isinstance(other, np.ndarray)
                shared = np.shares_memory(one, other) if both_arrays else one is other
                assert not shared, (
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


class LogChecks(TextSuite):
    """Episodes can be replayed from their logs."""

    golden_seeds: ClassVar[tuple[int, ...]] = (0, 1)
    """The seeds of the reference episodes, played by the expert and by mixed play."""

    def record(self, variant: Variant, seed: int, policy: str, split: str = "train") -> Episode:
        """Return one recorded episode."""
        recorder = EpisodeRecorder(self.make(variant, split=split))
        recorded = recorder.reset(seed=seed)
        rng = Stream("agentgym_flow.testing", "record", policy, seed)
        while not recorder.done:
            recorder.step(play.choose(recorder.env, policy, rng))
        return recorded

    def test_reference_episodes_are_unchanged(self, variant: Variant) -> None:
        """The digests of a few episodes never change, except in a new version of the environment."""
        now = {}
        for policy in ("expert", "mixed"):
            for seed in self.golden_seeds:
                now[f"{label(variant)}/{policy}/{seed}"] = self.record(variant, seed, policy).digests()[-1][:16]
        changed = {name: digest for name, digest in now.items() if self.golden.get(name) != digest}
        if changed:
            lines = "\n".join(f'    "{name}": "{digest}",' for name, digest in now.items())
            known = [name for name in changed if name in self.golden]
            reason = (
                f"{known[0]} plays differently than recorded" if known else "no digest is recorded for these episodes"
            )
            pytest.fail(
                f"{reason}. If play has changed, old logs of {self.env_id} no longer replay: register a new version "
                f"(-vN), and only then put these lines into `golden` of its test class:\n{lines}"
            )

    def test_log_replays_exactly(self, variant: Variant, tmp_path: Path) -> None:
        """Episodes of every split, written to a log and read again, replay to the same digests."""
        episodes = [
            self.record(variant, seed, policy, split)
            for seed, (policy, split) in enumerate([("mixed", "train"), ("expert", "valid"), ("mixed", "test")])
        ]
        write_log(tmp_path / "episodes.jsonl", episodes)
        where = {name: str(variant["data"]) for name in episodes[0].data}
        for episode, logged in zip(episodes, read_log(tmp_path / "episodes.jsonl"), strict=True):
            assert logged.digest == episode.digests()[-1], "an episode changes on its way through the log"
            apart = verify(logged, where)
            assert apart is None, f"the log of {label(variant)} seed {episode.seed} does not replay: {apart}"

    def test_recording_is_plain_or_refused(self, variant: Variant) -> None:
        """External results are plain data in the recording. An environment without them rejects a recording."""
        played = [self.record(variant, seed, policy) for seed in self.seeds for policy in ("expert", "mixed")]
        recording = [entry for one in played for entry in (one.recording, *(turn.recording for turn in one.turns))]
        canonical(recording)
        env = self.make(variant)
        env.external.use_recording([None, None])
        if any(entry is not None for entry in recording):
            return
        try:
            env.external.use_recording([{"unexpected": True}])
        except BadSetting:
            return
        pytest.fail(
            "a recording is accepted although nothing was ever taken from one; raise BadSetting, as TextEnv does"
        )

    def test_settings_build_the_environment_again(self, variant: Variant) -> None:
        """`make(env_id, **settings, split=..., max_steps=...)` gives the same environment, with settings from JSON.

        External results are then taken from the recording.
        """
        env = self.make(variant, split="valid", max_steps=9)
        canonical(env.settings)
        for value in env.settings.values():
            found = isinstance(value, str) and os.path.isabs(value) and "\n" not in value and os.path.exists(value)
            assert not found, f"the settings hold the path {value!r}; name official data in `data` instead"
        settings = json.loads(json.dumps(env.settings))
        assert settings == env.settings, f"the settings {env.settings!r:.200} change in JSON; use lists, not tuples"
        extra = {"split", "max_steps", "render_mode", "data"} & settings.keys()
        assert not extra, f"{', '.join(sorted(extra))} must not be in the settings"
        data = {"data": variant["data"]} if "data" in variant else {}
        again = play.make(
            self.env_id, self.env_module, {**settings, **data, "split": env.split, "max_steps": env.max_steps}
        )
        for name in ("settings", "data", "split", "max_steps", "num_tasks"):
            assert getattr(again, name) == getattr(env, name), (
                f"rebuilt from its own settings, the environment has {name} {getattr(again, name)!r:.200}, "
                f"not {getattr(env, name)!r:.200}"
            )
        # The settings need not include access to the servers whose results are in the recording.
        first: list[play.Moment] = []
        recording: list[Any] = []
        for moment in play.episode(env, 2):
            first.append(moment)
            recording.append(env.external.recorded_responses)
        again.external.use_recording(recording)
        apart = play.difference(first, list(play.episode(again, 2)))
        assert apart is None, f"rebuilt from its own settings, the environment plays differently: {apart}"

"""Checks of what an environment declares: its id, spec, render modes and manual, and its tasks.

The expert wins the tasks, the splits share none, and a key identifies the decision problem.
"""

from __future__ import annotations

import copy
import doctest
import inspect
import pickle
import re
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.utils.env_checker import check_env

from agentgym_flow.core import SPLITS, Stream, TextEnv, text_env_parameters
from agentgym_flow.episodes import EpisodeRecorder, Group
from agentgym_flow.errors import UnknownOption
from agentgym_flow.testing import play
from agentgym_flow.testing.suite import Suite, TextSuite, Variant, label


class RegistrationChecks(Suite):
    """The environment follows the conventions of Gymnasium's registry."""

    def test_id_and_entry_point(self) -> None:
        """The id has a namespace and a version, and the entry point is a string, so that the spec has a JSON form."""
        form = r"[A-Za-z0-9_-]+/[A-Za-z0-9-]+-v\d+"
        assert re.fullmatch(form, self.env_id), f"the id {self.env_id!r} is not 'namespace/Name-vN'"
        entry = self.spec().entry_point
        assert isinstance(entry, str), f"the entry point is {entry!r}; only a 'module:Class' string survives JSON"

    def test_spec_round_trips(self, variant: Variant) -> None:
        """A spec restored from JSON or a pickle is equal and creates an equal environment."""
        made = self.make(variant).spec
        assert made is not None, "gymnasium.make left no spec on the environment"
        for name, again in (("JSON", EnvSpec.from_json(made.to_json())), ("pickle", pickle.loads(pickle.dumps(made)))):
            rebuilt = gym.make(again, disable_env_checker=True)
            apart = play.difference(list(play.episode(self.make(variant), 3)), list(play.episode(rebuilt.unwrapped, 3)))
            assert apart is None, f"the environment built from the spec's {name} form plays differently: {apart}"
        registered = self.spec()
        assert EnvSpec.from_json(registered.to_json()) == registered, "the registered spec changes in its JSON form"

    def test_check_env_without_warning(self, variant: Variant) -> None:
        """Gymnasium's checker passes, with warnings as errors."""
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            check_env(self.make(variant))

    def test_passive_checker_stays_silent(self, variant: Variant) -> None:
        """An episode with the passive checker of `gymnasium.make` gives no warning."""
        self.spec()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            env = gym.make(self.env_id, **variant)
            for seed in self.seeds[:2]:
                list(play.episode(env, seed))
            env.close()
            env.close()

    def test_declared_render_modes_work(self, variant: Variant) -> None:
        """Every declared mode returns a new picture of the right type in every state, including the last one."""
        for mode in self.make(variant).metadata["render_modes"]:
            env = self.make(variant, render_mode=mode)
            for moment in play.episode(env, 0, limit=8):
                picture = env.render()
                where = f"render() in mode {mode!r} after {moment.action!r}"
                if mode == "ansi":
                    assert isinstance(picture, str), f"{where} returned {type(picture).__name__}, not str"
                    assert picture, f"{where} returned an empty text"
                elif mode == "rgb_array":
                    assert isinstance(picture, np.ndarray), f"{where} returned {type(picture).__name__}, not an array"
                    assert picture.dtype == np.uint8, f"{where} has dtype {picture.dtype}, not uint8"
                    assert picture.ndim == 3, f"{where} has shape {picture.shape}, not (height, width, 3)"
                    assert picture.shape[2] == 3, f"{where} has shape {picture.shape}, not (height, width, 3)"
                    assert not np.shares_memory(picture, env.render()), f"{where} returned the same array twice"
                elif mode == "human":
                    assert picture is None, f"{where} returned {type(picture).__name__}, not None"

    def test_undeclared_render_mode_is_refused(self, variant: Variant) -> None:
        """A render mode that is not declared raises when the environment is created."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Gymnasium warns first, but the environment must raise
            try:
                self.make(variant, render_mode="no-such-mode")
            except ValueError:
                return
        pytest.fail("render_mode='no-such-mode' was accepted; raise BadSetting, which names the modes on offer")

    def test_examples_in_the_manual_run(self) -> None:
        """The doctests in the docstring pass."""
        classes = [type(self.make(self.variants[0]))]
        if isinstance(batch := self.spec().vector_entry_point, str):
            classes.append(load_env_creator(batch))  # type: ignore[arg-type] # a vector entry point loads the same way
        for cls in classes:
            example = doctest.DocTestParser().get_doctest(inspect.getdoc(cls) or "", {}, cls.__name__, None, 0)
            said: list[str] = []
            doctest.DocTestRunner(verbose=False).run(example, out=said.append)
            assert not said, f"an example in the manual is wrong:\n{''.join(said)}"

    def test_manual_has_its_sections(self) -> None:
        """The class docstring has all sections of Gymnasium's manuals, in order."""
        manual = inspect.getdoc(type(self.make(self.variants[0]))) or ""
        found = re.findall(r"^#{2,3} (.+?)\s*$", manual, flags=re.MULTILINE)
        missing = [name for name in self.manual_sections if name not in found]
        assert not missing, f"the docstring has no section {missing[0]!r}; found: {found}"
        places = [found.index(name) for name in self.manual_sections]
        assert places == sorted(places), f"the sections of the docstring are out of order: {found}"


def follow_expert(env: TextEnv) -> str | None:
    """Play the expert from the present state to the end. Return None if it wins, otherwise what went wrong."""
    while True:
        action = env.expert_action()
        if action is None:
            return f"the expert gives up after {env.steps} steps in {env.describe_state()!r:.200}"
        moment = play.advance(env, action)
        if not moment.info["action_valid"]:
            return f"the expert's action {action!r:.100} is refused in {env.describe_state()!r:.200}"
        if moment.info["success"]:
            return None
        if moment.over:
            return f"the expert's episode ends without success after {env.steps} of {env.max_steps} steps"


class TaskChecks(TextSuite):
    """Tasks can be won, and their keys identify them."""

    def test_expert_wins_every_sampled_task(self, variant: Variant) -> None:
        """The expert wins tasks of every split within `max_steps`."""
        for split in SPLITS:
            env = self.make(variant, split=split)
            for task in self.sampled_tasks(env, self.tasks_per_split):
                play.start(env, 0, task)
                wrong = follow_expert(env)
                assert wrong is None, f"{split} task {task}: {wrong}"

    def test_expert_wins_from_wherever_it_can(self, variant: Variant) -> None:
        """After random play the expert still wins, or returns None if the task is lost."""
        for seed in self.seeds:
            env = self.make(variant, max_steps=1 << 30)
            env_moments = play.episode(env, seed, "random", limit=16)
            for number, moment in enumerate(env_moments):
                if moment.over:
                    acts = env.expert_action() is not None
                    assert not acts or moment.info["success"], "the expert acts in an episode that is lost"
                    break
                if number % 4 == 0:
                    self._check_expert(copy.deepcopy(env), f"seed {seed} after {number} random steps")

    def _check_expert(self, env: TextEnv, where: str) -> None:
        if env.expert_action() is None:
            state = f"{env.describe_state()!r:.200}"
            assert self.is_lost(env) is not False, f"the expert gives up a state that can be won: {state}; {where}"
            return
        # An expert that returns an action must win, but the step budget may be too small after the random steps.
        env.max_steps = env.steps + 10_000
        wrong = follow_expert(env)
        assert wrong is None, f"{wrong}; {where}"

    def test_splits_are_disjoint(self, variant: Variant) -> None:
        """No task key occurs twice, in one split or in two. Large splits are sampled."""
        owner: dict[str, tuple[str, int]] = {}
        for split in SPLITS:
            env = self.make(variant, split=split)
            assert env.num_tasks >= 1, f"split {split!r} has no task"
            few = env.num_tasks <= 10 * self.task_keys_per_split
            tasks = self.sampled_tasks(env, env.num_tasks if few else self.task_keys_per_split)
            keys = {task: self.task_key(env, task) for task in tasks}
            assert len(tasks) == 1 or len(set(keys.values())) > 1, f"all tasks of split {split!r} have one task key"
            for task, key in keys.items():
                other_split, other_task = owner.setdefault(key, (split, task))
                if (other_split, other_task) != (split, task):
                    allowed = not (self.distinct_tasks if other_split == split else self.disjoint_splits)
                    assert allowed, f"{other_split} task {other_task} and {split} task {task} are one task ({key})"

    def test_manifests_are_as_recorded(self, variant: Variant) -> None:
        """The tasks of a split change only in a new version of the environment."""
        recorded = {name: digest for name, digest in self.manifests.items() if name.startswith(f"{label(variant)}/")}
        if not recorded:
            pytest.skip("no manifest digest is recorded for this variant")
        for name, digest in recorded.items():
            now = self.manifest_digest(variant, name.rpartition("/")[2])
            assert now == digest, (
                f"the tasks of {name} have changed: manifest digest {now}, recorded {digest}. "
                "If that is meant, register a new version of the environment and record the new digest there"
            )

    def test_task_key_is_the_identity_of_the_task(self, variant: Variant) -> None:
        """A task has one key for all instances, step budgets, presentations and render modes, but not all settings."""
        env = self.make(variant)
        used = self.make(variant)
        for task in self.sampled_tasks(env, 3):
            list(play.episode(used, 7, "random"))
            key = self.task_key(env, task)
            name = key.partition(":")[0]
            assert name, f"the task key {key!r} does not start with the environment's name"
            assert len(key) == len(name) + 25, f"the task key {key!r} is not 'name:' and 24 hex digits"
            same = [{}, {"max_steps": env.max_steps + 1}, {"render_mode": "ansi"}, *self.presentations]
            for change in same if "ansi" in env.metadata["render_modes"] else [same[0], same[1], *self.presentations]:
                other = self.task_key(self.make({**variant, **change}), task)
                assert other == key, f"task {task} gets another task key with {change or 'another instance'}"
            assert self.task_key(used, task) == key, f"the key of task {task} depends on what was played before"
            for unlike in self.variants:
                other_env = self.make(unlike)
                if other_env.settings != env.settings and task < other_env.num_tasks:
                    other = self.task_key(other_env, task)
                    assert other != key, f"{label(unlike)} and {label(variant)} share task key {key}"

    def test_draws_can_be_limited_to_types(self, variant: Variant) -> None:
        """`task_types` limits the tasks that seeds draw, without changing the numbers and keys of tasks."""
        env = self.make(variant)
        if "task_types" not in (text_env_parameters(type(env)) or ()):
            return
        wanted = env.task_type_of(env.num_tasks - 1)
        limited = self.make({**variant, "task_types": [wanted]})
        for seed in self.seeds:
            _, info = limited.reset(seed=seed)
            assert info["task_type"] == wanted, f"task_types=[{wanted!r}] starts a task of type {info['task_type']!r}"
            again = env.reset(seed=seed, options={"task": info["task"]})[1]
            assert again["task_key"] == info["task_key"], f"the key of task {info['task']} depends on task_types"
            assert limited.settings == env.settings, "task_types must not be among the settings"
        with pytest.raises(UnknownOption):
            self.make({**variant, "task_types": ["no such type"]})

    def test_presentation_settings_are_covered(self) -> None:
        """`presentations` varies every presentation setting."""
        env = self.make(self.variants[0])
        varied = {name for change in self.presentations for name in change}
        missing = sorted(env.presentation_settings - varied)
        assert not missing, f"add a value of {missing[0]!r} to `presentations` of the test class"

    def test_task_option_fixes_the_task(self, variant: Variant) -> None:
        """`options={"task": k}` starts task k, also for NumPy integers, and all attempts have the same start."""
        env = self.make(variant)
        for task in {0, env.num_tasks - 1}:
            observation, info = env.reset(seed=1, options={"task": np.int64(task)})
            assert info["task"] == task, f"options={{'task': {task}}} starts task {info['task']}"
            again, _ = self.make(variant).reset(seed=1, options={"task": task})
            assert observation == again, f"task {task} does not start alike in two instances"
            attempts = []
            for attempt, played in enumerate((env, env, self.make(variant))):
                recorder = EpisodeRecorder(played)
                recorder.reset(seed=1, task=task, attempt=attempt)
                recorder.step(played.sample_action(Stream("attempt", attempt)))
                attempts.append(recorder.episode)
            Group([episode for episode in attempts if episode is not None])

"""Checks of tasks: the expert wins them, the splits share none, and a key identifies the decision problem."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from agentgym_flow.core import SPLITS, Stream, TextEnv
from agentgym_flow.episodes import EpisodeRecorder, Group
from agentgym_flow.errors import UnknownOption
from agentgym_flow.testing import play
from agentgym_flow.testing.suite import TextSuite, Variant, label


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
        """`draw_only` limits the tasks that seeds draw, without changing the numbers and keys of tasks."""
        env, limited = self.make(variant), self.make(variant)
        wanted = env.task_type_of(env.num_tasks - 1)
        limited.draw_only([wanted])
        for seed in self.seeds:
            _, info = limited.reset(seed=seed)
            assert info["task_type"] == wanted, f"draw_only([{wanted!r}]) starts a task of type {info['task_type']!r}"
            again = env.reset(seed=seed, options={"task": info["task"]})[1]
            assert again["task_key"] == info["task_key"], f"the key of task {info['task']} depends on draw_only()"
            assert limited.settings == env.settings, "draw_only() must not be among the settings"
        with pytest.raises(UnknownOption):
            limited.draw_only(["no such type"])

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

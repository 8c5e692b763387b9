"""What all checks share: which environment, which settings of it, and how many samples."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import pytest

from agentgym_flow.core import TextEnv
from agentgym_flow.seeding import stable_hash
from agentgym_flow.testing import play
from agentgym_flow.testing.search import exhaustively_lost

Variant = Mapping[str, Any]
"""Keyword arguments of one configuration under test."""


def label(variant: Variant) -> str:
    """Return a short readable name of a variant, also its pytest id; what lies on disk goes by name, not by path."""
    shown = {key: Path(value).stem if _is_path(key, value) else value for key, value in sorted(variant.items())}
    return ",".join(f"{key}={value}" for key, value in shown.items()).replace("\n", "/") or "default"


def _is_path(key: str, value: Any) -> bool:
    return key == "data" or (isinstance(value, str) and Path(value).is_absolute())


class Suite:
    """Hooks of the compliance suite. A test class sets `env_id`, and whichever of the others it needs.

    The numbers say how much is sampled; they are chosen so that a small environment is checked in seconds.
    """

    env_id: ClassVar[str]
    """The registered id under test."""
    env_module: ClassVar[str] = "agentgym_flow"
    """The module whose import registers `env_id`; other processes import it too."""
    variants: ClassVar[Sequence[Variant]] = ({},)
    """The settings to check, as keyword arguments of `gymnasium.make`; JSON-able."""
    seeds: ClassVar[Sequence[int]] = (0, 1, 2)
    """The seeds of the episodes that most checks play."""
    manual_sections: ClassVar[Sequence[str]] = (
        "Description",
        "Action Space",
        "Observation Space",
        "Starting State",
        "Rewards",
        "Episode End",
        "Information",
        "Arguments",
        "References",
        "Version History",
    )
    """The headings that the docstring of the environment must have, in this order."""

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run every check that takes a `variant` once for each of them."""
        if "variant" in metafunc.fixturenames:
            metafunc.parametrize("variant", list(self.variants), ids=[label(v) for v in self.variants])

    def make(self, variant: Variant, **more: Any) -> Any:
        """Return a new unwrapped environment of this variant."""
        return play.make(self.env_id, self.env_module, {**variant, **more})

    def spec(self) -> gym.envs.registration.EnvSpec:
        """Return the registered spec."""
        importlib.import_module(self.env_module)
        return gym.spec(self.env_id)


class TextSuite(Suite):
    """Hooks that only text environments need."""

    disjoint_splits: ClassVar[bool] = True
    """Whether the splits share no task; False where one level or one file serves all of them."""
    distinct_tasks: ClassVar[bool] = True
    """Whether the tasks of a split all differ; False where independent draws may fall on one task twice."""
    tasks_per_split: ClassVar[int] = 6
    """How many tasks of each split the expert plays, spread evenly."""
    task_keys_per_split: ClassVar[int] = 40
    """How many tasks of each split are compared by key; all of them when it has at most ten times as many."""
    machine_examples: ClassVar[int] = 10
    """How many programs of the state machine are tried."""
    machine_steps: ClassVar[int] = 25
    """How many rules a program of the state machine has."""
    search_states: ClassVar[int] = 400
    """How many states `is_lost` explores before it answers that it does not know."""
    idle_reward: ClassVar[float | None] = None
    """The reward of a step that changes nothing, when one cannot be found by play."""
    success_threshold: ClassVar[float] = 1.0
    """The score from which an episode counts as a success."""
    presentations: ClassVar[Sequence[Variant]] = ()
    """Settings that change the text but not the decision problem; at least one for each presentation setting."""
    golden: ClassVar[Mapping[str, str]] = {}
    """Name of a reference episode -> its digest; the failing check prints what to paste here."""
    manifests: ClassVar[Mapping[str, str]] = {}
    """`"<variant>/<split>"` -> recorded digest of all task keys of that split, as `manifest_digest` computes it."""

    def manifest_digest(self, variant: Variant, split: str) -> str:
        """Return one digest of all task keys of a split.

        By default the keys are read from resets; override it where an environment knows a quicker way.
        """
        env = self.make(variant, split=split)
        return stable_hash([self.task_key(env, task) for task in range(env.num_tasks)])

    def is_lost(self, env: TextEnv) -> bool | None:
        """Return whether the task can no longer be won from the present state; None when unknown.

        By default an exhaustive search over clones, which can only say yes when the language is closed. Override it
        where the rules allow a direct answer.
        """
        return exhaustively_lost(env, self.search_states)

    def task_key(self, env: TextEnv, task: int) -> str:
        """Return the key of a task (with the noise of seed 0)."""
        return str(env.reset(seed=0, options={"task": task})[1]["task_key"])

    def sampled_tasks(self, env: TextEnv, count: int) -> list[int]:
        """Return `count` task indices spread evenly over the split, both ends included; all when there are fewer."""
        total = env.num_tasks
        if total <= count:
            return list(range(total))
        return sorted({round(i * (total - 1) / max(1, count - 1)) for i in range(count)})

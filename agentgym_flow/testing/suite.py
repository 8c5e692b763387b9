"""The base classes of all checks: the environment, its settings, the numbers of samples, and a search for success."""

from __future__ import annotations

import copy
import hashlib
import importlib
import pickle
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import pytest

from agentgym_flow.core import TextEnv, stable_hash
from agentgym_flow.testing import play

Variant = Mapping[str, Any]
"""The keyword arguments of one tested configuration."""


def label(variant: Variant) -> str:
    """Return a short readable name of a variant, which is also its pytest id. Paths are reduced to names."""
    shown = {
        key: Path(value).stem if key == "data" or (isinstance(value, str) and Path(value).is_absolute()) else value
        for key, value in sorted(variant.items())
    }
    return ",".join(f"{key}={value}" for key, value in shown.items()).replace("\n", "/") or "default"


class Suite:
    """Hooks of the compliance suite. A test class sets `env_id`, and others as needed.

    The default sample sizes suit a small environment, which is checked in seconds.
    """

    env_id: ClassVar[str]
    """The id of the tested environment."""
    env_module: ClassVar[str] = "agentgym_flow"
    """The module whose import registers `env_id`, also in other processes."""
    variants: ClassVar[Sequence[Variant]] = ({},)
    """The settings to check, as JSON-serialisable keyword arguments of `gymnasium.make`."""
    seeds: ClassVar[Sequence[int]] = (0, 1, 2)
    """The seeds of the episodes in most checks."""
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
    """The required headings in the docstring of the environment, in order."""

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run every check with a parameter `variant` once for each variant."""
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
    """Hooks for text environments."""

    disjoint_splits: ClassVar[bool] = True
    """Whether the splits share no task. Set it to False if all splits use the same level or file."""
    distinct_tasks: ClassVar[bool] = True
    """Whether all tasks of a split differ. Set it to False if independent draws can repeat a task."""
    tasks_per_split: ClassVar[int] = 6
    """The number of tasks in each split that the expert plays, spread evenly."""
    task_keys_per_split: ClassVar[int] = 40
    """The number of tasks per split whose keys are compared; all tasks of splits up to ten times as large."""
    machine_examples: ClassVar[int] = 10
    """The number of programs that the state machine tries."""
    machine_steps: ClassVar[int] = 25
    """The number of rules in a program of the state machine."""
    search_states: ClassVar[int] = 400
    """The number of states that `is_lost` explores before it returns None."""
    idle_reward: ClassVar[float | None] = None
    """The reward of a step that changes nothing, if the suite cannot find such a step itself."""
    success_threshold: ClassVar[float] = 1.0
    """The lowest score that counts as a success."""
    presentations: ClassVar[Sequence[Variant]] = ()
    """Settings that change the text but not the decision problem; at least one for each presentation setting."""
    golden: ClassVar[Mapping[str, str]] = {}
    """Name of a reference episode -> its digest. A failing check prints the lines to insert here."""
    manifests: ClassVar[Mapping[str, str]] = {}
    """`"<variant>/<split>"` -> the `manifest_digest` of that split."""

    def manifest_digest(self, variant: Variant, split: str) -> str:
        """Return one digest of all task keys of a split.

        By default every task is reset. Override this method if the keys can be computed faster.
        """
        env = self.make(variant, split=split)
        return stable_hash([self.task_key(env, task) for task in range(env.num_tasks)])

    def is_lost(self, env: TextEnv) -> bool | None:
        """Return whether the task can no longer be won from the present state; None if this is unknown.

        By default this is an exhaustive search over clones, which can return True only for closed actions. Override the
        method if the rules allow a direct answer.
        """
        return exhaustively_lost(env, self.search_states)

    def task_key(self, env: TextEnv, task: int) -> str:
        """Return the key of a task (with the noise of seed 0)."""
        return str(env.reset(seed=0, options={"task": task})[1]["task_key"])

    def sampled_tasks(self, env: TextEnv, count: int) -> list[int]:
        """Return `count` task indices, spread evenly over the split with both ends; all tasks if there are fewer."""
        total = env.num_tasks
        if total <= count:
            return list(range(total))
        return sorted({round(i * (total - 1) / max(1, count - 1)) for i in range(count)})


def exhaustively_lost(env: TextEnv, max_states: int) -> bool | None:
    """Return whether the task is lost: no sequence of candidate actions leads from the present state to success.

    The search is breadth-first over clones without a step budget. It returns False as soon as success is found; True if
    all reachable states were seen and had only closed actions; None if there are more than `max_states` states, or an
    open action might still win.
    """
    root = copy.deepcopy(env)
    root.max_steps = 1 << 40
    if root.state_key().startswith("end:"):
        return not root.success()
    found, is_open = _search(root, max_states, lambda state: state.state_key())
    if found is not True or not is_open:
        return found
    # With open actions, the candidates depend on shown text, which is not part of the state key.
    found, _ = _search(root, max_states, _memory)
    return False if found is False else None


def _search(root: TextEnv, max_states: int, identity: Callable[[TextEnv], object]) -> tuple[bool | None, bool]:
    """Return whether the task is lost (None: too many states), and whether a template was seen."""
    queue, seen, is_open = deque([root]), {identity(root)}, False
    while queue:
        state = queue.popleft()
        is_open |= bool(state.action_templates())
        for action in state.candidates():
            after = copy.deepcopy(state)
            _, _, terminated, _, info = after.step(action)
            if info["success"]:
                return False, is_open
            if terminated or identity(after) in seen:
                continue
            if len(seen) >= max_states:
                return None, is_open
            seen.add(identity(after))
            queue.append(after)
    return True, is_open


_WAY = ("steps", "_history", "_last_transition")


def _memory(env: TextEnv) -> bytes:
    """Return a digest of all attributes of the environment except the record of the way to its state."""
    kept = {key: value for key, value in vars(env).items() if key not in _WAY}
    return hashlib.sha256(pickle.dumps(kept)).digest()

"""Play episodes for the suite with fixed policies, record the transitions, and compare them exactly.

This module works with text environments and numeric variants. It imports neither pytest nor Hypothesis, so that other
processes start quickly: `python -m agentgym_flow.testing.play` reads jobs as JSON from standard input and writes
fingerprints.
"""

from __future__ import annotations

import copy
import importlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import gymnasium as gym
import numpy as np

from agentgym_flow.core import Stream, TextEnv, stable_hash

NONSENSE = (
    "",
    " ",
    "\n",
    "\x00",
    "\ud800",
    "[",
    "]",
    "][",
    "{}",
    "\U0001f9ca",
    "ﷺ\u202e",
    "None",
    "<action></action>",
    "x" * 1_000_000,
)
"""Texts that are invalid actions in every environment: empty, control characters, a lone surrogate, a megabyte.

The tuple must never change, because the reference episodes of all environments draw from it.
"""


@dataclass(slots=True)
class Moment:
    """A copy of the result of one `reset` (action None) or `step`."""

    action: Any
    observation: Any
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]

    @property
    def over(self) -> bool:
        """Whether the episode has ended here."""
        return bool(self.terminated or self.truncated)


def plain(value: Any) -> Any:
    """Return `value` as plain data, in which arrays and NumPy scalars keep their dtype, shape and bytes.

    Raises `TypeError` for other objects.
    """
    if isinstance(value, np.ndarray):
        if value.dtype == object:
            return ["array", "object", list(value.shape), [plain(item) for item in value.ravel()]]
        return ["array", value.dtype.str, list(value.shape), value.tobytes().hex()]
    if isinstance(value, np.generic):
        return ["scalar", value.dtype.str, value.tobytes().hex()]
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"{type(value).__name__} is not plain data")


def fingerprint(value: Any) -> str:
    """Return 16 hex digits that are equal for equal data, including dtypes."""
    return stable_hash(plain(value))[:16]


def fingerprints(moments: Sequence[Moment]) -> list[str]:
    """Return one fingerprint per moment."""
    return [fingerprint([getattr(moment, part.name) for part in fields(Moment)]) for moment in moments]


def differing_key(mine: Mapping[str, Any], yours: Mapping[str, Any]) -> str:
    """Return the first key, in sorted order, that two different dictionaries do not both have with an equal value."""
    keys = sorted(mine.keys() | yours.keys(), key=str)
    return next(k for k in keys if (k in mine) != (k in yours) or fingerprint(mine[k]) != fingerprint(yours[k]))


def difference(first: Sequence[Moment], second: Sequence[Moment]) -> str | None:
    """Return the first difference of two episodes in words; None if they are exactly equal."""
    for number, (one, other) in enumerate(zip(first, second, strict=False)):
        for part in fields(Moment):
            mine, yours = getattr(one, part.name), getattr(other, part.name)
            if fingerprint(mine) == fingerprint(yours):
                continue
            where = f"step {number}" if number else "the reset"
            if part.name == "info":
                key = differing_key(mine, yours)
                return f"at {where} info[{key!r}] is {mine.get(key)!r:.200} against {yours.get(key)!r:.200}"
            return f"at {where} {part.name} is {mine!r:.200} against {yours!r:.200}"
    if len(first) != len(second):
        return f"the episodes have {len(first) - 1} and {len(second) - 1} steps"
    return None


def start(env: Any, seed: int | None, task: int | None = None) -> Moment:
    """Reset `env` and return a copy of the result."""
    options = None if task is None else {"task": task}
    observation, info = env.reset(seed=seed, options=options)
    return copy.deepcopy(Moment(None, observation, 0.0, False, False, info))


def advance(env: Any, action: Any) -> Moment:
    """Step `env` and return a copy of the result."""
    observation, reward, terminated, truncated, info = env.step(action)
    return copy.deepcopy(Moment(action, observation, reward, terminated, truncated, info))


def choose(env: Any, policy: str, rng: Stream) -> Any:
    """Return the next action of a policy: `"random"`, `"mixed"` (random, some invalid), `"expert"` (random once lost).

    In a numeric variant, every policy draws from the `Discrete` actions.
    """
    base = env.unwrapped
    if not isinstance(base, TextEnv):
        return int(base.action_space.start) + rng.below(int(base.action_space.n))
    if policy == "expert":
        expert = base.expert_action()
        return expert if expert is not None else base.sample_action(rng)
    if policy == "mixed" and rng.below(4) == 0:
        return rng.choice(NONSENSE[:-1])
    return base.sample_action(rng)


def episode(
    env: Any, seed: int | None, policy: str = "mixed", *, task: int | None = None, limit: int = 60
) -> Iterator[Moment]:
    """Yield the moments of one episode, starting with the reset, until its end or for `limit` steps.

    Between the moments, the caller can inspect `env` in the present state.
    """
    moment = start(env, seed, task)
    yield moment
    rng = Stream("agentgym_flow.testing", policy, -1 if seed is None else seed)
    for _ in range(limit):
        moment = advance(env, choose(env, policy, rng))
        yield moment
        if moment.over:
            return


def make(env_id: str, module: str, kwargs: Mapping[str, Any]) -> Any:
    """Return the unwrapped environment; importing `module` registers its id."""
    importlib.import_module(module)
    return gym.make(env_id, disable_env_checker=True, **kwargs).unwrapped


def play_jobs(env_id: str, module: str, jobs: Sequence[Sequence[Any]]) -> list[list[str]]:
    """Return the fingerprints of the episode of every job `[kwargs, seed, policy]`."""
    results = []
    for kwargs, seed, policy in jobs:
        env = make(env_id, module, kwargs)
        results.append(fingerprints(list(episode(env, seed, policy))))
        env.close()
    return results


if __name__ == "__main__":
    request = json.load(sys.stdin)
    with os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8") as report:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # environments may print
        json.dump(play_jobs(request["env_id"], request["module"], request["jobs"]), report)

"""How the suite plays: fixed policies, recorded transitions, and exact comparison of what came out.

Works on text environments and on numeric faces. Imports neither pytest nor Hypothesis, so that a second process starts
quickly: `python -m agentgym_flow.testing.play` reads jobs as JSON from standard input and writes fingerprints.
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

from agentgym_flow.core import TextEnv
from agentgym_flow.seeding import Stream, stable_hash

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
"""Texts that are invalid actions in every environment: empty, control characters, half a surrogate pair, a megabyte.

Reference episodes of every environment draw from these: the tuple never changes.
"""


@dataclass(slots=True)
class Moment:
    """What one `reset` (action None) or `step` returned, copied at once."""

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
    """Return `value` as canonical plain data in which arrays and NumPy scalars keep their dtype, shape and bytes.

    Raises `TypeError` for an object that is not data.
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
    """Return 16 hex digits that are equal exactly for equal data, dtypes included."""
    return stable_hash(plain(value))[:16]


def fingerprints(moments: Sequence[Moment]) -> list[str]:
    """Return one fingerprint per moment."""
    return [fingerprint([getattr(moment, part.name) for part in fields(Moment)]) for moment in moments]


def difference(first: Sequence[Moment], second: Sequence[Moment]) -> str | None:
    """Return the first difference of two episodes in words, or None when they are exactly equal."""
    for number, (one, other) in enumerate(zip(first, second, strict=False)):
        for part in fields(Moment):
            mine, yours = getattr(one, part.name), getattr(other, part.name)
            if fingerprint(mine) == fingerprint(yours):
                continue
            where = f"step {number}" if number else "the reset"
            if part.name == "info":
                keys = sorted(mine.keys() | yours.keys(), key=str)
                key = next(
                    k for k in keys if (k in mine) != (k in yours) or fingerprint(mine[k]) != fingerprint(yours[k])
                )
                return f"at {where} info[{key!r}] is {mine.get(key)!r:.200} against {yours.get(key)!r:.200}"
            return f"at {where} {part.name} is {mine!r:.200} against {yours!r:.200}"
    if len(first) != len(second):
        return f"the episodes have {len(first) - 1} and {len(second) - 1} steps"
    return None


def start(env: Any, seed: int | None, task: int | None = None) -> Moment:
    """Reset `env` and return what came, copied."""
    options = None if task is None else {"task": task}
    observation, info = env.reset(seed=seed, options=options)
    return copy.deepcopy(Moment(None, observation, 0.0, False, False, info))


def advance(env: Any, action: Any) -> Moment:
    """Step `env` and return what came, copied."""
    observation, reward, terminated, truncated, info = env.step(action)
    return copy.deepcopy(Moment(action, observation, reward, terminated, truncated, info))


def choose(env: Any, policy: str, rng: Stream) -> Any:
    """Return the next action of a policy: `"random"`, `"mixed"` (random and nonsense), `"expert"` (random once lost).

    On a numeric face every policy draws from its `Discrete` actions.
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
    """Yield the moments of one episode, the reset first; stops at its end or after `limit` steps.

    Being a generator, it lets the caller look at `env` in every state on the way.
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
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # environments of others print
        json.dump(play_jobs(request["env_id"], request["module"], request["jobs"]), report)

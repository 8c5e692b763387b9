"""Credit functions by name, and those of users as `module:function`."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, Protocol

from agentgym_flow._util.importing import find_modules_here, imported
from agentgym_flow.core import OFFICIAL_KEY
from agentgym_flow.episodes import Group
from agentgym_flow.errors import BadSetting, UnknownOption, shown
from agentgym_flow.rewards.credit.comparison import Advantages, Outcome, Scope, Statistics, Weights
from agentgym_flow.rewards.credit.cwrpo import cwrpo, trajectory_weights
from agentgym_flow.rewards.credit.gigpo import gigpo
from agentgym_flow.rewards.credit.grpo import grpo
from agentgym_flow.rewards.credit.rewardflow import graphgpo, rewardflow
from agentgym_flow.rewards.credit.rloo import rloo


class CreditFunction(Protocol):
    """The interface of credit functions; each can have more keywords."""

    def __call__(
        self,
        batch: Sequence[Group],
        *,
        outcome: Outcome = ...,
        scope: Scope = ...,
        statistics: Statistics | None = ...,
        reproduce_official: bool = ...,
        policy: str | None = ...,
    ) -> Advantages:
        """Return the advantages of all turns of a batch."""


class WeightFunction(Protocol):
    """The interface of functions that weight episodes."""

    def __call__(self, batch: Sequence[Group], *, observations: bool = ..., policy: str | None = ...) -> Weights:
        """Return the weights of all episodes of a batch."""


CREDIT: Mapping[str, CreditFunction] = {
    "grpo": grpo,
    "rloo": rloo,
    "gigpo": gigpo,
    "rewardflow": rewardflow,
    "graphgpo": graphgpo,
    "cwrpo": cwrpo,
}
"""Algorithm name -> its credit function."""

OFFICIAL_READS: Mapping[str, tuple[str, ...]] = {"rewardflow": (OFFICIAL_KEY,), "graphgpo": (OFFICIAL_KEY,)}
"""Algorithm name -> the optional keys of `info` that it needs with `reproduce_official`, if any."""

WEIGHTS: Mapping[str, WeightFunction] = {"cwrpo": trajectory_weights}
"""Algorithm name -> the weights of its episodes in the loss; by default all are equal."""


def credit_function(name: str) -> CreditFunction:
    """Return the credit function with this name, or the user's function `module:function`.

    A user's function takes a batch and keyword settings with defaults. Its result is checked: one finite number for
    every turn. Without a keyword `policy` it works only for a single policy.

    Raises `UnknownOption` if there is no such function.
    """
    if ":" in name:
        find_modules_here()
        function = imported(name, UnknownOption)
        if not callable(function):
            raise UnknownOption(f"{name} is a {type(function).__name__}; a credit function is a function of a batch")
        return _checked(function, name)
    if name not in CREDIT:
        raise UnknownOption.among(name, [*CREDIT, "module:function"], "These are the credit functions.")
    return CREDIT[name]


def _checked(function: Callable[..., Advantages], name: str) -> CreditFunction:
    """Return a user's function with a check of its result."""
    takes_policy = "policy" in inspect.signature(function).parameters

    @wraps(function)
    def credit(batch: Sequence[Group], *, policy: str | None = None, **settings: Any) -> Advantages:
        if policy is not None and not takes_policy:
            raise BadSetting(
                f"credit function {name} has no keyword policy, so it cannot credit one of several policies"
            )
        found: Any = function(batch, **settings, **({"policy": policy} if takes_policy else {}))
        wanted = f"credit function {name} must return advantages[group][episode][turn], one for each turn"
        try:
            advantages = [[[float(one) for one in turns] for turns in episodes] for episodes in found]
        except (TypeError, ValueError):
            raise BadSetting(f"{wanted}, got {shown(found)}") from None
        shape = [[len(turns) for turns in episodes] for episodes in advantages]
        if shape != [[len(episode.turns) for episode in group] for group in batch]:
            raise BadSetting(wanted)
        if not all(math.isfinite(one) for episodes in advantages for turns in episodes for one in turns):
            raise BadSetting(f"credit function {name} has returned an advantage that is not a finite number")
        return advantages

    return credit


def settings_of(name: str) -> dict[str, Any]:
    """Return the settings of a credit function with their defaults, which are the constants of its paper.

    These are its keyword arguments except `policy`, which selects the turns that get credit.

    Raises `UnknownOption` if there is no such function.
    """
    parameters = inspect.signature(credit_function(name)).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty and p.name != "policy"}

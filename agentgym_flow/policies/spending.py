"""What a model server's answers cost: tokens in `episode.meta["usage"]`, money by a user's price file, and limits."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from agentgym_flow._util.values import decode_file, settings_in, typed
from agentgym_flow.core import check_positive
from agentgym_flow.episodes import PolicyOutput
from agentgym_flow.errors import BadSetting, BudgetSpent, UnknownOption, shown
from agentgym_flow.policies.base import AsyncPolicy, PolicyInput, PolicyWrapper

USAGE = "usage"
"""The key of `Episode.meta` with what the episode's answers took: see `play.Evaluation.usage`."""

_Price = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class Prices(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The prices of a model, in dollars per million tokens.

    Attributes:
        prompt: the price of prompt tokens.
        completion: the price of completion tokens.
        cached: the price of prompt tokens from the server's cache; None for that of others.
        reasoning: the price of completion tokens that are reasoning; None for that of others.
    """

    prompt: _Price
    completion: _Price
    cached: _Price | None = None
    reasoning: _Price | None = None

    @classmethod
    def read(cls, path: str | os.PathLike[str], model: str) -> Prices:
        """Return the prices of a model from a file, JSON or YAML, that maps names of models to prices.

        Raises:
            BadSetting: the file cannot be read, or a price is not a number of at least 0.
            UnknownOption: the file has no such model.
            MissingExtra: PyYAML, for a YAML file, is not installed.
        """
        file = Path(path)
        kind = dict[str, cls]  # type: ignore[valid-type]
        if file.suffix in (".yaml", ".yml"):
            value: Any = settings_in(file, BadSetting)
        else:
            try:
                value = decode_file(file.read_bytes(), BadSetting, str(file))
            except OSError as error:
                raise BadSetting(f"{file} cannot be read: {error.strerror or error}") from None
        known: dict[str, Prices] = typed(value, kind, BadSetting, str(file))
        if model not in known:
            raise UnknownOption.among(model, known, f"These are the models in {file}.")
        return known[model]

    def cost(self, usage: Mapping[str, int]) -> float:
        """Return the price of some tokens, in dollars."""
        cached, reasoning = usage.get("cached", 0), usage.get("reasoning", 0)
        return (
            (usage.get("prompt", 0) - cached) * self.prompt
            + cached * (self.prompt if self.cached is None else self.cached)
            + (usage.get("completion", 0) - reasoning) * self.completion
            + reasoning * (self.completion if self.reasoning is None else self.reasoning)
        ) / 1e6


def add_usage(total: dict[str, Any], more: Mapping[str, float]) -> None:
    """Add what answers took to a total, name by name. Sums do not depend on the order, up to a billionth."""
    for name, value in more.items():
        total[name] = round(total.get(name, 0) + value, 9)


def new_usage(policy_input: PolicyInput, before: Mapping[str, float]) -> dict[str, float]:
    """Return what the episode's answers have taken since it was `before`."""
    usage = policy_input.episode.meta.get(USAGE, {})
    return {name: value - before.get(name, 0) for name, value in usage.items() if value != before.get(name, 0)}


class LimitedPolicy(PolicyWrapper):
    """A policy that asks for no further answer once its answers have taken a number of tokens, or an amount of money.

    The requests under way are waited for, so that no answer is lost. The limit is therefore exceeded by them.

    Args:
        policy: the policy, which counts tokens in `episode.meta["usage"]`.
        max_tokens: the largest number of tokens of prompts and completions; None for no limit.
        max_cost: the largest cost in dollars; None for no limit.

    Attributes:
        spent: what the answers have taken so far. Add what earlier ones took.

    Raises `BadSetting` if a limit is not positive, or the policy does not wait for a server.
    """

    def __init__(self, policy: Any, max_tokens: int | None, max_cost: float | None) -> None:
        if not isinstance(policy, AsyncPolicy):
            raise BadSetting("max_tokens_total and max_cost limit what a model server is asked: leave them out")
        super().__init__(policy)
        if max_tokens is not None:
            check_positive("max_tokens_total", max_tokens)
        if max_cost is not None and not (isinstance(max_cost, int | float) and max_cost > 0):
            raise BadSetting(f"max_cost must be a positive number of dollars, got {shown(max_cost)}")
        self.max_tokens, self.max_cost = max_tokens, max_cost
        self.spent: dict[str, Any] = {}
        self._under_way = 0

    async def respond(self, policy_input: PolicyInput) -> PolicyOutput:
        """Return the output of the policy. Raises `BudgetSpent`, and `BadSetting` if tokens or prices are not known."""
        while over := self._over():
            if not self._under_way:
                raise BudgetSpent(over)
            await asyncio.sleep(0.01)
        before = dict(policy_input.episode.meta.get(USAGE, {}))
        self._under_way += 1
        try:
            output = await self.policy.respond(policy_input)
        finally:
            self._under_way -= 1
        new = new_usage(policy_input, before)
        add_usage(self.spent, new)
        if self.max_cost is not None and new and "cost" not in self.spent:
            raise BadSetting("max_cost needs the prices of the model: --prices FILE")
        if not new and (output.text or output.action):
            raise BadSetting("the server does not count tokens, so max_tokens_total and max_cost have no effect")
        return output

    def _over(self) -> str:
        """Return which limit has been reached; empty if none."""
        tokens = self.spent.get("prompt", 0) + self.spent.get("completion", 0)
        if self.max_tokens is not None and tokens >= self.max_tokens:
            return f"{tokens:,} tokens were used of max_tokens_total={self.max_tokens:,}"
        cost = self.spent.get("cost", 0.0)
        if self.max_cost is not None and cost >= self.max_cost:
            return f"{cost:.4f} dollars were spent of max_cost={self.max_cost:g}"
        return ""

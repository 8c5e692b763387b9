"""What a policy asks of whatever runs its model: tokens in, tokens out.

A generator knows nothing of prompts, turns or actions. It answers one request at a time, asynchronously; how many it
works on together is its own business, and must not change an answer: that depends on the request and the weights alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from agentgym_flow.core import check_positive
from agentgym_flow.errors import BadSetting, TrainingFailed

if TYPE_CHECKING:
    from transformers import PreTrainedModel

SEEDS = 1 << 53
"""How many seeds there are: as many as a float in [0, 1) has values of equal weight."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the tokens of an answer are chosen. Log-probabilities are those of the tempered distribution.

    Attributes:
        temperature: the logits are divided by it.
        greedy: take the most likely token instead of drawing one (`temperature` then only scales log-probabilities).
        max_new_tokens: the longest answer.
        ends: tokens that end an answer; the one that did is its last.
        stops: texts that end an answer; the token that completes one is its last, with whatever it has behind that.

    Raises:
        BadSetting: a number is out of its range.
    """

    temperature: float = 1.0
    greedy: bool = False
    max_new_tokens: int = 1
    ends: frozenset[int] = frozenset()
    stops: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise BadSetting(f"temperature must be above 0, got {self.temperature}; use greedy=True for the best token")
        check_positive("max_new_tokens", self.max_new_tokens)
        if not all(self.stops):
            raise BadSetting("an empty text would stop every answer before it begins: leave it out of stops")


class GenerationRequest(NamedTuple):
    """One prompt to be answered.

    Attributes:
        prompt_ids: its tokens.
        sampling: how to choose those of the answer.
        seed: of the random draws, drawn uniformly from `range(SEEDS)`. Equal requests get equal answers from the same
            weights.
        said: in a conversation that may go on, how many of the first tokens an earlier prompt and the answer to it are,
            0 at its beginning; None for a prompt by itself. A generator may keep what it has computed of them.
    """

    prompt_ids: tuple[int, ...]
    sampling: Sampling
    seed: int
    said: int | None = None


class Completion(NamedTuple):
    """The answer to a request.

    Attributes:
        token_ids: its tokens, with the one that ended it, if one did.
        logprobs: their log-probabilities in nats, one per token.
        version: that of the weights which gave them.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    version: int


NOT_A_NUMBER = (
    "is not a number: lower learning_rate and muon_learning_rate, or max_grad_norm, and go back to an earlier "
    "checkpoint"
)
"""What became of a model that diverged, and what to do."""


def checked_completion(completion: Completion) -> Completion:
    """Return `completion`. Raises `TrainingFailed` when one of its log-probabilities is not a number."""
    if not all(map(math.isfinite, completion.logprobs)):
        raise TrainingFailed(f"the model's output {NOT_A_NUMBER}")
    return completion


@runtime_checkable
class Generator(Protocol):
    """Whatever runs a causal language model.

    One that holds what belongs to an event loop, such as connections, is an asynchronous context manager as well, and
    is entered around its use.
    """

    version: int
    """Of the weights that answer now."""

    exact: bool
    """Whether its log-probabilities are those which the model in training gives, but for the order of summation."""

    async def generate(self, request: GenerationRequest) -> Completion:
        """Answer one request.

        Raises `GenerationFailed` when this one cannot be answered, and `TrainingFailed` when the model's output is not
        a number.
        """

    def update(self, model: PreTrainedModel, version: int) -> None:
        """Answer with the weights of `model` from now on, which are of `version`; nothing happens if they are already.

        All processes of a run call this at the same place, each with whole weights (ZeRO-3 gathers them), and while no
        request is under way. Raises `UpdateFailed` when the weights could not be taken over, and `TrainingFailed` when
        they are not numbers.
        """

    def close(self) -> None:
        """Let go of what it holds: processes, connections, memory."""


@runtime_checkable
class BatchGenerator(Generator, Protocol):
    """A generator in this process, which is quicker when it is asked for many answers in one go."""

    def generate_batch(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        """Answer all requests, in order; the same answers as `generate` gives one by one. Raises what that raises."""

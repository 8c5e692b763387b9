"""Generation of token ids from token ids: the interface between a policy and the backend that runs its model.

A generator has no notion of prompts, turns or actions. It answers requests one by one, asynchronously. It may process
several together, but an answer must depend only on its request and the weights.

transformers_generator   a Transformers model in this process; the default, on any device
vllm_engine              vLLM in this process
vllm_server              vLLM servers
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from agentgym_flow._util.values import is_number
from agentgym_flow.core import check_positive
from agentgym_flow.errors import BadSetting, ContextFull, TrainingFailed

if TYPE_CHECKING:
    from torch.nn import Module
    from transformers import PreTrainedModel

SEEDS = 1 << 53
"""The number of seeds: as many as there are equally spaced floats in [0, 1)."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling settings. Log-probabilities are those of the tempered distribution.

    Attributes:
        temperature: divides the logits.
        greedy: take the most likely token instead of sampling (`temperature` then only affects log-probabilities).
        max_new_tokens: the longest answer, in tokens.
        ends: tokens that end an answer; the end token is included.
        stops: texts that end an answer; the token that completes one is included whole.

    Raises:
        BadSetting: a number is out of range, or `greedy` is no boolean.
    """

    temperature: float = 1.0
    greedy: bool = False
    max_new_tokens: int = 1
    ends: frozenset[int] = frozenset()
    stops: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not is_number(self.temperature) or self.temperature <= 0:
            advice = "use greedy=True for the best token"
            raise BadSetting(f"temperature must be a number above 0, got {self.temperature!r:.60}; {advice}")
        if not isinstance(self.greedy, bool):
            raise BadSetting(f"greedy must be true or false, got {self.greedy!r:.60}")
        check_positive("max_new_tokens", self.max_new_tokens)
        if not all(self.stops):
            raise BadSetting("an empty text would stop every answer before it begins: leave it out of stops")


class GenerationRequest(NamedTuple):
    """A prompt to complete.

    Attributes:
        prompt_ids: the tokens of the prompt.
        sampling: the sampling settings.
        seed: the seed of the random draws, uniform in `range(SEEDS)`. Equal requests get equal answers from the same
            weights.
    """

    prompt_ids: tuple[int, ...]
    sampling: Sampling
    seed: int


class Completion(NamedTuple):
    """The answer to a request.

    Attributes:
        token_ids: the tokens, including the one that ended the answer.
        logprobs: their log-probabilities in nats.
        version: the version of the weights that sampled them.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    version: int


NOT_A_NUMBER = (
    "is not a number: lower learning_rate and muon_learning_rate, or max_grad_norm, and go back to an earlier "
    "checkpoint"
)
"""Message for a diverged model, with advice."""


def checked_completion(completion: Completion) -> Completion:
    """Return `completion`. Raises `TrainingFailed` if one of its log-probabilities is not finite."""
    if not all(map(math.isfinite, completion.logprobs)):
        raise TrainingFailed(f"the model's output {NOT_A_NUMBER}")
    return completion


def check_fits(prompt: int, answer: int, context: int, whose: str, advice: str) -> None:
    """Raise `ContextFull` if a prompt and an answer of these lengths do not fit into `whose` context, all in tokens."""
    if prompt + answer > context:
        raise ContextFull(
            f"a prompt of {prompt} tokens and a completion of {answer} do not fit into {whose} context of {context}: "
            f"{advice}"
        )


def has_adapter(model: Module) -> bool:
    """Return whether a model has adapters of peft."""
    return hasattr(model, "peft_config")


def check_finite(model: PreTrainedModel) -> None:
    """Raise `TrainingFailed` naming the first trained weight that is not finite."""
    for name, weight in model.named_parameters():
        if weight.requires_grad and not bool(weight.isfinite().all()):
            raise TrainingFailed(f"{name} {NOT_A_NUMBER}")


@runtime_checkable
class Generator(Protocol):
    """A backend that runs a causal language model.

    A generator with resources of an event loop, such as connections, is an asynchronous context manager as well, and
    is entered around its use.
    """

    version: int
    """The version of the current weights."""

    exact: bool
    """Whether its log-probabilities equal those of the model in training, up to the order of summation."""

    async def generate(self, request: GenerationRequest) -> Completion:
        """Answer one request.

        Raises `GenerationFailed` if it cannot be answered, and `TrainingFailed` if the model's output is not finite.
        """

    def update(self, model: PreTrainedModel, version: int) -> None:
        """Use the weights of `model`, whose version is `version`, from now on. Does nothing if they are current.

        All processes of a run call this at the same point, each with whole weights (ZeRO-3 gathers them), while no
        request is pending. Raises `UpdateFailed` if the weights could not be loaded, and `TrainingFailed` if they are
        not finite.
        """

    def close(self) -> None:
        """Release its resources: processes, connections, memory."""


@runtime_checkable
class BatchGenerator(Generator, Protocol):
    """A generator in this process that is faster with many requests at once."""

    def generate_batch(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        """Answer all requests, in order, with the answers that `generate` would give. Raises what that raises."""

"""Sampling in Transformers' `generate` from each request's own random stream.

Transformers draws a whole batch from one global generator, so an answer would depend on its neighbours. Here a logits
processor samples the token and masks all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.nn.functional import pad
from transformers import LogitsProcessor, StoppingCriteria

from agentgym_flow.core import Stream
from agentgym_flow.errors import TrainingFailed
from agentgym_flow.generation.base import NOT_A_NUMBER, SEEDS

PART = 512
"""Tokens whose probabilities are summed up at a time."""


def check_numbers(logprobs: torch.Tensor) -> None:
    """Raise `TrainingFailed` unless all log-probabilities are finite."""
    if not bool(torch.isfinite(logprobs).all()):
        raise TrainingFailed(f"the model's output {NOT_A_NUMBER}")


def first_draw(seed: int) -> float:
    """Return the first random number of an answer, in [0, 1): the seed itself, so that one token needs no stream."""
    return seed / SEEDS


def answer_draws(seed: int) -> Iterator[float]:
    """Yield the random numbers of one answer, in [0, 1)."""
    yield first_draw(seed)
    stream = Stream("answer", seed)
    while True:
        yield stream.uniform()


def sampled_tokens(
    scores: torch.Tensor, draws: Sequence[Iterator[float] | None], temperature: float
) -> list[tuple[int, float]]:
    """Return the next token of every row, and its log-probability.

    Args:
        scores: the logits; (rows, vocabulary).
        draws: the random numbers of each row; None, for all, takes the most likely token.
        temperature: divides the scores.

    Raises:
        TrainingFailed: the scores are not finite.
    """
    logprobs = torch.log_softmax(scores.float() / temperature, dim=-1)
    check_numbers(logprobs.amax(dim=-1))
    uniforms = [next(stream) for stream in draws if stream is not None]
    tokens = _drawn(logprobs.exp(), uniforms) if uniforms else logprobs.argmax(dim=-1)
    return list(zip(tokens.tolist(), logprobs.gather(-1, tokens[:, None])[:, 0].tolist(), strict=True))


def _drawn(shares: torch.Tensor, uniforms: Sequence[float]) -> torch.Tensor:
    """Return the token at a point in [0, 1) of each row's cumulative distribution, which is summed up in two levels."""
    count = shares.shape[-1]
    parts = pad(shares, (0, -count % PART)).view(len(shares), -1, PART)
    sums = parts.sum(dim=-1).double().cumsum(dim=-1)
    points = torch.tensor(uniforms, dtype=torch.double, device=shares.device)[:, None] * sums[:, -1:]
    part = torch.searchsorted(sums, points, right=True).clamp(max=sums.shape[-1] - 1)
    before = pad(sums, (1, 0)).gather(-1, part)
    within = parts[torch.arange(len(parts), device=shares.device), part[:, 0]].double().cumsum(dim=-1) + before
    place = torch.searchsorted(within, points, right=True).clamp(max=PART - 1)  # rounding may leave the sum too low
    return (part * PART + place).clamp(max=count - 1)[:, 0]


class StreamSampler(LogitsProcessor):  # type: ignore[misc]
    """Samples the next token of every row and masks all others.

    After generation `tokens` and `logprobs` hold the samples of each row, including the token that ended it. Ended rows
    draw no more.

    Args:
        draws: the random numbers of each row, or None for the most likely token.
        temperature: divides the scores.
        is_over: whether an answer with these tokens is complete.

    Attributes:
        ended: whether each row has ended.
    """

    def __init__(
        self, draws: Sequence[Iterator[float] | None], temperature: float, is_over: Callable[[list[int]], bool]
    ) -> None:
        self.tokens: list[list[int]] = [[] for _ in draws]
        self.logprobs: list[list[float]] = [[] for _ in draws]
        self.ended = [False] * len(draws)
        self._draws = draws
        self._temperature = temperature
        self._is_over = is_over

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        """Return scores that are 0 at the sampled token and minus infinity elsewhere; (rows, vocabulary).

        Raises `TrainingFailed` if the scores are not finite.
        """
        running = [row for row, ended in enumerate(self.ended) if not ended]
        chosen = torch.full_like(scores, -torch.inf)
        chosen[:, 0] = 0.0  # `generate` needs a token of ended rows, too
        sampled = sampled_tokens(scores[running], [self._draws[row] for row in running], self._temperature)
        for row, (token, logprob) in zip(running, sampled, strict=True):
            self.tokens[row].append(token)
            self.logprobs[row].append(logprob)
            self.ended[row] = self._is_over(self.tokens[row])
            chosen[row, 0], chosen[row, token] = -torch.inf, 0.0
        return chosen  # type: ignore[return-value]


class StopWhenEnded(StoppingCriteria):  # type: ignore[misc]
    """Stops `generate` when all rows of a sampler have ended."""

    def __init__(self, sampler: StreamSampler) -> None:
        self._sampler = sampler

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor, **_: Any) -> torch.BoolTensor:
        """Return whether each row has ended; shape (rows,)."""
        return torch.tensor(self._sampler.ended, device=input_ids.device)  # type: ignore[return-value]

"""A Transformers model in this process as a generator.

Matrix products give other last bits for other numbers of rows, so an answer would depend on what else is asked. On the
CPU every forward pass therefore has the same number of rows, filled up by repeating one, and a width that depends on
the prompt alone: then each row comes out the same, to the bit, whatever stands beside it. With several threads that
holds for answers of one token only.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from agentgym_flow.core import check_positive
from agentgym_flow.errors import BadSetting
from agentgym_flow.generation.base import Completion, Request, Sampling
from agentgym_flow.generation.batching import Gathering
from agentgym_flow.generation.last_position import next_logits
from agentgym_flow.generation.padding import left_padded
from agentgym_flow.generation.sampling import Draws, Ended, StreamSampler, check_numbers, first_draw
from agentgym_flow.generation.stops import holds_stop

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

ROWS = 16
"""Rows of a forward pass on the CPU. Fewer would cost time in full batches, more in small ones."""

MAX_ROWS = 1024
"""The most rows of a forward pass where their number is free."""

MAX_WORDS = 4096
"""The largest vocabulary of which the distribution after a prompt is kept."""

Tokens = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Next:
    """What the model says about the next token after one prompt."""

    logprobs: list[float]
    cumulative: list[float]
    best: int

    def draw(self, uniform: float) -> int:
        # Rounding may leave the last sum a little below 1, or the draw on a word of probability 0 at its very end.
        return min(bisect_right(self.cumulative, uniform * self.cumulative[-1]), len(self.cumulative) - 1)


class TransformersGenerator:
    """Answers with a model in this process.

    Answers of one token from a vocabulary of at most `MAX_WORDS` are drawn at the last position of the prompt, and
    equal prompts share one forward pass for as long as the weights stay unchanged. Others are written by the model's
    `generate`.

    Args:
        model: the causal language model; it is put into evaluation mode for every call and back after it.
        pad: the token that fills up prompts.
        rows: every forward pass has exactly so many rows; 0 for any number. None: `ROWS` on the CPU, else 0.
        version: of the weights.
        tokenizer: of the model, for requests with `stops`.
        exact: see `Generator`; false where the computation is in bfloat16, whose rounding depends on the shapes of the
            tensors, and these are others in sampling than in training.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        pad: int,
        *,
        rows: int | None = None,
        version: int = 0,
        tokenizer: PreTrainedTokenizerBase | None = None,
        exact: bool = True,
    ) -> None:
        self.model = model
        self.exact = exact
        self._tokenizer = tokenizer
        self.version = version
        self._pad = pad
        self._rows = rows if rows is None or rows == 0 else check_positive("rows", rows)
        self._next: dict[float, dict[Tokens, _Next]] = {}
        self._gathering = Gathering(self.generate_batch)

    def update(self, model: PreTrainedModel, version: int) -> None:
        """Answer with `model` from now on, whose weights are of `version`."""
        if version != self.version:
            self._next.clear()
        self.model, self.version = model, version

    async def generate(self, request: Request) -> Completion:
        """Answer one request, together with others that are made at the same time; see `Generator`."""
        return await self._gathering.ask(request)

    def generate_batch(self, requests: Sequence[Request]) -> list[Completion]:
        """Answer all requests, in order. Raises `TrainingFailed` when the model's output is not a number."""
        was_training = self.model.training
        self.model.eval()
        try:
            with torch.inference_mode():
                return self._answers(requests)
        finally:
            self.model.train(was_training)

    def close(self) -> None:
        """Forget what was computed; the model belongs to the caller."""
        self._next.clear()

    def _answers(self, requests: Sequence[Request]) -> list[Completion]:
        if len({id(request.sampling) for request in requests}) == 1:  # nearly always, and quicker
            return self._alike(requests, requests[0].sampling)
        alike: dict[Sampling, list[int]] = {}
        for number, request in enumerate(requests):
            alike.setdefault(request.sampling, []).append(number)
        answers: dict[int, Completion] = {}
        for sampling, numbers in alike.items():
            found = self._alike([requests[number] for number in numbers], sampling)
            answers.update(zip(numbers, found, strict=True))
        return [answers[number] for number in range(len(requests))]

    def _alike(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        # Whole distributions are kept, which a large vocabulary leaves no memory for.
        small = self.model.config.get_text_config().vocab_size <= MAX_WORDS
        one = sampling.max_new_tokens == 1 and small
        return self._one_token(requests, sampling) if one else self._many(requests, sampling)

    def _batches(self, sequences: Sequence[Sequence[int]], widths: Sequence[int]) -> Iterator[list[int]]:
        """Yield the numbers of the sequences that run together: all of one width, in passes of equal height."""
        of_width: dict[int, list[int]] = {}
        for number, width in enumerate(widths):
            of_width.setdefault(width, []).append(number)
        height = self._height or MAX_ROWS
        for same in of_width.values():
            for first in range(0, len(same), height):
                part = same[first : first + height]
                yield part + part[:1] * (self._height - len(part))  # nothing to fill up where the height is free

    def _widths(self, lengths: Sequence[int], room: int) -> list[int]:
        """Return the width of the pass that each prompt runs in, which depends on it alone."""
        return [max(length, min(_rounded(length), room)) for length in lengths]

    @property
    def _context(self) -> int:
        return getattr(self.model.config.get_text_config(), "max_position_embeddings", None) or sys.maxsize

    @property
    def _height(self) -> int:
        if self._rows is not None:
            return self._rows
        return ROWS if self.model.device.type == "cpu" else 0

    # ---------------------------------------------------------------- one token: a forward pass
    def _one_token(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        known = self._next.setdefault(sampling.temperature, {})
        new = [ids for ids in dict.fromkeys(request.prompt_ids for request in requests) if ids not in known]
        widths = self._widths([len(ids) for ids in new], self._context)
        for numbers in self._batches(new, widths):
            self._look_up([new[number] for number in numbers], widths[numbers[0]], sampling.temperature)
        return [self._drawn(known[request.prompt_ids], request) for request in requests]

    def _drawn(self, following: _Next, request: Request) -> Completion:
        greedy = request.sampling.greedy
        token = following.best if greedy else following.draw(first_draw(request.seed))
        return Completion((token,), (following.logprobs[token],), self.version)

    def _look_up(self, prompts: Sequence[Tokens], width: int, temperature: float) -> None:
        ids, mask = (tensor.to(self.model.device) for tensor in left_padded(prompts, self._pad, width))
        tempered = torch.log_softmax(next_logits(self.model, ids, mask).float() / temperature, dim=-1)
        check_numbers(tempered.amax(dim=-1))
        logprobs = tempered.cpu().numpy()
        cumulative = np.cumsum(np.exp(logprobs.astype(np.float64)), axis=-1).tolist()
        best = logprobs.argmax(axis=-1).tolist()
        known = self._next[temperature]
        for row, prompt in enumerate(prompts):
            known[prompt] = _Next(logprobs[row].tolist(), cumulative[row], best[row])

    # ---------------------------------------------------------------- several tokens: generate
    def _many(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        lengths = [len(request.prompt_ids) for request in requests]
        widths = self._widths(lengths, self._context - sampling.max_new_tokens)
        if not self._height:  # one call of `generate` for as many as may be
            widths = [max(lengths, default=0)] * len(lengths)
        answers: dict[int, Completion] = {}
        for numbers in self._batches([request.prompt_ids for request in requests], widths):
            found = self._written([requests[number] for number in numbers], sampling, widths[numbers[0]])
            answers.update(zip(numbers, found, strict=True))
        return [answers[number] for number in range(len(requests))]

    def _written(self, requests: Sequence[Request], sampling: Sampling, width: int) -> list[Completion]:
        ids, mask = left_padded([request.prompt_ids for request in requests], self._pad, width)
        draws = [None if sampling.greedy else Draws(request.seed) for request in requests]
        sampler = StreamSampler(draws, sampling.temperature, partial(self._is_over, sampling))
        device = self.model.device
        self.model.generate(
            input_ids=ids.to(device),
            attention_mask=mask.to(device),
            generation_config=self._settings(sampling),
            logits_processor=[sampler],
            stopping_criteria=[Ended(sampler)],
        )
        sampled = zip(sampler.tokens, sampler.logprobs, strict=True)
        return [Completion(tuple(tokens), tuple(logprobs), self.version) for tokens, logprobs in sampled]

    def _is_over(self, sampling: Sampling, tokens: list[int]) -> bool:
        if tokens[-1] in sampling.ends or not sampling.stops:
            return tokens[-1] in sampling.ends
        if self._tokenizer is None:
            raise BadSetting("stops are texts, and this generator has no tokenizer to read tokens with: give it one")
        return holds_stop(self._tokenizer, tokens, sampling.stops)

    def _settings(self, sampling: Sampling) -> Any:
        from transformers import GenerationConfig

        # Neither the model's own sampling settings nor its forced tokens: what is drawn is what is trained on.
        return GenerationConfig(
            max_new_tokens=sampling.max_new_tokens,
            do_sample=False,
            pad_token_id=self._pad,
            eos_token_id=sorted(sampling.ends),
        )


def _rounded(length: int) -> int:
    """Return a width for prompts of about this length: at most an eighth more, so that few widths serve all prompts."""
    step = max(8, 1 << max(0, length.bit_length() - 4))
    return -(-length // step) * step

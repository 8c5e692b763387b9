"""How an answer is sampled: from the model's own distribution, with its request's random stream, until it ends.

Transformers draws a whole batch from one global generator, so an answer would depend on its neighbours. Here a logits
processor samples the token and masks all others. `generate` of Transformers also takes every setting that is not given
from the model's `generation_config.json`, and so does a vLLM server. Log-probabilities would then not be those that
training computes, so these settings are not used.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import pad
from transformers import LogitsProcessor, StoppingCriteria

from agentgym_flow.core import Stream
from agentgym_flow.errors import TrainingFailed
from agentgym_flow.generation import NOT_A_NUMBER, SEEDS, has_adapter

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# ---------------------------------------------------------------- random draws
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


# ---------------------------------------------------------------- the end of an answer
def answer_text(tokenizer: PreTrainedTokenizerBase, tokens: Sequence[int], ends: Set[int] = frozenset()) -> str:
    """Return the text of `tokens` without padding, begin-of-sequence and end tokens; `ends` are those of the model.

    Other special tokens are text: some tokenizers register the tags of an answer as special.
    """
    silent = {tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id, *ends}
    return str(tokenizer.decode([token for token in tokens if token not in silent], skip_special_tokens=False))


def holds_stop(
    tokenizer: PreTrainedTokenizerBase, tokens: Sequence[int], stops: Sequence[str], ends: Set[int] = frozenset()
) -> bool:
    """Return whether the text of an answer, as in `answer_text`, contains one of `stops`."""
    if not stops:
        return False
    text = answer_text(tokenizer, tokens, ends)
    return any(stop in text for stop in stops)


def length_of_answer(
    tokenizer: PreTrainedTokenizerBase, tokens: Sequence[int], stops: Sequence[str], ends: Set[int] = frozenset()
) -> int:
    """Return the length of the answer: all tokens up to the one that completes the first of `stops`.

    Text of that token after the stop is part of the answer, because a token is sampled whole.
    """
    if not holds_stop(tokenizer, tokens, stops, ends):
        return len(tokens)
    return bisect_left(range(len(tokens)), True, key=lambda length: holds_stop(tokenizer, tokens[:length], stops, ends))


# ---------------------------------------------------------------- sampling settings of checkpoints
NEUTRAL: Mapping[str, Any] = MappingProxyType(
    {
        # the distribution of the next token
        **dict.fromkeys(("temperature", "top_p", "typical_p", "repetition_penalty", "encoder_repetition_penalty"), 1.0),
        **dict.fromkeys(("epsilon_cutoff", "eta_cutoff", "diversity_penalty"), 0.0),
        **dict.fromkeys(("top_k", "min_length", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size"), 0),
        **dict.fromkeys(("min_p", "top_h", "min_new_tokens", "guidance_scale", "sequence_bias", "bad_words_ids")),
        **dict.fromkeys(("suppress_tokens", "begin_suppress_tokens", "forced_bos_token_id", "forced_eos_token_id")),
        **dict.fromkeys(("exponential_decay_length_penalty", "watermarking_config", "constraints", "force_words_ids")),
        **dict.fromkeys(("remove_invalid_values", "renormalize_logits", "token_healing"), False),
        # the end of an answer
        **dict.fromkeys(("max_time", "stop_strings")),
        # search, and other ways to choose tokens
        **dict.fromkeys(("num_beams", "num_beam_groups", "num_return_sequences"), 1),
        **dict.fromkeys(("early_stopping", "use_mtp", "is_assistant"), False),
        **dict.fromkeys(("penalty_alpha", "dola_layers", "prompt_lookup_num_tokens", "assistant_early_exit")),
        **dict.fromkeys(("assistant_ensemble_weight", "speculation_type")),
        "length_penalty": 1.0,
    }
)
"""Fields of `GenerationConfig` that change which tokens are sampled -> the value without effect."""

OTHER = frozenset(
    (
        *("do_sample", "max_length", "max_new_tokens", "pad_token_id", "eos_token_id"),  # each request sets them
        *("bos_token_id", "decoder_start_token_id", "transformers_version"),
        *("output_attentions", "output_hidden_states", "output_logits", "output_scores", "return_dict_in_generate"),
        *("use_cache", "cache_implementation", "cache_config", "max_cache_len", "prefill_chunk_size", "low_memory"),
        *("compile_config", "disable_compile", "continuous_batching_config"),
        # without effect unless a field of `NEUTRAL` turns on assisted generation
        *("num_assistant_tokens", "num_assistant_tokens_schedule", "assistant_confidence_threshold"),
        *("max_matching_ngram_size", "assistant_lookbehind", "target_lookbehind"),
    )
)
"""The other fields of `GenerationConfig`. They are not taken from the model, either."""

VLLM_NEUTRAL: Mapping[str, Any] = MappingProxyType(
    {name: NEUTRAL[name] for name in ("top_p", "top_k", "repetition_penalty")}
    | {"min_p": 0.0, "presence_penalty": 0.0, "frequency_penalty": 0.0, "min_tokens": 0}
)
"""Fields of vLLM's requests that change which tokens are sampled -> the value without effect."""

_logger = logging.getLogger(__name__)


def unused_settings(model: PreTrainedModel) -> dict[str, Any]:
    """Return the sampling settings of a model's `generation_config.json` that would change the sampled tokens."""
    config = model.generation_config
    found = {name: getattr(config, name, None) for name in NEUTRAL}
    return {name: value for name, value in found.items() if value is not None and value != NEUTRAL[name]}


def tell_unused_settings(model: PreTrainedModel) -> None:
    """Log one line if a model's `generation_config.json` asks for other sampling."""
    unused = unused_settings(model)
    if unused:
        asked = ", ".join(f"{name}={value!r:.40}" for name, value in unused.items())
        _logger.warning(
            "generation_config.json of %s asks for %s, which is not used: answers are sampled from the model's own "
            "distribution at the temperature of the run",
            model.config.name_or_path or "the model",
            asked,
        )


def drop_unused_settings(model: PreTrainedModel) -> None:
    """Remove the sampling settings of a model that will be trained and saved, and keep its special tokens.

    The trained model then has the settings it was trained with. Transformers also refuses to save some combinations,
    such as a temperature without `do_sample`, although it loads them.
    """
    if unused_settings(model):
        from transformers import GenerationConfig

        base = _base(model)
        tokens = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
        base.generation_config = GenerationConfig(**{name: getattr(base.generation_config, name) for name in tokens})


@contextmanager
def without_own_settings(model: PreTrainedModel) -> Iterator[None]:
    """Let `generate` take no settings from the model; None in its arguments would otherwise mean the model's value."""
    from transformers import GenerationConfig

    base = _base(model)
    own, base.generation_config = base.generation_config, GenerationConfig()
    try:
        yield
    finally:
        base.generation_config = own


def _base(model: PreTrainedModel) -> PreTrainedModel:
    # Setting an attribute of a PEFT model would hide that of the model inside.
    base: PreTrainedModel = model.get_base_model() if has_adapter(model) else model
    return base

"""Sampling settings of checkpoints, which are not used: tokens are sampled from the model's own distribution.

`generate` of Transformers takes every setting that is not given from the model's `generation_config.json`, and so does
a vLLM server. Log-probabilities would then not be those that training computes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from agentgym_flow.generation.weights import has_adapter

if TYPE_CHECKING:
    from transformers import PreTrainedModel

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

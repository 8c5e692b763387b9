"""The policy of a leaderboard submission: untrusted weights in a model that this package builds.

Nothing from the submission is executed: safetensors contain numbers only, the model is Transformers' GPT-2 with a shape
read from a few known entries, the tokenizer is built from the template's vocabulary, and the prompt template is
the environment's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from transformers import GPT2LMHeadModel

from agentgym_flow.errors import BadSubmission, UnknownTemplate
from agentgym_flow.prompts import TURN, template_for
from agentgym_flow.training.policy import ModelPolicy
from agentgym_flow.training.tiny import gpt2_config, word_tokenizer

KIND = "gpt2"
"""The supported `model_type`."""

SHAPE: Mapping[str, tuple[int, int]] = {
    "n_embd": (8, 1024),
    "n_layer": (1, 24),
    "n_head": (1, 32),
    "n_inner": (8, 4096),
    "n_positions": (16, 4096),
    "vocab_size": (4, 65536),
}
"""The entries of `config.json` that are read -> their ranges."""

MOST_WEIGHTS = 10_000_000
"""The largest number of weights, which are 20 MB in half precision."""


def submitted_policy(
    env_id: str,
    template_name: str,
    config: Any,
    weights: bytes,
    *,
    temperature: float = 1.0,
    greedy: bool = False,
    layout: str = TURN,
) -> ModelPolicy:
    """Return the policy with the submitted weights.

    Args:
        env_id: the environment to play.
        template_name: a prompt template of the environment with a fixed vocabulary, such as `compact`.
        config: the content of `config.json`; only `model_type` and the entries of `SHAPE` are read.
        weights: the bytes of a safetensors file.
        temperature: the sampling temperature.
        greedy: take the most likely token.
        layout: `turn` or `conversation`.

    Raises:
        BadSubmission: the prompt template has no vocabulary, the shape is out of range, or the weights do not fit it or
            are not finite.
    """
    if not isinstance(config, Mapping):
        raise BadSubmission("config.json must be an object with the shape of the model")
    if ":" in template_name:
        raise BadSubmission(f"prompt: {template_name!r:.60} names a file; use a prompt template of the environment")
    try:
        template = template_for(env_id, template_name)
    except UnknownTemplate as error:
        raise BadSubmission(f"prompt: {error}") from None
    vocabulary = getattr(template, "vocabulary", ())
    if not vocabulary:
        raise BadSubmission(
            f"prompt: prompt template {template_name!r} has no fixed vocabulary, so its tokens are unknown"
        )
    tokenizer = word_tokenizer(vocabulary)
    model = GPT2LMHeadModel(gpt2_config(tokenizer, **_shape(config, len(tokenizer))))
    _load(model, weights)
    return ModelPolicy(
        model.eval(),
        tokenizer,
        template,
        temperature=temperature,
        greedy=greedy,
        layout=layout,
        name="submitted",
    )


def _shape(config: Mapping[str, Any], words: int) -> dict[str, int]:
    """Return the checked entries of `SHAPE` for a vocabulary of `words` words. Raises `BadSubmission`."""
    if config.get("model_type") != KIND:
        raise BadSubmission(f"config.json: model_type must be {KIND!r}, got {config.get('model_type')!r:.60}")
    shape = {}
    for name, (least, most) in SHAPE.items():
        value = config.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise BadSubmission(f"config.json: {name} must be a number from {least} to {most}, got {value!r:.60}")
        shape[name] = value
    if shape["vocab_size"] != words:
        raise BadSubmission(
            f"config.json: vocab_size is {shape['vocab_size']}, but the prompt template has {words} words"
        )
    if shape["n_embd"] % shape["n_head"]:
        raise BadSubmission("config.json: n_embd must be a multiple of n_head")
    wide, inner = shape["n_embd"], shape["n_inner"]
    layers = shape["n_layer"] * (4 * wide * wide + 2 * wide * inner)
    if (numbers := layers + wide * (words + shape["n_positions"])) > MOST_WEIGHTS:
        raise BadSubmission(f"config.json: a model of {numbers:,} weights is larger than {MOST_WEIGHTS:,}")
    return shape


def _load(model: GPT2LMHeadModel, weights: bytes) -> None:
    """Load the weights of a safetensors file, as float32. Raises `BadSubmission` if they do not fit."""
    try:
        state = load(weights)
    except (SafetensorError, ValueError, KeyError, RuntimeError) as error:
        raise BadSubmission(f"model.safetensors is not a safetensors file ({error!s:.200})") from None
    own = model.state_dict()
    for name in sorted(state.keys() - own.keys()):
        raise BadSubmission(f"model.safetensors: {name!r:.80} is not a weight of this model")
    tied = {"lm_head.weight"}
    for name in sorted(own.keys() - state.keys() - tied):
        raise BadSubmission(f"model.safetensors: {name!r} is missing")
    for name, value in state.items():
        if value.shape != own[name].shape:
            raise BadSubmission(
                f"model.safetensors: {name!r} has shape {tuple(value.shape)}, but the model needs "
                f"{tuple(own[name].shape)}"
            )
        if not value.is_floating_point() or not torch.isfinite(value.float()).all():
            raise BadSubmission(f"model.safetensors: {name!r} must hold finite numbers")
    model.load_state_dict({name: value.float() for name, value in state.items()}, strict=False)
    model.tie_weights()

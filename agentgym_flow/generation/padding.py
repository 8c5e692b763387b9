"""Padded prompts, and the logits after each, computed only at the last position.

The next token depends on the last layer at the last position alone, but Transformers computes that layer at all
positions. In the tiny GPT-2, which has two layers, that is more than a third of the work, forwards and backwards. So
for GPT-2 the last layer's queries, output and MLP are computed at the last position only; keys and values are those of
all positions. Without dropout, results differ in their last bits only. Other models run unchanged, and so does a
modified or wrapped GPT-2: with many layers, the last one matters little.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from transformers import GPT2LMHeadModel, GPT2Model, PreTrainedModel


def left_padded(
    sequences: Sequence[Sequence[int]], pad: int, width: int | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return tokens and mask of left-padded sequences, both (R, width); without `width`, of the longest length."""
    longest = max(map(len, sequences)) if width is None else width
    ids = torch.tensor([[pad] * (longest - len(s)) + list(s) for s in sequences])
    lengths = torch.tensor([len(s) for s in sequences])
    mask = torch.arange(longest)[None, :] >= longest - lengths[:, None]
    return ids, mask.long()


def positions(mask: torch.Tensor) -> torch.Tensor:
    """Return position ids that count from the first token that is not padding; `mask` is (R, T)."""
    return (mask.long().cumsum(-1) - 1).clamp(min=0)


@cache
def cache_argument() -> str:
    """Return what the installed Transformers calls cached keys and values: `cache`; before 5.24 `past_key_values`."""
    from transformers.masking_utils import create_causal_mask

    return "cache" if "cache" in inspect.signature(create_causal_mask).parameters else "past_key_values"


def positions_from_mask(model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Forward pre-hook: add position ids that count from the first token that is not padding.

    TRL pads prompts on the left and passes no position ids, so a model with learned positions would see prompts at
    other positions than in sampling.
    """
    mask, cached = kwargs.get("attention_mask"), kwargs.get(cache_argument())
    if mask is None or kwargs.get("position_ids") is not None or cached is not None or mask.dim() != 2:
        return None
    if mask[:, 0].all():  # no padding on the left: the model's default positions are right, and cheaper
        return None
    return args, {**kwargs, "position_ids": positions(mask)}


# ---------------------------------------------------------------- the last position
PROBED = (2, 6)
"""The lengths in tokens of the two prompts that tell whether a model ignores padding."""

ROUNDING, ROUNDING_HALF = 1e-3, 0.5
"""The largest difference, in nats, of a likely token's log-probability that rounding explains: in float32, and in types
of 16 bits or TF32."""


def next_logits(model: torch.nn.Module, ids: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
    """Return the logits of the next token after each prompt; (R, vocabulary).

    Args:
        model: the causal language model, possibly wrapped by DDP, DeepSpeed or LoRA.
        ids: the prompts, padded on the left; (R, T).
        mask: 1 at tokens and 0 at padding, (R, T); None if nothing is padded.
    """
    plain = _plain_gpt2(model)
    if plain is not None:
        found: torch.Tensor = plain.lm_head(_last_hidden_state(plain.transformer, ids, mask))
        return found
    inputs = {} if mask is None else {"attention_mask": mask, "position_ids": positions(mask)}
    # Chosen by an index, the states are contiguous. With a slice of several rows, PyTorch would copy a frozen output
    # layer in bfloat16 once per row.
    last = torch.tensor([ids.shape[1] - 1], device=ids.device)
    logits: torch.Tensor = model(input_ids=ids, logits_to_keep=last, use_cache=False, **inputs).logits[:, -1]
    return logits


def probe_prompts(model: PreTrainedModel, pad: int) -> list[tuple[int, ...]]:
    """Return two prompts of unequal length, which tell whether a model ignores padding."""
    words = model.config.get_text_config().vocab_size
    tokens = [token for token in range(min(words, PROBED[1] + 1)) if token != pad] or [pad]
    return [tuple((tokens * length)[:length]) for length in PROBED]


def exceeds_rounding(difference: torch.Tensor, computed: torch.dtype) -> bool:
    """Return whether differences of log-probabilities are larger than the rounding of a computation explains."""
    precise = computed == torch.float32 and torch.get_float32_matmul_precision() == "highest"
    return float(difference.abs().max()) > (ROUNDING if precise else ROUNDING_HALF)


def ignores_padding(model: PreTrainedModel, pad: int) -> bool:
    """Return whether a model takes padding on the left of a prompt for text, so that it changes the next token.

    Compares the likeliest token after a short prompt: alone, and padded beside a longer one.
    """
    was_training = model.training
    model.eval()
    with torch.no_grad():
        padded, mask = (tensor.to(model.device) for tensor in left_padded(probe_prompts(model, pad), pad))
        among = next_logits(model, padded, mask)[0]
        alone = next_logits(model, padded[:1, -PROBED[0] :])[0]
    model.train(was_training)
    difference = among.float().log_softmax(-1) - alone.float().log_softmax(-1)
    return exceeds_rounding(difference[alone.argmax()], alone.dtype)


def _plain_gpt2(model: Any) -> GPT2LMHeadModel | None:
    """Return the model, without adapters, if it is Transformers' own GPT-2 without hooks; else None."""
    if hasattr(model, "get_base_model"):  # a PEFT model; its adapters are inside the layers
        model = model.get_base_model()
    config: Any = getattr(model, "config", None)
    if getattr(config, "model_type", None) != "gpt2":
        return None
    from transformers.models.gpt2.modeling_gpt2 import GPT2Block, GPT2LMHeadModel, GPT2Model

    if type(model) is not GPT2LMHeadModel or type(model.transformer) is not GPT2Model:
        return None
    body = model.transformer
    parts = (body, *body.h, body.h[-1].attn)
    hooks = [*model._forward_hooks.values(), *model._forward_pre_hooks.values()]
    listened = any(hook is not positions_from_mask for hook in hooks) or any(  # its effect is included here
        part._forward_hooks or part._forward_pre_hooks or "forward" in vars(part) for part in parts
    )
    usual = config._attn_implementation in ("sdpa", "eager") and not config.reorder_and_upcast_attn
    own = all(type(block) is GPT2Block for block in body.h) and not config.add_cross_attention
    return model if usual and own and not listened else None


def _last_hidden_state(body: GPT2Model, ids: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Return the output of `GPT2Model.forward` at the last position; (R, width)."""
    from transformers.masking_utils import create_causal_mask

    places = torch.arange(ids.shape[1], device=ids.device)[None] if mask is None else positions(mask)
    hidden = body.drop(body.wte(ids) + body.wpe(places))
    causal = create_causal_mask(
        config=body.config, inputs_embeds=hidden, attention_mask=mask, position_ids=places, **{cache_argument(): None}
    )
    for block in body.h[:-1]:
        hidden = block(hidden, None, causal, None, position_ids=places)
    found: torch.Tensor = body.ln_f(_block_at_last_position(body.h[-1], hidden, causal))[:, 0]
    return found


def _block_at_last_position(block: Any, hidden: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Return a layer's output at the last position, (R, 1, width), given its input at all positions, (R, T, width)."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
    from transformers.models.gpt2.modeling_gpt2 import eager_attention_forward

    attention = block.attn
    query, key, value = attention.c_attn(block.ln_1(hidden)).split(attention.split_size, dim=2)
    attend = ALL_ATTENTION_FUNCTIONS.get_interface(attention.config._attn_implementation, eager_attention_forward)
    found, _ = attend(
        attention,
        *(part.unflatten(2, (-1, attention.head_dim)).transpose(1, 2) for part in (query[:, -1:], key, value)),
        None if mask is None else mask[:, :, -1:],
        dropout=attention.attn_dropout.p if attention.training else 0.0,
        scaling=attention.scaling,
    )
    last = hidden[:, -1:] + attention.resid_dropout(attention.c_proj(found.flatten(2)))
    return last + block.mlp(block.ln_2(last))  # type: ignore[no-any-return]

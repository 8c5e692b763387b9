"""What a causal model says after a prompt, computed only where it is asked for.

The next token depends on the last layer at the last position alone. Transformers computes that layer at all positions;
in the tiny GPT-2, which has two, it is more than a third of the work, forwards and backwards. So for GPT-2 the last
layer's queries, its output and its MLP are computed at the last position; keys and values stay those of all positions.
Results differ in their last bits only. Other models run as they are: of many layers, the last one matters little.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from agentgym_flow.generation.padding import positions

if TYPE_CHECKING:
    from transformers import GPT2Model


def next_logits(model: torch.nn.Module, ids: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
    """Return the logits of the next token after each prompt; (R, vocabulary).

    Args:
        model: the causal language model; DDP, DeepSpeed or LoRA may be around it.
        ids: the prompts, padded on the left; (R, T).
        mask: 1 at tokens and 0 at padding, (R, T); None where nothing is padded.
    """
    inputs = {} if mask is None else {"attention_mask": mask, "position_ids": positions(mask)}
    with _last_position_only(model):
        logits: torch.Tensor = model(input_ids=ids, logits_to_keep=1, use_cache=False, **inputs).logits[:, -1]
    return logits


@contextmanager
def _last_position_only(model: torch.nn.Module) -> Iterator[None]:
    """Let a GPT-2 compute its last layer at the last position within; other models are left alone."""
    body = _gpt2(model)
    if body is None:
        yield
        return
    before = vars(body).get("forward")
    body.forward = partial(_last_hidden_state, body)
    try:
        yield
    finally:
        del body.forward
        if before is not None:
            body.forward = before


def _gpt2(model: Any) -> GPT2Model | None:
    """Return the layers of a GPT-2 of the usual kind, below whatever is around it."""
    while hasattr(model, "module"):  # DDP, DeepSpeed
        model = model.module
    if hasattr(model, "peft_config"):
        model = model.get_base_model()
    body, config = getattr(model, "transformer", None), getattr(model, "config", None)
    if config is None or config.model_type != "gpt2" or body is None:
        return None
    usual = config._attn_implementation in ("sdpa", "eager") and not config.reorder_and_upcast_attn
    return body if usual and not config.add_cross_attention else None


def _last_hidden_state(
    body: GPT2Model,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor | None = None,
    position_ids: torch.Tensor | None = None,
    **_: Any,
) -> Any:
    """Do what `GPT2Model.forward` does; the hidden state has one position, the last."""
    from transformers.masking_utils import create_causal_mask
    from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

    if position_ids is None:
        position_ids = torch.arange(input_ids.shape[1], device=input_ids.device)[None]
    hidden = body.drop(body.wte(input_ids) + body.wpe(position_ids))
    mask = create_causal_mask(
        config=body.config,
        inputs_embeds=hidden,
        attention_mask=attention_mask,
        past_key_values=None,
        position_ids=position_ids,
    )
    for block in body.h[:-1]:
        hidden = block(hidden, None, mask, None, position_ids=position_ids)
    last = _block_at_last_position(body.h[-1], hidden, mask)
    return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=body.ln_f(last))


def _block_at_last_position(block: Any, hidden: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Return a layer's output at the last position, (R, 1, width), from the hidden states before it, (R, T, width)."""
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

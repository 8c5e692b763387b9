"""One token for each of several answers in a single pass, with the attention of each row computed by itself.

Matrix products share the pass, and attention needs no padding: a row attends to its own keys and values, which have
their exact length. So with a fixed number of rows, a row is bitwise independent of the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from agentgym_flow.generation.base import GenerationRequest
from agentgym_flow.generation.key_value_cache import PromptBlock, States
from agentgym_flow.generation.sampling import answer_draws

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_BY_ROWS = "agentgym_flow_by_rows"


@dataclass(eq=False, slots=True)
class Row:
    """An answer that is being generated.

    Attributes:
        number: the number of its request.
        draws: its random numbers, or None for the most likely tokens.
        states: keys and values of prompt and answer, with room for the longest answer.
        length: the number of tokens that have states.
        tokens: the answer so far.
        logprobs: their log-probabilities.
    """

    number: int
    draws: Iterator[float] | None
    states: States
    length: int
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    @classmethod
    def behind(cls, prompt: Sequence[PromptBlock], number: int, request: GenerationRequest) -> Row:
        """Return the row of a request whose prompt has these blocks."""
        length, sampling = len(request.prompt_ids), request.sampling
        states: States = []
        for layer in zip(*(block.states for block in prompt), strict=True):
            both = []
            for parts in zip(*layer, strict=True):
                heads, _, width = parts[0].shape
                whole = parts[0].new_empty(heads, length + sampling.max_new_tokens, width)
                torch.cat(parts, dim=1, out=whole[:, :length])
                both.append(whole)
            states.append((both[0], both[1]))
        return cls(number, None if sampling.greedy else answer_draws(request.seed), states, length)


_decoded: ContextVar[tuple[Sequence[Row], Sequence[int | None]]] = ContextVar("_decoded")


def next_scores(
    model: PreTrainedModel, rows: Sequence[Row], windows: Sequence[int | None], height: int
) -> torch.Tensor:
    """Return the logits behind the last token of every row, whose states are added; (rows, vocabulary).

    Args:
        model: the model, for which `is_cacheable` is true.
        rows: the answers, with at least one token each.
        windows: the sliding window of every layer.
        height: the number of rows of the pass; 0: as many as there are answers.
    """
    filling = [[0]] * (height - len(rows))
    ids = torch.tensor([[row.tokens[-1]] for row in rows] + filling, device=model.device)
    places = torch.tensor([[row.length] for row in rows] + filling, device=model.device)
    config = model.config.get_text_config()
    before, config._attn_implementation = config._attn_implementation, _BY_ROWS
    token = _decoded.set((rows, windows))
    try:
        logits: torch.Tensor = model(input_ids=ids, position_ids=places, use_cache=False).logits[: len(rows), -1]
    finally:
        _decoded.reset(token)
        config._attn_implementation = before
    for row in rows:
        row.length += 1
    return logits


def _attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    _: Any,
    scaling: float | None = None,
    **__: Any,
) -> tuple[torch.Tensor, None]:
    """Attend from the only new token of each row to its own tokens; (rows, 1, heads, width)."""
    rows, windows = _decoded.get()
    window = windows[module.layer_idx]
    found = query.new_zeros(len(query), 1, query.shape[1], value.shape[-1])
    for number, row in enumerate(rows):
        keys, values = row.states[module.layer_idx]
        keys[:, row.length], values[:, row.length] = key[number, :, 0], value[number, :, 0]
        seen = slice(0 if window is None else max(0, row.length + 1 - window), row.length + 1)
        # Heads that share keys are queries of one head: in bfloat16, PyTorch's `enable_gqa` takes ten times as long.
        own = query[number].reshape(1, len(keys), -1, query.shape[-1])
        attended = scaled_dot_product_attention(own, keys[None, :, seen], values[None, :, seen], scale=scaling)
        found[number, 0] = attended.reshape(query.shape[1], -1)
    return found, None


AttentionInterface.register(_BY_ROWS, _attend)

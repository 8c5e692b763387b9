"""Answers from kept keys and values: prompts are read by blocks, and answers grow together, one token a pass.

A prompt is read in blocks of `BLOCK` tokens, one pass per block, and the last, shorter one in a width that depends on
its length. So the keys and values of a block, to the last bit, depend only on the tokens up to its end: it does not
matter which prompt they were computed for, or whether they were kept or computed again. The turns of a conversation,
attempts with the same beginning and prompts with the same rules all share blocks.

In a pass that adds a token to several answers, matrix products are shared, and attention needs no padding: a row
attends to its own keys and values, which have their exact length. So with a fixed number of rows, a row is bitwise
independent of the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from agentgym_flow.generation import GenerationRequest
from agentgym_flow.generation.padding import cache_argument
from agentgym_flow.generation.sampling import answer_draws

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# ---------------------------------------------------------------- prompts by blocks
KEPT_BYTES = 1 << 30
"""The approximate memory limit; beyond it, the blocks that were used least recently are dropped."""

BLOCK = 64
"""Tokens of a block. Shorter ones share more and take longer to compute."""

STEP = 16
"""The widths of a prompt's last block are multiples of this."""

Tokens = tuple[int, ...]

States = list[tuple[torch.Tensor, torch.Tensor]]
"""Keys and values of consecutive tokens, layer by layer: (heads, tokens, width) each."""


class PromptBlock(NamedTuple):
    """Keys and values of a block, and the logits behind its last token if it ended a prompt; (vocabulary,)."""

    states: States
    logits: torch.Tensor | None

    @property
    def nbytes(self) -> int:
        """The memory that it takes."""
        own = 0 if self.logits is None else self.logits.nbytes
        return own + sum(tensor.nbytes for pair in self.states for tensor in pair)


class KeyValueCache:
    """Blocks by the tokens up to their end, for one version of the weights."""

    def __init__(self) -> None:
        self._blocks: dict[Tokens, PromptBlock] = {}  # the least recently used first
        self._bytes = 0

    def read(self, model: PreTrainedModel, prompt: Tokens) -> list[PromptBlock]:
        """Return the blocks of a prompt, the last one with logits; those that are missing are computed."""
        found: list[PromptBlock] = []
        past: Any = None
        for begin in range(0, len(prompt), BLOCK):
            tokens = prompt[: begin + BLOCK]
            block, ends = self._blocks.get(tokens), len(tokens) == len(prompt)
            if block is None or (ends and block.logits is None):
                past = past or _joined(model, found)
                block = _computed(model, prompt[begin : begin + BLOCK], past, begin, ends)
            else:
                past = None
            found.append(block)
        for number, block in reversed([*enumerate(found, 1)]):  # a beginning is dropped after what follows it
            self._put(prompt[: number * BLOCK], block)
        return found

    def clear(self) -> None:
        """Drop all."""
        self._blocks.clear()
        self._bytes = 0

    def _put(self, tokens: Tokens, block: PromptBlock) -> None:
        old = self._blocks.pop(tokens, None)
        self._bytes += block.nbytes - (0 if old is None else old.nbytes)
        self._blocks[tokens] = block
        while self._bytes > KEPT_BYTES and len(self._blocks) > 1:
            self._bytes -= self._blocks.pop(next(iter(self._blocks))).nbytes


class _SlidingWindowLayer(DynamicSlidingWindowLayer):  # type: ignore[misc]
    """Keeps the states of all tokens, also of those that have left the window."""

    def update(self, *states: Any, **settings: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Add states; return those that the new tokens can attend to."""
        self.keys, self.values = super().update(*states, **settings)
        seen = self.sliding_window - 1 + states[0].shape[-2]
        return self.keys[:, :, -seen:], self.values[:, :, -seen:]


def is_cacheable(model: PreTrainedModel) -> bool:
    """Return whether blocks are exact for a model: its attention is full, or over a sliding window, in every layer."""
    text = model.config.get_text_config()
    return (
        not model.config.is_encoder_decoder
        and getattr(text, "is_causal", True)
        and text._attn_implementation == "sdpa"
        and getattr(model, "_supports_attention_backend", False)
        and "chunked_attention" not in (getattr(text, "layer_types", None) or ())
        and not getattr(text, "attention_chunk_size", None)
        and {type(layer) for layer in DynamicCache(config=model.config).layers}
        <= {DynamicLayer, DynamicSlidingWindowLayer}  # has no layers if all are of the standard type
    )


def windows(model: PreTrainedModel) -> list[int | None]:
    """Return the sliding window of every layer, in tokens; None where attention is full."""
    layers = DynamicCache(config=model.config).layers
    found: list[int | None] = [getattr(layer, "sliding_window", None) for layer in layers]
    return found or [None] * model.config.get_text_config().num_hidden_layers


def _joined(model: PreTrainedModel, blocks: list[PromptBlock]) -> Any:
    """Return a cache with the states of these blocks, for one row."""
    cache = DynamicCache(config=model.config)
    cache.layers = [
        _SlidingWindowLayer(layer.sliding_window) if isinstance(layer, DynamicSlidingWindowLayer) else layer
        for layer in cache.layers
    ]
    for number, parts in enumerate(zip(*(block.states for block in blocks), strict=True)):
        keys, values = (torch.cat(tensors, dim=1)[None] for tensors in zip(*parts, strict=True))
        cache.update(keys, values, number)
    return cache


def _computed(model: PreTrainedModel, tokens: Tokens, past: Any, begin: int, ends: bool) -> PromptBlock:
    """Return the block of `tokens`, which begin at position `begin`, behind `past`, which is extended."""
    length, width = len(tokens), -(-len(tokens) // STEP) * STEP
    # What stands behind the tokens is seen by none of them. Its positions must exist.
    last = (getattr(model.config.get_text_config(), "max_position_embeddings", None) or begin + width) - 1
    places = torch.arange(begin, begin + width, device=model.device).clamp(max=max(last, begin + length - 1))
    ids = torch.tensor([[*tokens, *tokens[:1] * (width - length)]], device=model.device)
    wanted = torch.tensor([length - 1] if ends else [], dtype=torch.long, device=model.device)
    inputs = {cache_argument(): past, "position_ids": places[None], "logits_to_keep": wanted}
    logits = model(input_ids=ids, use_cache=True, **inputs).logits  # trainers disable it in the model's config
    kept = slice(begin, begin + length)
    states = [(layer.keys[0][:, kept].clone(), layer.values[0][:, kept].clone()) for layer in past.layers]
    return PromptBlock(states, logits[0, 0].clone() if ends else None)


# ---------------------------------------------------------------- one token for each answer
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

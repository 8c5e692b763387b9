"""A cache of keys and values of conversations, so that later prompts are not processed from their beginning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from transformers import Cache, PreTrainedModel

KEPT_BYTES = 1 << 30
"""The approximate memory limit; beyond it, the oldest entries are dropped."""

Tokens = tuple[int, ...]

States = list[tuple[torch.Tensor, torch.Tensor]]
"""Keys and values of one sequence, layer by layer: (heads, tokens, width) each."""


class KeyValueCache:
    """Keys and values by their tokens, for one version of the weights."""

    def __init__(self) -> None:
        self._states: dict[Tokens, States] = {}
        self._bytes = 0

    def __contains__(self, tokens: Tokens) -> bool:
        return tokens in self._states

    def __getitem__(self, tokens: Tokens) -> States:
        return self._states[tokens]

    def put(self, tokens: Tokens, states: States) -> None:
        """Store the states of a sequence, and drop the oldest ones if there is no room."""
        self.drop(tokens)
        self._states[tokens] = states
        self._bytes += _size(states)
        while self._bytes > KEPT_BYTES and len(self._states) > 1:
            self.drop(next(iter(self._states)))

    def drop(self, tokens: Tokens) -> None:
        """Drop the states of a sequence, if present."""
        self._bytes -= _size(self._states.pop(tokens, []))

    def clear(self) -> None:
        """Drop all."""
        self._states.clear()
        self._bytes = 0


def _size(states: States) -> int:
    return sum(tensor.nbytes for pair in states for tensor in pair)


def is_cacheable(model: PreTrainedModel) -> bool:
    """Return whether all layers of a model cache exactly the keys and values of every token."""
    from transformers import DynamicCache
    from transformers.cache_utils import DynamicLayer

    cache = DynamicCache(config=model.config)  # has no layers if all are of the standard type
    return not model.config.is_encoder_decoder and all(type(layer) is DynamicLayer for layer in cache.layers)


def join_states(sequences: Sequence[States]) -> Cache:
    """Return a cache with the states of these sequences, padded with zeros on the left."""
    from transformers import DynamicCache

    longest = max(states[0][0].shape[1] for states in sequences)
    layers = []
    for layer in zip(*sequences, strict=True):
        both: list[torch.Tensor] = []
        for tensors in zip(*layer, strict=True):
            heads, _, width = tensors[0].shape
            whole = tensors[0].new_zeros(len(tensors), heads, longest, width)
            for row, tensor in enumerate(tensors):
                whole[row, :, longest - tensor.shape[1] :] = tensor
            both.append(whole)
        layers.append((both[0], both[1]))
    return DynamicCache(ddp_cache_data=layers)


def states_of(cache: Any, row: int, columns: torch.Tensor) -> States:
    """Return a copy of the states in some columns of a row of a cache; `columns` are indices."""
    return [(layer.keys[row][:, columns], layer.values[row][:, columns]) for layer in cache.layers]

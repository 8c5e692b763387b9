"""Keys and values of conversations that may go on, so that a longer prompt is not read from its beginning again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from transformers import Cache, PreTrainedModel

KEPT_BYTES = 1 << 30
"""Up to about so much memory is used; beyond it, what was kept first is dropped first."""

Tokens = tuple[int, ...]

States = list[tuple[torch.Tensor, torch.Tensor]]
"""Keys and values of one sequence, layer by layer: (heads, tokens, width) each."""


class KeyValueCache:
    """Keys and values by the tokens that they belong to, of one version of the weights."""

    def __init__(self) -> None:
        self._states: dict[Tokens, States] = {}
        self._bytes = 0

    def __contains__(self, tokens: Tokens) -> bool:
        return tokens in self._states

    def __getitem__(self, tokens: Tokens) -> States:
        return self._states[tokens]

    def put(self, tokens: Tokens, states: States) -> None:
        """Keep the states of a sequence, and drop the oldest ones where there is no room."""
        self.drop(tokens)
        self._states[tokens] = states
        self._bytes += _size(states)
        while self._bytes > KEPT_BYTES and len(self._states) > 1:
            self.drop(next(iter(self._states)))

    def drop(self, tokens: Tokens) -> None:
        """Drop the states of a sequence, if they are there."""
        self._bytes -= _size(self._states.pop(tokens, []))

    def clear(self) -> None:
        """Drop all."""
        self._states.clear()
        self._bytes = 0


def _size(states: States) -> int:
    return sum(tensor.nbytes for pair in states for tensor in pair)


def can_be_kept(model: PreTrainedModel) -> bool:
    """Return whether all layers of a model keep keys and values of every token, and nothing else."""
    from transformers import DynamicCache
    from transformers.cache_utils import DynamicLayer

    cache = DynamicCache(config=model.config)  # without layers where all are of the usual kind
    return not model.config.is_encoder_decoder and all(type(layer) is DynamicLayer for layer in cache.layers)


def joined(sequences: Sequence[States]) -> Cache:
    """Return the cache that begins with the states of these sequences, filled up with zeros on the left."""
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
    """Return a copy of what a cache holds in some columns of a row; `columns` are indices."""
    return [(layer.keys[row][:, columns], layer.values[row][:, columns]) for layer in cache.layers]

"""Rows as a tree of their prefixes: every distinct prefix of a batch is computed once, forward and backward.

Attempts at a task share its prompt, turns share the rules, and a turn's prompt often begins with the turn before. The
tokens of all rows, sorted and each common prefix once, are written one after the other. A token's position is its
depth, the number of tokens before it in its rows, and it sees those tokens only. What a row adds to the rows before it
stands together, so attention is computed row by row: the new tokens of a row look at the tokens of that row. That is at
most the attention of the rows without sharing; a mask over all pairs of tokens in the tree would be many times more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.nn.functional import scaled_dot_product_attention

from agentgym_flow.errors import BadSetting

if TYPE_CHECKING:
    from transformers import PretrainedConfig

FULL, SLIDING = KINDS = ("full_attention", "sliding_attention")
"""The kinds of layers, in the words of Transformers, whose attention a mask describes."""


QUERIES = 128
"""The most tokens of a part: a long part computes the scores of many pairs of which the later token is not seen."""


class Part(NamedTuple):
    """Consecutive tokens of a tree with what they see.

    Attributes:
        tokens: the tokens, which are the last ones of `keys`.
        keys: the tokens that any of them sees.
        seen: which of `keys` each of `tokens` sees.
    """

    tokens: slice
    keys: torch.Tensor
    seen: torch.Tensor


class TreeMask(torch.Tensor):
    """An attention mask that PyTorch's attention computes part by part.

    It has the shape of a mask and no content: it stands for the `parts` of a tree, which together are all its tokens.
    """

    parts: list[Part]

    @classmethod
    def of(cls, parts: list[Part]) -> TreeMask:
        """Return the mask of these parts."""
        width, device = parts[-1].tokens.stop, parts[-1].keys.device
        mask = torch.zeros((), dtype=torch.bool, device=device).expand(1, 1, width, width).as_subclass(cls)
        mask.parts = parts
        return mask

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compute attention by parts, and everything else as usual."""
        if function is not scaled_dot_product_attention:
            return super().__torch_function__(function, types, args, kwargs or {})  # type: ignore[no-untyped-call]
        query, key, value = args
        settings = {name: given for name, given in kwargs.items() if name not in ("attn_mask", "is_causal")}
        parts: list[Part] | None = getattr(kwargs["attn_mask"], "parts", None)
        if parts is None:
            raise BadSetting(
                "the model's layers got a copy of the attention mask of a tree: set share_prefixes to false"
            )
        return torch.cat(
            [
                scaled_dot_product_attention(
                    query[:, :, part.tokens], key[:, :, part.keys], value[:, :, part.keys], part.seen, **settings
                )
                for part in parts
            ],
            dim=2,
        )


class Tree(NamedTuple):
    """The packed rows.

    Attributes:
        ids: the tokens, (1, tokens).
        depths: the number of tokens before each in its rows.
        places: for each row the numbers of its tokens in the tree.
        news: the number of the first new token of each row that has one, and the place of the row in `places`.
    """

    ids: torch.Tensor
    depths: torch.Tensor
    places: list[list[int]]
    news: list[tuple[int, int]]

    def masks(self, config: PretrainedConfig, additive: torch.dtype | None = None) -> Any:
        """Return the attention mask for a model: one, or one per kind of layer as Transformers takes them.

        With `additive` it is a number of that type to add for every pair of tokens, 0 or the least: eager attention
        needs that. Without, it is a `TreeMask`.
        """
        text = config.get_text_config()
        window, kinds = getattr(text, "sliding_window", None), {*(getattr(text, "layer_types", None) or ())}
        masks: dict[str, Any] = {FULL: TreeMask.of(self._parts(None))}
        if window:
            masks[SLIDING] = TreeMask.of(self._parts(window))
        if additive is not None:
            masks = {kind: _dense(mask.parts, additive) for kind, mask in masks.items()}
        if len(kinds) > 1:
            return masks
        return masks[kinds.pop() if kinds else SLIDING if window else FULL]

    def _parts(self, window: int | None) -> list[Part]:
        device = self.ids.device
        parts = []
        ends = [*(first for first, _ in self.news[1:]), self.ids.shape[1]]
        for (first, row), end in zip(self.news, ends, strict=True):
            path, before = self.places[row], len(self.places[row]) - (end - first)
            for new in range(before, len(path), QUERIES):
                last = min(new + QUERIES, len(path))
                start = 0 if window is None else max(0, new - window + 1)
                distance = torch.arange(new, last, device=device)[:, None] - torch.arange(start, last, device=device)
                seen = distance >= 0 if window is None else (distance >= 0) & (distance < window)
                tokens = slice(first + new - before, first + last - before)
                parts.append(Part(tokens, torch.tensor(path[start:last], device=device), seen))
        return parts


def _dense(parts: list[Part], dtype: torch.dtype) -> torch.Tensor:
    """Return the additive mask of all pairs of tokens, (1, 1, tokens, tokens)."""
    width = parts[-1].tokens.stop
    seen = torch.zeros(width, width, dtype=torch.bool, device=parts[-1].keys.device)
    for part in parts:
        seen[part.tokens, part.keys] = part.seen
    return torch.zeros_like(seen, dtype=dtype).masked_fill(~seen, torch.finfo(dtype).min)[None, None]


def pack(rows: Sequence[list[int]], device: torch.device | None = None) -> Tree:
    """Return rows of tokens as a tree. It has at least two tokens, some of which may belong to no row."""
    places: list[list[int]] = [[] for _ in rows]
    news: list[tuple[int, int]] = []
    tokens: list[int] = []
    depths: list[int] = []
    before: list[int] = []
    path: list[int] = []
    for number in sorted(range(len(rows)), key=lambda number: rows[number]):
        row = rows[number]
        both = min(len(before), len(row))
        keep = next((n for n in range(both) if before[n] != row[n]), both)
        if keep < len(row):
            news.append((len(tokens), number))
        path = [*path[:keep], *range(len(tokens), len(tokens) + len(row) - keep)]
        tokens += row[keep:]
        depths += range(keep, len(row))
        places[number], before = path, row
    while len(tokens) < 2:  # Transformers takes attention of one token for a step of generation
        news.append((len(tokens), len(places)))
        places.append([len(tokens)])
        tokens.append(0)
        depths.append(0)
    return Tree(torch.tensor([tokens], device=device), torch.tensor([depths], device=device), places, news)

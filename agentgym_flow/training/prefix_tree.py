"""Rows as a tree of their prefixes: every distinct prefix of a batch is computed once, forward and backward.

Attempts at a task share its prompt, turns share the rules, and a turn's prompt often begins with the turn before. The
tokens of all rows, each common prefix once, are written one after the other in depth-first order. The descendants of a
token then directly follow it, so the number of the first token after them describes the whole tree: a token sees
exactly the earlier tokens whose descendants it is among. Its position is its depth.

Attention costs the square of the tokens in a tree, so a batch may be several trees of similar size, side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

if TYPE_CHECKING:
    from transformers import PretrainedConfig

FULL, SLIDING = KINDS = ("full_attention", "sliding_attention")
"""The kinds of layers, in the words of Transformers, whose attention a mask describes."""

ATTENTION = 2048
"""Tokens in a tree at which attention costs as much as all else (of Gemma 3 270M on a CPU, roughly)."""


class Trees(NamedTuple):
    """The packed rows.

    Attributes:
        ids: the tokens, (trees, tokens).
        depths: the number of tokens before each in its rows.
        ends: the number of the first token that is not among its descendants; of padding, the next one.
        places: for each row the places of its tokens in the flattened `ids`.
    """

    ids: torch.Tensor
    depths: torch.Tensor
    ends: torch.Tensor
    places: list[list[int]]

    def masks(self, config: PretrainedConfig, additive: torch.dtype | None = None) -> Any:
        """Return the attention mask for a model: one, or one per kind of layer as Transformers takes them.

        It is true where a token is seen; with `additive` it is a number of that type to add, 0 or the least.
        """
        text = config.get_text_config()
        window, kinds = getattr(text, "sliding_window", None), {*(getattr(text, "layer_types", None) or ())}
        places = torch.arange(self.ids.shape[1], device=self.ids.device)
        seen = (places <= places[:, None]) & (places[:, None] < self.ends[:, None, :])
        masks = {FULL: seen}
        if window:
            masks[SLIDING] = seen & (self.depths[:, :, None] - self.depths[:, None, :] < window)
        if additive is not None:
            least = torch.finfo(additive).min
            masks = {kind: torch.zeros_like(m, dtype=additive).masked_fill(~m, least) for kind, m in masks.items()}
        masks = {kind: mask[:, None] for kind, mask in masks.items()}
        if len(kinds) > 1:
            return masks
        return masks[kinds.pop() if kinds else SLIDING if window else FULL]


def pack(rows: Sequence[list[int]], device: torch.device | None = None) -> Trees:
    """Return rows of tokens as trees of the least cost. Empty rows have no places."""
    order = sorted((number for number, row in enumerate(rows) if row), key=lambda number: rows[number])
    shared = {after: _common(rows[before], rows[after]) for before, after in pairwise(order)}
    trees = _split(order, rows, shared) if order else [[]]
    places: list[list[int]] = [[] for _ in rows]
    made = []
    for tree in trees:
        tokens, depths, ends, path = [], [], [], []  # type: ignore[var-annotated]
        for number in tree:
            row, keep = rows[number], shared.get(number, 0) if path else 0
            for place in path[keep:]:
                ends[place] = len(tokens)
            path = [*path[:keep], *range(len(tokens), len(tokens) + len(row) - keep)]
            tokens += row[keep:]
            depths += range(keep, len(row))
            ends += [0] * (len(row) - keep)
            places[number] = path
        for place in path:
            ends[place] = len(tokens)
        made.append((tokens, depths, ends))
    width = max(1, *(len(tokens) for tokens, _, _ in made))
    for offset, tree in zip(range(0, len(trees) * width, width), trees, strict=True):
        for number in tree:
            places[number] = [offset + place for place in places[number]]
    for tokens, depths, ends in made:
        ends += range(len(tokens) + 1, width + 1)
        tokens += [0] * (width - len(tokens))
        depths += [0] * (width - len(depths))
    ids, depths_of, ends_of = (torch.tensor(part, device=device) for part in zip(*made, strict=True))
    return Trees(ids, depths_of, ends_of, places)


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """Return the number of tokens with which both begin."""
    count = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        count += 1
    return count


def _split(order: Sequence[int], rows: Sequence[list[int]], shared: dict[int, int]) -> list[list[int]]:
    """Return the numbers of the rows of each tree, for the cheapest of the splits into 1, 2, 3, ... trees."""
    longest = max(len(rows[number]) for number in order)
    whole = sum(len(rows[number]) - shared.get(number, 0) for number in order)
    best: list[list[int]] = []
    least = float("inf")
    for parts in range(1, len(order) + 1):
        limit = max(longest, -(-whole // parts))
        trees: list[list[int]] = []
        sizes: list[int] = []
        for number in order:
            new = len(rows[number]) - shared.get(number, 0)
            if trees and sizes[-1] + new <= limit:
                trees[-1].append(number)
                sizes[-1] += new
            else:
                trees.append([number])
                sizes.append(len(rows[number]))
        cost = len(trees) * max(sizes) * (1 + max(sizes) / ATTENTION)
        if cost < least:
            best, least = trees, cost
        if limit == longest:
            break
    return best

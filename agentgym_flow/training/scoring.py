"""The log-probabilities of sampled tokens: no logits anywhere else, and every common prefix of a batch computed once.

A batch of conversations has ten to fifty times more positions than sampled tokens, and the logits of a language model
are a quarter of a million numbers per position. So the output layer gets only the hidden states before sampled tokens.
They reach it as one contiguous block: from a slice of a padded batch, PyTorch would copy a frozen output layer for
every row. Whatever a model does to its logits, such as soft capping, it does here too, because its own code does it.

Attempts at a task share its prompt, turns share the rules, and a turn's prompt often begins with the turn before. So
rows can be computed as a tree of their prefixes, forward and backward: the tokens of all rows, sorted and each common
prefix once, are written one after the other. A token's position is its depth, the number of tokens before it in its
rows, and it sees those tokens only. What a row adds to the rows before it stands together, so attention is computed row
by row: the new tokens of a row look at the tokens of that row. That is at most the attention of the rows without
sharing; a mask over all pairs of tokens in the tree would be many times more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice, permutations
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from accelerate.utils import extract_model_from_parallel
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from agentgym_flow.errors import BadSetting
from agentgym_flow.generation.padding import exceeds_rounding, positions
from agentgym_flow.training.rows import Batch, TrainingRow, collate

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

# ---------------------------------------------------------------- scores
WHOLE_LOGITS = 1 << 25
"""Up to this many logits (128 MB in float32) are computed at once, which is simpler and faster on a CPU."""


class Scores(NamedTuple):
    """The scores of a batch: tensors of the shape of `completion_ids`, 0 where no token was sampled.

    Attributes:
        logprobs: the log-probabilities of the sampled tokens.
        entropies: the entropies of the distributions they were sampled from, in nats.
        positions: the number of positions that were computed for them, with padding.
    """

    logprobs: torch.Tensor
    entropies: torch.Tensor
    positions: int


class _Wanted(NamedTuple):
    """What to score: `targets[i]` after the position `places[owners[i]]` of the flattened batch; `owners` ascend."""

    places: torch.Tensor
    owners: torch.Tensor
    targets: torch.Tensor
    temperature: float


def is_small(model: PreTrainedModel, positions: int) -> bool:
    """Return whether all logits at this number of positions, and the output layer, are small enough to be whole."""
    text = model.config.get_text_config()
    return bool(text.vocab_size * max(positions, text.hidden_size) <= WHOLE_LOGITS)


def sampled_scores(model: torch.nn.Module, batch: Batch, temperature: float, *, share: bool = False) -> Scores:
    """Return the scores of the sampled tokens of a batch made by `collate`.

    Args:
        model: the causal language model, possibly wrapped by DDP, DeepSpeed or LoRA.
        batch: the tensors.
        temperature: the logits are divided by it, as in sampling.
        share: compute every distinct prefix of the rows once, see `pack`; only for models with `can_share`.
    """
    sampled = (batch["completion_mask"] * batch["tool_mask"]) > 0
    inputs, at = _tree_inputs(model, batch, sampled) if share else _padded_inputs(batch)
    places, owners = at[sampled].unique(return_inverse=True)  # type: ignore[no-untyped-call]
    order = owners.argsort(stable=True)
    wanted = _Wanted(places, owners[order], batch["completion_ids"][sampled][order], temperature)
    plain = _plain(model)
    with _forward(plain, partial(_scores, plain)):
        found = model(**inputs, wanted=wanted)
    back = order.argsort()
    logprobs, entropies = (x.new_zeros(sampled.shape).masked_scatter(sampled, x[back]) for x in found)
    return Scores(logprobs, entropies, inputs["input_ids"].numel())


def _padded_inputs(batch: Batch) -> tuple[dict[str, Any], torch.Tensor]:
    """Return the inputs of a model, and the places in the flattened batch before each completion token."""
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    before = batch["completion_ids"].shape[1] + 1
    at = torch.arange(ids.numel(), device=ids.device).view(ids.shape)[:, -before:-1]
    return {"input_ids": ids, "attention_mask": mask, "position_ids": positions(mask)}, at


def _tree_inputs(model: torch.nn.Module, batch: Batch, sampled: torch.Tensor) -> tuple[dict[str, Any], torch.Tensor]:
    """Return the same for the tree of the rows. Nothing after the last sampled token is needed."""
    plain = _plain(model)
    count = torch.arange(1, sampled.shape[1] + 1, device=sampled.device)
    needed = (sampled * count).amax(1)  # up to and with the last sampled token
    lengths = torch.stack([batch["prompt_mask"].sum(1), needed]).T.tolist()
    rows = [
        [*prompt[len(prompt) - given :], *completion[: last - 1]] if last else []
        for prompt, completion, (given, last) in zip(
            batch["prompt_ids"].tolist(), batch["completion_ids"].tolist(), lengths, strict=True
        )
    ]
    tree = pack(rows, sampled.device)
    at = torch.zeros(sampled.shape, dtype=torch.long)
    for row, (given, last) in enumerate(lengths):
        at[row, :last] = torch.tensor(tree.places[row][given - 1 :], dtype=torch.long)
    additive = plain.dtype if plain.config._attn_implementation == "eager" else None
    masks = partial(tree.masks, plain.config, additive)  # made within the wrappers, which may copy tensors
    return {"input_ids": tree.ids, "attention_mask": masks, "position_ids": tree.depths}, at.to(sampled.device)


def can_share(model: PreTrainedModel) -> bool:
    """Return whether `model` computes rows as a tree: masks and positions decide all that a token sees.

    Compares the log-probabilities of short rows with a common prefix, in both ways.
    """
    plain = _plain(model)
    text = plain.config.get_text_config()
    described = plain._supports_attention_backend and plain.config._attn_implementation in ("eager", "sdpa")
    if not described or not {*(getattr(text, "layer_types", None) or ())} <= {*KINDS}:
        return False
    word = iter(token % text.vocab_size for token in range(3, 99))
    prompt, answers = [*islice(word, 5)], [[*islice(word, length)] for length in (2, 4)]
    rows = [TrainingRow(prompt, [*first, *last], [0.0] * 6, [0.0] * 6) for first, last in permutations(answers)]
    batch = {name: tensor.to(plain.device) for name, tensor in collate(rows, pad=0, multiple=1).items()}
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            alone, together = (sampled_scores(model, batch, 1.0, share=share).logprobs for share in (False, True))
    except (TypeError, ValueError, RuntimeError, AttributeError, BadSetting):  # it takes no such masks or positions
        return False
    finally:
        model.train(was_training)
    kind = plain.device.type
    computed = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else plain.dtype
    return not exceeds_rounding(alone - together, computed)


def _plain(model: torch.nn.Module) -> PreTrainedModel:
    """Return the model without what wraps it."""
    plain = extract_model_from_parallel(model)
    return plain.get_base_model() if hasattr(plain, "peft_config") else plain


@contextmanager
def _forward(module: torch.nn.Module, forward: Any) -> Iterator[None]:
    """Within the context, `module` computes `forward`."""
    before = vars(module).get("forward")
    module.forward = forward
    try:
        yield
    finally:
        del module.forward
        if before is not None:
            module.forward = before


def _scores(model: PreTrainedModel, wanted: _Wanted, **inputs: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute log-probabilities and entropies, one per target, in place of the model's forward pass."""
    given = {name: value for name, value in inputs.items() if value is not None}
    if callable(given["attention_mask"]):
        given["attention_mask"] = given["attention_mask"]()
    outputs = model.base_model(**given, use_cache=False)
    hidden = outputs.last_hidden_state.flatten(0, 1)[wanted.places]
    size = max(1, WHOLE_LOGITS // model.config.get_text_config().vocab_size)

    def score(tile: torch.Tensor, owners: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        known = type(outputs)(last_hidden_state=tile[None])
        with _forward(model.base_model, lambda *_, **__: known):
            logits = type(model).forward(model, input_ids=targets[None], use_cache=False).logits[0]
        logprobs = torch.log_softmax(logits.float() / wanted.temperature, dim=-1)
        entropies = -(logprobs.exp() * logprobs).sum(-1)
        return logprobs[owners, targets], entropies[owners]

    # With one tile, what the backward pass needs is kept; with more, each is computed again there.
    again = torch.is_grad_enabled() and len(hidden) > size
    found = []
    for first in range(0, max(1, len(hidden)), size):
        ends = torch.tensor([first, first + size], device=hidden.device)
        low, high = torch.searchsorted(wanted.owners, ends).tolist()
        part = hidden[first : first + size], wanted.owners[low:high] - first, wanted.targets[low:high]
        found.append(checkpoint(score, *part, use_reentrant=False, preserve_rng_state=False) if again else score(*part))
    logprobs, entropies = zip(*found, strict=True)
    return torch.cat(logprobs), torch.cat(entropies)


# ---------------------------------------------------------------- the tree of prefixes
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

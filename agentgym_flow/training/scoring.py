"""The log-probabilities of sampled tokens, without logits anywhere else.

A batch of conversations has ten to fifty times more positions than sampled tokens, and the logits of a language model
are a quarter of a million numbers per position. So the output layer gets only the hidden states before sampled tokens.
They reach it as one contiguous block: from a slice of a padded batch, PyTorch would copy a frozen output layer for
every row. Whatever a model does to its logits, such as soft capping, it does here too, because its own code does it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice, permutations
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from accelerate.utils import extract_model_from_parallel
from torch.utils.checkpoint import checkpoint

from agentgym_flow.errors import BadSetting
from agentgym_flow.generation.padding import exceeds_rounding, positions
from agentgym_flow.training.collate import Batch, collate
from agentgym_flow.training.prefix_tree import KINDS, pack
from agentgym_flow.training.rows import TrainingRow

if TYPE_CHECKING:
    from transformers import PreTrainedModel

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
        share: compute every distinct prefix of the rows once, see `prefix_tree`; only for models with `can_share`.
    """
    sampled = (batch["completion_mask"] * batch["tool_mask"]) > 0
    inputs, at = _tree_inputs(model, batch, sampled) if share else _padded_inputs(batch)
    places, owners = at[sampled].unique(return_inverse=True)  # type: ignore[no-untyped-call]
    order = owners.argsort(stable=True)
    wanted = _Wanted(places, owners[order], batch["completion_ids"][sampled][order], temperature)
    with _scoring(model):
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
def _scoring(model: torch.nn.Module) -> Iterator[None]:
    """Within the context, `model(..., wanted=wanted)` returns log-probabilities and entropies, one per target."""
    plain = _plain(model)
    with _forward(plain, partial(_scores, plain)):
        yield


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

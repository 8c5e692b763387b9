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
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from accelerate.utils import extract_model_from_parallel
from torch.utils.checkpoint import checkpoint

from agentgym_flow.generation.padding import positions
from agentgym_flow.training.collate import Batch

if TYPE_CHECKING:
    from transformers import PreTrainedModel

WHOLE_LOGITS = 1 << 25
"""Up to this many logits (128 MB in float32) are computed at once, which is simpler and faster on a CPU."""


class Scores(NamedTuple):
    """Tensors of the shape of `completion_ids`, 0 where no token was sampled.

    Attributes:
        logprobs: the log-probabilities of the sampled tokens.
        entropies: the entropies of the distributions they were sampled from, in nats.
    """

    logprobs: torch.Tensor
    entropies: torch.Tensor


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


def sampled_scores(model: torch.nn.Module, batch: Batch, temperature: float) -> Scores:
    """Return the scores of the sampled tokens of a batch made by `collate`.

    Args:
        model: the causal language model, possibly wrapped by DDP, DeepSpeed or LoRA.
        batch: the tensors.
        temperature: the logits are divided by it, as in sampling.
    """
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    inputs = {"input_ids": ids, "attention_mask": mask, "position_ids": positions(mask)}
    before = batch["completion_ids"].shape[1] + 1
    at = torch.arange(ids.numel(), device=ids.device).view(ids.shape)[:, -before:-1]
    sampled = (batch["completion_mask"] * batch["tool_mask"]) > 0
    places, owners = at[sampled].unique(return_inverse=True)  # type: ignore[no-untyped-call]
    order = owners.argsort(stable=True)
    wanted = _Wanted(places, owners[order], batch["completion_ids"][sampled][order], temperature)
    with _scoring(model):
        found = model(**inputs, wanted=wanted)
    back = order.argsort()
    return Scores(*(x.new_zeros(sampled.shape).masked_scatter(sampled, x[back]) for x in found))


@contextmanager
def _scoring(model: torch.nn.Module) -> Iterator[None]:
    """Within the context, `model(..., wanted=wanted)` returns log-probabilities and entropies, one per target."""
    plain = extract_model_from_parallel(model)
    plain = plain.get_base_model() if hasattr(plain, "peft_config") else plain
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

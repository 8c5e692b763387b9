"""The weights of a model as vLLM reads them: those of a checkpoint, or an adapter alone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors.torch import save_file

from agentgym_flow.errors import TrainingFailed
from agentgym_flow.generation.base import NOT_A_NUMBER

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def has_adapter(model: torch.nn.Module) -> bool:
    """Return whether a model is one of peft, with adapters on it."""
    return hasattr(model, "peft_config")


def adapter_rank(model: PreTrainedModel) -> int:
    """Return the inner dimension of the adapter in use."""
    return int(model.peft_config[model.active_adapter].r)


def check_finite(model: PreTrainedModel) -> None:
    """Raise `TrainingFailed` naming the first weight that is trained and not a number."""
    for name, weight in model.named_parameters():
        if weight.requires_grad and not bool(torch.isfinite(weight).all()):
            raise TrainingFailed(f"{name} {NOT_A_NUMBER}")


def checkpoint_weights(model: PreTrainedModel) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield names and weights of the whole model as its checkpoint has them, without adapters."""
    base = model.get_base_model() if has_adapter(model) else model
    for name, weight in base.state_dict().items():
        if ".lora_" not in name:
            yield name.replace(".base_layer.", "."), weight


def save_outline(model: PreTrainedModel, folder: Path) -> None:
    """Write what a model is into an empty folder, as Hugging Face does, but no weights."""
    shutil.rmtree(folder, ignore_errors=True)
    base = model.get_base_model() if has_adapter(model) else model
    config = base.config.__class__.from_dict(base.config.to_dict())
    config.architectures = [type(base).__name__]
    config.save_pretrained(folder)


def save_weights(model: PreTrainedModel, folder: Path, dtype: torch.dtype) -> None:
    """Write a model, its weights as `dtype`, or its adapter alone where it has one; an older folder is replaced.

    An output layer that is tied to the embedding is written out, which `save_pretrained` does not do: vLLM 0.30 would
    keep its old one without a word.
    """
    shutil.rmtree(folder, ignore_errors=True)
    if has_adapter(model):
        model.save_pretrained(folder, selected_adapters=[model.active_adapter])
        return
    model.config.save_pretrained(folder)
    weights = {name: weight.to("cpu", dtype, copy=True) for name, weight in model.state_dict().items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

"""The weights of a model for vLLM: whole weights as in a checkpoint, or only an adapter."""

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
    """Return whether a model has adapters of peft."""
    return hasattr(model, "peft_config")


def check_finite(model: PreTrainedModel) -> None:
    """Raise `TrainingFailed` naming the first trained weight that is not finite."""
    for name, weight in model.named_parameters():
        if weight.requires_grad and not bool(torch.isfinite(weight).all()):
            raise TrainingFailed(f"{name} {NOT_A_NUMBER}")


def checkpoint_weights(model: PreTrainedModel) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield names and weights of the whole model as in its checkpoint, without adapters."""
    base = model.get_base_model() if has_adapter(model) else model
    for name, weight in base.state_dict().items():
        if ".lora_" not in name:
            yield name.replace(".base_layer.", "."), weight


def save_outline(model: PreTrainedModel, folder: Path) -> None:
    """Write the configuration of a model, without weights, to an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    base = model.get_base_model() if has_adapter(model) else model
    config = base.config.__class__.from_dict(base.config.to_dict())
    config.architectures = [type(base).__name__]
    config.save_pretrained(folder)


def save_weights(model: PreTrainedModel, folder: Path, dtype: torch.dtype) -> None:
    """Write a model with weights of type `dtype`, or only its adapter if it has one, replacing an older folder.

    An output layer that is tied to the embedding is written too, which `save_pretrained` does not do: vLLM 0.30 would
    silently keep its old one.
    """
    shutil.rmtree(folder, ignore_errors=True)
    if has_adapter(model):
        model.save_pretrained(folder, selected_adapters=[model.active_adapter])
        return
    model.config.save_pretrained(folder)
    weights = {name: weight.to("cpu", dtype, copy=True) for name, weight in model.state_dict().items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

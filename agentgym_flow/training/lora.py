"""LoRA: train a small pair of matrices beside every weight matrix of a large model, which itself does not change.

E. Hu and others. LoRA: low-rank adaptation of large language models. 2022. The work is done by the package `peft`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from transformers.integrations import is_deepspeed_zero3_enabled

from agentgym_flow.errors import BadSetting, MissingExtra

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ADAPTER = "adapter_config.json"
"""The file by which a folder of an adapter is known."""


POLICY, REFERENCE = "default", "reference"
"""The names of the adapters on a model: the one that is trained, and the one it is held against."""

ALL_LINEAR = "all-linear"
"""Adapters on every linear layer but the output head."""


def with_lora(
    model: PreTrainedModel, *, rank: int, alpha: int, seed: int, dropout: float = 0.0, targets: str = ALL_LINEAR
) -> PreTrainedModel:
    """Return `model` with fresh adapters on its linear layers; only they can be trained.

    Args:
        model: any causal language model that was loaded from a folder or from the Hub.
        rank: the inner dimension of the adapters.
        alpha: the adapters' output is scaled by `alpha / rank`.
        seed: of their first weights; they change nothing until they are trained.
        dropout: the share of the adapters' inputs that is dropped while the model is in training mode.
        targets: the layers that get one: `ALL_LINEAR`, or the ends of their names, with commas between them.

    Raises:
        MissingExtra: peft is not installed.
        BadSetting: the model has no such layer.
    """
    _require_peft()
    from peft import LoraConfig, get_peft_model

    layers = targets if targets == ALL_LINEAR else [name.strip() for name in targets.split(",")]
    unknown = [name for name in layers if not _has_layer(model, name)] if isinstance(layers, list) else []
    if unknown:  # peft would only complain when none of them is there
        raise BadSetting(f"lora_targets: the model has no layer whose name ends in {unknown[0]!r}")
    settings = LoraConfig(task_type="CAUSAL_LM", target_modules=layers, r=rank, lora_alpha=alpha, lora_dropout=dropout)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        # ZeRO-3 cannot gather weights of two types at once; with bf16 it keeps float32 copies of what is trained.
        return get_peft_model(model, settings, autocast_adapter_dtype=not is_deepspeed_zero3_enabled())


def _has_layer(model: PreTrainedModel, name: str) -> bool:
    return any(layer == name or layer.endswith(f".{name}") for layer, _ in model.named_modules())


def is_adapted(model: torch.nn.Module) -> bool:
    """Return whether a model has adapters on it."""
    return hasattr(model, "peft_config")


def add_reference(model: PreTrainedModel) -> None:
    """Put a second, frozen adapter of the same shape on a model; the first stays the one that is used and trained."""
    if REFERENCE in model.peft_config:  # of an earlier trainer
        return
    with torch.random.fork_rng(devices=[]):  # its first weights are drawn, and will be replaced
        model.add_adapter(REFERENCE, model.peft_config[POLICY], autocast_adapter_dtype=not is_deepspeed_zero3_enabled())
    model.set_adapter(POLICY)


@contextmanager
def switched(model: PreTrainedModel, adapter: str) -> Iterator[None]:
    """Within, a model uses another of its adapters, in evaluation mode: no dropout."""
    was_training = model.training
    model.eval()
    model.set_adapter(adapter)
    try:
        yield
    finally:
        model.set_adapter(POLICY)
        model.train(was_training)


def is_adapter(name: str) -> bool:
    """Return whether `name` is a folder that holds an adapter and not a whole model."""
    return (Path(name) / ADAPTER).is_file()


def load_adapter(folder: str, dtype: str) -> PreTrainedModel:
    """Return the adapter in `folder` on the model it was trained on, ready to be trained further.

    The model becomes `dtype`, the adapter float32.

    Raises `MissingExtra` when peft is not installed, `OSError` or `ValueError` when one of the two cannot be loaded.
    """
    _require_peft()
    from peft import AutoPeftModelForCausalLM

    return AutoPeftModelForCausalLM.from_pretrained(folder, is_trainable=True, dtype=dtype)


def _require_peft() -> None:
    try:
        import peft  # noqa: F401
    except ImportError:
        raise MissingExtra.of("peft", "train") from None

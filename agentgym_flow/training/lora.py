"""LoRA: train a pair of small matrices beside each weight matrix of a large, frozen model.

E. Hu and others. LoRA: low-rank adaptation of large language models. 2022. Implemented with `peft`.
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
"""The file that identifies the folder of an adapter."""


POLICY, REFERENCE = "default", "reference"
"""Names of the adapters on a model: the trained one, and the frozen one of the KL term."""

ALL_LINEAR = "all-linear"
"""Adapters on every linear layer except the output head."""


def with_lora(
    model: PreTrainedModel, *, rank: int, alpha: int, seed: int, dropout: float = 0.0, targets: str = ALL_LINEAR
) -> PreTrainedModel:
    """Return `model` with new adapters on its linear layers; only they are trainable.

    Args:
        model: a causal language model loaded from a folder or the Hub.
        rank: the inner dimension of the adapters.
        alpha: the output of the adapters is scaled by `alpha / rank`.
        seed: determines the initial weights, with which the adapters change nothing.
        dropout: dropout on the inputs of the adapters in training mode.
        targets: the layers with adapters: `ALL_LINEAR`, or the ends of their names, separated by commas.

    Raises:
        MissingExtra: peft is not installed.
        BadSetting: the model has no such layer.
    """
    _require_peft()
    from peft import LoraConfig, get_peft_model

    layers = targets if targets == ALL_LINEAR else [name.strip() for name in targets.split(",")]
    unknown = [name for name in layers if not _has_layer(model, name)] if isinstance(layers, list) else []
    if unknown:  # peft raises only if none of them exists
        raise BadSetting(f"lora_targets: the model has no layer whose name ends in {unknown[0]!r}")
    settings = LoraConfig(task_type="CAUSAL_LM", target_modules=layers, r=rank, lora_alpha=alpha, lora_dropout=dropout)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        # ZeRO-3 cannot gather weights of two types at once; with bf16 it keeps float32 copies of what is trained.
        return get_peft_model(model, settings, autocast_adapter_dtype=not is_deepspeed_zero3_enabled())


def _has_layer(model: PreTrainedModel, name: str) -> bool:
    return any(layer == name or layer.endswith(f".{name}") for layer, _ in model.named_modules())


def add_reference(model: PreTrainedModel) -> None:
    """Add a second, frozen adapter of the same shape to a model; the first one stays active and trained."""
    if REFERENCE in model.peft_config:  # added by an earlier trainer
        return
    with torch.random.fork_rng(devices=[]):  # its random initial weights will be replaced
        model.add_adapter(REFERENCE, model.peft_config[POLICY], autocast_adapter_dtype=not is_deepspeed_zero3_enabled())
    model.set_adapter(POLICY)


@contextmanager
def active_adapter(model: PreTrainedModel, adapter: str) -> Iterator[None]:
    """Activate another adapter of a model within the context, in evaluation mode, without dropout."""
    was_training = model.training
    model.eval()
    model.set_adapter(adapter)
    try:
        yield
    finally:
        model.set_adapter(POLICY)
        model.train(was_training)


def is_adapter(name: str) -> bool:
    """Return whether `name` is a folder with an adapter instead of a whole model."""
    return (Path(name) / ADAPTER).is_file()


def load_adapter(folder: str, dtype: str) -> PreTrainedModel:
    """Return the adapter in `folder` on its base model, ready for further training.

    The model is converted to `dtype`, the adapter to float32.

    Raises `MissingExtra` if peft is not installed, and `OSError` or `ValueError` if either cannot be loaded.
    """
    _require_peft()
    from peft import AutoPeftModelForCausalLM

    return AutoPeftModelForCausalLM.from_pretrained(folder, is_trainable=True, dtype=dtype)


def _require_peft() -> None:
    try:
        import peft  # noqa: F401
    except ImportError:
        raise MissingExtra.of("peft", "train") from None

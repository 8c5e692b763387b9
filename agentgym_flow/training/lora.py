"""LoRA: train a small pair of matrices beside every weight matrix of a large model, which itself stays as it is.

E. Hu and others. LoRA: low-rank adaptation of large language models. 2022. The work is done by the package `peft`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from agentgym_flow.errors import MissingExtra

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ADAPTER = "adapter_config.json"
"""The file by which a folder of an adapter is known."""


def with_lora(model: PreTrainedModel, *, rank: int, alpha: int, seed: int) -> PreTrainedModel:
    """Return `model` with fresh adapters on all of its linear layers but the output head; only they can be trained.

    Args:
        model: any causal language model that was loaded from a folder or from the Hub.
        rank: the inner dimension of the adapters.
        alpha: the adapters' output is scaled by `alpha / rank`.
        seed: of their first weights; they change nothing until they are trained.

    Raises:
        MissingExtra: peft is not installed.
    """
    _require_peft()
    from peft import LoraConfig, get_peft_model

    settings = LoraConfig(task_type="CAUSAL_LM", target_modules="all-linear", r=rank, lora_alpha=alpha)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return get_peft_model(model, settings)


def is_adapter(name: str) -> bool:
    """Return whether `name` is a folder that holds an adapter and not a whole model."""
    return (Path(name) / ADAPTER).is_file()


def load_adapter(folder: str) -> PreTrainedModel:
    """Return the adapter in `folder` on the model it was trained on, ready to be trained further.

    Raises `MissingExtra` when peft is not installed, `OSError` or `ValueError` when one of the two cannot be loaded.
    """
    _require_peft()
    from peft import AutoPeftModelForCausalLM

    return AutoPeftModelForCausalLM.from_pretrained(folder, is_trainable=True)


def _require_peft() -> None:
    try:
        import peft  # noqa: F401
    except ImportError:
        raise MissingExtra.of("peft", "train") from None

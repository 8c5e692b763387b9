"""The seam to TRL: the only module that touches members of TRL which are not documented for users.

TRL gives no public way to train on rows of one's own making, so `RowTrainer` overrides the two members that TRL's own
experimental trainers override too: the one that makes a batch and the one that computes the loss. Their signatures are
checked when this module is imported, so that a TRL in which they have moved is refused by name, not by a strange
failure.
"""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

import torch
from transformers import PreTrainedModel
from trl import GRPOTrainer
from trl.models import unwrap_model_for_generation

from agentgym_flow.errors import UnsupportedTRL
from agentgym_flow.training.collate import positions

TESTED = ("1.16",)
"""The minor versions of TRL that the tests have run with."""

REQUIRED = {
    "_generate_and_score_completions": ("self", "inputs"),
    "_compute_loss": ("self", "model", "inputs"),
}
"""The members of `GRPOTrainer` that are overridden, with their parameters."""


def check_trl(trainer: type) -> None:
    """Raise `UnsupportedTRL` unless `trainer` has the members of `REQUIRED`, each with these parameters."""
    for name, expected in REQUIRED.items():
        member = getattr(trainer, name, None)
        found = None if member is None else tuple(inspect.signature(member).parameters)
        if found != expected:
            state = "is gone" if found is None else f"now takes ({', '.join(found)})"
            raise UnsupportedTRL(
                f"TRL {version('trl')}: {trainer.__name__}.{name} {state}. Tested with TRL {', '.join(TESTED)}; "
                f"install one of these: pip install 'trl=={TESTED[-1]}.*'"
            )


check_trl(GRPOTrainer)


def positions_from_mask(model: PreTrainedModel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Forward pre-hook: count positions from the first token that is no padding.

    TRL pads prompts on the left and passes no positions, so a model with learned positions would see a padded prompt
    shifted against the one it sampled from.
    """
    mask, cached = kwargs.get("attention_mask"), kwargs.get("past_key_values")
    if mask is None or mask.dim() != 2 or kwargs.get("position_ids") is not None or cached is not None:
        return None
    return args, {**kwargs, "position_ids": positions(mask)}


def _no_reward(completions: list[Any], **_: Any) -> list[None]:
    # TRL insists on a reward function; credit is given where the batch is made, so this one is never asked.
    return [None] * len(completions)


class RowTrainer(GRPOTrainer):  # type: ignore[misc]
    """TRL's GRPO trainer for batches of our own making; a subclass provides `make_batch` and may extend `loss`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, reward_funcs=_no_reward, **kwargs)
        if not hasattr(self, "_metrics"):
            raise UnsupportedTRL(f"TRL {version('trl')} keeps its metrics elsewhere; tested with {', '.join(TESTED)}")
        self.model.register_forward_pre_hook(positions_from_mask, with_kwargs=True)

    @abstractmethod
    def make_batch(self, inputs: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """Return the tensors of one generation batch for the data set rows `inputs`.

        The first dimension of every tensor counts rows; it is a multiple of `args.steps_per_generation`. Scalars are
        allowed.
        """

    def loss(self, model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return TRL's loss of one micro-batch."""
        return super()._compute_loss(model, batch)  # type: ignore[no-any-return]

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        return self.make_batch(inputs)

    def _compute_loss(self, model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        return self.loss(model, inputs)

    def record(self, **metrics: float) -> None:
        """Add values to the metrics of the present mode; TRL logs their means. `__` in a name stands for `/`."""
        mode = "train" if self.model.training else "eval"
        for name, value in metrics.items():
            self._metrics[mode][name.replace("__", "/")].append(value)

    @contextmanager
    def frozen_model(self) -> Iterator[PreTrainedModel]:
        """Give the model to sample from; under ZeRO-3 with its weights gathered, unless the settings say otherwise."""
        gather = self.args.ds3_gather_for_generation
        with unwrap_model_for_generation(
            self.model_wrapped, self.accelerator, gather_deepspeed3_params=gather
        ) as model:
            yield model

"""Muon for the hidden matrices and AdamW for all other parameters as one optimizer, and its learning rate schedule.

Muon (Jordan et al., 2024) orthogonalises the momentum of a matrix before each step. It suits the weights inside a
transformer, but not embeddings, norms and biases. Trainers expect a single `Optimizer`, so the two are combined.

Muon scales a step by sqrt(max(1, outputs / inputs)) of the layer. PyTorch takes both numbers from the shape of the
stored matrix, but GPT-2 stores its matrices as inputs x outputs (`Conv1D`), most models as outputs x inputs. Here each
matrix is updated as outputs x inputs, so that the storage of a layer does not affect its training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.optim import AdamW, Muon, Optimizer
from torch.optim.lr_scheduler import LambdaLR
from transformers.pytorch_utils import Conv1D

from agentgym_flow.errors import BadSetting

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from agentgym_flow.training.config import AgentConfig


def hidden_matrices(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Split the trainable parameters into the matrices between embedding and output head, and all others."""
    outside = {id(p) for m in model.modules() if isinstance(m, nn.Embedding) for p in m.parameters(recurse=False)}
    head = getattr(model, "get_output_embeddings", lambda: None)()
    if head is not None:
        outside |= {id(parameter) for parameter in head.parameters()}
    matrices: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for parameter in model.parameters():
        if parameter.requires_grad:
            inside = parameter.ndim == 2 and id(parameter) not in outside
            (matrices if inside else others).append(parameter)
    return matrices, others


@contextmanager
def _transposed(parameters: Sequence[nn.Parameter]) -> Iterator[None]:
    """Transpose parameters and their gradients within the context; in-place updates change the stored values."""
    gradients = [parameter.grad for parameter in parameters]
    try:
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad, parameter.data = None, parameter.data.T  # a gradient must have the shape of its parameter
            parameter.grad = None if gradient is None else gradient.T
        yield
    finally:
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad, parameter.data = None, parameter.data.T
            parameter.grad = gradient


class MuonAdamW(Optimizer):
    """Two optimizers as one: their parameter groups are in one list, and their states are saved together.

    Args:
        model: the model to train.
        muon_lr: learning rate of Muon, for the hidden matrices.
        adamw_lr: learning rate of AdamW, for the rest.
        momentum: momentum of Muon.
        betas: betas of AdamW.
        eps: epsilon of AdamW.
        weight_decay: decoupled, for both.

    Raises:
        BadSetting: a learning rate is not positive, or the model has no hidden matrix to train.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        muon_lr: float,
        adamw_lr: float,
        momentum: float = 0.95,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        if muon_lr <= 0 or adamw_lr <= 0:
            raise BadSetting(f"learning rates must be above 0, got {muon_lr} for Muon and {adamw_lr} for AdamW")
        matrices, others = hidden_matrices(model)
        if not matrices:
            raise BadSetting("this model has no 2-D hidden weight to train with Muon: set muon_learning_rate to null")
        stored_as_inputs_by_outputs = {id(m.weight) for m in model.modules() if isinstance(m, Conv1D)}
        self._to_transpose = [matrix for matrix in matrices if id(matrix) in stored_as_inputs_by_outputs]
        self.muon = Muon(matrices, lr=muon_lr, momentum=momentum, weight_decay=weight_decay)
        # An explicit group, because it may be empty: LoRA trains matrices only.
        self.adamw = AdamW([{"params": others}], lr=adamw_lr, betas=betas, eps=eps, weight_decay=weight_decay)
        super().__init__([*self.muon.param_groups, *self.adamw.param_groups], {})
        self._share_groups()

    def _share_groups(self) -> None:
        # A scheduler changes the groups in place, so they must be the same dictionaries that both optimizers use.
        self.param_groups = [*self.muon.param_groups, *self.adamw.param_groups]

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Take one step with both optimizers; `closure` is evaluated once, first."""
        loss = None if closure is None else closure()
        with _transposed(self._to_transpose):
            self.muon.step()  # type: ignore[no-untyped-call]
        self.adamw.step()
        return loss

    def state_dict(self) -> dict[str, Any]:
        """Return the states of both optimizers."""
        return {"muon": self.muon.state_dict(), "adamw": self.adamw.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state from `state_dict`. Raises `KeyError` or `ValueError` for the state of another optimizer."""
        self.muon.load_state_dict(state_dict["muon"])
        self.adamw.load_state_dict(state_dict["adamw"])
        self._share_groups()  # loading replaced the dictionaries


def muon_of(model: PreTrainedModel, args: AgentConfig) -> MuonAdamW | None:
    """Return Muon with AdamW if the settings select it; None for the optimizer that `optim` names."""
    if args.muon_learning_rate is None:
        return None
    return MuonAdamW(
        model,
        muon_lr=args.muon_learning_rate,
        adamw_lr=args.learning_rate,
        betas=(args.adam_beta1, args.adam_beta2),
        eps=args.adam_epsilon,
        weight_decay=args.weight_decay,
    )


def linear_decay(optimizer: Optimizer, *, warmup: int, total: int, floor: float) -> LambdaLR:
    """Return a schedule that rises linearly over `warmup` steps, then falls linearly to `floor` times the full rate.

    It scales all learning rates of `optimizer` alike. Raises `BadSetting` if `floor` is not in [0, 1] or a number of
    steps is negative.
    """
    if not 0 <= floor <= 1 or warmup < 0 or total < 0:
        raise BadSetting(f"floor must be in [0, 1] and steps not negative, got {floor}, {warmup} and {total} steps")

    def scale(step: int) -> float:
        if step < warmup:
            return (step + 1) / (warmup + 1)
        done = (step - warmup) / max(1, total - warmup)
        return 1.0 - (1.0 - floor) * min(1.0, done)

    return LambdaLR(optimizer, scale)

"""The reference policy of the KL term: a frozen copy of the policy at the start of training.

TRL loads its reference by the model's name. Our models may have none (the tiny model), and training often starts after
a warm start, which the reference must include.

With LoRA the reference is a second adapter on the same model, activated for the reference's pass, so the model is not
copied. Otherwise it is a copy; if the policy computes in bfloat16, the matrices of the copy are kept in bfloat16. Under
ZeRO-3 the copy is split among the processes like the policy.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM
from transformers.integrations import is_deepspeed_zero3_enabled

from agentgym_flow._util.files import write_atomically
from agentgym_flow.errors import BadData, BadSetting
from agentgym_flow.generation import has_adapter
from agentgym_flow.training._trl import prepare_deepspeed
from agentgym_flow.training.models import POLICY, REFERENCE, active_adapter, add_reference
from agentgym_flow.training.run_folder import writing

if TYPE_CHECKING:
    from accelerate import Accelerator
    from transformers import PreTrainedModel

WEIGHTS = "reference.pt"
"""The file in the output folder with the reference's weights, for resumed runs."""


class Reference:
    """A frozen copy of a policy.

    Args:
        policy: the model to train; with LoRA it gets a second adapter.
        bf16: the policy computes in bfloat16 by autocast, which casts the weights of linear layers for every pass. So
            storing those of the copy in bfloat16 changes no bit of the result.

    Attributes:
        model: the frozen copy, in evaluation mode; with LoRA the policy itself.
    """

    def __init__(self, policy: PreTrainedModel, *, bf16: bool = False) -> None:
        self._policy = policy
        self._adapted = has_adapter(policy)
        self.model: PreTrainedModel
        if self._adapted:
            add_reference(policy)
            self.model = policy
        elif is_deepspeed_zero3_enabled():
            self.model = _split_twin(policy)
        else:
            self.model = _copy(policy, _linear_weights(policy) if bf16 else set())

    def prepare(self, accelerator: Accelerator) -> None:
        """Move the copy to the policy's device, or prepare it for DeepSpeed."""
        if self._adapted:
            return
        if accelerator.distributed_type == "DEEPSPEED":
            self._engine = prepare_deepspeed(self.model, accelerator)  # stored, because the engine must stay alive
            self.model = self._engine.module
        self.model.to(accelerator.device)

    @contextmanager
    def frozen(self) -> Iterator[PreTrainedModel]:
        """Yield the model to compute with; with LoRA the policy with its reference adapter active."""
        if not self._adapted:
            yield self.model
            return
        with active_adapter(self._policy, REFERENCE):
            yield self._policy

    @torch.no_grad()
    def copy(self) -> None:
        """Copy the current weights of the policy; all processes must call this."""
        for _, frozen, own in self._pairs():
            with _whole(own), _whole(frozen, written=True):
                frozen.copy_(own)

    def save(self, folder: Path, *, write: bool = True) -> None:
        """Write the weights to `folder` in the process with `write`; all processes must call this."""
        weights = {}
        for name, frozen, _ in self._pairs():
            with _whole(frozen):
                if write:
                    weights[name] = frozen.detach().cpu().clone()
        if not write:
            return
        folder.mkdir(parents=True, exist_ok=True)
        with write_atomically(folder / WEIGHTS) as partial, writing(folder / WEIGHTS, partial):
            torch.save(weights, partial)

    @torch.no_grad()
    def restore(self, folder: Path) -> None:
        """Load the weights that `save` wrote; all processes must call this.

        Raises `BadSetting` if there are none, and `BadData` if they are damaged.
        """
        if not (folder / WEIGHTS).exists():
            raise BadSetting(f"resume: {folder} has no {WEIGHTS}, so the run began without beta: set beta to 0")
        try:
            weights = torch.load(folder / WEIGHTS, weights_only=True, mmap=True)
        except (OSError, EOFError, RuntimeError, UnpicklingError) as error:
            raise _damage_error(folder, str(error).partition("\n")[0]) from error
        for name, frozen, _ in self._pairs():
            if name not in weights:
                raise _damage_error(folder, f"it has no {name}")
            with _whole(frozen, written=True):
                frozen.copy_(weights[name])

    def _pairs(self) -> Iterator[tuple[str, nn.Parameter, nn.Parameter]]:
        """Yield the name of every weight of the reference, the weight, and the policy's weight."""
        own = dict(self._policy.named_parameters())
        for name, frozen in self.model.named_parameters():
            if not self._adapted:
                yield name, frozen, own[name]
            elif f".{REFERENCE}." in name:
                yield name, frozen, own[name.replace(f".{REFERENCE}.", f".{POLICY}.")]


def _damage_error(folder: Path, reason: str) -> BadData:
    return BadData(
        f"resume: {folder / WEIGHTS}, the model at the start of training, is damaged ({reason}): restore it from a "
        "copy, or start a new run"
    )


def _linear_weights(model: nn.Module) -> set[int]:
    """Return the ids of parameters that only linear layers use (an embedding may share one)."""
    inside = {id(p) for m in model.modules() if isinstance(m, nn.Linear) for p in m.parameters(recurse=False)}
    outside = {id(p) for m in model.modules() if not isinstance(m, nn.Linear) for p in m.parameters(recurse=False)}
    return inside - outside


def _copy(model: PreTrainedModel, halved: set[int]) -> PreTrainedModel:
    """Return a frozen copy with the parameters in `halved` as bfloat16, without an intermediate float32 copy."""
    parameters: dict[int, Any] = {}
    for parameter in model.parameters():
        dtype = torch.bfloat16 if id(parameter) in halved else parameter.dtype
        parameters[id(parameter)] = nn.Parameter(parameter.detach().to(dtype, copy=True), requires_grad=False)
    twin: PreTrainedModel = copy.deepcopy(model, parameters).eval()
    return twin


def _split_twin(policy: PreTrainedModel) -> PreTrainedModel:
    """Return an uninitialised model of the policy's shape, split among the processes (ZeRO-3)."""
    with torch.random.fork_rng(devices=[]):
        model = AutoModelForCausalLM.from_config(
            policy.config, dtype=policy.dtype, attn_implementation=policy.config._attn_implementation
        )
    twin: PreTrainedModel = model.eval().requires_grad_(False)
    return twin


@contextmanager
def _whole(parameter: nn.Parameter, *, written: bool = False) -> Iterator[None]:
    """Gather a parameter that ZeRO-3 has split; `written` keeps changes, which all processes must make alike."""
    if not hasattr(parameter, "ds_id"):
        yield
        return
    import deepspeed

    with deepspeed.zero.GatheredParameters([parameter], modifier_rank=0 if written else None):
        yield

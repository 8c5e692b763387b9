"""One process of a distributed test: trains a little and writes down what happened. Started by `accelerate launch`.

The argument is a JSON object: `out`, a folder; `model`; `settings` of `AgentConfig`; `one_turn_rank`, where given, the
process whose episodes are all cut short after one turn.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch

from agentgym_flow.core import TextEnv
from agentgym_flow.envs import make_text_env
from agentgym_flow.envs.sokoban.prompt import PROMPT_TEMPLATES
from agentgym_flow.training import group_source
from agentgym_flow.training.config import AgentConfig
from agentgym_flow.training.models import load_model
from agentgym_flow.training.processes import leave
from agentgym_flow.training.trainer import AgentTrainer


def masters_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the weights that DeepSpeed's optimizer steps; all processes must call this."""
    from deepspeed.utils import safe_get_full_fp32_param

    found = {name: safe_get_full_fp32_param(parameter) for name, parameter in model.named_parameters()}
    return {name: tensor.clone() for name, tensor in found.items()}


def held(parameter: torch.nn.Parameter) -> int:
    """Return how many numbers of a parameter this process has: under ZeRO-3 a part of them."""
    return int(getattr(parameter, "ds_tensor", parameter).numel())


def main() -> None:
    told: dict[str, Any] = json.loads(sys.argv[1])
    out = Path(told["out"])
    torch.set_num_threads(1)
    template = PROMPT_TEMPLATES["compact"]
    args = AgentConfig(output_dir=str(out / "run"), **told["settings"])
    model, tokenizer = load_model(told["model"], template)

    def make_env() -> TextEnv:
        return make_text_env("agentgym_flow/Sokoban-v0", size=6, boxes=1, min_pushes=1)

    trainer = AgentTrainer(model, args, tokenizer, template, make_env)
    accelerator = trainer.accelerator
    if accelerator.process_index == told.get("one_turn_rank"):
        group_source.stop_on = lambda key: lambda policy_input: bool(policy_input.episode.turns)
    trainer.train()
    weights = accelerator.get_state_dict(trainer.model_wrapped)
    masters = masters_of(trainer.model) if trainer.is_deepspeed_enabled else {}
    if accelerator.is_main_process:
        torch.save({name: tensor.float().cpu() for name, tensor in weights.items()}, out / "weights.pt")
        torch.save(masters, out / "masters.pt")
    trainer.save_model(str(out / "model"))
    said = {
        "distributed_type": accelerator.distributed_type.value,
        "backend": torch.distributed.get_backend() if torch.distributed.is_initialized() else None,
        "stage": trainer.model_wrapped.zero_optimization_stage() if trainer.is_deepspeed_enabled else None,
        "processes": accelerator.num_processes,
        "dtypes": sorted({str(parameter.dtype) for parameter in trainer.model.parameters()}),
        "held_by_reference": sum(held(p) for p in trainer.reference.model.parameters()) if trainer.reference else None,
        "lengths": [[len(episode.turns) for episode in group] for group in trainer.groups],
        "history": trainer.state.log_history,
    }
    (out / f"{accelerator.process_index}.json").write_text(json.dumps(said))
    sys.exit(leave(0))


if __name__ == "__main__":
    main()

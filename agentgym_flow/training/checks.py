"""What must hold between the settings of a trainer and its environment, checked before any work."""

from __future__ import annotations

from collections.abc import Collection

import torch

from agentgym_flow.errors import BadSetting, UnknownOption
from agentgym_flow.rewards.structure_score import WORKFLOW
from agentgym_flow.training.config import AgentConfig


def check_device(args: AgentConfig) -> None:
    """Raise `BadSetting` when a precision of GPUs was asked for and there is no GPU."""
    if torch.accelerator.is_available() or not args.wants_gpu:
        return
    reason = "it is built without CUDA: install a build with it"
    if torch.version.cuda is not None or torch.version.hip is not None:
        reason = "look at nvidia-smi, the driver and CUDA_VISIBLE_DEVICES"
    name, otherwise = ("fp16", "leave it out") if args.fp16 else ("bf16", "set use_cpu=true to compute so on the CPU")
    raise BadSetting(f"{name} asks for a GPU, and PyTorch {torch.__version__} finds none ({reason}), or {otherwise}")


def check_source(args: AgentConfig) -> None:
    """Raise `BadSetting` for settings of the trainer's own rollout where the groups come from somewhere else."""
    for name, given in (("replay_share", args.replay_share), ("dynamic_sampling", args.dynamic_sampling)):
        if given:
            raise BadSetting(
                f"{name} chooses what the trainer itself plays, and a source of groups is given: leave it out"
            )


def check_environment(args: AgentConfig, info: Collection[str]) -> None:
    """Raise `UnknownOption` or `BadSetting` when an environment with these `info` keys does not do."""
    if args.stop_when is not None and args.stop_when not in info:
        raise UnknownOption.among(args.stop_when, sorted(info), "stop_when names a key of info.")
    if args.structure_score is not None and WORKFLOW not in info:
        raise BadSetting(
            f"reward {args.reward} needs info[{WORKFLOW!r}], which this environment lacks: set it to native"
        )
    for key in args.info_keys:
        if key not in info:
            raise BadSetting(f"reward and credit read info[{key!r}], which this environment lacks: leave out compat")

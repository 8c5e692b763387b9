"""Checks of the trainer's settings against the machine, the source of groups and the environment."""

from __future__ import annotations

from collections.abc import Collection

import torch

from agentgym_flow.errors import BadSetting, UnknownOption
from agentgym_flow.rewards.structure_score import WORKFLOW
from agentgym_flow.training.config import AgentConfig


def check_device(args: AgentConfig) -> None:
    """Raise `BadSetting` if the settings request a precision for GPUs and there is no GPU."""
    if torch.accelerator.is_available() or not args.wants_gpu:
        return
    reason = "it was built without CUDA: install a build with CUDA"
    if torch.version.cuda is not None or torch.version.hip is not None:
        reason = "look at nvidia-smi, the driver and CUDA_VISIBLE_DEVICES"
    name, otherwise = ("fp16", "leave it out") if args.fp16 else ("bf16", "set use_cpu=true to use it on the CPU")
    raise BadSetting(f"{name} needs a GPU, and PyTorch {torch.__version__} finds none ({reason}), or {otherwise}")


def check_source(args: AgentConfig) -> None:
    """Raise `BadSetting` for settings that only the trainer's own rollout reads."""
    for name, given in (("replay_share", args.replay_share), ("dynamic_sampling", args.dynamic_sampling)):
        if given:
            raise BadSetting(
                f"{name} is for the trainer's own rollout, and another source of groups is given: leave it out"
            )


def check_environment(args: AgentConfig, info: Collection[str]) -> None:
    """Raise `UnknownOption` or `BadSetting` if the settings need keys that are not among those of `info`."""
    if args.stop_when is not None and args.stop_when not in info:
        raise UnknownOption.among(args.stop_when, sorted(info), "stop_when names a key of info.")
    if args.structure_score is not None and WORKFLOW not in info:
        raise BadSetting(
            f"reward {args.reward} needs info[{WORKFLOW!r}], which this environment lacks: set it to native"
        )
    for key in args.info_keys:
        if key not in info:
            raise BadSetting(
                f"reward and credit read info[{key!r}], which this environment lacks: leave out reproduce_official"
            )

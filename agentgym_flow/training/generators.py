"""The generator that the settings of a run select: Transformers, a vLLM engine, or vLLM servers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from agentgym_flow.generation import Generator
from agentgym_flow.generation.transformers_generator import TransformersGenerator
from agentgym_flow.training.config import SERVERS, VLLM, AgentConfig
from agentgym_flow.training.policy import pad_token
from agentgym_flow.training.processes import Together

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def transformers_generator(
    args: AgentConfig, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> TransformersGenerator:
    """Return the default generator: Transformers in this process."""
    exact = args.mixed_precision == "no" and model.dtype == torch.float32
    return TransformersGenerator(
        model,
        pad_token(tokenizer),
        exact=exact,
        rows=args.generation_rows,
        num_envs=args.num_envs,
        tokenizer=tokenizer,
    )


def make_generator(
    args: AgentConfig, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path, together: Together
) -> Generator:
    """Return the generator that the settings select; all processes must call this.

    Args:
        args: the settings.
        model: the current model.
        tokenizer: the model's tokenizer.
        folder: a folder of the run for transferring weights to the generator.
        together: the processes of the run.

    Raises:
        MissingExtra: vLLM is not installed.
        UnsupportedVLLM: its version is not supported, or it cannot run on this machine.
        BadSetting: vLLM cannot run the model, or a server is not set up for training.
        ServerDown: a server cannot be reached.
    """
    half = "bfloat16" if args.mixed_precision == "bf16" else "float32"
    if args.generator == VLLM:
        from agentgym_flow.generation.vllm_engine import VLLMEngine

        return VLLMEngine(
            model,
            tokenizer,
            folder / f"process-{together.rank}",
            dtype=half,
            memory_share=args.vllm_gpu_memory_utilization,
            max_model_len=args.vllm_max_model_length,
        )
    if args.generator.startswith(SERVERS):
        from agentgym_flow.generation.vllm_server import VLLMServers

        return VLLMServers(
            model,
            args.generator.split(","),
            folder,
            dtype=half,
            silence=args.vllm_server_timeout,
            on_main_process=together.on_main_process,
            rank=together.rank,
        )
    return transformers_generator(args, model, tokenizer)

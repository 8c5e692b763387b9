"""The memory of a training run, by part, estimated without loading weights or computing anything.

Weights, gradients and optimizer state are counted. Activations are those that PyTorch saves for the backward pass of
the actual model: copies of it without data (`FakeTensorMode`), with one and with two layers, make a forward pass, and
the difference is the cost of a layer. On a GPU, the allocator, communication buffers and CUDA take one or two GB more.
On a CPU, libraries and the C allocator are a part of their own.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call

from agentgym_flow.generation import key_value_cache
from agentgym_flow.generation.transformers_generator import ROWS
from agentgym_flow.prompts import TURN
from agentgym_flow.training import scoring
from agentgym_flow.training.config import TRANSFORMERS, Configs
from agentgym_flow.training.models import with_lora
from agentgym_flow.training.run_config import RunConfig

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

TILE = 5
"""Tensors of the logits that are scored at one time (`scoring.WHOLE_LOGITS`), in float32, at the peak."""

LIBRARIES = 0.9e9
"""Bytes of the interpreter with PyTorch, Transformers and TRL, on a CPU."""

LAYOUTS = ((1, 0), (8, 0), (8, 2), (8, 3))
"""Numbers of processes and ZeRO stages (0 for none) in the output of a dry run; a node often has 8 GPUs."""


def _qwen(layers: int, width: int, inner: int, heads: int, groups: int, words: int = 151936) -> dict[str, Any]:
    return {
        "num_hidden_layers": layers,
        "hidden_size": width,
        "intermediate_size": inner,
        "num_attention_heads": heads,
        "num_key_value_heads": groups,
        "vocab_size": words,
        "tie_word_embeddings": words == 151936,
    }


QWEN = {
    "Qwen/Qwen2.5-0.5B-Instruct": _qwen(24, 896, 4864, 14, 2),
    "Qwen/Qwen2.5-1.5B-Instruct": _qwen(28, 1536, 8960, 12, 2),
    "Qwen/Qwen2.5-3B-Instruct": _qwen(36, 2048, 11008, 16, 2),
    "Qwen/Qwen2.5-7B-Instruct": _qwen(28, 3584, 18944, 28, 4, 152064),
}
"""Shapes of the models of our recipes, from their `config.json`, for machines without these models."""


def config_of(model: str) -> PretrainedConfig | None:
    """Return a model's configuration, from its folder, the download cache or `QWEN`; None if unknown."""
    from transformers import AutoConfig, Qwen2Config

    try:
        return AutoConfig.from_pretrained(model)
    except (OSError, ValueError):
        return Qwen2Config(**QWEN[model]) if model in QWEN else None


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes on each GPU, or of a process on a CPU.

    Attributes:
        weights: the model and its adapters.
        reference: the frozen model of the KL term; for a model with adapters, only a copy of these.
        optimizer: AdamW's two moments, and float32 weights if the model's own are bfloat16 (DeepSpeed).
        gradients: gradients of the trained weights.
        activations: kept for the backward pass of a micro-batch.
        logits: the logits of a micro-batch that exist at one time.
        kv_cache: keys and values of the episodes played at one time.
        prompts: keys and values of prompts, kept on a CPU until the next rollout begins.
        libraries: on a CPU, libraries, and what the C allocator does not give back: as much as an update needs.
    """

    weights: float
    reference: float
    optimizer: float
    gradients: float
    activations: float
    logits: float
    kv_cache: float
    prompts: float = 0.0
    libraries: float = 0.0

    @property
    def total(self) -> float:
        """The peak: updates and rollouts take turns."""
        updating = self.gradients + self.activations + self.logits
        always = self.weights + self.reference + self.optimizer + self.prompts + self.libraries
        return always + max(updating, self.kv_cache)

    def __str__(self) -> str:
        sizes = {field.name.replace("_", " "): getattr(self, field.name) / 1e9 for field in fields(self)}
        return f"{self.total / 1e9:,.1f} GB: " + ", ".join(
            f"{name} {size:,.1f}" for name, size in sizes.items() if size
        )


@dataclass(frozen=True, slots=True)
class Shape:
    """The properties of a model that determine its memory.

    Attributes:
        parameters: number of parameters, without adapters.
        trained: number of trained parameters.
        base: bytes of activations outside the layers.
        layer: bytes of activations of one layer.
        checkpoint: bytes that one layer keeps with activation checkpointing.
        layers: number of layers.
        kv: numbers in the keys and values of one token.
        attended: the same in one layer, repeated for every attention head.
        head: trained parameters of the output head.
        embedding: parameters of the word embedding.
    """

    parameters: int
    trained: int
    base: int
    layer: int
    checkpoint: int
    layers: int
    kv: int
    attended: int
    head: int
    embedding: int


def shape_of(config: PretrainedConfig, run: RunConfig, rows: int, tokens: int, *, bf16: bool, stage: int) -> Shape:
    """Measure a model's shape in a micro-batch of `rows` rows of `tokens` tokens.

    With `bf16` the computation is in bfloat16, with float32 weights, or under DeepSpeed (`stage` above 0) with bfloat16
    weights.
    """
    autocast, low = bf16 and not stage, bf16 and stage > 0
    text = config.get_text_config()
    one, two = (_measured(config, run, depth, (rows, tokens), low, autocast) for depth in (1, 2))
    per_layer = [b - a for a, b in zip(one, two, strict=True)]
    layers: int = text.num_hidden_layers
    parameters, trained, saved, head = (a + (layers - 1) * more for a, more in zip(one, per_layer, strict=True))
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    layer = per_layer[2]
    checkpoint = rows * tokens * text.hidden_size * (2 if low or run.dtype == "bfloat16" else 4)
    return Shape(
        parameters=parameters,
        trained=trained,
        base=saved - layers * layer,
        layer=layer,
        checkpoint=checkpoint,
        layers=layers,
        kv=2 * layers * heads * width,
        attended=2 * text.num_attention_heads * width,
        head=head,
        embedding=text.vocab_size * text.hidden_size,
    )


def _measured(
    config: PretrainedConfig, run: RunConfig, layers: int, batch: tuple[int, int], low: bool, autocast: bool
) -> tuple[int, int, int, int]:
    """Return the parameters, the trained ones, the bytes saved by a forward pass, and the head's trained parameters."""
    from transformers import AutoModelForCausalLM

    shallow = copy.deepcopy(config)
    shallow.get_text_config().num_hidden_layers = layers
    if getattr(shallow.get_text_config(), "layer_types", None):
        shallow.get_text_config().layer_types = shallow.get_text_config().layer_types[:layers]
    dtype = torch.bfloat16 if low or run.dtype == "bfloat16" else torch.float32
    with torch.device("meta"):
        model: PreTrainedModel = AutoModelForCausalLM.from_config(shallow, dtype=dtype).train()
        parameters = model.num_parameters()
        if run.lora:
            model = with_lora(model, seed=0, **run.lora_settings)
    head = model.get_output_embeddings().weight
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    backbone = model.base_model.model.base_model if run.lora else model.base_model
    with FakeTensorMode():  # uses the CPU's kernels, which meta tensors do not
        tensors = {
            name: torch.empty(t.shape, dtype=t.dtype, requires_grad=t.requires_grad)
            for name, t in (*backbone.named_parameters(), *backbone.named_buffers())
        }
        inputs = {"input_ids": torch.ones(batch, dtype=torch.long), "use_cache": False}
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            saved = saved_bytes(tensors.values(), lambda: functional_call(backbone, tensors, (), inputs))
    return parameters, trained, saved, head.numel() if head.requires_grad else 0


def saved_bytes(own: Iterable[torch.Tensor], work: Callable[[], Any]) -> int:
    """Return the bytes that `work` saves for the backward pass, each tensor once, without those in `own`."""
    weights = {tensor.untyped_storage()._cdata for tensor in own}
    found: dict[int, tuple[torch.Tensor, int]] = {}

    def save(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in weights:
            found[storage._cdata] = tensor, storage.nbytes()  # holding the tensor keeps its address unique
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
        kept = work()
    size = sum(nbytes for _, nbytes in found.values())
    del kept
    return size


def memory(
    config: PretrainedConfig,
    configs: Configs,
    *,
    rows: int,
    prompt: int,
    answer: int,
    playing: int,
    bf16: bool,
    processes: int = 1,
    stage: int = 0,
    sampled: int = 0,
    tree: int = 0,
    kept: tuple[float, float] = (0, 0),
) -> Memory:
    """Return the memory that each GPU needs, or without `bf16` a process on a CPU.

    Args:
        config: the model's configuration.
        configs: the settings.
        rows: rows of a micro-batch.
        prompt: tokens of the longest prompt.
        answer: tokens of the longest answer.
        playing: episodes that run at the same time.
        bf16: whether the computation is in bfloat16.
        processes: number of GPUs.
        stage: DeepSpeed ZeRO stage; 0 without DeepSpeed.
        sampled: sampled tokens of a micro-batch; 0: `answer` in every row.
        tree: tokens of a micro-batch whose rows share prefixes; 0 if they do not.
        kept: tokens and number of the prompts of a batch.
    """
    run, _, agent = configs
    shared = tree if stage != 3 else 0  # ZeRO-3 computes the rows one by one
    size = (1, shared) if shared else (rows, prompt + answer)
    shape = shape_of(config, run, *size, bf16=bf16, stage=stage)
    low = bf16 and stage > 0  # DeepSpeed keeps the model itself in bfloat16, and float32 weights with the optimizer
    number = 2 if low else 4
    compute = 2 if bf16 or run.dtype == "bfloat16" else 4
    frozen = shape.parameters * (2 if low or run.dtype == "bfloat16" else 4) if run.lora else 0
    weights = shape.trained * number + frozen
    reference = 0
    if agent.beta:
        # Autocast casts only the weights of linear layers to bfloat16; embeddings stay in float32.
        saved = 2 * shape.parameters if low else 2 * (shape.parameters - shape.embedding) if bf16 else 0
        reference = shape.trained * 4 if run.lora else shape.parameters * 4 - saved
    # Attention over shared prefixes collects the keys and values that each row sees.
    layer = shape.layer + (rows * (prompt + answer) * shape.attended * compute if shared else 0)
    activations = shape.base + shape.layers * layer
    if agent.gradient_checkpointing:
        # One layer is recomputed at a time, while autocast holds its bfloat16 copy of the weights.
        copies = 2 * shape.parameters if bf16 and not low else 0
        activations = shape.base + shape.layers * shape.checkpoint + layer + copies
    words = config.get_text_config().vocab_size
    logits = min((sampled or rows * answer) * words, scoring.WHOLE_LOGITS) * 4 * TILE
    kept_keys = agent.max_completion_length != 1 or agent.layout != TURN  # single tokens need no cache
    kept_keys = kept_keys and agent.generator == TRANSFORMERS  # vLLM's share of the memory is a setting
    prompts, libraries = 0.0, 0.0
    if not bf16:
        libraries = LIBRARIES + activations + logits
        playing = min(playing, ROWS)
        if kept_keys:  # each prompt has a last block of its own, and its logits
            tokens, count = kept
            tokens += count * key_value_cache.BLOCK / 2
            prompts = min(key_value_cache.KEPT_BYTES, (tokens * shape.kv + count * words) * compute)
    return Memory(
        weights=weights / (processes if stage == 3 else 1),
        reference=reference / (processes if stage == 3 else 1),
        optimizer=shape.trained * (12 if low else 8) / (processes if stage else 1),
        gradients=shape.trained * number / (processes if stage >= 2 else 1),
        activations=activations,
        logits=logits + shape.head * 4,
        kv_cache=playing * (prompt + answer) * shape.kv * compute if kept_keys else 0,
        prompts=prompts,
        libraries=libraries,
    )

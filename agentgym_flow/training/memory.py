"""What a training run keeps in the memory of each GPU, by part; no weights are loaded and nothing is computed.

Weights, gradients and optimizer state are counted. Activations are those that PyTorch saves for the backward pass of
this very model: a copy of it without data (`FakeTensorMode`) with one and with two layers makes a forward pass, and the
difference is what every further layer adds. Allocator, communication buffers and CUDA itself take one or two GB more.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call

from agentgym_flow.training.config import TRANSFORMERS, Configs
from agentgym_flow.training.lora import with_lora
from agentgym_flow.training.rows import TURN
from agentgym_flow.training.run_config import RunConfig

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

TOKENS, WORDS = 4096, 32768
"""The size of the tile in which TRL's loss computes logits: at most this many tokens, and this many words."""

WITHOUT_TRITON = 5
"""Tensors of the size of a tile that TRL's loss has at a time on a CPU; on a GPU its kernel works in place."""

LAYOUTS = ((1, 0), (8, 0), (8, 2), (8, 3))
"""The numbers of processes and the ZeRO stages (0 for none) that a dry run prints; a node often has 8 GPUs."""


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
"""The shapes of the models of our recipes, from their `config.json`, for machines that have not downloaded them."""


def config_of(model: str) -> PretrainedConfig | None:
    """Return a model's configuration: from its folder, from what was downloaded, or from `QWEN`; None if unknown."""
    from transformers import AutoConfig, Qwen2Config

    try:
        return AutoConfig.from_pretrained(model)
    except (OSError, ValueError):
        return Qwen2Config(**QWEN[model]) if model in QWEN else None


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes on each GPU.

    Attributes:
        weights: of the model, with adapters.
        reference: the frozen model of the KL term; of a model with adapters only these.
        optimizer: AdamW's two moments, and float32 weights where the model's own are bfloat16 (DeepSpeed).
        gradients: of the weights that are trained.
        activations: kept for the backward pass of a micro-batch.
        logits: of a micro-batch, as far as they exist at a time.
        kv_cache: keys and values of the episodes that are played at a time.
    """

    weights: float
    reference: float
    optimizer: float
    gradients: float
    activations: float
    logits: float
    kv_cache: float

    @property
    def total(self) -> float:
        """What is needed at most at a time: updates and play take turns."""
        updating = self.gradients + self.activations + self.logits
        return self.weights + self.reference + self.optimizer + max(updating, self.kv_cache)

    def __str__(self) -> str:
        sizes = {field.name.replace("_", " "): getattr(self, field.name) / 1e9 for field in fields(self)}
        return f"{self.total / 1e9:,.1f} GB: " + ", ".join(
            f"{name} {size:,.1f}" for name, size in sizes.items() if size
        )


@dataclass(frozen=True, slots=True)
class Shape:
    """What of a model decides the memory it takes.

    Attributes:
        parameters: how many, without adapters.
        trained: how many are trained.
        base: bytes of activations outside the layers.
        layer: bytes of activations of one layer.
        checkpoint: bytes that one layer keeps with activation checkpointing.
        layers: how many.
        kv: keys and values of a token, as numbers.
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
    head: int
    embedding: int


def shape_of(config: PretrainedConfig, run: RunConfig, rows: int, tokens: int, *, bf16: bool, stage: int) -> Shape:
    """Measure a model's shape in a micro-batch of `rows` rows of `tokens` tokens.

    With `bf16` the computation is in bfloat16: from float32 weights, or under DeepSpeed (`stage` above 0) from bfloat16
    ones.
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
    checkpoint = rows * tokens * text.hidden_size * (2 if low else 4)
    return Shape(
        parameters=parameters,
        trained=trained,
        base=saved - layers * layer,
        layer=layer,
        checkpoint=checkpoint,
        layers=layers,
        kv=2 * layers * heads * width,
        head=head,
        embedding=text.vocab_size * text.hidden_size,
    )


def _measured(
    config: PretrainedConfig, run: RunConfig, layers: int, batch: tuple[int, int], low: bool, autocast: bool
) -> tuple[int, int, int, int]:
    """Return parameters, trained ones, bytes saved by a forward pass, and trained parameters of the head."""
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
            model = with_lora(
                model,
                rank=run.lora_rank,
                alpha=run.lora_alpha,
                seed=0,
                dropout=run.lora_dropout,
                targets=run.lora_targets,
            )
    head = model.get_output_embeddings().weight
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    backbone = model.base_model.model.base_model if run.lora else model.base_model
    with FakeTensorMode():  # knows the kernels of the CPU, which meta tensors do not
        tensors = {
            name: torch.empty(t.shape, dtype=t.dtype, requires_grad=t.requires_grad)
            for name, t in (*backbone.named_parameters(), *backbone.named_buffers())
        }
        inputs = {"input_ids": torch.ones(batch, dtype=torch.long), "use_cache": False}
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            saved = saved_bytes(tensors.values(), lambda: functional_call(backbone, tensors, (), inputs))
    return parameters, trained, saved, head.numel() if head.requires_grad else 0


def saved_bytes(own: Iterable[torch.Tensor], work: Callable[[], Any]) -> int:
    """Return the bytes that `work` saves for the backward pass, each tensor once, without those of `own`."""
    weights = {tensor.untyped_storage()._cdata for tensor in own}
    found: dict[int, tuple[torch.Tensor, int]] = {}

    def save(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in weights:
            found[storage._cdata] = tensor, storage.nbytes()  # the tensor, so that no other takes its place
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
        kept = work()
    size = sum(nbytes for _, nbytes in found.values())
    del kept
    return size


@dataclass(frozen=True, slots=True)
class Work:
    """What is worked on at a time on one GPU.

    Attributes:
        rows: of a micro-batch.
        prompt: tokens of the longest prompt.
        answer: tokens of the longest answer.
        playing: episodes under way.
    """

    rows: int
    prompt: int
    answer: int
    playing: int


def memory(
    config: PretrainedConfig,
    configs: Configs,
    work: Work,
    *,
    bf16: bool,
    processes: int = 1,
    stage: int = 0,
    triton: bool = True,
) -> Memory:
    """Return what each GPU keeps.

    Args:
        config: of the model.
        configs: the settings.
        work: what is worked on at a time.
        bf16: whether the computation is in bfloat16.
        processes: GPUs.
        stage: of DeepSpeed ZeRO; 0 without.
        triton: whether TRL's loss has its kernel, as on a GPU.
    """
    run, _, agent = configs
    shape = shape_of(config, run, work.rows, work.prompt + work.answer, bf16=bf16, stage=stage)
    low = bf16 and stage > 0  # DeepSpeed keeps the model itself in bfloat16, and float32 weights with the optimizer
    number = 2 if low else 4
    frozen = shape.parameters * (2 if low or run.dtype == "bfloat16" else 4) if run.lora else 0
    weights = shape.trained * number + frozen
    reference = 0
    if agent.beta:
        # Autocast needs the weights of linear layers in bfloat16 only; those of embeddings stay in float32.
        saved = 2 * shape.parameters if low else 2 * (shape.parameters - shape.embedding) if bf16 else 0
        reference = shape.trained * 4 if run.lora else shape.parameters * 4 - saved
    activations = shape.base + shape.layers * shape.layer
    if agent.gradient_checkpointing:
        # One layer is computed again at a time; autocast has its own bfloat16 copy of the weights meanwhile.
        copies = 2 * shape.parameters if bf16 and not low else 0
        activations = shape.base + shape.layers * shape.checkpoint + shape.layer + copies
    compute = 2 if bf16 else 4
    scored = work.rows * (work.answer if triton else work.prompt + work.answer - 1)
    tile = min(scored, TOKENS) * WORDS * compute
    kept = agent.max_completion_length != 1 or agent.layout != TURN  # an answer of one token is one forward pass
    kept = kept and agent.generator == TRANSFORMERS  # vLLM has the memory that it is given
    return Memory(
        weights=weights / (processes if stage == 3 else 1),
        reference=reference / (processes if stage == 3 else 1),
        optimizer=shape.trained * (12 if low else 8) / (processes if stage else 1),
        gradients=shape.trained * number / (processes if stage >= 2 else 1),
        activations=activations,
        logits=tile * (1 if triton else WITHOUT_TRITON) + shape.head * 4,
        kv_cache=work.playing * (work.prompt + work.answer) * shape.kv * compute if kept else 0,
    )

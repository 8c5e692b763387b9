"""The memory that a dry run promises, against what PyTorch really keeps in a run of the same settings on a CPU."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import Qwen2Config, Qwen2ForCausalLM, TrainerCallback

from agentgym_flow.core import TextEnv
from agentgym_flow.envs.sokoban.prompt import PROMPT_TEMPLATES
from agentgym_flow.generation import transformers_generator
from agentgym_flow.training.config_file import parse_configs
from agentgym_flow.training.memory import Memory, memory, saved_bytes
from agentgym_flow.training.models import with_lora
from agentgym_flow.training.tiny import word_tokenizer
from agentgym_flow.training.trainer import AgentTrainer

ANSWER = 4
SETTINGS = {
    "merge_prompts": "false",
    "max_completion_length": ANSWER,
    "num_generations": 4,
    "per_device_train_batch_size": 2,
    "steps_per_generation": 2,
    "max_steps": 2,
    "warm_start_levels": 0,
    "muon_learning_rate": "null",  # AdamW alone, as for large models
}


def qwen(layers: int = 5) -> Qwen2Config:
    return Qwen2Config(
        vocab_size=128,
        hidden_size=64,
        intermediate_size=176,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        pad_token_id=0,
        eos_token_id=1,
    )


class Measured(TrainerCallback):  # type: ignore[misc]
    """Measures the parts in a real run, each as PyTorch has it."""

    def __init__(self) -> None:
        self.bytes: dict[str, float] = dict.fromkeys(("gradients", "activations", "kv_cache"), 0.0)
        self.rows = self.width = 0

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        self.bytes["gradients"] = sum(p.grad.nbytes for p in model.parameters() if p.grad is not None)

    def on_step_end(self, args: Any, state: Any, control: Any, optimizer: Any = None, **_: Any) -> None:
        states = optimizer.state.values()
        self.bytes["optimizer"] = sum(t.nbytes for moments in states for t in moments.values() if torch.is_tensor(t))

    def watch(self, trainer: AgentTrainer, monkeypatch: pytest.MonkeyPatch) -> None:
        model: Any = trainer.model
        loss = trainer.loss

        def measured(model: Any, batch: Any) -> torch.Tensor:
            found: list[torch.Tensor] = []
            own = [*model.parameters(), *model.buffers()]
            size = saved_bytes(own, lambda: found.append(loss(model, batch)))
            if size > self.bytes["activations"]:
                self.bytes["activations"] = size
                self.rows, self.width = batch["prompt_ids"].shape
            return loss(model, batch)

        def cached(module: Any, args: Any, kwargs: Any, output: Any) -> None:
            kept = getattr(output, "past_key_values", None)
            if kept is not None:
                now = sum(layer.keys.nbytes + layer.values.nbytes for layer in kept.layers)
                self.bytes["kv_cache"] = max(self.bytes["kv_cache"], now)

        monkeypatch.setattr(trainer, "loss", measured)
        whole = model.get_base_model() if hasattr(model, "peft_config") else model
        whole.register_forward_hook(cached, with_kwargs=True)


@pytest.fixture
def run(make_env: Callable[[], TextEnv], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Trains for two steps; returns what was measured and what the estimate says of the same work."""

    def train(**settings: Any) -> tuple[dict[str, float], Memory]:
        # Free rows and `generate`, as on a GPU, which a dry run is about.
        monkeypatch.setattr(transformers_generator, "is_cacheable", lambda _: False)
        chosen = {**SETTINGS, "output_dir": tmp_path / "run", "generation_rows": 0, **settings}
        configs = parse_configs([*(f"--{name}={value}" for name, value in chosen.items()), "--credit=grpo"])
        template = PROMPT_TEMPLATES["compact"]
        tokenizer = word_tokenizer(template.vocabulary)
        config = qwen()
        config.vocab_size = len(tokenizer)
        torch.manual_seed(0)
        model: Any = Qwen2ForCausalLM(config)
        if configs[0].lora:
            model = with_lora(model, rank=4, alpha=8, seed=0)
        found = Measured()
        trainer = AgentTrainer(model, configs[2], tokenizer, template, make_env, [found])
        found.watch(trainer, monkeypatch)
        trainer.train()
        measured = {
            **found.bytes,
            "weights": sum(p.nbytes for p in model.parameters()),
            "reference": sum(p.nbytes for p in trainer.reference.model.parameters()) if trainer.reference else 0,
        }
        # All start together, so all episodes are under way with the first prompt; answers are as long as may be.
        load = {"rows": found.rows, "prompt": found.width, "answer": ANSWER, "playing": 4}
        return measured, memory(config, configs, **load, bf16=False)

    return train


LOAD = ["--max_completion_length=10", "--num_generations=4", "--per_device_train_batch_size=4"]

KEPT = {"activation_checkpointing": "false", "share_prefixes": "false", "beta": 0.0}
"""What is measured is kept by the forward pass: not what is computed again. The promise is that of unequal prefixes."""


@pytest.mark.heavy
@pytest.mark.parametrize(
    "settings",
    [{}, {"beta": 0.1}, {"lora": "true", "lora_rank": 4, "lora_alpha": 8, "model": "folder", "layout": "turn", **KEPT}],
    ids=["whole", "reference", "adapters"],
)
def test_each_part_is_what_a_real_run_keeps(run: Callable[..., Any], settings: dict[str, Any]) -> None:
    measured, promised = run(**settings)
    promised = {part: getattr(promised, part) for part in measured}
    assert promised == pytest.approx(measured, rel=0.15)


def test_the_estimate_knows_shared_prefixes_kept_prompts_and_all_answers_of_a_conversation(tmp_path: Path) -> None:
    line = [f"--output_dir={tmp_path}", "--credit=grpo", "--layout=conversation", "--model=folder", "--lora=true"]
    configs = parse_configs([*line, "--dtype=bfloat16", "--activation_checkpointing=false", *LOAD])
    load: Any = {"rows": 4, "prompt": 90, "answer": 10, "playing": 64}

    def needed(**more: Any) -> Memory:
        return memory(qwen(), configs, **{**load, "bf16": False, "sampled": 4 * 5 * 10, "kept": (1000, 50), **more})

    alone, shared = needed(), needed(tree=200)
    assert shared.activations < 0.75 * alone.activations
    assert needed(tree=200, bf16=True, stage=3).activations == needed(bf16=True, stage=3).activations
    assert alone.logits == 4 * 5 * 10 * 128 * 4 * 5
    number = 2 * 5 * 2 * 16 * 2  # keys and values of 5 layers, 2 heads of 16, bfloat16
    assert alone.kv_cache == 16 * 100 * number
    assert alone.prompts == (1000 + 50 * 32) * number + 50 * 128 * 2
    assert needed(kept=(1e9, 50)).prompts == 1 << 30
    assert alone.total > alone.prompts + alone.libraries + alone.activations
    gpu = needed(bf16=True)
    assert (gpu.prompts, gpu.libraries, gpu.kv_cache) == (0, 0, 64 * 100 * number)


class Live(TorchDispatchMode):
    """Follows the bytes of all tensors that are made within, but for those of `own`."""

    def __init__(self, own: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self._seen = {tensor.untyped_storage()._cdata for tensor in own}
        self.now = self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            storage = tensor.untyped_storage() if isinstance(tensor, torch.Tensor) else None
            if storage is not None and storage._cdata not in self._seen:
                self._seen.add(storage._cdata)
                self.now += storage.nbytes()
                self.peak = max(self.peak, self.now)
                weakref.finalize(storage, self._free, storage._cdata, storage.nbytes())
        return out

    def _free(self, key: int, size: int) -> None:
        self._seen.discard(key)
        self.now -= size


@pytest.mark.heavy
@pytest.mark.parametrize("checkpointed", [False, True])
def test_the_peak_of_a_pass_is_the_activations_that_were_promised(checkpointed: bool, tmp_path: Path) -> None:
    config = qwen(layers=12)
    model = Qwen2ForCausalLM(config).train()
    if checkpointed:
        model.gradient_checkpointing_enable()
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    live = Live(tensor for p in model.parameters() for tensor in (p, p.grad) if tensor is not None)
    with live:
        model.model(input_ids=torch.ones(16, 64, dtype=torch.long), use_cache=False).last_hidden_state.sum().backward()
    line = [*(f"--{name}={value}" for name, value in SETTINGS.items()), f"--output_dir={tmp_path}", "--credit=grpo"]
    configs = parse_configs([*line, f"--activation_checkpointing={str(checkpointed).lower()}"])
    promised = memory(config, configs, rows=16, prompt=60, answer=4, playing=1, bf16=False)
    assert promised.activations == pytest.approx(live.peak, rel=0.15)

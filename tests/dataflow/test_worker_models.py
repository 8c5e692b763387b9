"""Models that workers make from a setup: without weights at first, and then bit for bit those of the trainer."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("trl", reason="training needs the extra train")

from transformers import AutoModelForCausalLM, Gemma3TextConfig, GPT2Config, PreTrainedModel, Qwen2Config

from agentgym_flow.dataflow.stage import Actor, actor_setup, load_state, stage_of, state_to_send
from agentgym_flow.dataflow.weights import applied, full
from agentgym_flow.errors import BadData
from agentgym_flow.training.config import AgentConfig
from agentgym_flow.training.models import with_lora
from agentgym_flow.training.policy import AsyncModelPolicy
from agentgym_flow.training.run_config import RunConfig, WarmStartConfig
from agentgym_flow.training.tiny import word_tokenizer

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:peft", "ignore::FutureWarning:transformers")

WORDS = word_tokenizer(["push", "left", "right", "up", "down"])
SIZES: dict[str, Any] = {"vocab_size": len(WORDS), "hidden_size": 16, "intermediate_size": 32}
LAYERS: dict[str, Any] = {"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8}
CONFIGS = {
    "gemma": Gemma3TextConfig(**SIZES, **LAYERS, layer_types=["sliding_attention", "full_attention"]),
    "qwen, not tied": Qwen2Config(**SIZES, **LAYERS, tie_word_embeddings=False),
    "gpt2": GPT2Config(vocab_size=len(WORDS), n_embd=16, n_layer=2, n_head=2),
}


def models(
    kind: str, folder: Path, dtype: torch.dtype, *, lora: bool = False, sent: torch.dtype | None = None
) -> tuple[PreTrainedModel, Actor]:
    """Return a model as a trainer loads it, and the actor that a worker makes of its setup."""
    AutoModelForCausalLM.from_config(CONFIGS[kind]).save_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    if lora:
        model = with_lora(model, rank=2, alpha=4, seed=0)
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(weight)
    run = RunConfig(
        env_kwargs={"size": 6, "boxes": 1}, model=str(folder), lora=lora, dtype=str(dtype).removeprefix("torch.")
    )
    args = AgentConfig(output_dir=str(folder / "run"), num_generations=8)
    setup = actor_setup((run, WarmStartConfig(warm_start_levels=0), args), model, WORDS, sent)
    told = {"policies": ["policy"], "turns": [], "actors": {"policy": json.loads(json.dumps(setup))}}
    return model, stage_of(told).actors["policy"]


def loaded(model: PreTrainedModel, actor: Actor, sent: torch.dtype | None = None) -> AsyncModelPolicy:
    """Return the policy of a worker that has loaded a message with the weights of a model."""
    policy = actor.policy()
    load_state(policy.model, applied(None, full(state_to_send(model, sent)))[0])
    return policy


def tensors(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """Return all weights and buffers of a model, those that are not saved included, and tied ones by all names."""
    return {**dict(model.named_parameters(remove_duplicate=False)), **dict(model.named_buffers())}


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether type, device, shape and bits are the same, and both are trained or both are not."""
    told = [(it.dtype, it.device.type, it.requires_grad) for it in (one, other)]
    return told[0] == told[1] and torch.equal(one, other)


@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize(("dtype", "lora"), [(torch.float32, False), (torch.float32, True), (torch.bfloat16, True)])
def test_a_workers_model_is_the_trainers(kind: str, dtype: torch.dtype, lora: bool, tmp_path: Path) -> None:
    model, actor = models(kind, tmp_path, dtype, lora=lora)
    found = loaded(model, actor).model
    expected = tensors(model)
    assert tensors(found).keys() == expected.keys()
    assert [name for name, tensor in tensors(found).items() if not same(tensor, expected[name])] == []
    for one in (model, found):
        base = one.get_base_model() if lora else one
        tied = base.get_input_embeddings().weight is base.get_output_embeddings().weight
        assert tied == (kind != "qwen, not tied")
    ids = torch.arange(40).remainder(len(WORDS)).reshape(2, 20)
    with torch.inference_mode():
        assert torch.equal(found(ids).logits, model.eval()(ids).logits)


def test_weights_in_half_precision_leave_buffers_as_they_are(tmp_path: Path) -> None:
    """Rotary frequencies rounded to bfloat16 are wrong by whole turns after a few hundred tokens."""
    model, actor = models("gemma", tmp_path, torch.float32, sent=torch.bfloat16)
    found, expected = loaded(model, actor, torch.bfloat16).model, tensors(model)
    buffers = dict(found.named_buffers())
    assert any("inv_freq" in name for name in buffers)
    assert [name for name, tensor in buffers.items() if not same(tensor, expected[name])] == []
    for name, weight in found.named_parameters():
        assert torch.equal(weight, expected[name].bfloat16())


def test_models_that_other_threads_make_meanwhile_have_weights(tmp_path: Path, monkeypatch) -> None:
    made = AutoModelForCausalLM.from_config
    others: list[torch.nn.Module] = []

    def interrupted(*given: Any, **settings: Any) -> Any:
        other = threading.Thread(target=lambda: others.append(torch.nn.Linear(2, 2)))
        other.start()
        other.join()
        return made(*given, **settings)

    monkeypatch.setattr(AutoModelForCausalLM, "from_config", interrupted)
    models("gpt2", tmp_path, torch.float32)
    assert [other.weight.device.type for other in others] == ["cpu"] * len(others)
    assert others


def test_policies_of_an_actor_share_no_memory_and_the_actor_has_none(tmp_path: Path) -> None:
    model, actor = models("gemma", tmp_path, torch.float32)
    for empty in (actor.model, actor.policy(weights=False).model):  # but for vectors, such as those of norms
        assert {weight.device.type for weight in empty.parameters() if weight.ndim > 1} == {"meta"}
    first, before = loaded(model, actor), {name: weight.clone() for name, weight in state_to_send(model).items()}
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(1.0)
    loaded(model, actor)
    assert all(torch.equal(weight, before[name]) for name, weight in state_to_send(first.model).items())


@pytest.mark.parametrize("kind", ["gemma", "qwen, not tied"])
def test_weights_with_other_names_or_shapes_are_refused(kind: str, tmp_path: Path) -> None:
    model, actor = models(kind, tmp_path, torch.float32)
    state = state_to_send(model)
    name = "model.norm.weight"
    for changed, match in (
        ({one: weight for one, weight in state.items() if one != name}, rf"{name} is only in one of them"),
        ({**state, "other": torch.ones(1)}, "other is only in one of them"),
        ({**state, name: torch.ones(5)}, f"size mismatch for {name}"),
    ):
        with pytest.raises(BadData, match=f"the weights are not those of the worker's model.*{match}"):
            load_state(actor.policy().model, changed)

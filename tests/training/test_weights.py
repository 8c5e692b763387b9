"""Weights of a model as it is published, saved in bfloat16, move when they are trained with a small learning rate."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from agentgym_flow.core import TextEnv
from agentgym_flow.errors import BadSetting, TrainingFailed, UnknownOption
from agentgym_flow.prompts import PromptTemplate
from agentgym_flow.training.config import AgentConfig
from agentgym_flow.training.config_file import parse_configs
from agentgym_flow.training.models import load_model, save_model, with_lora
from agentgym_flow.training.recipe import open_run
from agentgym_flow.training.run_config import RunConfig, WarmStartConfig
from agentgym_flow.training.trainer import AgentTrainer
from agentgym_flow.training.warm_start import warm_start


def trained(
    name: Path, tokenizer: Any, make_env: Callable[[], TextEnv], template: PromptTemplate, **settings: Any
) -> Any:
    """Train a model for four steps, in bfloat16 on the CPU, and return it."""
    model, _ = load_model(str(name), template)  # a Qwen2 comes with the class of Qwen2's tokenizer, not with this one
    args = AgentConfig(
        output_dir=str(name / "run"),
        num_generations=4,
        per_device_train_batch_size=8,
        steps_per_generation=2,
        learning_rate=1e-6,
        lr_scheduler_type="constant",
        entropy_coef=0.01,
        bf16=True,
        use_cpu=True,
        **{"max_steps": 4, **settings},
    )
    AgentTrainer(model, args, tokenizer, template, make_env).train()
    return model


def test_small_steps_move_a_model_that_was_saved_in_bfloat16(
    published: Path, tiny: tuple[Any, Any], make_env: Callable[[], TextEnv], template: PromptTemplate
) -> None:
    before = dict(load_model(str(published), template)[0].named_parameters())
    after = dict(trained(published, tiny[1], make_env, template).named_parameters())
    moved = sum(int((after[name] != weight).sum()) for name, weight in before.items())
    count = sum(weight.numel() for weight in before.values())
    assert moved / count >= 0.8, moved / count  # from bfloat16 weights it would be about 1 %
    assert {weight.dtype for weight in after.values()} == {torch.float32}


def test_activations_that_are_computed_again_give_the_same_weights(
    published: Path, tiny: tuple[Any, Any], make_env: Callable[[], TextEnv], template: PromptTemplate
) -> None:
    kept, again = (
        trained(published, tiny[1], make_env, template, max_steps=4, beta=0.1, activation_checkpointing=on)
        for on in (False, True)
    )
    assert [model.model.gradient_checkpointing for model in (kept, again)] == [False, True]  # after play too
    for one, other in zip(kept.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)


def test_activations_are_computed_again_for_all_models_but_the_tiny_one(published: Path) -> None:
    def chosen(*line: str) -> list[bool]:
        agent = parse_configs(list(line))[2]
        return [bool(agent.activation_checkpointing), bool(agent.gradient_checkpointing)]

    assert chosen() == [False, False]
    assert chosen("--model", str(published)) == [True, True]
    for name in ("activation_checkpointing", "gradient_checkpointing"):
        assert chosen("--model", str(published), f"--{name}", "false") == [False, False]
        assert chosen(f"--{name}", "true") == [True, True]


def test_cloning_computes_in_what_training_computes_in(tmp_path: Path) -> None:
    settings = ["--bf16=true", "--use_cpu=true", "--warm_start_levels=1", "--warm_start_updates=1"]
    settings += ["--warm_start_validations=1", "--warm_start_validation_episodes=1", f"--output_dir={tmp_path / 'run'}"]
    found = set()
    with open_run(parse_configs(settings), Console(quiet=True)) as recipe:

        def look(model: torch.nn.Module, _: Any) -> None:
            found.add((model.training, torch.is_autocast_enabled("cpu")))

        recipe.model.register_forward_pre_hook(look)
        recipe.clone_behaviour()
    assert found == {(True, True), (False, True)}  # updates and validation


FULL = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
"""What PyTorch raises; nothing here has a GPU to fill."""


@pytest.mark.parametrize(
    ("where", "settings"), [("play", "num_envs"), ("update", "per_device_train_batch_size"), ("cloning", "warm_start")]
)
def test_a_full_gpu_names_the_setting_to_change(
    where: str,
    settings: str,
    make_trainer: Callable[..., AgentTrainer],
    warm: tuple[Any, Any],
    make_env: Any,
    template: Any,
) -> None:
    trainer = make_trainer(model=warm)
    model, tokenizer = warm

    def full(_: Any, inputs: Any) -> None:
        if where == "cloning" or model.training is (where == "update"):
            raise FULL

    model.register_forward_pre_hook(full)
    config = WarmStartConfig(warm_start_levels=1, warm_start_updates=1)
    clone = partial(warm_start, model, tokenizer, template, make_env, config)
    work: Callable[[], Any] = clone if where == "cloning" else trainer.train
    with pytest.raises(TrainingFailed, match=rf"does not fit into the GPU's memory \(CUDA out of memory\).*{settings}"):
        work()


def test_a_precision_of_gpus_needs_one(make_trainer: Callable[..., AgentTrainer]) -> None:
    if torch.accelerator.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(BadSetting, match=r"bf16 needs a GPU, and PyTorch .* finds none .* use_cpu=true"):
        make_trainer(bf16=True)


def test_a_model_under_adapters_may_stay_in_bfloat16(published: Path, template: PromptTemplate, tmp_path: Path) -> None:
    model, tokenizer = load_model(str(published), template, dtype="bfloat16")
    adapted = with_lora(model, rank=4, alpha=8, seed=0)
    save_model(tmp_path / "adapted", adapted, tokenizer)
    again, _ = load_model(str(tmp_path / "adapted"), template, dtype="bfloat16")
    for found in (adapted, again):
        kinds = {(weight.requires_grad, weight.dtype) for weight in found.parameters()}
        assert kinds == {(True, torch.float32), (False, torch.bfloat16)}


def test_only_adapters_leave_the_model_in_bfloat16(published: Path) -> None:
    with pytest.raises(BadSetting, match="dtype bfloat16 would round small updates"):
        RunConfig(model=str(published), dtype="bfloat16")
    with pytest.raises(UnknownOption, match="'bfloat16'"):
        RunConfig(dtype="bf16")
    assert RunConfig(model=str(published), dtype="bfloat16", lora=True).dtype == "bfloat16"

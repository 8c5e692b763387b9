"""GRPO, RLOO and GiGPO in miniature, the same recipe from the command line, and LoRA from end to end."""

from __future__ import annotations

import importlib
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM
from typer.testing import CliRunner

from agentgym_flow import training
from agentgym_flow.cli import app
from agentgym_flow.errors import BadSetting, MissingExtra
from agentgym_flow.prompts import PromptTemplate
from agentgym_flow.replay import verify_log
from agentgym_flow.rewards.credit import CREDIT, settings_of
from agentgym_flow.training import models
from agentgym_flow.training.config import AgentConfig
from agentgym_flow.training.config_file import parse_configs, read_config
from agentgym_flow.training.models import load_model, save_model
from agentgym_flow.training.run_config import RunConfig
from baselines.rewardflow import RewardFlow

SMALL = {
    "env_kwargs": '{"size": 6, "min_pushes": 1}',
    "threads": 1,  # two test processes share two cores
    "warm_start_levels": 20,
    "warm_start_updates": 12,
    "warm_start_validations": 1,
    "warm_start_validation_episodes": 4,
    "max_steps": 8,
    "num_generations": 4,
    "per_device_train_batch_size": 8,
    "steps_per_generation": 4,
    "logging_steps": 4,
    "eval_episodes": 8,
    "num_envs": 64,
    "validations": 0,
}
LOG = Path("evaluations") / "after_sampled.jsonl.gz"
PAPERS = ("grpo", "rloo", "gigpo", "rewardflow", "cwrpo")


def arguments(folder: Path, **settings: Any) -> list[str]:
    chosen = {**SMALL, "output_dir": folder, **settings}
    return [f"--{name}={value}" for name, value in chosen.items()]


def curve(folder: Path) -> list[dict[str, Any]]:
    lines = (json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines())
    return [{k: v for k, v in r.items() if not k.startswith(("time/", "step_time"))} for r in lines]


@pytest.mark.parametrize("name", PAPERS)
def test_the_constants_of_a_baseline_are_those_of_its_credit_function(name: str, tmp_path: Path) -> None:
    module = importlib.import_module(f"baselines.{name}")
    (settings,) = [c for c in vars(module).values() if isinstance(c, type) and c.__base__ is AgentConfig]
    config = settings(output_dir=str(tmp_path))
    assert config.credit == name
    assert config.credit_keywords
    assert settings_of(name) == settings_of(name) | config.credit_keywords


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, narrow: None) -> dict[str, Path]:
    """A run folder of every baseline that has no test file of its own."""
    folders = {name: tmp_path_factory.mktemp("runs") / name for name in ("grpo", "rloo", "gigpo")}
    for name, folder in folders.items():
        assert importlib.import_module(f"baselines.{name}").main(arguments(folder)) == 0
    return folders


@pytest.mark.heavy
def test_a_baseline_trains_with_its_own_estimator(finished: dict[str, Path]) -> None:
    for name, folder in finished.items():
        saved = yaml.safe_load((folder / "config.yaml").read_text())
        assert saved["credit"] == name
        assert saved["credit_settings"] == settings_of(name)
        assert json.loads((folder / "summary.json").read_text())["status"] == "finished"
        assert verify_log(folder / LOG).ok
    curves = [curve(folder) for folder in finished.values()]
    assert curves[0][0]["success"] == curves[1][0]["success"] == curves[2][0]["success"]
    assert all(a != b for a, b in itertools.combinations(curves, 2))


@pytest.mark.heavy
def test_a_baseline_and_the_command_are_one_recipe(finished: dict[str, Path], tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["train", "gigpo", "--env", "sokoban", *arguments(tmp_path / "run")])
    assert result.exit_code == 0, result.output
    assert yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["credit"] == "gigpo"
    assert "Test success, sampled" in result.stdout
    assert curve(tmp_path / "run") == curve(finished["gigpo"])
    assert (tmp_path / "run" / LOG).read_bytes() == (finished["gigpo"] / LOG).read_bytes()


# ---------------------------------------------------------------- the command
def test_the_command_lists_its_algorithms() -> None:
    result = CliRunner().invoke(app, ["train", "--list"])
    assert result.exit_code == 0
    for name in CREDIT:
        assert name in result.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["grop"], "Did you mean 'grpo'"),
        (["grpo", "--no_such_setting", "1"], "no_such_setting"),
        (["grpo", "--max_steps", "many"], "max_steps"),
        (["grpo", "--credit", "rloo"], "name the algorithm once"),
        (["--seed", "1", "grpo"], "name the algorithm once"),
        (["grpo", "--env", "Sokobann"], "Did you mean 'Sokoban-v0'"),
        (["grpo", "--config", "nowhere.yaml"], "nowhere.yaml"),
        (["rloo", "--credit_settings", '{"gamma": 1}'], "has no setting 'gamma'"),
        (["grpo", "--lora"], "lora"),
    ],
)
def test_what_cannot_be_trained_is_one_line(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["train", *words])
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.heavy
def test_ctrl_c_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("agentgym_flow.training.recipe.Recipe.train", interrupted)
    result = CliRunner().invoke(app, ["train", "grpo", *arguments(tmp_path / "run")])
    assert result.exit_code == 130
    assert "Interrupted" in result.stdout
    assert json.loads((tmp_path / "run" / "summary.json").read_text()) == {"status": "interrupted"}


def test_the_quickstart_costs_a_fraction_of_its_long_recipe_and_runs_on_one_thread() -> None:
    """A second thread makes the tiny policy no faster, and waiting for it takes the cores from other programs."""
    quick, long = (parse_configs(words, RewardFlow) for words in ([], ["--config", "sokoban_tiny_long"]))
    assert (quick[0].template, long[0].template) == ("compact-turned", "compact")
    assert (quick[0].threads, long[0].threads) == (1, 1)
    assert (long[1].warm_start_updates, long[2].max_steps) == (1000, 1600)
    assert 4 * quick[1].warm_start_updates <= long[1].warm_start_updates
    assert 4 * quick[2].max_steps <= long[2].max_steps


@pytest.mark.parametrize(
    "path", sorted(Path(training.__file__).parent.glob("configs/*_tiny*.yaml")), ids=lambda p: p.stem
)
def test_tiny_policies_train_on_one_thread(path: Path) -> None:
    assert read_config(path)["threads"] == 1


# ---------------------------------------------------------------- LoRA
@pytest.fixture
def base(tiny: tuple[Any, Any], tmp_path: Path) -> Path:
    """A Hugging Face folder with a model of another family than the tiny one, over the words of the prompt template."""
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = tiny[1]
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        max_position_embeddings=128,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.eos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        **shape,
    )
    torch.manual_seed(0)
    save_model(tmp_path / "base", LlamaForCausalLM(config), tokenizer)
    return tmp_path / "base"


@pytest.mark.heavy
def test_lora_trains_adapters_and_nothing_else(base: Path, tmp_path: Path, template: PromptTemplate) -> None:
    before = AutoModelForCausalLM.from_pretrained(base)
    run = tmp_path / "run"
    result = CliRunner().invoke(
        app, ["train", "gigpo", "--lora", "--lora_rank=4", f"--model={base}", *arguments(run, warm_start_updates=60)]
    )
    assert result.exit_code == 0, result.output
    for folder in ("warm_start", "checkpoint"):
        assert (run / folder / "adapter_model.safetensors").is_file()
        assert not (run / folder / "model.safetensors").exists()

    model, tokenizer = load_model(str(run / "checkpoint"), template)
    cloned, _ = load_model(str(run / "warm_start"), template)
    trained = dict(model.named_parameters())
    adapters = {name for name in trained if "lora_" in name}
    assert adapters == {name for name, parameter in trained.items() if parameter.requires_grad}
    assert all((trained[name] != 0).any() for name in adapters)  # lora_B began at 0
    assert any(not torch.equal(trained[name], other) for name, other in cloned.named_parameters() if name in adapters)
    for name, parameter in before.named_parameters():
        ends = (f".{name}", f".{name.replace('.weight', '.base_layer.weight')}")
        found = [p for n, p in trained.items() if n.endswith(ends)]
        assert len(found) == 1, name
        assert torch.equal(found[0], parameter), name

    ids = torch.tensor([tokenizer("up down go").input_ids])
    with torch.no_grad():
        assert not torch.allclose(model(ids).logits, before(ids).logits)
    plain = AutoModelForCausalLM.from_pretrained(run / "checkpoint")  # transformers finds the adapters too
    with torch.no_grad():
        assert torch.allclose(model.eval()(ids).logits, plain.eval()(ids).logits, atol=1e-6)


@pytest.mark.heavy
def test_trained_adapters_are_trained_further(base: Path, tmp_path: Path) -> None:
    small = {"warm_start_levels": 0, "max_steps": 4, "model": base}
    first, second = tmp_path / "first", tmp_path / "second"
    assert CliRunner().invoke(app, ["train", "grpo", "--lora", *arguments(first, **small)]).exit_code == 0
    again = arguments(second, **small | {"model": first / "checkpoint"})
    result = CliRunner().invoke(app, ["train", "grpo", *again])
    assert result.exit_code == 0, result.output
    assert (second / "checkpoint" / "adapter_model.safetensors").is_file()
    assert "lora adds adapters to a whole model" in CliRunner().invoke(app, ["train", "grpo", "--lora", *again]).stderr


def test_lora_adapts_the_named_layers_and_drops_only_in_training(base: Path) -> None:
    whole = AutoModelForCausalLM.from_pretrained(base)
    model = models.with_lora(whole, rank=4, alpha=4, seed=0, dropout=0.5, targets="q_proj, o_proj")
    adapted = {
        name.rpartition(".lora_A")[0].rpartition(".")[2] for name, _ in model.named_parameters() if "lora_A" in name
    }
    assert adapted == {"q_proj", "o_proj"}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter += 0.1
    ids = torch.tensor([[3, 4, 5]])
    with torch.no_grad():
        assert not torch.equal(model.train()(ids).logits, model(ids).logits)
        assert torch.equal(model.eval()(ids).logits, model(ids).logits)  # play drops nothing
    with pytest.raises(BadSetting, match="'w_proj'"):
        models.with_lora(AutoModelForCausalLM.from_pretrained(base), rank=4, alpha=4, seed=0, targets="q_proj,w_proj")
    with pytest.raises(BadSetting, match="lora_dropout"):
        RunConfig(lora_dropout=1.0)


def test_lora_without_its_package_names_the_extra(tiny: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "peft", None)
    with pytest.raises(MissingExtra, match=r"agentgym_flow\[train\]"):
        models.with_lora(tiny[0], rank=4, alpha=8, seed=0)

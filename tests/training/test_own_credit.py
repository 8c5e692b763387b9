"""Credit functions and models of one's own train like those of the package, and their mistakes are named."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="training needs the extra train")

from agentgym_flow.cli import app
from agentgym_flow.episodes import Group
from agentgym_flow.errors import BadSetting, UnknownOption
from agentgym_flow.prompts import template_for
from agentgym_flow.rewards.credit import credit_function, settings_of
from agentgym_flow.training.config import AgentConfig
from agentgym_flow.training.models import load_model

MODULE = '''
def halves(batch, *, scale=1.0):
    """Half of the success, the same for all turns."""
    return [[[scale * (one.success - 0.5)] * len(one.turns) for one in group] for group in batch]

def small(template, *, seed):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from agentgym_flow.training.tiny import CONTEXT, word_tokenizer

    tokenizer = word_tokenizer(template.vocabulary)
    torch.manual_seed(seed)
    shape = dict(hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2)
    config = LlamaConfig(vocab_size=len(tokenizer), max_position_embeddings=CONTEXT, pad_token_id=0, **shape)
    return LlamaForCausalLM(config), tokenizer

def no_model(template, *, seed):
    return "a model"

def short(batch):
    return [[[0.0] for _ in group] for group in batch]

def forgot(batch):
    pass

def words(batch):
    return [[["good"] * len(one.turns) for one in group] for group in batch]

def nowhere(batch):
    return [[[float("nan")] * len(one.turns) for one in group] for group in batch]

number = 3
'''


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "their_credit.py").write_text(MODULE, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("their_credit", None)


def groups() -> list[Group]:
    from agentgym_flow.envs import make_text_env
    from agentgym_flow.play import EpisodeSpec, rollout_groups
    from agentgym_flow.policies import RandomPolicy

    def make():  # type: ignore[no-untyped-def]
        return make_text_env("agentgym_flow/Sokoban-v0", size=5, boxes=1, max_steps=4)

    return rollout_groups(RandomPolicy(), make, [EpisodeSpec(0, 0, 0)], 2)


@pytest.mark.parametrize("model", ["tiny", "their_credit:small"])
def test_credit_and_models_of_ones_own_train_by_the_command(model: str, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    settings = {
        "model": model,
        "threads": 1,
        "warm_start_levels": 0,
        "num_generations": 2,
        "max_steps": 1,
        "steps_per_generation": 1,
        "per_device_train_batch_size": 4,
        "num_envs": 4,
        "eval_episodes": 2,
        "validations": 0,
        "save_strategy": "no",
        "env_kwargs": '{"size": 5, "boxes": 1, "max_steps": 4}',
        "credit_settings": '{"scale": 2.0}',
        "output_dir": tmp_path / "run",
    }
    words = ["train", "their_credit:halves", "--env", "Sokoban-v0", *(f"--{k}={v}" for k, v in settings.items())]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert "their_credit:halves" in (tmp_path / "run" / "config.yaml").read_text("utf-8")
    kind = json.loads((tmp_path / "run" / "checkpoint" / "config.json").read_text("utf-8"))["model_type"]
    assert kind == ("gpt2" if model == "tiny" else "llama")


def test_a_function_that_makes_no_model_is_named() -> None:
    template = template_for("agentgym_flow/Sokoban-v0", "compact")
    with pytest.raises(BadSetting, match="their_credit:no_model must return a model and a tokenizer"):
        load_model("their_credit:no_model", template)
    with pytest.raises(UnknownOption, match="Did you mean 'small'"):
        load_model("their_credit:smal", template)


def test_its_settings_are_its_keywords() -> None:
    assert settings_of("their_credit:halves") == {"scale": 1.0}
    config = AgentConfig(credit="their_credit:halves", credit_settings={"gamma": 0.9}, output_dir="x")
    with pytest.raises(BadSetting, match="has no setting 'gamma'; it has scale"):
        _ = config.credit_function


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("short", "one for each turn"),
        ("forgot", "one for each turn, got None"),
        ("words", "one for each turn, got"),
        ("nowhere", "not a finite number"),
    ],
)
def test_what_it_returns_is_checked(name: str, message: str) -> None:
    with pytest.raises(BadSetting, match=message):
        credit_function(f"their_credit:{name}")(groups())


def test_without_the_keyword_it_credits_one_policy() -> None:
    assert len(credit_function("their_credit:halves")(groups(), policy=None)) == 1
    with pytest.raises(BadSetting, match="no keyword policy"):
        credit_function("their_credit:halves")(groups(), policy="planner")


@pytest.mark.parametrize(
    "name", ["their_credit:halfs", "their_credit:number", "no_such_module:x", ":x", ".own:x", "rewardflo"]
)
def test_names_that_are_none_are_refused(name: str) -> None:
    with pytest.raises(UnknownOption):
        credit_function(name)

"""CWRPO's loss written out by hand, the ablation without the mask, rewarded designs, and the recipe in miniature."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from scripted_canvas import ScriptedCanvas, Words
from short_run import train
from test_losses import assert_close, far_reference, gradients, token_logprobs, trainer_loss
from transformers import GPT2Config, GPT2LMHeadModel

from agentgym_flow import training
from agentgym_flow.episodes import Episode, Group, PolicyOutput, Turn
from agentgym_flow.errors import BadSetting, UnknownOption
from agentgym_flow.replay import verify_log
from agentgym_flow.rewards.credit import settings_of
from agentgym_flow.rewards.credit.cwrpo import cwrpo, trajectory_weights
from agentgym_flow.rewards.structure import with_structure_rewards
from agentgym_flow.training.config import AgentConfig
from agentgym_flow.training.config_file import CWRPOConfig, parse_configs, resolved
from agentgym_flow.training.loss import batch_logprobs
from agentgym_flow.training.models import load_model, with_lora
from agentgym_flow.training.rows import collate, rows
from agentgym_flow.training.trainer import AgentTrainer
from baselines.cwrpo import CWRPO

pytestmark = pytest.mark.usefixtures("narrow")

SOKOBAN = "agentgym_flow/Sokoban-v0"
TEMPERATURE = 0.7  # that of test_losses
CLIP, BETA = 0.2, 0.05
CONFIGS = Path(training.__file__).parent / "configs"

MakeTrainer = Callable[..., AgentTrainer]


@pytest.fixture
def make_designer(tmp_path: Path) -> MakeTrainer:
    """Makes a trainer of designs: 2 tasks x 4 attempts, one minibatch; keywords change settings."""

    def make(**settings: Any) -> AgentTrainer:
        template = Words()
        model, tokenizer = load_model("tiny", template, seed=0)
        chosen = {
            "output_dir": str(tmp_path / "trainer"),
            "num_generations": 4,
            "per_device_train_batch_size": 8,
            "steps_per_generation": 1,
            "max_steps": 2,
            "logging_steps": 1,
            "learning_rate": 1e-3,
            "seed": 0,
            "temperature": TEMPERATURE,
            "credit": "cwrpo",
            "reward": "structure",
            "epsilon_high": CLIP,
            **settings,
        }
        made = AgentTrainer(model, AgentConfig(**chosen), tokenizer, template, ScriptedCanvas)
        made.current_gradient_accumulation_steps = 1
        return made

    return make


def batch_of(trainer: AgentTrainer) -> dict[str, torch.Tensor]:
    return trainer.make_batch()


# ---------------------------------------------------------------- the objective
def spoken(model: Any, lengths: list[list[int]], returns: list[float], seed: int = 3) -> Group:
    """Attempts whose turns say so many tokens; old log-probabilities are off the model's by up to 0.6."""
    generator = torch.Generator().manual_seed(seed)
    facts = {"observation": "", "state_key": "s", "next_observation": "", "next_state_key": "s"}
    flags = {"terminated": False, "truncated": False, "action_valid": True, "success": False, "score": 0.0}
    attempts = []
    for number, (of_turns, worth) in enumerate(zip(lengths, returns, strict=True)):
        said: list[int] = []
        turns = []
        for place, length in enumerate(of_turns):
            prompt = [*said, *torch.randint(3, 21, (3,), generator=generator).tolist()]
            answer = torch.randint(3, 21, (length,), generator=generator).tolist()
            noise = torch.rand(length, generator=generator) * 1.2 - 0.6
            old = (token_logprobs(model, prompt, answer).detach()[0] + noise).tolist()
            reward = worth if place == len(of_turns) - 1 else 0.0
            output = PolicyOutput("up", None, prompt, answer, old)
            turns.append(Turn(reward=reward, output=output, **facts, **flags))
            said = [*prompt, *answer]
        attempts.append(Episode("e", {}, {}, "train", 0, "e:0", "", 0, number, 9, "", "s", turns=turns))
    return Group(attempts)


def objective(model: Any, group: Group, reference: Any, *, clip: float = CLIP, beta: float = BETA) -> torch.Tensor:
    """Return -J token by token: 1/N sum over episodes of 1/|tau| sum over what was said of the clipped term - KL."""
    advantages = cwrpo([group])[0]
    total = torch.zeros(())
    for episode, of_turns in zip(group, advantages, strict=True):
        terms = []
        for turn, advantage in zip(episode.turns, of_turns, strict=True):
            now = token_logprobs(model, turn.output.prompt_ids or (), turn.output.completion_ids or ())[0]
            there = token_logprobs(reference, turn.output.prompt_ids or (), turn.output.completion_ids or ())[
                0
            ].detach()
            ratio = (now - torch.tensor(turn.output.logprobs)).exp()
            clipped = torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)
            kl = ((there - now).exp() - (there - now) - 1) * ratio
            terms.append(clipped - beta * kl)
        total = total + torch.cat(terms).mean()
    return -total / len(group)


@pytest.mark.parametrize("layout", ["turn", "conversation"])
def test_the_loss_is_the_objective(make_designer: MakeTrainer, layout: str) -> None:
    trainer = make_designer(beta=BETA, layout=layout, merge_prompts=False)
    model = trainer.model
    reference = far_reference(trainer)
    group = spoken(model, [[4, 2, 6], [1], [3, 3]], [1.0, -0.2, -0.8])
    weights = trajectory_weights([group])
    made = rows([group], cwrpo([group]), layout=layout, weights=weights)
    items = sum(row.trained_tokens * row.weight for row in made)
    found = trainer_loss(trainer, [collate(made, pad=0, multiple=1)], items)

    model.zero_grad()
    expected = objective(model, group, reference)
    expected.backward()
    assert_close(found, (expected.detach(), gradients(model)))

    alike = rows([group], cwrpo([group]), layout=layout)
    tokens = sum(row.trained_tokens for row in alike)
    unweighted, _ = trainer_loss(trainer, [collate(alike, pad=0, multiple=1)], tokens)
    assert abs(unweighted - expected.detach()) > 1e-3  # a mean over tokens is another objective


def test_ratio_clipping_and_kl_are_there(make_designer: MakeTrainer) -> None:
    """The released loss is -A times the mean log-probability: the three coefficients of its settings are never read."""
    losses = {}
    for name, settings in {
        "all": {},
        "wide": {"epsilon": 0.999, "epsilon_high": 100.0},
        "free": {"beta": 0.0},
    }.items():
        trainer = make_designer(**{"beta": BETA, "merge_prompts": False, **settings})
        if trainer.reference is not None:
            far_reference(trainer)
        group = spoken(trainer.model, [[4, 2], [3]], [1.0, -1.0])
        made = rows([group], cwrpo([group]), weights=trajectory_weights([group]))
        losses[name], _ = trainer_loss(trainer, [collate(made, pad=0, multiple=1)], 9)
        if name == "all":
            for turn in group.turns:
                turn.output.logprobs = [logprob - 0.1 for logprob in turn.output.logprobs or ()]
            moved = rows([group], cwrpo([group]), weights=trajectory_weights([group]))
            losses["ratio"], _ = trainer_loss(trainer, [collate(moved, pad=0, multiple=1)], 9)
    assert all(math.isfinite(loss) for loss in losses.values())
    for name in ("wide", "free", "ratio"):
        assert abs(losses[name] - losses["all"]) > 1e-3, name


@pytest.mark.parametrize("merge_prompts", [True, False])
def test_every_episode_of_a_batch_weighs_the_same(make_designer: MakeTrainer, merge_prompts: bool) -> None:
    trainer = make_designer(merge_prompts=merge_prompts)
    batch = batch_of(trainer)
    lengths = [len(episode.turns) for group in trainer.groups for episode in group]
    assert len(set(lengths)) > 2
    total = batch["weights"].sum() if merge_prompts else batch["tool_mask"].sum()
    assert float(total) == pytest.approx(sum(lengths), rel=1e-5)  # the mean weight is 1
    assert float(batch["num_items_in_batch"]) == pytest.approx(sum(lengths), rel=1e-5)
    if not merge_prompts:
        of_rows = batch["tool_mask"].sum(1).tolist()
        shares = []
        for length in lengths:
            shares.append(sum(of_rows[:length]))
            del of_rows[:length]
        assert shares == pytest.approx([sum(lengths) / len(lengths)] * len(lengths), rel=1e-5)
    others = batch_of(make_designer(merge_prompts=merge_prompts, credit="grpo"))
    mask = others["weights"] if merge_prompts else others["tool_mask"]
    assert torch.equal(mask, mask.round())  # the other algorithms weigh nothing


# ---------------------------------------------------------------- the ablation without the mask
TALK = {"layout": "conversation", "merge_prompts": False}


def test_without_the_mask_observations_are_trained_on(make_designer: MakeTrainer) -> None:
    masked = batch_of(make_designer(**TALK))
    trainer = make_designer(**TALK, mask_observations=False)
    bare = batch_of(trainer)
    for name in ("prompt_ids", "completion_ids", "completion_mask"):
        assert torch.equal(masked[name], bare[name])
    present = bare["completion_mask"].bool()
    assert (bare["tool_mask"] > 0).equal(present)
    sampled = masked["tool_mask"] > 0
    observed = present & ~sampled
    assert observed.any(1).sum() > 3

    # Every token of an episode has its advantage, and the log-probability that the present policy gives it.
    assert torch.equal(bare["advantages"][sampled], masked["advantages"][sampled])
    for row in range(len(observed)):
        assert len(set(bare["advantages"][row][present[row]].tolist())) == 1
    for row in range(3):
        length = int(bare["completion_mask"][row].sum())
        prompt = bare["prompt_ids"][row][bare["prompt_mask"][row].bool()].tolist()
        expected = token_logprobs(trainer.model, prompt, bare["completion_ids"][row, :length].tolist())[0].detach()
        torch.testing.assert_close(bare["old_per_token_logps"][row, :length], expected, rtol=1e-4, atol=1e-5)

    shares = bare["tool_mask"].sum(1)
    torch.testing.assert_close(shares, shares.mean().expand_as(shares))  # |tau| counts what is trained on
    losses = [trainer_loss(trainer, [batch], batch["num_items_in_batch"])[1] for batch in (masked, bare)]
    assert any((one - other).abs().max() > 1e-5 for one, other in zip(*losses, strict=True))


def test_an_observation_has_the_advantage_of_the_turn_that_it_came_of(make_designer: MakeTrainer) -> None:
    group = spoken(make_designer().model, [[1, 2]], [0.0])
    [row] = rows([group], [[[5.0, -2.0]]], layout="conversation", mask_observations=False)
    assert row.advantages == [5.0, 5.0, 5.0, 5.0, -2.0, -2.0]
    assert [math.isnan(logprob) for logprob in row.logprobs] == [False, True, True, True, False, False]
    assert row.sampled == [1] * 6


def test_what_nobody_sampled_gets_the_models_own_log_probabilities(make_designer: MakeTrainer) -> None:
    trainer = make_designer()
    group = spoken(trainer.model, [[2, 1], [1, 1, 1], [3]], [0.0, 0.0, 0.0])
    made = rows([group], cwrpo([group]), layout="conversation", mask_observations=False)
    plain = collate(made, pad=0, multiple=1)
    found = batch_logprobs(trainer.model, plain, TEMPERATURE, size=2)
    for row, logprobs in zip(made, found, strict=True):
        expected = token_logprobs(trainer.model, row.prompt, row.completion)[0].detach()
        torch.testing.assert_close(logprobs[: len(expected)], expected, rtol=1e-4, atol=1e-5)


def test_prompts_of_single_turns_are_never_trained_on(tmp_path: Path, make_designer: MakeTrainer) -> None:
    with pytest.raises(BadSetting, match="only layout conversation"):
        AgentConfig(output_dir=str(tmp_path), mask_observations=False)
    with pytest.raises(BadSetting, match="layout conversation"):
        rows([], [], mask_observations=False)


def test_a_run_without_the_mask_has_finite_losses(make_designer: MakeTrainer) -> None:
    trainer = make_designer(**TALK, mask_observations=False, beta=BETA)
    trainer.train()
    losses = [record["loss"] for record in trainer.state.log_history if "loss" in record]
    assert len(losses) == 2
    assert all(map(math.isfinite, losses))


# ---------------------------------------------------------------- rewarded designs
def test_training_episodes_are_rewarded_for_their_designs(make_designer: MakeTrainer) -> None:
    trainer, native = make_designer(), make_designer(reward="native")
    batch_of(trainer)
    batch_of(native)
    for group, plain in zip(trainer.groups, native.groups, strict=True):
        assert [[turn.action for turn in episode.turns] for episode in group] == [
            [turn.action for turn in episode.turns] for episode in plain
        ]
        assert all(turn.info is None for turn in plain.turns)
        assert group == with_structure_rewards(group)  # rewarded once more, they stay as they are
        for episode, other in zip(group, plain, strict=True):
            assert [turn.reward for turn in episode.turns[:-1]] == [0.0] * (len(episode.turns) - 1)
            assert -1.0 <= episode.total_reward <= 1.0
            assert {turn.reward for turn in other.turns} <= {-0.5, 2.0}
    returns = [episode.total_reward for group in trainer.groups for episode in group]
    assert len(set(returns)) > 1
    assert trainer._metrics["train"]["return"][-1] == pytest.approx(sum(returns) / len(returns))
    assert trainer._metrics["train"]["success"] == native._metrics["train"]["success"]


def test_its_settings_reach_the_reward(make_designer: MakeTrainer) -> None:
    flat = make_designer(reward_settings={"diversity": False})
    batch_of(flat)
    returns = {episode.total_reward for group in flat.groups for episode in group}
    assert returns <= {-1.0, 0.0}


def test_other_algorithms_read_the_designs_too(make_designer: MakeTrainer, tmp_path: Path) -> None:
    config = AgentConfig(output_dir=str(tmp_path), credit="grpo", reward="structure")
    assert config.outcome == "return"
    assert config.credit_keywords == {"outcome": "return"}
    assert AgentConfig(output_dir=str(tmp_path), credit="grpo").outcome == "success"
    assert AgentConfig(output_dir=str(tmp_path), credit="cwrpo").outcome == "return"
    trainer = make_designer(credit="grpo", merge_prompts=False)
    batch = batch_of(trainer)
    assert batch["advantages"].any()


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"reward": "structur"}, UnknownOption, "Did you mean 'structure'"),
        ({"reward": "structure", "reward_settings": {"profile": "papr"}}, UnknownOption, "Did you mean 'paper'"),
        ({"reward": "structure", "reward_settings": {"min_ops": 5}}, BadSetting, "min_ops"),
        ({"reward": "structure", "reward_settings": {"min_operators": 0}}, BadSetting, "min_operators"),
        ({"reward": "structure", "credit_settings": {"outcome": "success"}}, BadSetting, "needs outcome return"),
        ({"reward_settings": {"profile": "paper"}}, BadSetting, "are for reward structure"),
    ],
)
def test_rewards_that_cannot_work_are_refused(
    settings: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message):
        AgentConfig(output_dir=str(tmp_path), **settings)


def test_an_environment_without_workflows_is_refused(make_trainer: MakeTrainer) -> None:
    with pytest.raises(BadSetting, match="info\\['workflow'\\]"):
        make_trainer(reward="structure", credit="cwrpo")


# ---------------------------------------------------------------- adapters
def test_the_seed_decides_the_first_weights_of_adapters() -> None:
    """Whatever chance was used before, and without using any of it: the published code seeds when adapters are made."""

    def adapters(noise: int, seed: int) -> dict[str, torch.Tensor]:
        torch.manual_seed(0)
        model = GPT2LMHeadModel(GPT2Config(vocab_size=8, n_positions=8, n_embd=8, n_layer=1, n_head=2))
        torch.manual_seed(noise)
        adapted = with_lora(model, rank=2, alpha=4, seed=seed)
        after = torch.rand(3)
        torch.manual_seed(noise)
        assert torch.equal(after, torch.rand(3))
        return {name: weight for name, weight in adapted.named_parameters() if "lora_A" in name}

    first, again, other = adapters(1, 7), adapters(2, 7), adapters(1, 8)
    assert len(first) > 1
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not any(torch.equal(first[name], other[name]) for name in first)


# ---------------------------------------------------------------- the recipe
def test_the_baseline_and_the_command_have_the_constants_of_the_paper(tmp_path: Path) -> None:
    line = ["--output_dir", str(tmp_path), "--env_kwargs", "{}"]
    command, baseline = parse_configs([*line, "--credit", "cwrpo"])[2], parse_configs(line, CWRPO)[2]
    for config in (command, baseline):
        assert (config.credit, config.beta, config.epsilon, config.epsilon_high) == ("cwrpo", 0.005, 0.2, 0.2)
    assert resolved(parse_configs([*line, "--credit=cwrpo"])) == resolved(parse_configs(line, CWRPO))
    assert CWRPO(output_dir=str(tmp_path)).epsilon_high == CWRPOConfig(output_dir=str(tmp_path)).epsilon_high == 0.2
    assert settings_of("cwrpo") == settings_of("cwrpo") | baseline.credit_keywords
    others = parse_configs([*line, "--credit", "grpo"])[2]
    assert (others.beta, others.epsilon_high, type(others)) == (0.0, 0.28, AgentConfig)
    assert parse_configs([*line, "--credit=cwrpo", "--beta", "0"])[2].beta == 0.0


def test_cwrpo_trains_on_sokoban_with_its_settings(tmp_path: Path) -> None:
    env_kwargs = '{"size": 6, "min_pushes": 1}'
    result = train(SOKOBAN, "cwrpo", tmp_path / "run", env_kwargs=env_kwargs, threads=1)
    assert result.exit_code == 0, result.output
    saved = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert (saved["credit"], saved["beta"], saved["credit_settings"]["scope"]) == ("cwrpo", 0.005, "group")
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert all(math.isfinite(record["kl"]) for record in records if "kl" in record)
    assert sum("kl" in record for record in records) == 3
    log = Path("evaluations") / "after_sampled.jsonl.gz"
    assert verify_log(tmp_path / "run" / log).ok


def test_the_published_shape_is_a_file(tmp_path: Path) -> None:
    file = str(CONFIGS / "canvas_7b.yaml")
    published = {
        **{"model": "Qwen/Qwen3-8B", "lora": "true", "lora_rank": 64, "lora_alpha": 64, "lora_dropout": 0.05},
        **{"lora_targets": "q_proj,k_proj,v_proj,o_proj", "dtype": "bfloat16", "learning_rate": 1e-5},
    }
    line = [f"--{name}={value}" for name, value in published.items()]
    run, warm, agent = parse_configs(["--config", file, "--credit=cwrpo", "--output_dir", str(tmp_path), *line])
    assert (run.model, run.lora, run.lora_rank, run.lora_alpha, run.lora_dropout) == (
        "Qwen/Qwen3-8B", True, 64, 64, 0.05,
    )  # fmt: skip
    assert run.lora_targets.split(",") == ["q_proj", "k_proj", "v_proj", "o_proj"]
    assert (agent.learning_rate, agent.lr_scheduler_type, agent.warmup_steps, agent.max_steps) == (
        1e-5, "cosine", 10, 300,
    )  # fmt: skip
    assert (agent.temperature, agent.epsilon, agent.epsilon_high, agent.beta) == (0.6, 0.2, 0.2, 0.005)
    assert (agent.layout, agent.mask_observations, agent.outcome) == ("conversation", True, "return")
    assert agent.structure_score is not None
    assert agent.steps_per_batch == 1
    assert agent.generation_batch_size == 40
    assert warm.warm_start_levels == 0

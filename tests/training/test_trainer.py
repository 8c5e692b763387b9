"""The trainer: what reaches the loss, what it refuses, and that equal seeds give equal curves."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate.utils import DistributedType

from agentgym_flow.errors import BadSetting, MissingExtra, TrainingFailed, UnknownOption, UnsupportedTRL
from agentgym_flow.rewards.credit import CREDIT
from agentgym_flow.training._trl import REQUIRED, check_trl
from agentgym_flow.training.config import AgentConfig
from agentgym_flow.training.trainer import AgentTrainer

pytestmark = pytest.mark.usefixtures("narrow")

Trainers = Callable[..., AgentTrainer]


def turns_of(trainer: AgentTrainer) -> list[Any]:
    return [turn for group in trainer.groups for episode in group for turn in episode.turns]


def test_groups_are_the_repeated_tasks_with_numbered_attempts(make_trainer: Trainers, warm: tuple[Any, Any]) -> None:
    trainer = make_trainer(model=warm, tasks=(5, 2, 9, 5))
    trainer.make_batch()
    assert [[(e.task, e.attempt) for e in group] for group in trainer.groups] == [
        [(task, attempt) for attempt in range(first, first + 4)] for task, first in ((5, 0), (2, 0), (9, 0), (5, 4))
    ]
    assert any(episode.success for group in trainer.groups for episode in group)
    assert len({episode.seed for group in trainer.groups for episode in group}) == 1


def test_advantages_arrive_at_the_tokens_they_belong_to(make_trainer: Trainers, warm: tuple[Any, Any]) -> None:
    trainer = make_trainer(model=warm, merge_prompts=False, credit="gigpo", credit_settings={"gamma": 0.5})
    batch = trainer.make_batch()
    flat = [a for group in CREDIT["gigpo"](trainer.groups, gamma=0.5) for episode in group for a in episode]
    turns = turns_of(trainer)
    assert len(set(flat)) > 2
    count = len(turns)
    torch.testing.assert_close(batch["advantages"][:count, 0], torch.tensor(flat))
    assert [int(ids[-1]) for ids in batch["completion_ids"][:count]] == [
        turn.output.completion_ids[0] for turn in turns
    ]
    assert batch["old_per_token_logps"][:count, 0].tolist() == pytest.approx(
        [turn.output.logprobs[0] for turn in turns]
    )
    assert batch["prompt_ids"][:count].tolist() == [list(turn.output.prompt_ids) for turn in turns]
    assert batch["num_items_in_batch"] == count
    # Filled up to the two minibatches, and the filling does not count.
    assert batch["completion_mask"].shape[0] == count + count % 2
    assert batch["completion_mask"].sum() == count


def test_merged_batches_hold_the_same_sums(make_trainer: Trainers, warm: tuple[Any, Any]) -> None:
    plain, merged = (make_trainer(model=warm, merge_prompts=m).make_batch() for m in (False, True))
    assert merged["prompt_ids"].shape[0] < plain["prompt_ids"].shape[0]
    positive = plain["advantages"].clamp(min=0).sum()
    torch.testing.assert_close(merged["positive"].sum(), positive)
    torch.testing.assert_close(merged["negative"].sum(), plain["advantages"].clamp(max=0).sum())
    assert merged["weights"].sum() == merged["num_items_in_batch"] == plain["num_items_in_batch"]


def test_answers_that_may_be_longer_never_merge(make_trainer: Trainers, warm: tuple[Any, Any]) -> None:
    model, tokenizer = warm
    with torch.no_grad():  # every answer is the end token alone
        model.transformer.wte.weight[tokenizer.eos_token_id] *= 1000
        model.transformer.ln_f.bias += model.transformer.wte.weight[tokenizer.eos_token_id]
    trainer = make_trainer(model=warm, max_completion_length=3, loss_type="bnpo")  # a loss that merged rows cannot have
    batch = trainer.make_batch()
    assert batch["completion_ids"].shape[1] == 1
    assert "tokens" not in batch


@pytest.mark.parametrize("merge", [False, True])
def test_rows_without_advantage_can_be_left_out_without_changing_the_scale(
    make_trainer: Trainers, warm: tuple[Any, Any], merge: bool
) -> None:
    everything = make_trainer(model=warm, merge_prompts=merge).make_batch()
    kept = make_trainer(model=warm, merge_prompts=merge, zero_advantage_share=0.0).make_batch()
    assert kept["prompt_ids"].shape[0] < everything["prompt_ids"].shape[0]
    assert kept["num_items_in_batch"] == everything["num_items_in_batch"]
    name = "positive" if merge else "advantages"
    torch.testing.assert_close(kept[name].sum(), everything[name].sum())


@pytest.mark.parametrize("merge", [False, True])
def test_invalid_actions_cost_what_the_setting_says(make_trainer: Trainers, merge: bool) -> None:
    plain, costly = (make_trainer(merge_prompts=merge, invalid_action_penalty=penalty) for penalty in (0.0, 0.25))
    free, paid = plain.make_batch(), costly.make_batch()
    invalid = [float(not turn.action_valid) for turn in turns_of(plain)]
    assert 0 < sum(invalid) < len(invalid)
    if merge:
        cost = sum((free[name] - paid[name]).sum() for name in ("positive", "negative"))
        assert float(cost) == pytest.approx(0.25 * sum(invalid), rel=1e-4)
    else:
        cost = (free["advantages"] - paid["advantages"])[: len(invalid), 0]
        torch.testing.assert_close(cost, 0.25 * torch.tensor(invalid))
    assert costly._metrics["train"]["invalid_penalty"] == [pytest.approx(0.25 * sum(invalid) / len(invalid))]


@pytest.mark.heavy
def test_a_strong_pull_keeps_the_policy_at_its_reference(make_trainer: Trainers, template: Any) -> None:
    from agentgym_flow.training.models import load_model

    drifts = []
    for beta in (1e-3, 3.0):
        model = load_model("tiny", template, seed=0)
        steps = {"learning_rate": 5e-3, "muon_learning_rate": 2e-2, "max_steps": 12}
        trainer = make_trainer(model=model, beta=beta, invalid_action_penalty=1.0, **steps)
        trainer.train()
        drifts.append([log["kl"] for log in trainer.state.log_history if "kl" in log][-1])
    assert 0 < drifts[1] < drifts[0] / 3


def test_metrics_of_a_batch_add_up(make_trainer: Trainers, warm: tuple[Any, Any]) -> None:
    trainer = make_trainer(model=warm)
    trainer.train()
    [log] = [log for log in trainer.state.log_history if "success" in log]
    groups = trainer.groups
    episodes = [episode for group in groups for episode in group]
    assert log["success"] == sum(episode.success for episode in episodes) / 16
    assert log["return"] == pytest.approx(sum(episode.total_reward for episode in episodes) / 16)
    assert log["frac_reward_zero_std"] == sum(len({e.success for e in group}) == 1 for group in groups) / 4
    assert log["turns"] == len(turns_of(trainer))
    assert log["unique_prompts"] == log["rows"] == len({turn.output.prompt_ids for turn in turns_of(trainer)})
    assert (log["episodes"], log["env_steps"], log["lost_episodes"]) == (16, log["turns"], 0)
    assert 0 < log["entropy"] < 5
    assert 0 <= log["clip_fraction"] <= 1
    assert min(log[f"time/{part}"] for part in ("env", "generate", "credit")) > 0


def test_episodes_can_stop_on_a_flag_of_info(make_trainer: Trainers, warm: tuple[Any, Any]) -> None:
    full, stopped = make_trainer(model=warm), make_trainer(model=warm, stop_when="deadlock")
    full.make_batch()
    stopped.make_batch()
    assert len(turns_of(stopped)) < len(turns_of(full))
    for long, short in zip(full.groups, stopped.groups, strict=True):
        assert [e.success for e in long] == [e.success for e in short]


@pytest.mark.parametrize(
    "settings", [{}, {"merge_prompts": False}, {"merge_prompts": False, "max_completion_length": 3}]
)
def test_before_the_first_update_every_ratio_is_one(
    make_trainer: Trainers, warm: tuple[Any, Any], settings: dict[str, Any]
) -> None:
    # Old log-probabilities are exactly those of the policy that sampled, at its temperature: then the objective of a
    # batch is the sum of its advantages.
    trainer = make_trainer(model=warm, temperature=0.7, steps_per_generation=1, **settings)
    trainer.current_gradient_accumulation_steps = 1
    batch = trainer.make_batch()
    tokens = sum(len(turn.output.completion_ids) for turn in turns_of(trainer))
    if "tokens" in batch:
        total = batch["positive"].sum() + batch["negative"].sum()
    else:
        total = (batch["advantages"] * batch["completion_mask"]).sum()
        logps, _, _ = trainer._get_per_token_logps_and_entropies(
            trainer.model,
            torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1),
            torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1),
            batch["completion_ids"].shape[1],
        )
        present = batch["completion_mask"].bool()
        torch.testing.assert_close(logps[present], batch["old_per_token_logps"][present], rtol=1e-4, atol=1e-5)
        assert settings.get("max_completion_length", 1) == 1 or present.shape[1] > 1
    torch.testing.assert_close(trainer.loss(trainer.model, batch).detach(), -total / tokens, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(
    "settings", [{}, {"num_iterations": 2, "max_steps": 8}, {"gradient_accumulation_steps": 2, "max_steps": 3}]
)
def test_a_batch_is_played_once_and_trained_on_in_minibatches(
    make_trainer: Trainers, warm: tuple[Any, Any], settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make_trainer(model=warm, **{"max_steps": 6, **settings})
    make_batch, loss = trainer.make_batch, trainer.loss
    played: list[list[int]] = []
    seeds: list[int] = []
    losses: list[int] = []

    def batches() -> Any:
        batch = make_batch()
        played.append([episode.task for group in trainer.groups for episode in group])
        seeds.append(trainer.groups[0].episodes[0].seed)
        losses.append(0)
        return batch

    def count(model: Any, batch: Any) -> torch.Tensor:
        losses[-1] += 1
        return loss(model, batch)

    monkeypatch.setattr(trainer, "make_batch", batches)
    monkeypatch.setattr(trainer, "loss", count)
    trainer.train()
    assert losses == [2 * settings.get("num_iterations", 1)] * len(played)
    assert sum(losses) == trainer.args.max_steps * trainer.args.gradient_accumulation_steps
    for tasks in played:  # 4 different tasks, the 4 attempts at each side by side
        assert tasks == [task for task in tasks[::4] for _ in range(4)]
        assert len(set(tasks)) == 4
    assert len({tuple(tasks) for tasks in played}) == len(set(seeds)) == len(played) > 1


@pytest.mark.parametrize("settings", [{}, {"merge_prompts": False}, {"muon_learning_rate": None}])
def test_equal_seeds_give_equal_curves(make_trainer: Trainers, settings: dict[str, Any], template: Any) -> None:
    from agentgym_flow.training.models import load_model

    def curve(seed: int) -> list[tuple[float, ...]]:
        trainer = make_trainer(model=load_model("tiny", template, seed=0), seed=seed, max_steps=4, **settings)
        trainer.train()
        names = ("loss", "grad_norm", "return", "turns", "entropy")
        return [tuple(log[name] for name in names) for log in trainer.state.log_history if "return" in log]

    first = curve(0)
    assert len(first) == 2
    assert curve(0) == first
    assert curve(1) != first


def test_the_weights_move_and_the_schedule_ends_where_it_should(make_trainer: Trainers, warm: tuple[Any, Any]) -> None:
    before = [p.detach().clone() for p in warm[0].parameters()]
    trainer = make_trainer(model=warm, max_steps=4, warmup_steps=0, final_lr_ratio=0.5)
    trainer.train()
    assert all(not torch.equal(a, b) for a, b in zip(before, warm[0].parameters(), strict=True))
    assert trainer.lr_scheduler.get_last_lr() == pytest.approx([0.0025, 0.0005])
    cosine = make_trainer(model=warm, lr_scheduler_type="cosine")
    cosine.train()
    assert cosine.lr_scheduler.get_last_lr()[0] == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"credit": "rewardflo"}, UnknownOption, "'rewardflow'"),
        ({"credit": "grpo", "credit_settings": {"gamma": 0.9}}, BadSetting, "has no setting 'gamma'"),
        ({"stop_when": "deadlocked"}, UnknownOption, "'deadlock'"),
        ({"final_lr_ratio": 0.1, "lr_scheduler_type": "cosine"}, BadSetting, "final_lr_ratio"),
        ({"loss_type": "cispo"}, BadSetting, "merge_prompts"),
        ({"loss_type": "grpo", "merge_prompts": False}, UnknownOption, "ignore padding"),
        ({"loss_type": "bnpo", "merge_prompts": False, "zero_advantage_share": 0.5}, BadSetting, "change the scale"),
        *(
            ({name: value, "merge_prompts": False}, BadSetting, f"{name} is for a part of TRL that is not used")
            for name, value in {
                "use_vllm": True,
                "top_p": 0.9,
                "scale_rewards": "batch",
                "log_completions": True,
                "resume_from_checkpoint": "runs/run",
                "eval_strategy": "steps",
            }.items()
        ),
        ({"optim": "sgd"}, BadSetting, "leave out optim='sgd'"),
        ({"credit_settings": "{gamma"}, BadSetting, "JSON"),
        ({"num_envs": 0}, BadSetting, "num_envs"),
        ({"beta": -0.1}, BadSetting, "beta must be a finite number"),
        ({"invalid_action_penalty": -1.0}, BadSetting, "invalid_action_penalty must be"),
        ({"layout": "conversations"}, UnknownOption, "'conversation'"),
        ({"layout": "conversation"}, BadSetting, "template 'compact' has no follow_up"),
    ],
)
def test_settings_that_cannot_work_are_refused(
    make_trainer: Trainers, settings: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        make_trainer(**settings)


def test_a_tokenizer_without_the_actions_is_refused(
    tiny: tuple[Any, Any], template: Any, make_env: Any, tmp_path: Path
) -> None:
    from agentgym_flow.training.tiny import tiny_model, word_tokenizer

    tokenizer = word_tokenizer(["up", "down"])
    with pytest.raises(BadSetting, match="cannot express the answer 'left'"):
        AgentTrainer(tiny_model(tokenizer), AgentConfig(output_dir=str(tmp_path)), tokenizer, template, make_env)


def test_training_that_diverges_says_so(make_trainer: Trainers, warm: tuple[Any, Any], tmp_path: Path) -> None:
    trainer = make_trainer(model=warm, max_steps=8, learning_rate=1e30)
    with pytest.raises(TrainingFailed):
        trainer.train()


def test_moved_members_of_trl_are_named() -> None:
    class Moved:
        def _generate_and_score_completions(self, inputs: Any) -> None: ...

        def _compute_loss(self, model: Any, inputs: Any, extra: Any) -> None: ...

    with pytest.raises(UnsupportedTRL, match=r"_compute_loss now takes \(self, model, inputs, extra\).*1\.16"):
        check_trl(Moved)
    del Moved._generate_and_score_completions
    with pytest.raises(UnsupportedTRL, match="_generate_and_score_completions is gone"):
        check_trl(Moved)
    batches, checkpoints = {"_generate_and_score_completions", "_compute_loss"}, {"_save_checkpoint"}
    sampled, neighbours = {"_get_per_token_logps_and_entropies"}, {"_prepare_inputs"}
    assert set(REQUIRED) == {*batches, *checkpoints, *sampled, *neighbours}


def test_without_trl_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "trl", None)
    monkeypatch.delitem(sys.modules, "agentgym_flow.training")
    with pytest.raises(MissingExtra, match=r"agentgym_flow\[train\]"):
        importlib.import_module("agentgym_flow.training")


def test_settings_made_later_leave_a_trainer_alone(make_trainer: Callable[..., AgentTrainer], tmp_path: Path) -> None:
    def state(trainer: AgentTrainer) -> list[Any]:
        names = ("device", "distributed_type", "num_processes", "process_index", "mixed_precision")
        return [getattr(trainer.accelerator, name) for name in names]

    first = make_trainer(max_steps=2)
    before = state(first)
    other = AgentConfig(output_dir=str(tmp_path / "other"), bf16=True, use_cpu=True)
    assert state(first) == before == [other.device, DistributedType.NO, 1, 0, "no"]
    second = make_trainer(bf16=True, use_cpu=True)
    assert state(second) == [*before[:-1], "bf16"]
    assert state(first) == before
    first.train()
    assert first.state.global_step == 2

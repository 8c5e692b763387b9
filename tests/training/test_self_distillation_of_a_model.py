"""Self-distillation of a real language model: what its teacher reads, that it comes closer to it, and resume."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from agentgym_flow.policies import PolicyInput
from agentgym_flow.prompts import CONVERSATION, LAYOUTS
from agentgym_flow.training import recipe
from agentgym_flow.training.callbacks import MetricsFile
from agentgym_flow.training.config_file import parse_configs
from agentgym_flow.training.rows import TrainingRow, rows
from agentgym_flow.training.trainer import AgentTrainer

pytestmark = pytest.mark.nightly

SETTINGS = {
    "env_id": "agentgym_flow/Sokoban-v0",
    "env_kwargs": {"size": 5, "max_steps": 2},
    "credit": "grpo",
    "lora": True,
    "dtype": "bfloat16",
    "threads": 1,
    "template": "text",
    "template_settings": {
        **{"think": False, "tags_required": False, "history": 0, "numbers_turns": False, "lists_actions": False},
        "rules": "You play Sokoban.",  # short prompts
    },
    "max_completion_length": 2,
    "warm_start_levels": 0,
    "num_generations": 4,
    "groups_per_batch": 2,
    "steps_per_batch": 1,
    "per_device_train_batch_size": 8,
    "max_steps": 2,
    "logging_steps": 1,
    "num_envs": 8,
    "eval_episodes": 2,
    "validations": 0,
    "learning_rate": 1e-4,
    "muon_learning_rate": "null",
    "warmup_steps": 0,
    "entropy_coef": 0,
    "opsd_weight": 1.0,
    "opsd_hint": "expert",
    "credit_weight": 0.0,  # distillation alone
    "save_strategy": "no",
}


def arguments(out: Path, model: Path, **settings: Any) -> list[str]:
    everything = {**SETTINGS, "model": model, "output_dir": out, **settings}
    return [f"--{name}={json.dumps(value) if isinstance(value, dict) else value}" for name, value in everything.items()]


def distributions(model: Any, prompt: Sequence[int], row: TrainingRow) -> torch.Tensor:
    """The log-probabilities of all tokens at the positions that the policy sampled."""
    with torch.no_grad():
        tokens = torch.tensor([[*prompt, *row.completion]])
        logits = model(input_ids=tokens, logits_to_keep=len(row.completion) + 1).logits[0, :-1]
    sampled = torch.tensor(row.sampled or [1] * len(row.completion)) > 0
    found: torch.Tensor = logits[sampled].double().log_softmax(-1)
    return found


def divergence(student: Sequence[torch.Tensor], teacher: Sequence[torch.Tensor]) -> float:
    """The exact reverse KL divergence of the next token, averaged over positions."""
    each = [(p.exp() * (p - q)).sum(-1) for p, q in zip(student, teacher, strict=True)]
    return float(torch.cat(each).mean())


def told_rows(trainer: AgentTrainer, layout: str) -> list[tuple[TrainingRow, Sequence[int]]]:
    """The rows of the last batch whose teacher has a hint, each with the teacher's prompt."""
    assert trainer.teacher is not None
    none = [[[0.0] * len(e.turns) for e in group] for group in trainer.groups]
    fixed, prompts = rows(trainer.groups, none, layout=layout), trainer.teacher.prompts(trainer.groups, slice(None))
    told: list[tuple[TrainingRow, Sequence[int]]]
    told = [(row, prompt) for row, prompt in zip(fixed, prompts, strict=True) if prompt is not None]
    assert len(told) > len(fixed) / 2
    return told


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_teacher_of_a_real_model_reads_the_hint_and_the_student_does_not(
    layout: str, language_model: Path, tmp_path: Path
) -> None:
    configs = parse_configs(arguments(tmp_path / "run", language_model, layout=layout))
    with recipe.open_run(configs, Console(file=io.StringIO())) as made:
        made.train()
        decode = made.tokenizer.decode
        hint = "An expert solves this task with:" if layout == CONVERSATION else "The next action of an expert is:"
        for row, prompt in told_rows(made.trainer, layout):
            assert decode(prompt).count(hint) == 1
            assert hint not in decode([*row.prompt, *row.completion])
            assert decode(prompt).endswith(decode(row.prompt).removeprefix("<bos>"))
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert len(records) == SETTINGS["max_steps"]
    for record in records:
        assert math.isfinite(record["loss"])
        assert 0 < record["grad_norm"] < math.inf
        assert record["opsd/hints"] > 0.5


def solved(policy_input: PolicyInput) -> str | None:
    """A hint that a base model follows: the same question with its answer."""
    action = policy_input.env.expert_action()
    asks = "Answer with exactly one action, and nothing else."
    return None if action is None else f"Example:\n{policy_input.observation}\n\n{asks}\n\n{action}"


def test_a_real_model_comes_closer_to_itself_with_a_hint(language_model: Path, tmp_path: Path) -> None:
    """The divergence from the teacher falls on fixed prompts: from the first teacher, and from the present one."""
    chosen = {"layout": "turn", "opsd_hint": f"{__name__}:solved", "max_steps": 6, "learning_rate": 5e-5}
    configs = parse_configs(arguments(tmp_path / "run", language_model, **chosen))
    with recipe.open_run(configs, Console(file=io.StringIO())) as made:
        made.trainer.make_batch()
        told = {tuple(row.prompt): (row, prompt) for row, prompt in told_rows(made.trainer, "turn")}.values()

        def measured() -> tuple[list[torch.Tensor], list[torch.Tensor]]:
            with made.trainer.frozen_model() as frozen:
                student = [distributions(frozen, row.prompt, row) for row, _ in told]
                return student, [distributions(frozen, prompt, row) for row, prompt in told]

        student, teacher = measured()
        made.train()
        later, teacher_now = measured()
    before, after, now = (divergence(*pair) for pair in ((student, teacher), (later, teacher), (later, teacher_now)))
    assert after < 0.95 * before
    assert now < before
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert records[-1]["opsd/log_ratio"] > 0.8 * records[0]["opsd/log_ratio"]


class Killed(BaseException):
    """Stands for the end of the process."""


def killed_at(step: int) -> Callable[..., None]:
    on_log = MetricsFile.on_log

    def log(self: MetricsFile, args: Any, state: Any, control: Any, **rest: Any) -> None:
        on_log(self, args, state, control, **rest)
        if state.global_step >= step:
            raise Killed

    return log


def test_resuming_self_distillation_of_a_real_model_equals_no_interruption(
    language_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = {"save_strategy": "steps", "save_steps": 1, "layout": "turn"}
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    screen = Console(file=io.StringIO())
    recipe.train(parse_configs(arguments(whole, language_model, **chosen)), screen)
    with monkeypatch.context() as patch:
        patch.setattr(MetricsFile, "on_log", killed_at(2))
        with pytest.raises(Killed):
            recipe.train(parse_configs(arguments(cut, language_model, **chosen)), screen)
    recipe.train(parse_configs(arguments(cut, language_model, **chosen, resume="true")), screen)
    first, second = (load_file(folder / "checkpoint" / "adapter_model.safetensors") for folder in (whole, cut))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert any(tensor.abs().sum() > 0 for name, tensor in first.items() if "lora_B" in name)

"""The algorithm in one file computes the trainer's loss, and runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="training needs the extra train")

import torch

from agentgym_flow.core import TextEnv
from agentgym_flow.envs import make_text_env
from agentgym_flow.episodes import Group
from agentgym_flow.play import EpisodeSpec, rollout_groups
from agentgym_flow.prompts import template_for
from agentgym_flow.rewards.credit import CREDIT, WEIGHTS
from agentgym_flow.rewards.credit.comparison import penalise_invalid
from agentgym_flow.training.loss import merged_loss
from agentgym_flow.training.rows import TrainingRow, collate_merged, merge, rows
from baselines import plain

SOKOBAN = "agentgym_flow/Sokoban-v0"


def test_the_file_can_be_read_at_once() -> None:
    assert len(Path(plain.__file__).read_text("utf-8").splitlines()) <= 250


def make() -> TextEnv:
    return make_text_env(SOKOBAN, size=5, boxes=1, max_steps=8, split="train")


@pytest.fixture(scope="module")
def played() -> tuple[plain.TinyPolicy, Sequence[Group]]:
    """A policy, and groups of which some attempts succeed and some fail."""
    torch.manual_seed(0)
    policy = plain.TinyPolicy(template_for(SOKOBAN, "compact"), 0)
    groups = rollout_groups(policy, make, [EpisodeSpec(task, task, 0) for task in range(40)], 6)
    mixed = [group for group in groups if len({one.success for one in group}) == 2]
    assert mixed, "something to compare"
    return policy, mixed


@pytest.mark.parametrize("algo", ["grpo", "rloo", "gigpo", "rewardflow", "cwrpo"])
def test_the_loss_is_that_of_the_trainer(played: tuple[plain.TinyPolicy, Sequence[Group]], algo: str) -> None:
    policy, groups = played
    turns = plain.with_advantages(algo, groups)
    # As if an earlier minibatch had moved the policy, so that some ratios are clipped.
    moved = [turn._replace(logprob=turn.logprob + 0.4 * (number % 3 - 1)) for number, turn in enumerate(turns)]
    mine = plain.loss_of(policy, moved)

    advantages = penalise_invalid(groups, CREDIT[algo](groups), plain.INVALID)
    weights = WEIGHTS[algo](groups) if algo in WEIGHTS else None
    same = rows(groups, advantages, weights=weights)
    shifted = [_with(row, turn.logprob) for row, turn in zip(same, moved, strict=True)]
    batch = collate_merged(merge(shifted), pad=policy.tokenizer.pad_token_id, multiple=1)
    found = merged_loss(policy.model, batch, temperature=1.0, epsilon_low=plain.CLIP_LOW, epsilon_high=plain.CLIP_HIGH)
    trainers = (found.policy - plain.ENTROPY * found.entropy) / found.turns
    assert mine.item() == pytest.approx(trainers.item(), rel=1e-5, abs=1e-6)
    assert found.clipped_low + found.clipped_high > 0

    gradients = []
    for loss in (mine, trainers):
        policy.model.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        gradients.append(torch.cat([weight.grad.flatten() for weight in policy.model.parameters()]))
    assert torch.allclose(gradients[0], gradients[1], rtol=1e-3, atol=1e-6)


def _with(row: TrainingRow, logprob: float) -> TrainingRow:
    return replace(row, logprobs=(logprob,))


def test_the_algorithm_in_one_file_clones_trains_and_reports(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--algo", "gigpo", "--batches", "1", "--updates", "2", "--tasks", "4"]
    assert plain.main([*words, "--env_kwargs", '{"size": 5, "boxes": 1, "max_steps": 5}']) == 0
    said = capsys.readouterr().out
    assert "cloned: sampled" in said
    assert "batch 1: success" in said
    assert "trained: sampled" in said


def test_the_usual_numbers_are_lowered_for_small_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for split in ("train", "test"):
        (tmp_path / split).mkdir()
        (tmp_path / split / "levels.xsb").write_text("######\n#@$. #\n######\n\n#####\n#.$@#\n#####\n")
    assert plain.main(["--batches", "1", "--updates", "2", "--env-arg", f"data={tmp_path}"]) == 0
    assert "trained: sampled" in capsys.readouterr().out

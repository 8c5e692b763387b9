"""Minibatches lose the columns in which all of their rows are padding, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from trl import GRPOTrainer

from agentgym_flow.training.rows import COMPLETION, Batch, MergedRow, TrainingRow, collate, collate_merged, trim_padding
from agentgym_flow.training.trainer import AgentTrainer

LONG = TrainingRow([5] * 9, [6] * 7, [-1.0] * 7, [1.0] * 7)
SHORT = TrainingRow([5] * 4, [6] * 3, [-1.0] * 3, [1.0] * 3)


def part(batch: Batch, rows: slice) -> Batch:
    return {name: tensor[rows] for name, tensor in batch.items()}


def test_a_minibatch_is_as_wide_as_if_it_had_been_collated_alone() -> None:
    whole = collate([LONG, SHORT, SHORT], pad=0, multiple=1)
    alone = collate([SHORT, SHORT], pad=0, multiple=1)
    cut = trim_padding(part(whole, slice(1, 3)))
    assert cut.keys() == alone.keys() == {"prompt_ids", "prompt_mask", *COMPLETION} - {"sampling_per_token_logps"}
    for name, tensor in cut.items():
        assert torch.equal(tensor, alone[name]), name


def test_merged_rows_keep_their_alternatives() -> None:
    rows = [MergedRow([5] * n, [6, 7], [-1.0] * 2, [1.0] * 2, [0.0] * 2, [1.0] * 2) for n in (9, 4)]
    whole = part(collate_merged(rows, pad=0, multiple=1), slice(1, 2))
    cut = trim_padding(whole)
    assert cut["prompt_ids"].shape == cut["prompt_mask"].shape == (1, 4)
    assert all(torch.equal(cut[name], whole[name]) for name in whole.keys() - {"prompt_ids", "prompt_mask"})


def test_a_minibatch_of_padding_rows_keeps_a_token() -> None:
    whole = collate([LONG], pad=0, multiple=2)
    cut = trim_padding(part(whole, slice(1, 2)))
    assert cut["prompt_mask"].sum() == 1
    assert cut["completion_mask"].sum() == 0
    assert cut["completion_ids"].shape == (1, 2)  # one column would mean something else to TRL


def test_the_trainer_pays_for_the_longest_row_of_a_minibatch_only(
    make_trainer: Callable[..., AgentTrainer], monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make_trainer(merge_prompts=False)
    seen: list[Batch] = []

    def loss(_: GRPOTrainer, __: Any, batch: Batch) -> torch.Tensor:
        seen.append(batch)
        return torch.zeros(())

    monkeypatch.setattr(GRPOTrainer, "_compute_loss", loss)
    trainer.loss(trainer.model, part(collate([LONG, SHORT], pad=0, multiple=2), slice(1, 2)))
    assert [batch["prompt_ids"].shape[1] + batch["completion_ids"].shape[1] for batch in seen] == [4 + 3]

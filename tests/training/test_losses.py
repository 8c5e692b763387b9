"""The loss of both kinds of rows against a plain PyTorch reference, and its invariances."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow.errors import TrainingFailed
from agentgym_flow.training.loss import PASS_COST, merged_loss, passes_by_length
from agentgym_flow.training.minibatch import FAILED_BATCH
from agentgym_flow.training.rows import TrainingRow, collate, collate_merged, merge, thin_rows
from agentgym_flow.training.trainer import AgentTrainer

LOW, HIGH, TEMPERATURE, ENTROPY, BETA = 0.2, 0.28, 0.7, 0.05, 0.1

Trainers = Callable[..., AgentTrainer]


def sampled_rows(model: Any, *, lengths: Sequence[int], count: int = 40, seed: int = 0) -> list[TrainingRow]:
    """Rows with few different prompts; old log-probabilities are off the model's by up to 0.6, so clipping acts."""
    generator = torch.Generator().manual_seed(seed)

    def below(n: int) -> int:
        return int(torch.randint(n, (), generator=generator))

    prompts = [[3 + below(100) for _ in range(4 + below(4))] for _ in range(6)]
    made, known = [], {}
    for _ in range(count):
        prompt = prompts[below(len(prompts))]
        completion = tuple(3 + below(3) for _ in range(lengths[below(len(lengths))]))
        key = (tuple(prompt), completion)
        if key not in known:  # one frozen policy: equal prompt and token, equal log-probability
            noise = torch.rand(len(completion), generator=generator) * 1.2 - 0.6
            known[key] = (token_logprobs(model, prompt, completion).detach()[0] + noise).tolist()
        advantages = tuple(float(a) for a in torch.randn(len(completion), generator=generator))
        made.append(TrainingRow(prompt, completion, known[key], advantages))
    return made


def conversations(model: Any, *, count: int = 12, seed: int = 1) -> list[TrainingRow]:
    """Rows with one to four answers of one to three tokens, and observations of two to four tokens between them."""
    generator = torch.Generator().manual_seed(seed)

    def below(n: int) -> int:
        return int(torch.randint(n, (), generator=generator))

    made = []
    for _ in range(count):
        prompt, sampled = [3 + below(100) for _ in range(4 + below(6))], []
        for turn in range(1 + below(4)):
            sampled += ([0] * (2 + below(3)) if turn else []) + [1] * (1 + below(3))
        completion = [3 + below(100) for _ in sampled]
        noise = torch.rand(len(sampled), generator=generator) * 1.2 - 0.6
        logprobs = (token_logprobs(model, prompt, completion).detach()[0] + noise) * torch.tensor(sampled)
        advantages = torch.randn(len(sampled), generator=generator) * torch.tensor(sampled)
        made.append(TrainingRow(prompt, completion, logprobs.tolist(), advantages.tolist(), sampled=sampled))
    return made


def token_logprobs(model: Any, prompt: Sequence[int], completion: Sequence[int]) -> torch.Tensor:
    """Return (log-probabilities, entropies) of the completion, shape (2, tokens): one row, no padding, no masks."""
    ids = torch.tensor([[*prompt, *completion]])
    logits = model(input_ids=ids).logits[0, len(prompt) - 1 : -1] / TEMPERATURE
    logprobs = logits.log_softmax(-1)
    chosen = logprobs[torch.arange(len(completion)), torch.tensor(completion)]
    return torch.stack([chosen, -(logprobs.exp() * logprobs).sum(-1)])


def reference(
    model: Any, batch: Sequence[TrainingRow], *, beta: float = 0.0, other: Any = None, corrected: bool = True
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Return loss and gradients, written out token by token: the mean over sampled tokens, weighted, of PPO's clipped
    objective plus entropy minus the KL estimate to `other`."""
    model.zero_grad()
    total, tokens = torch.zeros(()), 0.0
    for row in batch:
        logprobs, entropies = token_logprobs(model, row.prompt, row.completion)
        wanted = token_logprobs(other, row.prompt, row.completion)[0].detach() if beta else logprobs.detach()
        for i, sampled in enumerate(row.sampled or [1] * len(row.completion)):
            if not sampled:
                continue
            ratio = (logprobs[i] - row.logprobs[i]).exp()
            advantage = row.advantages[i]
            objective = torch.minimum(ratio * advantage, ratio.clamp(1 - LOW, 1 + HIGH) * advantage)
            kl = (wanted[i] - logprobs[i]).exp() - (wanted[i] - logprobs[i]) - 1
            kl = kl * ratio if corrected else kl
            total = total + row.weight * (objective + ENTROPY * entropies[i] - beta * kl)
            tokens += row.weight
    loss = -total / tokens
    loss.backward()
    return loss.detach(), gradients(model)


def gradients(model: Any) -> list[torch.Tensor]:
    return [parameter.grad.clone() for parameter in model.parameters()]


def tokens_of(batch: Sequence[TrainingRow]) -> float:
    return sum(row.weight * sum(row.sampled or [1] * len(row.completion)) for row in batch)


def trainer_loss(
    trainer: AgentTrainer, batches: Sequence[dict], items: float
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Return the summed loss of micro-batches and the gradients they leave."""
    model = trainer.model
    model.train()
    model.zero_grad()
    total = torch.zeros(())
    for batch in batches:
        loss = trainer.loss(model, {**batch, "num_items_in_batch": torch.tensor(float(items))})
        loss.backward()
        total = total + loss.detach()
    return total, gradients(model)


def assert_close(
    found: tuple[torch.Tensor, list[torch.Tensor]], expected: tuple[torch.Tensor, list[torch.Tensor]]
) -> None:
    torch.testing.assert_close(found[0], expected[0], rtol=1e-4, atol=1e-6)
    for a, b in zip(found[1], expected[1], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=2e-6)


def one_step_trainer(make_trainer: Trainers, **settings: Any) -> AgentTrainer:
    """A trainer that takes a batch in one step, with an entropy bonus."""
    made = make_trainer(
        epsilon=LOW,
        epsilon_high=HIGH,
        temperature=TEMPERATURE,
        entropy_coef=ENTROPY,
        steps_per_generation=1,
        per_device_train_batch_size=16,
        **settings,
    )
    made.current_gradient_accumulation_steps = 1
    return made


@pytest.fixture
def trainer(make_trainer: Trainers) -> AgentTrainer:
    return one_step_trainer(make_trainer)


def far_reference(trainer: AgentTrainer) -> Any:
    """Move the reference away from the policy, so that the KL term is not 0, and return its model."""
    assert trainer.reference is not None
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in trainer.reference.model.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator)
    return copy.deepcopy(trainer.reference.model)


def test_clipping_acts_in_the_test_data(trainer: AgentTrainer) -> None:
    batch = sampled_rows(trainer.model, lengths=[1])
    ratios = [
        math.exp(float(token_logprobs(trainer.model, row.prompt, row.completion)[0, 0].detach()) - row.logprobs[0])
        for row in batch
    ]
    assert any(r > 1 + HIGH and row.advantages[0] > 0 for r, row in zip(ratios, batch, strict=True))
    assert any(r < 1 - LOW and row.advantages[0] < 0 for r, row in zip(ratios, batch, strict=True))
    assert len(merge(batch)) < len(batch) / 4


@pytest.mark.parametrize("lengths", [[1], [1, 2, 4]])
@pytest.mark.parametrize("share", [False, True])
def test_rows_give_the_reference_loss_and_gradient(make_trainer: Trainers, lengths: list[int], share: bool) -> None:
    trainer = one_step_trainer(make_trainer, share_prefixes=share)
    batch = sampled_rows(trainer.model, lengths=lengths)
    items = sum(len(row.completion) for row in batch)
    expected = reference(trainer.model, batch)
    assert_close(trainer_loss(trainer, [collate(batch, pad=0, multiple=1)], items), expected)


def test_merged_rows_give_the_reference_loss_and_gradient(trainer: AgentTrainer) -> None:
    batch = sampled_rows(trainer.model, lengths=[1])
    expected = reference(trainer.model, batch)
    assert_close(trainer_loss(trainer, [collate_merged(merge(batch), pad=0, multiple=1)], len(batch)), expected)


def test_conversations_give_the_reference_loss_and_gradient(trainer: AgentTrainer) -> None:
    batch = [
        replace(row, weight=weight)
        for row, weight in zip(conversations(trainer.model), [1.0, 0.5, 2.0] * 4, strict=True)
    ]
    assert {0, 1} == {mask for row in batch for mask in row.sampled or ()}
    expected = reference(trainer.model, batch)
    assert_close(trainer_loss(trainer, [collate(batch, pad=0, multiple=1)], tokens_of(batch)), expected)


@pytest.mark.parametrize("kind", ["turns", "conversations", "merged"])
def test_a_share_of_the_silent_rows_has_the_gradient_of_all_on_average(make_trainer: Trainers, kind: str) -> None:
    """Entropy and KL of four rows without advantage, one of which stands for all: the mean over the four choices."""
    trainer = one_step_trainer(make_trainer, beta=BETA)
    far_reference(trainer)
    made = conversations(trainer.model) if kind == "conversations" else sampled_rows(trainer.model, lengths=[1])
    plain = [replace(row, advantages=[0.0] * len(row.advantages)) if n < 4 else row for n, row in enumerate(made[:12])]
    if kind == "merged":
        plain = [replace(row, prompt=[*row.prompt, 3 + number]) for number, row in enumerate(plain)]  # all different
    batch: Any = merge(plain) if kind == "merged" else plain
    items = tokens_of(plain)

    def found(rows: Any) -> tuple[torch.Tensor, list[torch.Tensor]]:
        tensors = (collate_merged if kind == "merged" else collate)(rows, pad=0, multiple=1)
        return trainer_loss(trainer, [tensors], items)

    parts = []
    for number in range(4):
        stream: Any = SimpleNamespace(uniform=lambda: 0.0, sample=lambda items, count, n=number: [items[n]] * count)
        parts.append(found(thin_rows(batch, 0.25, stream)))
    losses, of_parts = zip(*parts, strict=True)
    assert_close((sum(losses) / 4, [sum(same) / 4 for same in zip(*of_parts, strict=True)]), found(batch))


@pytest.mark.parametrize("corrected", [True, False])
@pytest.mark.parametrize("kind", ["turns", "conversations", "merged", "conversations as a tree"])
def test_the_kl_term_is_that_of_the_reference(make_trainer: Trainers, kind: str, corrected: bool) -> None:
    share = kind.endswith("tree")
    trainer = one_step_trainer(make_trainer, beta=BETA, use_bias_correction_kl=corrected, share_prefixes=share)
    other = far_reference(trainer)
    batch = (
        conversations(trainer.model)
        if kind.startswith("conversations")
        else sampled_rows(trainer.model, lengths=[1] if kind == "merged" else [1, 2, 4])
    )
    expected = reference(trainer.model, batch, beta=BETA, other=other, corrected=corrected)
    without = reference(trainer.model, batch)
    assert abs(expected[0] - without[0]) > 1e-3
    merged = kind == "merged"
    tensors = collate_merged(merge(batch), pad=0, multiple=1) if merged else collate(batch, pad=0, multiple=1)
    found = trainer_loss(trainer, [tensors], tokens_of(batch))
    assert_close(found, expected)
    assert trainer._metrics["train"]["kl"][-1] == pytest.approx(float((expected[0] - without[0]) / BETA), rel=1e-3)
    assert all(parameter.grad is None for parameter in trainer.reference.model.parameters())


def test_what_stands_at_observations_reaches_neither_loss_nor_gradient(make_trainer: Trainers) -> None:
    trainer = one_step_trainer(make_trainer, beta=BETA)
    far_reference(trainer)
    batch = conversations(trainer.model)
    spoilt = [
        replace(
            row,
            advantages=[a if s else 7.0 for a, s in zip(row.advantages, row.sampled or (), strict=True)],
            logprobs=[lp if s else -9.0 for lp, s in zip(row.logprobs, row.sampled or (), strict=True)],
        )
        for row in batch
    ]
    found, expected = (trainer_loss(trainer, [collate(b, pad=0, multiple=1)], tokens_of(b)) for b in (spoilt, batch))
    assert_close(found, expected)
    silent = [replace(row, sampled=[0] * len(row.completion)) for row in batch]
    loss, grads = trainer_loss(trainer, [collate(silent, pad=0, multiple=1)], 1)
    assert loss == 0
    assert all(not grad.any() for grad in grads)


@pytest.mark.parametrize("kind", ["turns", "conversations"])
@pytest.mark.parametrize("share", [False, True])
def test_order_padding_and_micro_batches_change_nothing(make_trainer: Trainers, kind: str, share: bool) -> None:
    trainer = one_step_trainer(make_trainer, beta=BETA, share_prefixes=share)
    far_reference(trainer)
    model = trainer.model
    batch = conversations(model) if kind == "conversations" else sampled_rows(model, lengths=[1, 2, 4], count=12)
    items = tokens_of(batch)
    expected = trainer_loss(trainer, [collate(batch, pad=0, multiple=1)], items)
    assert_close(trainer_loss(trainer, [collate(batch[::-1], pad=0, multiple=1)], items), expected)
    assert_close(trainer_loss(trainer, [collate(batch, pad=0, multiple=17)], items), expected)
    # Longer neighbours pad a row on both sides.
    long = TrainingRow([9] * 40, [9] * 30, [0.0] * 30, [0.0] * 30, weight=0.0)
    assert_close(trainer_loss(trainer, [collate([*batch, long], pad=0, multiple=1)], items), expected)
    for parts in (2, 5):  # 5 parts: one holds padding rows
        tensors = collate(batch, pad=0, multiple=parts)
        size = tensors["prompt_ids"].shape[0] // parts
        split = [{name: t[i * size : (i + 1) * size] for name, t in tensors.items()} for i in range(parts)]
        trainer.args.steps_per_generation = trainer.current_gradient_accumulation_steps = parts
        assert_close(trainer_loss(trainer, split, items), expected)


PINNED = {
    "turns": [-0.543738, -0.604985, -0.634251, -0.656727, -0.665092],
    "conversations": [-0.235409, -0.299194, -0.337893, -0.363792, -0.381820],
}
"""The losses of five steps of plain gradient descent on fixed rows, with all terms."""


@pytest.mark.parametrize("kind", list(PINNED))
def test_a_short_trajectory_is_pinned(make_trainer: Trainers, kind: str) -> None:
    trainer = one_step_trainer(make_trainer, beta=BETA)
    model = trainer.model
    batch = conversations(model) if kind == "conversations" else sampled_rows(model, lengths=[1, 2, 4], count=12)
    start = trainer.reference.model
    descent = torch.optim.SGD(model.parameters(), lr=0.005)
    tensors, losses = collate(batch, pad=0, multiple=1), []
    for _ in range(5):
        expected = reference(model, batch, beta=BETA, other=start)
        loss, _ = trainer_loss(trainer, [tensors], tokens_of(batch))
        torch.testing.assert_close(loss, expected[0], rtol=1e-4, atol=1e-6)
        losses.append(float(loss))
        descent.step()
    assert losses == pytest.approx(PINNED[kind], rel=1e-3), losses


@pytest.mark.parametrize("merged", [False, True])
def test_weights_scale_rows_in_the_sum_and_in_the_mean(trainer: AgentTrainer, merged: bool) -> None:
    batch = sampled_rows(trainer.model, lengths=[1])
    batch = [replace(row, weight=0.5 + number % 3) for number, row in enumerate(batch)]
    expected = reference(trainer.model, batch)
    tensors = collate_merged(merge(batch), pad=0, multiple=1) if merged else collate(batch, pad=0, multiple=1)
    assert_close(trainer_loss(trainer, [tensors], sum(row.weight for row in batch)), expected)


@pytest.mark.parametrize("merged", [False, True])
def test_padding_rows_change_nothing(trainer: AgentTrainer, merged: bool) -> None:
    batch = sampled_rows(trainer.model, lengths=[1])
    one = collate_merged(merge(batch), pad=0, multiple=1) if merged else collate(batch, pad=0, multiple=1)
    many = collate_merged(merge(batch), pad=0, multiple=64) if merged else collate(batch, pad=0, multiple=64)
    assert many["prompt_ids"].shape[0] == 64 > one["prompt_ids"].shape[0]
    assert_close(trainer_loss(trainer, [many], len(batch)), trainer_loss(trainer, [one], len(batch)))


@pytest.mark.parametrize("merged", [False, True])
def test_the_order_of_rows_changes_nothing(trainer: AgentTrainer, merged: bool) -> None:
    batch = sampled_rows(trainer.model, lengths=[1])
    mixed = batch[::-3] + batch[-2::-3] + batch[-3::-3]
    assert len(mixed) == len(batch)
    losses = []
    for order in (batch, mixed):
        tensors = collate_merged(merge(order), pad=0, multiple=1) if merged else collate(order, pad=0, multiple=1)
        losses.append(trainer_loss(trainer, [tensors], len(batch)))
    assert_close(*losses)


def test_micro_batches_of_an_accumulated_step_add_up(trainer: AgentTrainer) -> None:
    batch = sampled_rows(trainer.model, lengths=[1])
    whole = collate_merged(merge(batch), pad=0, multiple=4)
    size = whole["prompt_ids"].shape[0] // 4
    parts = [{name: tensor[i * size : (i + 1) * size] for name, tensor in whole.items()} for i in range(4)]
    expected = trainer_loss(trainer, [whole], len(batch))
    trainer.args.steps_per_generation = trainer.current_gradient_accumulation_steps = 4
    assert_close(trainer_loss(trainer, parts, len(batch)), expected)


def test_left_padding_does_not_shift_positions(trainer: AgentTrainer) -> None:
    row = sampled_rows(trainer.model, lengths=[1], count=1)[0]
    longer = TrainingRow([9] * 30, row.completion, [-1.0], (0.0,))
    alone = trainer_loss(trainer, [collate_merged(merge([row]), pad=0, multiple=1)], 1)
    padded = collate_merged(merge([row, longer]), pad=0, multiple=1)
    padded = {name: tensor[:1] for name, tensor in padded.items()}
    assert padded["prompt_mask"].sum() < padded["prompt_mask"].numel()
    assert_close(trainer_loss(trainer, [padded], 1), alone)


@pytest.mark.parametrize("merged", [False, True])
def test_a_loss_that_is_no_number_stops_training_and_saves_the_batch(
    trainer: AgentTrainer, merged: bool, tmp_path: Any
) -> None:
    batch = sampled_rows(trainer.model, lengths=[1], count=4)
    tensors = collate_merged(merge(batch), pad=0, multiple=1) if merged else collate(batch, pad=0, multiple=1)
    with torch.no_grad():
        trainer.model.transformer.wte.weight[3:].fill_(math.nan)
    with pytest.raises(TrainingFailed, match="muon_learning_rate"):
        trainer_loss(trainer, [tensors], 4)
    saved = torch.load(tmp_path / "trainer" / FAILED_BATCH)
    torch.testing.assert_close(saved["prompt_ids"], tensors["prompt_ids"])


def test_an_empty_batch_is_filled_up_with_padding() -> None:
    assert collate([], pad=0, multiple=3)["completion_mask"].tolist() == [[0]] * 3
    assert collate_merged([], pad=0, multiple=3)["weights"].tolist() == [[0.0]] * 3
    row = TrainingRow([5], [7], [-1.0], [1.0])
    for count, least, filled in [(1, 0, 3), (3, 0, 3), (3, 4, 6), (0, 4, 6), (4, 2, 6)]:
        assert len(collate([row] * count, pad=0, multiple=3, least=least)["prompt_ids"]) == filled
        assert len(collate_merged(merge([row]) * count, pad=0, multiple=3, least=least)["prompt_ids"]) == filled


def test_collation_pads_prompts_left_and_completions_right() -> None:
    batch = [TrainingRow([5], [7, 8], [-1.0, -2.0], [1.0, 2.0], weight=0.5), TrainingRow([5, 6], [9], [-3.0], [4.0])]
    tensors = {name: tensor.tolist() for name, tensor in collate(batch, pad=0, multiple=2).items()}
    assert tensors == {
        "prompt_ids": [[0, 5], [5, 6]],
        "prompt_mask": [[0, 1], [1, 1]],
        "completion_ids": [[7, 8], [9, 0]],
        "completion_mask": [[1, 1], [1, 0]],
        "tool_mask": [[0.5, 0.5], [1.0, 0.0]],
        "advantages": [[1.0, 2.0], [4.0, 0.0]],
        "old_per_token_logps": [[-1.0, -2.0], [-3.0, 0.0]],
    }


def test_passes_by_length_change_nothing_but_the_padding(trainer: AgentTrainer) -> None:
    """Prompts of 4 to 60 tokens: the same loss and gradients as in one pass, and at most a tenth of it is padding."""
    generator = torch.Generator().manual_seed(5)
    lengths = torch.randint(4, 60, (300,), generator=generator).tolist()
    made = [
        TrainingRow(torch.randint(3, 100, (length,), generator=generator).tolist(), [3 + n % 3], [-1.0], [(-1.0) ** n])
        for n, length in enumerate(lengths)
    ]
    batch = collate_merged(merge(made), pad=0, multiple=1)

    def found(by_length: bool) -> tuple[torch.Tensor, list[torch.Tensor]]:
        trainer.model.zero_grad()
        sums = merged_loss(
            trainer.model, batch, temperature=TEMPERATURE, epsilon_low=LOW, epsilon_high=HIGH, by_length=by_length
        )
        (sums.policy - ENTROPY * sums.entropy).backward()
        return torch.stack(sums[:4]).detach(), [p.grad for p in trainer.model.parameters() if p.grad is not None]

    (one, gradients), (split, same) = found(False), found(True)
    torch.testing.assert_close(split, one, rtol=1e-5, atol=1e-4)
    for of_one, of_split in zip(gradients, same, strict=True):
        torch.testing.assert_close(of_split, of_one, rtol=1e-3, atol=1e-4)
    passes = passes_by_length(batch["prompt_mask"].sum(1))
    assert sorted(torch.cat([rows for rows, _ in passes]).tolist()) == list(range(300))
    tokens = int(batch["prompt_mask"].sum())
    assert tokens / sum(len(rows) * width for rows, width in passes) > 0.85


@given(st.lists(st.integers(0, 90), min_size=1, max_size=9))
def test_no_other_split_by_length_costs_less(lengths: list[int]) -> None:
    """Against all ways to cut the sorted prompts."""

    def cost(parts: Iterable[Sequence[int]]) -> int:
        return sum(PASS_COST["cpu"] + len(part) * max(1, *part, 0) for part in parts)

    ordered = sorted(lengths)
    cuts = [
        [ordered[first:last] for first, last in pairwise([0, *inner, len(ordered)])]
        for count in range(len(ordered))
        for inner in combinations(range(1, len(ordered)), count)
    ]
    passes = passes_by_length(torch.tensor(lengths))
    assert all(width == max(1, *(lengths[row] for row in rows), 0) for rows, width in passes)
    assert cost([[lengths[row] for row in rows] for rows, _ in passes]) == min(map(cost, cuts))

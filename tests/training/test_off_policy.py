"""The decoupled objective: turns of older weights or of another program, against formulas and against plain batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow.episodes import Episode, Group
from agentgym_flow.errors import BadSetting, UnknownOption
from agentgym_flow.training.config import AgentConfig
from agentgym_flow.training.group_source import GroupBatch, GroupSource
from agentgym_flow.training.loss import batch_logprobs
from agentgym_flow.training.off_policy import MODES, Bounds, Mismatch, corrected
from agentgym_flow.training.rows import TrainingRow, collate, collate_merged, merge
from agentgym_flow.training.trainer import AgentTrainer

pytestmark = pytest.mark.usefixtures("narrow")

Trainers = Callable[..., AgentTrainer]

logprob = st.floats(-4.0, -0.01)


def answers(data: st.DataObject, rows: int, longest: int) -> tuple[list[TrainingRow], list[list[float]]]:
    """Draw rows, and the log-probabilities that the model in training gives to their tokens."""
    drawn, proximal = [], []
    for _ in range(rows):
        length = data.draw(st.integers(1, longest))
        numbers = st.lists(logprob, min_size=length, max_size=length)
        tokens = data.draw(st.lists(st.integers(3, 6), min_size=length, max_size=length))
        advantages = data.draw(st.lists(st.sampled_from([-1.5, -0.5, 0.0, 1.0]), min_size=length, max_size=length))
        weight = data.draw(st.sampled_from([1.0, 0.5]))
        drawn.append(TrainingRow([data.draw(st.integers(0, 1))], tokens, data.draw(numbers), advantages, weight))
        proximal.append(data.draw(numbers))
    return drawn, proximal


def padded(values: Sequence[Sequence[float]], like: torch.Tensor) -> torch.Tensor:
    found = torch.full_like(like, 7.0)  # padding must not matter
    for row, of_row in enumerate(values):
        found[row, : len(of_row)] = torch.tensor(of_row)
    return found


def by_hand(rows: Sequence[TrainingRow], proximal: Sequence[Sequence[float]], bounds: Bounds) -> list[list[float]]:
    """Return the weight of every token."""
    found = []
    for row, near in zip(rows, proximal, strict=True):
        ratios = [math.exp(p - q) for p, q in zip(near, row.logprobs, strict=True)]
        if bounds.mode.startswith("sequence"):
            ratios = [math.exp(math.fsum(near) - math.fsum(row.logprobs))] * len(ratios)
        low = -math.inf if bounds.low is None else bounds.low
        high = math.inf if bounds.high is None else bounds.high
        if bounds.mode.endswith("mask"):
            found.append([ratio if low <= ratio <= high else 0.0 for ratio in ratios])
        else:
            found.append([min(max(ratio, low), high) for ratio in ratios])
    return found


@given(st.data(), st.sampled_from(MODES), st.sampled_from([(None, 3.0), (0.5, 2.0), (0.8, None), (None, None)]))
def test_weights_and_figures_are_those_worked_out_by_hand(
    data: st.DataObject, mode: str, limits: tuple[float | None, float | None]
) -> None:
    rows, proximal = answers(data, 3, 4)
    bounds = Bounds(mode, *limits)
    batch = collate(rows, pad=0, multiple=4)  # one row is filling
    near = padded(proximal, batch["advantages"])
    found, mismatch = corrected(batch, near, bounds)
    weights = by_hand(rows, proximal, bounds)
    for row, of_row in enumerate(weights):
        expected = [w * a for w, a in zip(of_row, rows[row].advantages, strict=True)]
        assert found["advantages"][row, : len(of_row)].tolist() == pytest.approx(expected, rel=1e-4, abs=1e-6)
        assert found["old_per_token_logps"][row, : len(of_row)].tolist() == pytest.approx(proximal[row])
        assert found["sampling_per_token_logps"][row, : len(of_row)].tolist() == pytest.approx(rows[row].logprobs)
    tokens = [
        (row.weight, math.exp(p - q))
        for row, of_row in zip(rows, proximal, strict=True)
        for p, q in zip(of_row, row.logprobs, strict=True)
    ]
    count = math.fsum(w for w, _ in tokens)
    mean = math.fsum(w * r for w, r in tokens)
    size = mean**2 / (count * math.fsum(w * r**2 for w, r in tokens))
    metrics = mismatch.metrics()
    assert metrics["importance/ratio"] == pytest.approx(mean / count, rel=1e-4)
    assert metrics["importance/ratio_max"] == pytest.approx(max(r for _, r in tokens), rel=1e-4)
    kl = math.fsum(w * (r - 1 - math.log(r)) for w, r in tokens) / count
    assert metrics["importance/kl"] == pytest.approx(kl, rel=1e-3, abs=1e-5)
    assert metrics["importance/effective_sample_size"] == pytest.approx(size, rel=1e-4)
    assert 0 < size <= 1 + 1e-6
    raw = by_hand(rows, proximal, Bounds(mode, None, None))
    limited = math.fsum(
        row.weight
        for row, free, kept in zip(rows, raw, weights, strict=True)
        for before, after in zip(free, kept, strict=True)
        if before != after
    )
    assert metrics["importance/clipped"] == pytest.approx(limited / count)


@given(st.data(), st.sampled_from(MODES))
def test_merged_rows_are_weighed_as_the_rows_they_stand_for(data: st.DataObject, mode: str) -> None:
    rows, _ = answers(data, 6, 1)
    near = {(row.prompt[0], row.completion[0]): -0.3 * row.completion[0] for row in rows}  # one model, one number
    bounds = Bounds(mode, 0.5, 2.0)
    plain = collate(rows, pad=0, multiple=1)
    plain_near = torch.tensor([[near[row.prompt[0], row.completion[0]]] for row in rows])
    together = merge(rows)
    merged = collate_merged(together, pad=0, multiple=1)
    merged_near = padded([[near[row.prompt[0], token] for token in row.tokens] for row in together], merged["positive"])
    one, of_plain = corrected(plain, plain_near, bounds)
    other, of_merged = corrected(merged, merged_near, bounds)
    advantages = one["advantages"] * one["tool_mask"]
    assert float(other["positive"].sum()) == pytest.approx(float(advantages.clamp(min=0).sum()), rel=1e-4, abs=1e-6)
    assert float(other["negative"].sum()) == pytest.approx(float(advantages.clamp(max=0).sum()), rel=1e-4, abs=1e-6)
    assert of_merged.metrics() == pytest.approx(of_plain.metrics(), rel=1e-4, abs=1e-6)


def test_a_batch_without_tokens_has_no_figures() -> None:
    batch = collate([], pad=0, multiple=2)
    _, mismatch = corrected(batch, torch.zeros_like(batch["advantages"]), Bounds())
    assert mismatch == Mismatch(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    assert mismatch.metrics() == {}


def test_a_mode_that_there_is_not_is_refused() -> None:
    with pytest.raises(UnknownOption, match="token_truncate"):
        AgentConfig(output_dir="unused", vllm_importance_sampling_mode="token_clip")


# ---------------------------------------------------------------- in the trainer
class Late:
    """A source whose groups were all played before training: batch n is said to be of version `versions[n]`."""

    exact = True

    def __init__(self, source: GroupSource, batches: Sequence[GroupBatch], versions: Sequence[int]) -> None:
        self._source, self._batches, self._versions = source, batches, versions

    def take(self, batch: int, version: int) -> GroupBatch:
        taken = self._batches[batch]
        groups = [Group([self._dated(e, self._versions[batch]) for e in group]) for group in taken.groups]
        return GroupBatch(groups, groups, {})

    def _dated(self, episode: Episode, version: int) -> Episode:
        turns = [replace(turn, output=replace(turn.output, version=version)) for turn in episode.turns]
        return replace(episode, turns=turns)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Any) -> None:
        assert not state

    def close(self) -> None:
        self._source.close()


@pytest.mark.parametrize("merge_prompts", [True, False])
def test_a_late_batch_is_trained_on_with_the_decoupled_objective(
    make_trainer: Trainers, make_warm: Callable[[], Any], merge_prompts: bool
) -> None:
    one_step = {"steps_per_generation": 1, "per_device_train_batch_size": 16}
    trainer = make_trainer(model=make_warm(), merge_prompts=merge_prompts, credit="grpo", **one_step)
    trainer.current_gradient_accumulation_steps = 1
    played = trainer.source.take(0, 0)
    plain = trainer.make_batch()  # batch 1, by the model itself
    assert not any(name.startswith(("importance", "staleness")) for name in trainer._metrics["train"])
    with torch.no_grad():
        for parameter in trainer.model.parameters():
            parameter += 0.02 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    trainer.state.global_step = 6
    trainer.source = Late(trainer.source, [played, played], [2, 4])
    trainer.played.batches = 0
    batch = trainer.make_batch()
    metrics = {name: values[-1] for name, values in trainer._metrics["train"].items()}
    assert (metrics["staleness"], metrics["staleness_max"]) == (4.0, 4)
    assert 0.1 < metrics["importance/effective_sample_size"] < 0.999
    assert metrics["importance/kl"] > 1e-4
    assert metrics["importance/ratio_max"] > 1.05
    old = "old_logprobs" if merge_prompts else "old_per_token_logps"
    assert set(batch) - set(plain) == {"sampling_logprobs" if merge_prompts else "sampling_per_token_logps"}

    # The model has not moved since the batch was made, so nothing is clipped: the gradient is that of the importance
    # weighted policy gradient, with the sampled tokens' ratios cut off at 3.
    trainer._metrics["train"].pop("sampling_gap", None)
    loss = trainer.loss(trainer.model, batch)
    ratios, sums = [], 0.0
    for group, of_group in zip(trainer.groups, trainer.credit(trainer.groups), strict=True):
        for episode, of_episode in zip(group, of_group, strict=True):
            for turn, advantage in zip(episode.turns, of_episode, strict=True):
                ids = torch.tensor([list(turn.output.prompt_ids)])
                logits = trainer.model(input_ids=ids).logits[0, -1].detach()
                near = torch.log_softmax(logits, -1)[turn.output.completion_ids[0]]
                ratios.append(float((near - turn.output.logprobs[0]).exp()))
                sums += min(ratios[-1], 3.0) * advantage
    assert metrics["importance/ratio"] == pytest.approx(sum(ratios) / len(ratios), rel=1e-3)
    assert float(loss.detach()) == pytest.approx(-sums / len(ratios), rel=1e-3, abs=1e-5)
    assert batch[old].isfinite().all()
    (gap,) = trainer._metrics["train"]["sampling_gap"]  # from the sampling policy, not from the one that replaces it
    assert gap == pytest.approx(sum(abs(math.log(ratio)) for ratio in ratios) / len(ratios), rel=1e-3)


def test_turns_of_the_version_in_training_are_left_as_they_are(
    make_trainer: Trainers, make_warm: Callable[[], Any]
) -> None:
    def weights(late: bool) -> list[torch.Tensor]:
        trainer = make_trainer(model=make_warm(), max_steps=2)
        if late:
            trainer.source = Late(trainer.source, [trainer.source.take(0, 0)], [0])
        trainer.train()
        return [parameter.detach() for parameter in trainer.model.parameters()]

    for one, other in zip(weights(False), weights(True), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("settings", [{"loss_type": "vespo"}, {"vllm_importance_sampling_correction": False}])
def test_where_nothing_is_to_be_corrected_the_sampled_log_probabilities_stay(
    make_trainer: Trainers, make_warm: Callable[[], Any], settings: dict[str, Any]
) -> None:
    trainer = make_trainer(model=make_warm(), merge_prompts=False, **settings)
    plain = trainer.make_batch()
    played = [GroupBatch(trainer.groups, trainer.groups, {})] * 2
    trainer.source = Late(trainer.source, played, [-1, -1])
    late = trainer.make_batch()
    assert late.keys() == plain.keys()
    assert all(torch.equal(late[name], plain[name]) for name in plain)
    assert trainer._metrics["train"]["staleness"] == [1.0]


def test_wide_rows_of_one_pass_are_not_paid_for_by_the_others(
    make_trainer: Trainers, make_warm: Callable[[], Any]
) -> None:
    model, _ = make_warm()
    rows = [TrainingRow([3] * 20, [4, 5, 6], [0.0] * 3, [1.0] * 3), *[TrainingRow([5, 7], [4], [0.0], [1.0])] * 3]
    batch = collate(rows, pad=0, multiple=1)
    whole = batch_logprobs(model, batch, 1.0, 4)
    widths: list[int] = []
    hook = model.register_forward_pre_hook(
        lambda _, __, kwargs: widths.append(kwargs["input_ids"].shape[1]), with_kwargs=True
    )
    parts = batch_logprobs(model, batch, 1.0, 1)
    hook.remove()
    assert widths == [23, 4, 4, 4]
    torch.testing.assert_close(parts * batch["completion_mask"], whole * batch["completion_mask"], rtol=1e-4, atol=1e-5)


def test_bfloat16_is_corrected_for(make_trainer: Trainers, make_warm: Callable[[], Any]) -> None:
    exact = {bf16: make_trainer(model=make_warm(), bf16=bf16, use_cpu=True).source.exact for bf16 in (False, True)}
    assert exact == {False: True, True: False}


def test_what_only_the_own_rollout_reads_is_refused_with_another_source(
    make_trainer: Trainers, make_warm: Callable[[], Any], make_env: Any, template: Any
) -> None:
    trainer = make_trainer(model=make_warm(), replay_share=0.5)
    with pytest.raises(BadSetting, match="replay_share"):
        AgentTrainer(*make_warm()[:1], trainer.args, make_warm()[1], template, make_env, source=trainer.source)


def test_a_second_training_samples_from_the_weights_of_the_first(
    make_trainer: Trainers, make_warm: Callable[[], Any]
) -> None:
    trainer = make_trainer(model=make_warm(), max_steps=2, learning_rate=0.0, muon_learning_rate=None)
    trainer.train()
    before = {
        turn.output.prompt_ids: turn.output.logprobs for group in trainer.groups for e in group for turn in e.turns
    }
    with torch.no_grad():
        for parameter in trainer.model.parameters():
            parameter += 0.02 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    trainer.played.batches = 0
    trainer.train()
    turns = [turn for group in trainer.groups for e in group for turn in e.turns]
    assert {turn.output.version for turn in turns} == {0}
    assert all(before.get(turn.output.prompt_ids) != turn.output.logprobs for turn in turns)


def test_a_generator_that_computes_otherwise_is_corrected_for(
    make_trainer: Trainers, make_warm: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make_trainer(model=make_warm(), merge_prompts=False)
    monkeypatch.setattr(trainer.policy.generator, "exact", False)
    trainer.make_batch()
    metrics = {name: values[-1] for name, values in trainer._metrics["train"].items()}
    assert metrics["staleness_max"] == 0
    assert metrics["importance/ratio"] == pytest.approx(1.0, abs=1e-4)  # it is the same program after all
    assert metrics["importance/effective_sample_size"] == pytest.approx(1.0, abs=1e-4)

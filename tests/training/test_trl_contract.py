"""What `RowTrainer` relies on in TRL, held by behaviour: a release that acts differently fails a test with a name.

The trainer here gets its batches from the test. Expected values are worked out in float64 from the logits of single
rows without padding; nothing of TRL takes part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from datasets import Dataset

from agentgym_flow.errors import UnsupportedTRL
from agentgym_flow.training import _trl
from agentgym_flow.training._trl import RowTrainer
from agentgym_flow.training.config import AgentConfig

LOW, HIGH, TEMPERATURE = 0.2, 0.28, 0.7
TASKS, GROUP = 6, 4

Batch = dict[str, torch.Tensor]


class Token(NamedTuple):
    """One completion token as a test writes it down; `off` is the old log-probability minus the present one."""

    id: int
    advantage: float
    off: float
    mask: float = 1.0


ROWS: list[tuple[list[int], list[Token]]] = [
    ([5, 9, 11], [Token(3, 1.0, 0.0), Token(4, -2.0, 0.1)]),
    # Clipped from above, from below, and both ratios again where the sign of the advantage forbids clipping.
    ([8], [Token(5, 1.5, -0.9), Token(6, -0.5, 0.8), Token(3, -1.0, -0.7), Token(7, 2.0, 0.6)]),
    # Seen but not sampled, and a row of half weight.
    ([4, 4, 30, 12, 9], [Token(9, 7.0, 0.5, mask=0.0), Token(6, 0.25, -0.1, mask=0.5), Token(4, -3.0, 0.2, mask=0.5)]),
    ([17, 6], [Token(8, 0.75, 0.05)]),
]


class Given(RowTrainer):
    """Trains on the batches of a test and notes the micro-batches that reach the loss."""

    def __init__(self, args: AgentConfig, batch: Batch | None = None, **kwargs: Any) -> None:
        tasks = Dataset.from_dict({"prompt": [""] * TASKS, "task": list(range(TASKS))})
        super().__init__(args, train_dataset=tasks, **kwargs)
        self.given = batch or {}
        self.made = 0
        self.seen: list[Batch] = []

    def make_batch(self) -> Batch:
        self.made += 1
        self.record({"batches/made": float(self.made)})
        return self.given

    def loss(self, model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        self.seen.append(batch)
        return super().loss(model, batch)


Trainers = Callable[..., Given]


@pytest.fixture
def given(tmp_path: Path, tiny: tuple[Any, Any]) -> Trainers:
    """Makes a trainer that takes a batch in one step; keywords change settings, or give a `batch`."""

    def make(batch: Batch | None = None, **settings: Any) -> Given:
        chosen = {
            "output_dir": str(tmp_path / "run"),
            "num_generations": GROUP,
            "per_device_train_batch_size": GROUP,
            "steps_per_generation": 1,
            "max_steps": 2,
            "logging_steps": 1,
            "merge_prompts": False,
            "max_completion_length": 4,
            "temperature": TEMPERATURE,
            "epsilon": LOW,
            "epsilon_high": HIGH,
            **settings,
        }
        made = Given(AgentConfig(**chosen), batch, model=tiny[0], processing_class=tiny[1])
        made.current_gradient_accumulation_steps = made.args.gradient_accumulation_steps  # as in the training loop
        made.model.train()
        return made

    return make


def logprobs(model: Any, prompt: list[int], tokens: list[Token]) -> list[tuple[float, float]]:
    """Return (log-probability, entropy) of each token, in float64: one row, no padding."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([[*prompt, *(token.id for token in tokens)]])).logits[0].double()
    found = []
    for token, scores in zip(tokens, logits[len(prompt) - 1 : -1].tolist(), strict=True):
        tempered = [score / TEMPERATURE for score in scores]
        log_sum = math.log(math.fsum(math.exp(score) for score in tempered))
        every = [score - log_sum for score in tempered]
        found.append((every[token.id], -math.fsum(math.exp(p) * p for p in every)))
    return found


def tensors(model: Any, rows: list[tuple[list[int], list[Token]]] = ROWS, items: float | None = None) -> Batch:
    """Return `rows` as a batch; the reference gives every token a log-probability 0.3 below the policy's."""
    prompts, answers = max(len(p) for p, _ in rows), max(len(c) for _, c in rows)
    batch = {name: torch.zeros(len(rows), prompts, dtype=torch.long) for name in ("prompt_ids", "prompt_mask")}
    batch |= {name: torch.zeros(len(rows), answers, dtype=torch.long) for name in ("completion_ids", "completion_mask")}
    names = ("tool_mask", "advantages", "old_per_token_logps", "ref_per_token_logps")
    batch |= {name: torch.zeros(len(rows), answers) for name in names}
    for row, (prompt, tokens) in enumerate(rows):
        batch["prompt_ids"][row, prompts - len(prompt) :] = torch.tensor(prompt)
        batch["prompt_mask"][row, prompts - len(prompt) :] = 1
        batch["completion_mask"][row, : len(tokens)] = 1
        for place, (token, (logprob, _)) in enumerate(zip(tokens, logprobs(model, prompt, tokens), strict=True)):
            batch["completion_ids"][row, place] = token.id
            batch["tool_mask"][row, place] = token.mask
            batch["advantages"][row, place] = token.advantage
            batch["old_per_token_logps"][row, place] = logprob + token.off
            batch["ref_per_token_logps"][row, place] = logprob - 0.3
    batch["num_items_in_batch"] = torch.tensor(float(batch["tool_mask"].sum()) if items is None else items)
    return batch


def every_token(rows: list[tuple[list[int], list[Token]]] = ROWS) -> Iterator[Token]:
    return (token for _, tokens in rows for token in tokens)


def objective(token: Token) -> float:
    """PPO's clipped objective of one token (Schulman et al., 2017)."""
    ratio = math.exp(-token.off)
    return min(ratio * token.advantage, min(max(ratio, 1 - LOW), 1 + HIGH) * token.advantage)


TOKENS = math.fsum(token.mask for token in every_token())
BY_HAND = -math.fsum(token.mask * objective(token) for token in every_token()) / TOKENS


def metrics(trainer: RowTrainer) -> Mapping[str, list[float]]:
    found: Mapping[str, list[float]] = trainer._metrics["train"]
    return found


def test_the_loss_is_what_can_be_worked_out_by_hand(given: Trainers) -> None:
    trainer = given()
    loss = trainer._compute_loss(trainer.model, tensors(trainer.model))
    assert loss.item() == pytest.approx(BY_HAND, rel=1e-5)


def test_the_gradient_is_that_of_the_tokens_not_clipped(given: Trainers) -> None:
    trainer = given()
    trainer._compute_loss(trainer.model, tensors(trainer.model)).backward()
    found = [parameter.grad.clone() for parameter in trainer.model.parameters()]
    trainer.model.zero_grad()
    for prompt, tokens in ROWS:
        logits = trainer.model(input_ids=torch.tensor([[*prompt, *(token.id for token in tokens)]])).logits[0]
        every = (logits[len(prompt) - 1 : -1] / TEMPERATURE).log_softmax(-1)
        for place, token in enumerate(tokens):
            ratio = math.exp(-token.off)
            clipped = ratio > 1 + HIGH if token.advantage > 0 else ratio < 1 - LOW
            if not clipped and token.mask:  # the derivative of the ratio is the ratio times that of the log-probability
                (-token.mask / TOKENS * token.advantage * ratio * every[place, token.id]).backward(retain_graph=True)
    for mine, expected in zip(found, trainer.model.parameters(), strict=True):
        torch.testing.assert_close(mine, expected.grad, rtol=1e-3, atol=2e-6)


@pytest.mark.parametrize(("row", "place"), [(0, 0), (1, 2), (2, 1), (3, 0)])
def test_every_token_has_its_own_advantage(given: Trainers, row: int, place: int) -> None:
    trainer, token = given(), ROWS[row][1][place]
    batch = tensors(trainer.model)
    batch["advantages"][row, place] += 0.125
    moved = objective(token._replace(advantage=token.advantage + 0.125)) - objective(token)
    loss = trainer._compute_loss(trainer.model, batch)
    assert moved
    assert loss.item() == pytest.approx(BY_HAND - token.mask * moved / TOKENS, rel=1e-5)


def test_tokens_that_were_not_sampled_reach_neither_loss_nor_metrics(given: Trainers) -> None:
    trainer = given(beta=0.1)
    batch = tensors(trainer.model)
    first = trainer._compute_loss(trainer.model, batch)
    hidden = batch["tool_mask"] == 0
    for name, value in (("advantages", 1e3), ("old_per_token_logps", -9.0), ("ref_per_token_logps", -9.0)):
        batch[name] = batch[name].masked_fill(hidden, value)
    assert torch.equal(trainer._compute_loss(trainer.model, batch), first)
    assert all(one == other for one, other in metrics(trainer).values())


def test_the_sum_is_divided_by_the_items_of_the_batch(given: Trainers) -> None:
    for steps, accumulated in ((1, 1), (4, 1), (4, 2), (4, 4)):
        trainer = given(steps_per_generation=steps, gradient_accumulation_steps=accumulated, max_steps=4)
        loss = trainer._compute_loss(trainer.model, tensors(trainer.model, items=40.0))
        # An optimizer step sees `accumulated` of the batch's `steps` parts, so that share of its items.
        assert loss.item() == pytest.approx(BY_HAND * TOKENS / (40.0 * accumulated / steps), rel=1e-5)


@pytest.mark.parametrize("corrected", [True, False])
def test_the_kl_term_is_estimated_from_the_reference(given: Trainers, corrected: bool) -> None:
    trainer = given(beta=0.1, use_bias_correction_kl=corrected)
    loss = trainer._compute_loss(trainer.model, tensors(trainer.model))
    k3 = math.exp(-0.3) + 0.3 - 1
    weighed = [t.mask * (math.exp(-t.off) if corrected else 1.0) for t in every_token()]
    kl = k3 * math.fsum(weighed) / TOKENS
    assert loss.item() == pytest.approx(BY_HAND + 0.1 * kl, rel=1e-5)
    assert metrics(trainer)["kl"] == pytest.approx([kl], rel=1e-4)


def test_metrics_are_means_over_sampled_tokens(given: Trainers) -> None:
    trainer = given()
    trainer._compute_loss(trainer.model, tensors(trainer.model))
    model, found = trainer.model, metrics(trainer)
    entropies = [e for prompt, tokens in ROWS for _, e in logprobs(model, prompt, tokens)]
    weights = [token.mask for token in every_token()]
    mean = math.fsum(e * w for e, w in zip(entropies, weights, strict=True)) / TOKENS
    assert found["entropy"] == pytest.approx([mean], rel=1e-4)
    low = sum(t.mask for t in every_token() if math.exp(-t.off) < 1 - LOW and t.advantage < 0)
    high = sum(t.mask for t in every_token() if math.exp(-t.off) > 1 + HIGH and t.advantage > 0)
    assert low == high == 1
    assert found["clip_ratio/low_mean"] == pytest.approx([low / TOKENS])
    assert found["clip_ratio/high_mean"] == pytest.approx([high / TOKENS])
    assert found["clip_ratio/region_mean"] == pytest.approx([(low + high) / TOKENS])


def test_padding_rows_stay_out_of_metrics_where_answers_are_single_tokens(given: Trainers) -> None:
    rows = [([5, 9], [Token(3, 1.0, 0.0)]), ([8], [Token(4, 1.0, -0.9)]), ([7], [Token(0, 0.0, 0.0, mask=0.0)])]
    trainer = given()
    trainer._compute_loss(trainer.model, tensors(trainer.model, rows))
    mean = math.fsum(logprobs(trainer.model, *row)[0][1] for row in rows[:2]) / 2
    assert metrics(trainer)["entropy"] == pytest.approx([mean], rel=1e-4)
    assert metrics(trainer)["clip_ratio/high_mean"] == pytest.approx([0.5])


def test_a_micro_batch_of_padding_rows_stays_out_of_metrics(given: Trainers) -> None:
    """Rows are padded to a multiple of the micro-batches, and neighbours are sorted, so some hold nothing else."""
    trainer = given(steps_per_generation=2, beta=0.1)
    padding = [([7], [Token(0, 0.0, 0.0, mask=0.0), Token(0, 0.0, 0.0, mask=0.0)])]
    trainer._compute_loss(trainer.model, tensors(trainer.model))
    alone = {name: list(values) for name, values in metrics(trainer).items()}
    assert {"entropy", "kl", "clip_ratio/low_mean", "sampling_gap"} <= alone.keys()
    assert trainer._compute_loss(trainer.model, tensors(trainer.model, padding)).item() == 0
    assert metrics(trainer) == alone


def numbered(rows: int, model: Any) -> Batch:
    """Return a batch in which everything in a row says which row it is."""
    batch = tensors(model, [([4], [Token(3, 0.0, 0.0), Token(3, 0.0, 0.0)])] * rows, items=7.0)
    for name, tensor in batch.items():
        if tensor.dim() and name != "completion_ids" and not name.endswith("mask"):
            batch[name] = torch.arange(3, 3 + rows).to(tensor.dtype)[:, None].expand(tensor.shape).clone()
    batch["ours"] = torch.arange(3, 3 + rows)
    return batch


@pytest.mark.parametrize("iterations", [1, 2])
def test_a_batch_is_shuffled_and_split_without_losing_or_tearing_a_row(given: Trainers, iterations: int) -> None:
    trainer = given(steps_per_generation=3, num_iterations=iterations, max_steps=6, learning_rate=0.0)
    trainer.given = numbered(9, trainer.model)
    trainer.train()
    assert len(trainer.seen) == 6
    assert trainer.made == 2 // iterations
    parts = [[int(number) for number in part["ours"]] for part in trainer.seen]
    for first in (0, 3):  # three parts make a batch, or the same one again
        assert sorted(n for part in parts[first : first + 3] for n in part) == list(range(3, 12))
        assert all(len(part) == 3 for part in parts)
    assert parts[:3] != [[3, 4, 5], [6, 7, 8], [9, 10, 11]]  # shuffled
    assert (parts[:3] == parts[3:]) is (iterations == 2)
    for part, numbers in zip(trainer.seen, parts, strict=True):
        assert part["num_items_in_batch"].shape == ()
        assert part["num_items_in_batch"] == 7
        for name in ("prompt_ids", "advantages", "old_per_token_logps"):
            assert part[name][:, 0].tolist() == numbers


@pytest.mark.parametrize("accumulated", [1, 2, 4])
def test_rows_that_share_prefixes_are_neighbours_within_an_optimizer_step(given: Trainers, accumulated: int) -> None:
    numbers: dict[bool, list[list[int]]] = {}
    for share in (False, True):
        settings = {
            "steps_per_generation": 4,
            "gradient_accumulation_steps": accumulated,
            "max_steps": 4 // accumulated,
        }
        trainer = given(**settings, share_prefixes=share, learning_rate=0.0)
        trainer.given = numbered(8, trainer.model)
        torch.manual_seed(1)
        trainer.train()
        assert [len(part["ours"]) for part in trainer.seen] == [2] * 4
        assert all(part["prompt_ids"][:, 0].tolist() == part["ours"].tolist() for part in trainer.seen)
        parts = [trainer.seen[first : first + accumulated] for first in range(0, 4, accumulated)]
        numbers[share] = [[int(number) for part in step for number in part["ours"]] for step in parts]
    assert numbers[True] == [sorted(step) for step in numbers[False]]  # the same rows in every step


def test_recorded_values_are_logged_as_means_and_then_forgotten(given: Trainers) -> None:
    trainer = given(max_steps=4, logging_steps=2, learning_rate=0.0)
    trainer.given = tensors(trainer.model)
    trainer.train()
    logged = [record["batches/made"] for record in trainer.state.log_history if "batches/made" in record]
    assert logged == [1.5, 3.5]
    assert trainer.state.log_history[0]["loss"] == pytest.approx(BY_HAND, rel=1e-4)


@pytest.mark.parametrize("name", _trl.ATTRIBUTES)
def test_a_trainer_without_what_is_read_of_it_is_refused(
    given: Trainers, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    init = _trl.GRPOTrainer.__init__

    def without(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        delattr(self, name)

    monkeypatch.setattr(_trl.GRPOTrainer, "__init__", without)
    with pytest.raises(UnsupportedTRL, match=rf"GRPOTrainer\.{name} is gone.*1\.16"):
        given()

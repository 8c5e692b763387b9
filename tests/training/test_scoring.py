"""Only sampled tokens reach the output layer, and log-probabilities and gradients are those of whole logits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from agentgym_flow.training import scoring
from agentgym_flow.training.collate import Batch, collate
from agentgym_flow.training.loss import completion_logprobs
from agentgym_flow.training.rows import TrainingRow
from agentgym_flow.training.scoring import sampled_scores
from agentgym_flow.training.trainer import AgentTrainer

Pair = tuple[torch.Tensor, torch.Tensor]
WORDS, TEMPERATURE = 160, 0.7

SMALL = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "pad_token_id": 0,
}
KINDS: dict[str, dict[str, Any]] = {
    "gemma3_text": {**SMALL, "sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"]},
    "gemma2": {**SMALL, "sliding_window": 5, "final_logit_softcapping": 0.5},
    "qwen3": {**SMALL, "tie_word_embeddings": True},
    "granite": {**SMALL, "logits_scaling": 3.0},
    "cohere": {**SMALL, "logit_scale": 0.2},
    "gpt2": {"vocab_size": WORDS, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
}
"""Small models: with layers of both kinds, with caps or scales between the output layer and the logits, and neither."""


def small_model(kind: str) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[kind](**KINDS[kind]))
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.data.normal_(std=0.3)  # a new model says that all words are equally likely
    return model.eval()


def tree_of_rows(generator: torch.Generator | None = None) -> list[TrainingRow]:
    """Conversations with common beginnings: observations between answers, and unequal lengths."""
    generator = generator or torch.Generator().manual_seed(3)

    def tokens(count: int) -> list[int]:
        return torch.randint(3, WORDS, (count,), generator=generator).tolist()

    prompt, shared, made = tokens(6), tokens(4), []
    for number, turns in enumerate((3, 1, 2, 3)):
        completion, sampled = (list(shared), [0, 1, 1, 0]) if number % 2 else ([], [])
        for turn in range(turns):
            completion += tokens(2 + turn + 3)
            sampled += [1, 1] + [0] * turn + [0, 1, 0]
        made.append(TrainingRow(prompt, completion, [-1.0] * len(completion), [1.0] * len(completion), 1.0, sampled))
    return [*made, made[0]]


def by_whole_logits(model: Any, batch: Batch) -> Pair:
    """Return log-probabilities and entropies of sampled tokens, from every row alone, without padding."""
    logprobs, entropies = torch.zeros(batch["tool_mask"].shape), torch.zeros(batch["tool_mask"].shape)
    for row in range(len(logprobs)):
        prompt, completion = (
            batch[f"{part}_ids"][row][batch[f"{part}_mask"][row] > 0] for part in ("prompt", "completion")
        )
        logits = model(input_ids=torch.cat([prompt, completion])[None]).logits[0, len(prompt) - 1 : -1].float()
        every = (logits / TEMPERATURE).log_softmax(-1)
        mask, count = batch["tool_mask"][row, : len(completion)], len(completion)
        logprobs[row, :count] = every[torch.arange(count), completion] * mask
        entropies[row, :count] = -(every.exp() * every).sum(-1) * mask
    return logprobs, entropies


def gradients(model: Any, scores: Pair) -> torch.Tensor:
    """Return the gradient of an arbitrary sum of the scores."""
    model.zero_grad()
    weights = torch.linspace(-1.0, 2.0, scores[0].numel()).view(scores[0].shape)
    (weights * scores[0] + weights.flip(1) * scores[1]).sum().backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def assert_same(
    model: Any, found: tuple[torch.Tensor, torch.Tensor], expected: tuple[torch.Tensor, torch.Tensor]
) -> None:
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)
    mine, theirs = gradients(model, found), gradients(model, expected)
    assert (mine - theirs).norm() <= 1e-5 * theirs.norm()


class AtHead:
    """Counts the hidden states that reach the output layer of a model."""

    def __init__(self, model: Any) -> None:
        self.rows: list[int] = []
        model.get_output_embeddings().register_forward_pre_hook(self._see)

    def _see(self, _: Any, args: tuple[torch.Tensor]) -> None:
        assert args[0].is_contiguous()  # of another block, PyTorch may copy the weights for every row
        self.rows.append(args[0].numel() // args[0].shape[-1])


@pytest.mark.parametrize("tiles", [1, 3])
@pytest.mark.parametrize("kind", list(KINDS))
def test_sampled_tokens_have_the_scores_and_gradients_of_whole_logits(
    kind: str, tiles: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, batch = small_model(kind), collate(tree_of_rows(), pad=0, multiple=1)
    sampled = int(batch["tool_mask"].sum())
    expected = by_whole_logits(model, batch)
    monkeypatch.setattr(scoring, "WHOLE_LOGITS", WORDS * -(-sampled // tiles))
    head = AtHead(model)
    found = sampled_scores(model, batch, TEMPERATURE)
    assert sum(head.rows) == sampled
    assert len(head.rows) == tiles
    assert_same(model, found, expected)


def test_a_batch_of_padding_has_a_gradient_of_zero() -> None:
    model, batch = small_model("qwen3"), collate([], pad=0, multiple=2)
    assert not gradients(model, sampled_scores(model, batch, TEMPERATURE)).any()


def test_the_gradient_is_precise_where_the_policy_is_sure() -> None:
    """Of a probability near 1, the difference from 1 counts, which a rounded sum of exponentials would lose."""
    model, batch = small_model("qwen3"), collate(tree_of_rows(), pad=0, multiple=1)
    model.get_output_embeddings().weight.data *= 40
    found = gradients(model, sampled_scores(model, batch, TEMPERATURE))
    model.double()
    precise = gradients(model, by_whole_logits(model, batch))
    assert (found - precise).norm() <= 1e-5 * precise.norm()


def test_under_lora_the_frozen_output_layer_gets_one_block() -> None:
    from agentgym_flow.training.lora import with_lora

    model = with_lora(small_model("gemma3_text"), rank=2, alpha=4, seed=0)
    batch = collate(tree_of_rows(), pad=0, multiple=1)
    head, expected = AtHead(model), by_whole_logits(model, batch)
    head.rows.clear()
    assert_same(model, sampled_scores(model, batch, TEMPERATURE), expected)
    assert head.rows == [int(batch["tool_mask"].sum())]


@pytest.mark.parametrize("work", ["update", "cloning"])
def test_updates_of_a_large_vocabulary_score_sampled_tokens_only(
    make_trainer: Callable[..., AgentTrainer], monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    monkeypatch.setattr(scoring, "is_small", lambda model, positions: False)
    trainer = make_trainer(merge_prompts=False, max_completion_length=4)
    trainer.current_gradient_accumulation_steps = 1
    rows = [TrainingRow([5, 6, 7], [8, 9, 10, 11], [-1.0] * 4, [1.0] * 4, sampled=[1, 0, 0, 1])] * 3
    batch = {**collate(rows, pad=0, multiple=1), "num_items_in_batch": torch.tensor(6.0)}
    head = AtHead(trainer.model)
    if work == "update":
        trainer.loss(trainer.model, batch)
    else:
        completion_logprobs(trainer.model, batch)
    assert head.rows == [6]

"""Only sampled tokens reach the output layer, and log-probabilities and gradients are those of whole logits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from agentgym_flow.errors import BadSetting
from agentgym_flow.training import scoring
from agentgym_flow.training import trainer as trainer_module
from agentgym_flow.training.config_file import parse_configs
from agentgym_flow.training.loss import completion_logprobs
from agentgym_flow.training.rows import Batch, TrainingRow, collate
from agentgym_flow.training.scoring import can_share, pack, sampled_scores
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
    for mine, theirs in zip(found[:2], expected[:2], strict=True):
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


@st.composite
def trees_of_rows(draw: st.DrawFn) -> list[TrainingRow]:
    """Rows of few different tokens, some of which continue, equal or diverge from others; some are padding."""
    token = st.integers(3, 5)
    made: list[TrainingRow] = []
    for _ in range(draw(st.integers(1, 6))):
        tokens = draw(st.lists(token, min_size=2, max_size=9))
        if made and draw(st.booleans()):
            other = draw(st.sampled_from(made))
            before = [*other.prompt, *other.completion]
            tokens = before[: draw(st.integers(1, len(before)))] + tokens
        cut = draw(st.integers(1, len(tokens) - 1))
        sampled = [draw(st.integers(0, 1)) for _ in tokens[cut:]]
        blank = [0.0] * len(sampled)
        made.append(TrainingRow(tokens[:cut], tokens[cut:], blank, blank, 1.0, sampled))
    return made


@pytest.fixture(params=[3, scoring.QUERIES])
def most_queries(request: pytest.FixtureRequest) -> Iterator[None]:
    """Parts of a tree of at most 3 tokens, and as they are."""
    with patch.object(scoring, "QUERIES", request.param):
        yield


@pytest.mark.usefixtures("most_queries")
@pytest.mark.parametrize("kind", ["gemma3_text", "qwen3", "gpt2"])
def test_a_tree_has_the_scores_and_gradients_of_its_rows(kind: str) -> None:
    model = small_model(kind)

    @settings(max_examples=20)
    @given(rows=trees_of_rows())
    def check(rows: list[TrainingRow]) -> None:
        batch = collate(rows, pad=0, multiple=2)
        assert_same(model, sampled_scores(model, batch, TEMPERATURE, share=True), by_whole_logits(model, batch))

    check()


@pytest.mark.usefixtures("most_queries")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # it is the same for every example
@given(rows=st.lists(st.lists(st.integers(0, 2), max_size=6), max_size=8), window=st.sampled_from([None, 1, 3]))
def test_a_token_of_a_tree_sees_the_tokens_before_it_in_its_rows(rows: list[list[int]], window: int | None) -> None:
    tree = pack(rows)
    config = CONFIG_MAPPING["mistral"](sliding_window=window)
    seen = tree.masks(config, torch.float32)[0, 0] == 0
    assert seen.any(-1).all()  # no mean over nothing
    for row, places in zip(rows, tree.places, strict=False):
        assert tree.ids[0, places].tolist() == row
        assert tree.depths[0, places].tolist() == [*range(len(row))]
        for number, place in enumerate(places):
            begin = 0 if window is None else max(0, number + 1 - window)
            assert seen[place].nonzero()[:, 0].tolist() == places[begin : number + 1]
    distinct = {tuple(row[:length]) for row in rows for length in range(1, len(row) + 1)}
    assert tree.ids.numel() == max(2, len(distinct))


def test_a_mask_that_was_copied_is_refused() -> None:
    mask = pack([[3, 4, 5]]).masks(CONFIG_MAPPING["gpt2"]())
    query = torch.zeros(1, 1, 3, 4)
    attention = torch.nn.functional.scaled_dot_product_attention
    assert attention(query, query, query, attn_mask=mask).shape == query.shape
    with pytest.raises(BadSetting, match="set share_prefixes to false"):
        attention(query, query, query, attn_mask=mask[:, :, :3, :3])


def test_a_batch_of_padding_has_a_gradient_of_zero() -> None:
    model, batch = small_model("qwen3"), collate([], pad=0, multiple=2)
    for share in (False, True):
        assert not gradients(model, sampled_scores(model, batch, TEMPERATURE, share=share)).any()


def test_the_gradient_is_precise_where_the_policy_is_sure() -> None:
    """Of a probability near 1, the difference from 1 counts, which a rounded sum of exponentials would lose."""
    model, batch = small_model("qwen3"), collate(tree_of_rows(), pad=0, multiple=1)
    model.get_output_embeddings().weight.data *= 40
    found = gradients(model, sampled_scores(model, batch, TEMPERATURE))
    model.double()
    precise = gradients(model, by_whole_logits(model, batch))
    assert (found - precise).norm() <= 1e-5 * precise.norm()


def test_under_lora_the_frozen_output_layer_gets_one_block() -> None:
    from agentgym_flow.training.models import with_lora

    model = with_lora(small_model("gemma3_text"), rank=2, alpha=4, seed=0)
    batch = collate(tree_of_rows(), pad=0, multiple=1)
    head, expected = AtHead(model), by_whole_logits(model, batch)
    head.rows.clear()
    assert_same(model, sampled_scores(model, batch, TEMPERATURE), expected)
    assert head.rows == [int(batch["tool_mask"].sum())]


@pytest.mark.parametrize("kind", list(KINDS))
def test_these_models_compute_trees(kind: str) -> None:
    assert can_share(small_model(kind))


@pytest.mark.parametrize("kind", ["mamba", "bloom", "gpt_neo"])
def test_models_that_no_mask_describes_compute_rows(kind: str) -> None:
    size = {"vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_heads": 4}
    layers = {"num_layers": 2, "attention_types": [[["global", "local"], 1]]} if kind == "gpt_neo" else {}
    model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[kind](**{**size, **layers}))
    assert not can_share(model)


def test_eager_attention_checkpointing_and_bfloat16_compute_trees() -> None:
    batch = collate(tree_of_rows(), pad=0, multiple=1)
    model = small_model("gemma3_text").train()
    expected = sampled_scores(model, batch, TEMPERATURE)
    model.set_attn_implementation("eager")
    model.gradient_checkpointing_enable()
    assert_same(model, sampled_scores(model, batch, TEMPERATURE, share=True), expected)
    model.set_attn_implementation("sdpa")
    model.bfloat16()
    found = sampled_scores(model, batch, TEMPERATURE, share=True)
    torch.testing.assert_close(found.logprobs, expected.logprobs, rtol=0.05, atol=0.5)
    assert gradients(model, found).isfinite().all()


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


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("loss_type", ["dapo", pytest.param("vespo", marks=pytest.mark.heavy)])
def test_a_run_that_shares_prefixes_learns_and_logs_the_same(
    make_trainer: Callable[..., AgentTrainer], make_warm: Callable[[], Any], loss_type: str
) -> None:
    """A batch of four micro-batches in two optimizer steps, with every term of the loss."""
    logs, weights = [], []
    for share in (False, True):
        trainer = make_trainer(
            **{"model": make_warm(), "merge_prompts": False, "share_prefixes": share, "max_completion_length": 2},
            **{"steps_per_generation": 4, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2},
            **{
                "max_steps": 2,
                "logging_steps": 1,
                "beta": 0.1,
                "entropy_coef": 0.01,
                "loss_type": loss_type,
                "credit": "grpo",
            },
            **{"muon_learning_rate": None, "learning_rate": 1e-2, "optim": "sgd"},
        )
        torch.manual_seed(0)
        trainer.train()
        logs.append(trainer.state.log_history)
        weights.append(torch.cat([p.detach().flatten() for p in trainer.model.parameters()]))
    torch.testing.assert_close(*weights, rtol=1e-4, atol=1e-5)
    compared = 0
    for one, other in zip(*logs, strict=True):
        assert (one.keys() ^ other.keys()) <= {"padding", "shared"}
        for name in one.keys() & other.keys():
            if not name.startswith(
                ("time", "step_time", "train_", "clip_ratio/low_min", "clip_ratio/high_max", "total_")
            ):
                assert other[name] == pytest.approx(one[name], rel=1e-3, abs=1e-5), name
                compared += 1
        assert "shared" not in other or other["shared"] > 0.5
    assert compared > 20


def test_a_model_that_cannot_share_says_so_and_computes_rows(
    make_trainer: Callable[..., AgentTrainer], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(trainer_module, "can_share", lambda model: False)
    trainer = make_trainer(merge_prompts=False, share_prefixes=True)
    assert not trainer.shares
    assert "share_prefixes is off: the attention of GPT2LMHeadModel is not described by a mask alone" in caplog.text


def test_language_models_share_prefixes_and_the_tiny_policy_does_not(tmp_path: Path) -> None:
    for model, on in (("tiny", False), ("some/model", True)):
        assert parse_configs(["--model", model, "--output_dir", str(tmp_path)])[2].share_prefixes is on
    line = ["--model", "some/model", "--output_dir", str(tmp_path), "--share_prefixes", "false"]
    assert parse_configs(line)[2].share_prefixes is False

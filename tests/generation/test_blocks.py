"""Answers from kept keys and values: those of plain passes, and the same to the last bit whatever was kept or asked."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3TextConfig,
    GPT2Config,
    Llama4TextConfig,
    MistralConfig,
    PretrainedConfig,
    Qwen3Config,
)

from agentgym_flow.generation import SEEDS, Completion, GenerationRequest, Sampling, key_value_cache
from agentgym_flow.generation.key_value_cache import BLOCK, is_cacheable
from agentgym_flow.generation.sampling import sampled_tokens
from agentgym_flow.generation.transformers_generator import TransformersGenerator

WORDS = 211
SHAPE: dict[str, Any] = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
}
LAYERS = ["sliding_attention", "sliding_attention", "full_attention"]
CONFIGS: dict[str, PretrainedConfig] = {
    "gpt2": GPT2Config(vocab_size=WORDS, n_embd=32, n_layer=2, n_head=2, n_positions=512),
    "qwen3": Qwen3Config(**SHAPE),
    "mistral, window 8": MistralConfig(sliding_window=8, **SHAPE),
    "gemma3, window 8": Gemma3TextConfig(sliding_window=8, layer_types=LAYERS, **SHAPE),
    "gemma3, window 100": Gemma3TextConfig(sliding_window=100, layer_types=LAYERS, **SHAPE),
}
SAMPLING = Sampling(max_new_tokens=12)


@pytest.fixture(scope="module", params=list(CONFIGS))
def model(request: pytest.FixtureRequest) -> Any:
    """A small model with random weights, whose answers depend on far tokens."""
    return built(CONFIGS[request.param])


def built(config: PretrainedConfig) -> Any:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.25)
    return model


def prompts(lengths: Sequence[int], shared: int = 70) -> list[tuple[int, ...]]:
    """Return prompts of these lengths with the same beginning."""
    drawn = torch.Generator().manual_seed(1)
    begin = torch.randint(3, WORDS, (shared,), generator=drawn).tolist()
    rest = [torch.randint(3, WORDS, (max(lengths),), generator=drawn).tolist() for _ in lengths]
    return [tuple([*begin, *own][:length]) for own, length in zip(rest, lengths, strict=True)]


def alone(model: Any, prompt: Sequence[int], answer: Sequence[int]) -> torch.Tensor:
    """Return the log-probabilities of an answer in one plain pass."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([[*prompt, *answer]]), use_cache=False).logits[0, len(prompt) - 1 : -1]
    return logits.log_softmax(-1).gather(-1, torch.tensor(answer)[:, None])[:, 0]


def test_answers_are_those_of_plain_passes(model: Any) -> None:
    """Over two turns, with prompts within a block, at its end, and over several; and rows that end and begin."""
    generator = TransformersGenerator(model, 0, rows=3)
    asked = prompts([1, 5, 63, 64, 65, 128, 150, 200, 200])
    requests = [GenerationRequest(prompt, SAMPLING, seed << 40) for seed, prompt in enumerate(asked)]
    for _ in range(2):
        answers = generator.generate_batch(requests)
        for request, answer in zip(requests, answers, strict=True):
            assert len(answer.token_ids) == SAMPLING.max_new_tokens
            expected = alone(model, request.prompt_ids, answer.token_ids)
            torch.testing.assert_close(torch.tensor(answer.logprobs), expected, rtol=0, atol=2e-5)
        requests = [
            request._replace(prompt_ids=(*request.prompt_ids, *answer.token_ids, 7, 8, 9))
            for request, answer in zip(requests, answers, strict=True)
        ]


def test_what_was_read_is_not_read_again(model: Any) -> None:
    read: list[int] = []
    hook = model.register_forward_pre_hook(
        lambda _, __, given: read.append(given["input_ids"].numel()) if given["use_cache"] else None, with_kwargs=True
    )
    generator = TransformersGenerator(model, 0)
    one = Sampling(greedy=True, max_new_tokens=2)
    first, second = prompts([200, 200], shared=150)
    generator.generate_batch([GenerationRequest(first[:3], one, 0)])  # finds out whether the answers are right
    read.clear()
    generator.generate_batch([GenerationRequest(first, one, attempt) for attempt in range(4)])
    assert read == [64, 64, 64, 16]
    generator.generate_batch([GenerationRequest(second, one, 0)])
    assert read[4:] == [64, 16]
    generator.generate_batch([GenerationRequest((*first, *range(3, 23)), one, 0)])
    assert read[6:] == [32]  # the block in which the turn before ended
    generator.update(model, 1)
    generator.generate_batch([GenerationRequest(first, one, 0)])
    assert read[7:] == [64, 64, 64, 16]
    hook.remove()


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_answers_depend_neither_on_what_is_kept_nor_on_what_else_is_asked(data: st.DataObject, model: Any) -> None:
    rows = data.draw(st.sampled_from([1, 2, 4, 8, 16]))
    lengths = data.draw(st.lists(st.integers(1, 180), min_size=1, max_size=6))
    asked = prompts(lengths, data.draw(st.integers(0, 180)))
    greedy = data.draw(st.booleans())
    requests = [
        GenerationRequest(prompt, Sampling(greedy=greedy, max_new_tokens=4), data.draw(st.integers(0, SEEDS - 1)))
        for prompt in asked
    ]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(requests)), max_size=3)))
    together = TransformersGenerator(model, 0, rows=rows)
    found = together.generate_batch(requests)
    apart: list[Completion] = []
    for first, last in pairwise([0, *cuts, len(requests)]):
        apart += TransformersGenerator(model, 0, rows=rows).generate_batch(requests[first:last])
    assert apart == found
    assert together.generate_batch(requests[::-1])[::-1] == found  # from what is kept
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_value_cache, "KEPT_BYTES", 1)
        assert together.generate_batch(requests) == found


def test_rows_follow_from_the_settings(model: Any) -> None:
    """One episode costs one row, and many cost 16."""
    heights: list[int] = []
    hook = model.register_forward_pre_hook(
        lambda _, __, given: None if given["use_cache"] else heights.append(len(given["input_ids"])), with_kwargs=True
    )
    requests = [GenerationRequest(prompt, SAMPLING, 0) for prompt in prompts([9, 9])]
    for given_settings, height in (
        ({"num_envs": 1}, 1),
        ({"num_envs": 5}, 8),
        ({"num_envs": 64}, 16),
        ({"rows": 0}, 2),
    ):
        generator = TransformersGenerator(model, 0, **given_settings)
        generator.generate_batch(requests)
        heights.clear()
        generator.generate_batch(requests)
        assert set(heights) == {height}
        assert len(heights) == (SAMPLING.max_new_tokens - 1) * (2 if height == 1 else 1)
    hook.remove()


def test_the_last_tokens_of_a_context_are_read(model: Any) -> None:
    generator = TransformersGenerator(model, 0, rows=1)
    [prompt] = prompts([500])
    [answer] = generator.generate_batch([GenerationRequest(prompt, SAMPLING, 0)])
    expected = alone(model, prompt, answer.token_ids)
    torch.testing.assert_close(torch.tensor(answer.logprobs), expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize(
    "config",
    [
        Gemma2Config(**SHAPE, attn_implementation="eager"),
        Llama4TextConfig(**SHAPE, attention_chunk_size=8, num_local_experts=1, intermediate_size_mlp=48),
        Gemma3TextConfig(**SHAPE, layer_types=LAYERS, sliding_window=8, use_bidirectional_attention=True),
    ],
    ids=["eager", "chunks", "both directions"],
)
def test_other_attention_is_left_to_generate(config: PretrainedConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    model = built(config)
    generator = TransformersGenerator(model, 0, rows=2)
    called: list[int] = []
    plain = model.generate
    monkeypatch.setattr(model, "generate", lambda **given: (called.append(1), plain(**given))[1])
    generator.generate_batch([GenerationRequest((3, 4, 5), SAMPLING, 0)])
    assert called
    assert not is_cacheable(model) or config.use_bidirectional_attention


def test_a_display_sees_the_tokens_as_they_come(model: Any) -> None:
    generator, seen = TransformersGenerator(model, 0, num_envs=1), []
    generator.on_tokens = lambda tokens: seen.append(tuple(tokens))
    [answer] = generator.generate_batch([GenerationRequest((3, 4, 5), SAMPLING, 0)])
    assert seen == [answer.token_ids[:length] for length in range(1, SAMPLING.max_new_tokens + 1)]
    assert BLOCK % key_value_cache.STEP == 0


@pytest.mark.parametrize("count", [1, 5, 512, 513, 5000])
def test_draws_follow_the_cumulative_distribution(count: int) -> None:
    scores = torch.randn(7, count, generator=torch.Generator().manual_seed(count)) * 4
    scores[3, 0] = 40.0
    points = [0.0, 0.1, 0.25, 0.5, 0.9, 0.999999, 1 - 2**-53]
    found = sampled_tokens(scores, [iter([point]) for point in points], 1.5)
    exact = (scores.double() / 1.5).softmax(-1).cumsum(-1)
    for row, (token, logprob) in enumerate(found):
        assert exact[row, token] >= points[row] - 1e-6
        assert token == 0 or exact[row, token - 1] <= points[row] + 1e-6
        assert logprob == pytest.approx(float((scores[row] / 1.5).log_softmax(-1)[token]), abs=1e-5)
    best = sampled_tokens(scores, [None] * 7, 1.0)
    assert [token for token, _ in best] == scores.argmax(-1).tolist()

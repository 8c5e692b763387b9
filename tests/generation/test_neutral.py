"""Sampling settings that a checkpoint asks for, and models that ignore padding: answers are the model's own."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("trl", reason="training needs the extra train")

import torch
from transformers import (
    AutoModelForCausalLM,
    GenerationConfig,
    MiniMaxConfig,
    Qwen2Config,
    RwkvConfig,
    WatermarkingConfig,
)

from agentgym_flow.generation import Completion, GenerationRequest, Sampling, vllm_engine
from agentgym_flow.generation.padding import ignores_padding
from agentgym_flow.generation.sampling import (
    NEUTRAL,
    OTHER,
    VLLM_NEUTRAL,
    drop_unused_settings,
    unused_settings,
)
from agentgym_flow.generation.transformers_generator import TransformersGenerator
from agentgym_flow.generation.vllm_server import body_of

WORDS, PAD, END = 64, 0, 1
SHAPE = {"vocab_size": WORDS, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
QWEN = {"repetition_penalty": 1.1, "temperature": 0.7, "top_p": 0.8, "top_k": 20}
ASKED: dict[str, Any] = {
    **QWEN,
    "min_p": 0.5,
    "top_h": 0.4,
    "typical_p": 0.2,
    "epsilon_cutoff": 9e-4,
    "eta_cutoff": 2e-3,
    "encoder_repetition_penalty": 1.5,
    "no_repeat_ngram_size": 1,
    "encoder_no_repeat_ngram_size": 1,
    "diversity_penalty": 1.0,
    "length_penalty": 2.0,
    "min_length": 100,
    "min_new_tokens": 6,
    "guidance_scale": 3.0,
    "sequence_bias": [[[7], 10.0]],
    "bad_words_ids": [[7], [8]],
    "suppress_tokens": [*range(2, 40)],
    "begin_suppress_tokens": [*range(2, 50)],
    "forced_bos_token_id": 5,
    "forced_eos_token_id": END,
    "exponential_decay_length_penalty": [1, 3.0],
    "watermarking_config": {"greenlist_ratio": 0.25, "bias": 5.0},
    "constraints": ["a"],
    "force_words_ids": [[5]],
    "remove_invalid_values": True,
    "renormalize_logits": True,
    "token_healing": True,
    "max_time": 1e-9,
    "stop_strings": ["a"],
    "num_beams": 3,
    "num_beam_groups": 3,
    "num_return_sequences": 2,
    "early_stopping": True,
    "use_mtp": True,
    "is_assistant": True,
    "penalty_alpha": 0.6,
    "dola_layers": "high",
    "prompt_lookup_num_tokens": 2,
    "assistant_early_exit": 1,
    "assistant_ensemble_weight": 0.5,
    "speculation_type": "dflash",
}
"""A value for every field of `NEUTRAL` that changes answers, or cannot be used."""


def made(config: Any) -> Any:
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(config).eval()
    model.generation_config = GenerationConfig(pad_token_id=PAD, eos_token_id=END)
    return model


@pytest.fixture(scope="module")
def qwen() -> Any:
    return made(Qwen2Config(**SHAPE, num_attention_heads=2, num_key_value_heads=1))


def requests(count: int = 3, tokens: int = 4) -> list[GenerationRequest]:
    sampling = Sampling(max_new_tokens=tokens, ends=frozenset({END}))
    return [GenerationRequest(tuple(range(3, 5 + n)), sampling, n << 45) for n in range(count)]


def answers(model: Any) -> list[Completion]:
    return TransformersGenerator(model, PAD, rows=2).generate_batch(requests())


def off(model: Any, found: list[Completion]) -> float:
    """The largest difference, in nats, between the log-probabilities and those of plain Transformers."""
    worst = 0.0
    for request, answer in zip(requests(), found, strict=True):
        ids = torch.tensor([[*request.prompt_ids, *answer.token_ids]])
        with torch.no_grad():
            plain = model(input_ids=ids).logits[0, len(request.prompt_ids) - 1 : -1].log_softmax(-1)
        said = torch.tensor(answer.logprobs)
        worst = max(worst, float((plain.gather(1, torch.tensor(answer.token_ids)[:, None])[:, 0] - said).abs().max()))
    return worst


def test_every_field_of_transformers_is_known() -> None:
    fields = {name for name in vars(GenerationConfig()) if not name.startswith("_")}
    assert fields == {*NEUTRAL, *OTHER}, "put new fields into NEUTRAL if they change which tokens are sampled"
    assert not OTHER & {*NEUTRAL}
    assert {*ASKED} == {*NEUTRAL}


def test_no_setting_of_a_checkpoint_reaches_an_answer(qwen: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Transformers' `generate` answers: on a GPU, and from models whose keys and values are not kept."""
    monkeypatch.setattr(TransformersGenerator, "_caches_states", False)
    generator, own = TransformersGenerator(qwen, PAD, rows=1), qwen.generation_config
    plain = generator.generate_batch(requests()[:1])
    for name, value in ASKED.items():
        asked = GenerationConfig(pad_token_id=PAD, eos_token_id=END)
        setattr(asked, name, WatermarkingConfig(**value) if name == "watermarking_config" else value)
        qwen.generation_config = asked
        try:
            assert generator.generate_batch(requests()[:1]) == plain, name
            assert qwen.generation_config is asked
        finally:
            qwen.generation_config = own


def test_a_checkpoint_on_disk_is_sampled_as_it_is_and_says_what_it_asked_for(
    qwen: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    qwen.save_pretrained(tmp_path)
    (tmp_path / "generation_config.json").write_text(json.dumps({**QWEN, "eos_token_id": END}), "utf-8")
    model = AutoModelForCausalLM.from_pretrained(tmp_path)
    with caplog.at_level(logging.WARNING):
        found = answers(model)
    assert off(model, found) < 1e-5
    assert found == answers(qwen)
    [line] = [record.getMessage() for record in caplog.records if record.name.startswith("agentgym_flow")]
    assert line.startswith(f"generation_config.json of {tmp_path} asks for temperature=0.7, top_p=0.8, ")
    assert "repetition_penalty=1.1" in line
    assert "top_k=20, which is not used" in line
    model.generation_config.pad_token_id = PAD  # as trainers do: Transformers then does not save what it loaded
    with pytest.raises(ValueError, match="do_sample"):
        model.save_pretrained(tmp_path / "again")
    drop_unused_settings(model)
    model.save_pretrained(tmp_path / "again")
    assert not unused_settings(AutoModelForCausalLM.from_pretrained(tmp_path / "again"))
    assert model.generation_config.eos_token_id == END
    assert answers(model) == found


def test_adapters_do_not_hide_the_settings_of_the_model_inside(qwen: Any) -> None:
    from agentgym_flow.training.models import with_lora

    model = made(qwen.config)
    model.generation_config = own = GenerationConfig(**QWEN, eos_token_id=END)
    adapted = with_lora(model, seed=0, rank=2, alpha=2, dropout=0.0, targets="all-linear")
    assert off(adapted, answers(adapted)) < 1e-5
    assert model.generation_config is adapted.generation_config is own
    drop_unused_settings(adapted)
    assert not unused_settings(model)


def test_servers_are_told_every_setting() -> None:
    """A server of vLLM takes what is not given from the model's file; newer ones both penalties, too."""
    body = body_of(requests()[0])
    assert {name: body[name] for name in VLLM_NEUTRAL} == VLLM_NEUTRAL
    assert {"top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"} < {*body}
    assert body["temperature"] == 1.0
    assert body["skip_special_tokens"] is False


def test_an_engine_is_told_every_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(SamplingParams=dict))
    kinds = SimpleNamespace(RequestOutputKind=SimpleNamespace(FINAL_ONLY="final"))
    monkeypatch.setitem(sys.modules, "vllm.sampling_params", kinds)
    sent = vllm_engine._parameters(requests()[0].sampling, 7)
    assert {name: sent[name] for name in VLLM_NEUTRAL} == VLLM_NEUTRAL
    assert (sent["temperature"], sent["skip_special_tokens"]) == (1.0, False)


# ---------------------------------------------------------------- padding
RWKV = RwkvConfig(vocab_size=WORDS, hidden_size=16, num_hidden_layers=2, context_length=64, attention_hidden_size=16)
MINIMAX = MiniMaxConfig(
    **SHAPE,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=8,
    num_local_experts=2,
    num_experts_per_tok=1,
    layer_types=["linear_attention", "full_attention"],
    initializer_range=0.3,
)


@pytest.mark.parametrize("config", [RWKV, MINIMAX], ids=["rwkv", "minimax"])
def test_a_model_that_ignores_padding_runs_without_it(config: Any) -> None:
    """RWKV reads padding as text in every forward pass, and mixes up rows; MiniMax, from the second token on."""
    model = made(config)
    assert ignores_padding(model, PAD) == (config is RWKV)
    for rows in (None, 0, 2):
        generator = TransformersGenerator(model, PAD, rows=rows)
        assert off(model, generator.generate_batch(requests(tokens=1))) < 1e-5
        assert off(model, generator.generate_batch(requests())) < 1e-5


def test_other_models_are_padded(qwen: Any) -> None:
    for pad in (PAD, WORDS - 1):
        assert not ignores_padding(qwen, pad)
        generator = TransformersGenerator(qwen, pad)
        for tokens in (1, 2):
            generator.generate_batch(requests(1, tokens))
        assert generator._changed_by_padding == {True: False}
        assert not generator._answers_differently(generator._generate_padded)
    assert not ignores_padding(
        made(Qwen2Config(**{**SHAPE, "vocab_size": 1}, num_attention_heads=2, num_key_value_heads=1)), PAD
    )


def test_one_request_at_a_time_is_the_same(qwen: Any) -> None:
    generator = TransformersGenerator(qwen, PAD)
    assert asyncio.run(generator.generate(requests()[0])) == answers(qwen)[0]

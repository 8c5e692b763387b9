"""A tiny model from its configuration that calls tools: Qwen3 with TRL's copy of Qwen3's chat template.

A few steps of cloning on its own prompts teach it to answer with one of a few texts, each equally likely. Those are
single tokens of the vocabulary, so that the steps are few; to TRL, which reads text, they look like any others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from transformers import Qwen2Tokenizer, Qwen3Config, Qwen3ForCausalLM

SPECIAL = ("<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")


def tokenizer_of(texts: Iterable[str], answers: Sequence[str], template: str) -> Any:
    """Return a byte-level tokenizer whose merges are learnt from `texts`, and which has `answers` as tokens."""
    tokenizer = Qwen2Tokenizer().train_new_from_iterator([*texts] * 20, 800)
    tokenizer.add_special_tokens({"eos_token": SPECIAL[1], "pad_token": "<|endoftext|>"})
    tokenizer.add_tokens([*answers, *SPECIAL])
    tokenizer.chat_template = template
    return tokenizer


def model_of(tokenizer: Any, context: int = 2048) -> Any:
    """Return a model of about 100,000 parameters with random weights."""
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=context,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    torch.manual_seed(0)
    return Qwen3ForCausalLM(config)


def clone(model: Any, tokenizer: Any, prompt: list[int], answers: Sequence[str], steps: int = 40) -> None:
    """Teach the model to answer a prompt with each of `answers`."""
    completions = [tokenizer(f"{answer}{SPECIAL[1]}", add_special_tokens=False).input_ids for answer in answers]
    assert {len(completion) for completion in completions} == {2}
    ids = torch.tensor([[*prompt, *completion] for completion in completions])
    labels = ids.clone()
    labels[:, : len(prompt)] = -100
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(steps):
        model(input_ids=ids, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

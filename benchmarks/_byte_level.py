"""A model folder like those that are published, made from nothing: Qwen3, random weights, a tokenizer trained here.

The tokenizer is of Qwen's own class, with Qwen's regular expression. Its byte-level merges are learnt from prompts and
answers of our environments, so any text can be written in it, and answers are several tokens long. Prompts go through a
chat template in the form of Qwen's. Nothing is downloaded.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen2Tokenizer, Qwen3Config, Qwen3ForCausalLM

from agentgym_flow.demonstrations import collect
from agentgym_flow.policies import ExpertPolicy, Policy, RandomPolicy

CHAT = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Messages between Qwen's markers."""

MARKERS = ("<|im_start|>", "<|im_end|>")
"""Tokens of their own; the second ends an answer."""


def texts(env_id: str, env_kwargs: Mapping[str, Any], episodes: int) -> Iterator[str]:
    """Yield every prompt and answer of the profile `text` in episodes of the expert and of the random policy."""
    players: tuple[Policy, ...] = (ExpertPolicy(), RandomPolicy())
    with tempfile.TemporaryDirectory() as folder:
        for player in players:
            out = Path(folder) / f"{player.name}.jsonl"
            collect(player, env_id, out, form="sft", num_episodes=episodes, env_kwargs=env_kwargs)
            for line in out.read_text("utf-8").splitlines():
                row = json.loads(line)
                yield from (message["content"] for part in ("prompt", "completion") for message in row[part])


def byte_level_tokenizer(
    env_id: str, env_kwargs: Mapping[str, Any], *, episodes: int = 60, vocabulary: int = 512
) -> Qwen2Tokenizer:
    """Return a tokenizer of 256 bytes, merges up to `vocabulary` tokens, and the markers of a chat."""
    tokenizer = Qwen2Tokenizer().train_new_from_iterator(texts(env_id, env_kwargs, episodes), vocabulary)
    tokenizer.add_special_tokens({"eos_token": MARKERS[1], "extra_special_tokens": list(MARKERS)})
    tokenizer.chat_template = CHAT
    return tokenizer


def write_model(
    folder: Path,
    tokenizer: Qwen2Tokenizer,
    *,
    width: int,
    layers: int,
    heads: int,
    context: int,
    theta: float,
    seed: int = 0,
) -> int:
    """Write a Qwen3 with random weights and its tokenizer as a Hugging Face folder; return its number of parameters.

    `theta` is the base of the rotary positions: a low one tells near tokens apart, a high one serves long contexts.
    """
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads // 2,
        head_dim=width // heads,
        max_position_embeddings=context,
        rope_parameters={"rope_type": "default", "rope_theta": theta},
        initializer_range=0.05,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return sum(weight.numel() for weight in model.parameters())

"""Create a model folder like published ones, from scratch: Qwen3, random weights, a tokenizer trained here.

The tokenizer's byte-level merges are trained on prompts and answers of our environments, so most of their words are one
token, and any text can be encoded. The tags around an action are single tokens, as those around a thought are in
Qwen3's tokenizer. Prompts use a chat template like Qwen's. Nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AddedToken, GPT2Tokenizer, Qwen3Config, Qwen3ForCausalLM

from agentgym_flow.envs import make_text_env
from agentgym_flow.play import EpisodeSpec, rollout
from agentgym_flow.policies import PolicyInput, PolicyOutput
from agentgym_flow.prompts import CLOSE, OPEN, ConversationTemplate, PromptTemplate, template_for

CHAT = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Messages between Qwen's markers."""

MARKERS = ("<|im_start|>", "<|im_end|>")
"""Special tokens; the second ends an answer."""

ROLES = "user\nassistant\n"
"""The roles after the first marker."""


class Reader:
    """Alternates the expert's actions with random ones, and collects every text that a model reads or writes."""

    name = "reader"

    def __init__(self, template: PromptTemplate) -> None:
        self.texts: list[str] = []
        self._template = template

    def act(self, inputs: Sequence[PolicyInput]) -> list[PolicyOutput]:
        """Return one action per input."""
        return [PolicyOutput(self._read(policy_input)) for policy_input in inputs]

    def _read(self, policy_input: PolicyInput) -> str:
        turns = policy_input.episode.turns
        action = policy_input.env.expert_action() if policy_input.rng.uniform() < 0.5 else None
        action = action or policy_input.env.sample_action(policy_input.rng)
        self.texts += [
            self._template.prompt(policy_input),
            ROLES,
            self._template.format_action(action, policy_input) or action,
        ]
        if turns and isinstance(self._template, ConversationTemplate):
            self.texts.append(self._template.follow_up(policy_input))
        return action


def byte_level_tokenizer(
    env_id: str,
    env_kwargs: Mapping[str, Any],
    template_settings: Mapping[str, Any] | None = None,
    *,
    template: str = "text",
    episodes: int = 120,
    vocabulary: int = 1024,
) -> GPT2Tokenizer:
    """Return a tokenizer of 256 bytes, merges up to `vocabulary` tokens, the markers of a chat and the tags.

    The training data is play in a prompt template, which `template_settings` may change.
    """
    reader = Reader(template_for(env_id, template, template_settings))
    tasks = make_text_env(env_id, split="train", **env_kwargs).drawn_tasks[:episodes]
    rollout(
        reader, lambda: make_text_env(env_id, split="train", **env_kwargs), [EpisodeSpec(0, task) for task in tasks]
    )
    bare = (text.replace(OPEN, "\n").replace(CLOSE, "\n") for text in reader.texts)  # what follows a tag begins a word
    tokenizer = GPT2Tokenizer().train_new_from_iterator(bare, vocabulary)
    tokenizer.add_special_tokens({"eos_token": MARKERS[1], "extra_special_tokens": list(MARKERS)})
    tokenizer.add_special_tokens({"pad_token": tokenizer.bos_token})
    tokenizer.add_tokens([AddedToken(tag, normalized=False) for tag in (OPEN, CLOSE)])
    tokenizer.chat_template = CHAT
    return tokenizer


def write_model(
    folder: Path,
    tokenizer: GPT2Tokenizer,
    *,
    width: int,
    layers: int,
    heads: int,
    context: int,
    theta: float,
    spread: float = 0.05,
    seed: int = 0,
) -> int:
    """Write a Qwen3 with random weights and its tokenizer as a Hugging Face folder; return its number of parameters.

    `theta` is the base of the rotary positions: low values distinguish near tokens, high ones serve long contexts.
    `spread` is the standard deviation of the weights.
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
        initializer_range=spread,
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

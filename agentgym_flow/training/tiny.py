"""A language model small enough to train on two CPU cores, built in code: no download, no file.

A GPT-2 of 0.25 million parameters over the vocabulary of whole words that an environment's prompt module lists. It is
saved and loaded as a plain Hugging Face folder, so everything that works with it works with any causal model.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from agentgym_flow.errors import BadSetting

PAD, EOS, UNKNOWN = SPECIAL = ("<pad>", "<eos>", "<unk>")
"""Tokens before the vocabulary."""

CONTEXT = 128
"""The longest prompt and completion together, in tokens."""


def word_tokenizer(vocabulary: Sequence[str]) -> PreTrainedTokenizerFast:
    """Return a tokenizer with one token per word; words are separated by white space.

    Raises `BadSetting` if a word is repeated, empty, contains white space, or is one of `SPECIAL`.
    """
    words = [*SPECIAL, *vocabulary]
    if len(set(words)) != len(words) or any(word.split() != [word] for word in words):
        raise BadSetting("a vocabulary must have distinct words without white space, and none of " + ", ".join(SPECIAL))
    tokenizer = Tokenizer(WordLevel({word: token for token, word in enumerate(words)}, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=EOS,
        unk_token=UNKNOWN,
        padding_side="left",
        model_max_length=CONTEXT,
    )


def gpt2_config(tokenizer: PreTrainedTokenizerFast, **shape: int) -> GPT2Config:
    """Return the configuration of a GPT-2 with a given shape, without dropout, and with tied embeddings."""
    return GPT2Config(
        **shape,
        activation_function="gelu_pytorch_tanh",  # GPT-2's function as one kernel
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=tokenizer.eos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=True,
    )


def tiny_model(tokenizer: PreTrainedTokenizerFast, *, seed: int = 0) -> GPT2LMHeadModel:
    """Return a new model for `tokenizer`: 2 layers of width 96 with 4 heads, no dropout, tied embeddings, float32.

    The weights depend on `seed` only. The global random state of torch is unchanged.
    """
    config = gpt2_config(
        tokenizer, vocab_size=len(tokenizer), n_positions=CONTEXT, n_embd=96, n_layer=2, n_head=4, n_inner=384
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return GPT2LMHeadModel(config)

"""The tiny policy: a language model small enough to train on two CPU cores, built in code, and its vocabulary.

A GPT-2 of 0.25 million parameters over a vocabulary of whole words: no download, no file. It is saved and loaded as a
plain Hugging Face folder, so everything that works with it works with any causal model.

The vocabulary is the template's, or for environments without one the words that play shows. Words are collected in
`TASKS` training tasks, played by the expert with some random actions, or at random without an expert, and in the
environment's manual. The result depends only on the environment and its settings.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from agentgym_flow.core import TextEnv
from agentgym_flow.errors import BadSetting
from agentgym_flow.play import EpisodeSpec, rollout
from agentgym_flow.policies import PolicyInput, PolicyOutput
from agentgym_flow.prompts import FIXED, PromptTemplate, words_of
from agentgym_flow.prompts.words import VOCABULARY

# ---------------------------------------------------------------- the model
TINY = "tiny"
"""The name of the built-in model, which starts from random weights."""

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


# ---------------------------------------------------------------- its vocabulary
def known_words(config: Mapping[str, Any], template: PromptTemplate) -> tuple[PromptTemplate, Sequence[str]]:
    """Return the version of a prompt template that weights know, and their words.

    Without the entry `VOCABULARY`, the number of words tells the version: the newest one if none has as many.

    Args:
        config: the `config.json` of the weights.
        template: a prompt template with a vocabulary.

    Raises `BadSetting` if the entry is not a list of words.
    """
    versions: list[Any] = [template, *getattr(template, "earlier", ())]
    words = config.get(VOCABULARY)
    if words is None:
        size = config.get("vocab_size")
        known = [one for one in versions if len(one.vocabulary) + len(SPECIAL) == size]
        return (known or versions)[0], (known or versions)[0].vocabulary
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise BadSetting(f"{VOCABULARY} must be a list of words")
    return next((one for one in versions if list(one.vocabulary) == words), template), words


TASKS = 60
"""Training tasks to play."""

STEPS = 40
"""The most steps in each of them."""

SIZE = 1000
"""The largest vocabulary: the most frequent words of play, then words of the manual."""

_RANDOM = 4  # one in this many steps is random


class _VocabularyReader:
    """Plays the expert with some random actions, and counts the words it sees."""

    name = "reader"

    def __init__(self) -> None:
        self.words: Counter[str] = Counter()
        self.proposed = False

    def act(self, inputs: Sequence[PolicyInput]) -> list[PolicyOutput]:
        return [PolicyOutput(self._read(policy_input)) for policy_input in inputs]

    def _read(self, policy_input: PolicyInput) -> str:
        proposed = policy_input.candidates()
        self.proposed |= bool(proposed)
        for text in (policy_input.info["goal"], policy_input.observation, *proposed):
            self.words.update(words_of(text))
        chance = policy_input.rng.below(_RANDOM) == 0
        expert = None if chance or not policy_input.env.has_expert else policy_input.env.expert_action()
        action = policy_input.env.sample_action(policy_input.rng) if expert is None else expert
        self.words.update(words_of(action))
        return action


def collect_vocabulary(make_env: Callable[[], TextEnv]) -> tuple[str, ...]:
    """Return the vocabulary of an environment for `WordTemplate`.

    Raises `BadSetting` if the environment proposes no actions, because the policy chooses among proposed ones.
    """
    reader = _VocabularyReader()
    env = make_env()
    specs = [EpisodeSpec(0, task) for task in env.drawn_tasks[:TASKS]]
    episodes = rollout(reader, make_env, specs, stop=lambda policy_input: len(policy_input.episode.turns) >= STEPS)
    if not reader.proposed:
        raise BadSetting(
            f"{env.env_id} proposes no actions, but the tiny policy chooses among proposed ones: implement "
            "candidates() or admissible_actions(), or train another model with template text"
        )
    for episode in episodes:
        for turn in episode.turns[-1:]:
            reader.words.update(words_of(turn.next_observation))
    shown = sorted(reader.words, key=lambda word: (-reader.words[word], word))
    manual = [word for line in (inspect.getdoc(type(env)) or "").splitlines() for word in words_of(line)]
    return (*FIXED, *list(dict.fromkeys(word for word in (*shown, *manual) if word not in FIXED))[:SIZE])

"""Where an answer ends: at a text of the profile's, whatever the model would go on to say."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def holds_stop(tokenizer: PreTrainedTokenizerBase, tokens: Sequence[int], stops: Sequence[str]) -> bool:
    """Return whether the text of `tokens`, without special ones, holds one of `stops`."""
    if not stops:
        return False
    text = tokenizer.decode(tokens, skip_special_tokens=True)
    return any(stop in text for stop in stops)


def length_of_answer(tokenizer: PreTrainedTokenizerBase, tokens: Sequence[int], stops: Sequence[str]) -> int:
    """Return how many of `tokens` belong to the answer: all up to the one that completes the first of `stops`.

    What a token has behind the stop is part of the answer, too: a token is sampled whole.
    """
    if not holds_stop(tokenizer, tokens, stops):
        return len(tokens)
    return bisect_left(range(len(tokens)), True, key=lambda length: holds_stop(tokenizer, tokens[:length], stops))

"""Stop texts: an answer ends at the first one, wherever the model would continue."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def holds_stop(tokenizer: PreTrainedTokenizerBase, tokens: Sequence[int], stops: Sequence[str]) -> bool:
    """Return whether the text of `tokens`, without special tokens, contains one of `stops`."""
    if not stops:
        return False
    text = tokenizer.decode(tokens, skip_special_tokens=True)
    return any(stop in text for stop in stops)


def length_of_answer(tokenizer: PreTrainedTokenizerBase, tokens: Sequence[int], stops: Sequence[str]) -> int:
    """Return the length of the answer: all tokens up to the one that completes the first of `stops`.

    Text of that token after the stop is part of the answer, because a token is sampled whole.
    """
    if not holds_stop(tokenizer, tokens, stops):
        return len(tokens)
    return bisect_left(range(len(tokens)), True, key=lambda length: holds_stop(tokenizer, tokens[:length], stops))

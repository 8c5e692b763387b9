"""The text of an answer, and stop texts: an answer ends at the first one, wherever the model would continue."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence, Set
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def answer_text(tokenizer: PreTrainedTokenizerBase, tokens: Sequence[int], ends: Set[int] = frozenset()) -> str:
    """Return the text of `tokens` without padding, begin-of-sequence and end tokens; `ends` are those of the model.

    Other special tokens are text: some tokenizers register the tags of an answer as special.
    """
    silent = {tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id, *ends}
    return str(tokenizer.decode([token for token in tokens if token not in silent], skip_special_tokens=False))


def holds_stop(
    tokenizer: PreTrainedTokenizerBase, tokens: Sequence[int], stops: Sequence[str], ends: Set[int] = frozenset()
) -> bool:
    """Return whether the text of an answer, as in `answer_text`, contains one of `stops`."""
    if not stops:
        return False
    text = answer_text(tokenizer, tokens, ends)
    return any(stop in text for stop in stops)


def length_of_answer(
    tokenizer: PreTrainedTokenizerBase, tokens: Sequence[int], stops: Sequence[str], ends: Set[int] = frozenset()
) -> int:
    """Return the length of the answer: all tokens up to the one that completes the first of `stops`.

    Text of that token after the stop is part of the answer, because a token is sampled whole.
    """
    if not holds_stop(tokenizer, tokens, stops, ends):
        return len(tokens)
    return bisect_left(range(len(tokens)), True, key=lambda length: holds_stop(tokenizer, tokens[:length], stops, ends))

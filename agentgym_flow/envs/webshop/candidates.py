"""Queries derived from the instruction, for `candidates()` and random actions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from agentgym_flow.core import Stream
from agentgym_flow.envs.webshop.requirements import content_words, phrases_of, sentence_parts

MOST_PROPOSALS = 4
"""The largest number of proposals."""

_BRACKETS = re.compile(r"[\[\]]")


@lru_cache(maxsize=4096)
def proposals(instruction: str) -> tuple[str, ...]:
    """Return up to `MOST_PROPOSALS` different queries for an instruction, without brackets, most promising first.

    These are the instruction without price and options; the same with options; its longest phrase, which usually names
    the product; and the other phrases.
    """
    parts = sentence_parts(instruction)
    phrases = phrases_of(instruction)
    longest = max(phrases, key=len, default=())
    queries = (
        content_words(parts.plain),
        content_words(f"{parts.plain} {' '.join(f'{name} {value}' for name, value in parts.options)}"),
        longest,
        [word for phrase in phrases if phrase is not longest for word in phrase],
    )
    cleaned = (" ".join(_BRACKETS.sub(" ", " ".join(query)).lower().split()) for query in queries)
    # An instruction without content words still gives one query.
    return tuple(dict.fromkeys(query for query in cleaned if query)) or ("product",)


def random_query(instruction: str, rng: Stream) -> str:
    """Return one to five different words of an instruction, drawn with `rng`, in their original order."""
    words = content_words(instruction) or list(proposals(instruction))
    chosen = set(rng.sample(words, min(len(words), 1 + rng.below(5))))
    return " ".join(word for word in words if word in chosen)


def most_relevant(clicks: Sequence[str], instruction: str, most: int) -> list[str]:
    """Return `most` of the clicks, in order: the buttons, and those that share the most words with the instruction."""
    wanted = set(content_words(instruction))

    def shared(place: int) -> tuple[int, int]:
        return -len(wanted.intersection(content_words(clicks[place]))), place

    # The buttons come first on a page, and are required for navigation.
    buttons = min(_BUTTONS, most)
    kept = sorted(range(buttons, len(clicks)), key=shared)[: most - buttons]
    return [*clicks[:buttons], *(clicks[place] for place in sorted(kept))]


_BUTTONS = 7  # on a product page with attributes

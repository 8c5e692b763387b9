"""What to search for, read from the instruction alone: the proposals of `candidates()` and of random play."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from agentgym_flow.envs.webshop.requirements import phrases_of, sentence_parts, telling
from agentgym_flow.seeding import Stream

MOST_PROPOSALS = 4
"""There are never more proposals than this."""

_BRACKETS = re.compile(r"[\[\]]")


@lru_cache(maxsize=4096)
def proposals(instruction: str) -> tuple[str, ...]:
    """Return up to `MOST_PROPOSALS` different queries for an instruction, the most promising first.

    What it asks for without the price and the options; the same with the options; the longest of its phrases, which is
    mostly the one that names the thing; the other phrases. No brackets occur in them.
    """
    parts = sentence_parts(instruction)
    phrases = phrases_of(instruction)
    longest = max(phrases, key=len, default=())
    queries = (
        telling(parts.plain),
        telling(f"{parts.plain} {' '.join(f'{name} {value}' for name, value in parts.options)}"),
        longest,
        [word for phrase in phrases if phrase is not longest for word in phrase],
    )
    cleaned = (" ".join(_BRACKETS.sub(" ", " ".join(query)).lower().split()) for query in queries)
    # An instruction of nothing but brackets and small words still gives one query.
    return tuple(dict.fromkeys(query for query in cleaned if query)) or ("product",)


def random_query(instruction: str, rng: Stream) -> str:
    """Return one to five different words of an instruction, drawn with `rng`, in their order there."""
    words = telling(instruction) or list(proposals(instruction))
    chosen = set(rng.sample(words, min(len(words), 1 + rng.below(5))))
    return " ".join(word for word in words if word in chosen)


def interesting(clicks: Sequence[str], instruction: str, most: int) -> list[str]:
    """Return `most` of the clicks in their order: first those that share the most words with the instruction."""
    wanted = set(telling(instruction))

    def shared(place: int) -> tuple[int, int]:
        return -len(wanted.intersection(telling(clicks[place]))), place

    # The buttons come first on a page; without them there is no way on.
    buttons = min(_BUTTONS, most)
    kept = sorted(range(buttons, len(clicks)), key=shared)[: most - buttons]
    return [*clicks[:buttons], *(clicks[place] for place in sorted(kept))]


_BUTTONS = 7  # of a product's page, with attributes

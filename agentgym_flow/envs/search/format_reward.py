"""The format reward of Search-R1's second paper: what a whole response is worth by its answer and by its tags.

A response is what follows the prompt: thoughts, searches, what they found, and the answer. It is in order when it goes
`<think>`, `<search>`, `<information>` as often as it likes and ends with `<think>`, `<answer>`, nothing but white space
between the blocks, and no tag inside one. A pure function; the environment's reward is the score of the answer alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from agentgym_flow.envs.answers import exact_match, last_answer, sub_exact_match
from agentgym_flow.errors import BadSetting

_TAG = re.compile(r"(</?(?:think|search|information|answer)>)")
_INFORMATION = re.compile(r"<information>(.*?)</information>", re.DOTALL)
_FOLLOWS = {
    "": ("think",),
    "think": ("search", "answer"),
    "search": ("information",),
    "information": ("think",),
    "answer": (),
}
"""Block -> the blocks that may follow it; the first is for the beginning."""


def in_order(response: str) -> bool:
    """Return whether a response is made of the blocks that it should have, in their order, and ends with the answer."""
    done, inside = "", ""
    for place, part in enumerate(_TAG.split(response)):
        if place % 2 == 0:  # between two tags
            if not inside and part.strip():
                return False
        elif inside:
            if part != f"</{inside}>":
                return False
            done, inside = inside, ""
        else:
            inside = part[1:-1]
            if inside not in _FOLLOWS[done]:
                return False
    return done == "answer" and not inside


def format_reward(
    response: str, answers: Iterable[str], *, order: float = 0.2, found: float = 0.1, answered: float = 0.1
) -> float:
    """Return what a response is worth.

    | its last answer is | and the response is in order | and it is not |
    |---|---|---|
    | right (exact match) | 1 | 1 - `order` |
    | wrong or missing | `order`, and `found` more if a passage had a right answer | `answered` if there is one, or 0 |

    Args:
        response: what follows the prompt, with what was found in `<information>` tags.
        answers: the texts that count as right.
        order: what the order of the blocks is worth.
        found: what it is worth that a search has brought a right answer (part of a passage after normalisation).
        answered: what any answer is worth.

    Raises `BadSetting` when a weight is not in [0, 1], or `order` and `found` together are above 1.
    """
    if not all(0 <= weight <= 1 for weight in (order, found, answered, order + found)):
        raise BadSetting(
            f"order, found and answered must be in [0, 1], and so must order + found; got {order}, {found}, {answered}"
        )
    golds, answer = list(answers), last_answer(response)
    if exact_match(answer, golds):
        return 1.0 if in_order(response) else 1.0 - order
    if in_order(response):
        shown = any(sub_exact_match(text, golds) for text in _INFORMATION.findall(response))
        return order + found if shown else order
    return 0.0 if answer is None else answered

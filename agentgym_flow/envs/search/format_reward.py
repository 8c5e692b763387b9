"""The format reward of Search-R1's second paper, computed from the answer and the tags of a whole response.

A response is the text after the prompt: thoughts, searches, results and the answer. It is well-formed if it consists of
any number of `<think>`, `<search>`, `<information>` triples followed by `<think>`, `<answer>`, with only white space
between the blocks and no tags inside them. The environment's own reward does not use the format.
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
"""Block -> the blocks that may follow it; `""` is the beginning."""


def in_order(response: str) -> bool:
    """Return whether a response is well-formed."""
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
    """Return the reward of a response.

    | last answer | well-formed response | malformed response |
    |---|---|---|
    | right (exact match) | 1 | 1 - `order` |
    | wrong or missing | `order`, plus `found` if a passage has a right answer | `answered` with an answer, else 0 |

    Args:
        response: the text after the prompt, with retrieved passages in `<information>` tags.
        answers: the accepted answers.
        order: the weight of the format.
        found: the weight of retrieving a right answer (as a part of a passage, after normalisation).
        answered: the weight of giving any answer.

    Raises `BadSetting` if a weight or `order + found` is not in [0, 1].
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

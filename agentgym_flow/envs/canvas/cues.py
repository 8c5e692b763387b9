"""What a careful reader notices in the text of a task before designing a workflow for it: words, shapes and counts.

Rules of thumb, made by people who have seen such tasks; they err. Nothing hidden is read.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from agentgym_flow.envs.canvas.proposals import warning


class Cues(NamedTuple):
    """What was noticed.

    Attributes:
        family: `"code"`, `"qa"` or `"arithmetic"`.
        parts: the problem falls into parts that can be solved apart.
        accounts: it rests on accounts that nobody can be sure of.
        steps: there are many steps to take.
        twist: the story has a turn that must be read with care.
        numbers: the numbers are awkward.
        endless: the program that is asked for does not end by itself.
        warning: an instruction that names what may mislead; empty when nothing was noticed.
    """

    family: str
    parts: bool
    accounts: bool
    steps: bool
    twist: bool
    numbers: bool
    endless: bool
    warning: str


_CODE = re.compile(r"\bdef \w+\(|must pass these tests|\bassert \w", re.IGNORECASE)
_ENDLESS = re.compile(
    r"\b(?:generator|yields?|endless|for ?ever|without end|never (?:ends|stops)|islice)\b", re.IGNORECASE
)
_UNSURE = re.compile(
    r"\b(?:accounts?|witness\w*|sources|most of them|mistaken|agree|weigh|recall\w*|remember\w*|by eye|smudged|grainy|"
    r"rumou?r\w*|hearsay|they say|it seems|seems to|makes out|maybe|perhaps|roughly|guess\w*|estimat\w*|reckons?|"
    r"close to|believing|if the story|by their count|faded|blurred|at a glance|sounds like|give or take|"
    r"overheard|from memory|judg\w+)\b"
)
_TOLD_BY = re.compile(r"according to|one reads|has it that|reports that|learn from")
_PAIRED = re.compile(
    r"\b(?:which(?: one)? of|compare|between|add|sum|total|both|combined|and that of|or that of|earlier|older|younger|"
    r"later|longer|larger|fewer|taken together)\b|^of "
)
_TWIST = re.compile(
    r"\b(?:all but|except|instead|changes?|mind|only then|not counting|but then|turns out|gives? back|puts? back|"
    r"mistake|second thoughts|corrects?|actually|after all|unless|other than|however|than|apart from|without|weekend|"
    r"promised|of the days|counted|others|every (?:third|fourth|fifth|sixth|seventh)|back|only)\b"
)
_WHOLE = re.compile(
    r"\b(?:altogether|in all|together|in total|both|the two|of them|how many more|combined|overall|"
    r"put together|jointly)\b"
)
_THEN = re.compile(r"\b(?:then|next|after that|afterwards|overnight|later|in the end|lastly|finally|at last|first)\b")
LONG_STORY = 240
"""A story with more characters is likely to have many steps."""

AWKWARD = 1000
"""Numbers from here on, and those with decimals, invite wrong calculations."""

_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


@lru_cache(maxsize=1 << 12)
def cues_of(problem: str) -> Cues:
    """Return what a reader notices in the text of a problem."""
    told = warning(problem)
    if _CODE.search(problem):
        return Cues("code", False, False, False, False, False, bool(_ENDLESS.search(problem)), told)
    _, passages, question = problem.rpartition("Question: ")
    if passages:
        asked = question.lower()
        accounts = bool(_UNSURE.search(asked)) or len(set(_TOLD_BY.findall(problem.lower()))) > 1
        parts = bool(_PAIRED.search(asked)) and not accounts
        return Cues("qa", parts, accounts, False, False, False, False, told)
    lowered = problem.lower()
    numbers = [number.replace(",", "") for number in _NUMBER.findall(problem)]
    accounts = bool(_UNSURE.search(lowered))
    sequence = len(_THEN.findall(lowered))
    parts = bool(_WHOLE.search(lowered)) and len(numbers) >= 4 and sequence < 2 and not accounts
    return Cues(
        "arithmetic",
        parts=parts,
        accounts=accounts,
        steps=sequence >= 2 or len(numbers) >= 6 or len(problem) > LONG_STORY,
        twist=bool(_TWIST.search(lowered)),
        numbers=any(float(number) >= AWKWARD or "." in number for number in numbers),
        endless=False,
        warning=told,
    )

"""Compares plain numbers in texts, exactly and without a parser of formulas."""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import pairwise

from agentgym_flow.envs.canvas.scoring.extract import stated_answer

NUMBER = "number"
"""The name of this scorer in results."""

_NUMBER = re.compile(
    r"(?<![\w.,/^])(?P<sign>[-\N{MINUS SIGN}]\s?)?(?:[$€£]\s?)?"
    r"(?P<number>\d{1,3}(?:,\d{3})+(?:\.\d{1,30})?(?![\d,])|\d{1,30}(?:\.\d{1,30})?(?!,?\d)|\.\d{1,30})"
    r"(?:\s?/\s?(?P<over>\d{1,30}))?(?P<percent>\s?(?:\\?%|‰|per\s?cent\b|pct\b))?(?!\d)",
    re.ASCII | re.IGNORECASE,
)
_SIGN = r"(?:\*\*|[-+*/^\N{MULTIPLICATION SIGN}\N{DIVISION SIGN}·\N{MINUS SIGN}])"
_BETWEEN = rf"(?:{_SIGN}|[ \t]+{_SIGN}[ \t]+|[ \t]*\\(?:times|cdot|div)[ \t]*)[$€£(]*"  # 48 **50** has no operator
_BEFORE = re.compile(rf"\d[%)]?{_BETWEEN}\Z", re.ASCII)
_AFTER = re.compile(
    rf"\)?{_BETWEEN}\d|[ \t]?\^|[²³¹⁰⁴-⁹]|e[-+]?\d|[ \t]?k\b|[ \t-]?(?:hundred|thousand|million|billion|trillion)s?\b",
    re.ASCII | re.IGNORECASE,
)
_LONGEST_BETWEEN = 20
_ALTERNATIVE = re.compile(
    r"[^.!?\n]{0,40}\b(?:or|if not|alternatively)(?:\s(?:else|perhaps|maybe|possibly))?\W*", re.IGNORECASE
)


def same_number(text: str, gold: str) -> bool:
    """Return whether `text` states exactly the number `gold`: `12.0` equals 12, `12.0005` does not.

    In a text that announces its answer the first number counts, otherwise the last. Alternatives (`49 or 48`),
    percentages (`48%`), multiples (`48 thousand`, `48e3`) and calculations without a result (`48 + 1`, `10-48`, `7^48`)
    equal no number.

    Args:
        text: any string.
        gold: a number. Nothing equals a text without a number.
    """
    wanted = stated_number(gold)
    return wanted is not None and stated_number(text) == wanted


def stated_number(text: str) -> Fraction | None:
    """Return the number that a text states, or None."""
    stated = stated_answer(text)
    said = stated.text.rpartition("=")[2] if stated.announced else stated.text
    found = list(_NUMBER.finditer(said))
    if not found:
        return None
    chosen = 0 if stated.announced else len(found) - 1
    beside = found[max(chosen - 1, 0) : chosen + 2]
    if any(_ALTERNATIVE.fullmatch(said, one.end(), other.start()) for one, other in pairwise(beside)):
        return None
    number = found[chosen]
    if number["percent"] or not int(number["over"] or 1) or _in_calculation(number, said):
        return None
    value = Fraction(number["number"].replace(",", "")) / int(number["over"] or 1)
    return -value if number["sign"] else value


def _in_calculation(number: re.Match[str], text: str) -> bool:
    """Return whether a number in a text is part of a calculation, such as a power, a sum or a multiple."""
    start = number.start("number")
    before = text[max(start - _LONGEST_BETWEEN, 0) : start]
    return _BEFORE.search(before) is not None or _AFTER.match(text, number.end()) is not None

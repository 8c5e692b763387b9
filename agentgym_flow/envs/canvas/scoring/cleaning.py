r"""An answer without what does not belong to its value: money signs, units, `\text{...}`, a full stop.

Two answers that are the same text after this are the same answer, whether or not they are mathematics (`\text{Evelyn}`
and `Evelyn`).
"""

from __future__ import annotations

import re

from agentgym_flow.envs.canvas.scoring.tokens import MAX_CHARACTERS

_SCALES = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "dozen": 12}
_NUMBER = r"[-+]?\s?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+)?(?:\s?/\s?\d+)?"
_WITH_UNIT = re.compile(
    rf"(?P<number>{_NUMBER})(?P<percent>\s?(?:%|percent\b|per cent\b))?"
    r"(?P<unit>(?:\s+|(?<=[\d%]))[A-Za-z][A-Za-z²³.'\s/-]*(?:\^\{?[23]\}?)?)?"
)
_ABBREVIATED = "mm cm dm km m in ft yd mi mg kg g lb oz ml l s hr h c f"
_SHORT_UNITS = frozenset(_ABBREVIATED.split())
_NO_UNITS = frozenset(("pi", "sqrt", "infinity", "and", "plus", "minus", "times", "percent"))
_WRAPPED = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathsf|mbox|emph|operatorname)\s*\{([^{}]*)\}")
_UNIT_AFTER = re.compile(r"(?<=[\d}\)])\s*\\(?:text|textrm|mathrm|mbox)\s*\{[^{}]*\}\s*(?:\^\s*(?:\{[23]\}|[23]))?\s*$")
_DISPLAY = re.compile(r"(?<!\\)\\[()\[\]]")
_MONEY = re.compile(r"\\?\$|[€£]")
_BLANKS = re.compile(r"\s+|\\[ ,;:!]|~")
_SPELLINGS = (
    ("\\dfrac", "\\frac"),
    ("\\tfrac", "\\frac"),
    ("\\left", ""),
    ("\\right", ""),
    ("\\%", "%"),
    ("\N{MINUS SIGN}", "-"),
)
_IN_BRACKETS = re.compile(r"\(\s*([A-Za-z])\s*\)")


def plain(answer: str) -> str:
    """Return `answer` without money signs, wrapped units and a full stop at the end; its formula is left as it is.

    A number with words after it is the number: `5 apples` is `5`, `3 million` is `3000000`.
    """
    if len(answer) > MAX_CHARACTERS:
        return answer
    text = answer.strip().rstrip(".").strip("*`").strip()
    text = _UNIT_AFTER.sub("", _MONEY.sub("", _DISPLAY.sub("", text))).strip()
    text = _WRAPPED.sub(lambda found: found.group(1), text).strip()
    found = _WITH_UNIT.fullmatch(text)
    if found is None or not any(character.isdigit() for character in found["number"]):
        return text
    number = re.sub(r"[\s,]", "", found["number"])
    words = re.findall(r"[a-z]+", (found["unit"] or "").lower())
    for word in words:
        if word in _SCALES:
            return f"{number}*{_SCALES[word]}"
    if any(word in _NO_UNITS or (len(word) < 3 and word not in _SHORT_UNITS) for word in words):
        return text  # `2x`, `2 pi`, `5 or more` are no numbers with a unit
    if len(words) == 1 == len(words[0]) and not found["unit"][0].isspace():
        return text  # `5m` is rather a formula
    return number + ("%" if found["percent"] else "")


def same_text(left: str, right: str) -> bool:
    """Return whether two answers are the same text but for case, blanks, and how a fraction or a bracket looks."""
    return _compared(left) == _compared(right)


def _compared(answer: str) -> str:
    text = plain(answer)
    for spelling, one in _SPELLINGS:
        text = text.replace(spelling, one)
    choice = _IN_BRACKETS.fullmatch(text)
    return _BLANKS.sub("", choice.group(1) if choice else text).lower()

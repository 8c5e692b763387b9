"""The process that compares answers with Math-Verify; `mathematics` starts one for many comparisons.

It imports nothing from this package, so it can be started as a file. An input line is a JSON list of an answer and the
right one; an output line is `true` or `false`. Its memory is bounded, and it can neither write files nor start
processes. An answer that takes too much CPU time ends the process: the timer has no handler, because Python would not
run one during the computation of a long number. Math-Verify's own time limits are off, because they need the main
thread of the caller.
"""

from __future__ import annotations

import importlib
import json
import logging
import re
import signal
import sys
from decimal import Decimal
from typing import Any

if sys.platform != "win32":  # on Windows this module can be imported but not used
    import resource

math_verify: Any = importlib.import_module("math_verify")

MEMORY = 1 << 30
_LONGEST_FORMULA = 300
_WORD = re.compile(r"(?<![\\A-Za-z{])(?!(?:sin|cos|tan|log|ln|sqrt|pi|exp|frac|or|and)\b)[A-Za-z]{2,}")
_NUMBER = r"-?\d+(?:,\d{3})*(?:\.\d+)?"
_OR = r"(?:or|if not|alternatively)(?:\s(?:else|perhaps|maybe|possibly))?|perhaps|maybe|possibly"
_CHOICE = re.compile(
    rf"(?<![\w$.,])({_NUMBER})\s{{0,3}}(?:[,;/]|(\())?\s{{0,3}}\b(?:{_OR})\b[,:\s]{{1,3}}({_NUMBER})(?![\w$%])(?(2)\)?)",
    re.IGNORECASE,
)
_ESCAPED_MONEY = re.compile(r"\\\$(?=\s*\d)")
_SIGN = re.compile(  # a minus that no number precedes: `is - 5`, `= -$5$`
    r"((?:\A(?=[^\n]*\Z)|[=:(\[{,]|\b(?:is|are|was|be|equals?)\b)[ \t*\\$]{0,9})"
    r"(?:-[ \t]*|\N{EN DASH})(?:(?P<formula>\$)(?=[^$\n]*\$)|\$[ \t]*)?(?=\.?\d)",
    re.IGNORECASE,
)
_PERCENTAGE = re.compile(rf"(?<![\d./])({_NUMBER}|\.\d+)\s*(?:\\?%|(?:percent|per cent|pct)\b)", re.IGNORECASE)
_SCIENTIFIC = re.compile(rf"(?<![\w.\\])({_NUMBER}|-?\.\d+)e([-+]?\d{{1,2}})(?!\w)", re.IGNORECASE)  # Python's `1e-05`
_MIXED = re.compile(r"(?<![\w./,^])(\d{1,9})[ \t]+(\d{1,9})\s?/\s?(\d{1,9})(?![\d/])")  # `3 1/2`
_PLAIN = re.compile(rf"{_NUMBER}|-?\.\d+")


def equal(text: str, gold: str) -> bool:
    """Return whether the answer that Math-Verify finds in `text` equals `gold`, with its default settings.

    A percentage is read as `gold` is written: for a number above 1, `48%` is 48; for one up to 1, `48%` is .48; for a
    percentage, `48%`, 48 and .48 are the same. For other formulas, Math-Verify decides.
    """
    text, gold = (_plain(one) for one in (text, gold))
    pairs = [(text, gold)]
    if _PERCENTAGE.fullmatch(gold):
        pairs.append((_PERCENTAGE.sub(r"\1", text), _PERCENTAGE.sub(r"\1", gold)))
    elif _PLAIN.fullmatch(gold):
        above_1 = abs(Decimal(gold.replace(",", ""))) > 1
        pairs = [(_PERCENTAGE.sub(r"\1" if above_1 else _hundredth, text), gold)]
    return any(
        math_verify.verify(_parsed(f"\\boxed{{{wanted}}}"), _parsed(reading), timeout_seconds=None)
        for said, wanted in pairs
        for reading in _readings(said)
    )


def _plain(text: str) -> str:
    """Return a text with numbers as Math-Verify reads them: it takes `1e3` for 1, and `3 1/2` for another number."""
    text = text.replace("\N{MINUS SIGN}", "-").strip()
    text = _SCIENTIFIC.sub(lambda one: f"{Decimal(one[1].replace(',', '')).scaleb(int(one[2])):f}", text)
    return _MIXED.sub(_improper, text)


def _improper(mixed: re.Match[str]) -> str:
    whole, over, under = map(int, mixed.groups())
    return f"{whole * under + over}/{under}" if over < under else mixed[0]


def _hundredth(percentage: re.Match[str]) -> str:
    return f"{Decimal(percentage[1].replace(',', '')) / 100:f}"


def _parsed(text: str) -> list[Any]:
    found: list[Any] = math_verify.parse(text, parsing_timeout=None)
    return found


def _readings(text: str) -> list[str]:
    """Return the readings of a text: a formula without words is put into a box, because only LaTeX is searched.

    `49 or 48` in words, or `49 (or 48)`, becomes LaTeX that Math-Verify reads as two answers.
    """
    text = _SIGN.sub(lambda sign: f"{sign[1]}{sign['formula'] or ''}-", _ESCAPED_MONEY.sub("", text).strip())
    formal = _CHOICE.sub(r"\1 or \3", text)
    formula = formal.strip("*_` \n").rstrip(".")
    short = "\n" not in formula and len(formula) <= _LONGEST_FORMULA
    marked = any(sign in formula for sign in ("$", "\\boxed", "\\(", "\\["))
    boxed = [f"\\boxed{{{formula}}}"] if short and not marked else []
    if boxed and not _WORD.search(formula):
        return boxed
    text = formal if "\\boxed" in text else _CHOICE.sub(r"$\1$ or $\3$", text)
    return [text] if _parsed(text) else boxed


def main() -> None:
    """Compare answers until the input ends."""
    logging.disable(logging.CRITICAL)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    equal("$x^2 + 1$", "x^2 + 1")  # imports modules that are loaded lazily
    for limit in (resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC):
        resource.setrlimit(limit, (0, 0))
    seconds = float(sys.argv[1])
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            found = equal(*json.loads(line))
        except Exception:  # an answer on which the libraries fail is wrong
            found = False
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

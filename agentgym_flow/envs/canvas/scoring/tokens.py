r"""The words of a mathematical expression, as plain text or LaTeX writes it.

What only tells how a formula looks (`\left`, `\!`, `$`, `\displaystyle`) is dropped, and what has several spellings
(`\dfrac` and `\frac`, `\times`, `×` and `*`) gets one.
"""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_CHARACTERS = 600
"""The longest text that is read as an expression."""
MAX_TOKENS = 250
"""The most tokens that an expression may have."""


class NotMathematics(ValueError):
    """A text is no expression of the grammar, or too large. Never leaves this package."""


class Token(NamedTuple):
    """A word of an expression.

    Attributes:
        kind: `number`, `word` (letters), `command` (LaTeX, without its backslash) or `sign`.
        text: what it says, in its one spelling.
        spaced: whether white space came before it.
    """

    kind: str
    text: str
    spaced: bool


_SPELLINGS = {
    "\\dfrac": "\\frac",
    "\\tfrac": "\\frac",
    "\\cfrac": "\\frac",
    "\\dbinom": "\\binom",
    "\\tbinom": "\\binom",
    "\\times": "*",
    "\\cdot": "*",
    "\\ast": "*",
    "\\div": "/",
    "\\lvert": "|",
    "\\rvert": "|",
    "\\vert": "|",
    "\\mid": "|",
    "\\leq": "\\le",
    "\\geq": "\\ge",
    "\\leqslant": "\\le",
    "\\geqslant": "\\ge",
    "\\lt": "<",
    "\\gt": ">",
    "\\lbrace": "\\{",
    "\\rbrace": "\\}",
    "\\lbrack": "[",
    "\\rbrack": "]",
    "\\%": "%",
    "**": "^",
    "<=": "\\le",
    ">=": "\\ge",
    "\N{MULTIPLICATION SIGN}": "*",
    "·": "*",
    "⋅": "*",
    "÷": "/",
    "\N{MINUS SIGN}": "-",
    "\N{EN DASH}": "-",
    "π": "\\pi",
    "√": "\\sqrt",
    "∞": "\\infty",
    "\N{UNION}": "\\cup",
    "±": "\\pm",
    "≤": "\\le",
    "≥": "\\ge",
    "∈": "\\in",
}
_LOOKS = (
    "\\left \\right \\big \\Big \\bigl \\bigr \\Bigl \\Bigr \\bigg \\Bigg \\displaystyle \\textstyle \\limits \\quad "
    "\\qquad \\( \\) \\[ \\] \\! \\, \\; \\: \\$ $ ~ °"
)
_DROPPED = frozenset(_LOOKS.split())
_TOKEN = re.compile(
    r"(?P<space>\s+|\\\s)"
    r"|(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+(?![A-Za-z]))?|\.\d+)"
    r"|(?P<word>[A-Za-z]+)"
    r"|(?P<command>\\[A-Za-z]+|\\.)"
    r"|(?P<sign>\*\*|[<>]=|.)",
    re.DOTALL,
)
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:(?:,\\!|,|\{,\}|\\,|\\!,)\d{3})+(?![\d,]|\{,\})")
_COMMAS = re.compile(r"[^\d]+")
_REPEATING = re.compile(r"(\d*)\.(\d*)\\overline\s*\{(\d{1,20})\}")
_ROW_SPACE = re.compile(r"(?<=\\\\)\[\s*-?[\d.]+\s*[a-z]{2}\s*\]")
_DEGREES = re.compile(r"\^\s*\{?\s*\\circ\s*\}?")


def tokens(text: str) -> list[Token]:
    """Return the tokens of an expression. Raises `NotMathematics` when there are too many, or none."""
    if len(text) > MAX_CHARACTERS:
        raise NotMathematics("too long")
    if not any(bracket in text for bracket in "([") and "\\{" not in text:
        text = _THOUSANDS.sub(lambda found: _COMMAS.sub("", found.group()), text)
    text = text.replace("\N{SUPERSCRIPT TWO}", "^2").replace("\N{SUPERSCRIPT THREE}", "^3")
    text = _REPEATING.sub(_as_fraction, _ROW_SPACE.sub("", text))
    found: list[Token] = []
    spaced = False
    for match in _TOKEN.finditer(_DEGREES.sub(" ", text)):
        kind, word = str(match.lastgroup), match.group()
        if kind == "space" or word in _DROPPED:
            spaced = spaced or kind == "space"
            continue
        word = _SPELLINGS.get(word, word)
        if word.startswith("\\") and len(word) > 1:
            kind, word = "command", word[1:]
        elif kind == "command":
            kind = "sign"
        found.append(Token(kind, word, spaced))
        spaced = False
    if not 0 < len(found) <= MAX_TOKENS:
        raise NotMathematics(f"{len(found)} tokens")
    return found


def _as_fraction(repeating: re.Match[str]) -> str:
    r"""Return `0.1\overline{6}` as a fraction in brackets."""
    whole, first, again = repeating.groups()
    nines = 10 ** (len(first) + len(again)) - 10 ** len(first)
    return f"({int(whole + first + again) - int(whole + first or '0')}/{nines})"

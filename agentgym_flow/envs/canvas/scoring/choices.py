"""Multiple choice: finds the options in a text, and scores answers.

A text is a multiple choice if it lists at least three options under the letters from A on, in one style, each with a
text that is not a question. A lone letter is not an option: `choose five of the 5e eggs`, `f(a)` and
`in parts (a), (b) and (c)` contain none.
"""

from __future__ import annotations

import re

from agentgym_flow.envs.canvas.scoring import mathematics
from agentgym_flow.envs.canvas.scoring.extract import last_box, stated_answer

LETTERS = "ABCDEFGH"
FEWEST = 3
"""The minimum number of options."""
_LONGEST = 300

_STYLES = (
    re.compile(r"(?:^|(?<=[\s{]))\((?P<letter>[A-H])\)"),  # (A)
    re.compile(r"(?:^|(?<=[\s,]))(?P<letter>[A-H])\s?\)"),  # A) and A )
    re.compile(r"(?:^|(?<=[\s,]))(?P<letter>[a-h])\s\)"),  # a ), as MathQA has it
    re.compile(r"^[ \t]*(?P<letter>[A-H])[.:]", re.MULTILINE),
    re.compile(r"^[ \t]*\(?(?P<letter>[a-h])\)", re.MULTILINE),
)
_ANSWERED = re.compile(r"\(?\s*(?P<letter>[A-Ha-h])\s*(?:[).:](?:\s.*)?)?", re.DOTALL)
_AROUND = " \t\r\n,;"
_ASKING = re.compile(r"\?|\b(?:find|compute|determine|prove|show that|how many|what)\b", re.IGNORECASE)


def options_in(text: str) -> tuple[str, ...]:
    """Return the options in a text, in the order of their letters; empty if it is not a multiple choice."""
    for style in _STYLES:
        labels = list(style.finditer(text))
        for first in range(len(labels)):
            if labels[first]["letter"].upper() == "A":
                options = _listed(text, labels[first:])
                if options:
                    return options
    return ()


def _listed(text: str, labels: list[re.Match[str]]) -> tuple[str, ...]:
    count = next(
        (i for i, label in enumerate(labels) if i >= len(LETTERS) or label["letter"].upper() != LETTERS[i]), len(labels)
    )
    if count < FEWEST:
        return ()
    ends = [label.start() for label in labels[1:count]] + [len(text)]
    options = [text[label.end() : end].strip(_AROUND) for label, end in zip(labels[:count], ends, strict=True)]
    options[-1] = options[-1].partition("\n\n")[0].strip(_AROUND)
    usable = all(
        option and option.lower() not in ("and", "or") and len(option) <= _LONGEST and not _ASKING.search(option)
        for option in options
    )
    return tuple(options) if usable else ()


def right_choice(text: str, options: tuple[str, ...], letter: str) -> bool:
    """Return whether a text answers with `letter`, or without a letter with the content of the option.

    Raises `MissingExtra` as `mathematics.equal` does, if the text contains no letter.
    """
    for said in (stated_answer(text).text, "" if last_box(text) is not None else text.strip()):
        found = _ANSWERED.fullmatch(said)
        if found and len(said) <= _LONGEST and found["letter"].upper() in LETTERS[: len(options)]:
            return bool(found["letter"].upper() == letter)
    return mathematics.equal(text, options[LETTERS.index(letter)])

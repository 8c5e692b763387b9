r"""Finds the answer that a text states: the first of these that it has.

1. the last `<answer>` tag, inside which the others are searched
2. a `####` followed by a number or formula on its line, if no box and no phrase comes later
3. the last box, `\boxed{...}`
4. the last phrase that announces a number or formula, such as *the answer is*, else the last phrase
5. a `####` on the last line, whatever follows it

So headings, `#### Step 3` or `#### Check`, do not hide an answer. The answer may stand on the line below a heading
`#### Answer` with any number of `#`.

Plain numbers are compared here, too, exactly and without a parser of formulas. Formulas are compared by Math-Verify.
It uses SymPy, which can take hours or gigabytes for a short formula and cannot be interrupted within a process (signals
only work in the main thread). So a separate process with limits serves all threads. It starts at the first comparison
and ends with this process.
"""

from __future__ import annotations

import atexit
import importlib.util
import json
import os
import re
import selectors
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from agentgym_flow.errors import MissingExtra
from agentgym_flow.problems.answers import last_answer

MAX_TEXT = 20_000
"""The number of characters that are read, from the end of a text."""

_BOXES = ("\\boxed", "\\fbox")
_LONGEST_BOX = 600
_MOST = 50  # boxes and phrases that are read, from the end of a text
_PHRASE = re.compile(r"(?:final\s+answer|answer|result)\b(?:\s+(?:is|are|equals)\b\s*:?|\s*[:=])[\s*]*", re.IGNORECASE)
_SENTENCE_END = re.compile(r"[.!?](?=\s+[A-Z*#]|[ \t]*\n|\s*$)|[;\n]")
_QUOTES = "*_`\"' \t\r\n"
_TITLE = r"[*_]*(?:the\s+)?(?:final\s+)?(?:answer|result)\b(?:\s+(?:is|are|equals)\b)?[*_:= \t]*"
_LINE = r"(?P<line>\\\[[^#]{1,600}?\\\]|\$\$[^#$]{1,600}\$\$|[^\n#]*)"  # or a displayed formula
_MARKER = re.compile(
    rf"(?:#{{4,}}\s*(?:{_TITLE}\s*)?|^#{{1,3}}[ \t]+{_TITLE}\n\s*){_LINE}", re.IGNORECASE | re.MULTILINE
)
_NUMBERING = re.compile(r"\(?(?:\d{1,2}[.):]\s|[a-z][.):]\s+\S*[a-z]{2})", re.IGNORECASE)  # 1. Two cases, (a) Find x
_FORMULA = re.compile(r"[-+\N{MINUS SIGN}]?\s*(?:\\?[$€£]\s*)?\.?\d|\\?\$|\\[(\[a-zA-Z]")
_WORD = re.compile(r"[^\W\d_]{2}")
_BETWEEN_BOXES = re.compile(r"[\s$)\]\\]*(?:,?\s*(?:and|or)\b|,)[\s$(\[\\]*(?:[a-zA-Z](?:_\{?\w+\}?)?\s*=\s*)?")


class StatedAnswer(NamedTuple):
    """An answer, and whether the text announces it. If not, the answer is the whole text."""

    text: str
    announced: bool


def stated_answer(text: str) -> StatedAnswer:
    """Return the announced answer of a text, or the text itself."""
    text = text[-MAX_TEXT:]
    marked = marked_answer(text)
    text = text if marked is None else marked
    boxed = last_box(text)
    if boxed is not None:
        return StatedAnswer(boxed, True)
    phrases = [answer for _, answer in _phrases(text)]
    if phrases:
        return StatedAnswer(
            next((one for one in reversed(phrases) if _is_formula(one, within=True)), phrases[-1]), True
        )
    return StatedAnswer(text.strip(_QUOTES), marked is not None)


def marked_answer(text: str) -> str | None:
    """Return the content of the last `<answer>` block of a text, else the line after a `####` that counts, or None."""
    tagged = last_answer(text)
    if tagged is not None:
        return tagged
    markers = list(_MARKER.finditer(text))
    if not markers:
        return None
    box = next(_boxes(text), None)
    later = max([start for start, _ in _phrases(text)] + ([box[0]] if box else []), default=-1)
    marker = next((one for one in reversed(markers) if _is_formula(one["line"])), None)
    if marker is None and later < 0 and not text[markers[-1].end() :].strip(_QUOTES):
        marker = markers[-1]
    return marker["line"].strip() or None if marker and later < marker.end() else None


def answering_part(text: str) -> str:
    r"""Return the part of a text that has its answer, for a parser that finds formulas and numbers by itself.

    If the text answers in a box, this is the last box, or several in a row, `\boxed{2}` and `\boxed{3}`. If it
    announces an answer and has no number or formula from there on, it is what the text announces.
    """
    text = text[-MAX_TEXT:]
    marked = marked_answer(text)
    text = text if marked is None else marked
    boxes: list[str] = []
    end = len(text)
    for start, stop, inner in _boxes(text):
        if boxes and not _BETWEEN_BOXES.fullmatch(text, stop, end):
            break
        boxes.insert(0, f"\\boxed{{{inner}}}")
        end = start
    if boxes:
        return boxes[0] if len(boxes) == 1 else " and ".join(f"${box}$" for box in boxes)
    announced = [(start, answer) for start, answer in _phrases(text) if text[start] not in "rR"]  # not: the result is
    if announced and not re.search(r"[\d\\$]", text[announced[0][0] :]):
        return announced[-1][1]
    return text


def last_box(text: str) -> str | None:
    r"""Return the content of the last complete `\boxed{...}`, `\fbox{...}` or `\boxed 5` of a text, or None."""
    return next((inner for _, _, inner in _boxes(text)), None)


def _boxes(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield start, end and content of the complete boxes, the last first."""
    end = len(text)
    for _ in range(_MOST):
        start, name = max((text.rfind(name, 0, end), name) for name in _BOXES)
        if start < 0:
            return
        inside = _in_braces(text, start + len(name))
        if inside is not None:
            yield start, inside[1], inside[0].strip()
        end = start


def _phrases(text: str) -> list[tuple[int, str]]:
    """Return the start of each phrase that announces something, and what it announces."""
    found = []
    for phrase in list(_PHRASE.finditer(text))[-_MOST:]:
        stop = _SENTENCE_END.search(text, phrase.end())
        answer = text[phrase.end() : stop.start() if stop else None].strip(_QUOTES)
        if answer:
            found.append((phrase.start(), answer))
    return found


def _is_formula(line: str, *, within: bool = False) -> bool:
    """Return whether a line is a number, a formula or a letter, or only contains a digit (`within`); not a heading."""
    line = line.strip(_QUOTES + ".")
    if within and re.search(r"\d", line):
        return True
    begins = _FORMULA.match(line) or not _WORD.search(line)
    return bool(begins and re.search(r"\w", line)) and not _NUMBERING.match(line)


def _in_braces(text: str, start: int) -> tuple[str, int] | None:
    """Return the text in the braces at `start`, or the word there, and its end."""
    while start < len(text) and text[start] == " ":
        start += 1
    if start >= len(text) or text[start] != "{":
        word = re.match(r"[^\s$]+", text[start : start + _LONGEST_BOX])
        return (word.group(), start + word.end()) if word else None
    depth = 0
    for place in range(start, min(len(text), start + _LONGEST_BOX)):
        if text[place] in "{}" and text[place - 1] != "\\":
            depth += 1 if text[place] == "{" else -1
            if depth == 0:
                return text[start + 1 : place], place + 1
    return None


NUMBER = "number"
"""The name of this scorer in results."""

_NUMBER = re.compile(
    r"(?<![\w.,/^])(?P<sign>[-\N{MINUS SIGN}]\s?)?(?:[$€£]\s?)?"
    r"(?:(?P<whole>\d{1,30})[ \t]+(?=\d{1,30}\s?/\s?\d))?"
    r"(?P<number>\d{1,3}(?:,\d{3})+(?:\.\d{1,30})?(?![\d,])|\d{1,30}(?:\.\d{1,30})?(?!,?\d)|\.\d{1,30})"
    r"(?:e(?P<exponent>[-+]?\d{1,2})(?!\w))?(?:\s?/\s?(?P<over>\d{1,30}))?(?P<percent>\s?(?:\\?%|‰|per\s?cent\b|pct\b))?(?!\d)",
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
    """Return whether `text` states exactly the number `gold`: `12.0`, `1.2e1` and `24/2` equal 12, `12.0005` does not.

    In a text that announces its answer the first number counts, otherwise the last. Alternatives (`49 or 48`),
    percentages (`48%`), multiples (`48 thousand`) and calculations without a result (`48 + 1`, `10-48`, `7^48`)
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
    value = Fraction(number["number"].replace(",", "")) * Fraction(10) ** int(number["exponent"] or 0)
    value /= int(number["over"] or 1)
    if number["whole"]:
        if value >= 1:  # `3 10/2` are two numbers
            return None
        value += int(number["whole"])
    return -value if number["sign"] else value


def _in_calculation(number: re.Match[str], text: str) -> bool:
    """Return whether a number in a text is part of a calculation, such as a power, a sum or a multiple."""
    start = number.start("number")
    before = text[max(start - _LONGEST_BETWEEN, 0) : start]
    return _BEFORE.search(before) is not None or _AFTER.match(text, number.end()) is not None


CPU_SECONDS = 5.0
"""The CPU time limit of a comparison; usual answers take hundredths of it."""
_WALL_SECONDS = 120.0  # for a stopped process, or a machine under heavy load

_WORKER = Path(__file__).with_name("mathematics_worker.py")
_lock = threading.Lock()
_process: subprocess.Popen[str] | None = None
_of_parents: list[subprocess.Popen[str]] = []  # kept, because only the parent may wait for them


@lru_cache(maxsize=1)
def _installed() -> bool:
    return importlib.util.find_spec("math_verify") is not None


def check_installed() -> None:
    """Raise `MissingExtra` if Math-Verify is not installed, or the system cannot limit processes."""
    if sys.platform == "win32":
        raise MissingExtra("Math-Verify runs within limits that Windows does not have: use Linux, macOS or WSL")
    if not _installed():
        raise MissingExtra.of("math-verify", "canvas")


@lru_cache(maxsize=1)
def scorer() -> str:
    """Return the name and version of the package: `math-verify 0.9.0`. Raises `MissingExtra`."""
    check_installed()
    return f"math-verify {version('math-verify')}"


def equal(text: str, gold: str) -> bool:
    """Return whether a text answers with `gold`.

    Math-Verify reads the last `<answer>` block of the text, or the line after a `####` (see `extract`), or all of it.
    There the last box counts, or what *the answer is* announces, or the last formula or number, with the settings of
    its own tasks (GSM8K, MATH, AIME). A refusal in a box or after *the answer is* is wrong, whatever precedes it.
    The result must equal `gold` within six decimals, or as a formula. An answer identical to `gold` is always right;
    one that takes longer than `CPU_SECONDS` is wrong.

    Raises `MissingExtra` if Math-Verify is not installed.
    """
    check_installed()
    answer = answering_part(text).strip()
    if answer == gold.strip():
        return bool(answer)
    return bool(answer) and _equal(json.dumps([answer, gold]))


@lru_cache(maxsize=4096)
def _equal(question: str) -> bool:
    with _lock:
        return _answer(question) == "true"


def _answer(question: str) -> str:
    """Return the line that the process answers; empty if the process ended."""
    process = _running()
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(question + "\n")
        process.stdin.flush()
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            answer = process.stdout.readline().strip() if selector.select(_WALL_SECONDS) else ""
    except OSError:
        answer = ""
    if not answer:
        _stop(process)
    return answer


def _running() -> subprocess.Popen[str]:
    global _process
    if _process is not None and _process.poll() is not None:  # it was killed
        _stop(_process)
    if _process is None:
        _process = subprocess.Popen(
            [sys.executable, "-P", str(_WORKER), str(CPU_SECONDS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
    return _process


@atexit.register
def close() -> None:
    """End the process, if there is one. The next comparison starts a new one."""
    if _process is not None:
        _stop(_process)


def _start_anew() -> None:
    """After a fork, forget the process of the parent, and the lock that another thread may hold."""
    global _process, _lock
    if _process is not None:
        _of_parents.append(_process)
    _process, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_start_anew)


def _stop(process: subprocess.Popen[str]) -> None:
    global _process
    _process = None
    process.kill()
    with suppress(OSError), process:  # closes the pipes, which may contain a question, and waits
        pass

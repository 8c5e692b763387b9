"""Parses the replies of models. An invalid reply is a failure, never a pass or an empty result."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, TypeVar

from agentgym_flow.prompts import thoughts

T = TypeVar("T")


class OperatorFailed(Exception):
    """An operator failed; the message gives the reason in our words.

    Attributes:
        status: the status of the result.
    """

    def __init__(self, text: str, status: Literal["error", "timeout"] = "error") -> None:
        super().__init__(text)
        self.status = status


_FENCED = re.compile(r"^[ \t]*```[ \t]*([\w+-]*)[^\n]*\n(.*?)^[ \t]*```[ \t]*$", re.MULTILINE | re.DOTALL)
_BARE_CODE = re.compile(r"(def|class|import|from|async def)\s+\w|@\w")
_NUMBERED = re.compile(r"[*_#\s]*(?:step\s+)?\d{1,3}[*_]*\s*[.):][*_]*\s+(.*)", re.IGNORECASE)
_BULLET = re.compile(r"\s*[-*•]\s+(.*)")
_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.IGNORECASE | re.DOTALL)
_AROUND = r"[\s*_`#>]*"
_END = r"[\s*_`.]*"
_VERDICT = re.compile(rf"{_AROUND}verdict{_AROUND}:{_AROUND}(pass|fail)(?:ed|s)?{_END}", re.IGNORECASE)
_CHOICE = re.compile(rf"{_AROUND}choice{_AROUND}:{_AROUND}(\d{{1,6}}){_END}", re.IGNORECASE)


def without_thoughts(reply: str) -> str:
    """Return the stripped text outside of a model's thoughts. Raises `OperatorFailed` if it is empty."""
    said = thoughts.without_thoughts(reply).strip()
    if not said:
        unclosed = thoughts.ends_in_thought(reply)
        raise OperatorFailed("the reply is a thought without an end" if unclosed else "the reply is empty")
    return said


def steps(reply: str) -> tuple[str, ...]:
    """Return the entries of a numbered or bulleted list. Raises `OperatorFailed` if there are none."""
    lines = reply.splitlines()
    for entry in (_NUMBERED, _BULLET):
        found: list[list[str]] = []
        for line in lines:
            if match := entry.fullmatch(line):
                found.append([match[1]])
            elif found and line.strip():
                found[-1].append(line.strip())
        entries = tuple(text for parts in found if (text := "\n".join(parts).strip()))
        if entries:
            return entries
    raise OperatorFailed("the reply holds no numbered list")


def program(reply: str, function: str = "") -> str:
    """Return the program in a reply: the last code block that defines `function`, else the last code block.

    Raises `OperatorFailed` if there is no code.
    """
    blocks = [text for language, text in _FENCED.findall(reply) if language.lower() in ("", "py", "python", "python3")]
    defining = [text for text in blocks if function and re.search(rf"\bdef\s+{re.escape(function)}\b", text)]
    if not blocks and "```" not in reply and _BARE_CODE.match(reply):
        blocks = [reply]
    code: str = (defining or blocks or [""])[-1].strip()
    if not code:
        raise OperatorFailed("the reply holds no block of Python code")
    return code + "\n"


def answer(reply: str) -> str:
    """Return the content of the last answer tag. Raises `OperatorFailed` if there is none, or it is empty."""
    found = _ANSWER.findall(reply)
    if not found or not found[-1].strip():
        raise OperatorFailed("the reply holds no <answer>")
    text: str = found[-1]
    return text.strip()


def verdict(reply: str) -> tuple[bool, str]:
    """Return whether the verdict is a pass, and the other lines. Raises `OperatorFailed` if it is unclear."""
    said, rest = _agreed(reply, _VERDICT, str.lower, "verdict")
    return said == "pass", rest


def choice(reply: str, count: int) -> int:
    """Return the index of the chosen candidate. Raises `OperatorFailed` if there is no valid choice."""
    number, _ = _agreed(reply, _CHOICE, int, "choice")
    if not 1 <= number <= count:
        raise OperatorFailed(f"the reply chooses number {number} of {count} candidates")
    return number - 1


def _agreed(reply: str, form: re.Pattern[str], read: Callable[[str], T], what: str) -> tuple[T, str]:
    """Return the value of the lines that match `form`, if they agree, and the other lines."""
    found: dict[T, None] = {}
    others = []
    for line in reply.splitlines():
        if match := form.fullmatch(line):
            found[read(match[1])] = None
        else:
            others.append(line)
    if len(found) != 1:
        raise OperatorFailed(f"the reply gives {'more than one' if found else 'no'} {what}")
    return next(iter(found)), "\n".join(others).strip()

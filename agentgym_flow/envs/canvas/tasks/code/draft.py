"""Templates of library functions, and how they are filled in."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from string import Template
from typing import Any, NamedTuple, TypeAlias

from agentgym_flow.core import Stream
from agentgym_flow.envs.content import read_content

Arguments: TypeAlias = tuple[Any, ...]

_WORDS = (
    "amber", "basil", "cedar", "delta", "ember", "fjord", "grove", "haven", "inlet", "jolly", "koala", "lemon",
    "maple", "night", "ocean", "pearl", "quilt", "river", "stone", "tiger", "umbra", "viola", "wheat", "yacht",
    "zebra", "apple", "brook", "cloud", "dusk", "earth", "flame", "grape", "hazel", "ivory", "kite", "lake",
    "moss", "nut", "oak", "pine", "rain", "sand", "tea", "vine", "wolf", "ant", "bee", "cat", "dog", "elk", "fox",
)  # fmt: skip


class Draw(Stream):
    """A random stream with the draws that patterns need."""

    __slots__ = ()

    def between(self, low: int, high: int) -> int:
        """Return an integer from `low` to `high`, both included."""
        return low + self.below(high - low + 1)

    def ints(self, count: int, low: int, high: int) -> list[int]:
        """Return `count` integers from `low` to `high`."""
        return [self.between(low, high) for _ in range(count)]

    def distinct(self, count: int, low: int, high: int) -> list[int]:
        """Return `count` different integers from `low` to `high`, in random order."""
        return self.sample(range(low, high + 1), count)

    def words(self, count: int) -> list[str]:
        """Return `count` different lower-case words."""
        return self.sample(_WORDS, count)

    def coin(self) -> bool:
        """Return True with probability 1/2."""
        return self.below(2) == 1


@dataclass(frozen=True, slots=True)
class FunctionDraft:
    """A function with all its parameters chosen.

    Attributes:
        name: the name of the function.
        signature: its name and arguments as in its definition.
        source: the right program.
        ask: its specification, one paragraph.
        step: an approach in one sentence, for a plan.
        public: the arguments of the public tests, ordinary ones.
        hidden: the arguments of further tests, including unusual ones.
        take: for a generator that never ends, the number of values that a test takes; else 0.
    """

    name: str
    signature: str
    source: str
    ask: str
    step: str
    public: tuple[Arguments, ...]
    hidden: tuple[Arguments, ...]
    take: int


class FunctionTexts(NamedTuple):
    """The texts of a pattern, with `$name` for names and values.

    Attributes:
        code: the lines of the program.
        ask: its specification.
        step: an approach in one sentence, for a plan.
        names: placeholder -> the names to choose from.
    """

    code: tuple[str, ...]
    ask: str
    step: str
    names: dict[str, tuple[str, ...]]


def function_texts(file: str) -> dict[str, FunctionTexts]:
    """Return the texts of the patterns in a file of the library."""
    return read_content("agentgym_flow.envs.canvas.tasks.code.library", file, dict[str, FunctionTexts])


Pattern: TypeAlias = Callable[[Draw], FunctionDraft]
"""Draws the parameters of a library function."""

_SIGNATURE = re.compile(r"^def (\w+)\(([^\n]*)\):$", re.MULTILINE)


def draft(
    draw: Draw,
    texts: FunctionTexts,
    public: Sequence[Arguments],
    hidden: Sequence[Arguments],
    /,
    *,
    take: int = 0,
    **values: object,
) -> FunctionDraft:
    """Return a filled-in pattern: `$name` in its texts is replaced by one of its names, or one of the `values`.

    `values` may refer to names and to earlier values in the same way. Names are quoted in texts, not in code. The last
    function that the code defines is the one to write.
    """
    chosen = {name: draw.choice(choices) for name, choices in texts.names.items()}
    quoted = {name: f"`{choice}`" for name, choice in chosen.items()}
    for name, value in values.items():
        chosen[name] = Template(str(value)).substitute(chosen)
        quoted[name] = Template(str(value)).substitute(quoted)
    source = Template("\n".join(texts.code)).substitute(chosen)
    text, how = (Template(pattern).substitute(quoted) for pattern in (texts.ask, texts.step))
    name, arguments = _SIGNATURE.findall(source)[-1]
    signature = f"{name}({arguments})"
    return FunctionDraft(
        name, signature, source + "\n", " ".join(text.split()), how, tuple(public), tuple(hidden), take
    )

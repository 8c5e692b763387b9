"""Programs as answers: found in a text, completed, and scored by running the hidden tests, and by nothing else.

What a text says of its tests proves nothing, and neither does code that merely compiles.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from agentgym_flow.envs.canvas.scoring.code_tests import before, definition
from agentgym_flow.envs.canvas.scoring.problem import CodeTests, Problem

MAX_PROGRAM = 100_000
"""A longer program is not run."""

RunTests = Callable[[str, CodeTests], bool]
"""Runs a program against tests, safely; `True` only when all of them passed.

Checks are run against the program in another process (`tests.source`, which takes `tests.names` from the program and
nothing else), or after it where the program is known (`tests.script(program)`), a harness
as `tests.script(program)`; for cases the program itself is run, once for each, and compared with `same_output`.
"""

_FENCED = re.compile(r"^[ \t]*```[ \t]*(?P<language>\w*)[^\n]*\n(?P<code>.*?)^[ \t]*```", re.DOTALL | re.MULTILINE)
_SOLUTION = re.compile(r"^class\s+Solution\b", re.MULTILINE)
_PYTHON = ("python", "python3", "py")


def program_in(text: str, entry_point: str = "") -> str:
    """Return the program in a text: of its fenced blocks the last that defines `entry_point`, else the last.

    Blocks that say they are Python come before others. Without a block the text itself is the program.
    """
    text = text[: text.rfind("```") + 3] if "```" in text else text  # every start looked at has an end
    blocks = [(found["language"].lower(), found["code"]) for found in _FENCED.finditer(text)]
    blocks = [block for block in blocks if block[0] in _PYTHON] or blocks
    codes = [code for _, code in blocks]
    defining = [code for code in codes if entry_point and defines(code, entry_point)]
    return (defining or codes or [text])[-1]


def defines(program: str, name: str) -> bool:
    """Return whether a line of a program begins the definition of the function `name` at its outermost level."""
    return definition(program, name) is not None


def completed(problem: Problem, program: str) -> str:
    """Return a program that can stand alone and defines the function that is tested.

    Where the problem gives the beginning of a program (`Problem.prefix`), it may be answered with the whole function,
    or with its body alone; both need the imports and helpers above it. A method of `class Solution` is as good as a
    function (APPS).
    """
    if not defines(program, problem.entry_point):
        if problem.entry_point and _SOLUTION.search(program):
            name = problem.entry_point
            return f"{program}\n\n\ndef {name}(*arguments):\n    return Solution().{name}(*arguments)\n"
        return problem.prefix + program
    return (before(problem.prefix, problem.entry_point) or "") + program


def passes(problem: Problem, text: str, run_tests: RunTests) -> bool:
    """Return whether the program in a text passes the hidden tests; False for a problem that has none (pass@1)."""
    if not problem.hidden_tests:
        return False
    program = completed(problem, program_in(text, problem.entry_point))
    return len(program) <= MAX_PROGRAM and run_tests(program, problem.hidden_tests) is True


def same_output(produced: str, wanted: str) -> bool:
    """Return whether two outputs have the same words in the same lines; blank lines do not count."""
    return _words(produced) == _words(wanted)


def _words(output: str) -> list[list[str]]:
    return [words for line in output.splitlines() if (words := line.split())]

"""Programs as answers: found in a text, completed, and scored only by running the hidden tests."""

from __future__ import annotations

import re
from collections.abc import Callable

from agentgym_flow.envs.canvas.scoring.code_tests import before, definition
from agentgym_flow.envs.canvas.scoring.problem import CodeTests, Problem

MAX_PROGRAM = 100_000
"""The maximum length of a program that is run."""

RunTests = Callable[[str, CodeTests], bool]
"""Runs a program against tests safely; returns True only if all of them pass.

Checks run in a different process than the program (`tests.source`, which takes only `tests.names` from it), or after it
if the program is trusted (`tests.script(program)`). A harness runs as `tests.script(program)`. For cases, the program
runs once for each, and its output is compared with `same_output`.
"""

_FENCED = re.compile(r"^[ \t]*```[ \t]*(?P<language>\w*)[^\n]*\n(?P<code>.*?)^[ \t]*```", re.DOTALL | re.MULTILINE)
_SOLUTION = re.compile(r"^class\s+Solution\b", re.MULTILINE)
_PYTHON = ("python", "python3", "py")


def program_in(text: str, entry_point: str = "") -> str:
    """Return the program in a text: the last fenced block that defines `entry_point`, else the last block.

    Blocks that are marked as Python take precedence. Without a block, the text itself is the program.
    """
    text = text[: text.rfind("```") + 3] if "```" in text else text  # every opening fence now has a closing one
    blocks = [(found["language"].lower(), found["code"]) for found in _FENCED.finditer(text)]
    blocks = [block for block in blocks if block[0] in _PYTHON] or blocks
    codes = [code for _, code in blocks]
    defining = [code for code in codes if entry_point and defines(code, entry_point)]
    return (defining or codes or [text])[-1]


def defines(program: str, name: str) -> bool:
    """Return whether a program defines the function `name` at its top level."""
    return definition(program, name) is not None


def completed(problem: Problem, program: str) -> str:
    """Return a standalone program that defines the function under test.

    If the problem gives the beginning of a program (`Problem.prefix`), the answer may be the whole function or only its
    body; both need the imports and helpers above it. A method of `class Solution` also counts as a function (APPS).
    """
    if not defines(program, problem.entry_point):
        if problem.entry_point and _SOLUTION.search(program):
            name = problem.entry_point
            return f"{program}\n\n\ndef {name}(*arguments):\n    return Solution().{name}(*arguments)\n"
        return problem.prefix + program
    return (before(problem.prefix, problem.entry_point) or "") + program


def passes(problem: Problem, text: str, run_tests: RunTests) -> bool:
    """Return whether the program in a text passes the hidden tests (pass@1); False if there are none."""
    if not problem.hidden_tests:
        return False
    program = completed(problem, program_in(text, problem.entry_point))
    return len(program) <= MAX_PROGRAM and run_tests(program, problem.hidden_tests) is True


def same_output(produced: str, wanted: str) -> bool:
    """Return whether two outputs have the same words on the same lines, ignoring blank lines."""
    return _words(produced) == _words(wanted)


def _words(output: str) -> list[list[str]]:
    return [words for line in output.splitlines() if (words := line.split())]

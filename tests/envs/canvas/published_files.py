"""What the tests of published sets share: invented rows in their publishers' forms, and files of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from agentgym_flow.core import Stream

_WORDS = """ant barn cart dock east farm gate hill inn jar kite lamp mill nest oven path quay roof shed tree urn vine
well yard apple bread cheese dates eggs flour grapes honey ices jam lemons milk nuts olives pears rice salt tea wine"""


def sum_row(number: int, *, wrong: bool = False) -> dict[str, Any]:
    """Return a row of GSM8K; no two ask nearly the same. With `wrong`, its calculation is not right."""
    words = " ".join(Stream("rows of a test", number).sample(_WORDS.split(), 12))
    total = 3 * (number + 2)
    worked = f"It is 3*{number + 2}=<<3*{number + 2}={total + wrong}>>{total}."
    return {"question": f"Count {words} {number} times. How many?", "answer": f"{worked}\n#### {total}"}


def program_row(number: int = 0, **changes: Any) -> dict[str, Any]:
    """Return a row of HumanEval."""
    prompt = f'def add{number}(a, b):\n    """Add two numbers.\n    >>> add{number}(1, 2)\n    3\n    """\n'
    row = {
        "task_id": f"Test/{number}",
        "prompt": prompt,
        "entry_point": f"add{number}",
        "canonical_solution": "    return a + b\n",
        "test": "def check(candidate):\n    assert candidate(1, 2) == 3\n    assert candidate(-4, 4) == 0\n",
    }
    return row | changes


def native_row(number: int) -> dict[str, Any]:
    """Return a row in FlowSteer's form."""
    words = " ".join(Stream("native rows of a test", number).sample(_WORDS.split(), 12))
    fields = {"problem_type": "qa", "source": "hotpotqa", "ground_truth": f"{number}", "meta": {"id": f"n{number}"}}
    return {"problem": f"Who counts {words}?", **fields}


def write_rows(file: Path, rows: Iterable[dict[str, Any]]) -> Path:
    """Write rows as JSON lines and return the file; folders above it are made."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return file


def sums(file: Path, numbers: Iterable[int]) -> Path:
    """Write rows of GSM8K."""
    return write_rows(file, map(sum_row, numbers))

"""GSM8K, MATH, MathQA and AIME, one record at a time."""

from __future__ import annotations

from agentgym_flow.envs.canvas.scoring.choices import LETTERS, options_in
from agentgym_flow.envs.canvas.scoring.extract import last_box
from agentgym_flow.envs.canvas.scoring.problem import Problem
from agentgym_flow.envs.canvas.tasks.sets.fields import Record, optional, text
from agentgym_flow.errors import BadData


def gsm8k(record: Record, number: int) -> Problem:
    """Read `question` and `answer`, whose last line is `#### ` with the number."""
    solution = text(record, "answer")
    before, hashes, gold = solution.rpartition("####")
    if not hashes or not gold.strip():
        raise BadData("the field answer must end with #### and the answer.")
    return Problem(
        id=optional(record, "id") or str(number),
        text=text(record, "question"),
        kind="math",
        source="gsm8k",
        answers=(gold.strip().replace(",", ""),),
        solution=before.rstrip(),
    )


def math(record: Record, number: int) -> Problem:
    r"""Read `problem`, `solution` with the answer in its last `\boxed{}`, `level`, and `type`; or MATH-500's fields."""
    solution = text(record, "solution")
    gold = optional(record, "answer").strip() or last_box(solution)
    if not gold:
        raise BadData("the field solution must have its answer in \\boxed{}.")
    names = {"level": optional(record, "level"), "type": optional(record, "type", "subject")}
    return Problem(
        id=optional(record, "unique_id", "id") or str(number),
        text=text(record, "problem"),
        kind="math",
        source="math",
        answers=(gold,),
        solution=solution,
        meta={name: value for name, value in names.items() if value},
    )


def mathqa(record: Record, number: int) -> Problem:
    """Read `Problem`, `options` (`a ) 38 , b ) 27 , ...`), `correct` (a letter), `Rationale` and `category`."""
    listed = text(record, "options")
    if listed.startswith("["):  # some rows contain the repr of a Python list
        listed = listed.strip("[]").replace("'", " ").replace('"', " ")
    options = options_in(listed)
    letter = text(record, "correct").strip().upper()
    if len(options) < 2:
        raise BadData(f"the field options must list `a ) ... , b ) ...`, got {record['options']!r:.60}.")
    if len(letter) != 1 or letter not in LETTERS[: len(options)]:
        raise BadData(f"the field correct must be the letter of an option, got {letter!r:.20}.")
    return Problem(
        id=optional(record, "id") or str(number),
        text=text(record, "Problem"),
        kind="math",
        source="mathqa",
        answers=(letter,),
        options=options,
        solution=optional(record, "Rationale"),
        meta={"category": optional(record, "category"), "formula": optional(record, "annotated_formula")},
    )


def aime(record: Record, number: int) -> Problem:
    """Read `problem` or `question`, and `answer`, an integer from 0 to 999, as in copies of AIME 2025."""
    gold = text(record, "answer").strip().removesuffix("^\\circ").strip("$ ")
    if not gold.isdecimal() or int(gold) > 999:
        raise BadData(f"the field answer must be an integer from 0 to 999, got {gold!r:.40}.")
    return Problem(
        id=optional(record, "id", "problem_idx") or str(number),
        text=text(record, "problem", "question"),
        kind="math",
        source="aime_2025",
        answers=(str(int(gold)),),
        solution=optional(record, "solution"),
    )

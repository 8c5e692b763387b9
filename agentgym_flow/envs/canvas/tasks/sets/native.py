"""Rows of FlowSteer's own data set: one format for all its sources.

`{"problem": ..., "problem_type": "math|code|qa|mathqa_mc", "source": ..., "ground_truth": ..., "meta": {...}}`; several
right answers are in `meta.all_answers`, or separated by `|` in `ground_truth`. Passages are in the problem, under their
titles in brackets; the reader extracts them so that questions can be compared.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from agentgym_flow.envs.canvas.scoring.choices import LETTERS, options_in
from agentgym_flow.envs.canvas.scoring.code_tests import code_tests
from agentgym_flow.envs.canvas.scoring.extract import last_box
from agentgym_flow.envs.canvas.scoring.problem import ContextPassage, Kind, Problem
from agentgym_flow.envs.canvas.tasks.sets.code_sets import begins_program, examples_in
from agentgym_flow.envs.canvas.tasks.sets.fields import Record, distinct, mapping, optional, text, texts
from agentgym_flow.errors import BadData

KINDS: Mapping[str, Kind] = {"math": "math", "mathqa_mc": "math", "qa": "qa", "code": "code"}
"""The kind of each `problem_type`."""

_FIELDS = frozenset(("problem", "problem_type", "ground_truth"))
_QUESTION = re.compile(r"\n\s*Question:\s*(?=[^\n]*\s*\Z)")
_TITLED = re.compile(r"^\[(?P<title>[^\]\n]+)\]\n", re.MULTILINE)


def is_native(record: Record) -> bool:
    """Return whether a record has the fields of FlowSteer's data set."""
    return record.keys() >= _FIELDS


def native(record: Record, number: int) -> Problem:
    """Read a row of FlowSteer's data set, of any of its sources."""
    kind = KINDS.get(text(record, "problem_type"))
    if kind is None:
        raise BadData(f"the field problem_type must be one of {', '.join(KINDS)}, got {record['problem_type']!r:.40}.")
    meta = dict(mapping(record.get("meta") or {}, "meta"))
    source = optional(record, "source") or "flowsteer"
    name = optional(meta, "task_id", "id") or str(number)
    if kind == "code":
        return _code(record, meta, source, name)
    return _question(record, meta, source, name) if kind == "qa" else _math(record, meta, source, name)


def _math(record: Record, meta: dict[str, Any], source: str, name: str) -> Problem:
    problem, gold = text(record, "problem"), text(record, "ground_truth").strip()
    options = options_in(problem) if record["problem_type"] == "mathqa_mc" else ()
    if options:
        gold = gold.strip("() .").upper()[:1]
        if gold not in LETTERS[: len(options)]:
            raise BadData(
                f"the field ground_truth must be the letter of an option, got {record['ground_truth']!r:.40}."
            )
    boxed = last_box(gold)
    answer = boxed or gold.rpartition("####")[2].strip()
    if not answer:
        raise BadData("the field ground_truth has no answer after ####.")
    solution = optional(meta, "full_solution")
    return Problem(name, problem, "math", source, (answer,), options=options, solution=solution, meta=_rest(meta))


def _question(record: Record, meta: dict[str, Any], source: str, name: str) -> Problem:
    question, passages = _without_passages(text(record, "problem"))
    listed = meta.get("all_answers")
    truth = optional(record, "ground_truth")
    gold = distinct([*truth.split("|"), *texts(listed, "meta.all_answers")] if listed is not None else truth.split("|"))
    answerable = meta.get("has_answer") is not False and bool(gold)
    return Problem(
        name, question, "qa", source, gold if answerable else (), answerable, passages=passages, meta=_rest(meta)
    )


def _without_passages(problem: str) -> tuple[str, tuple[ContextPassage, ...]]:
    """Split a problem into its question and the passages before it."""
    found = _QUESTION.search(problem)
    if found is None:
        return problem.strip(), ()
    before, question = problem[: found.start()], problem[found.end() :].strip()
    titles = list(_TITLED.finditer(before))
    ends = [title.start() for title in titles[1:]] + [len(before)]
    passages = [
        ContextPassage(title["title"], before[title.end() : end].strip())
        for title, end in zip(titles, ends, strict=True)
    ]
    return question, tuple(passages) or (ContextPassage("", before.strip()),)


def _code(record: Record, meta: dict[str, Any], source: str, name: str) -> Problem:
    prompt, entry_point, test = text(record, "problem"), optional(meta, "entry_point"), optional(meta, "test").strip()
    if "def check(" in test and entry_point and f"check({entry_point})" not in test:
        test = f"{test}\n\ncheck({entry_point})"
    prefix = prompt if begins_program(prompt, entry_point) else ""
    solution = optional(record, "ground_truth")
    return Problem(
        id=name,
        text=prompt,
        kind="code",
        source=source,
        entry_point=entry_point,
        prefix=prefix,
        public_tests=code_tests(examples_in(prompt, entry_point), entry_point),
        hidden_tests=code_tests((test,) if test else (), entry_point, prefix=prefix, solution=solution),
        solution=solution,
        meta=_rest(meta),
    )


def _rest(meta: dict[str, Any]) -> dict[str, Any]:
    taken = ("full_solution", "task_id", "id", "entry_point", "test", "all_answers", "has_answer")
    return {name: value for name, value in meta.items() if name not in taken}

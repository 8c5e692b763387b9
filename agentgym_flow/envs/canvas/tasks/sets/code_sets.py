"""MBPP, HumanEval, APPS and DS-1000, one record at a time.

`hidden_tests` are all tests that the set scores with. `public_tests` are those that the problem shows or must show: the
examples of a docstring, the cases in the text of APPS, and the first test of MBPP, which contains the name of the
function.
"""

from __future__ import annotations

import ast
import doctest
import json
import re
from collections.abc import Mapping
from typing import Any

from agentgym_flow.envs.canvas.scoring import CodeTests, Problem, StdioCase
from agentgym_flow.envs.canvas.scoring.correctness import code_tests
from agentgym_flow.envs.canvas.tasks.sets.fields import Record, decoded, items, mapping, optional, present, text, texts
from agentgym_flow.errors import BadData

_ARROW = r"(?:={1,3}>?|-+>|\u279e|\u2794|\u2192|#?\s*(?:returns?|should\s+return|should\s+be))"
_DEFINED = re.compile(r"^def\s+([A-Za-z_]\w*)", re.MULTILINE)
_WRAPPERS = frozenset(("set", "sorted", "len", "list", "tuple", "str", "isclose", "abs", "round", "int", "float"))


def humaneval(record: Record, number: int) -> Problem:
    """Read `task_id`, `prompt`, `entry_point`, `canonical_solution` and `test`, which defines `check(candidate)`."""
    prompt, name = text(record, "prompt"), text(record, "entry_point")
    if f"def {name}(" not in prompt:
        raise BadData(f"the field prompt does not define the function {name} of entry_point.")
    test = text(record, "test")
    if "def check(" not in test:
        raise BadData("the field test must define check(candidate).")
    return Problem(
        id=optional(record, "task_id") or str(number),
        text=prompt,
        kind="code",
        source="humaneval",
        entry_point=name,
        prefix=prompt,
        public_tests=code_tests(examples_in(prompt, name), name),
        hidden_tests=code_tests((f"{test.strip()}\n\ncheck({name})",), name, prefix=prompt),
        solution=prompt + optional(record, "canonical_solution"),
    )


def examples_in(prompt: str, name: str) -> tuple[str, ...]:
    """Return the examples in the docstring of the function `name`, each as an assertion.

    An example calls the function with literals and shows a literal: after `>>>`, or in one line such as `f(1) == 2`,
    `f(1) => 2` or `f(1) returns 2`. Docstrings contain errors, so a right program can fail an example.
    """
    function = _function(prompt, name)
    docstring = "" if function is None else ast.get_docstring(function) or ""
    try:
        examples = [(one.source, one.want) for one in doctest.DocTestParser().get_examples(docstring)]
    except ValueError:  # the indentation is invalid for doctest
        examples = []
    if not examples:
        shown = re.compile(rf"(?<!\w)(?P<source>{re.escape(name)}\(.*\))\s*{_ARROW}\s*(?P<want>\S.*)")
        found = (shown.search(line) for line in docstring.splitlines())
        examples = [(match["source"], match["want"].rstrip(". ")) for match in found if match]
    checks = (_assertion(source.strip(), want.strip(), name) for source, want in examples)
    return tuple(dict.fromkeys(check for check in checks if check))


def begins_program(prompt: str, name: str) -> bool:
    """Return whether a text is the beginning of a Python program up to the body of the function `name`."""
    return _function(prompt, name) is not None


def _function(prompt: str, name: str) -> ast.FunctionDef | None:
    try:
        body = ast.parse(f"{prompt.rstrip()}\n    pass\n").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return next((one for one in body if isinstance(one, ast.FunctionDef) and one.name == name), None)


def _assertion(source: str, want: str, name: str) -> str:
    """Return `assert source == want`; empty unless they are a call of `name` with literals, and a literal."""
    try:
        call = ast.parse(source, mode="eval").body
        ast.literal_eval(want)
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.func.id != name:
            return ""
        for argument in (*call.args, *(keyword.value for keyword in call.keywords)):
            ast.literal_eval(argument)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return ""
    return f"assert {ast.unparse(call)} == {want}"


MBPP_PARTS = {"prompt": range(1, 11), "test": range(11, 511), "dev": range(511, 601), "train": range(601, 975)}
"""MBPP is one file, which its authors split by `task_id`. The first ten are for few-shot prompts."""

_MBPP_ID = re.compile(r"(?:mbpp/)?(\d{1,9})", re.IGNORECASE)


def mbpp(record: Record, number: int) -> Problem:
    """Read `task_id`, `text`, `code`, `test_list`, `test_setup_code`; sanitised, it has `prompt` and `test_imports`.

    `meta["part"]` is the part to which the authors assign the task; ids such as `Mbpp/11` count as 11.
    """
    tests = texts(record[present(record, "test_list")], "test_list")
    if not tests:
        raise BadData("the field test_list is empty.")
    code = optional(record, "code").replace("\r\n", "\n")
    imports = texts(record.get("test_imports") or [], "test_imports")
    setup = "\n".join([*imports, optional(record, "test_setup_code")]).strip()
    name, task = _entry_point(code, tests), optional(record, "task_id")
    official = _MBPP_ID.fullmatch(task.strip())
    part = next((part for part, ids in MBPP_PARTS.items() if official and int(official[1]) in ids), "")
    return Problem(
        id=task or str(number),
        text=text(record, "text", "prompt"),
        kind="code",
        source="mbpp",
        entry_point=name,
        public_tests=code_tests(tests[:1] if len(tests) > 1 else (), name, setup=setup, solution=code),
        hidden_tests=code_tests(tests, name, setup=setup, solution=code),
        solution=code,
        meta={"part": part} if part else {},
    )


def _entry_point(code: str, tests: tuple[str, ...]) -> str:
    """Return the function that the tests call: one that the solution defines, else the first except wrappers."""
    called = re.findall(r"([A-Za-z_]\w*)\s*\(", tests[0])
    defined = set(_DEFINED.findall(code))  # MBPP 126 defines `sum`
    others = (name for name in called if name not in _WRAPPERS | {"assert"})
    return next((name for name in called if name in defined), next(others, ""))


def apps(record: Record, number: int) -> Problem:
    """Read `question`, `input_output` (JSON in a text: `inputs`, `outputs`, perhaps `fn_name`), `starter_code`, ...

    Rows without tests are kept: they always score 0, and `checks` reports them.
    """
    question = text(record, "question")
    pairs = mapping(decoded(record.get("input_output"), "input_output") or {}, "input_output")
    inputs, outputs = items(pairs.get("inputs", []), "inputs"), items(pairs.get("outputs", []), "outputs")
    if len(inputs) != len(outputs):
        raise BadData(f"the field input_output has {len(inputs)} inputs for {len(outputs)} outputs.")
    name = optional(pairs, "fn_name")
    solutions = decoded(record.get("solutions"), "solutions") or []
    cases = (StdioCase(_lines(given), _lines(wanted)) for given, wanted in zip(inputs, outputs, strict=True))
    hidden = code_tests(_calls(name, inputs, outputs), name) if name else CodeTests(cases=tuple(cases))
    starter = optional(record, "starter_code").strip()
    return Problem(
        id=optional(record, "problem_id", "id") or str(number),
        text=f"{question}\n\n{starter}" if starter else question,
        kind="code",
        source="apps",
        entry_point=name,
        public_tests=CodeTests(cases=tuple(case for case in hidden.cases if _is_shown(case, question))),
        hidden_tests=hidden,
        solution=next(iter(texts(solutions, "solutions")), ""),
        meta={"difficulty": optional(record, "difficulty"), "starter_code": starter},
    )


def _lines(value: Any) -> str:
    return value if isinstance(value, str) else "\n".join(str(line) for line in items(value, "input_output"))


def _is_shown(case: StdioCase, question: str) -> bool:
    shown = "\n".join(line.strip() for line in question.splitlines())
    parts = ("\n".join(line.strip() for line in part.strip().splitlines()) for part in case)
    return all(part and part in shown for part in parts)


def _calls(name: str, inputs: Any, outputs: Any) -> tuple[str, ...]:
    """Return a check for each call; the expected value may be in a list of one, and tuples equal lists."""
    if not name.isidentifier():
        raise BadData(f"the field fn_name must be the name of a function, got {name!r:.60}.")
    return tuple(
        f"_result, _wanted = {name}(*{_literal(given)}), {_literal(wanted)}\n"
        "_result = list(_result) if isinstance(_result, tuple) else _result\n"
        "assert _result == _wanted or (isinstance(_wanted, list) and _wanted[:1] == [_result])"
        for given, wanted in zip(inputs, outputs, strict=True)
    )


def _literal(value: Any) -> str:
    return repr(json.loads(json.dumps(value)))


def ds1000(record: Record, number: int) -> Problem:
    """Read `prompt`, `reference_code`, `code_context` (which defines `test_execution`), and `metadata`."""
    harness = text(record, "code_context")
    if "def test_execution(" not in harness:
        raise BadData("the field code_context must define test_execution(solution).")
    meta: Mapping[str, Any] = mapping(decoded(record.get("metadata"), "metadata") or {}, "metadata")
    return Problem(
        id=optional(meta, "problem_id") or str(number),
        text=text(record, "prompt"),
        kind="code",
        source="ds1000",
        hidden_tests=CodeTests(harness=harness),
        solution=optional(record, "reference_code"),
        meta={name: optional(meta, name) for name in ("library", "perturbation_type") if meta.get(name) is not None},
    )

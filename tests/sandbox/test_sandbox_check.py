"""Tests that run apart from the program: what they can use of it, and what they say when it fails."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_flow.errors import BadSetting
from agentgym_flow.sandbox import Limits, Sandbox, call, check, default
from agentgym_flow.sandbox.harness.values import NotPlain, decode, encode

ECHO = "def f(*a, **k):\n    return (a, k) if k or len(a) != 1 else a[0]\n"
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.complex_numbers(allow_nan=False)
    | st.text()
    | st.binary()
    | st.builds(range, st.integers(-9, 9), st.integers(-9, 9), st.integers(1, 9)),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.integers(), inner),
)


@given(PLAIN)
def test_plain_data_survives_the_way(value: object) -> None:
    again = decode(json.loads(json.dumps(encode(value))))
    assert again == value
    assert type(again) is type(value)


def test_what_json_lacks_survives_too() -> None:
    for value in (
        bytearray(b"ab"),
        "\ud83d\ude00 and \U0001f600",
        {1, 2},
        frozenset("ab"),
        (1, [2, (3,)]),
        10**5000,
        -(10**5000),
        math.inf,
        True,
        int,
        {(1, 2): None},
        "\ud800",
    ):
        again = decode(json.loads(json.dumps(encode(value))))
        assert again == value
        assert type(again) is type(value)
    assert math.isnan(decode(json.loads(json.dumps(encode(math.nan)))))
    assert math.copysign(1, decode(json.loads(json.dumps(encode(-0.0))))) == -1
    assert list(decode(encode(iter([1, 2])))) == [1, 2]


def _sets(draw: random.Random) -> Iterator[set[Any]]:
    """Yield sets built in the ways of programs, whose iteration order depends on how they were built."""
    items: list[Callable[[], Any]] = [
        lambda: draw.randrange(40),
        lambda: draw.randrange(-(10**9), 10**9),
        lambda: (draw.randrange(9), draw.randrange(9)),
        lambda: draw.randrange(100) / 4,
    ]
    for item in items:
        for size in range(1, 61):
            listed = [item() for _ in range(size)]
            literal: set[Any] = set()
            literal.update(frozenset(listed))  # as the compiler does for constants
            yield from (literal, set(listed), set(listed) | {item(), item()}, set(listed) & set(listed[1:]))


def test_a_set_keeps_the_order_in_which_it_iterates() -> None:
    found = Counter(
        list(decode(json.loads(json.dumps(encode(value))))) == list(value) for value in _sets(random.Random(1))
    )
    assert found[False] <= 0.02 * found.total()  # half without the search for an order
    nested = [frozenset({12, 13, 14, 15, 16}), {8: {frozenset({16, 8}), 3}}]
    assert repr(decode(encode(nested))) == repr(nested)


def test_derived_classes_arrive_as_their_base() -> None:
    class Odd(int):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = int.__hash__

    assert type(decode(encode(Odd(3)))) is int
    assert decode(encode(Odd(3))) != 4


@pytest.mark.parametrize("value", [object(), len, Sandbox, json, [object()], {1: object()}])
def test_nothing_else_is_sent(value: object) -> None:
    with pytest.raises(NotPlain):
        encode(value)


def test_data_that_contains_itself_is_not_sent() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(NotPlain, match="deep"):
        encode(loop)


def default_or_skip() -> Sandbox:
    if default().probe().level != "strong":
        pytest.skip(f"this machine's sandbox is {default().probe().level}, the test needs a strong one")
    return default()


@settings(max_examples=5)
@given(st.lists(PLAIN, max_size=3))
def test_a_function_is_called_with_plain_data(values: list[object]) -> None:
    answer = call(ECHO, "f", values, sandbox=default_or_skip())
    assert answer.returned, answer
    assert answer.value == values


def test_a_call_says_what_went_wrong(box: Sandbox) -> None:
    assert call("def solve():\n    return {'a': (1, 2.5)}", "solve", sandbox=box).value == {"a": (1, 2.5)}
    raised = call("def solve():\n\n    return 1 / 0", "solve", sandbox=box)
    assert (raised.outcome, raised.value) == ("error", None)
    assert raised.message == (
        "the program raised an exception: ZeroDivisionError: division by zero (line 3 of the program)"
    )
    assert call("x = 1", "solve", sandbox=box).outcome == "error"
    assert call("def solve(): return solve", "solve", sandbox=box).outcome == "unsupported"
    assert call("def solve(): return 'x' * 10**5", "solve", sandbox=box).outcome == "output"
    assert call("import sys\nsys.exit()", "solve", sandbox=box).message.startswith("the program could not be loaded")
    with pytest.raises(BadSetting, match="not plain data: object"):
        call("def solve(x): pass", "solve", object(), sandbox=box)


@pytest.mark.parametrize(
    ("program", "tests"),
    [
        pytest.param("def f(x): return x + 1", "assert f(1) == 2", id="assertions"),
        pytest.param("def f(x): return x + 1", "assert candidate(1) == 2", id="the candidate by name"),
        pytest.param("def f(x): return x + 1", "def check(c):\n    assert c(1) == 2", id="check"),
        pytest.param(
            "def f(x): return x + 1",
            "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        self.assertEqual(f(1), 2)",
            id="unittest",
        ),
        pytest.param("def g(x): return x\ndef f(x): return g(x) + 1", "assert f(g(1)) == 2", id="two functions"),
        pytest.param("import math\nN = [4]\ndef f(x): return x", "assert f(math.sqrt(N[0])) == 2", id="its names"),
        pytest.param("def f(x): x.append(3)", "l = [1]\nf(l)\nassert l == [1, 3]", id="a changed list"),
        pytest.param(
            "def f(x): x.update(a=1)", "d = {'b': 2}\nf(d)\nassert d == {'a': 1, 'b': 2}", id="a changed dict"
        ),
        pytest.param("def f(*, x): x.clear()", "s = {1}\nf(x=s)\nassert s == set()", id="a changed set"),
        pytest.param("def f(x): x[0] = 66", "b = bytearray(b'a')\nf(b)\nassert b == b'B'", id="a changed bytearray"),
        pytest.param(
            "def f(x): return tuple(x)",
            "s = {12, 13, 14, 15, 16}\nassert f(s) == tuple(s)\n"
            "w = set('the order of sets'.split())\nassert f(w) == tuple(w)",
            id="the order of a set",
        ),
        pytest.param("def f(n):\n    for i in range(n): yield i", "assert list(f(3)) == [0, 1, 2]", id="a generator"),
        pytest.param(
            "def f(x): raise KeyError(x)",
            "try:\n    f('a')\nexcept KeyError as error:\n    assert error.args == (\"'a'\",)\nelse:\n    assert False",
            id="an expected exception",
        ),
        pytest.param(
            "def f(x): raise UnicodeDecodeError('a', b'', 0, 0, '')",
            "try:\n    f('a')\nexcept Exception:\n    pass\nelse:\n    assert False",
            id="an exception that wants more than a text",
        ),
        pytest.param("f = lambda: None\nif __name__ == '__main__': 1 / 0", "assert f() is None", id="a main part"),
        pytest.param("def len(x): return 9\ndef f(x): return x", "assert len(f('ab')) == 2", id="Python's own names"),
        pytest.param(
            "def f(x): return x", "sum = f(3)\ndef g():\n    return sum\nassert g() == 3", id="the tests' names"
        ),
        pytest.param("class C:\n    def __call__(self, x): return x\nf = C()", "assert f(1) == 1", id="a callable"),
    ],
)
def test_tests_that_hold_pass_in_every_form(box: Sandbox, program: str, tests: str) -> None:
    verdict = check(program, tests, "f", sandbox=box)
    assert verdict.passed, verdict


@pytest.mark.parametrize(
    ("program", "tests", "outcome", "message"),
    [
        (
            "def f(x): return x",
            "\nassert f(1) == 2",
            "failed",
            "an assertion does not hold in line 2: assert f(1) == 2",
        ),
        ("def f(x): return None", "f(1) + 1", "failed", "the tests raised TypeError"),
        ("def f(x): return 1", "(", "failed", "the tests cannot be compiled"),
        ("def f(x): return 1", "assert g(1)", "failed", "name 'g' is not defined"),
        ("def f(x): return 1", "f(1)\nimport sys\nsys.exit(0)", "failed", "the tests raised SystemExit"),
        ("def f(x): return 1", "f(1)\nimport os\nos._exit(0)", "failed", "the tests ended without a result"),
        ("def f(x): return 1", "while True:\n    pass", "timeout", "the process of the tests was ended: timeout"),
        ("def f(x): return 1", "assert True", "unsupported", "the tests never call the program"),
        ("def f(x): return 1", "f(len)", "unsupported", "something other than plain data: builtin_function_or_method"),
        (
            "def f(x): return 1",
            "try:\n    f(len)\nexcept BaseException:\n    pass",
            "unsupported",
            "other than plain data",
        ),
        ("import os\ndef f(x): os._exit(0)", "try:\n    f(1)\nexcept:\n    pass", "error", "ended before it answered"),
        (
            "def f(x): return 1",
            "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        assert f(1) == 2",
            "failed",
            "in line 4: assert f(1) == 2",
        ),
        ("\nimport nowhere", "f(1)", "error", "ModuleNotFoundError: No module named 'nowhere' (line 2 of the program)"),
        ("x = 1", "f(1)", "error", "the program does not define f"),
    ],
)
def test_tests_that_do_not_hold_say_what_went_wrong(
    box: Sandbox, program: str, tests: str, outcome: str, message: str
) -> None:
    verdict = check(program, tests, "f", limits=Limits(cpu_seconds=0.5), sandbox=box)
    assert (verdict.outcome, verdict.passed) == (outcome, False)
    assert message in verdict.message
    assert "\n" not in verdict.message
    assert len(verdict.message) < 700


@pytest.mark.parametrize(
    ("program", "tests", "names", "outcome", "message"),
    [
        ("x = 1", "assert f(1) == 1", None, "error", "the program does not define f"),
        ("def g(x): return x", "assert f(1) == 1", None, "error", "the program does not define f"),
        ("def f(x): return x", "assert f(helper(1)) == 1", ["f", "helper"], "error", "not define helper"),
        ("f = object()", "assert f(1) == 1", None, "unsupported", "f, which is not plain data in the program"),
        ("def f(x): return y", "assert f(1) == 1", None, "error", "NameError: name 'y' is not defined"),
        ("def f(x): return x", "y = z\ndef z(): pass", ["f"], "failed", "the tests raised NameError"),
        (
            "x = 1",
            "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        assert f(1) == 2",
            None,
            "error",
            "the program does not define f",
        ),
    ],
)
def test_a_program_without_the_function_is_an_error_and_no_failure(
    box: Sandbox, program: str, tests: str, names: list[str] | None, outcome: str, message: str
) -> None:
    verdict = check(program, tests, names=names, limits=Limits(cpu_seconds=0.5), sandbox=box)
    assert (verdict.outcome, verdict.passed) == (outcome, False)
    assert message in verdict.message


def humaneval(sample_data: Path) -> list[dict[str, str]]:
    lines = (sample_data / "canvas" / "humaneval_first_100.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("every", [6, pytest.param(1, marks=pytest.mark.nightly)])
def test_every_reference_solution_of_humaneval_passes(box: Sandbox, sample_data: Path, every: int) -> None:
    rows = humaneval(sample_data)
    assert len(rows) == 100
    rows = (
        rows[::every] + [rows[number] for number in (32, 38, 50)] if every > 1 else rows
    )  # 32, 38 and 50 use more than one function

    def outcome(row: dict[str, str]) -> tuple[str, str]:
        verdict = check(row["prompt"] + row["canonical_solution"], row["test"], row["entry_point"], sandbox=box)
        return verdict.outcome, verdict.message

    with ThreadPoolExecutor(4) as pool:
        outcomes = dict(zip((row["task_id"] for row in rows), pool.map(outcome, rows), strict=True))
    assert {task: found for task, found in outcomes.items() if found != ("passed", "")} == {}


def test_an_empty_solution_of_humaneval_never_passes(box: Sandbox, sample_data: Path) -> None:
    for row in humaneval(sample_data)[::20]:
        assert not check(row["prompt"] + "    pass\n", row["test"], row["entry_point"], sandbox=box).passed


def test_the_two_sides_load_few_modules(box: Sandbox) -> None:
    """Most programs take less time than it takes to load these."""
    tests = "import sys\nassert not slow & set(loaded())\nassert not slow & set(sys.modules)"
    tests = "slow = {'ast', 'dataclasses', 'inspect', 'typing', 'unittest'}\n" + tests
    verdict = check("import sys\ndef loaded(): return list(sys.modules)", tests, sandbox=box)
    assert verdict.passed, verdict.message

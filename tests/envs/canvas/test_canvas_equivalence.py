"""Equality of answers: the forms of one number, structures, formulas proved by SymPy, and what a proof may cost."""

from __future__ import annotations

import multiprocessing
import resource
import time
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow.envs.canvas.scoring import algebra
from agentgym_flow.envs.canvas.scoring.cleaning import plain
from agentgym_flow.envs.canvas.scoring.equivalence import equivalent, needs_algebra
from agentgym_flow.envs.canvas.scoring.expression import Operation
from agentgym_flow.envs.canvas.scoring.parser import parse
from agentgym_flow.errors import MissingExtra


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("18", "18"),
        ("18.0", "18"),
        ("$18.00", "18"),
        ("1,234", "1234"),
        ("0.5", "\\frac{1}{2}"),
        ("1/2", "0.5"),
        ("0.3333", "1/3"),
        ("0.167", "1/6"),
        ("50%", "1/2"),
        ("50", "50%"),
        ("0.25", "25\\%"),
        ("25 percent", "25"),
        ("6.2832", "2\\pi"),
        ("2*pi", "2\\pi"),
        ("1 1/2", "\\frac{3}{2}"),
        ("2\\sqrt{3}", "\\sqrt{12}"),
        ("1.732", "\\sqrt{3}"),
        ("\\text{Evelyn}", "Evelyn"),
        ("(C)", "\\text{(C)}"),
        ("10 cm", "10\\text{ cm}^2"),
        ("5 apples", "5"),
        ("3 million", "3000000"),
        ("x = 5", "5"),
        ("5", "x=5"),
        ("2 + 3 = 5", "5"),
        ("2, 1", "1,2"),
        ("\\{1,2\\}", "1,2"),
        ("3+\\sqrt{2}, 3-\\sqrt{2}", "3 \\pm \\sqrt{2}"),
        ("(0.5, 3)", "\\left(\\frac{1}{2},3\\right)"),
        ("(-oo, 3)", "(-\\infty,3)"),
        ("x \\in [1,2)", "[1,2)"),
        ("[4,5) \\cup (1,2)", "(1,2)\\cup[4,5)"),
        ("x > 5", "5 < x"),
        ("\\begin{pmatrix}1&2\\\\3&0.5\\end{pmatrix}", "\\begin{pmatrix} 1 & 2 \\\\ 3 & 1/2 \\end{pmatrix}"),
        ("2516", "2516_8"),
        ("2516_{8}", "2516_8"),
        ("1358_{10}", "2516_8"),
        ("101_2", "5"),
        ("4d_{16}", "4D_{16}"),
        ("\\infty", "oo"),
    ],
)
def test_equal(answer: str, gold: str) -> None:
    assert equivalent(answer, gold)


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("", ""),
        ("", "5"),
        ("17", "18"),
        ("-18", "18"),
        ("0.25", "25"),
        ("0", "0.0004"),
        ("0.33", "1/3"),
        ("0.5", "0.502"),
        ("1358", "2516_8"),
        ("2516_7", "2516_8"),
        ("2516_9", "2516_8"),
        ("(1,2)", "(2,1)"),
        ("(1,2)", "[1,2)"),
        ("1,2", "1,2,3"),
        ("1,1,2", "1,2,2"),
        ("(3, 4)", "(3, \\infty)"),
        ("(3, \\infty)", "(3, 4)"),
        ("x + y = 3", "x + y = 4"),
        ("1 < x < 2", "1 < x <= 2"),
        ("1 < x > 2", "1 < x < 2"),
        ("5 or 6", "5"),
        ("no", "on"),
        ("2", "2x"),
        ("2 x", "2"),
        ("2 pi", "2"),
        ("x < 5", "x > 5"),
        ("D", "C"),
        ("9^(9^(9^9))", "5"),
        ("\\pm 5", "5"),
        ("\\sqrt{x^2}", "x"),
        ("(x+1)^2", "x^2+2x+2"),
        ("7", "x"),
        ("x^{10^9}", "x"),
    ],
)
def test_different(answer: str, gold: str) -> None:
    assert not equivalent(answer, gold)


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("x^2+2x+1", "(x+1)^2"),
        ("1-\\cos^2 x", "\\sin^2 x"),
        ("\\sin x\\cos y+\\cos x\\sin y", "\\sin(x+y)"),
        ("\\frac{x+2}{x^2-4}", "\\frac{1}{x-2}"),
        ("y = 1 + 2x", "2x+1"),
        ("\\sqrt[3]{x}", "x^{1/3}"),
        ("y - 2x = 1", "2x - y = -1"),
        ("y=2x+1", "y = 1+2x"),
        ("2x+y=4", "4 = y + 2x"),
        ("\\log_2 x", "\\frac{\\ln x}{\\ln 2}"),
        ("2 x", "2x"),
        ("r^2\\pi", "\\pi r^{2}"),
        ("(x+1, 2y)", "(1+x, y+y)"),
    ],
)
def test_formulas_proved_equal(answer: str, gold: str) -> None:
    pytest.importorskip("sympy")
    assert equivalent(answer, gold)
    assert needs_algebra(gold)


# One answer a line, its spellings separated by two blanks. Math-Verify 0.9 agrees on all pairs within these lines and
# between them, but for its six digits of pi and for intervals, which it takes in one direction only.
ANSWERS = r"""
\frac{1}{2}  0.5  50\%  \dfrac12  \(\frac{1}{2}\)
\frac{14}{3}  14/3  4\frac{2}{3}
3\sqrt{13}  \sqrt{117}  \sqrt{9 \cdot 13}
(3, \frac{\pi}{2})  \left( 3, \pi/2 \right)
90^\circ  90  90^{\circ}
2-2p  -2p + 2  2(1-p)
14{,}916  14916  14,\!916  14,916
\text{Evelyn}  Evelyn
[0,1)
(0,1)
[0,1) \cup (2,\infty)  (2,\infty)\cup[0,1)
(x+1)^2  x^2+2x+1
x \in [-2,7]  [-2,7]  -2 \le x \le 7  7 >= x >= -2
\begin{pmatrix} -1/3 \\ 2/3 \end{pmatrix}  \begin{pmatrix} -\frac13 \\[2pt] \frac23 \end{pmatrix}
7, 11, 13  13,7,11  \{7,11,13\}
1 \pm \sqrt{19}  1+\sqrt{19}, 1-\sqrt{19}
y = 2x + 3  y-2x=3
x=5  5  \$5  \text{5}  5\text{ cm}  5 \text{ cm}^2  5.
-\frac{35}{9}  \frac{-35}{9}
2^{10}  1024
10!  3628800
\log_2 3  \frac{\ln 3}{\ln 2}
\cos^2 x  1-\sin^2 x
e^{2\pi i/3}  -\frac12+\frac{\sqrt3}{2}i
6+9i  9i+6
2516_8  2516_{8}
\frac{x+2}{7}  \frac{1}{7}x+\frac{2}{7}
5x^3-x+3  3-x+5x^3
12\pi
36\pi
\text{(C)}  C  (C)
\left(-\infty, \frac12\right)  (-\infty,0.5)  x < 1/2
2.5\times 10^{7}  25000000
x>3  3<x  (3,\infty)
\frac{1}{x^{2}}  x^{-2}
|x|  \sqrt{x^2}
\frac13  0.\overline{3}
0.1\overline{6}  1/6
\tan x  \frac{\sin x}{\cos x}
a^{b+c}
8\sqrt{3}-4  4(2\sqrt3-1)
\frac{1}{1+\sqrt2}  \sqrt2-1
"""


def test_each_spelling_of_an_answer_equals_the_others_and_nothing_else() -> None:
    pytest.importorskip("sympy")
    spellings = [(spelling, line) for line in ANSWERS.split("\n") for spelling in line.split("  ") if spelling]
    wrong = [
        (answer, gold)
        for answer, line in spellings
        for gold, line_of_gold in spellings
        if equivalent(answer, gold) != (line == line_of_gold)
    ]
    assert wrong == []
    assert len(spellings) > 90


def test_the_published_tolerance_is_compatible() -> None:
    # Published: 1e-3 whatever the size, so that 0 is a right answer to 0.0004; and 1358 for 2516 in base 8.
    assert equivalent("0", "0.0004", compat=True)
    assert equivalent("1358", "2516_8", compat=True)
    assert not equivalent("0.002", "0.0004", compat=True)


def test_units_and_money() -> None:
    assert [plain(text) for text in ("$1,234.50 dollars", "3/4 cups", "12 square feet", "5cm", "5 dozen")] == [
        "1234.50", "3/4", "12", "5", "5*12",
    ]  # fmt: skip
    assert [plain(text) for text in ("2x", "5 or more", "2 pi", "5 and 6")] == ["2x", "5 or more", "2 pi", "5 and 6"]


@given(
    st.fractions(max_denominator=40, min_value=-40, max_value=40),
    st.fractions(max_denominator=40, min_value=-40, max_value=40),
)
def test_fractions_in_every_spelling(value: Fraction, other: Fraction) -> None:
    top, below = value.numerator, value.denominator
    latex = f"{'-' if top < 0 else ''}\\frac{{{abs(top)}}}{{{below}}}"
    gold = f"{other.numerator}/{other.denominator}"
    same = value == other
    for answer in (f"{top}/{below}", latex, f"${latex}$", f"x = {latex}", f"({top}) / {below}"):
        assert equivalent(answer, f"{top}/{below}")
        # different fractions of these denominators are at least 1/1600 apart: too close for the tolerance at times
        if same or abs(value - other) > Fraction(1, 1000):
            assert equivalent(answer, gold) == same


@given(st.text(max_size=60), st.sampled_from(["5", "x^2+1", "(1,2]", "\\text{Evelyn}", "25\\%", "101_2"]))
def test_text_from_a_policy_never_raises(answer: str, gold: str) -> None:
    equivalent(answer, gold)
    assert equivalent(gold, gold)


@given(st.text(alphabet="0123456789.,/-+%$() x", max_size=20))
def test_every_answer_equals_itself(answer: str) -> None:
    assert equivalent(answer, answer) == bool(answer.strip())


def test_a_proof_that_takes_too_long_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sympy")
    monkeypatch.setattr(algebra, "CPU_SECONDS", 1.5)
    algebra.close()
    algebra._proves_equal.cache_clear()
    hard = "(x+y+z+a+b)^{60}", "((x+y)^2+2(x+y)(z+a+b)+(z+a+b)^2)^{30}"  # 600,000 terms when expanded
    started = time.process_time()
    assert not equivalent(*hard)
    assert time.process_time() - started < 1  # the work is in another process
    assert algebra._process is None  # it was ended
    assert equivalent("x^2+2x+1", "(x+1)^2")  # and another one works
    algebra.close()


def test_a_proof_cannot_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sympy")
    monkeypatch.setattr(algebra, "CPU_SECONDS", 1.5)
    algebra.close()
    # `equivalent` never asks this, because it has no value; the process must bear it nevertheless
    assert not algebra.proves_equal(parse("9^(9^(9^9))"), Operation("+", (parse("x"), parse("7^(8^(9^9))"))))
    assert algebra.proves_equal(parse("x+x"), parse("2x"))
    algebra.close()


def test_what_the_points_refute_is_never_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*trees: object) -> bool:
        raise AssertionError("a proof was asked for")

    monkeypatch.setattr(algebra, "check_installed", lambda: None)
    monkeypatch.setattr(algebra, "proves_equal", asked)
    for answer, gold in [("x+1", "x+2"), ("\\sqrt{x^2}", "x"), ("|xy|", "xy"), ("x^y", "y^x"), ("\\ln x^2", "2\\ln x")]:
        assert not equivalent(answer, gold)


def test_a_process_that_someone_ends_is_replaced() -> None:
    pytest.importorskip("sympy")
    assert algebra.proves_equal(parse("x+x+y"), parse("2x+y"))
    assert algebra._process is not None
    algebra._process.kill()
    algebra._process.wait()
    assert algebra.proves_equal(parse("x+x+2y"), parse("2(x+y)"))


def test_many_threads_share_one_process() -> None:
    pytest.importorskip("sympy")
    with ThreadPoolExecutor(8) as threads:
        pairs = [(f"(x+{n})^2", f"x^2+{2 * n}x+{n * n + (n % 3 == 0)}") for n in range(1, 25)]
        found = list(threads.map(lambda pair: equivalent(*pair), pairs))
    assert found == [n % 3 != 0 for n in range(1, 25)]


def test_the_memory_of_the_process_is_bounded() -> None:
    pytest.importorskip("sympy")
    assert algebra.proves_equal(parse("x+x+x"), parse("3x"))
    assert algebra._process is not None
    assert resource.prlimit(algebra._process.pid, resource.RLIMIT_AS) == (1 << 30, 1 << 30)


def _prove(answers: multiprocessing.Queue[tuple[bool, int]]) -> None:
    proved = equivalent("(x+1)(x-1)", "x^2-1")
    assert algebra._process is not None
    answers.put((proved, algebra._process.pid))


def test_a_forked_process_proves_for_itself() -> None:
    pytest.importorskip("sympy")
    assert equivalent("(x+2)(x-2)", "x^2-4")
    context = multiprocessing.get_context("fork")
    answers: multiprocessing.Queue[tuple[bool, int]] = context.Queue()
    child = context.Process(target=_prove, args=(answers,))
    with algebra._lock:  # as when another thread waits for a proof
        child.start()
    proved, worker = answers.get(timeout=60)
    child.join()
    assert proved
    assert algebra._process is not None
    assert worker != algebra._process.pid  # two would read each other's answers
    assert equivalent("(x+3)(x-3)", "x^2-9")


def test_without_sympy_numbers_are_compared_and_formulas_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(algebra, "_installed", lambda: False)
    assert equivalent("0.5", "1/2")
    assert not equivalent("x + 1", "5")  # what a policy writes cannot ask for an extra
    assert equivalent("(x+1)^2", "(x + 1)^2")
    with pytest.raises(MissingExtra, match=r"sympy is not installed.*\[canvas\]"):
        equivalent("5", "(x+1)^2")

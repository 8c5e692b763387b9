"""Expressions: what the grammar reads, exact values, and that no text takes long or reaches an interpreter."""

from __future__ import annotations

import cmath
import math
import os
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow.envs.canvas.scoring.cursor import MAX_DEPTH
from agentgym_flow.envs.canvas.scoring.expression import Undefined, evaluate, inexact, symbols
from agentgym_flow.envs.canvas.scoring.parser import parse
from agentgym_flow.envs.canvas.scoring.tokens import MAX_CHARACTERS, MAX_TOKENS, NotMathematics


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("16-3-4", "9"),
        ("80000*1.5", "120000"),
        ("2+3*4", "14"),
        ("(2+3)*4", "20"),
        ("-2^2", "-4"),
        ("2^3^2", "512"),
        ("2**-3", "1/8"),
        ("2^{-3}", "1/8"),
        ("8/4/2", "1"),
        (".5*20", "10"),
        ("1,234,567", "1234567"),
        ("1{,}234", "1234"),
        ("3\\times10^{5}", "300000"),
        ("1.5e3", "1500"),
        ("\\frac{3}{4}", "3/4"),
        ("\\dfrac34", "3/4"),
        ("\\frac1{72}", "1/72"),
        ("-\\frac{1}{2}", "-1/2"),
        ("1\\frac{1}{2}", "3/2"),
        ("-2\\frac{1}{2}", "-5/2"),
        ("1 1/2", "3/2"),
        ("20%*50", "10"),
        ("25\\%", "1/4"),
        ("5!", "120"),
        ("\\binom{5}{2}", "10"),
        ("\\sqrt{16/9}", "4/3"),
        ("\\sqrt[3]{-8}", "-2"),
        ("\\sqrt4", "2"),
        ("|3-5|", "2"),
        ("2|3-5|", "4"),
        ("45^\\circ", "45"),
        ("\\left(\\frac{1}{2}\\right)^{2}", "1/4"),
        ("3 × 4 ÷ 2 − 1", "5"),  # noqa: RUF001 - as people write
        ("2(3)(4)", "24"),
        ("(-1)^(10^9+1)", "-1"),
        ("7²", "49"),
    ],
)
def test_exact_values(text: str, value: str) -> None:
    assert evaluate(parse(text)) == Fraction(value)
    assert isinstance(evaluate(parse(text)), Fraction)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2\\pi", 2 * math.pi),
        ("π/2", math.pi / 2),
        ("\\frac{\\sqrt{3}}{2}", math.sqrt(3) / 2),
        ("\\log_2 8", 3),
        ("\\log 1000", 3),
        ("\\ln e", 1),
        ("e^{i\\pi}", -1),
        ("\\sin^2 1+\\cos^2(1)", 1),
        ("3+4i", 3 + 4j),
        ("\\sqrt{-4}", 2j),
        ("\\arctan 1", math.pi / 4),
        ("2\\sqrt2", 2 * math.sqrt(2)),
    ],
)
def test_values_that_are_no_fractions(text: str, value: complex) -> None:
    assert cmath.isclose(inexact(evaluate(parse(text))), value, rel_tol=1e-12)


def test_symbols() -> None:
    assert symbols(parse("2xy + \\theta - a_1 + e\\pi i")) == ("a_1", "theta", "x", "y")
    assert evaluate(parse("x^2 + 1"), {"x": Fraction(1, 2)}) == Fraction(5, 4)
    with pytest.raises(Undefined):
        evaluate(parse("x"))


@pytest.mark.parametrize(
    "text",
    ["", "   ", "apples", "2 apples", "(1", "1)", "[1)2", "1+", "*2", "12 34", "\\frac{1}", "\\input{x}", "x; y", "a.b",
     "__import__('os')", "x.__class__", "lambda: 1", "f'{1}'", "\\begin{array} 1 \\end{array}", "1..2", "{1", "a_{(}"],
)  # fmt: skip
def test_what_is_no_expression(text: str) -> None:
    with pytest.raises(NotMathematics):
        parse(text)


@pytest.mark.parametrize("text", ["1/0", "0^{-1}", "9^(9^(9^9))", "(10^300)^2*1.0^{0.5}/x", "500!", "400!!", "\\ln 0"])
def test_what_has_no_value(text: str) -> None:
    with pytest.raises(Undefined):
        evaluate(parse(text))


def test_size_and_depth_are_bounded() -> None:
    assert evaluate(parse("(" * (MAX_DEPTH - 1) + "1" + ")" * (MAX_DEPTH - 1))) == 1
    for text in ("(" * 5000 + "1" + ")" * 5000, "(" * 60 + "1" + ")" * 60, "\\sqrt{" * 60 + "1" + "}" * 60,
                 "2^" * 90 + "2", "1+" * MAX_TOKENS + "1", "9" * (MAX_CHARACTERS + 1), "1e99999", "sqrt " * 90 + "2",
                 "\\cos" * 90 + "2", "|" * 80 + "2" + "|" * 80, "\\frac" * 90 + "12",
                 "1" + " " * MAX_CHARACTERS):  # fmt: skip
        with pytest.raises(NotMathematics):
            parse(text)


numbers = st.fractions(min_value=-99, max_value=99, max_denominator=12)
plain_trees = st.recursive(
    numbers.map(lambda value: (f"({value.numerator}/{value.denominator})", value)),
    lambda inner: st.tuples(inner, st.sampled_from("+-*"), inner).map(
        lambda parts: (f"({parts[0][0]}{parts[1]}{parts[2][0]})", _applied(parts[1], parts[0][1], parts[2][1]))
    ),
    max_leaves=8,
)


def _applied(sign: str, left: Fraction, right: Fraction) -> Fraction:
    return {"+": left + right, "-": left - right, "*": left * right}[sign]


@given(plain_trees)
def test_arithmetic_is_exact(case: tuple[str, Fraction]) -> None:
    text, value = case
    assert evaluate(parse(text)) == value


@given(st.text(max_size=80) | st.text(alphabet="0123456789xyzei()[]{}\\+-*/^_%!|,=<>. frcsqtp&'\"", max_size=120))
def test_every_text_is_an_expression_or_none(text: str) -> None:
    try:
        tree = parse(text)
    except NotMathematics:
        return
    try:
        value = evaluate(tree, dict.fromkeys(symbols(tree), complex(0.7)))
    except Undefined:
        return
    assert isinstance(value, Fraction) or cmath.isfinite(value)


def test_nothing_is_run(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    for text in (f"__import__('os').system('touch {trace}')", f"open('{trace}','w')", f"\\text{{open('{trace}','w')}}"):
        with pytest.raises(NotMathematics):
            parse(text)
    assert os.listdir(tmp_path) == []

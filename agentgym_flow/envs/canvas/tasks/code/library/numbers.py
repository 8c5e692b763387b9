"""Functions on whole numbers."""

from __future__ import annotations

from agentgym_flow.envs.canvas.tasks.code.draft import Draw, FunctionDraft, draft, function_texts

_TEXTS = function_texts("numbers.json")


def _digit_total(draw: Draw) -> FunctionDraft:
    odd = draw.below(2)
    return draft(
        draw,
        _TEXTS["digit_total"],
        [(draw.between(100, 999),), (draw.between(1000, 9999),), (draw.between(10000, 99999),)],
        [(0,), (-draw.between(10, 999),), (5,), (4,), (1000,), (-7,)],
        odd=odd,
        parity="odd" if odd else "even",
        times=draw.between(2, 9),
    )


def _next_multiple(draw: Draw) -> FunctionDraft:
    step = draw.between(3, 40)
    strict = draw.coin()
    some = [draw.between(1, 9) * step + draw.between(1, step - 1) for _ in range(3)]
    return draft(
        draw,
        _TEXTS["next_multiple"],
        [(one,) for one in some],
        [(0,), (step,), (-step,), (-1,), (step + 1,), (step * 7,), (step - 1,)],
        step=step,
        exact="$n + $step" if strict else "$n",
        words="larger than" if strict else "at least",
    )


def _grade(draw: Draw) -> FunctionDraft:
    low = draw.between(20, 45)
    middle, high = low + draw.between(10, 20), low + draw.between(25, 40)
    op, words = draw.choice(((">=", "at least"), (">", "more than")))
    names = draw.choice((("pass", "good", "top", "fail"), ("C", "B", "A", "F"), ("bronze", "silver", "gold", "none")))
    return draft(
        draw,
        _TEXTS["grade"],
        [(high + 2,), (middle + 3,), (low - 4,)],
        [(0,), (-1,), (100,), (101,), (low,), (middle,), (high,), (low + 1,), (high - 1,)],
        most=100,
        op=op,
        words=words,
        low=low,
        middle=middle,
        high=high,
        first=names[0],
        second=names[1],
        third=names[2],
        nothing=names[3],
    )


def _prime_count(draw: Draw) -> FunctionDraft:
    return draft(
        draw,
        _TEXTS["prime_count"],
        [(draw.between(30, 60) * 2,), (draw.between(20, 40) * 3,), (draw.between(10, 20) * 10,)],
        [(0,), (1,), (2,), (-8,), (49,), (97,), (64,), (4,)],
        times=draw.between(2, 30),
    )


def _fare(draw: Draw) -> FunctionDraft:
    base, free, each = draw.between(2, 9), draw.between(2, 6), draw.between(2, 8)
    cap = base + each * draw.between(5, 8)
    return draft(
        draw,
        _TEXTS["fare"],
        [(free + 2,), (free + draw.between(3, 4),), (free + 30,)],
        [(0,), (-3,), (1,), (free,), (free + 1,), (free - 1,), (100,)],
        base=base,
        free=free,
        each=each,
        cap=cap,
    )


def _to_base(draw: Draw) -> FunctionDraft:
    base = draw.between(2, 9)
    mark = draw.choice(("-", "~", "m"))
    return draft(
        draw,
        _TEXTS["to_base"],
        [(draw.between(20, 99),), (draw.between(100, 400),), (draw.between(8, 60),)],
        [(0,), (-draw.between(5, 50),), (1,), (base,), (-base,), (base**3,), (base - 1,)],
        base=base,
        mark=mark,
    )


def _steps_to_target(draw: Draw) -> FunctionDraft:
    target = draw.between(80, 300)
    add = draw.between(1, 9)
    return draft(
        draw,
        _TEXTS["steps_to_target"],
        [(draw.between(3, 9),), (draw.between(10, 25),), (draw.between(1, 2),)],
        [(0,), (-4,), (target,), (target - 1,), (target + 1,), ((target - add) // 2,), (target * 2,)],
        target=target,
        add=add,
        op=(op := draw.choice(("<", "<="))),
        until="until it is at least $target" if op == "<" else "until it is more than $target",
    )


def _clamp_score(draw: Draw) -> FunctionDraft:
    low = draw.between(-20, 10)
    high = low + draw.between(15, 50)
    return draft(
        draw,
        _TEXTS["clamp_score"],
        [(low + 5, 1), (low + 2, 2), (high - 3, 4)],
        [(0, 0), (low + 4, -2), (low - 9, 0), (high, 0), (high + 1, -1), (low, -5), (high - 2, 9)],
        low=low,
        high=high,
        factor=draw.between(2, 5),
    )


PATTERNS = (
    _digit_total, _next_multiple, _grade, _prime_count, _fare, _to_base, _steps_to_target, _clamp_score,
)  # fmt: skip

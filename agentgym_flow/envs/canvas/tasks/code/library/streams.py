"""Generator functions that never end."""

from __future__ import annotations

from agentgym_flow.envs.canvas.tasks.code.draft import Draw, FunctionDraft, draft, function_texts

_TEXTS = function_texts("streams.json")


def _stepping(draw: Draw) -> FunctionDraft:
    skip = draw.between(3, 9)
    step = draw.between(1, 6)
    return draft(
        draw,
        _TEXTS["stepping"],
        [(draw.between(1, 20),), (draw.between(21, 60),), (draw.between(61, 99),)],
        [(0,), (skip,), (-skip,), (1,), (skip * 2 - step,), (draw.between(100, 200),)],
        take=draw.between(4, 7),
        skip=skip,
        step=step if step % skip else step + 1,
    )


def _additive(draw: Draw) -> FunctionDraft:
    more = draw.between(0, 9)
    return draft(
        draw,
        _TEXTS["additive"],
        [(1, draw.between(2, 9)), (draw.between(2, 9), draw.between(2, 9)), (draw.between(2, 5), draw.between(5, 9))],
        [(0, 0), (0, 1), (-1, 1), (5, -5), (10, 20), (7, 7)],
        take=draw.between(5, 7),
        more=more,
    )


def _digits_chain(draw: Draw) -> FunctionDraft:
    add = draw.between(1, 9)
    return draft(
        draw,
        _TEXTS["digits_chain"],
        [(draw.between(11, 99),), (draw.between(100, 400),), (draw.between(20, 90),)],
        [(0,), (9,), (10,), (99,), (1000,), (draw.between(500, 999),)],
        take=draw.between(4, 6),
        add=add,
    )


def _bouncing(draw: Draw) -> FunctionDraft:
    return draft(
        draw,
        _TEXTS["bouncing"],
        [(low := draw.between(0, 20), low + draw.between(2, 3)), (5, 7), (-2, draw.between(0, 1))],
        [(0, 1), (3, 3), (-1, -1), (0, 2), (-3, -1), (10, 14)],
        take=draw.between(7, 9),
    )


def _cycle_with_rounds(draw: Draw) -> FunctionDraft:
    bonus = draw.between(1, 12)
    return draft(
        draw,
        _TEXTS["cycle_with_rounds"],
        [(draw.ints(3, 1, 30),), (draw.ints(2, 1, 30),), (draw.ints(3, 1, 30),)],
        [([1],), ([0, 0],), ([-4, 4],), (draw.ints(4, 1, 9),), ([7, 7, 7],), (draw.ints(5, 1, 9),)],
        take=draw.between(7, 9),
        bonus=bonus,
    )


def _raised_steps(draw: Draw) -> FunctionDraft:
    every = draw.between(2, 4)
    extra = draw.between(2, 30)
    return draft(
        draw,
        _TEXTS["raised_steps"],
        [(draw.between(1, 20), draw.between(1, 9)), (draw.between(1, 50), 2), (draw.between(1, 20), 5)],
        [(0, 0), (0, 1), (-5, 5), (10, -3), (100, 100), (1, 1)],
        take=draw.between(5, 8),
        every=every,
        nth={2: "second", 3: "third", 4: "fourth"}[every],
        extra=extra,
    )


def _without_factors(draw: Draw) -> FunctionDraft:
    digit = draw.between(1, 9)
    return draft(
        draw,
        _TEXTS["without_factors"],
        [(draw.between(10, 60),), (draw.between(60, 120),), (digit * 10 - 3,)],
        [(0,), (1,), (digit,), (digit * 10,), (digit * 100,), (draw.between(200, 900),)],
        take=draw.between(5, 8),
        digit=digit,
        odd=(odd := draw.below(2)),
        parity="odd" if odd else "even",
    )


def _collatz(draw: Draw) -> FunctionDraft:
    add = draw.choice((1, 3, 5, 7, 9))
    return draft(
        draw,
        _TEXTS["collatz"],
        [(draw.between(5, 30),), (draw.between(31, 60),), (draw.between(61, 99),)],
        [(0,), (1,), (2,), (64,), (-4,), (draw.between(100, 300),)],
        take=draw.between(5, 8),
        add=add,
        factor=draw.choice((3, 5)),
    )


PATTERNS = (
    _stepping, _additive, _digits_chain, _bouncing, _cycle_with_rounds, _raised_steps, _without_factors, _collatz,
)  # fmt: skip

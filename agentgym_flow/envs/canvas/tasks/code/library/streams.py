"""Generator functions that never end."""

from __future__ import annotations

from agentgym_flow.envs.canvas.tasks.code.draft import Draw, FunctionDraft, draft

_START = "start first begin origin"


def _stepping(draw: Draw) -> FunctionDraft:
    skip = draw.between(3, 9)
    step = draw.between(1, 6)
    return draft(
        draw,
        """
def $f($start):
    value = $start
    while True:
        if value % $skip != 0:
            yield value
        value += $step
""",
        "Yield $start, $start + $step, $start + 2 * $step and so on without end, but leave out multiples of $skip.",
        "Count on for ever, and yield only what is no multiple",
        [(draw.between(1, 20),), (draw.between(21, 60),), (draw.between(61, 99),)],
        [(0,), (skip,), (-skip,), (1,), (skip * 2 - step,), (draw.between(100, 200),)],
        names={"f": "stepping counting_past skipping steps_without", "start": _START},
        take=draw.between(4, 7),
        skip=skip,
        step=step if step % skip else step + 1,
    )


def _additive(draw: Draw) -> FunctionDraft:
    more = draw.between(0, 9)
    return draft(
        draw,
        """
def $f($a, $b):
    while True:
        yield $a
        $a, $b = $b, $a + $b + $more
""",
        "Yield $a, then $b, and then for ever the sum of the two values before plus $more.",
        "Keep the last two values, yield the older one and move on",
        [(1, draw.between(2, 9)), (draw.between(2, 9), draw.between(2, 9)), (draw.between(2, 5), draw.between(5, 9))],
        [(0, 0), (0, 1), (-1, 1), (5, -5), (10, 20), (7, 7)],
        names={"f": "additive sums_of_two growing sequence_of_sums", "a": "a first older", "b": "b second newer"},
        take=draw.between(5, 7),
        more=more,
    )


def _digits_chain(draw: Draw) -> FunctionDraft:
    add = draw.between(1, 9)
    return draft(
        draw,
        """
def $f($start):
    value = $start
    while True:
        yield value
        digits = 0
        rest = value
        while rest > 0:
            digits += rest % 10
            rest //= 10
        value += digits + $add
""",
        "Yield $start (at least 0) and then without end the next value: the one before plus the sum of its digits plus"
        " $add.",
        "Add up the digits of the last value, and go on from there",
        [(draw.between(11, 99),), (draw.between(100, 400),), (draw.between(20, 90),)],
        [(0,), (9,), (10,), (99,), (1000,), (draw.between(500, 999),)],
        names={"f": "digit_chain digits_onward self_adding digit_walk", "start": _START},
        take=draw.between(4, 6),
        add=add,
    )


def _bouncing(draw: Draw) -> FunctionDraft:
    return draft(
        draw,
        """
def $f($low, $high):
    value = $low
    step = 1
    while True:
        yield value
        if value + step > $high or value + step < $low:
            step = -step
        if $low < $high:
            value += step
""",
        "Yield $low, then one more each time up to $high, then one less each time down to $low, up again, and so on"
        " without end. Neither end is yielded twice in a row, unless both are the same: then it is yielded for ever.",
        "Walk by one in one direction and turn round at both ends",
        [(low := draw.between(0, 20), low + draw.between(2, 3)), (5, 7), (-2, draw.between(0, 1))],
        [(0, 1), (3, 3), (-1, -1), (0, 2), (-3, -1), (10, 14)],
        names={"f": "bouncing back_and_forth zigzag swinging", "low": "low bottom least", "high": "high top most"},
        take=draw.between(7, 9),
    )


def _cycle_with_rounds(draw: Draw) -> FunctionDraft:
    bonus = draw.between(1, 12)
    return draft(
        draw,
        """
def $f($xs):
    round_number = 0
    while True:
        for x in $xs:
            yield x + round_number * $bonus
        round_number += 1
""",
        "Yield the numbers of $xs (never empty) in their order, then the same numbers each larger by $bonus, then"
        " larger by 2 * $bonus, and so on, round after round without end.",
        "Go round the list for ever and add what the number of the round asks for",
        [(draw.ints(3, 1, 30),), (draw.ints(2, 1, 30),), (draw.ints(3, 1, 30),)],
        [([1],), ([0, 0],), ([-4, 4],), (draw.ints(4, 1, 9),), ([7, 7, 7],), (draw.ints(5, 1, 9),)],
        names={"f": "rounds raised_rounds again_and_more endless_rounds", "xs": "numbers values items"},
        take=draw.between(7, 9),
        bonus=bonus,
    )


def _raised_steps(draw: Draw) -> FunctionDraft:
    every = draw.between(2, 4)
    extra = draw.between(2, 30)
    return draft(
        draw,
        """
def $f($start, $step):
    value = $start
    count = 0
    while True:
        count += 1
        if count % $every == 0:
            yield value + $extra
        else:
            yield value
        value += $step
""",
        "Yield $start, $start + $step, $start + 2 * $step, ... without end, but raise every $nth value that is yielded"
        " by $extra, which has no effect on the values after it.",
        "Count the values that have been yielded and raise those whose number is a multiple of $every",
        [(draw.between(1, 20), draw.between(1, 9)), (draw.between(1, 50), 2), (draw.between(1, 20), 5)],
        [(0, 0), (0, 1), (-5, 5), (10, -3), (100, 100), (1, 1)],
        names={"f": "raised_steps with_bonus lifted every_so_often", "start": _START, "step": "step by gap"},
        take=draw.between(5, 8),
        every=every,
        nth={2: "second", 3: "third", 4: "fourth"}[every],
        extra=extra,
    )


def _without_factors(draw: Draw) -> FunctionDraft:
    digit = draw.between(1, 9)
    return draft(
        draw,
        """
def $f($start):
    value = $start
    while True:
        if '$digit' not in str(value) and value % 2 == $odd:
            yield value
        value += 1
""",
        "Yield without end, in ascending order, the whole numbers from $start on (inclusive) that are $parity and in"
        " which the digit $digit does not occur.",
        "Count up from the start and yield each number that passes both tests",
        [(draw.between(10, 60),), (draw.between(60, 120),), (digit * 10 - 3,)],
        [(0,), (1,), (digit,), (digit * 10,), (digit * 100,), (draw.between(200, 900),)],
        names={"f": "numbers_without avoiding_digit clean_numbers shy_numbers", "start": _START},
        take=draw.between(5, 8),
        digit=digit,
        odd=(odd := draw.below(2)),
        parity="odd" if odd else "even",
    )


def _collatz(draw: Draw) -> FunctionDraft:
    add = draw.choice((1, 3, 5, 7, 9))
    return draft(
        draw,
        """
def $f($start):
    value = $start
    while True:
        yield value
        if value % 2 == 0:
            value //= 2
        else:
            value = $factor * value + $add
""",
        "Yield $start and then without end the next value: half of the last one if that is even, else $factor times the"
        " last one plus $add.",
        "Decide by whether the last value is even what comes next",
        [(draw.between(5, 30),), (draw.between(31, 60),), (draw.between(61, 99),)],
        [(0,), (1,), (2,), (64,), (-4,), (draw.between(100, 300),)],
        names={"f": "half_or_more up_and_down hailstones ups_and_downs", "start": _START},
        take=draw.between(5, 8),
        add=add,
        factor=draw.choice((3, 5)),
    )


PATTERNS = (
    _stepping, _additive, _digits_chain, _bouncing, _cycle_with_rounds, _raised_steps, _without_factors, _collatz,
)  # fmt: skip

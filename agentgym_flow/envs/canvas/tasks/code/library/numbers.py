"""Functions on whole numbers."""

from __future__ import annotations

from agentgym_flow.envs.canvas.tasks.code.draft import Draw, FunctionDraft, draft

_N = "n number value amount"


def _digit_total(draw: Draw) -> FunctionDraft:
    odd = draw.below(2)
    return draft(
        draw,
        """
def $f($n):
    rest = abs($n)
    total = 0
    while rest > 0:
        digit = rest % 10
        if digit % 2 == $odd:
            total += digit * $times
        else:
            total += digit
        rest //= 10
    return total
""",
        "Return the sum of the decimal digits of $n, in which every $parity digit counts $times times. The sign of a"
        " negative number does not matter.",
        "Take off the last digit again and again, and add it with its weight",
        [(draw.between(100, 999),), (draw.between(1000, 9999),), (draw.between(10000, 99999),)],
        [(0,), (-draw.between(10, 999),), (5,), (4,), (1000,), (-7,)],
        names={"f": "digit_total weigh_digits digit_score", "n": _N},
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
        """
def $f($n):
    rest = $n % $step
    if rest == 0:
        return $exact
    return $n + $step - rest
""",
        "Return the smallest multiple of $step that is $words $n.",
        "Look at the remainder, and treat a number that is a multiple already",
        [(one,) for one in some],
        [(0,), (step,), (-step,), (-1,), (step + 1,), (step * 7,), (step - 1,)],
        names={"f": "next_multiple round_up upwards multiple_above", "n": _N},
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
        """
def $f($n):
    if $n < 0 or $n > $most:
        return 'invalid'
    if $n $op $high:
        return '$third'
    if $n $op $middle:
        return '$second'
    if $n $op $low:
        return '$first'
    return '$nothing'
""",
        "$n points earn '$third' if they are $words $high, else '$second' if $words $middle, else '$first' if $words"
        " $low, else '$nothing'. Below 0 or above $most points give 'invalid'. Return the word.",
        "Test the limits from the highest to the lowest, after the invalid values",
        [(high + 2,), (middle + 3,), (low - 4,)],
        [(0,), (-1,), (100,), (101,), (low,), (middle,), (high,), (low + 1,), (high - 1,)],
        names={"f": "grade award rate_points medal", "n": "points score marks"},
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
        """
def $f($n):
    if $n < 2:
        return 0
    count = 0
    divisor = 2
    rest = $n
    while divisor * divisor <= rest:
        while rest % divisor == 0:
            rest //= divisor
            count += 1
        divisor += 1
    if rest > 1:
        count += 1
    return count * $times
""",
        "Return $times times the number of prime factors of $n, each counted as often as it occurs: 12 = 2 * 2 * 3 has"
        " three. Numbers below 2 have none.",
        "Divide by 2, 3, 4 and so on as long as it goes, and remember what is left at the end",
        [(draw.between(30, 60) * 2,), (draw.between(20, 40) * 3,), (draw.between(10, 20) * 10,)],
        [(0,), (1,), (2,), (-8,), (49,), (97,), (64,), (4,)],
        names={"f": "prime_factors factor_count count_primes_in", "n": _N},
        times=draw.between(2, 30),
    )


def _fare(draw: Draw) -> FunctionDraft:
    base, free, each = draw.between(2, 9), draw.between(2, 6), draw.between(2, 8)
    cap = base + each * draw.between(5, 8)
    return draft(
        draw,
        """
def $f($km):
    if $km <= 0:
        return 0
    price = $base
    if $km > $free:
        price += ($km - $free) * $each
    return min(price, $cap)
""",
        "A ride of $km whole kilometres costs $base; each kilometre beyond the first $free costs $each more. No ride"
        " costs more than $cap, and one of 0 kilometres or less costs nothing. Return the price.",
        "Begin with the base price, add the kilometres beyond the free ones, and apply the limit",
        [(free + 2,), (free + draw.between(3, 4),), (free + 30,)],
        [(0,), (-3,), (1,), (free,), (free + 1,), (free - 1,), (100,)],
        names={"f": "fare ride_price cost_of_ride taxi", "km": "km distance kilometres"},
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
        """
def $f($n):
    if $n == 0:
        return '0'
    digits = ''
    rest = abs($n)
    while rest > 0:
        digits = str(rest % $base) + digits
        rest //= $base
    if $n < 0:
        digits = '$mark' + digits
    return digits
""",
        "Return $n written in base $base, as a text. Zero is '0', and a negative number is written with '$mark' before"
        " its digits.",
        "Take remainders until nothing is left, and treat zero and the sign apart",
        [(draw.between(20, 99),), (draw.between(100, 400),), (draw.between(8, 60),)],
        [(0,), (-draw.between(5, 50),), (1,), (base,), (-base,), (base**3,), (base - 1,)],
        names={"f": "to_base in_base digits_in_base written", "n": _N},
        base=base,
        mark=mark,
    )


def _steps_to_target(draw: Draw) -> FunctionDraft:
    target = draw.between(80, 300)
    add = draw.between(1, 9)
    return draft(
        draw,
        """
def $f($n):
    if $n <= 0:
        return -1
    steps = 0
    while $n $op $target:
        $n = $n * 2 + $add
        steps += 1
    return steps
""",
        "$n is doubled and raised by $add again and again $until. Return how many times that is; a number that is not"
        " above zero gives -1.",
        "Repeat the step and count until the target is met",
        [(draw.between(3, 9),), (draw.between(10, 25),), (draw.between(1, 2),)],
        [(0,), (-4,), (target,), (target - 1,), (target + 1,), ((target - add) // 2,), (target * 2,)],
        names={"f": "steps_to_target doublings rounds_needed", "n": _N},
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
        """
def $f($n, $bonus):
    total = $n + $bonus * $factor
    if $bonus < 0:
        total = $n
    if total > $high:
        return $high
    if total < $low:
        return $low
    return total
""",
        "Return $n plus $factor times $bonus, but never more than $high and never less than $low. A negative $bonus"
        " does not count at all.",
        "Add the bonus if it counts, then hold the result within both limits",
        [(low + 5, 1), (low + 2, 2), (high - 3, 4)],
        [(0, 0), (low + 4, -2), (low - 9, 0), (high, 0), (high + 1, -1), (low, -5), (high - 2, 9)],
        names={"f": "clamp_score limited held_within with_bonus", "n": _N, "bonus": "bonus extra gift"},
        low=low,
        high=high,
        factor=draw.between(2, 5),
    )


PATTERNS = (
    _digit_total, _next_multiple, _grade, _prime_count, _fare, _to_base, _steps_to_target, _clamp_score,
)  # fmt: skip

"""Functions on intervals, dates and times of day, without a library."""

from __future__ import annotations

from agentgym_flow.envs.canvas.tasks.code.draft import Draw, FunctionDraft, draft, function_texts

_TEXTS = function_texts("times.json")


def _spans(draw: Draw, count: int) -> list[tuple[int, int]]:
    """Return intervals that neither touch nor hold one another, some of them overlapping."""
    start, spans = draw.between(0, 5), []
    for _ in range(count):
        end = start + draw.between(5, 9)
        spans.append((start, end))
        start = end + draw.choice((-2, 3, 4))
    draw.shuffle(spans)
    return spans


def _merge_spans(draw: Draw) -> FunctionDraft:
    touch = draw.coin()
    gap = draw.between(1, 4)
    return draft(
draw,
_TEXTS["merge_spans"],
[(_spans(draw, 3),), (_spans(draw, 4),), ([(30, 40), (0, 9), (6, 12)],)],
[
            ([],), ([(1, 2)],), ([(0, 10), (2, 3)],), ([(0, 5), (5 + gap, 9)],), ([(0, 5), (6 + gap, 9)],),
            ([(4, 8), (0, 4)],), ([(1, 9), (1, 3)],), ([(0, 5), (4 + gap, 9)],),
        ],
op="<=" if touch else "<",
words="at most" if touch else "less than",
gap=gap,
)  # fmt: skip


def _covered(draw: Draw) -> FunctionDraft:
    both = draw.coin()
    times = draw.between(2, 20)
    return draft(
        draw,
        _TEXTS["covered"],
        [(_spans(draw, 3),), (_spans(draw, 4),), ([(3, 9), (14, 20), (6, 12)],)],
        [
            ([],),
            ([(1, 1)],),
            ([(0, 9), (2, 4)],),
            ([(5, 3)],),
            ([(0, 4), (4, 8)],),
            ([(2, 5), (2, 5)],),
            ([(0, 9), (3, 6), (8, 12)],),
        ],
        op="<=" if both else "<",
        op2=">=" if both else ">",
        more=" + 1" if both else "",
        inclusive=" number, both inclusive" if both else "",
        what="number of whole numbers" if both else "length",
        times=times,
    )


def _most_at_once(draw: Draw) -> FunctionDraft:
    closed = draw.coin()
    extra = draw.between(0, 15)
    return draft(
        draw,
        _TEXTS["most_at_once"],
        [(_spans(draw, 3),), (_spans(draw, 4),), ([(0, 10), (4, 8), (6, 9)],)],
        [
            ([],),
            ([(1, 2)],),
            ([(0, 5), (5, 9)],),
            ([(3, 7), (3, 7)],),
            ([(0, 1), (1, 2), (2, 3)],),
            ([(0, 9), (1, 2)],),
        ],
        op="<=" if closed else "<",
        still="still" if closed else "no longer",
        extra=extra,
    )


def _free_gaps(draw: Draw) -> FunctionDraft:
    least = draw.between(2, 5)
    day = draw.between(50, 90)
    return draft(
draw,
_TEXTS["free_gaps"],
[([(8, 20), (25 + least, 40)],), ([(30, 45), (6, 14), (12, 22)],), ([(10, 19), (22 + least, 44)],)],
[
            ([],), ([(0, day)],), ([(least, 20)],), ([(5, 30), (10, 12)],), ([(5, 10), (10 + least, day)],),
            ([(5, day - least)],), ([(5, 10), (9 + least, day)],), ([(1, day - least + 1)],),
        ],
least=least,
day=day,
morning=draw.between(0, 1),
)  # fmt: skip


def _days_in_month(draw: Draw) -> FunctionDraft:
    years = draw.sample((1997, 2003, 2011, 2019, 2023, 2026), 3)
    return draft(
        draw,
        _TEXTS["days_in_month"],
        [(years[0], draw.between(3, 6)), (years[1], 2), (years[2], draw.between(7, 11))],
        [(2024, 2), (1900, 2), (2000, 2), (2023, 12), (2023, 1), (2023, 0), (2023, 13), (2024, 3), (2100, 2)],
        wrong=draw.choice(("0", "-1", "None")),
    )


def _day_of_year(draw: Draw) -> FunctionDraft:
    first = draw.between(0, 1)
    back = draw.coin()
    return draft(
        draw,
        _TEXTS["day_of_year"],
        [
            (2023, 3, draw.between(2, 28)),
            (2022, draw.between(5, 9), 17),
            (2019, draw.between(4, 11), draw.between(1, 30)),
        ],
        [
            (2024, 3, 1),
            (2023, 1, 1),
            (2023, 12, 31),
            (2024, 12, 31),
            (1900, 3, 1),
            (2000, 3, 1),
            (2024, 2, 29),
            (2100, 12, 1),
        ],
        first=first,
        less=f" - {1 - first}" if not first else "",
        part="$month:" if back else ":$month - 1",
        what="how many days the months after the given one have in that year together, plus $day"
        + ("" if first else " minus 1")
        if back
        else "the number of the given day within its year, where 1 January has the number " + str(first),
    )


def _clock_after(draw: Draw) -> FunctionDraft:
    twelve = draw.coin()
    pause = draw.between(3, 40)
    return draft(
draw,
_TEXTS["clock_after"],
[(draw.between(1, 6), 20, 15), (draw.between(2, 5), 31, 25), (draw.between(1, 4), 12, 94)],
[(11, 55, 10), (0, 0, 0), (23, 59, 1), (5, 0, 60), (9, 0, 61), (1, 1, 1), (10, 30, 800), (3, 0, 59)],
pause=pause,
limit=draw.between(55, 65),
whole=(whole := 720 if twelve else 1440),
mark=(mark := draw.choice((":", ".", "h"))),
end=f"{whole // 60 - 1}{mark}59",
)  # fmt: skip


def _weekday_count(draw: Draw) -> FunctionDraft:
    closed = draw.between(1, 5)
    names = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
    return draft(
        draw,
        _TEXTS["weekday_count"],
        [(draw.between(0, 2), 7), (draw.between(0, 4), 10), (5, draw.between(4, 6))],
        [(0, 0), (6, 1), (5, 1), (0, -3), (closed - 1, 1), (4, 3), (6, 14), (2, 91), (0, 1)],
        closed=closed - 1,
        name=names[closed - 1],
        hours=draw.between(7, 11),
        short=draw.between(2, 6),
    )


PATTERNS = (
    _merge_spans, _covered, _most_at_once, _free_gaps, _days_in_month, _day_of_year, _clock_after, _weekday_count,
)  # fmt: skip

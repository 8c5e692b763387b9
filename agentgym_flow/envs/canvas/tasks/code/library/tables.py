"""Functions on dictionaries, on lists of pairs and on matrices."""

from __future__ import annotations

from agentgym_flow.envs.canvas.tasks.code.draft import Draw, FunctionDraft, draft, function_texts

_TEXTS = function_texts("tables.json")


def _records(draw: Draw, count: int) -> list[tuple[str, int]]:
    return list(zip(draw.words(count), draw.distinct(count, 1, 60), strict=True))


def _grid(draw: Draw, height: int, width: int) -> list[list[int]]:
    return [draw.ints(width, 1, 9) for _ in range(height)]


def _merge_counts(draw: Draw) -> FunctionDraft:
    a, b, c, d = draw.words(4)
    least = draw.between(2, 4)
    return draft(
        draw,
        _TEXTS["merge_counts"],
        [({b: 9, a: 7}, {a: 3, b: 2}), ({c: 12, d: 8}, {d: 4, c: 6}), ({d: 20, a: 15}, {a: 5, d: 9})],
        [
            ({}, {}),
            ({a: least}, {}),
            ({}, {a: 5}),
            ({a: 3}, {a: 3}),
            ({a: 4, b: 1}, {b: 1}),
            ({b: 2}, {c: 2}),
            ({}, {d: -3}),
        ],
        sign="+" if (add := draw.coin()) else "-",
        done="added to those of" if add else "taken away from those of",
        least=least,
    )


def _ranking(draw: Draw) -> FunctionDraft:
    high = draw.coin()
    top = draw.between(2, 3)
    one, other, third = _records(draw, 4), _records(draw, 5), _records(draw, 4)
    return draft(
        draw,
        _TEXTS["ranking"],
        [(dict(one),), (dict(other),), (dict(third),)],
        [
            ({},),
            ({"z": 5, "a": 5},),
            ({"b": 3, "a": 3, "c": 3, "d": 3},),
            ({"a": 0, "b": 1},),
            ({"x": -2},),
            ({"q": 1},),
        ],
        top=top,
        sign="-pair[1]" if high else "pair[1]",
        size="most" if high else "fewest",
    )


def _group_totals(draw: Draw) -> FunctionDraft:
    a, b, c = draw.words(3)
    n = draw.ints(9, 1, 30)
    most = draw.between(2, 40)
    return draft(
        draw,
        _TEXTS["group_totals"],
        [
            ([(b, n[0]), (a, n[1]), (b, n[2])],),
            ([(c, n[3]), (a, n[4]), (b, n[5]), (a, n[6])],),
            ([(a, n[7]), (a, n[8])],),
        ],
        [([],), ([(a, 0)],), ([(a, -4), (b, 4)],), ([(a, 1)],), ([(c, 2), (b, 2), (a, 2)],), ([(a, 5), (a, -5)],)],
        start=most,
    )


def _most_common(draw: Draw) -> FunctionDraft:
    last = draw.coin()
    a, b, c = draw.words(3)
    nothing = draw.choice(("None", "''", "'none'"))
    return draft(
        draw,
        _TEXTS["most_common"],
        [([a, b, a],), ([c, b, b, a, b, c],), ([b, c, c],)],
        [([],), ([a],), ([b, a],), ([c, a, a, c],), ([a, b, c],), ([b, b, c, c, a],), ([c, c, c],)],
        op=">=" if last else ">",
        which="last" if last else "first",
        nothing=nothing,
    )


def _invert(draw: Draw) -> FunctionDraft:
    least = draw.between(1, 30)
    one = {name: draw.choice((least + 4, least + 9)) for name in draw.words(4)}
    other = {name: draw.choice((least + 3, least + 7)) for name in draw.words(3)}
    return draft(
        draw,
        _TEXTS["invert"],
        [(one,), (other,)],
        [
            ({},),
            ({"a": least},),
            ({"a": least - 1},),
            ({"b": 50, "a": 50},),
            ({"x": 0},),
            ({"p": 99, "q": 98, "o": 99},),
        ],
        least=least,
        order=", reverse=True" if (back := draw.coin()) else "",
        words="reverse" if back else "normal",
    )


def _diagonal_sum(draw: Draw) -> FunctionDraft:
    other = draw.coin()
    factor = draw.between(2, 7)
    return draft(
        draw,
        _TEXTS["diagonal_sum"],
        [(_grid(draw, 3, 3),), (_grid(draw, 4, 4),), (_grid(draw, 2, 2),)],
        [([],), ([[5]],), ([[1, 2, 3], [4, 5, 6]],), ([[1], [2], [3]],), ([[1, 2], [3, 4], [5, 6]],), ([[]],)],
        place="len($grid) - 1 - i" if other else "i",
        factor=factor,
        runs="ends in the first column of the last row" if other else "begins in the first column of the first row",
    )


def _transpose(draw: Draw) -> FunctionDraft:
    fill = draw.between(0, 9)
    return draft(
        draw,
        _TEXTS["transpose"],
        [(_grid(draw, 2, 3),), (_grid(draw, 3, 2),), (_grid(draw, 3, 3),)],
        [([],), ([[]],), ([[1, 2], [3]],), ([[1], [2, 3]],), ([[4, 4, 4]],), ([[1], [], [2]],), ([[6], [7]],)],
        extreme="max" if (long := draw.coin()) else "min",
        size="longest" if long else "shortest",
        fill=fill,
    )


def _border_sum(draw: Draw) -> FunctionDraft:
    weight = draw.between(2, 9)
    return draft(
        draw,
        _TEXTS["border_sum"],
        [(_grid(draw, 3, 4),), (_grid(draw, 4, 3),), (_grid(draw, 3, 3),)],
        [([],), ([[3]],), ([[1, 2]],), ([[1], [2]],), ([[0, 0], [0, 0]],), ([[1, 2, 3], [4, 5, 6], [7, 8, 9]],)],
        weight=weight,
        sign="-=" if (minus := draw.coin()) else "+=",
        how="taken away" if minus else "added once",
    )


def _neighbours(draw: Draw) -> FunctionDraft:
    mark, empty = draw.choice((("#", "."), ("x", "-"), ("1", "0"), ("@", " ")))
    rows = [["".join(draw.sample(mark * 2 + empty * 3, 4)) for _ in range(3)] for _ in range(3)]
    grids = [(grid, draw.between(0, 1), draw.between(1, 2)) for grid in rows]
    whole = [mark * 3] * 3
    return draft(
draw,
_TEXTS["neighbours"],
grids,
[
            (whole, 1, 1), (whole, 0, 0), (whole, 2, 2), (whole, 0, 2), ([mark], 0, 0), ([empty + mark], 0, 0),
            ([mark + empty, empty + mark], 1, 1), (whole, 2, 0),
        ],
mark=mark,
times=draw.between(2, 12),
)  # fmt: skip


PATTERNS = (
    _merge_counts, _ranking, _group_totals, _most_common, _invert, _diagonal_sum, _transpose, _border_sum, _neighbours,
)  # fmt: skip

"""Functions on lists of numbers."""

from __future__ import annotations

from agentgym_flow.envs.canvas.tasks.code.draft import Draw, FunctionDraft, draft, function_texts

_TEXTS = function_texts("lists.json")


def _largest_step(draw: Draw) -> FunctionDraft:
    up = draw.coin()
    less = draw.choice(("None", "0", "-1"))
    return draft(
        draw,
        _TEXTS["largest_step"],
        [(draw.ints(6, 1, 30),), (draw.ints(5, 1, 30),), (draw.ints(7, -20, 20),)],
        [([],), ([draw.between(1, 9)],), (draw.ints(2, 1, 50),), ([5, 5, 5],), ([9, 4, 2, 1],), ([1, 4, 9, 16],)],
        op=">" if up else "<",
        size="largest" if up else "smallest",
        less=less,
    )


def _count_beyond(draw: Draw) -> FunctionDraft:
    limit = draw.between(5, 60)
    op, words = draw.choice(((">", "more than"), (">=", "at least"), ("<", "less than"), ("<=", "at most")))
    near = [limit - 3, limit + 4, limit - 9, limit + 8, limit + 2, limit - 1, limit + 1]
    lists = []
    for count in (5, 6, 4):
        lists.append(([*draw.sample(near, count), limit + (12 if op[0] == ">" else -12)],))
    return draft(
        draw,
        _TEXTS["count_beyond"],
        lists,
        [([limit],), ([],), ([limit, limit + 1, limit - 1],), ([limit] * 3,), ([limit - 1],), ([limit + 1],)],
        op=op,
        words=words,
        limit=limit,
    )


def _running_best(draw: Draw) -> FunctionDraft:
    up = draw.coin()
    return draft(
        draw,
        _TEXTS["running_best"],
        [(draw.ints(6, 1, 40),), (draw.ints(5, 1, 40),), (draw.ints(7, -9, 40),)],
        [([],), ([draw.between(1, 9)],), ([3, 2, 1],), ([1, 2, 3],), ([4, 4, 4],), ([0, -1, 5, -7],)],
        op=">" if up else "<",
        size="largest" if up else "smallest",
    )


def _longest_run(draw: Draw) -> FunctionDraft:
    """The longest stretch of a kind of neighbours."""
    op, words = draw.choice(((">", "increases"), (">=", "never falls"), ("<", "decreases"), ("<=", "never rises")))
    flat = [7, 7, 7]
    return draft(
        draw,
        _TEXTS["longest_run"],
        [(draw.distinct(7, 1, 40),), (draw.distinct(6, 1, 40),), (draw.distinct(8, 1, 40),)],
        [([],), ([4],), (flat,), ([1, 2, 2, 3],), ([3, 2, 2, 1],), (sorted(draw.distinct(5, 1, 30)),), ([5, 4, 3],)],
        op=op,
        words=words,
    )


def _moving_sums(draw: Draw) -> FunctionDraft:
    width = draw.between(2, 5)
    op, words = draw.choice((("sum", "sum"), ("max", "largest number"), ("min", "smallest number")))
    return draft(
        draw,
        _TEXTS["moving_sums"],
        [(draw.ints(width + 3, 1, 30),), (draw.ints(width + 2, 1, 30),), (draw.ints(width + 4, -9, 30),)],
        [([],), (draw.ints(width - 1, 1, 9),), (draw.ints(width, 1, 9),), ([2] * 8,), ([1],), (draw.ints(9, -9, 9),)],
        op=op,
        words=words,
        width=width,
    )


def _second_place(draw: Draw) -> FunctionDraft:
    up = draw.coin()
    less = draw.choice(("None", "-1"))
    return draft(
        draw,
        _TEXTS["second_place"],
        [(draw.distinct(5, 1, 50),), (draw.distinct(6, 1, 50),), (draw.distinct(4, -20, 20),)],
        [([],), ([3],), ([4, 4],), ([9, 9, 2],), ([2, 9, 9],), ([1, 2, 2, 3, 3],), ([5, 5, 5, 5],)],
        op=">" if up else "<",
        size="largest" if up else "smallest",
        less=less,
    )


def _rotate(draw: Draw) -> FunctionDraft:
    left = draw.coin()
    extra = draw.between(0, 3)
    return draft(
        draw,
        _TEXTS["rotate"],
        [(draw.ints(6, 1, 30), 1), (draw.ints(7, 1, 30), 2), (draw.ints(5, 1, 30), 1)],
        [([], 3), ([1, 2, 3], 0), ([1, 2, 3], 7), ([4], 5), ([1, 2, 3, 4], 4), (draw.ints(6, 1, 9), 20), ([8, 9], 3)],
        side="left" if left else "right",
        first="$xs[places:]" if left else "$xs[-places:]",
        last="$xs[:places]" if left else "$xs[:-places]",
        extra=extra,
    )


def _pairs_with_sum(draw: Draw) -> FunctionDraft:
    total = draw.between(8, 40)
    a, b, c = draw.distinct(3, 1, total // 2 - 1)
    rest = [total + 3, total + 5]
    return draft(
        draw,
        _TEXTS["pairs_with_sum"],
        [([a, total - a, *rest],), ([b, a, rest[0], total - b, total - a],), ([c, rest[1], total - c, b],)],
        [([],), ([total],), ([a, a, total - a],), ([total, 0],), ([a, total - a, a, total - a],), ([a, b],)],
        total=total,
    )


def _without_repeats(draw: Draw) -> FunctionDraft:
    last = draw.coin()
    a, b, c, d = draw.distinct(4, 1, 60)
    return draft(
        draw,
        _TEXTS["without_repeats"],
        [([a, b, a, c],), ([c, d, c, b, d],), ([a, c, b, d, a],)],
        [([],), ([a],), ([a, a, a],), ([a, b, b, a],), ([d, c, b, a],), ([b, a, b, a, c],)],
        source="reversed($xs)" if last else "$xs",
        back="result[::-1]" if last else "result",
        which="last" if last else "first",
    )


def _peaks(draw: Draw) -> FunctionDraft:
    high = draw.coin()
    return draft(
        draw,
        _TEXTS["peaks"],
        [(draw.distinct(7, 1, 50),), (draw.distinct(8, 1, 50),), (draw.distinct(6, 1, 50),)],
        [([],), ([3],), ([1, 2],), ([1, 5, 5, 1],), ([5, 1, 1, 5],), ([2, 2, 2],), ([9, 1, 9, 1, 9],), ([1, 3, 1],)],
        op=">" if high else "<",
        size="larger" if high else "smaller",
    )


def _capped_total(draw: Draw) -> FunctionDraft:
    cap = draw.between(10, 40)
    rest = [cap + 3, cap + 7]
    small = [draw.between(1, cap - 3) for _ in range(6)]
    return draft(
        draw,
        _TEXTS["capped_total"],
        [([*small[:3], rest[0]],), ([rest[1], *small[2:5]],), ([small[5], rest[0], small[0], rest[1]],)],
        [([],), ([-5],), ([cap],), ([-3, 4, -cap],), ([cap + 1],), ([0, 0],), ([-cap - 5, cap + 5],)],
        cap=cap,
    )


def _first_position(draw: Draw) -> FunctionDraft:
    last, high = draw.coin(), draw.coin()
    missing = draw.choice(("-1", "None"))
    a, b, c, d = draw.distinct(4, 1, 60)
    return draft(
        draw,
        _TEXTS["first_position"],
        [([a, b, c, d],), ([d, b, a],), ([c, a, d, b, 61 if a > 30 else 0],)],
        [([],), ([a],), ([a, a],), ([b, a, a, b, a, b],), ([1, 9, 9, 1],), ([9, 1, 1, 9],)],
        op=(">" if high else "<") + ("=" if last else ""),
        size="largest" if high else "smallest",
        which="last" if last else "first",
        missing=missing,
    )


def _split_chunks(draw: Draw) -> FunctionDraft:
    size = draw.between(2, 5)
    keep = draw.coin()
    return draft(
        draw,
        _TEXTS["split_chunks"],
        [(draw.ints(size * 2, 1, 30),), (draw.ints(size * 3, 1, 30),)],
        [
            ([],),
            ([1],),
            (draw.ints(size, 1, 9),),
            (draw.ints(size + 1, 1, 9),),
            (draw.ints(size * 2 - 1, 1, 9),),
            ([3, 4],),
        ],
        size=size,
        least=1 if keep else size,
        rest="is kept" if keep else "is left out",
    )


PATTERNS = (
    _largest_step, _count_beyond, _running_best, _longest_run, _moving_sums, _second_place, _rotate, _pairs_with_sum,
    _without_repeats, _peaks, _capped_total, _split_chunks, _first_position,
)  # fmt: skip

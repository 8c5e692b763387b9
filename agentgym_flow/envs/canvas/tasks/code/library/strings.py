"""Functions on texts."""

from __future__ import annotations

from agentgym_flow.envs.canvas.tasks.code.draft import Draw, FunctionDraft, draft, function_texts

_TEXTS = function_texts("strings.json")


def _line(draw: Draw, count: int) -> str:
    return " ".join(draw.words(count))


def _count_letters(draw: Draw) -> FunctionDraft:
    letters = "".join(sorted(draw.sample("aeiourstln", draw.between(3, 5))))
    return draft(
        draw,
        _TEXTS["count_letters"],
        [(_line(draw, 3),), (_line(draw, 2),), (_line(draw, 4),)],
        [("",), (letters.upper(),), ("xyz",), (_line(draw, 2).title(),), (letters[0] * 3,), (letters[0].upper(),)],
        letters=letters,
        points=draw.between(1, 4),
    )


def _compress(draw: Draw) -> FunctionDraft:
    least = draw.between(2, 3)
    mark = draw.choice(("", "x", "*", ":"))
    runs = ["".join(c * draw.between(1, 5) for c in draw.sample("abcdefgh", 4)) + "z" * 4 for _ in range(3)]
    return draft(
        draw,
        _TEXTS["compress"],
        [(run,) for run in runs],
        [("",), ("a",), ("aa",), ("aaa",), ("abab",), ("aabbbb",), ("bbbbbbbbbbbb",)],
        least=least,
        mark=mark,
        then=f"a '{mark}' and then " if mark else "and then ",
    )


def _longest_word(draw: Draw) -> FunctionDraft:
    last, long = draw.coin(), draw.coin()
    lines = [" ".join(sorted(draw.words(5), key=len)[:: 1 if draw.coin() else -1]) for _ in range(3)]
    unequal = [" ".join({len(word): word for word in reversed(line.split())}.values()) for line in lines]
    return draft(
        draw,
        _TEXTS["longest_word"],
        [(f"{one} {other}",) for one, other in zip(unequal, ("no", "elephant", "a"), strict=True)],
        [("",), ("   ",), ("one two",), ("bb aa cc",), ("a bb cc d",), ("word",), ("ccc bb aaa dd",)],
        op=(">" if long else "<") + ("=" if last else ""),
        size="longest" if long else "shortest",
        which="last" if last else "first",
    )


def _is_mirrored(draw: Draw) -> FunctionDraft:
    strict = draw.coin()
    word = draw.words(1)[0]
    return draft(
        draw,
        _TEXTS["is_mirrored"],
        [(f"{word}{word[::-1]}",), (f"{word} {word}s",), (f"{word} {word[:-1][::-1]}",)],
        [("",), ("a",), ("Aa",), ("ab",), ("A man, a plan",), ("Noon",), ("xyzzyx!",), ("abca",), ("x y x",), ("aba",)],
        prepared="$text" if strict else "$text.lower()",
        case="different" if strict else "the same",
        least=draw.between(2, 5),
    )


def _shift_letters(draw: Draw) -> FunctionDraft:
    by = draw.between(1, 12)
    back = draw.coin()
    return draft(
        draw,
        _TEXTS["shift_letters"],
        [(_line(draw, 2).title(),), (_line(draw, 2).title(),), (_line(draw, 1).upper() + " " + _line(draw, 1),)],
        [("",), ("az",), ("AZ",), ("zZ",), ("a-b 1",), ("xyzXYZ",), ("{`@[",)],
        by=by,
        sign="-" if back else "+",
        way="back" if back else "on, too",
    )


def _title_words(draw: Draw) -> FunctionDraft:
    least = draw.between(3, 5)
    return draft(
        draw,
        _TEXTS["title_words"],
        [(_line(draw, 4),), ("a tale of two " + _line(draw, 1),), (_line(draw, 3),)],
        [
            ("",),
            ("A",),
            ("THE END",),
            ("of  the   art",),
            ("x" * least,),
            ("q " + "x" * (least - 1),),
            ("it was WARM",),
        ],
        least=least,
        mark=draw.choice((" ", "-", "_", ".")),
    )


def _balanced(draw: Draw) -> FunctionDraft:
    o, c = draw.choice((("(", ")"), ("[", "]"), ("{", "}"), ("<", ">")))
    deep = draw.between(2, 4)
    return draft(
        draw,
        _TEXTS["balanced"],
        [(f"{o}a{o}b{c}{c}{o}{c}",), (f"x{o}y{c}" * deep,), (f"{o}{o}{o}{c}k{c}{c}",)],
        [("",), ("abc",), (c + o,), (o,), (f"{o}{c}{c}{o}",), (f"{o}{o}{c}",), (o * deep + c * deep,), (f"{o}{c}{c}",)],
        o=o,
        c=c,
        factor=draw.between(2, 9),
    )


def _common_start(draw: Draw) -> FunctionDraft:
    stem = draw.words(3)
    return draft(
        draw,
        _TEXTS["common_start"],
        [([stem[0] + "a", stem[0] + "bc", stem[0] + "d"],), ([stem[1] + "er", stem[1] + "ing"],)],
        [
            ([],),
            ([stem[2]],),
            (["a", "b"],),
            (["ab", "abc"],),
            (["abcd", "abce"],),
            (["", "x"],),
            (["abc", "ab", "a"],),
        ],
        least=draw.between(2, 4),
        nothing=draw.choice(("''", "None", "'-'")),
    )


def _mask(draw: Draw) -> FunctionDraft:
    keep = draw.between(2, 4)
    sign = draw.choice("*#x.")
    end = draw.coin()
    return draft(
        draw,
        _TEXTS["mask"],
        [(_line(draw, 2),), (str(draw.between(10**7, 10**8)),), (_line(draw, 1) + "-77",)],
        [("",), ("a",), ("x" * keep,), ("y" * (keep + 1),), ("0123456789",), ("ab",)],
        keep=keep,
        sign=sign,
        short="'$sign' * len($text)" if (whole := draw.coin()) else "$text",
        rule="is hidden altogether" if whole else "stays as it is",
        which="last" if end else "first",
        whole="hidden + $text[-$keep:]" if end else "$text[:$keep] + hidden",
    )


PATTERNS = (
    _count_letters, _compress, _longest_word, _is_mirrored, _shift_letters, _title_words, _balanced, _common_start,
    _mask,
)  # fmt: skip

"""Mathematical answers: what Math-Verify makes of them, its process and what an answer may cost, and plain numbers."""

from __future__ import annotations

import multiprocessing
import re
import resource
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_flow.errors import MissingExtra
from agentgym_flow.problems.scoring import extract
from agentgym_flow.problems.scoring.extract import equal, same_number, stated_number
from agentgym_flow.problems.tasks.sets import load_problems

with_math_verify = pytest.mark.skipif(not extract._installed(), reason="needs Math-Verify (the extra canvas)")

FORTY_EIGHT = ["48", "48.0", "$48.00", "The answer is 48.", "#### 48", "<answer>48</answer>", "\\boxed{48}", "96/2",
               "She has 48 apples.", "**48**", "So 50-2 = 48.", "**Answer:** 48", "x = 48"]  # fmt: skip
NOT_FORTY_EIGHT = ["49 or 48", "48 or 49", "The answer is 49 or 48.", "\\boxed{49 or 48}", "#### 49 or 48", "47", "-48",
                   "<answer>49 or 48</answer>", "48.0005", "480", "4.8", "48,000", "forty-eight", "",
                   "48 or else 49", "49 or perhaps 48", "49, or 48", "49 (or 48)"]  # fmt: skip


@with_math_verify
@pytest.mark.parametrize(
    ("gold", "right", "wrong"),
    [
        ("48", [*FORTY_EIGHT, "\\$48", "The answer is $48$ km.", "48%"], [*NOT_FORTY_EIGHT, "$49$ or $48$", "48x"]),
        ("48", ["He makes 2 (or 3) trips, so the answer is 48.", "48 (forty-eight)", "(48)"],
         ["47 (or 48)", "48 (or 47)", "perhaps 47 , if not 48", "The answer is 48 (alternatively 47)", "47 / or 48",
          "maybe 47, maybe 48", "\\boxed{47 (or 48)}", "48 if not 47"]),
        ("12", ["12", "12.0"], ["12.0005", "12.1", "1,2"]),
        ("\\frac{3}{4}", ["\\frac34", "0.75", "3/4", "The answer is $\\frac{3}{4}$."], ["4/3", "0.7"]),
        ("x^2+1", ["x^2+1", "1+x^2", "$x^2 + 1$"], ["x^2", "2", "x^2-1"]),
        ("2,3", ["$x=2$ or $x=3$", "2 or 3", "{3, 2}"], ["2", "2,4"]),
        ("\\text{Evelyn}", ["Evelyn", "The answer is \\boxed{\\text{Evelyn}}."], ["Evelin", "5"]),
        ("(3,\\frac{\\pi}{2})", ["(3, \\pi/2)"], ["(\\pi/2, 3)"]),
        ("[0,1)", ["[0,1)", "$[0, 1)$"], ["(0,1)", "[0,2)"]),
        ("90^\\circ", ["90"], ["80"]),
        ("1,080", ["1080", "1,080 dollars"], ["1", "80"]),
    ],
)  # fmt: skip
def test_equal_answers_are_right_and_others_wrong(gold: str, right: list[str], wrong: list[str]) -> None:
    assert [text for text in right if not equal(text, gold)] == []
    assert [text for text in wrong if equal(text, gold)] == []


@with_math_verify
@pytest.mark.parametrize("find", [equal, same_number])
def test_a_heading_hides_no_answer_and_a_refusal_stands(find: Callable[[str, str], bool]) -> None:
    right = ["#### Conclusion\nThe answer is 25.", "\\boxed{25}\n#### Check\nIt fits 26.", "The answer is 24.\n#### 25",
             "#### Answer: 25", "24\n#### **25**", "24\n##### 25", "#### Step 3\n5 * 5 = 25", "#### $25 each\nbye 9",
             "### Final Answer\n25\n\n### Check\n25 < 26", "#### Answer\n25\n#### Check\n24 < 25 < 26"]  # fmt: skip
    wrong = ["25 \\boxed{I do not know.}", "\\boxed{25} \\boxed{}", "25. The answer is: I do not know.",
             "25 #### unknown", "25 <answer>none</answer>", "<answer>25 \\boxed{none}</answer>", "25\n#### 24",
             "$25$ \\boxed{?}"]  # fmt: skip
    assert [text for text in right if not find(text, "25")] == []
    assert [text for text in wrong if find(text, "25")] == []


@with_math_verify
@pytest.mark.parametrize(
    "text", ["The answer is - 5.", "The answer is: - 5", "The answer is \N{MINUS SIGN}5.", "= - 5",
             "The answer is -$5$.", "The answer is - $5.", "<answer>- 5 degrees</answer>",
             "#### - 5", "\\boxed{- 5}", "x = - 5"],
)  # fmt: skip
def test_a_sign_belongs_to_the_number_after_it(text: str) -> None:
    assert equal(text, "-5")
    assert not equal(text, "5")
    assert equal("7 - 5", "2")
    assert not equal("It is 7 - 5 = 2.", "-5")


@with_math_verify
@pytest.mark.parametrize(
    ("gold", "right", "wrong"),
    [
        ("48", ["48%", "48\\%", "\\boxed{48\\%}", "48 percent"], ["4800%", "0.48", "4.8%"]),
        ("12.5", ["12.5%", "\\boxed{12.5\\%}"], ["1250%", "0.125"]),
        (".48", ["48%", "\\boxed{48\\%}", "0.48", "12/25"], ["48", ".48%"]),
        ("1", ["100%", "1"], ["1%", "100"]),
        ("48\\%", ["48%", "48", ".48", "The answer is 48 percent."], ["4800", "4.8%"]),
        ("\\frac{12}{25}", ["48%", ".48"], ["48"]),
    ],
)
def test_a_percentage_is_read_as_the_gold_answer_is_written(gold: str, right: list[str], wrong: list[str]) -> None:
    assert [text for text in right if not equal(text, gold)] == []
    assert [text for text in wrong if equal(text, gold)] == []


@with_math_verify
@settings(max_examples=30, deadline=None)
@given(st.text(max_size=60), st.sampled_from(["5", "x^2+1", "(1,2]", "\\text{Evelyn}", "25\\%", "101_2", "\\frac{"]))
def test_a_gold_answer_to_the_letter_is_right_and_no_text_raises(answer: str, gold: str) -> None:
    equal(answer, gold)
    assert equal(gold, gold)
    assert equal(f"I think so.\n<answer>{gold}</answer>", gold)


@with_math_verify
@pytest.mark.heavy
def test_real_rows_of_gsm8k_are_right_in_every_form(sample_data: Path) -> None:
    rows = 0
    for file in ("gsm8k_train_1000", "gsm8k_test_400"):
        for problem in load_problems("gsm8k", sample_data / "canvas" / f"{file}.jsonl").problems:
            [gold] = problem.answers
            number = float(gold)
            right = (
                gold,
                f"{problem.solution}\n#### {gold}",
                f"So the answer is {gold} dollars.",
                f"In total that makes {number:,.10g} apples.",
                f"\\boxed{{{gold}}}",
                f"<answer>${gold}</answer>",
            )
            wrong = (
                f"{number + 1:.10g}",
                f"{number + 0.0005}",
                f"The answer is {number - 1:.10g}.",
                f"\\boxed{{{gold}0}}",
                f"{number + 1:.10g} or {gold}",
                f"<answer>{gold} or {number + 1:.10g}</answer>",
            )
            assert [text for text in right if not equal(text, gold)] == [], problem.key
            assert [text for text in wrong if number and equal(text, gold)] == [], problem.key
            rows += 1
    assert rows == 1400


# ---------------------------------------------------------------- the process
HARD = "(x+y+z+a+b)^{60}", "((x+y)^2+2(x+y)(z+a+b)+(z+a+b)^2)^{30}"  # 600,000 terms when expanded
SOFT = "(x+1)^2", "x^2+2x+1"


@pytest.mark.heavy
@with_math_verify
def test_an_answer_that_takes_too_long_or_too_much_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extract, "CPU_SECONDS", 0.5)
    extract.close()
    extract._equal.cache_clear()
    started = time.process_time()
    assert not equal(*HARD)
    assert time.process_time() - started < 1  # the work is in another process
    assert equal(*SOFT)
    assert extract._process is not None
    pid = extract._process.pid
    assert resource.prlimit(pid, resource.RLIMIT_AS) == (1 << 30, 1 << 30)
    assert resource.prlimit(pid, resource.RLIMIT_FSIZE) == (0, 0)
    extract._process.kill()
    extract._process.wait()
    assert equal("(x+2)^2", "x^2+4x+4")  # another one takes its place
    extract.close()


@with_math_verify
def test_many_threads_share_one_process() -> None:
    with ThreadPoolExecutor(8) as threads:
        pairs = [(f"(x+{n})^2", f"x^2+{2 * n}x+{n * n + (n % 3 == 0)}") for n in range(1, 17)]
        found = list(threads.map(lambda pair: equal(*pair), pairs))
    assert found == [n % 3 != 0 for n in range(1, 17)]


def _compare(answers: multiprocessing.Queue[tuple[bool, int]]) -> None:
    found = equal("(x+1)(x-1)", "x^2-1")
    assert extract._process is not None
    answers.put((found, extract._process.pid))


@with_math_verify
def test_a_forked_process_compares_for_itself() -> None:
    assert equal("(x+2)(x-2)", "x^2-4")
    context = multiprocessing.get_context("fork")
    answers: multiprocessing.Queue[tuple[bool, int]] = context.Queue()
    child = context.Process(target=_compare, args=(answers,))
    with extract._lock:  # as when another thread waits for an answer
        child.start()
    found, worker = answers.get(timeout=60)
    child.join()
    assert found
    assert extract._process is not None
    assert worker != extract._process.pid  # two would read each other's answers
    assert equal("(x+3)(x-3)", "x^2-9")


def test_a_missing_math_verify_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extract, "_installed", lambda: False)
    with pytest.raises(MissingExtra, match=r"math-verify is not installed.*\[canvas\]"):
        equal("5", "5")


@with_math_verify
def test_the_scorer_is_named_with_its_version() -> None:
    assert re.fullmatch(r"math-verify \d+\.\d+\.\d+", extract.scorer())


# ---------------------------------------------------------------- plain numbers
def test_a_plain_number_is_compared_exactly() -> None:
    assert [text for text in FORTY_EIGHT if not same_number(text, "48")] == []
    assert [text for text in [*NOT_FORTY_EIGHT, "48%", "48 percent", "Answer: 48\\%"] if same_number(text, "48")] == []
    assert not same_number("12.0005", "12")
    assert same_number("1,234.50", "1234.5")
    assert same_number("The answer is 5 apples out of 10", "5")
    assert same_number("It falls by -$5.50 then", "-5.5")
    assert same_number("4\nAnswer: 5\n6", "5")
    assert not same_number("none", "none")


NOT_PLAIN = [
    "48 thousand", "48 Million", "48-billion", "48k", "$48K", "48e3", "48.0E+3", "48 pct", "48 ‰", "48‰", "10-48",
    "10 - 48", "Answer: 1^48", "x = 7^48", "answer: 48 + 1", "Answer: 48-50", "7**48", "7 ** 48", "answer: 48^2", "48²",
    "answer: 48.0^2", "Answer: 48 \\times 10^3", "3\\cdot48", "Answer: 48 \N{MULTIPLICATION SIGN} 2", "(1 + 2)*48",
    "Answer: 48.0k", "1 + $48",
]  # fmt: skip
STILL_PLAIN = [
    "Step 1 **48**", "1. 48", "1) -> 48", "50 - 2 = 48", "6 * 8 = 48", "Answer: 50 - 2 = 48", "A 48-mile walk", "48 km",
    "48 kilometres", "**48** - that is all", "Answer: 48 - Anna has them all", "Lines: 3\n* 48", "48 eggs", "48 km^2",
    "10^3 is too much, so 48", "Answer: 48!", "12 * 4\n48",
]  # fmt: skip


NUMBERS_IN_PARTS = [
    ("The answer is 1e3", "1000", "1"), ("1e-05", "0.00001", "1"), ("x = 1.5e+16", "15000000000000000", "1.5"),
    ("It takes 3 1/2 hours", "3.5", "3"), ("The answer is 3 1/2", "3.5", "1"), ("-3 1/2", "-3.5", "0.5"),
]  # fmt: skip


@with_math_verify
def test_powers_of_ten_and_mixed_numbers_are_read_whole() -> None:
    assert [text for text, gold, _ in NUMBERS_IN_PARTS if not (same_number(text, gold) and equal(text, gold))] == []
    assert [text for text, _, part in NUMBERS_IN_PARTS if same_number(text, part) or equal(text, part)] == []
    assert not same_number("3 5/2", "3")
    assert same_number("1000", "1e3")


def test_a_part_of_a_calculation_is_no_number() -> None:
    assert [text for text in NOT_PLAIN if same_number(text, "48")] == []
    assert [text for text in STILL_PLAIN if not same_number(text, "48")] == []


@pytest.mark.parametrize(
    "piece",
    [
        "1",
        "1,",
        "1,000",
        "1 ",
        "1 - ",
        "\t-",
        "**",
        "1^",
        "1/",
        "1.",
        "48e",
        "1 or ",
        "\\cdot",
        "####",
        "#### ",
        "\n# ",
        "answer:",
        "answer: .",
        "\\boxed{",
        "\\boxed",
        "#### the final ",
    ],
)
def test_a_hostile_text_is_read_to_its_end(piece: str) -> None:  # for ever, should an expression backtrack
    assert not same_number(piece * 20_000 + "x", "48")
    assert not same_number("Answer: 48" + piece * 2_000 + "1", "48.25")


@given(st.text(max_size=60) | st.text(alphabet="0123456789.,/-+%$ or=^ek", max_size=40), st.integers(-(10**6), 10**6))
def test_every_text_states_a_number_or_none(text: str, number: int) -> None:
    stated_number(text)
    assert same_number(f"{number:,}", str(number))

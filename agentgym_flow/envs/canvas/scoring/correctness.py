"""The correctness of results, in [0, 1]: one function for all problems, and the scorers of questions and of choices.

A text is a multiple choice if it lists at least three options under the letters from A on, in one style, each with a
text that is not a question. A lone letter is not an option: `choose five of the 5e eggs`, `f(a)` and `in parts (a),
(b) and (c)` contain none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from agentgym_flow.envs.answers import exact_match, last_answer, normalise, sub_exact_match, token_f1
from agentgym_flow.envs.canvas.scoring import Problem, extract
from agentgym_flow.envs.canvas.scoring.extract import NUMBER, last_box, same_number, stated_answer
from agentgym_flow.envs.canvas.scoring.programs import RunTests, passes
from agentgym_flow.errors import BadSetting

GENERATED = "arithmetic"
"""The source of generated word problems, whose answers are plain numbers and need no extra package."""


@dataclass(frozen=True, slots=True)
class Correctness:
    """The correctness of an answer.

    Attributes:
        score: in [0, 1]; 0 or 1 for mathematics, multiple choice and code, the F1 for questions.
        exact: the exact match for questions, 0 or 1; otherwise the score.
    """

    score: float
    exact: float


def correctness(
    problem: Problem, text: str, run_tests: RunTests | None = None, *, reproduce_official: bool = False
) -> Correctness:
    """Return the correctness of a text as the answer to a problem.

    Args:
        problem: the problem.
        text: the result of a workflow; any string of any length.
        run_tests: runs a program against tests; required for code.
        reproduce_official: score as published, for comparisons; see `score_question`.

    Raises:
        BadSetting: the problem has tests but `run_tests` is None.
        MissingExtra: Math-Verify is needed (see `scorer_of`) and not installed.
    """
    if problem.kind == "qa":
        found = score_question(text, problem.answers, reproduce_official=reproduce_official)
        return Correctness(found.credited, found.exact)
    if problem.kind == "code":
        if problem.hidden_tests and run_tests is None:
            raise BadSetting(f"run_tests must be given: {problem.source} {problem.id} is scored by running its tests.")
        right = run_tests is not None and passes(problem, text, run_tests)
    elif problem.options:
        right = any(right_choice(text, problem.options, letter) for letter in problem.answers)
    elif problem.source == GENERATED:
        right = any(same_number(text, answer) for answer in problem.answers)
    else:
        right = any(extract.equal(text, answer) for answer in problem.answers)
    return Correctness(float(right), float(right))


def scorer_of(problem: Problem) -> str:
    """Return the name of the scorer that `correctness` uses.

    It is `"f1"` for questions, `"tests"` for programs, `"choice"`, `"number"` for generated word problems, or for other
    mathematics the package with its version, `"math-verify 0.9.0"`.
    """
    if problem.kind == "qa":
        return "f1"
    if problem.kind == "code":
        return "tests"
    if problem.options:
        return "choice"
    return NUMBER if problem.source == GENERATED else extract.scorer()


MAX_TEXT = 20_000
"""The maximum length of an answer; longer ones score 0."""

UNANSWERABLE = frozenset(
    (
        "",
        "unanswerable",
        "no answer",
        "not answerable",
        "cannot be answered",
        "question is unanswerable",
        "question cannot be answered",
    )
)
"""Normalised texts which state that a question has no answer."""


class QuestionScore(NamedTuple):
    """Exact match and F1, each in [0, 1]; `credited` is the score, the F1 unless `reproduce_official` raises it."""

    exact: float
    f1: float
    credited: float


def score_question(text: str, answers: tuple[str, ...], *, reproduce_official: bool = False) -> QuestionScore:
    """Return the score of the last `<answer>` block of a text, else of the whole text.

    Args:
        text: a policy's text.
        answers: the right answers, the best of which counts; empty if the question has no answer.
        reproduce_official: score as published: an answer that contains a right one but has an F1 below 0.5 scores 0.9.
            This rewards long answers and is meant for comparisons only.
    """
    tagged = last_answer(text)
    answer = (text if tagged is None else tagged).strip()
    if len(answer) > MAX_TEXT:
        return QuestionScore(0.0, 0.0, 0.0)
    if not answers:
        said = float(normalise(answer) in UNANSWERABLE)
        return QuestionScore(said, said, said)
    exact, f1 = exact_match(answer, answers), token_f1(answer, answers)
    within = reproduce_official and f1 < 0.5 and sub_exact_match(answer, answers) == 1.0
    return QuestionScore(exact, f1, 0.9 if within else f1)


LETTERS = "ABCDEFGH"
FEWEST = 3
"""The minimum number of options."""
_LONGEST = 300

_STYLES = (
    re.compile(r"(?:^|(?<=[\s{]))\((?P<letter>[A-H])\)"),  # (A)
    re.compile(r"(?:^|(?<=[\s,]))(?P<letter>[A-H])\s?\)"),  # A) and A )
    re.compile(r"(?:^|(?<=[\s,]))(?P<letter>[a-h])\s\)"),  # a ), as MathQA has it
    re.compile(r"^[ \t]*(?P<letter>[A-H])[.:]", re.MULTILINE),
    re.compile(r"^[ \t]*\(?(?P<letter>[a-h])\)", re.MULTILINE),
)
_ANSWERED = re.compile(r"\(?\s*(?P<letter>[A-Ha-h])\s*(?:[).:](?:\s.*)?)?", re.DOTALL)
_AROUND = " \t\r\n,;"
_ASKING = re.compile(r"\?|\b(?:find|compute|determine|prove|show that|how many|what)\b", re.IGNORECASE)


def options_in(text: str) -> tuple[str, ...]:
    """Return the options in a text, in the order of their letters; empty if it is not a multiple choice."""
    for style in _STYLES:
        labels = list(style.finditer(text))
        for first in range(len(labels)):
            if labels[first]["letter"].upper() == "A":
                options = _listed(text, labels[first:])
                if options:
                    return options
    return ()


def _listed(text: str, labels: list[re.Match[str]]) -> tuple[str, ...]:
    count = next(
        (i for i, label in enumerate(labels) if i >= len(LETTERS) or label["letter"].upper() != LETTERS[i]), len(labels)
    )
    if count < FEWEST:
        return ()
    ends = [label.start() for label in labels[1:count]] + [len(text)]
    options = [text[label.end() : end].strip(_AROUND) for label, end in zip(labels[:count], ends, strict=True)]
    options[-1] = options[-1].partition("\n\n")[0].strip(_AROUND)
    usable = all(
        option and option.lower() not in ("and", "or") and len(option) <= _LONGEST and not _ASKING.search(option)
        for option in options
    )
    return tuple(options) if usable else ()


def right_choice(text: str, options: tuple[str, ...], letter: str) -> bool:
    """Return whether a text answers with `letter`, or without a letter with the content of the option.

    Raises `MissingExtra` as `extract.equal` does, if the text contains no letter.
    """
    for said in (stated_answer(text).text, "" if last_box(text) is not None else text.strip()):
        found = _ANSWERED.fullmatch(said)
        if found and len(said) <= _LONGEST and found["letter"].upper() in LETTERS[: len(options)]:
            return bool(found["letter"].upper() == letter)
    return extract.equal(text, options[LETTERS.index(letter)])

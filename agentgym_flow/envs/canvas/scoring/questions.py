"""Answers to questions: exact match and the F1 of words, as SQuAD scores them, over any number of right answers."""

from __future__ import annotations

from typing import NamedTuple

from agentgym_flow.envs.answers import exact_match, last_answer, normalise, sub_exact_match, token_f1

MAX_TEXT = 20_000
"""A longer answer is no answer; it scores 0."""

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
"""What says that a question has no answer, normalised."""


class QuestionScore(NamedTuple):
    """Exact match and F1, each in [0, 1]; `credited` is what counts, and the F1 except where `compat` says more."""

    exact: float
    f1: float
    credited: float


def score_question(text: str, answers: tuple[str, ...], *, compat: bool = False) -> QuestionScore:
    """Return the score of an answer: of the last `<answer>` block where there is one, else of the whole text.

    Args:
        text: a policy's text.
        answers: the right ones, the best of which counts; none when the question has no answer.
        compat: as published: an answer that has a right one within it, but an F1 below 0.5, counts 0.9. It pays for
            long answers, and is meant for comparisons only.
    """
    tagged = last_answer(text)
    answer = (text if tagged is None else tagged).strip()
    if len(answer) > MAX_TEXT:
        return QuestionScore(0.0, 0.0, 0.0)
    if not answers:
        said = float(normalise(answer) in UNANSWERABLE)
        return QuestionScore(said, said, said)
    exact, f1 = exact_match(answer, answers), token_f1(answer, answers)
    within = compat and f1 < 0.5 and sub_exact_match(answer, answers) == 1.0
    return QuestionScore(exact, f1, 0.9 if within else f1)

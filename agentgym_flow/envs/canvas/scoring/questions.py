"""Answers to questions: exact match and word F1 as in SQuAD, with any number of right answers."""

from __future__ import annotations

from typing import NamedTuple

from agentgym_flow.envs.answers import exact_match, last_answer, normalise, sub_exact_match, token_f1

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

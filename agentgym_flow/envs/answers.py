"""What an answer is worth: exact match, exact match within, and token F1, each with any number of right answers.

Texts are compared after the normalisation of SQuAD, in the order of Search-R1: lower case, no ASCII punctuation, no
articles, single blanks. The order matters: `A-1` is `a1`, because its `a` is no word any more when the articles go.

Before that, characters that cannot be seen are left out of both texts (`agentgym_flow.envs.visible`). Published golds
have some, and an answer given word for word must count. Search-R1 compares them unchanged; it has no other step here.

What is scored is an answer and nothing else. Search-R1 looks for answers in the whole transcript, prompt included;
others find answers in the retrieved text. Here neither can happen, because no other text than the policy's own comes
in. `last_answer(..., compat=True)` reads a transcript as Search-R1 does.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from agentgym_flow.envs.visible import visible

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


@lru_cache(maxsize=1 << 8)  # each metric compares the same few texts
def normalise(text: str) -> str:
    """Return `text` in lower case, without ASCII punctuation and articles, its words separated by single blanks.

    Characters that cannot be seen are left out first.
    """
    return " ".join(_ARTICLES.sub(" ", visible(text).lower().translate(_NO_PUNCTUATION)).split())


def exact_match(prediction: str | None, answers: Iterable[str]) -> float:
    """Return 1.0 when `prediction` is one of `answers` after normalisation, else 0.0; None is no prediction."""
    if prediction is None:
        return 0.0
    predicted = normalise(prediction)
    return float(any(normalise(answer) == predicted for answer in answers))


def sub_exact_match(prediction: str | None, answers: Iterable[str]) -> float:
    """Return 1.0 when one of `answers` is part of `prediction`, letter by letter after normalisation, else 0.0.

    An answer of which normalisation leaves nothing would be part of every text: it only matches its like.
    """
    if prediction is None:
        return 0.0
    predicted = normalise(prediction)
    return float(any(a in predicted if a else not predicted for a in map(normalise, answers)))


def token_f1(prediction: str | None, answers: Iterable[str]) -> float:
    """Return the best F1 between the words of `prediction` and those of one of `answers`, in [0, 1].

    The F1 of SQuAD: words count as often as they occur (a multiset), and `yes` is a word like others. Where
    normalisation leaves nothing of either text, it is 1.0; where nothing of one, 0.0.
    """
    if prediction is None:
        return 0.0
    predicted = normalise(prediction).split()
    return max((_f1(predicted, normalise(answer).split()) for answer in answers), default=0.0)


def _f1(predicted: list[str], wanted: list[str]) -> float:
    if not predicted or not wanted:
        return float(predicted == wanted)
    if set(predicted).isdisjoint(wanted):  # most wrong answers; counting words takes longer
        return 0.0
    common = (Counter(predicted) & Counter(wanted)).total()
    return 2 * common / (len(predicted) + len(wanted))


METRICS: Mapping[str, Callable[[str | None, Iterable[str]], float]] = {
    "em": exact_match,
    "sub_em": sub_exact_match,
    "f1": token_f1,
}
"""The metrics by name."""


def last_answer(text: str, *, compat: bool = False) -> str | None:
    """Return what the last complete `<answer>` block says, stripped; None when there is no such block.

    Args:
        text: what a policy wrote, without its prompt and without what was retrieved for it. One block is enough.
        compat: `text` is a whole transcript, prompt included, and is read as by Search-R1's released scorer: one block
            is taken for none, because the prompt is said to hold one. The published prompt holds two, so where the
            policy answered nothing, the example in the prompt is read: "Beijing".
    """
    # Nothing after the last end tag can matter, and without it every start tag would be looked for an end to no avail.
    blocks = _ANSWER.findall(text[: text.rfind("</answer>") + len("</answer>")])
    return blocks[-1].strip() if len(blocks) > compat else None

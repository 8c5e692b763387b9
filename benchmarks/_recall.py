"""The recall of a retriever: the share of the needed passages that it finds.

The needed passages are given by titles: by the question set, or the titles of the corpus that occur in the question
(`TitleFinder`). The latter measures only the first hop of a chain.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from agentgym_flow.errors import BadSetting
from agentgym_flow.retrieval.corpus import Retriever

_BATCH = 64
_WORD = re.compile(r"\w+|[^\w\s]")
_REMARK = re.compile(r"\s*\([^()]*\)$")


class NeededTitles(NamedTuple):
    """A question, and the titles of the passages needed to answer it, at least one."""

    question: str
    titles: tuple[str, ...]


class Recall(NamedTuple):
    """The recall of the first k passages over all questions.

    Attributes:
        mean: the share of a question's titles that are found, averaged over questions.
        complete: the share of questions whose titles are all found.
    """

    mean: float
    complete: float


def recall_at(retriever: Retriever, questions: Sequence[NeededTitles], ks: Sequence[int]) -> dict[int, Recall]:
    """Return the recall of the first k passages for each k in `ks`; the query is the whole question.

    A title counts as found if any passage with this title is found.

    Raises `BadSetting` if there is no question, a question without titles, or a k below 1.
    """
    if not questions or not ks or min(ks) < 1:
        raise BadSetting(f"recall needs questions and numbers of passages from 1, got {len(questions)} and {list(ks)}")
    sums = {k: [0.0, 0] for k in ks}
    for first in range(0, len(questions), _BATCH):
        batch = questions[first : first + _BATCH]
        found = retriever.search([needed.question for needed in batch], max(ks))
        for needed, hits in zip(batch, found, strict=True):
            wanted = set(needed.titles)
            if not wanted:
                raise BadSetting(f"a question without a title has no recall: {needed.question!r:.80}")
            for k in ks:
                share = len(wanted & {hit.passage.title for hit in hits[:k]}) / len(wanted)
                sums[k][0] += share
                sums[k][1] += share == 1
    return {k: Recall(mean / len(questions), complete / len(questions)) for k, (mean, complete) in sums.items()}


class TitleFinder:
    """Finds the titles of a corpus that occur in a text, ignoring case.

    A title counts only as a complete name: its first word starts with a capital letter or digit, and the adjacent words
    do not (`One Day` is not found in `One Day In The Life`). Of overlapping titles the longest counts. A remark in
    parentheses after a title may be missing if the title is unambiguous.

    Args:
        titles: the titles of the corpus; repetitions are ignored.
    """

    def __init__(self, titles: Iterable[str]) -> None:
        self._titles: dict[tuple[str, ...], str | None] = {}
        different = dict.fromkeys(titles)
        for title in different:
            self._add(_REMARK.sub("", title), title, None)
        for title in different:  # full titles have precedence
            self._add(title, title, title)
        self._longest = max(map(len, self._titles), default=0)

    def _add(self, name: str, title: str, settled: str | None) -> None:
        words = tuple(_WORD.findall(name.casefold()))
        if words:
            self._titles[words] = settled if settled or words in self._titles else title

    def find(self, text: str) -> tuple[str, ...]:
        """Return the titles in text order, without repetitions."""
        words = _WORD.findall(text)
        folded = [word.casefold() for word in words]
        found: dict[str, None] = {}
        at = 0
        while at < len(words):
            length, title = self._at(words, folded, at)
            if title is not None:
                found[title] = None
            at += length
        return tuple(found)

    def _at(self, words: list[str], folded: list[str], at: int) -> tuple[int, str | None]:
        """Return the number of words to advance from `at`, and the longest title that starts there."""
        if _is_name(words[at]) and (at < 2 or not _is_name(words[at - 1])):
            for length in range(min(self._longest, len(words) - at), 0, -1):
                title = self._titles.get(tuple(folded[at : at + length]))
                if title is not None and not (at + length < len(words) and _is_name(words[at + length])):
                    return length, title
        return 1, None


def _is_name(word: str) -> bool:
    return word[0].isupper() or word[0].isdigit()

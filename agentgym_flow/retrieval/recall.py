"""How much of what questions need a retriever finds.

What a question needs is said by titles: a question set names them, or they are the titles of the corpus that stand in
the question itself (`TitleFinder`). The latter tells how well the first hop of a chain is found, and no later one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from agentgym_flow.errors import BadSetting
from agentgym_flow.retrieval.passage import Retriever

_BATCH = 64
_WORD = re.compile(r"\w+|[^\w\s]")
_REMARK = re.compile(r"\s*\([^()]*\)$")


class NeededTitles(NamedTuple):
    """A question, and the titles of the passages that it needs, at least one."""

    question: str
    titles: tuple[str, ...]


class Recall(NamedTuple):
    """What the first k passages hold of what is needed, over all questions.

    Attributes:
        mean: the share of a question's titles that are found, averaged over questions.
        complete: the share of questions of which all titles are found.
    """

    mean: float
    complete: float


def recall_at(retriever: Retriever, questions: Sequence[NeededTitles], ks: Sequence[int]) -> dict[int, Recall]:
    """Return the recall of the first k passages for each of `ks`; the query is the whole question.

    A title is found when a passage of it is, whichever of several.

    Raises `BadSetting` when there is no question, a question without a title, or a k below 1.
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
    """Finds the titles of a corpus that stand in a text, whatever their case: `The Face In The Fog` is one.

    A title counts only where it is a name: its first word is written with a capital or a digit, and so is none beside
    it (`One Day` is not the name in `One Day In The Life`). Of titles over one another the longest counts. What stands
    in brackets after a title may be missing, as long as one title of the corpus is meant.

    Args:
        titles: of the corpus; repeats are one.
    """

    def __init__(self, titles: Iterable[str]) -> None:
        self._titles: dict[tuple[str, ...], str | None] = {}
        different = dict.fromkeys(titles)
        for title in different:
            self._add(_REMARK.sub("", title), title, None)
        for title in different:  # and in full, which settles what is meant
            self._add(title, title, title)
        self._longest = max(map(len, self._titles), default=0)

    def _add(self, name: str, title: str, settled: str | None) -> None:
        words = tuple(_WORD.findall(name.casefold()))
        if words:
            self._titles[words] = settled if settled or words in self._titles else title

    def find(self, text: str) -> tuple[str, ...]:
        """Return the titles in the order in which they stand in `text`, each once."""
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
        """Return how many words from `at` are done with, and the longest title that begins there."""
        if _is_name(words[at]) and (at < 2 or not _is_name(words[at - 1])):
            for length in range(min(self._longest, len(words) - at), 0, -1):
                title = self._titles.get(tuple(folded[at : at + length]))
                if title is not None and not (at + length < len(words) and _is_name(words[at + length])):
                    return length, title
        return 1, None


def _is_name(word: str) -> bool:
    return word[0].isupper() or word[0].isdigit()

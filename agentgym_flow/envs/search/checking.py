"""A report on a published set of questions, to inspect before evaluating a policy on it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import NamedTuple

from agentgym_flow import data as registry
from agentgym_flow.core import SPLITS
from agentgym_flow.data import DataSet
from agentgym_flow.envs.answers import normalise
from agentgym_flow.envs.published_splits import UNUSED, unused_files
from agentgym_flow.envs.search.official import QuestionSet, read_questions, split_files
from agentgym_flow.envs.search.question import question_key
from agentgym_flow.envs.search.source import published_set

MOST_KINDS = 8
"""With more kinds of questions than this, only their number is reported (PopQA's kinds are properties)."""

MOST_NAMED = 10
"""The largest number of problematic questions that are listed."""


class SearchSetReport(NamedTuple):
    """The contents of a set.

    Attributes:
        files: file name -> its questions, in the order `test`, `dev`, `train`.
        shared: (file, other file, number of questions in both), compared by `question_key`; only non-zero numbers.
        splits: split -> number of questions that the environment uses; 0 for a missing split.
        digest: the SHA-256 that logs and tracks hold.
        unused: the names of the other files with records in the folder.
    """

    files: Mapping[str, QuestionSet]
    shared: tuple[tuple[str, str, int], ...]
    splits: Mapping[str, int]
    digest: str
    unused: tuple[str, ...] = ()


def check_questions(data: str | os.PathLike[str] | DataSet) -> SearchSetReport:
    """Read all questions of a published set: a folder, a file, or the name of registered data.

    Raises:
        UnknownData: `data` is neither a path nor a registered name.
        BadData: a file is damaged, or there is none; the message names the file and the line.
        MissingExtra: pyarrow, for a Parquet file, is not installed.
    """
    found = registry.resolve(data)
    parts = split_files(found.path).values()
    files = {path.name: read_questions(path) for path in parts}
    keys = {name: {question_key(one.text) for one in read.questions} for name, read in files.items()}
    shared = tuple((a, b, both) for a, b in combinations(files, 2) if (both := len(keys[a] & keys[b])))
    read = published_set(found.path)
    unused = unused_files(found.path, parts)
    return SearchSetReport(files, shared, {name: len(read.splits[name]) for name in SPLITS}, read.digest, unused)


def remarks(checked: SearchSetReport) -> Iterator[str]:
    """Yield the lines of the report: files, problems, splits."""
    for name, read in checked.files.items():
        yield f"{name}: {len(read.questions):,} questions{_kinds(read)}"
        for notes, what in (
            (read.repeated, "repeated; an id that comes again counts once"),
            (read.left_out, "marked as unanswerable, and left out"),
        ):
            if notes:
                yield f"{name}: {len(notes):,} {what}. The first: {notes[0]}"
        if void := [one.id for one in read.questions if not all(map(normalise, one.answers))]:
            yield (
                f"{name}: {len(void):,} with an answer that is empty after normalisation, so that an empty answer "
                f"scores 1, as in Search-R1: {', '.join(map(repr, void[:MOST_NAMED]))}"
                f"{', ...' if len(void) > MOST_NAMED else ''}"
            )
    for one, other, both in checked.shared:
        yield f"{one} and {other} have questions in common: {both:,}, which only the split of {one} keeps"
    if checked.unused:
        yield UNUSED.format(", ".join(checked.unused))
    yield "played as: " + ", ".join(f"{split} {count:,}" for split, count in checked.splits.items())
    yield registry.digests_line({"": checked.digest})


def _kinds(read: QuestionSet) -> str:
    counts = Counter(one.kind for one in read.questions)
    if len(counts) > MOST_KINDS:
        return f" of {len(counts):,} kinds"
    return "".join(f"; {kind}: {count:,}" for kind, count in sorted(counts.items())) if len(counts) > 1 else ""

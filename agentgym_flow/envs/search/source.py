"""The questions of a split: generated, or from a published set on disk.

A published set is a folder with some of the files `train`, `dev` and `test`, or a single file. `published_splits`
defines the splits. A question is in only one split; questions are compared by `question_key`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from agentgym_flow import data as registry
from agentgym_flow._util.sharing import Shared, once
from agentgym_flow.core import SPLITS, check_season, check_split, stable_hash
from agentgym_flow.data import DataSet, content_digest
from agentgym_flow.envs.published_splits import ALONE, Splits, Stamp, missing, stamps_of
from agentgym_flow.envs.search import tasks
from agentgym_flow.envs.search.official import read_questions, split_files
from agentgym_flow.envs.search.question import Question, question_key
from agentgym_flow.errors import BadData

SPLIT_ALIASES = {"dev": "valid", "eval": "valid"}
"""The official names of the splits."""


class QuestionSource(Shared):
    """The questions of one split. Copies of an environment share it.

    Args:
        data: a folder or a file of a published set, or the name of registered data; None for the generated questions.
        split: `"train"`, `"valid"` or `"test"`, or an official name.
        season: the seed of a season of generated test questions; `""` for the standard ones.

    Attributes:
        split: the split.
        season: the season.
        data: name -> SHA-256 of the published data in use.
        questions: the questions in task order.
        content: the digest of the generated corpus; "" for published sets, which do not include passages.

    Raises:
        UnknownSplit: the split is unknown.
        UnknownData: `data` is neither a path nor a registered name.
        BadSetting: the season does not fit the other arguments.
        BadData: a file is damaged, or the set has no questions for the split.
        MissingExtra: pyarrow, for a Parquet file, is not installed.
    """

    def __init__(
        self, data: str | os.PathLike[str] | DataSet | None = None, split: str = "train", season: str = ""
    ) -> None:
        self.split = check_split(split, SPLIT_ALIASES)
        self.season = check_season(season, self.split, "" if data is None else "data")
        self.data: dict[str, str] = {}
        self._found: DataSet | None = None
        if data is None:
            self.questions = tasks.tasks(self.split, self.season)
            self.content = tasks.DIGEST
            return
        self._found = registry.resolve(data)
        published = published_set(self._found.path)
        self.data = {self._found.name: published.digest}
        self.questions = published.splits.get(self.split, ())
        self.content = ""
        if not self.questions:
            sizes = {name: len(questions) for name, questions in published.splits.items()}
            raise missing(self._found.path, "questions", self.split, sizes, published.remark)

    @property
    def embedded(self) -> bool:
        """Whether the questions are generated."""
        return self._found is None

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self._found, self.split, self.season, self.data)


def _again(found: DataSet | None, split: str, season: str, data: Mapping[str, str]) -> QuestionSource:
    """Restore a pickled source. Raises `BadData` if its files have changed."""
    source = QuestionSource(found, split, season)
    if source.data != data:
        where = found.path if found else "the package"
        raise BadData(f"the questions at {where} are not those that were pickled; they have changed since")
    return source


class PublishedQuestions(NamedTuple):
    """A published set: the digest of its files, its splits, and a remark for the error about a missing split."""

    digest: str
    splits: Mapping[str, tuple[Question, ...]]
    remark: str


def published_set(place: Path) -> PublishedQuestions:
    """Return a published set in a file or folder, read once per process until its files change. Raises `BadData`."""
    return _read(stamps_of(split_files(place)), place.is_file())


@once(8)  # the stamps are part of the key, so changed files are read again
def _read(stamps: tuple[Stamp, ...], alone: bool) -> PublishedQuestions:
    files = {name: file for name, file, _ in stamps}
    digests = {name: content_digest(file) for name, file in files.items()}
    digest = next(iter(digests.values())) if alone else stable_hash(sorted(digests.items()))
    read = {name: read_questions(file).questions for name, file in files.items()}
    splits = Splits(read, read.__getitem__, lambda one: one.id, _without)
    remark = ALONE if alone else f"its files are {', '.join(file.name for file in files.values())}"
    return PublishedQuestions(digest, {split: splits[split] for split in SPLITS}, remark)


def _without(questions: Iterable[Question], others: Iterable[Question]) -> tuple[Question, ...]:
    taken = {question_key(one.text) for one in others}
    return tuple(one for one in questions if question_key(one.text) not in taken)

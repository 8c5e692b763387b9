"""Reports on a published set of problems, to inspect it before training or evaluation."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from agentgym_flow import data as registry
from agentgym_flow.data import DataSet
from agentgym_flow.envs.canvas.tasks.published import SIMULATED, PublishedTasks, files_of_set, split_sizes
from agentgym_flow.envs.canvas.tasks.sets.checks import Findings, Overlap, check_problems, overlap
from agentgym_flow.envs.canvas.tasks.sets.load import LoadedSet, load_problems
from agentgym_flow.envs.published_splits import UNUSED, unused_files
from agentgym_flow.errors import BadData, BadSetting

MOST_NAMED = 5
"""The maximum number of examples in a remark."""


class CheckedFile(NamedTuple):
    """The problems of a file with its invalid rows, and the anomalies of the problems."""

    loaded: LoadedSet
    findings: Findings


class SplitSummary(NamedTuple):
    """The tasks of a split in the environment.

    Attributes:
        tasks: the number of tasks.
        unusable: the key of each problem that the simulator cannot use -> the reason.
        refused: the reason why the split cannot be played; empty if it can, or if the set has no such split.
        digest: the SHA-256 that logs and tracks hold; empty without tasks.
    """

    tasks: int
    unusable: Mapping[str, str]
    refused: str = ""
    digest: str = ""


class CanvasSetReport(NamedTuple):
    """The contents of a set.

    Attributes:
        dataset: the name of the set.
        files: name of a file -> its contents, in the order `test`, `dev`, `train`.
        overlaps: the names of two files with their overlap, if it is not empty.
        splits: split -> its tasks in the environment, without damaged rows.
        unused: the names of the other files with records in the folder.
    """

    dataset: str
    files: Mapping[str, CheckedFile]
    overlaps: tuple[tuple[str, str, Overlap], ...]
    splits: Mapping[str, SplitSummary]
    unused: tuple[str, ...] = ()


def check_set(data: str | os.PathLike[str] | DataSet, dataset: str | None = None) -> CanvasSetReport:
    """Read all problems of a published set: a folder, a file, or the name of registered data.

    Invalid rows are reported. `dataset` is the name of the set, if no file name contains it.

    Raises:
        UnknownData: there are no such data, or there is no such set.
        BadData: a file contains no data, there is no file, or the set is unknown.
        MissingExtra: a Parquet file needs pyarrow.
    """
    found = registry.resolve(data)
    name, parts = files_of_set(found, dataset)
    files: dict[str, CheckedFile] = {}
    for path in parts.values():
        loaded = load_problems(name, path, skip_bad=True)
        files[path.name] = CheckedFile(loaded, check_problems(loaded.problems))
    pairs = (
        (one, other, overlap(files[one].loaded.problems, files[other].loaded.problems))
        for one, other in combinations(files, 2)
    )
    overlaps = tuple((one, other, both) for one, other, both in pairs if both.exact or both.near)
    return CanvasSetReport(name, files, overlaps, _played(found, name), unused_files(found.path, parts.values()))


def _played(found: DataSet, name: str) -> dict[str, SplitSummary]:
    played: dict[str, SplitSummary] = {}
    for split, size in split_sizes(found, name).items():
        try:
            tasks = PublishedTasks(found, name, split, simulated=name in SIMULATED, skip_damaged=True) if size else None
        except (BadData, BadSetting) as error:
            played[split] = SplitSummary(0, {}, str(error))
        else:
            played[split] = SplitSummary(0, {})
            if tasks:
                played[split] = SplitSummary(len(tasks), tasks.left_out, digest=next(iter(tasks.data.values())))
    return played


def remarks(checked: CanvasSetReport) -> Iterator[str]:
    """Yield a report of a set, line by line: its files, their anomalies, its splits.

    Raises `BadData` at the end if no split can be played.
    """
    for name, (loaded, findings) in checked.files.items():
        yield f"{name}: {findings.problems:,} problems of {checked.dataset}, {findings.distinct:,} of them different"
        for what, odd in _oddities(loaded, findings):
            if odd:
                yield f"{name}: {what}: {len(odd):,} ({_first(odd)})"
    for one, other, both in checked.overlaps:
        yield (
            f"{one} and {other} have problems in common: {len(both.exact):,} in the same words and {len(both.near):,} "
            f"in nearly the same, which only the split of {one} keeps: "
            f"{_first([f'{pair.first} and {pair.second}' for pair in both.exact + both.near])}"
        )
    damaged = sum(len(file.loaded.rejected) for file in checked.files.values())
    if damaged:
        yield f"{damaged:,} damaged rows: not played until they are fixed, removed or skipped (skip_damaged=True)"
    if checked.unused:
        yield UNUSED.format(", ".join(checked.unused))
    yield "played as: " + ", ".join(f"{split} {played.tasks:,}" for split, played in checked.splits.items())
    for split, played in checked.splits.items():
        if played.refused:
            yield f"{split}: {played.refused}"
        if played.unusable:
            why = Counter(played.unusable.values()).most_common(1)[0][0]
            yield f"{split}: {len(played.unusable):,} more that the simulator cannot use; most often: {why}"
    digests = {split: played.digest for split, played in checked.splits.items() if played.digest}
    if not digests:
        reason = next((played.refused for played in checked.splits.values() if played.refused), "")
        raise BadData(f"no split of {checked.dataset} can be played. {reason}")
    yield registry.digests_line(digests)


def _oddities(loaded: LoadedSet, findings: Findings) -> Iterator[tuple[str, Sequence[str]]]:
    yield "rows that cannot be read", loaded.rejected
    yield "groups of problems that ask the same", [" = ".join(group) for group in findings.repeated]
    yield "of these groups with different answers", [" = ".join(group) for group in findings.conflicting]
    yield "pairs that ask nearly the same", [f"{pair.first} ~ {pair.second}" for pair in findings.near]
    yield "questions without an answer", findings.unanswerable
    yield "problems without tests, which score 0", findings.untested


def _first(odd: Sequence[str]) -> str:
    return "; ".join(odd[:MOST_NAMED]) + ("; ..." if len(odd) > MOST_NAMED else "")

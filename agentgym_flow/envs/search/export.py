"""Exports the generated articles and questions: the corpus in Search-R1's format, the questions in FlashRAG's."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from agentgym_flow._util.files import write_atomically
from agentgym_flow.envs.search import tasks
from agentgym_flow.envs.search.question import Question

CORPUS = "corpus.jsonl"
"""The file of the articles, in Search-R1's format: `id`, and `contents` with the title in quotation marks."""

FILES = {"train": "train.jsonl", "valid": "dev.jsonl", "test": "test.jsonl"}
"""Split -> the file of its questions, in FlashRAG's format: `id`, `question`, `golden_answers`."""


def export_world(folder: str | os.PathLike[str]) -> list[Path]:
    """Write the generated articles and the questions of all splits; return the paths of the files.

    Reading the files as a corpus and a published set gives the same passages and questions. `metadata` has the kind of
    the question (`type`) and the ids of the articles that lead to the answer, in order (`supporting_ids`).

    Raises `OSError` with the name of the file if it cannot be written.
    """
    articles = ({"id": one.id, "contents": one.contents} for one in tasks.corpus())
    paths = [_write(Path(folder) / CORPUS, articles)]
    for split, name in FILES.items():
        paths.append(_write(Path(folder) / name, map(_record, tasks.tasks(split))))
    return paths


def _record(question: Question) -> dict[str, Any]:
    return {
        "id": question.id,
        "question": question.text,
        "golden_answers": list(question.answers),
        "metadata": {"type": question.kind, "supporting_ids": [name for _, name in question.supports]},
    }


def _write(path: Path, records: Iterable[Mapping[str, Any]]) -> Path:
    with write_atomically(path) as partial, partial.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    return path

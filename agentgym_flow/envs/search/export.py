"""The generated articles and questions as files that other tools read: Search-R1's corpus, FlashRAG's question sets."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from agentgym_flow._util.files import whole
from agentgym_flow.envs.search import tasks
from agentgym_flow.envs.search.question import Question

CORPUS = "corpus.jsonl"
"""The file of the articles, in Search-R1's schema: `id`, and `contents` with the title in quotation marks."""

FILES = {"train": "train.jsonl", "valid": "dev.jsonl", "test": "test.jsonl"}
"""Split -> the file of its questions, named and written as FlashRAG does: `id`, `question`, `golden_answers`."""


def export_world(folder: str | os.PathLike[str]) -> list[Path]:
    """Write the generated articles and the questions of all splits; return the paths of the files.

    Read back as a corpus and as a published set, they are the same passages and questions. What FlashRAG keeps in
    `metadata` is the kind of a question (`type`) and the ids of the articles that lead to its answer, in their order
    (`supporting_ids`).

    Raises `OSError` naming the file that cannot be written.
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
    with whole(path) as partial, partial.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    return path

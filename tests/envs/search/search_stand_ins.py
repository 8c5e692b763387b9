"""Retrievers, questions and files of the tests of Search; and an environment whose retriever is an object."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym

from agentgym_flow.envs.search import tasks
from agentgym_flow.envs.search.env import SearchEnv
from agentgym_flow.retrieval.corpus import Hit, Passage, Retriever

PASSAGES = (
    Passage("p0", "Tarn Bridge", "The Tarn Bridge was built by Ada Voss."),
    Passage("p1", "Ada Voss", "Ada Voss was an engineer. She was born in Lorne on 3 May 1841."),
    Passage("p2", "Lorne", "Lorne is a town of 2,824 people on the river Tarn."),
    Passage("p3", "Liverpool", "The Beatles came from Liverpool."),
)
ASKED = {
    "test": [("Who built the Tarn Bridge", ["Ada Voss", "A. Voss"]), ("Who came from Liverpool?", ["Beatles"])],
    "dev": [("Where was Ada Voss born?", ["Lorne"]), ("Is Lorne a town?", ["yes"])],
    "train": [(f"How many people live in Lorne in year {n}?", ["2,824", "2824 people"]) for n in range(30)],
}
"""Of each file its questions and answers."""


class Shelf:
    """Finds the passages that have a word of the query, those with most of them first, and notes what it was asked."""

    name = "shelf"

    def __init__(self, passages: Sequence[Passage] = PASSAGES) -> None:
        self.passages = passages
        self.asked: list[list[str]] = []

    def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        self.asked.append(list(queries))
        return [self._search(query)[:topk] for query in queries]

    def _search(self, query: str) -> list[Hit]:
        words = query.lower().split()
        counts = [(sum(word in one.index_text.lower() for word in words), one) for one in self.passages]
        return [Hit(one, float(count)) for count, one in sorted(counts, key=lambda pair: -pair[0]) if count]


class Borrowed:
    """What BM25 finds among the generated articles, as any object may: nobody can compute that it does."""

    name = "borrowed"

    def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        return tasks.retriever().search(queries, topk)


class Unasked:
    """A retriever that must not be used."""

    name = "unasked"

    def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        raise AssertionError("the retriever is asked")


class SearchByObjectEnv(SearchEnv):
    """The environment with an object for its retriever, under an id of its own: an object is no JSON."""

    __doc__ = SearchEnv.__doc__

    def __init__(self, *, retriever: str | Retriever | None = None, **kwargs: Any) -> None:
        super().__init__(retriever=Borrowed() if retriever is None else retriever, **kwargs)


OBJECT_ID = "stand-in/SearchByObject-v0"
gym.register(OBJECT_ID, entry_point=f"{__name__}:SearchByObjectEnv")


def write_questions(file: Path, asked: Sequence[tuple[str, Sequence[str]]]) -> Path:
    """Write questions as FlashRAG does, and return the file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    records = [
        {"id": f"{file.stem}_{number}", "question": question, "golden_answers": list(answers)}
        for number, (question, answers) in enumerate(asked)
    ]
    file.write_text("".join(f"{json.dumps(record)}\n" for record in records), "utf-8")
    return file


def write_set(folder: Path, *names: str) -> Path:
    """Write the files of a small published set, all or those that are named, and return the folder."""
    for name in names or tuple(ASKED):
        write_questions(folder / f"{name}.jsonl", ASKED[name])
    return folder


def write_corpus(file: Path, passages: Sequence[Passage] = PASSAGES) -> Path:
    """Write passages as Search-R1 does, and return the file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps({"id": one.id, "contents": one.contents}) for one in passages)
    file.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return file


def make(**kwargs: Any) -> SearchEnv:
    """Return the environment itself, without wrappers."""
    env = gym.make("agentgym_flow/Search-v0", disable_env_checker=True, **kwargs).unwrapped
    assert isinstance(env, SearchEnv)
    return env

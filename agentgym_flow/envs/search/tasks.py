"""The embedded questions: one generated world, and three splits that share no entities.

The world consists of three realms without facts between them, and the questions of a split use one realm. One corpus
has the articles of all realms. Questions of two or more hops are dropped if a single search for the question text shows
the answer, so the remaining ones require several searches.
"""

from __future__ import annotations

from hashlib import sha256
from itertools import count

from agentgym_flow._util.sharing import once
from agentgym_flow.core import canonical, check_split
from agentgym_flow.envs.search.generator import draw_questions, world
from agentgym_flow.envs.search.question import Question
from agentgym_flow.retrieval.corpus import MemoryCorpus
from agentgym_flow.retrieval.passage import Passage
from agentgym_flow.retrieval.retrievers import LexicalRetriever

_COUNTS = {"train": 4_000, "valid": 500, "test": 500}

SHOWN = 3
"""The number of passages per search that `_leaks` assumes."""


@once()
def corpus() -> MemoryCorpus:
    """Return the articles of all splits, generated once per process."""
    articles = world().articles
    return MemoryCorpus(
        (Passage(str(number), one.title, one.text) for number, one in enumerate(articles)), made_by=(corpus, ())
    )


@once()
def retriever() -> LexicalRetriever:
    """Return BM25 over the corpus, built once per process."""
    return LexicalRetriever(corpus())


@once(8)
def tasks(split: str, season: str = "") -> tuple[Question, ...]:
    """Return the questions of a split in task order; every season has its own. Raises `UnknownSplit`."""
    check_split(split, {})
    if season:
        return tuple(draw_questions(world(), split, _COUNTS[split], _leaks, season))
    left_out, number = frozenset(LEFT_OUT[split]), count()
    return tuple(draw_questions(world(), split, _COUNTS[split], lambda *_: next(number) in left_out))


def found_at_once(split: str) -> tuple[int, ...]:
    """Compute the value of `LEFT_OUT` for a split, with one search per question. Raises `UnknownSplit`."""
    found: list[bool] = []

    def leaks(text: str, answers: tuple[str, ...]) -> bool:
        found.append(_leaks(text, answers))
        return found[-1]

    draw_questions(world(), check_split(split, {}), _COUNTS[split], leaks)
    return tuple(number for number, leaked in enumerate(found) if leaked)


def _leaks(text: str, answers: tuple[str, ...]) -> bool:
    """Return whether a single search for `text` shows one of the answers."""
    hits = retriever().index.search(text, SHOWN)
    texts = [corpus()[document].contents.lower() for document, _ in hits]
    return any(answer.lower() in shown for shown in texts for answer in answers)


def num_tasks(split: str) -> int:
    """Return the number of questions of a split. Raises `UnknownSplit`."""
    return _COUNTS[check_split(split, {})]


def manifest_digest(split: str) -> str:
    """Return the SHA-256, in hex, of the canonical JSON of all questions of a split, each followed by a newline.

    Raises `UnknownSplit`.
    """
    digest = sha256()
    for one in tasks(split):
        digest.update(canonical([one.id, one.text, one.answers, one.kind, one.supports]) + b"\n")
    return digest.hexdigest()


LEFT_OUT = {
    "train": (
        6, 68, 142, 245, 406, 423, 497, 712, 889, 1207, 1215, 1269, 1417, 1474, 1529, 1551, 1653, 1687, 1708, 1814,
        1884, 1961, 2045, 2103, 2232, 2786, 2793, 2802, 3022, 3031, 3064,
    ),
    "valid": (61, 195, 339),
    "test": (105, 146, 326, 376),
}  # fmt: skip
"""Split -> the questions of two or more hops that one search answers: their indices among the drawn questions.

`found_at_once` computes them. They are stored, because the searches take longer than generating the world and the
questions."""

DIGEST = "83a6d65664bbac4a4e3dbaa1a4aaf8c34f81ca0bfa618198dbb1d26010dce92d"
"""The recorded digest of the corpus: of all passages, in order."""

MANIFEST = {
    "train": "e4d297d82915c04cc81bb4f776f371cd9bd1f6cfe184a7fc845c7b204139eccb",
    "valid": "47a526b18182daba80bd70860bdaeeb33ea9956fbf0f9c65bd29ee9659de4363",
    "test": "11e1e7282237e7348a9802fd70bf1e21924e3fa03a22af47647e715eadaee371",
}
"""Split -> recorded digest. A change of a digest requires a new version of the environment id, because published
results would refer to other questions."""

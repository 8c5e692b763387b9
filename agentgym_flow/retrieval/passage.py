"""The types that all retrievers share: `Passage`, `Hit`, `Retriever` and `Corpus`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

QUOTE = '"'


class Passage(NamedTuple):
    """A short text with a title. Title and text are untrusted data: they may contain tags or be empty.

    Attributes:
        id: unique within the corpus.
        title: one line, without enclosing quotation marks; may be empty.
        text: the text.
    """

    id: str
    title: str
    text: str

    @classmethod
    def of_contents(cls, name: str, contents: str) -> Passage:
        """Parse `contents`: the title, optionally in quotation marks, a newline, the text."""
        title, _, text = contents.partition("\n")
        if len(title) > 1 and title.startswith(QUOTE) and title.endswith(QUOTE):
            title = title[1:-1]
        return cls(name, title, text)

    @classmethod
    def of_fields(cls, name: str, fields: Mapping[str, Any]) -> Passage | None:
        """Return the passage of a record with `text` and optionally `title`, or else with `contents`; None otherwise.

        Newlines in a title become spaces.
        """
        title, text, contents = (fields.get(field) for field in ("title", "text", "contents"))
        if isinstance(text, str) and isinstance(title, str | None):
            # In the format `contents` a newline ends the title.
            return cls(name, (title or "").replace("\n", " "), text)
        return cls.of_contents(name, contents) if isinstance(contents, str) else None

    @property
    def contents(self) -> str:
        """The passage in Search-R1's format: the title in quotation marks, a newline, the text."""
        return f"{QUOTE}{self.title}{QUOTE}\n{self.text}"

    @property
    def index_text(self) -> str:
        """The text to index: the title, a newline, the text."""
        return f"{self.title}\n{self.text}"


class Hit(NamedTuple):
    """A passage that a query found.

    Attributes:
        passage: the passage.
        score: higher is better; comparable only within the results of one query and one retriever.
    """

    passage: Passage
    score: float


class Retriever(Protocol):
    """Finds passages. Implementations are thread-safe and can be pickled.

    Attributes:
        name: a one-word name: `bm25`, `dense`, ...
    """

    name: str

    def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        """Return for each query at most `topk` hits, best first; possibly an empty list. Accepts any query text.

        Raises `BadSetting` if `topk` is below 1.
        """
        ...


class Corpus(Protocol):
    """Passages by number, from 0, in document order."""

    def __len__(self) -> int:
        """Return the number of passages."""
        ...

    def __getitem__(self, number: int, /) -> Passage:
        """Return passage `number`. Raises `IndexError` if the number is negative or too large."""
        ...

    @property
    def digest(self) -> str:
        """SHA-256 of all passages in order, in hexadecimal, independent of their storage."""
        ...

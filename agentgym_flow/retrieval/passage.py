"""Passages, what finds them, and where they are kept: the three words that all retrievers share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

QUOTE = '"'


class Passage(NamedTuple):
    """A short text with a title, as one finds it in an encyclopedia. All of it is data: it may hold tags or be empty.

    Attributes:
        id: the name of the passage, different for each of a corpus.
        title: one line, without quotation marks around it; may be empty.
        text: the rest.
    """

    id: str
    title: str
    text: str

    @classmethod
    def of_contents(cls, name: str, contents: str) -> Passage:
        """Return the passage `name` of `contents`: the title, perhaps in quotation marks, a newline, the text."""
        title, _, text = contents.partition("\n")
        if len(title) > 1 and title.startswith(QUOTE) and title.endswith(QUOTE):
            title = title[1:-1]
        return cls(name, title, text)

    @classmethod
    def of_fields(cls, name: str, fields: Mapping[str, Any]) -> Passage | None:
        """Return the passage `name` of a record with `text` and perhaps `title`, or with `contents`; None for neither.

        Where it has all of them, `title` and `text` count. A break in a title becomes a blank.
        """
        title, text, contents = (fields.get(field) for field in ("title", "text", "contents"))
        if isinstance(text, str) and isinstance(title, str | None):
            # A title is one line: a break in it would be the end of it wherever passages are written as `contents`.
            return cls(name, (title or "").replace("\n", " "), text)
        return cls.of_contents(name, contents) if isinstance(contents, str) else None

    @property
    def contents(self) -> str:
        """The passage as Search-R1 writes it: the title in quotation marks, a newline, the text."""
        return f"{QUOTE}{self.title}{QUOTE}\n{self.text}"

    @property
    def index_text(self) -> str:
        """What a search engine indexes: the title, a newline, the text."""
        return f"{self.title}\n{self.text}"


class Hit(NamedTuple):
    """A passage that a query found.

    Attributes:
        passage: what was found.
        score: higher is better; comparable only between passages found by one query with one retriever.
    """

    passage: Passage
    score: float


class Retriever(Protocol):
    """Finds passages. Implementations are safe in threads and can be pickled.

    Attributes:
        name: what it is, in one word: `bm25`, `dense`, ...
    """

    name: str

    def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        """Return for each query what it finds, best first and at most `topk`; an empty list when it finds nothing.

        Raises `BadSetting` when `topk` is below 1. No text of a query raises.
        """
        ...


class Corpus(Protocol):
    """Passages by number, from 0, in the order of their documents."""

    def __len__(self) -> int:
        """Return the number of passages."""
        ...

    def __getitem__(self, number: int, /) -> Passage:
        """Return passage `number`. Raises `IndexError` when there are not so many, and for a number below 0."""
        ...

    @property
    def digest(self) -> str:
        """SHA-256 of all passages in order, in hexadecimal: the same wherever they are kept."""
        ...

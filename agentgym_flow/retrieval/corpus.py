"""Passages, the types that all retrievers share; and corpora of them: read from a file, held in memory, or in a folder.

A file has JSON lines, as in Search-R1 and optionally compressed by gzip, or a JSON list. A record is an object with
`contents` (the title, optionally in quotation marks, a newline, the text) or with `text` and optionally `title`;
`title` and `text` have precedence. Its name is `id` or `_id`, a string or an integer, or else the index of the
document, from 0. Other fields are ignored. Texts are kept unchanged, except that lone surrogates, which UTF-8 cannot
encode, become U+FFFD.

A folder, which `building.build_index` writes, has the passages as lines of JSON and their offsets, both memory-mapped.
Opening it takes milliseconds, and all processes share its cached pages.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import mmap
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, NamedTuple, Protocol, cast

from agentgym_flow._util.records import stream_objects, writable
from agentgym_flow._util.sharing import Shared
from agentgym_flow.core import canonical
from agentgym_flow.data import STATEMENT, StoreKind, content_digest, reopened
from agentgym_flow.errors import BadData, BadIndex
from agentgym_flow.retrieval.index_files import mapped_array

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


_MARK = b"\xef\xbb\xbf"  # the byte order mark that some editors write
_LOOKED_AT = 1 << 16  # bytes that must contain the first non-blank character
_BLANK = b" \t\r\n"


class FilePosition(NamedTuple):
    """A position in a file from which reading can resume.

    Attributes:
        offset: the byte after the last record, in the uncompressed content.
        records: the number of lines or list elements before it.
        documents: the number of passages before it; blank lines do not count.
    """

    offset: int = 0
    records: int = 0
    documents: int = 0


_START = FilePosition()


def stream_passages(
    path: str | os.PathLike[str], start: FilePosition = _START
) -> Iterator[tuple[Passage, FilePosition]]:
    """Yield each passage of a file and the position after it. The caller must check that ids differ.

    Args:
        path: the file.
        start: a position yielded by an earlier call, from which reading resumes.

    Raises:
        BadData: the file cannot be read, is truncated, or has another format; the message names the file and the line,
            the record, or the byte.
    """
    file = Path(path)
    form = _form(file)
    if form == b"[":
        yield from _listed(file, start)
    elif form in (b"{", b""):
        yield from _lines(file, start)
    else:
        raise BadData(f"{file}: neither JSON lines, which begin with '{{', nor a JSON list, which begins with '['.")


def _open(path: Path) -> BinaryIO:
    return cast("BinaryIO", gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")


def _form(path: Path) -> bytes:
    """Return the first non-blank character of a file; empty if there is none."""
    try:
        with _open(path) as file:
            begin = file.read(_LOOKED_AT).removeprefix(_MARK)
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(path, error) from error
    return begin.lstrip()[:1]


def _unreadable(path: Path, error: Exception) -> BadData:
    return BadData(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error}).")


def _lines(path: Path, start: FilePosition) -> Iterator[tuple[Passage, FilePosition]]:
    """Read JSON lines, with one line in memory at a time."""
    offset, records, documents = start
    try:
        with _open(path) as file:
            file.seek(offset)
            for line in file:
                offset += len(line)
                records += 1
                line = line if records > 1 else line.removeprefix(_MARK)
                if line.strip(_BLANK):
                    where = f"{path}: line {records}"
                    passage = passage_of_record(_value(line, where), documents, where)
                    documents += 1
                    yield passage, FilePosition(offset, records, documents)
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(path, error) from error


def _value(line: bytes, where: str) -> Any:
    try:
        return json.loads(line.decode())
    except UnicodeDecodeError as error:
        raise BadData(f"{where}: not UTF-8 ({error.reason}).") from None
    except RecursionError:
        raise BadData(f"{where}: nested too deeply.") from None
    except json.JSONDecodeError as error:
        raise BadData(f"{where}: not JSON: {error.msg} at character {error.pos}.") from None
    except ValueError as error:  # a number with thousands of digits
        raise BadData(f"{where}: cannot be read: {error}.") from None


def _listed(path: Path, start: FilePosition) -> Iterator[tuple[Passage, FilePosition]]:
    """Read a JSON list, with one element in memory at a time."""
    if path.suffix == ".gz":
        raise BadData(f"{path}: a JSON list cannot be read packed; unpack it, or write it as JSON lines.")
    records = start.records
    for record, offset in stream_objects(path, start.offset):
        passage = passage_of_record(record, records, f"{path}: record {records + 1}")
        records += 1
        yield passage, FilePosition(offset, records, records)


def passage_of_record(record: Any, number: int, where: str) -> Passage:
    """Return the passage of a decoded record.

    Args:
        record: the decoded JSON value.
        number: the id of a record without one.
        where: the beginning of error messages.

    Raises `BadData` if the record is not a passage.
    """
    if not isinstance(record, dict):
        raise BadData(f"{where}: a passage must be an object, got {record!r:.60}.")
    name = record.get("id", record.get("_id", number))
    if not isinstance(name, str | int) or isinstance(name, bool):
        raise BadData(f"{where}: the id must be a string or an integer, got {name!r:.60}.")
    passage = Passage.of_fields(str(name), record)
    if passage is not None:
        return Passage(*map(writable, passage))
    fields = ", ".join(f"{name!r}{' (null)' * (record[name] is None)}" for name in sorted(record)) or "nothing"
    raise BadData(f"{where}: a passage needs a text as 'contents', or as 'text' and 'title'; it has {fields:.200}.")


def record_of(passage: Passage) -> bytes:
    """Return a passage as one line of ASCII JSON: equal passages, equal bytes. A corpus's digest is theirs."""
    return canonical(list(passage)) + b"\n"


class MemoryCorpus(Shared):
    """A corpus in memory, for up to a few hundred thousand passages.

    Args:
        passages: the passages in document order.
        made_by: a function and its arguments that return this corpus; a pickle then contains only these.
        where: the beginning of error messages.

    Raises:
        BadData: there is no passage, or two have the same id.
    """

    def __init__(
        self,
        passages: Iterable[Passage],
        made_by: tuple[Callable[..., Any], tuple[Any, ...]] | None = None,
        *,
        where: str = "",
    ) -> None:
        self._passages = tuple(passages)
        self._made_by = made_by
        if not self._passages:
            raise BadData(f"{where}the corpus has no passage")
        seen: dict[str, int] = {}
        for number, passage in enumerate(self._passages):
            before = seen.setdefault(passage.id, number)
            if before != number:
                raise BadData(same_id(passage.id, before, number, where))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all passages in order, in hexadecimal."""
        digest = hashlib.sha256()
        for passage in self._passages:
            digest.update(record_of(passage))
        return digest.hexdigest()

    def __len__(self) -> int:
        """Return the number of passages."""
        return len(self._passages)

    def __getitem__(self, number: int, /) -> Passage:
        """Return passage `number`. Raises `IndexError` if there is none."""
        if number < 0:
            raise IndexError(f"passages are numbered from 0, so none has the number {number}")
        return self._passages[number]

    def __iter__(self) -> Iterator[Passage]:
        """Yield the passages in order."""
        return iter(self._passages)

    def __repr__(self) -> str:
        return f"<MemoryCorpus of {len(self):,} passages>"

    def __reduce__(self) -> tuple[Any, ...]:
        return self._made_by or (type(self), (self._passages,))


def same_id(name: str, first: int, second: int, where: str = "") -> str:
    """Return the error message for two passages with the same id."""
    return f"{where}passages {first} and {second}, counted from 0, both have the id {name!r:.60}; ids must differ"


def read_corpus(path: str | os.PathLike[str]) -> MemoryCorpus:
    """Read the corpus of a file into memory.

    Raises `BadData` with the name of the file if it cannot be read, has another format or no passage, or repeats an id.
    """
    return MemoryCorpus((passage for passage, _ in stream_passages(path)), where=f"{os.fspath(path)}: ")


STORE = StoreKind(
    kind="search",
    format=1,  # includes everything that determines the content: how passages are parsed and recorded
    facts={"documents": int, "kind": str, "index": str, "arrays": dict},
    name="index of a corpus",
    command="agentgym-flow retriever build SOURCE FOLDER",
    error=BadIndex,
)
"""The statement in the folder of a corpus."""

PASSAGES, OFFSETS = "passages.jsonl", "offsets.npy"
"""The passages as `corpus.record_of` writes them; and the position of each in bytes, and the end of the last."""

_REMOVE = STORE.remedy


class StoredCorpus(Shared):
    """The corpus of a folder. Safe in threads and after a fork. A pickle contains the folder's name and the digest.

    Args:
        folder: a folder created by `build_index`.

    Attributes:
        digest: SHA-256 of all passages in order, computed when the folder was built.
        statement: the statement of the folder, with the `kind` and the digest of its `index`.

    Raises:
        BadIndex: there is no corpus at `folder`, it is damaged, or of another version.
    """

    KIND: ClassVar[StoreKind] = STORE

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder).resolve()
        self.statement = STORE.statement(self.folder)
        if self.statement["arrays"].keys() != {OFFSETS}:
            raise BadIndex(f"{self.folder / STATEMENT} is damaged; {_REMOVE}")
        self.digest: str = self.statement["digest"]
        file = self.folder / PASSAGES
        try:
            with file.open("rb") as opened:
                self._text = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise BadIndex(f"{self.folder} cannot be read ({error}); {_REMOVE}") from error
        self._offsets = mapped_array(self.folder / OFFSETS, _REMOVE)
        if self._offsets.shape != (len(self) + 1,) or self._offsets[-1] != len(self._text):
            raise BadIndex(f"{self.folder / OFFSETS} does not belong to {file.name}; {_REMOVE}")

    def __len__(self) -> int:
        """Return the number of passages."""
        return int(self.statement["documents"])

    def __getitem__(self, number: int, /) -> Passage:
        """Return passage `number`. Raises `IndexError` if there is none, and `BadIndex` if it is damaged."""
        if not 0 <= number < len(self):
            raise IndexError(f"there are {len(self)} passages, so none has the number {number}")
        try:
            name, title, text = json.loads(self._text[self._offsets[number] : self._offsets[number + 1]])
        except (ValueError, TypeError, RecursionError) as error:
            file = self.folder / PASSAGES
            raise BadIndex(f"passage {number} of {file} is damaged ({error}); {_REMOVE}") from None
        return Passage(name, title, text)

    def __iter__(self) -> Iterator[Passage]:
        """Yield the passages in order."""
        return map(self.__getitem__, range(len(self)))

    def __repr__(self) -> str:
        return f"<StoredCorpus of {len(self):,} passages>"

    def __reduce__(self) -> tuple[Any, ...]:
        return reopened, (type(self), str(self.folder), self.digest)

    def verify(self) -> None:
        """Read the corpus and compare the digests, in about a second per gigabyte. Raises `BadIndex` if they differ."""
        stated = {PASSAGES: self.digest, **self.statement["arrays"]}
        for name, digest in stated.items():
            if content_digest(self.folder / name) != digest:
                raise BadIndex(f"{self.folder / name} does not have the digest that it was made with; {_REMOVE}")

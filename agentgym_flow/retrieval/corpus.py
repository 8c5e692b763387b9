"""Reading a corpus: JSON lines as Search-R1 has them, or a JSON list; plain, or lines packed by gzip.

A record is an object with `contents` (the title, perhaps in quotation marks, a newline, the text) or with `text` and
perhaps `title`; when it has both, `title` and `text` count. Its name is its `id` or `_id`, a text or a whole number;
without one it is the number of the document, from 0. Whatever else a record has is passed over, and whatever a text
holds is kept, half a surrogate pair aside: UTF-8 has no place for one, and it becomes U+FFFD.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from agentgym_flow._util.immutable import Immutable
from agentgym_flow._util.json_stream import stream_objects, writable
from agentgym_flow.errors import BadData
from agentgym_flow.retrieval.passage import Passage
from agentgym_flow.seeding import canonical

_MARK = b"\xef\xbb\xbf"  # some editors put it at the beginning of a file
_FIRST = re.compile(rb"\s*(\S)")
_LOOKED_AT = 1 << 16  # bytes in which a file must begin with something
_BLANK = b" \t\r\n"


class FilePosition(NamedTuple):
    """Where reading has arrived in a file.

    Attributes:
        offset: the byte after the last record, of what a packed file holds.
        records: lines, or elements of the list, before that.
        documents: passages made of them: blank lines are none.
    """

    offset: int = 0
    records: int = 0
    documents: int = 0


START = FilePosition()
"""The beginning of a file."""


def stream_passages(
    path: str | os.PathLike[str], start: FilePosition = START
) -> Iterator[tuple[Passage, FilePosition]]:
    """Yield each passage of a file and the place after it, one at a time.

    Args:
        path: the file.
        start: a place that an earlier run yielded: reading goes on there.

    Raises:
        BadData: the file cannot be read, is cut off, or holds something else; the message names the file and the line,
            the record, or the byte. That names differ is for the caller to see to.
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
    """Return the first character of a file, blanks aside; nothing for a file without any."""
    try:
        with _open(path) as file:
            begin = file.read(_LOOKED_AT).removeprefix(_MARK)
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(path, error) from error
    found = _FIRST.match(begin)
    return found[1] if found else b""


def _unreadable(path: Path, error: Exception) -> BadData:
    return BadData(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error}).")


def _lines(path: Path, start: FilePosition) -> Iterator[tuple[Passage, FilePosition]]:
    """Read JSON lines; only a line at a time is in memory."""
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
    """Read a JSON list, an element at a time."""
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
        record: what the file or an answer of a server has.
        number: its name if it has none.
        where: begins the message of an error.

    Raises `BadData` when it is no passage.
    """
    if not isinstance(record, dict):
        raise BadData(f"{where}: a passage must be an object, got {record!r:.60}.")
    name = record.get("id", record.get("_id", number))
    if not isinstance(name, str | int) or isinstance(name, bool):
        raise BadData(f"{where}: the id must be a text or a whole number, got {name!r:.60}.")
    passage = Passage.of_fields(str(name), record)
    if passage is not None:
        return Passage(*map(writable, passage))
    fields = ", ".join(map(repr, sorted(record))) or "nothing"
    raise BadData(f"{where}: a passage needs a text as 'contents', or as 'text' and 'title'; it has {fields:.200}.")


class PassageDigest:
    """The digest of a corpus, passage by passage."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add_record(self, record: bytes) -> None:
        """Take in the next passage as `record_of` writes it."""
        self._hash.update(record)

    def hexdigest(self) -> str:
        """Return the digest of what was added, in hexadecimal."""
        return self._hash.hexdigest()


def record_of(passage: Passage) -> bytes:
    """Return a passage as one line of ASCII JSON: equal passages, equal bytes."""
    return canonical(list(passage)) + b"\n"


class MemoryCorpus(Immutable):
    """A corpus whose passages are all in memory: for some hundred thousand of them. A copy is the corpus itself.

    Args:
        passages: in the order of their documents.
        made_by: a function and its arguments that return this corpus again; a pickle then holds only these.
        where: begins the message of an error.

    Raises:
        BadData: there is no passage, or two have one id.
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
        digest = PassageDigest()
        for passage in self._passages:
            digest.add_record(record_of(passage))
        return digest.hexdigest()

    def __len__(self) -> int:
        """Return the number of passages."""
        return len(self._passages)

    def __getitem__(self, number: int, /) -> Passage:
        """Return passage `number`. Raises `IndexError` when there is none."""
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
    """Return the message for two passages of one id."""
    return f"{where}passages {first} and {second}, counted from 0, both have the id {name!r:.60}; ids must differ"


def read_corpus(path: str | os.PathLike[str]) -> MemoryCorpus:
    """Return the corpus of a file, in memory.

    Raises `BadData` naming the file when it cannot be read, holds something else or no passage, or two have one id.
    """
    return MemoryCorpus((passage for passage, _ in stream_passages(path)), where=f"{os.fspath(path)}: ")

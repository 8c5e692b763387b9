"""Read records from JSON lines, a JSON document (both may be gzipped), CSV, TSV or Parquet, and large JSON in a stream.

`stream_objects` and `stream_members` read a JSON file of any size one element at a time.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import importlib
import io
import json
import os
import re
import zlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from agentgym_flow.errors import BadData, MissingExtra

LISTS = ("Data", "data")
"""A JSON document is a list of records, or an object that has the list under one of these names."""

_POINTER = b"version https://git-lfs.github.com/spec/"


def read_records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each record of a file: its place (`line 7`, `record 7`; from 1) and its fields.

    Raises:
        BadData: the suffix is not one of `SUFFIXES` (those of JSON may be followed by `.gz`), or the file cannot be
            read; the message names the file and the line.
        MissingExtra: a Parquet file needs pyarrow.
    """
    zipped = path.suffix.lower() == ".gz"
    reader = _READERS.get((path.with_suffix("") if zipped else path).suffix.lower())
    if zipped and reader not in (_json_lines, _json_document):
        reader = None
    if reader is None:
        raise BadData(f"{path}: the ending must be one of {', '.join(SUFFIXES)}.")
    if not path.is_file():
        raise BadData(f"{path}: there is no such file.")
    try:
        with path.open("rb") as file:
            if file.read(len(_POINTER)) == _POINTER:
                raise BadData(f"{path} is a pointer of Git LFS, not the data; fetch them with: git lfs pull.")
        yield from reader(path)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadData(f"{path} cannot be read: it is not a gzip file, or is cut off.") from error
    except OSError as error:
        raise BadData(f"{path} cannot be read: {error.strerror or error}.") from error


def no_value(record: Mapping[str, Any], names: Collection[str]) -> str:
    """Return why none of these fields of a record has a value: one is null, or all are missing."""
    null = next((name for name in names if name in record), None)
    if null is not None:
        return f"the field {null} is null"
    return f"the field {' or '.join(names)} is missing; there are {', '.join(sorted(record)) or 'none'}"


def _json_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    with _open(path) as file:
        for number, line in enumerate(file, 1):
            where = f"{path}, line {number}"
            text = _decode(line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line, where)
            if text.strip():
                yield f"line {number}", _check_object(_parse(text, where), where)


def _open(path: Path) -> IO[bytes]:
    return cast("IO[bytes]", gzip.open(path, "rb")) if path.suffix.lower() == ".gz" else path.open("rb")


def _json_document(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    with _open(path) as file:
        value = _parse(_decode(file.read().removeprefix(b"\xef\xbb\xbf"), str(path)), str(path))
    if isinstance(value, dict):
        value = next((value[name] for name in LISTS if name in value), value)
    if not isinstance(value, list):
        raise BadData(f"{path}: must be a list of records, or an object with one under {' or '.join(LISTS)}.")
    for number, record in enumerate(value, 1):
        yield f"record {number}", _check_object(record, f"{path}, record {number}")


def _table(path: Path, separator: str) -> Iterator[tuple[str, dict[str, Any]]]:
    text = _decode(path.read_bytes().removeprefix(b"\xef\xbb\xbf"), str(path))
    rows = csv.DictReader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    try:
        for row in rows:
            where = f"line {rows.line_num}"
            if None in row or None in row.values():
                expected = len(rows.fieldnames or ())
                raise BadData(f"{path}, {where}: must have as many fields as the first line, which has {expected}.")
            yield where, dict(row)
    except csv.Error as error:
        raise BadData(f"{path}, line {rows.reader.line_num}: is not a table: {error}.") from error


def _parquet(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        arrow = importlib.import_module("pyarrow")
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise MissingExtra.of("pyarrow", "search") from error
    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches():
                for record in batch.to_pylist():
                    number += 1
                    yield f"record {number}", record
    except arrow.ArrowException as error:
        raise BadData(f"{path}: is not a Parquet file, or is damaged after record {number}: {error}.") from error


def _decode(line: bytes, where: str) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadData(f"{where}: must be UTF-8; byte {error.start + 1} is not.") from error


def _parse(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno} of it" if error.lineno > 1 else f"column {error.colno}"
        raise BadData(f"{where}: is not JSON: {error.msg} at {place}.") from error
    except (ValueError, RecursionError) as error:  # too many digits or brackets
        raise BadData(f"{where}: cannot be read as JSON: {error}.") from error


def _check_object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadData(f"{where}: must be an object, got {value!r:.60}.")
    return value


_READERS = {
    ".jsonl": _json_lines,
    ".json": _json_document,
    ".csv": lambda path: _table(path, ","),
    ".tsv": lambda path: _table(path, "\t"),
    ".parquet": _parquet,
}
SUFFIXES = tuple(_READERS)
"""The suffixes of the files that can be read."""


BLOCK = 1 << 20
"""Bytes that are read at a time; more if an element is longer."""

LONGEST = 1 << 26
"""Longer elements, in characters, are errors: without a limit, one missing quote would load the whole file."""

_NEAR = 16
"""Characters before the end of what was read in which a word such as `-Infinity`, or an escape, may be cut off."""

_BLANKS = re.compile(r"[ \t\n\r]*")
_HALF = re.compile("[\ud800-\udfff]")
_DECODER = json.JSONDecoder()


def stream_objects(path: str | os.PathLike[str], start: int = 0) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield each object of the array in the file `path`, and the offset of the first byte after it.

    Args:
        path: a JSON file in UTF-8 with an array of objects.
        start: 0, or an offset that an earlier call yielded, to continue after that object.

    Raises:
        BadData: the file cannot be read, is cut off, or holds something else; the message names the file and the byte.
    """
    with _open_binary(path) as file:
        window = _Window(file, Path(path), start)
        if start == 0:
            window.expect("[", "an array must begin with '['")
        for offset in window.elements("]", first=start == 0):
            value = window.value()
            if not isinstance(value, dict):
                raise window.bad(f"every element of the array must be an object, got {value!r:.40}", offset)
            yield value, window.offset


def stream_members(path: str | os.PathLike[str]) -> Iterator[tuple[str, Any]]:
    """Yield each name and value of the object in the file `path`, in the file's order.

    Raises:
        BadData: the file cannot be read, is cut off, or holds something else; the message names the file and the byte.
    """
    with _open_binary(path) as file:
        window = _Window(file, Path(path), 0)
        window.expect("{", "an object must begin with '{'")
        for offset in window.elements("}"):
            name = window.value()
            if not isinstance(name, str):
                raise window.bad(f"expected a name in quotes, got {name!r:.40}", offset)
            window.expect(":", "a ':' must follow the name")
            yield name, window.value()


def writable(text: str) -> str:
    """Return the text with a replacement character for each lone surrogate, which JSON allows and UTF-8 does not."""
    return text if text.isascii() else _HALF.sub("\N{REPLACEMENT CHARACTER}", text)


def _open_binary(path: str | os.PathLike[str]) -> BinaryIO:
    try:
        return Path(path).open("rb")
    except OSError as error:
        raise BadData(f"{path}: cannot be read ({error.strerror}).") from None


class _Window:
    """The part of a file that is being read. `elements` and `expect` skip blanks before a value."""

    def __init__(self, file: BinaryIO, path: Path, start: int) -> None:
        self._file = file
        self._path = path
        self._text = ""
        self._position = 0  # in the text
        self.offset = start  # of that position, in bytes of the file
        self._begun = b""  # the first bytes of an incomplete character
        self._read = start  # bytes of the file that were read, those in `_begun` included
        if not 0 <= start <= os.fstat(file.fileno()).st_size:
            raise self.bad("the file ends before this offset")
        file.seek(start)

    def bad(self, problem: str, offset: int | None = None) -> BadData:
        """Return an error for a problem at the present or the given offset."""
        return BadData(f"{self._path}: byte {self.offset if offset is None else offset}: {problem}.")

    def expect(self, character: str, problem: str) -> None:
        """Step over `character`. Raises `BadData` with this problem if another one follows."""
        if self._next() != character:
            raise self.bad(problem)
        self._advance(self._position + 1)

    def elements(self, closing: str, *, first: bool = True) -> Iterator[int]:
        """Yield the offset of each element, which the caller reads; at the end, check that nothing else follows."""
        cut_off = f"cut off: the closing {closing!r} is missing"
        while (character := self._next()) != closing:
            if not first:
                self.expect(",", f"expected ',' or {closing!r}" if character else cut_off)
            if not self._next():
                raise self.bad(cut_off)
            yield self.offset
            first = False
        self._advance(self._position + 1)
        if self._next():
            raise self.bad(f"unexpected data after the last {closing!r}")

    def value(self) -> Any:
        """Return the next value and step over it."""
        self._next()
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._position)
            except json.JSONDecodeError as error:
                at = self.offset + len(self._text[self._position : error.pos].encode())
                seen = len(self._text) - error.pos > _NEAR and not error.msg.startswith("Unterminated string")
                if seen or not self._grow():
                    raise self.bad(f"not JSON{'' if seen else ', or cut off'}: {error.msg}", at) from None
            except RecursionError:
                raise self.bad("the element that begins here is nested too deeply") from None
            except ValueError as error:  # a number with thousands of digits
                raise self.bad(f"the element that begins here cannot be read: {error}") from None
            else:
                if end < len(self._text) or not self._grow():  # otherwise a number may continue
                    self._advance(end)
                    return value

    def _next(self) -> str:
        """Step over blanks and return the character that follows, `""` at the end of the file."""
        while True:
            blanks = _BLANKS.match(self._text, self._position)
            assert blanks is not None  # the pattern also matches an empty text
            self._advance(blanks.end())
            if self._position < len(self._text):
                return self._text[self._position]
            if not self._grow():
                return ""

    def _advance(self, position: int) -> None:
        self.offset += len(self._text[self._position : position].encode())
        self._position = position

    def _grow(self) -> bool:
        """Double what is read, so that a long element is parsed few times; return False at the end of the file."""
        left = len(self._text) - self._position
        if left > LONGEST:
            raise self.bad(f"the element that begins here does not end within {LONGEST} characters")
        try:
            read = self._file.read(max(BLOCK, left))
        except OSError as error:
            raise self.bad(f"cannot be read ({error.strerror})", self._read) from None
        data = self._begun + read
        try:
            more, used = codecs.utf_8_decode(data, "strict", not read)
        except UnicodeDecodeError as error:
            raise self.bad(f"not UTF-8 ({error.reason})", self._read - len(self._begun) + error.start) from None
        self._read += len(read)
        self._begun = data[used:]
        self._text = self._text[self._position :] + more
        self._position = 0
        return bool(read)

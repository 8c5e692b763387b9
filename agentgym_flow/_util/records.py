"""Read records from JSON lines, a JSON document (both may be gzipped), CSV, TSV or Parquet."""

from __future__ import annotations

import csv
import gzip
import importlib
import io
import json
import zlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, cast

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

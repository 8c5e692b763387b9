"""Answers of HTTP servers, read without the standard library's parser of e-mail headers, which takes twice as long."""

from __future__ import annotations

import io
import math
import re
from http.client import BadStatusLine, HTTPException, IncompleteRead, LineTooLong, RemoteDisconnected
from typing import NamedTuple

LONGEST_LINE = 1 << 16
"""The most bytes of a line."""

MOST_HEADERS = 200
"""The most headers of an answer."""

_CHUNK = 1 << 18
_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: [^\r\n]*)?\r?\n")


class Answer(NamedTuple):
    """A complete response; the names of headers are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode("utf-8", "replace")

    @property
    def retry_after(self) -> float:
        """The least seconds before the next try that the server asks for; 0 if it does not, or names a date."""
        for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
            given = self.headers.get(name, "")
            if given.isdecimal() and len(given) < 9:
                return float(given) / unit
        return 0.0


class TooLarge(HTTPException):
    """The body has more bytes than the caller wants."""


def read_answer(file: io.BufferedReader, most: float = math.inf) -> tuple[Answer, bool]:
    """Return the answer to a request other than HEAD, and whether the connection stays open.

    Raises `HTTPException` if it is malformed, `IncompleteRead` if it is cut off, and `TooLarge`.
    """
    minor, status = _status(file)
    while status < 200:  # such as "100 Continue"
        _headers(file)
        minor, status = _status(file)
    headers = _headers(file)
    connection = headers.get("connection", "").lower()
    stays = "close" not in connection if minor == 1 else "keep-alive" in connection
    if "chunked" in headers.get("transfer-encoding", "").lower():
        body = b"".join(_chunks(file, most))
    elif status in (204, 304):
        body = b""
    elif "content-length" in headers:
        body = _exactly(file, _number(headers["content-length"], 10), most)
    else:
        stays, parts, size = False, [], 0
        while part := file.read(_CHUNK):
            parts.append(part)
            size += len(part)
            if size > most:
                raise TooLarge
        body = b"".join(parts)
    return Answer(status, headers, body), stays


def _status(file: io.BufferedReader) -> tuple[int, int]:
    """Return the minor version of HTTP/1 and the status."""
    line = _line(file)
    if not line:
        raise RemoteDisconnected("the server has closed the connection")
    if (found := _STATUS.fullmatch(line)) is None:
        raise BadStatusLine(repr(line[:100]))
    return int(found[1]), int(found[2])


def _line(file: io.BufferedReader) -> bytes:
    line = file.readline(LONGEST_LINE + 1)
    if len(line) > LONGEST_LINE:
        raise LineTooLong("line")
    return line


def _headers(file: io.BufferedReader) -> dict[str, str]:
    headers: dict[str, str] = {}
    for _ in range(MOST_HEADERS):
        line = _line(file)
        if line in (b"\r\n", b"\n"):
            return headers
        name, colon, value = line.decode("latin-1").partition(":")
        if not colon:
            raise IncompleteRead(b"") if not line.endswith(b"\n") else BadStatusLine("a header without a colon")
        headers.setdefault(name.lower(), value.strip())
    raise HTTPException(f"more than {MOST_HEADERS} headers")


def _chunks(file: io.BufferedReader, most: float) -> list[bytes]:
    parts, left = [], most
    while size := _number(_line(file).partition(b";")[0].strip().decode("latin-1"), 16):
        parts.append(_exactly(file, size, left))
        left -= size
        if file.readline(3).strip():
            raise HTTPException("a chunk does not end where it should")
    _headers(file)  # trailers
    return parts


def _exactly(file: io.BufferedReader, size: int, most: float) -> bytes:
    if size > most:
        raise TooLarge
    body = file.read(size)
    if len(body) < size:
        raise IncompleteRead(body, size - len(body))
    return body


def _number(text: str, base: int) -> int:
    if not text.isascii() or not text.isalnum() or len(text) > 16:
        raise IncompleteRead(b"") if not text else HTTPException("a length is not a number")
    try:
        return int(text, base)
    except ValueError:
        raise HTTPException("a length is not a number") from None

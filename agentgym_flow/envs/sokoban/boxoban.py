"""Read and write level files: Boxoban's, where a line `; number` precedes every level, and XSB collections.

Boxoban is DeepMind's collection of 1.5 million levels with ten by ten cells and four boxes (Guez et al., "An
investigation of model-free planning", 2018; https://github.com/google-deepmind/boxoban-levels, Apache-2.0). The package
does not include its levels.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from agentgym_flow._util.file_state import files_below, is_junk, is_whole
from agentgym_flow._util.files import whole
from agentgym_flow.envs.sokoban.level import SOLVED_ALREADY, Level
from agentgym_flow.errors import BadLevel

SUFFIXES = (".txt", ".xsb", ".sok")
"""The suffixes of level files."""

_NOT_LEVELS = ("LICENSE", "README")
_HEADER = re.compile(r";\s*[0-9]+\s*")
# A board begins with a row that has only symbols and at least one wall. Following rows that begin with a symbol belong
# to the board up to a blank line, so that damaged rows are detected. Other lines are remarks.
_FIRST_ROW = re.compile(r"(?=.*#)[0-9#@+$*.|_\s-]+")
_NEXT_ROW = re.compile(r"[\s_-]*(?:[#@+$*.|]|[0-9]{1,3}[#@+$*. _|-]+[0-9#@+$*. _|-]*$)")
_COMMENT, _COMMENT_END = re.compile(r"comment:\s*", re.IGNORECASE), re.compile(r"comment[- ]end", re.IGNORECASE)


def read_levels(path: str | os.PathLike[str]) -> list[Level]:
    """Return the levels of a file, or of all files below a folder with one of `SUFFIXES`, in sorted order.

    Lines between boards are remarks, such as titles, authors and comments. A board begins with a row that contains only
    symbols of XSB and at least one wall. It continues while rows begin with a symbol, after any floor. If a file begins
    with `; number`, like Boxoban's, every board must have such a header. In a folder, files named LICENSE or README are
    ignored.

    Raises:
        BadLevel: there are no levels, or a level is malformed, solved at the start or cut off; the message names the
            file and the line.
    """
    root = Path(path)
    if not root.is_dir():
        return _read_file(root)
    files = level_files(root)
    if not files:
        raise BadLevel(f"{root}: the folder holds no {' or '.join(SUFFIXES)} file")
    return [level for file in files for level in _read_file(file)]


def level_files(folder: Path, *, deep: bool = True) -> tuple[Path, ...]:
    """Return the level files in a folder and, if `deep`, in its sub-folders, sorted."""
    found = filter(is_level_file, files_below(folder) if deep else folder.iterdir())
    return tuple(sorted(filter(is_whole, found)))


def is_level_file(file: Path) -> bool:
    """Return whether a file is a level file by its name: not hidden, and neither a license nor a readme."""
    return file.suffix in SUFFIXES and not is_junk(file.name) and not file.name.upper().startswith(_NOT_LEVELS)


def _read_file(file: Path) -> list[Level]:
    try:
        content = file.read_bytes()
    except OSError as error:
        raise BadLevel(f"{file}: cannot be read ({error.strerror})") from error
    if b"\0" in content or content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise BadLevel(f"{file}: is not a text file in UTF-8 or Latin-1")
    try:
        text = content.decode("utf-8-sig")  # some editors write a byte order mark
    except UnicodeDecodeError:
        text = content.decode("latin-1")  # names of authors are often in this encoding
    levels = []
    for line, board in _boards(text, str(file)):
        level = Level.parse(board, str(file), line)
        if level.is_solved:
            raise BadLevel(f"{file}: line {line}: {SOLVED_ALREADY}")
        levels.append(level)
    if not levels:
        raise BadLevel(f"{file}: line 1: the file holds no level")
    return levels


def _boards(text: str, where: str) -> Iterator[tuple[int, str]]:
    """Yield (number of the first line, text) of every board.

    If the file begins with a header, every header must have a board and every board a header. Otherwise it is cut off.
    """
    lines = [*text.splitlines(), ""]
    is_headed = any(_HEADER.fullmatch(line) for line in [line for line in lines if line.strip()][:1])
    header: int | None = None
    rows: list[str] = []
    comment: int | None = None
    for number, line in enumerate(lines, 1):
        if comment is not None:
            comment = None if _COMMENT_END.match(line) else comment
        elif _COMMENT.fullmatch(line):
            comment = number
        is_row = _NEXT_ROW.match(line) if rows or header is not None else _FIRST_ROW.fullmatch(line)
        if is_row and comment is None:
            rows.append(line)
            continue
        if rows:
            first = number - len(rows)
            if is_headed and header is None:
                raise BadLevel(
                    f"{where}: line {first}: a board without a '; number' header, or a blank line inside a board"
                )
            yield first, "\n".join(rows)
            header, rows = None, []
        if is_headed and _HEADER.fullmatch(line):
            if header is not None:
                raise BadLevel(f"{where}: line {header}: the header has no board below it")
            header = number
    if comment is not None:
        raise BadLevel(f"{where}: line {comment}: the comment has no end; put a line 'Comment-End:' below it")
    if header is not None:
        raise BadLevel(f"{where}: line {header}: the header has no board below it; the file is cut off")


def write_levels(path: str | os.PathLike[str], levels: Iterable[Level]) -> None:
    """Write levels to a file in Boxoban's format, from which `read_levels` reads equal levels.

    Raises `OSError` with the name of the file if it cannot be written.
    """
    with whole(Path(path)) as partial, partial.open("w", encoding="ascii", newline="\n") as file:
        for number, level in enumerate(levels):
            file.write(f"; {number}\n{level.xsb()}\n\n")

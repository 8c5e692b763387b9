"""Parse the nested lists of PDDL into tuples, and find the line of any node for error messages.

The syntax is that of Fast Downward: letters become lower case, `;` begins a comment, `?` begins a new word, and
everything outside of comments is ASCII.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from agentgym_flow.errors import BadGame

Expression: TypeAlias = "str | tuple[Expression, ...]"
"""A word, or a list of nodes."""

Fail: TypeAlias = Callable[[Sequence[int], str], BadGame]
"""Creates the error for a node, from its path and a message; see `error_at`."""

_TOKEN = re.compile(r"[()]|\?[^\s()?]*|[^\s()?]+")
_COMMENT = re.compile(r";[^\n]*")


def parse(text: str, where: str) -> Expression:
    """Return the single list in `text`.

    Lines are counted only after an error, because a large problem has thousands of words.

    Args:
        text: PDDL.
        where: the name of the file, for error messages.

    Raises:
        BadGame: brackets do not match, there is not exactly one list, or a character is not ASCII.
    """
    plain = _without_comments(text)
    if not plain.isascii():
        position = next(index for index, character in enumerate(plain) if not character.isascii())
        raise _at(plain, where, position, f"{plain[position]!r} is not an ASCII character")
    outer: list[list[Expression]] = []
    nodes: list[Expression] = []
    for token in _TOKEN.findall(plain):
        if token == "(":
            outer.append(nodes)
            nodes = []
        elif token != ")":
            nodes.append(token)
        elif outer:
            inner = tuple(nodes)
            nodes = outer.pop()
            nodes.append(inner)
        else:
            raise _unbalanced(plain, where)
    if outer:
        raise _unbalanced(plain, where)
    if len(nodes) != 1 or isinstance(nodes[0], str):
        position = 0 if not nodes or isinstance(nodes[0], str) else _start(plain, [1])
        raise _at(plain, where, position, "expected one list in brackets, and nothing after it")
    return nodes[0]


def error_at(text: str, where: str, path: Sequence[int], message: str) -> BadGame:
    """Return the error for a node of `text`: the path `(3, 0)` is the first part of the outer list's fourth part."""
    plain = _without_comments(text)
    return _at(plain, where, _start(plain, [0, *path]), message)


def typed(items: Sequence[Expression]) -> Iterator[tuple[int, Expression, Expression]]:
    """Yield (index, name, type) for a list such as `a b - receptacle c`; a name without a type is an `object`.

    The type of a list that ends after a `-` is the empty string.
    """
    names: list[int] = []
    after_dash = False
    for index, item in enumerate(items):
        if after_dash:
            yield from ((name, items[name], item) for name in names)
            names, after_dash = [], False
        elif item == "-":
            after_dash = True
        else:
            names.append(index)
    yield from ((name, items[name], "" if after_dash else "object") for name in names)


def _without_comments(text: str) -> str:
    return (_COMMENT.sub("", text) if ";" in text else text).lower()


def _at(plain: str, where: str, position: int, message: str) -> BadGame:
    return BadGame(f"{where}: line {plain.count(chr(10), 0, position) + 1}: {message}")


def _unbalanced(plain: str, where: str) -> BadGame:
    opened = []
    for match in _TOKEN.finditer(plain):
        if match.group() == "(":
            opened.append(match.start())
        elif match.group() == ")":
            if not opened:
                return _at(plain, where, match.start(), "this ')' closes nothing")
            opened.pop()
    return _at(plain, where, opened[-1], "the text ends, and this '(' is not closed")


def _start(plain: str, path: Sequence[int]) -> int:
    """Return the position of a node; the first number of its path counts the lists of the text."""
    wanted = list(path)
    outer: list[int] = []
    index = 0
    for match in _TOKEN.finditer(plain):
        if match.group() == ")":
            index = outer.pop() + 1
            continue
        if [*outer, index] == wanted:
            return match.start()
        if match.group() == "(":
            outer.append(index)
            index = 0
        else:
            index += 1
    raise AssertionError(f"no node at {path}")

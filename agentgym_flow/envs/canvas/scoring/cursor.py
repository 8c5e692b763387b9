"""A place in the tokens of an expression, and how deep the reading is nested."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from agentgym_flow.envs.canvas.scoring.tokens import NotMathematics, Token

MAX_DEPTH = 30
"""How deep brackets, powers and functions may be nested."""


class Cursor:
    """The tokens of one expression, and how far they have been read.

    Attributes:
        place: the number of tokens read; setting it to an earlier one goes back.
        bars: how many `|` are open.
    """

    def __init__(self, found: list[Token]) -> None:
        self.place = 0
        self.bars = 0
        self._tokens = found
        self._depth = 0

    @property
    def token(self) -> Token | None:
        """The next token, or None at the end."""
        return self.ahead(0)

    def ahead(self, count: int) -> Token | None:
        """Return the token after `count` more, or None behind the end."""
        place = self.place + count
        return self._tokens[place] if place < len(self._tokens) else None

    def says(self, *texts: str) -> bool:
        """Return whether the next token is one of `texts`, and no word."""
        return self.token is not None and self.token.text in texts and self.token.kind != "word"

    def take(self) -> Token:
        """Return the next token, and go on behind it. Raises `NotMathematics` at the end."""
        token = self.token
        if token is None:
            raise NotMathematics("it ends too early")
        self.place += 1
        return token

    def take_first(self) -> str:
        """Return the first character of the next token, and leave the others."""
        token = self.take()
        self.place -= 1
        self._tokens[self.place] = token._replace(text=token.text[1:], spaced=False)
        return token.text[0]

    def expect(self, text: str) -> None:
        """Go on behind the token `text`. Raises `NotMathematics` when another is next."""
        if self.take().text != text:
            raise NotMathematics(f"{text} is missing")

    @contextmanager
    def nested(self) -> Iterator[None]:
        """Count one more level of nesting within. Raises `NotMathematics` when that is too deep."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise NotMathematics("nested too deep")
        yield
        self._depth -= 1

"""What the settings of an environment may be: declared once, checked by its constructor and before a log is replayed.

An environment declares `logged_settings`, a mapping of the names in its `settings` to the values that they can have:

```python
logged_settings = {"rooms": Integer(2, 100), "terse": Flag(), "mode": OneOf("day", "night")}
```

Everything declared is plain data without paths and addresses, so that a log from a stranger can name nothing else.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping
from typing import Protocol, SupportsIndex, cast

from agentgym_flow.errors import BadSetting, UnknownOption, shown

MOST_VALUES = 256
"""Plain data in a setting hold at most so many values."""

LONGEST_TEXT = 1 << 14
"""A text in a setting has at most so many characters."""


class Setting(Protocol):
    """The values that a setting can have."""

    def check(self, name: str, value: object) -> None:
        """Raise `BadSetting` (`UnknownOption` for a word that is none of the choices) unless `value` is one of them."""


class OneOf:
    """One of some words.

    Args:
        words: the words.
    """

    def __init__(self, *words: str) -> None:
        self.words = words

    def check(self, name: str, value: object) -> None:
        """Raise `UnknownOption` for another word, and `BadSetting` for anything but text."""
        if not isinstance(value, str):
            raise BadSetting(f"{name} must be one of {', '.join(map(repr, self.words))}, got {shown(value)}")
        if value not in self.words:
            raise UnknownOption.among(value, self.words)


class Flag:
    """True or False."""

    def check(self, name: str, value: object) -> None:
        """Raise `BadSetting` unless `value` is a `bool`."""
        if not isinstance(value, bool):
            raise BadSetting(f"{name} must be True or False, got {shown(value)}")


class Integer:
    """An integer from `least` to `most`; NumPy's integers are integers, booleans are not."""

    def __init__(self, least: int, most: int) -> None:
        self.least, self.most = least, most

    def check(self, name: str, value: object) -> None:
        """Raise `BadSetting` unless `value` is such an integer."""
        try:
            number = operator.index(cast("SupportsIndex", value))
        except TypeError:
            number = self.least - 1
        if isinstance(value, bool) or not self.least <= number <= self.most:
            raise BadSetting(f"{name} must be an integer from {self.least} to {self.most}, got {shown(value)}")


class SeasonSeed:
    """The seed of a season of test tasks: an even number of lower-case hexadecimal digits, 2 to 64."""

    def check(self, name: str, value: object) -> None:
        """Raise `BadSetting` unless `value` is such a text."""
        if not isinstance(value, str) or not re.fullmatch("(?:[0-9a-f]{2}){1,32}", value):
            raise BadSetting(
                f"{name} must be an even number of lower-case hexadecimal digits, 2 to 64 of them, got {shown(value)}"
            )


class Text:
    """A text of at most `longest` characters; all of it matches `pattern`, if there is one."""

    def __init__(self, pattern: str | None = None, longest: int = LONGEST_TEXT) -> None:
        self.pattern, self.longest = pattern, longest

    def check(self, name: str, value: object) -> None:
        """Raise `BadSetting` unless `value` is such a text."""
        if not isinstance(value, str) or len(value) > self.longest:
            raise BadSetting(f"{name} must be a text of at most {self.longest} characters, got {shown(value)}")
        if self.pattern is not None and not re.fullmatch(self.pattern, value):
            raise BadSetting(f"{name} must match {self.pattern}, got {shown(value)}")


class Items:
    """A list of `least` to `most` items, each of which is an `of`."""

    def __init__(self, of: Setting, least: int = 0, most: int = MOST_VALUES) -> None:
        self.of, self.least, self.most = of, least, most

    def check(self, name: str, value: object) -> None:
        """Raise `BadSetting` unless `value` is such a list, or what an item raises."""
        if not isinstance(value, list | tuple) or not self.least <= len(value) <= self.most:
            raise BadSetting(f"{name} must be a list of {self.least} to {self.most} items, got {shown(value)}")
        for item in value:
            self.of.check(name, item)


class Maybe:
    """None, or an `of`."""

    def __init__(self, of: Setting) -> None:
        self.of = of

    def check(self, name: str, value: object) -> None:
        """Raise what `of` raises, unless `value` is None."""
        if value is not None:
            self.of.check(name, value)


class Plain:
    """Plain data: None, booleans, numbers, texts, and lists and mappings of them, few and short.

    For what replay takes as it is and nothing follows. Everything that an environment does something with is declared
    by one of the other classes.
    """

    def check(self, name: str, value: object) -> None:
        """Raise `BadSetting` unless `value` is plain data of at most `MOST_VALUES` values."""
        waiting, seen = [value], 0
        while waiting:
            item = waiting.pop()
            seen += 1
            if isinstance(item, Mapping):
                waiting += [*item, *item.values()]
            elif isinstance(item, list | tuple):
                waiting += item
            elif not (item is None or isinstance(item, bool | int | float | str)):
                raise BadSetting(f"{name} must be plain data, got {shown(item)}")
            if seen + len(waiting) > MOST_VALUES or (isinstance(item, str) and len(item) > LONGEST_TEXT):
                raise BadSetting(f"{name} holds more than a setting may: {shown(value)}")


class _Word:
    """What an environment without a declaration may have in a log: a number, a flag, None, or a plain word."""

    _WORD = Text(r"[A-Za-z0-9_-]*", 64)

    def check(self, name: str, value: object) -> None:
        if isinstance(value, str):
            self._WORD.check(name, value)
        elif not (value is None or isinstance(value, bool | int | float)):
            raise BadSetting(
                f"{name} must be a number, True, False, null or a word, got {shown(value)}; "
                "an environment that needs more declares it in logged_settings"
            )


def check_settings(
    declared: Mapping[str, Setting] | None, settings: Mapping[str, object], *, parameters: Iterable[str] = ()
) -> None:
    """Check settings by name.

    Args:
        declared: what an environment declares. None: a setting is one of the constructor's `parameters`, and a number,
            a boolean, None, a plain word without dots and slashes, or a list of these.
        settings: name -> value.
        parameters: the names that an environment without a declaration takes.

    Raises:
        UnknownOption: a setting or a word that is not declared.
        BadSetting: a value that a setting cannot have.
    """
    known: Mapping[str, Setting] = declared if declared is not None else dict.fromkeys(parameters, _Word())
    for name, value in settings.items():
        if name not in known:
            raise UnknownOption.among(name, known)
        if declared is None and isinstance(value, list | tuple):
            Items(known[name]).check(name, value)
        else:
            known[name].check(name, value)

"""The allowed settings of an environment, checked by its constructor and before a log is replayed.

An environment declares them in `logged_settings`, which maps the name of a setting to its allowed values:

```python
logged_settings = {"rooms": Integer(2, 100), "terse": Flag(), "mode": OneOf("day", "night")}
```

Declared values are plain data without paths and addresses, so that an untrusted log cannot name any.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping
from typing import Protocol, SupportsIndex, cast

from agentgym_flow.errors import BadSetting, UnknownOption, shown

MOST_VALUES = 256
"""The largest number of values in a setting of plain data."""

LONGEST_TEXT = 1 << 14
"""The largest number of characters of a text in a setting."""


class Setting(Protocol):
    """The allowed values of a setting."""

    def check(self, name: str, value: object) -> None:
        """Raise `BadSetting` unless `value` is allowed; `UnknownOption` if it is not one of several words."""


class OneOf:
    """One of several words."""

    def __init__(self, *words: str) -> None:
        self.words = words

    def check(self, name: str, value: object) -> None:
        """Raise `UnknownOption` for another word, and `BadSetting` for another type."""
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
    """An integer from `least` to `most`. NumPy integers are allowed, booleans are not."""

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
    """A text of at most `longest` characters that matches `pattern` completely, if there is one."""

    def __init__(self, pattern: str | None = None, longest: int = LONGEST_TEXT) -> None:
        self.pattern, self.longest = pattern, longest

    def check(self, name: str, value: object) -> None:
        """Raise `BadSetting` unless `value` is such a text."""
        if not isinstance(value, str) or len(value) > self.longest:
            raise BadSetting(f"{name} must be a text of at most {self.longest} characters, got {shown(value)}")
        if self.pattern is not None and not re.fullmatch(self.pattern, value):
            raise BadSetting(f"{name} must match {self.pattern}, got {shown(value)}")


class Items:
    """A list of `least` to `most` items, each allowed by `of`."""

    def __init__(self, of: Setting, least: int = 0, most: int = MOST_VALUES) -> None:
        self.of, self.least, self.most = of, least, most

    def check(self, name: str, value: object) -> None:
        """Raise `BadSetting` unless `value` is such a list, and the errors of `of` for its items."""
        if not isinstance(value, list | tuple) or not self.least <= len(value) <= self.most:
            raise BadSetting(f"{name} must be a list of {self.least} to {self.most} items, got {shown(value)}")
        for item in value:
            self.of.check(name, item)


class Maybe:
    """None, or a value allowed by `of`."""

    def __init__(self, of: Setting) -> None:
        self.of = of

    def check(self, name: str, value: object) -> None:
        """Raise the errors of `of`, unless `value` is None."""
        if value is not None:
            self.of.check(name, value)


class Plain:
    """Plain data of limited size: None, booleans, numbers, texts, and lists and mappings of them.

    Use this class only for values that an environment stores without acting on them. Declare other settings with a
    stricter class.
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


class _Undeclared:
    """The allowed values of a setting that is not declared: a number, a boolean, None, or a plain word."""

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
        declared: the declaration of an environment. None: a setting must be one of `parameters`, and a number, a
            boolean, None, a plain word without dots and slashes, or a list of these.
        settings: name -> value.
        parameters: the parameters of the constructor, for an environment without a declaration.

    Raises:
        UnknownOption: a setting or a word is not declared.
        BadSetting: a value is not allowed.
    """
    known: Mapping[str, Setting] = declared if declared is not None else dict.fromkeys(parameters, _Undeclared())
    for name, value in settings.items():
        if name not in known:
            raise UnknownOption.among(name, known)
        if declared is None and isinstance(value, list | tuple):
            Items(known[name]).check(name, value)
        else:
            known[name].check(name, value)

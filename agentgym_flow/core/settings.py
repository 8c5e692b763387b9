"""The arguments of an environment: which values are allowed, checked by its constructor and before a log is replayed.

The constructor's signature declares each argument once: its type, its default, the values that a log may have, and its
meaning. `TextEnv` makes `logged_settings`, `presentation_settings` and the table of the manual from it:

```python
def __init__(
    self,
    rooms: Annotated[int, Integer(2, 100), "the number of rooms"] = 5,
    terse: Annotated[bool, Flag(), PRESENTATION, "leave the scenery out of the text"] = False,
    ...
```

Declared values are plain data without paths and addresses, so that an untrusted log cannot name any.
"""

from __future__ import annotations

import builtins
import inspect
import operator
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, Protocol, SupportsIndex, cast, get_args, get_origin

from agentgym_flow.errors import BadRenderMode, BadSetting, UnknownOption, UnknownSplit, shown

SPLITS = ("train", "valid", "test")
"""The names of the splits in all environments."""

LARGEST = (1 << 63) - 1
"""The largest integer that NumPy can store."""

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
    """An integer from `least` to `most`, by default of 63 bits. NumPy integers are allowed, booleans are not."""

    def __init__(self, least: int, most: int = LARGEST) -> None:
        self.least, self.most = least, most

    def check(self, name: str, value: object) -> None:
        """Raise `BadSetting` unless `value` is such an integer."""
        try:
            number = operator.index(cast("SupportsIndex", value))
        except TypeError:
            number = self.least - 1
        if isinstance(value, bool) or not self.least <= number <= self.most:
            limits = f"of at least {self.least}" if self.most == LARGEST else f"from {self.least} to {self.most}"
            raise BadSetting(f"{name} must be an integer {limits}, got {shown(value)}")


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


PRESENTATION = object()
"""Marks an argument that changes the text but not the decision problem; `task_key` does not include it."""

Season = Annotated[
    str, SeasonSeed(), 'the seed of a season: other generated test tasks of the same kind, see "Seasons" in the docs'
]
Split = Annotated[str, '`"train"`, `"valid"` or `"test"`']
TaskTypes = Annotated[
    Sequence[str] | None, "a list of task types: `reset(seed=...)` draws only tasks of these types; None for all"
]
MaxSteps = Annotated[int, "the step budget"]


class Argument(NamedTuple):
    """What a signature says about an argument.

    Attributes:
        type: its type, as text.
        default: its default.
        allowed: the values that a log may have; None if a log does not contain it.
        presentation: whether it is marked with `PRESENTATION`.
        meaning: a phrase; empty without one.
    """

    type: str
    default: Any
    allowed: Setting | None
    presentation: bool
    meaning: str


class _Names(dict[str, Any]):
    """The names of a module and the built-in ones; one that is imported for type checkers only is `Any`."""

    def __missing__(self, name: str) -> Any:
        return getattr(builtins, name, Any)


def arguments_of(maker: Callable[..., Any]) -> dict[str, Argument]:
    """Return the arguments of a class or function by name, in order."""
    function: Any = maker
    names = _Names(getattr(function.__init__ if isinstance(maker, type) else function, "__globals__", {}))
    found = {}
    for name, parameter in inspect.signature(maker).parameters.items():
        annotation = parameter.annotation
        if isinstance(annotation, str):
            try:  # the code of the module itself, as `inspect.get_annotations` runs it
                annotation = eval(annotation, {}, names)
            except Exception:
                if "Annotated" in annotation:  # a declaration that cannot be read
                    raise
        kind, *more = get_args(annotation) if get_origin(annotation) is Annotated else [annotation]
        found[name] = Argument(
            kind if isinstance(kind, str) else inspect.formatannotation(kind),
            parameter.default,
            next((one for one in more if hasattr(one, "check")), None),
            PRESENTATION in more,
            next((one for one in more if isinstance(one, str)), ""),
        )
    return found


def argument_table(arguments: Mapping[str, Argument]) -> str:
    """Return the Markdown table of these arguments for a manual, indented as a docstring of a class."""
    rows = ["| argument | default | meaning |", "|---|---|---|"]
    for name, one in arguments.items():
        default = f'"{one.default}"' if isinstance(one.default, str) else repr(one.default)
        rows.append(f"| `{name}` | `{default}` | {one.meaning} |")
    return "\n    ".join(rows)


class _Undeclared:
    """The allowed values of a setting that is not declared: a number, a boolean, None, or a plain word."""

    _WORD = Text(r"[A-Za-z0-9_-]*", 64)

    def check(self, name: str, value: object) -> None:
        if isinstance(value, str):
            self._WORD.check(name, value)
        elif not (value is None or isinstance(value, bool | int | float)):
            raise BadSetting(
                f"{name} must be a number, True, False, null or a word, got {shown(value)}; "
                "an environment that needs more declares it in its signature"
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


def check_options(options: Mapping[str, Any] | None, known: Sequence[str]) -> Mapping[str, Any]:
    """Return the reset options, `{}` for None.

    Raises `UnknownOption` if a key is not in `known`, and `BadSetting` if `options` is not a dictionary.
    """
    if options is not None and not isinstance(options, Mapping):
        raise BadSetting(f"options must be a dictionary such as {{{known[0]!r}: ...}}, got {shown(options)}")
    for key in options or {}:
        if key not in known:
            raise UnknownOption.among(key, known)
    return options or {}


def check_info_keys(keys: Iterable[str], known: Collection[str]) -> tuple[str, ...]:
    """Return the keys of `info` to return, in the order of `known`.

    Raises `UnknownOption` if a key is not in `known`, and `BadSetting` if `keys` is not a collection of keys.
    """
    try:
        wanted = None if isinstance(keys, str) else list(keys)
    except TypeError:
        wanted = None
    if wanted is None:
        raise BadSetting(f"info_keys must be a list of keys, got {shown(keys)}")
    for key in wanted:
        if not isinstance(key, str) or key not in known:
            raise UnknownOption.among(key, known)
    return tuple(key for key in known if key in wanted)


def check_split(split: str, aliases: Mapping[str, str]) -> str:
    """Return our name of `split`: one of `SPLITS` or the target of an alias. Raises `UnknownSplit`."""
    name = aliases.get(split, split) if isinstance(split, str) else None
    if name not in SPLITS and name not in aliases.values():
        raise UnknownSplit.among(split, dict.fromkeys([*SPLITS, *aliases]))
    return name


def check_season(season: str, split: str, fixed: str = "") -> str:
    """Return `season`, the seed of a season of test tasks; `""` stands for the standard tasks.

    Args:
        season: `""`, or an even number of lower-case hexadecimal digits, 2 to 64.
        split: our name of the split.
        fixed: the argument that selects fixed tasks instead of generated ones; `""` if there is none.

    Raises `BadSetting` if `season` has another form, or these tasks have no seasons.
    """
    if isinstance(season, str) and not season:
        return season
    SeasonSeed().check("season", season)
    if fixed:
        raise BadSetting(f"season generates new tasks, and {fixed} names fixed ones; leave one of the two out")
    if split != "test":
        raise BadSetting(f"only split 'test' has seasons: a season is for evaluation. Got season with split {split!r}")
    return season


def check_render_mode(render_mode: str | None, metadata: Mapping[str, Any]) -> str | None:
    """Return `render_mode`. Raises `BadRenderMode` if it is neither None nor one of `metadata["render_modes"]`."""
    if render_mode is not None and not (isinstance(render_mode, str) and render_mode in metadata["render_modes"]):
        offered = ", ".join(metadata["render_modes"])
        raise BadRenderMode(f"render_mode {shown(render_mode)} is not supported; choose one of: {offered}")
    return render_mode


def check_positive(name: str, value: object) -> int:
    """Return `value` as a positive `int` of at most 63 bits. Raises `BadSetting` with the name of the setting."""
    return check_integer(name, value, 1)


def check_integer(name: str, value: object, least: int) -> int:
    """Return `value` as an `int` from `least` to 2^63 - 1. Raises `BadSetting` with the name of the setting."""
    Integer(least).check(name, value)
    return operator.index(cast("SupportsIndex", value))

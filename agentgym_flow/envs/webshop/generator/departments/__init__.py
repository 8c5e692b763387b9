"""What the generated shop sells: a JSON file for each department. Lists of short entries are written as `one|two`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from agentgym_flow.envs.content import read_content
from agentgym_flow.envs.webshop.generator import options
from agentgym_flow.envs.webshop.generator.kinds import Department, Number, Option, ProductKind, features, words
from agentgym_flow.errors import UnknownOption

_NAMES = (
    "beauty",
    "electronics",
    "fashion",
    "furniture",
    "grocery",
    "kitchen",
    "office",
    "pets",
    "sports",
    "tools",
    "toys",
)
_OPTIONS: Mapping[str, Callable[..., Option]] = {
    make.__name__: make
    for make in (
        options.clothes_color,
        options.clothes_size,
        options.color,
        options.flavor,
        options.household_color,
        options.pack,
        options.scent,
        options.size,
        options.style,
    )
}


class _Features(NamedTuple):
    """Phrase -> reason for each role, and near misses; see `kinds.features`."""

    being: dict[str, str]
    having: dict[str, str]
    purpose: dict[str, str]
    near: dict[str, str]


class _Kind(NamedTuple):
    """A `ProductKind` as it is written; an option is the name of a function of `options` and its arguments."""

    query: str
    path: str
    number: Number
    names: str
    lines: str
    features: str
    options: tuple[tuple[str, ...], ...]
    price: tuple[float, float]
    details: str
    notes: tuple[str, ...]
    accessory: str


class _Department(NamedTuple):
    """A `Department` as it is written."""

    category: str
    path: str
    brands: str
    features: _Features
    notes: tuple[str, ...]
    costly: tuple[str, ...]
    kinds: tuple[_Kind, ...]


def _kind(written: _Kind) -> ProductKind:
    lists = {name: words(getattr(written, name)) for name in ("names", "lines", "features", "details")}
    if unknown := [name for name, *_ in written.options if name not in _OPTIONS]:
        raise UnknownOption.among(unknown[0], _OPTIONS)
    chosen = tuple(_OPTIONS[name](*arguments) for name, *arguments in written.options)
    return ProductKind(**{**written._asdict(), **lists, "options": chosen})


def _department(name: str) -> Department:
    written = read_content(__name__, f"{name}.json", _Department)
    return Department(
        written.category,
        written.path,
        words(written.brands),
        features(**written.features._asdict()),
        written.notes,
        written.costly,
        tuple(_kind(kind) for kind in written.kinds),
    )


DEPARTMENTS: tuple[Department, ...] = tuple(_department(name) for name in _NAMES)
"""All departments; their order is part of the content."""

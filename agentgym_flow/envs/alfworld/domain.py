"""The rules of all ALFWorld games in PDDL, and a check that the rules in a game file have the same meaning.

The fast engine implements exactly the domain in `alfred.pddl`. Game files contain their own domain, which is compared
with ours by meaning, without regard to comments, order and costs.

`parse` reads the nested lists of PDDL. The syntax is that of Fast Downward: letters become lower case, `;` begins a
comment, `?` begins a new word, and everything outside of comments is ASCII.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from hashlib import sha256
from importlib.resources import files
from typing import TypeAlias

from agentgym_flow.errors import BadGame

Expression: TypeAlias = "str | tuple[Expression, ...]"
"""A word, or a list of nodes."""

Fail: TypeAlias = Callable[[Sequence[int], str], BadGame]
"""Creates the error for a node, from its path and a message; see `error_at`."""

_TOKEN = re.compile(r"[()]|\?[^\s()?]*|[^\s()?]+")
_COMMENT = re.compile(r";[^\n]*")

DOMAIN = files(__package__).joinpath("alfred.pddl").read_text("utf-8")
"""The domain that is written into game files."""

DOMAIN_WITHOUT_HELP = DOMAIN[: DOMAIN.rindex("\n\n;")] + "\n)\n"
"""The domain of older games without `help`."""

OPTIONAL_ACTIONS = frozenset({"help"})
"""The actions that a game file can lack."""

_TRUE: Expression = ("and",)
_FALSE: Expression = ("or",)
_NO_NAMES: Mapping[Expression, str] = {}
_OTHER: Mapping[str, str] = {"and": "or", "or": "and", "exists": "forall", "forall": "exists"}


@dataclass(frozen=True, slots=True)
class DomainPart:
    """A type, predicate or action: its path in the text, and its meaning in a comparable form."""

    path: tuple[int, ...]
    meaning: tuple[Expression, ...]


Domain = Mapping[str, dict[str, DomainPart]]
"""`"type"`, `"predicate"` or `"action"` -> the parts of this kind by name."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The allowed differences between domains of game files.

    Attributes:
        actions: their names in lower case, which differ only in `OPTIONAL_ACTIONS`.
        washes_in_sinks: whether things can also be cleaned in receptacles of `SinkType`. Official files allow it, and
            files made with alfworld 0.4.2 do not. Games of both kinds have only basins.
    """

    actions: frozenset[str]
    washes_in_sinks: bool


def check_domain(text: str, where: str) -> Rules:
    """Check that the domain of a game file has the same meaning as ours, and return the allowed differences.

    Accepted texts are cached by their digest.

    Raises:
        BadGame: the meaning is different; the message names the line.
    """
    digest = sha256(text.encode("utf-8", "surrogatepass")).digest()
    if digest not in _accepted:
        _accepted[digest] = _check(text, where)
    return _accepted[digest]


def _check(text: str, where: str) -> Rules:
    def fail(path: Sequence[int], message: str) -> BadGame:
        return error_at(text, where, path, f"{message}; only games with those rules can be played")

    theirs = _read(parse(text, where), fail)
    in_basins = _cleaning_in_basins()
    for kind, ours in known_domain().items():
        for name, part in theirs[kind].items():
            if name not in ours:
                raise fail(part.path, f"the {kind} {name!r} is not part of ALFWorld's rules")
            if part.meaning not in (ours[name].meaning, in_basins if name == "cleanobject" else None):
                raise fail(part.path, f"the {kind} {name!r} differs from the one in ALFWorld's rules")
        missing = [name for name in ours if name not in theirs[kind] and name not in OPTIONAL_ACTIONS]
        if missing:
            raise fail((), f"the {kind} {missing[0]!r} of ALFWorld's rules is missing")
    actions = theirs["action"]
    return Rules(frozenset(actions), actions["cleanobject"].meaning != in_basins)


def _read(root: Expression, fail: Fail) -> Domain:
    """Return the parts of a domain that define the rules."""
    if root[:2] != ("define", ("domain", "alfred")):
        raise fail((), "expected (define (domain alfred) ...)")
    domain: Domain = {"type": {}, "predicate": {}, "action": {}}

    def add(kind: str, name: Expression, path: tuple[int, ...], *meaning: Expression) -> None:
        if not isinstance(name, str) or name in domain[kind]:
            raise fail(path, f"expected a name that was not used before, got {name!r}")
        domain[kind][name] = DomainPart(path, meaning)

    declarations = [entry for entry in enumerate(root) if entry[0] > 1]
    for index, entry in declarations:
        if not isinstance(entry, tuple) or not entry:
            raise fail((index,), "expected a section such as (:types ...)")
        if entry[0] == ":types":
            for position, name, parent in typed(entry[1:]):
                add("type", name, (index, position + 1), parent)
    known = frozenset(domain["type"]) | {"object"}
    for index, entry in declarations:
        match entry:
            case (":types" | ":requirements" | ":functions", *_):
                pass
            case (":predicates", *listed):
                for position, predicate in enumerate(listed, 1):
                    if not isinstance(predicate, tuple) or not predicate:
                        raise fail((index, position), "expected a predicate such as (openable ?r - receptacle)")
                    kinds = [kind for _, _, kind in typed(predicate[1:])]
                    add("predicate", predicate[0], (index, position), *kinds)
            case (":action", name, ":parameters", parameters, ":precondition", condition, ":effect", effect):
                meaning = (_parameters(parameters), _condition(condition, known), _effects(effect, known))
                add("action", name, (index,), *meaning)
            case (":action", *_):
                raise fail((index,), "an action has a name, :parameters, :precondition and :effect, in this order")
            case _:
                raise fail((index,), f"a section {entry[0]!r} is not part of ALFWorld's rules")
    return domain


def _parameters(items: Expression) -> tuple[tuple[Expression, Expression], ...]:
    return tuple((name, kind) for _, name, kind in typed(items))


def _condition(
    node: Expression,
    types: frozenset[str],
    negated: bool = False,
    names: Mapping[Expression, str] = _NO_NAMES,
    depth: int = 0,
) -> Expression:
    """Return a condition in a normal form: negations at the atoms, parts in a fixed order, bound variables numbered.

    A quantifier over an unknown type ranges over nothing. Unknown expressions are returned unchanged and thus differ
    from ours.
    """
    match node:
        case ():
            return _TRUE
        case ("not", inner):
            return _condition(inner, types, not negated, names, depth)
        case ("imply", before, after):
            return _condition(("or", ("not", before), after), types, negated, names, depth)
        case ("and" | "or" as connective, *parts):
            word = _OTHER[connective] if negated else connective
            return _join(word, [_condition(part, types, negated, names, depth) for part in parts])
        case ("exists" | "forall" as quantifier, variables, inner):
            word = _OTHER[quantifier] if negated else quantifier
            bound = _parameters(variables)
            if any(kind not in types for _, kind in bound):
                return _FALSE if word == "exists" else _TRUE
            numbered = {name: f"?{number}" for number, (name, _) in enumerate(bound, depth)}
            kinds = tuple(kind for _, kind in bound)
            return (word, kinds, _condition(inner, types, negated, {**names, **numbered}, depth + len(bound)))
        case (str(), *_):
            atom = tuple(names.get(word, word) for word in node)
            return ("not", atom) if negated else atom
        case _:
            return node


def _join(word: str, parts: Sequence[Expression]) -> Expression:
    """Return the conjunction or disjunction of `parts`, flat, sorted and without redundant parts."""
    absorbing: Expression = (_OTHER[word],)
    flat: set[Expression] = set()
    for part in parts:
        flat.update(part[1:] if part[:1] == (word,) else (part,))
    if absorbing in flat:
        return absorbing
    return next(iter(flat)) if len(flat) == 1 else (word, *sorted(flat, key=repr))


def _effects(node: Expression, types: frozenset[str]) -> Expression:
    """Return the sorted effects, each a literal or `("when", condition, effects)`, without costs."""
    flat: list[Expression] = []
    pending: list[Expression] = [node]
    while pending:
        effect = pending.pop()
        match effect:
            case ("and", *parts):
                pending.extend(parts)
            case ("increase", ("total-cost",), _):
                pass
            case ("when", condition, inner):
                flat.append(("when", _condition(condition, types), _effects(inner, types)))
            case _:
                flat.append(effect)
    return tuple(sorted(set(flat), key=repr))


@cache
def known_domain() -> Domain:
    """Return the domain of `alfred.pddl`."""
    return _read(parse(DOMAIN, "alfred.pddl"), partial(error_at, DOMAIN, "alfred.pddl"))


@cache
def _cleaning_in_basins() -> tuple[Expression, ...]:
    """Return the meaning of `cleanobject` in the variant without sinks."""
    text = DOMAIN.replace("(receptacleType ?r SinkType)", "")
    return _read(parse(text, "alfred.pddl"), partial(error_at, text, "alfred.pddl"))["action"]["cleanobject"].meaning


_accepted: dict[bytes, Rules] = {}


# ---------------------------------------------------------------- nested lists
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

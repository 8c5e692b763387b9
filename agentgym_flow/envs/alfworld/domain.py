"""The rules of all ALFWorld games in PDDL, and a check that the rules in a game file have the same meaning.

The fast engine implements exactly the domain in `alfred.pddl`. Game files contain their own domain, which is compared
with ours by meaning, without regard to comments, order and costs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from importlib.resources import files

from agentgym_flow.envs.alfworld.syntax import Expression, Fail, error_at, parse, typed
from agentgym_flow.errors import BadGame

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
    for kind, ours in _OURS.items():
        for name, part in theirs[kind].items():
            if name not in ours:
                raise fail(part.path, f"the {kind} {name!r} is not part of ALFWorld's rules")
            if part.meaning not in (ours[name].meaning, _WASHES_IN_BASINS if name == "cleanobject" else None):
                raise fail(part.path, f"the {kind} {name!r} differs from the one in ALFWorld's rules")
        missing = [name for name in ours if name not in theirs[kind] and name not in OPTIONAL_ACTIONS]
        if missing:
            raise fail((), f"the {kind} {missing[0]!r} of ALFWorld's rules is missing")
    actions = theirs["action"]
    return Rules(frozenset(actions), actions["cleanobject"].meaning != _WASHES_IN_BASINS)


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


_OURS = _read(parse(DOMAIN, "alfred.pddl"), partial(error_at, DOMAIN, "alfred.pddl"))
_IN_BASINS = DOMAIN.replace("(receptacleType ?r SinkType)", "")
_VARIANT = _read(parse(_IN_BASINS, "alfred.pddl"), partial(error_at, _IN_BASINS, "alfred.pddl"))
_WASHES_IN_BASINS = _VARIANT["action"]["cleanobject"].meaning
_accepted: dict[bytes, Rules] = {}

TYPES = frozenset(_OURS["type"])
"""The types of things."""

PREDICATES: Mapping[str, tuple[Expression, ...]] = {name: part.meaning for name, part in _OURS["predicate"].items()}
"""Predicate -> the types of its arguments."""

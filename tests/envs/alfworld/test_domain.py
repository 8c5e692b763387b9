"""The domain: what means the same is accepted, what differs is named with its line."""

from __future__ import annotations

import re
from typing import Any

import pytest

from agentgym_flow.envs.alfworld import domain
from agentgym_flow.envs.alfworld.domain import DOMAIN, DOMAIN_WITHOUT_HELP, OPTIONAL_ACTIONS, check_domain
from agentgym_flow.errors import BadGame

ACTIONS = frozenset(
    [
        "look",
        "inventory",
        "examinereceptacle",
        "examineobject",
        "gotolocation",
        "openobject",
        "closeobject",
        "pickupobject",
        "putobject",
        "cleanobject",
        "heatobject",
        "coolobject",
        "toggleobject",
        "sliceobject",
    ]
)


def test_the_own_domains_have_the_actions_of_current_and_older_games() -> None:
    assert check_domain(DOMAIN, "t").actions == ACTIONS | OPTIONAL_ACTIONS
    assert check_domain(DOMAIN_WITHOUT_HELP, "t").actions == ACTIONS


DEAD_BRANCH = """(or
    (exists (?l - location, ?r - receptacle) (and (atLocation ?a ?l) (inReceptacle ?o ?r)))
    (holds ?a ?o))"""

SAME = {
    "letters": (DOMAIN, DOMAIN.upper()),
    "comments": ("(openable ?r - receptacle)", "(openable ?r - receptacle) ; has a door (or a lid"),
    "examine, with the typo of the official file": (":precondition (holds ?a ?o)", f":precondition {DEAD_BRANCH}"),
    "for all of a type that is missing": (
        ":precondition (holds ?a ?o)",
        ":precondition (and (forall (?x - thing) (holds ?a ?x)) (holds ?a ?o))",
    ),
    "order of a conjunction": ("(openable ?r) (opened ?r))", "(opened ?r) (openable ?r))"),
    "nesting": ("(openable ?r) (opened ?r))", "(and (openable ?r)) (or (and (opened ?r))))"),
    "repetition": ("(openable ?r) (opened ?r))", "(openable ?r) (opened ?r) (opened ?r))"),
    "a branch that nothing can meet": (
        "(openable ?r) (opened ?r))",
        "(openable ?r) (or (opened ?r) (and (full ?r) (exists (?x - thing) (full ?x)))))",
    ),
    "double negation": ("(openable ?r) (opened ?r))", "(openable ?r) (not (not (opened ?r))))"),
    "implication": (
        "(or (opened ?r) (not (openable ?r)))\n        (pickup",
        "(imply (openable ?r) (opened ?r))(pickup",
    ),
    "de Morgan": (
        "(or (opened ?r) (not (openable ?r)))\n        (pickup",
        "(not (and (openable ?r) (not (opened ?r))))(pickup",
    ),
    "quantifier": (
        "(exists (?l - location) (and (atLocation ?a ?l) (receptacleAtLocation ?r ?l)))",
        "(not (forall (?here - location) (or (not (receptacleAtLocation ?r ?here)) (not (atLocation ?a ?here)))))",
    ),
    "costs": ("(not (opened ?r)) (increase (total-cost) 1)", "(not (opened ?r)) (increase (total-cost) 9)"),
    "order and nesting of effects": ("(opened ?r) (checked ?r)", "(and (checked ?r)) (opened ?r)"),
    "requirements": ("(:requirements :adl :action-costs :typing)", ""),
}


@pytest.mark.parametrize("change", SAME)
def test_what_means_the_same_is_accepted(change: str) -> None:
    old, new = SAME[change]
    assert DOMAIN.count(old) == 1
    assert check_domain(DOMAIN.replace(old, new), "t").actions == ACTIONS | OPTIONAL_ACTIONS


DIFFERENT = {
    "a precondition more": ("(openable ?r) (opened ?r))", "(openable ?r) (full ?r) (opened ?r))", "closeobject"),
    "a precondition less": ("(openable ?r) (opened ?r))", "(opened ?r))", "closeobject"),
    "negation": ("(openable ?r) (opened ?r))", "(openable ?r) (not (opened ?r)))", "closeobject"),
    "or for and": ("(and (atLocation ?a ?lStart)", "(or (atLocation ?a ?lStart)", "gotolocation"),
    "quantifier": ("(exists (?l - location)", "(forall (?l - location)", "examinereceptacle"),
    "other type": ("(exists (?l - location)", "(exists (?l - object)", "examinereceptacle"),
    "the branch of the typo, alive": (
        ":precondition (holds ?a ?o)",
        f":precondition {DEAD_BRANCH.replace('location,', 'location')}",
        "examineobject",
    ),
    "order of parameters": ("?co - object ?ko - object", "?ko - object ?co - object", "sliceobject"),
    "name of a parameter": (
        "(:action look\n    :parameters (?a - agent ?l",
        "(:action look :parameters (?a - agent ?x",
        "look",
    ),
    "effect": ("(isHot ?o) (not (isCool ?o))", "(isHot ?o)", "heatobject"),
    "condition of an effect": ("(when (isOn ?o) (not", "(when (isClean ?o) (not", "toggleobject"),
    "no formula": (":precondition (holds ?a ?o)", ":precondition holds", "examineobject"),
    "predicate": ("(canContain ?rt - rtype ?ot - otype)", "(canContain ?rt - rtype)", "cancontain"),
    "parent of a type": ("rtype otype)", "rtype otype - rtype)", "agent"),
}


@pytest.mark.parametrize("change", DIFFERENT)
def test_what_differs_is_named_with_its_line(change: str) -> None:
    old, new, name = DIFFERENT[change]
    assert DOMAIN.count(old) == 1
    text = DOMAIN.replace(old, new)
    head = re.search(rf"\((:action )?{name}\b", text, re.IGNORECASE) or re.search(r"\(:types", text)
    assert head
    line = text.count("\n", 0, head.start()) + 1
    for _ in range(2):  # a refusal is not remembered as anything else
        with pytest.raises(BadGame, match=rf"^g\.tw-pddl: line {line}: the \w+ {name!r} differs .*those rules"):
            check_domain(text, "g.tw-pddl")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("(define (domain alfred)", "(define (domain blocks)", "line 4: expected (define (domain alfred)"),
        ("(:action help", "(:action dance", "line 160: the action 'dance' is not part"),
        ("(:action help", "(:action look", "line 160: expected a name that was not used before, got 'look'"),
        ("(:action help", "(:action (help)", "line 160: expected a name"),
        ("(:action help\n    :parameters", "(:action help\n    :arguments", "line 160: an action has a name"),
        ("(:action help", "(:constants kitchen) (:action help", "line 160: a section ':constants' is not part"),
        ("(:action help", "word (:action help", "line 160: expected a section"),
        ("(openable ?r - receptacle)", "", "line 4: the predicate 'openable' of ALFWorld's rules is missing"),
        ("(openable ?r - receptacle)", "openable", "line 24: expected a predicate"),
        (
            "(openable ?r - receptacle)",
            "(open) (openable ?r - receptacle)",
            "line 24: the predicate 'open' is not part",
        ),
        ("rtype otype)", "rtype otype person)", "line 8: the type 'person' is not part"),
        ("(:action help", "((:action help", "line 4: the text ends, and this '(' is not closed"),
    ],
)
def test_a_defect_is_named_with_its_line(old: str, new: str, message: str) -> None:
    assert DOMAIN.count(old) == 1
    with pytest.raises(BadGame, match=f"^t: {re.escape(message)}"):
        check_domain(DOMAIN.replace(old, new), "t")


def test_a_missing_action_is_named() -> None:
    start = DOMAIN.index("(:action CoolObject")
    text = DOMAIN[:start] + DOMAIN[DOMAIN.index("; Lamps") :]
    with pytest.raises(BadGame, match="the action 'coolobject' of ALFWorld's rules is missing"):
        check_domain(text, "t")


def test_a_domain_that_was_accepted_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    text = DOMAIN + "; once"
    accepted = check_domain(text, "t")

    def refuse(*args: Any) -> None:
        raise AssertionError("read again")

    monkeypatch.setattr(domain, "parse", refuse)
    assert check_domain(text, "t") == accepted
    with pytest.raises(AssertionError, match="read again"):
        check_domain(text + "; twice", "t")


def test_the_domain_of_the_package_washes_in_basins_only() -> None:
    assert check_domain(DOMAIN, "t").washes_in_sinks
    for only in ("(or (receptacleType ?r SinkBasinType))", "(receptacleType ?r SinkBasinType)"):
        text = DOMAIN.replace("(or (receptacleType ?r SinkType) (receptacleType ?r SinkBasinType))", only)
        assert text != DOMAIN
        rules = check_domain(text, "t")
        assert not rules.washes_in_sinks
        assert rules.actions == check_domain(DOMAIN, "t").actions

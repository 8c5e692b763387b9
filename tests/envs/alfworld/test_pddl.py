"""Problems: what is read, what is refused and on which line, and that writing and reading are inverse."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow.envs.alfworld.domain import Expression, known_domain, parse
from agentgym_flow.envs.alfworld.problem import PDDLProblem, read_problem, write_problem
from agentgym_flow.errors import BadGame

KITCHEN = """\
(define (problem kitchen) ; a small one
(:domain alfred)
(:objects
    Agent1 - agent
    Apple|1 Apple|2 - object
    Fridge|1 - receptacle
    loc|1 loc|2
    - location
    AppleType - otype FridgeType - rtype
)
(:init
    (= (total-cost) 0)
    (= (distance loc|1 loc|2) 12)
    (atLocation agent1 loc|1)
    (receptacleAtLocation Fridge|1 loc|2)
    (receptacleType Fridge|1 FridgeType)
    (objectType Apple|1 AppleType) (objectType Apple|2 AppleType)
    (canContain FridgeType AppleType)
    ; (opened Fridge|1)
    (openable Fridge|1)
    (openable Fridge|1)
)
(:goal (and (exists (?o - object ?r - receptacle)
    (and (inReceptacle ?o ?r) (not (= ?o Apple|2)) (or (isHot ?o) (imply (isCool ?o) (isClean ?o)))))))
(:metric minimize (total-cost))
)
"""


def test_a_problem_is_read_in_lower_case_and_file_order() -> None:
    problem = read_problem(KITCHEN, "kitchen.pddl")
    assert problem.name == "kitchen"
    assert list(problem.objects.items()) == [
        ("agent1", "agent"),
        ("apple|1", "object"),
        ("apple|2", "object"),
        ("fridge|1", "receptacle"),
        ("loc|1", "location"),
        ("loc|2", "location"),
        ("appletype", "otype"),
        ("fridgetype", "rtype"),
    ]
    assert problem.facts == (
        ("atlocation", "agent1", "loc|1"),
        ("receptacleatlocation", "fridge|1", "loc|2"),
        ("receptacletype", "fridge|1", "fridgetype"),
        ("objecttype", "apple|1", "appletype"),
        ("objecttype", "apple|2", "appletype"),
        ("cancontain", "fridgetype", "appletype"),
        ("openable", "fridge|1"),
        ("openable", "fridge|1"),
    )
    condition = ("or", ("ishot", "?o"), ("imply", ("iscool", "?o"), ("isclean", "?o")))
    inner = ("and", ("inreceptacle", "?o", "?r"), ("not", ("=", "?o", "apple|2")), condition)
    assert problem.goal == ("and", ("exists", ("?o", "-", "object", "?r", "-", "receptacle"), inner))


@pytest.mark.parametrize(
    ("text", "node"),
    [
        ("()", ()),
        (" ( A (b\tC)()\n) ", ("a", ("b", "c"), ())),
        ("(a;b)\n c)", ("a", "c")),
        ("(a?b ?C??d)", ("a", "?b", "?c", "?", "?d")),
        ("(a - b,c)", ("a", "-", "b,c")),
        ("(a) ; é (", ("a",)),
    ],
)
def test_lists_are_read_as_fast_downward_reads_them(text: str, node: Expression) -> None:
    assert parse(text, "t") == node


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: expected one list"),
        ("word", "line 1: expected one list"),
        ("\n(a)\n(b)", "line 3: expected one list"),
        ("(a\n))", "line 2: this ')' closes nothing"),
        ("(a ; )\n(b\n(c)", "line 2: the text ends, and this '(' is not closed"),
        ("(a\n é)", "line 2: 'é' is not an ASCII character"),
    ],
)
def test_text_that_is_no_list_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(BadGame, match=f"^game: {re.escape(message)}"):
        parse(text, "game")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("(define (problem kitchen)", "(define (puzzle kitchen)", "line 1: expected (define (problem NAME)"),
        ("(:domain alfred)", "(:domain blocks)", "line 2: expected (:domain alfred)"),
        ("(:domain alfred)", "", "line 1: the section :domain is missing"),
        ("(:init", "(:start", "line 11: unknown section ':start'"),
        ("(:metric", "word (:metric", "line 25: unknown section 'word'"),
        ("(:metric", "() (:metric", "line 25: unknown section ()"),
        ("(:metric minimize", "(:init) (:metric minimize", "line 25: :init comes after :goal"),
        ("(:metric minimize", "(:metric) (:metric minimize", "line 25: :metric comes after :metric"),
        ("Apple|1 Apple|2 -", "Apple|1 Apple|1 -", "line 5: apple|1 is declared twice"),
        ("Apple|1 Apple|2 -", "Apple|1 (Apple|2) -", "line 5: expected the name of an object"),
        ("Apple|1 Apple|2 -", "Apple|1 ?x -", "line 5: expected the name of an object, got '?x'"),
        ("- location", "- place", "line 7: loc|1 has the unknown type 'place'"),
        ("FridgeType - rtype", "FridgeType -", "line 9: fridgetype has the unknown type ''"),
        (
            "(canContain FridgeType AppleType)",
            "(canContain FridgeType)",
            "line 18: cancontain takes 2 argument(s), got 1",
        ),
        ("(canContain FridgeType", "(mayContain FridgeType", "line 18: unknown predicate 'maycontain'"),
        ("(canContain FridgeType", "(canContain PearType", "line 18: 'peartype' is not declared"),
        (
            "(canContain FridgeType",
            "(canContain loc|1",
            "line 18: cancontain takes a rtype here, but loc|1 is a location",
        ),
        ("(canContain FridgeType", "(canContain (FridgeType)", "line 18: a fact is a flat list"),
        ("(canContain FridgeType AppleType)", "(not (opened Fridge|1))", "line 18: a fact is a flat list"),
        ("(canContain FridgeType AppleType)", "()", "line 18: a fact is a flat list"),
        ("(canContain FridgeType AppleType)", "opened", "line 18: a fact is a flat list"),
        ("(:goal (and", "(:goal () (and", "line 23: expected one formula"),
        ("(inReceptacle ?o ?r)", "(inReceptacle ?o ?x)", "line 24: '?x' is neither a variable in scope nor declared"),
        ("(inReceptacle ?o ?r)", "(inReceptacle ?o)", "line 24: 'inreceptacle' is not a predicate with 1 argument(s)"),
        ("(inReceptacle ?o ?r)", "(fly)", "line 24: 'fly' is not a predicate with 0 argument(s)"),
        ("(inReceptacle ?o ?r)", "()", "line 24: expected a formula"),
        ("(inReceptacle ?o ?r)", "true", "line 24: expected a formula"),
        ("(isHot ?o)", "(not)", "line 24: 'not' has a wrong number of parts"),
        ("(imply (isCool ?o) ", "(imply ", "line 24: 'imply' has a wrong number of parts"),
        ("?r - receptacle)", "?r - place)", "line 23: expected variables with known types"),
        ("?r - receptacle)", "r - receptacle)", "line 23: expected variables with known types"),
        ("(= ?o Apple|2)", "(= ?o)", "line 24: '=' is not a predicate with 1 argument(s)"),
    ],
)
def test_a_defect_is_named_with_file_and_line(old: str, new: str, message: str) -> None:
    assert KITCHEN.count(old) == 1
    with pytest.raises(BadGame, match=f"^kitchen.pddl: {re.escape(message)}"):
        read_problem(KITCHEN.replace(old, new), "kitchen.pddl")


def test_everything_is_an_object_for_a_predicate() -> None:
    text = KITCHEN.replace("(openable Fridge|1)\n)", "(objectAtLocation Fridge|1 loc|2)\n)")
    assert read_problem(text, "t").facts[-1] == ("objectatlocation", "fridge|1", "loc|2")


words = st.from_regex(r"[a-z][a-z0-9_|.+]{0,8}", fullmatch=True)


@st.composite
def problems(draw: st.DrawFn) -> PDDLProblem:
    objects = draw(st.dictionaries(words, st.sampled_from(sorted(known_domain()["type"])), max_size=12))
    fitting = {
        predicate: [[name for name, own in objects.items() if kind in ("object", own)] for kind in part.meaning]
        for predicate, part in known_domain()["predicate"].items()
    }
    possible = [predicate for predicate, choices in fitting.items() if all(choices)]
    facts = (
        [
            (predicate, *(draw(st.sampled_from(choices)) for choices in fitting[predicate]))
            for predicate in draw(st.lists(st.sampled_from(possible), max_size=12))
        ]
        if possible
        else []
    )
    atoms = st.sampled_from([("isclean", "?o"), ("inreceptacle", "?o", "?r"), ("=", "?o", "?r")])
    formulas = st.recursive(
        atoms,
        lambda inner: (
            st.tuples(st.just("not"), inner)
            | st.lists(inner, max_size=3).map(lambda parts: ("and", *parts))
            | st.tuples(st.just("exists"), st.just(("?o", "-", "object")), inner)
        ),
        max_leaves=6,
    )
    goal = ("exists", ("?o", "?r", "-", "receptacle"), draw(formulas))
    return PDDLProblem(objects, tuple(facts), goal, draw(words))


@given(problems())
def test_what_is_written_is_read_back(problem: PDDLProblem) -> None:
    text = write_problem(problem)
    again = read_problem(text, "t")
    assert again == problem
    assert list(again.objects) == list(problem.objects)
    assert write_problem(again) == text

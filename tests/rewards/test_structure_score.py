"""Golden numbers of the structure reward in its three readings, and the published defects it must not have."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_canvas import OPERATORS, STRUCTURES, workflow

from agentgym_flow.errors import BadData, BadSetting, UnknownOption
from agentgym_flow.rewards.structure import (
    CHECKER_WEIGHTS,
    EQUAL_WEIGHTS,
    PARTS,
    WEIGHTS,
    StructureScore,
)

UPSTREAM, PAPER = StructureScore("upstream"), StructureScore("paper")
EXECUTED = StructureScore("executed", release="conditional")

EXAMPLE = workflow(
    "Programmer",
    "Verify",
    "Revise",
    "Review",
    "Format",
    structures=("conditional",),
    text="Programmer -> Verify ? Revise : done -> Review -> Format",
)
"""The worked example of the published canvas: five operators, a check, a conditional, a formatter."""


# ---------------------------------------------------------------- golden rows
def test_the_worked_example_earns_minus_a_fifth_upstream_right_or_wrong() -> None:
    """Checker .2, format .2, structure .4; five operators are one too few: -1 + .8, and correctness is withheld."""
    assert UPSTREAM.design(EXAMPLE) == 0.8
    assert UPSTREAM.reward(EXAMPLE, 1.0) == UPSTREAM.reward(EXAMPLE, 0.0) == -0.2
    for score in (PAPER, EXECUTED):  # five are enough, as the finish rule says
        assert (score.reward(EXAMPLE, 0.0), score.reward(EXAMPLE, 0.25), score.reward(EXAMPLE, 1.0)) == (0, 0.25, 1)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ""),
        ("Programmer", ""),
        ("Verify", "c"),
        ("Test -> Format", "cf"),
        ("Plan -> Custom -> Custom -> Custom -> Custom -> Custom", "o"),
        ("Plan -> Custom -> Custom -> Custom -> Custom", ""),
        ("[Custom, Programmer]", "s"),
        ("Review ? Revise : done", "cs"),
        ("(Review -> Revise) * 3", "c"),  # as the graph prints a loop: no structure
        ("(Review -> Revise) x3", "cs"),  # as the reward wants one
        ("(Review -> Revise) x 3", "cs"),
        ("CustomCodeGenerate -> MdEnsemble -> Plan -> Custom -> Revise -> Revise", ""),  # two are not counted
        ("[Custom, Plan] -> Aggregate -> Verify ? done : Revise -> Format", "cfos"),
    ],
)
def test_parts_are_found_where_the_released_code_reads_them(text: str, parts: str) -> None:
    told = UPSTREAM.parts(workflow(text=text))
    assert "".join(name[0] for name, there in told.items() if there) == parts
    expected = sum({"c": 0.2, "f": 0.2, "o": 0.2, "s": 0.4}[part] for part in parts)
    assert UPSTREAM.reward(workflow(text=text), 0.0) == pytest.approx(-1 + expected)
    assert UPSTREAM.reward(workflow(text=text), 1.0) == pytest.approx(-1 + expected + (parts == "cfos"))


@pytest.mark.parametrize("score", [UPSTREAM, PAPER, EXECUTED], ids=lambda score: score.profile)
def test_designs_have_the_eight_published_values(score: StructureScore) -> None:
    found = set()
    for number in range(16):
        checker, formatted, many, structured = (bool(number & bit) for bit in (1, 2, 4, 8))
        names = ["Verify"] * checker + ["Format"] * formatted + ["Plan"] * 6 * many
        text = " -> ".join(names) + (" -> [Plan, Custom]" if structured else "")
        told = workflow(*names, structures=("parallel",) if structured else (), text=text)
        assert [*score.parts(told).values()] == [checker, formatted, many, structured]
        found.add(score.design(told))
    assert found == {0.0, 0.2, 0.4, 0.6, 0.8, 1.0}  # exactly: equal designs must have equal rewards


@pytest.mark.parametrize(
    ("weights", "without_structure", "without_checker"),
    [(WEIGHTS, -0.4, -0.2), (EQUAL_WEIGHTS, -0.25, -0.25), (CHECKER_WEIGHTS, -0.2, -0.4)],
)
def test_weights_of_the_reported_ablations_can_be_set(
    weights: dict[str, float], without_structure: float, without_checker: float
) -> None:
    score = StructureScore(weights=weights, release="conditional")
    names = ("Plan", "Custom", "Verify", "Revise", "Format")
    assert score.reward(workflow(*names), 1.0) == without_structure
    unchecked = tuple("Custom" if name == "Verify" else name for name in names)
    assert score.reward(workflow(*unchecked, structures=("loop",)), 1.0) == without_checker
    assert score.reward(workflow(*names, structures=("loop",)), 0.75) == 0.75


# ---------------------------------------------------------------- the published defects
LOOP = workflow("Plan", "Custom", "Review", "Revise", "Format", structures=("loop",))
LOOP["text"] = "Plan -> Custom -> (Review -> Revise) * 2 -> Format"


def test_loops_are_structures() -> None:
    """Released: the reward looks for `x 3`, and the graph prints `* 3`."""
    assert not UPSTREAM.parts(LOOP)["structure"]
    assert PAPER.reward(LOOP, 1.0) == EXECUTED.reward(LOOP, 1.0) == 1.0


def test_what_did_not_run_or_did_not_matter_is_worth_nothing() -> None:
    """Released: duplicates that were merged, a Test that was dropped, and stages that were cut are all paid."""
    names = ("Plan", "Custom", "Custom", "Custom", "Test", "Format")
    told = workflow(
        *names,
        structures=("parallel",),
        text="Plan -> [Custom, Custom] -> Custom -> Test -> Format",
        ran=("Custom", "Format"),
        needed=("Custom", "Format"),
        needed_structures=(),
    )
    assert UPSTREAM.reward(told, 1.0) == PAPER.reward(told, 1.0) == 1.0
    assert EXECUTED.parts(told) == {"checker": False, "format": True, "operator": False, "structure": False}
    assert EXECUTED.reward(told, 1.0) == -0.8

    unread = dict(EXAMPLE, ablation={"needed": ["Programmer"], "structures": {"conditional": 0}})
    assert EXECUTED.reward(unread, 1.0) == -1.0


def test_an_unfinished_design_is_worth_less() -> None:
    """Released: whether the design was finished has no influence on the reward."""
    unfinished = dict(EXAMPLE, finished=False)
    assert EXECUTED.reward(EXAMPLE, 1.0) - EXECUTED.reward(unfinished, 1.0) == 1.0
    assert PAPER.reward(unfinished, 1.0) == PAPER.reward(EXAMPLE, 1.0) == 1.0
    always = StructureScore(release="always")
    assert always.reward(unfinished, 1.0) == 0.0


# ---------------------------------------------------------------- ablations, cost
def test_diversity_and_conditional_release_can_be_switched_off() -> None:
    poor = workflow("Custom")
    assert EXECUTED.reward(poor, 1.0) == EXECUTED.reward(poor, 0.0) == -1.0
    assert StructureScore(diversity=False).reward(poor, 1.0) == 0.0
    assert StructureScore(diversity=False).reward(EXAMPLE, 0.25) == -0.75
    assert StructureScore(diversity=False).reward(dict(EXAMPLE, finished=False), 1.0) == -1.0
    always = StructureScore(release="always")
    assert (always.reward(poor, 1.0), always.reward(EXAMPLE, 1.0)) == (0.0, 1.0)


def test_a_right_answer_comes_before_the_design() -> None:
    """Where only what was needed counts: a right answer lacks nothing, and a mended mistake is worth no more."""
    score, mended = StructureScore(), workflow("Custom", "Verify", "Revise", structures=("conditional",))
    assert score.release == "answer_first"
    assert score.reward(workflow("Custom"), 1.0) == score.reward(mended, 1.0) == score.reward(EXAMPLE, 1.0) == 1.0
    assert [score.reward(told, 0.0) for told in (workflow("Custom"), mended, EXAMPLE)] == [-1, -0.4, 0]
    assert score.reward(mended, 0.5) == pytest.approx(0.5 * 1.0 + 0.5 * -0.4)


@pytest.mark.parametrize(("of", "units"), [("calls", 5), ("total_calls", 10), ("tokens", 500), ("cost", 2.5)])
def test_costs_are_taken_off_by_the_unit(of: Any, units: float) -> None:
    assert StructureScore(cost_weight=0.01, cost_of=of).reward(EXAMPLE, 1.0) == pytest.approx(1 - 0.01 * units)


def test_checkers_formatter_and_least_size_can_be_set() -> None:
    told = workflow("Solve", "Audit", "Print", structures=("loop",))
    score = StructureScore(checkers=["Audit"], formatter="Print", min_operators=3)
    assert score.reward(told, 1.0) == 1.0
    assert EXECUTED.reward(told, 1.0) == pytest.approx(-0.6)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"profile": "excuted"}, UnknownOption, "Did you mean 'executed'"),
        ({"release": "never"}, UnknownOption, "Known:"),
        ({"cost_of": "money"}, UnknownOption, "Known:"),
        ({"weights": {**WEIGHTS, "formt": 0.2}}, UnknownOption, "Did you mean 'format'"),
        ({"weights": {"checker": 1.0}}, BadSetting, "has no 'format'"),
        ({"weights": {**WEIGHTS, "format": -0.2}}, BadSetting, "at least 0"),
        ({"weights": {**WEIGHTS, "format": math.nan}}, BadSetting, "finite"),
        ({"min_operators": 0}, BadSetting, "min_operators"),
        ({"cost_weight": -1.0}, BadSetting, "cost_weight"),
        ({"cost_weight": math.inf}, BadSetting, "cost_weight"),
        ({"profile": "paper", "cost_weight": 0.1}, BadSetting, "profile executed"),
        ({"checkers": "Verify"}, BadSetting, "list of names"),
        ({"checkers": []}, BadSetting, "list of names"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        StructureScore(**settings)


@pytest.mark.parametrize(("profile", "field"), [("executed", "ablation"), ("paper", "operators"), ("upstream", "text")])
def test_a_missing_field_is_named(profile: Any, field: str) -> None:
    with pytest.raises(BadData, match=repr(field)):
        StructureScore(profile).reward({name: value for name, value in EXAMPLE.items() if name != field}, 0.0)


# ---------------------------------------------------------------- what holds for every workflow
NAMES = st.lists(st.sampled_from([*OPERATORS, "CustomCodeGenerate"]), max_size=9)
KINDS = st.lists(st.sampled_from(STRUCTURES), max_size=3).map(tuple)
CORRECT = st.floats(0, 1)


@given(names=NAMES, kinds=KINDS, text=st.text(), correct=CORRECT, finished=st.booleans())
def test_how_a_workflow_is_written_changes_nothing(
    names: list[str], kinds: tuple[str, ...], text: str, correct: float, finished: bool
) -> None:
    for score in (PAPER, EXECUTED):
        plain = workflow(*names, structures=kinds, finished=finished)
        assert score.reward(dict(plain, text=text), correct) == score.reward(plain, correct)


@given(names=NAMES, kinds=KINDS, correct=CORRECT, finished=st.booleans(), spaces=st.integers(1, 4))
def test_rewards_keep_their_ranges(
    names: list[str], kinds: tuple[str, ...], correct: float, finished: bool, spaces: int
) -> None:
    """A design that lacks something is below 0 and one that lacks nothing is not: the two stages of the curriculum."""
    told = workflow(*names, structures=kinds, finished=finished, text=(" " * spaces).join(names))
    for score in (UPSTREAM, PAPER, EXECUTED):
        whole = all(score.parts(told).values())
        reward = score.reward(told, correct)
        assert (0 <= reward <= 1) if whole else (-1 <= reward < 0)
        assert list(score.parts(told)) == list(PARTS)
        if whole and (finished or score is not EXECUTED):
            assert reward == pytest.approx(correct)


@given(names=NAMES, kinds=KINDS, more=st.sampled_from(OPERATORS), correct=CORRECT)
def test_more_of_what_matters_is_never_worth_less(
    names: list[str], kinds: tuple[str, ...], more: str, correct: float
) -> None:
    for score in (UPSTREAM, PAPER, EXECUTED):
        told, longer = (workflow(*chosen, structures=kinds) for chosen in (names, [*names, more]))
        assert score.reward(longer, correct) >= score.reward(told, correct)

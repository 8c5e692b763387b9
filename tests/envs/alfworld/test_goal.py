"""Goal formulas: the forms that ALFWorld has, and nothing else."""

from types import SimpleNamespace

import pytest

from agentgym_flow.envs.alfworld.problem import TASK_TYPES, read_goal
from agentgym_flow.errors import BadGame


@pytest.mark.parametrize(
    ("conditions", "count", "task_type"),
    [
        ((), 1, "pick_and_place_simple"),
        (("isclean",), 1, "pick_clean_then_place_in_recep"),
        (("ishot",), 1, "pick_heat_then_place_in_recep"),
        (("iscool",), 1, "pick_cool_then_place_in_recep"),
        (("issliced", "iscool"), 1, "pick_cool_then_place_in_recep"),
        ((), 2, "pick_two_obj_and_place"),
    ],
)
def test_goals_of_putting_things_somewhere_have_their_task_type(
    small: SimpleNamespace, conditions: tuple[str, ...], count: int, task_type: str
) -> None:
    goal = read_goal(small.placed("apple", "fridge", *conditions, count=count), "x")
    assert (goal.thing, goal.place, goal.lamp, goal.count) == ("appletype", "fridgetype", None, count)
    assert goal.conditions == frozenset(conditions)
    assert len(goal.traits) == len(conditions)
    assert goal.task_type == task_type


def test_a_thing_to_be_lit_by_a_lamp_is_a_look_goal(small: SimpleNamespace) -> None:
    goal = read_goal(small.lit("mug"), "x")
    assert (goal.thing, goal.place, goal.lamp, goal.count) == ("mugtype", None, "desklamptype", 1)
    assert goal.task_type == "look_at_obj_in_light"


def test_the_six_types_are_in_the_official_order() -> None:
    assert TASK_TYPES.index("look_at_obj_in_light") == 1
    assert TASK_TYPES.index("pick_two_obj_and_place") == 5


@pytest.mark.parametrize(
    "formula",
    [
        ("forall", ("?o", "-", "object"), ("inreceptacle", "?o", "?o")),
        ("exists", ("?r", "-", "receptacle"), ("and", ("opened", "?r"))),
        ("or", ("holds", "agent1", "apple")),
        ("and", ("not", ("holds", "agent1", "apple"))),
        "holds",
        (),
    ],
)
def test_other_goals_are_refused_by_name(formula: object) -> None:
    with pytest.raises(BadGame, match=r"^a\.pddl: the goal "):
        read_goal(formula, "a.pddl")  # type: ignore[arg-type]


def test_a_condition_that_play_could_not_check_is_refused(small: SimpleNamespace) -> None:
    head, variables, inner = small.placed("apple", "fridge")
    goal = (head, variables, (*inner[:2], (*inner[2], ("wasinreceptacle", "?o", "?r"))))
    with pytest.raises(BadGame, match="wasinreceptacle"):
        read_goal(goal, "x")

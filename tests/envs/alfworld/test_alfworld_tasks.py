from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest

from agentgym_flow.core import stable_hash
from agentgym_flow.envs.alfworld.rooms import FAMILIES, errands
from agentgym_flow.envs.alfworld.tasks import (
    MANIFEST,
    is_unseen_pair,
    is_unseen_plan,
    is_valid_layout,
    manifest_digest,
    num_tasks,
    task_errand,
    task_layout,
    task_problem,
    task_type,
)
from agentgym_flow.errors import UnknownSplit, UnknownTask

SPLITS = ("train", "valid", "test")
MENUS = [(kind, room) for kind, family in FAMILIES.items() for room in dict.fromkeys(family.rooms)]


@pytest.mark.parametrize("split", [pytest.param("train", marks=pytest.mark.nightly), "valid", "test"])
def test_the_manifest_is_as_recorded(split: str) -> None:
    assert manifest_digest(split) == MANIFEST[split]


def test_the_splits_have_their_recorded_sizes() -> None:
    assert [num_tasks(split) for split in SPLITS] == [3_553, 500, 500]
    assert list(MANIFEST) == list(SPLITS)


def test_a_pair_of_test_is_never_asked_for_elsewhere() -> None:
    asked = {split: {task_errand(split, task)[2:4] for task in range(num_tasks(split))} for split in SPLITS}
    assert not asked["test"] & (asked["train"] | asked["valid"])
    assert all(is_unseen_pair(*pair) for pair in asked["test"])
    assert not any(is_unseen_pair(*pair) for pair in asked["train"] | asked["valid"])


def test_what_valid_asks_for_is_asked_for_in_train() -> None:
    asked = {split: {task_errand(split, task) for task in range(num_tasks(split))} for split in ("train", "valid")}
    assert asked["valid"] < asked["train"]


@pytest.mark.heavy
def test_no_layout_is_in_two_splits_and_no_room_of_test_in_another() -> None:
    layouts: dict[str, set[str]] = {}
    plans: dict[str, set[str]] = {}
    for split in SPLITS:
        drawn = [task_layout(split, task)[1] for task in range(num_tasks(split))]
        layouts[split] = {layout.digest() for layout in drawn}
        plans[split] = {layout.plan.digest() for layout in drawn}
        assert all(is_unseen_plan(layout.plan) == (split == "test") for layout in drawn)
        assert split == "test" or all(is_valid_layout(layout) == (split == "valid") for layout in drawn)
        assert len(layouts[split]) == num_tasks(split), "no two games of a split are set in the same layout"
    assert not plans["test"] & (plans["train"] | plans["valid"])
    assert not layouts["train"] & layouts["valid"]


@pytest.mark.parametrize(("kind", "room"), MENUS)
def test_every_task_type_has_enough_pairs_on_both_sides(kind: str, room: str) -> None:
    unseen = Counter(is_unseen_pair(thing, place) for thing, places in errands(kind, room).items() for place in places)
    assert unseen[True] >= 10
    assert unseen[False] >= 16
    assert 0.15 < unseen[True] / unseen.total() < 0.45


@pytest.mark.parametrize("split", SPLITS)
def test_the_mix_of_task_types_is_the_official_one(split: str) -> None:
    tolerance = 0.02 if split == "train" else 0.06
    drawn = Counter(task_type(split, task) for task in range(num_tasks(split)))
    assert sum(family.share for family in FAMILIES.values()) == 3_553
    for kind, family in FAMILIES.items():
        assert drawn[kind] / num_tasks(split) == pytest.approx(family.share / 3_553, abs=tolerance)


PRINT_TASKS = """
from agentgym_flow.envs.alfworld.tasks import task_problem
from agentgym_flow.core import stable_hash
for split, task in (("test", 499), ("train", 3552), ("valid", 0)):
    problem, words = task_problem(split, task)
    print(stable_hash([list(problem.objects), problem.facts, problem.goal, words.task]))
"""


def test_every_process_computes_the_same_games() -> None:
    surroundings = {**os.environ, "PYTHONHASHSEED": "12345"}
    command = [sys.executable, "-c", PRINT_TASKS]
    other = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=True)
    expected = ""
    for split, task in (("test", 499), ("train", 3552), ("valid", 0)):
        problem, words = task_problem(split, task)
        expected += stable_hash([list(problem.objects), problem.facts, problem.goal, words.task]) + "\n"
    assert other.stdout == expected


def test_games_do_not_depend_on_each_other_and_are_remembered() -> None:
    task_problem.cache_clear()
    late = task_problem("valid", 40)
    task_problem.cache_clear()
    assert [task_problem("valid", task) for task in range(41)][40] == late
    assert task_problem("valid", 40) is task_problem("valid", 40)
    assert task_problem.cache_info().maxsize == 64


def test_the_parts_of_a_game_belong_together() -> None:
    for split in SPLITS:
        for task in range(0, num_tasks(split), 97):
            errand, _ = task_layout(split, task)
            assert errand == task_errand(split, task)
            assert errand.task_type == task_type(split, task)
            problem, words = task_problem(split, task)
            assert problem.goal == errand.goal()
            assert words.task == errand.sentence
            assert problem.name == f"{split}_{task}"


def test_unknown_splits_and_tasks_are_refused() -> None:
    with pytest.raises(UnknownSplit, match="Did you mean 'train'"):
        task_problem("trian", 0)
    with pytest.raises(UnknownSplit):
        num_tasks("valid_seen")
    for task in (-1, 500):
        with pytest.raises(UnknownTask, match="has the tasks 0 to 499"):
            task_errand("valid", task)

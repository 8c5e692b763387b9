from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from agentgym_flow.envs.alfworld.generator import trajectory_json, trial_folder
from agentgym_flow.envs.alfworld.problem import TASK_TYPES
from agentgym_flow.envs.alfworld.tasks import num_tasks, task_layout, task_problem, task_type


def first_of(kind: str) -> int:
    return next(task for task in range(num_tasks("valid")) if task_type("valid", task) == kind)


def generated(kind: str) -> dict[str, Any]:
    return trajectory_json(*task_layout("valid", first_of(kind)), "trial_7")


def actions(trajectory: dict[str, Any]) -> list[str]:
    steps = [step["discrete_action"]["action"] for step in trajectory["plan"]["high_pddl"]]
    return steps if steps[-1] == "NoOp" else [*steps, "NoOp"]


@pytest.mark.parametrize("kind", TASK_TYPES)
def test_the_parameters_name_what_the_game_is_about(kind: str) -> None:
    errand, layout = task_layout("valid", first_of(kind))
    trajectory = generated(kind)
    assert trajectory["task_type"] == kind
    light = kind == "look_at_obj_in_light"
    assert trajectory["pddl_params"] == {
        "mrecep_target": "",
        "object_sliced": False,
        "object_target": errand.thing,
        "parent_target": "" if light else errand.place,
        "toggle_target": errand.place if light else "",
    }
    assert f"{errand.thing.lower()}type" in str(task_problem("valid", first_of(kind))[0].goal)
    start = trajectory["plan"]["high_pddl"][0]["discrete_action"]["args"][0]
    holding = [
        place for place, things in zip(layout.plan.receptacles, layout.contents, strict=True) if errand.thing in things
    ]
    assert start == holding[0].lower()


@pytest.mark.parametrize("kind", TASK_TYPES)
def test_the_shape_is_that_of_the_official_files(kind: str, sample_data: Path) -> None:
    """Same keys where we have them, same large steps; without what only the pictures need."""
    ours = generated(kind)
    files = sorted((sample_data / "alfworld").glob(f"*/{kind}-*/*/traj_data.json"))
    assert len(files) == 2
    for file in files:
        official = json.loads(file.read_text("utf-8"))
        assert set(official) - set(ours) == {"images", "scene"}
        assert set(ours) <= set(official)
        assert ours["pddl_params"].keys() == official["pddl_params"].keys()
        assert actions(ours) == actions(official)
        assert ours["turk_annotations"]["anns"][0].keys() == official["turk_annotations"]["anns"][0].keys()


@pytest.mark.parametrize("kind", TASK_TYPES)
def test_descriptions_are_sentences_about_the_errand(kind: str) -> None:
    errand, _ = task_layout("valid", first_of(kind))
    trajectory = generated(kind)
    spaced = re.sub("(?<=[a-z])(?=[A-Z])", " ", errand.thing).lower()
    for annotation in trajectory["turk_annotations"]["anns"]:
        assert re.fullmatch(r"[A-Z][a-z ,]+\.", annotation["task_desc"])
        assert spaced in annotation["task_desc"]
        assert len(annotation["high_descs"]) == len(trajectory["plan"]["high_pddl"]) - 1
    assert json.loads(json.dumps(trajectory)) == trajectory


def test_folders_are_named_in_the_official_manner() -> None:
    errand, _ = task_layout("valid", first_of("pick_heat_then_place_in_recep"))
    expected = f"pick_heat_then_place_in_recep-{errand.thing}-None-{errand.place}-kitchen/trial_7"
    assert trial_folder(errand, "trial_7") == expected

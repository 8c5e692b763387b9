"""The `traj_data.json` of a generated game, which official games have next to the game file.

It contains what text games need: the task type and its parameters (for ALFWorld's collector and its handcoded expert),
descriptions in the style of the human annotations, and the high-level plan. It has no scene, images or low-level
actions, because THOR cannot simulate these rooms.
"""

from __future__ import annotations

import re
from typing import Any

from agentgym_flow.envs.alfworld.errands import LIGHT, Errand
from agentgym_flow.envs.alfworld.layout import FurnishedRoom

_STEPS = {
    "GotoLocation": "Walk to the {}.",
    "PickupObject": "Pick up the {}.",
    "CleanObject": "Rinse the {}.",
    "HeatObject": "Heat the {}.",
    "CoolObject": "Chill the {}.",
    "PutObject": "Put the {} down at the {}.",
    "ToggleObject": "Turn on the {}.",
}
_WORD_ENDS = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def trial_folder(errand: Errand, trial: str) -> str:
    """Return the folder of a game below its split, named as in the official data, with the kind of room as scene."""
    return f"{errand.task_type}-{errand.thing}-None-{errand.place}-{errand.room}/{trial}"


def trajectory_json(errand: Errand, layout: FurnishedRoom, trial: str) -> dict[str, Any]:
    """Return the contents of the `traj_data.json` of a generated game.

    Args:
        errand: the errand of the game.
        layout: its furnished room.
        trial: the name of its folder, for example `"trial_train_17"`.
    """
    light = errand.task_type == LIGHT
    steps = _steps(errand, layout)
    described = [
        sentence.format(thing=_spaced(errand.thing), place=_spaced(errand.place))
        for sentence in errand.family.descriptions
    ]
    in_words = [_STEPS[action].format(*map(_spaced, arguments)) for action, arguments in steps]
    plan = [(action, [argument.lower() for argument in arguments]) for action, arguments in steps]
    return {
        "task_id": trial,
        "task_type": errand.task_type,
        "pddl_params": {
            "mrecep_target": "",
            "object_sliced": False,
            "object_target": errand.thing,
            "parent_target": "" if light else errand.place,
            "toggle_target": errand.place if light else "",
        },
        "turk_annotations": {
            "anns": [
                {"assignment_id": f"generated_{number}", "task_desc": text, "high_descs": in_words, "votes": [1]}
                for number, text in enumerate(described)
            ]
        },
        "plan": {
            "high_pddl": [
                {"high_idx": index, "discrete_action": {"action": action, "args": arguments}}
                for index, (action, arguments) in enumerate([*plan, ("NoOp", [])])
            ],
            "low_actions": [],
        },
    }


def _steps(errand: Errand, layout: FurnishedRoom) -> list[tuple[str, list[str]]]:
    """Return the steps of the high-level plan: actions with kinds as arguments."""
    starts = [
        place
        for place, things in zip(layout.plan.receptacles, layout.contents, strict=True)
        for thing in things
        if thing == errand.thing
    ]
    steps: list[tuple[str, list[str]]] = []
    for start in starts[: errand.needed]:
        steps += [("GotoLocation", [start]), ("PickupObject", [errand.thing])]
        if verb := errand.family.verb:
            steps += [("GotoLocation", [errand.family.station]), (f"{verb.capitalize()}Object", [errand.thing])]
        last = (
            ("ToggleObject", [errand.place])
            if errand.task_type == LIGHT
            else ("PutObject", [errand.thing, errand.place])
        )
        steps += [("GotoLocation", [errand.place]), last]
    return steps


def _spaced(kind: str) -> str:
    return _WORD_ENDS.sub(" ", kind).lower()

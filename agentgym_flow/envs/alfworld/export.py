"""Export generated games as files in the layout of the official data, for ALFWorld's own and other tools."""

from __future__ import annotations

import os
from pathlib import Path

from agentgym_flow.envs.alfworld import tasks
from agentgym_flow.envs.alfworld.compiled_game import compile_game
from agentgym_flow.envs.alfworld.expert import shortest_plan
from agentgym_flow.envs.alfworld.game import ALFWorldGame
from agentgym_flow.envs.alfworld.gamefile import write_game
from agentgym_flow.envs.alfworld.official import OFFICIAL_FOLDERS
from agentgym_flow.envs.alfworld.trajectory import trajectory_json, trial_folder


def export_game(folder: str | os.PathLike[str], split: str, task: int) -> Path:
    """Write one generated game, with a walkthrough and its `traj_data.json`; return the path of the game file.

    The path is `folder/SPLIT/TASK/TRIAL/game.tw-pddl`, with the official name of the split.

    Raises:
        UnknownSplit, UnknownTask: the game does not exist.
        OSError: a file cannot be written.
    """
    problem, words = tasks.task_problem(split, task)
    errand, layout = tasks.task_layout(split, task)
    game, walkthrough = ALFWorldGame(compile_game(problem, words)), []
    for move in shortest_plan(game) or ():
        walkthrough.append(game.text(move))
        game.make(move)
    trial = f"trial_{split}_{task:04d}"
    target = Path(folder) / OFFICIAL_FOLDERS[split] / trial_folder(errand, trial)
    return write_game(target, problem, words, walkthrough, True, trajectory_json(errand, layout, trial))

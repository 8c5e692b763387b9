"""The record of finished training, beside the trained weights: a run stopped later is evaluated without training again.

The folder with the trained model gets `made_with.json`, as in a checkpoint, `trained.json` with the number of optimizer
steps and the group that the report shows, and `manifest.json`, which is written last.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from agentgym_flow.episodes import Episode, Group, Turn
from agentgym_flow.training.checkpoints import MADE_WITH, MANIFEST, check_intact, write_json, write_manifest

RECORD = "trained.json"
"""The file beside the trained weights with the steps of training and a group of the last batch."""

NOT_SHOWN = ("prompt_ids", "completion_ids", "logprobs")
"""Fields of a turn that only training needs."""


class Trained(NamedTuple):
    """Finished training: the number of optimizer steps, and a group of the last batch for the report."""

    steps: int
    group: Group


def record_trained(folder: Path, done: Trained, made_with: Mapping[str, Any]) -> None:
    """Write the record of finished training and a manifest into the folder of the trained model.

    `made_with` describes settings, model and environment of the run.
    """
    episodes = [asdict(episode) for episode in done.group]
    for turn in (turn for episode in episodes for turn in episode["turns"]):
        for name in NOT_SHOWN:
            del turn[name]
    write_json(folder / MADE_WITH, made_with)
    write_json(folder / RECORD, {"steps": done.steps, "group": episodes})
    write_manifest(folder)


def read_trained(folder: Path) -> Trained | None:
    """Return the record of finished training, or None if training is not finished.

    Raises `BadData` if a file of the folder is damaged.
    """
    if not (folder / MANIFEST).exists():
        return None
    check_intact(folder)
    recorded = json.loads((folder / RECORD).read_text("utf-8"))
    episodes = [{**episode, "turns": [Turn(**turn) for turn in episode["turns"]]} for episode in recorded["group"]]
    return Trained(recorded["steps"], Group([Episode(**episode) for episode in episodes]))

"""Checkpoints that a run resumes from: complete or not there, the last few kept, refused by runs they do not fit.

A checkpoint is a folder `checkpoint-STEP` in the output folder: what the Hugging Face trainer saves (weights,
optimizer, schedule, random states, progress), `unlogged_RANK.json` with what each process had measured since the last
log, and `made_with.json` with the settings, model and environment it belongs to. It is written under another name and
renamed when all processes are done, so a killed run leaves whole checkpoints only.

Checkpoints are taken between batches: the episodes of a half-used batch are not kept.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from agentgym_flow.errors import BadSetting
from agentgym_flow.files import whole
from agentgym_flow.seeding import stable_hash

if TYPE_CHECKING:
    from transformers import PreTrainedModel

STEP_FOLDER = "checkpoint-{}"
"""The name of a checkpoint; Hugging Face's own."""

PARTIAL = "checkpoints.partial"
"""The folder in which a checkpoint is written; a leftover of a killed run is removed with the next one."""

UNLOGGED = "unlogged_{}.json"
"""The file for what one process has measured since the last log."""

MADE_WITH = "made_with.json"
"""The file that says which run a checkpoint belongs to."""

TASK_REPLAY = "task_replay.json"
"""The file that says which tasks wait for a replay, where tasks are replayed."""

_STATE = "trainer_state.json"


class Progress(NamedTuple):
    """How far a checkpoint is: optimizer steps done, and epochs of the training tasks."""

    step: int
    epoch: float


def progress_of(checkpoint: Path) -> Progress:
    """Return how far a checkpoint is. Raises `BadSetting` when the folder is not a checkpoint."""
    try:
        state = json.loads((checkpoint / _STATE).read_text("utf-8"))
        return Progress(int(state["global_step"]), float(state["epoch"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadSetting(f"resume: {checkpoint} is not a checkpoint that training can go on from ({error})") from error


def checkpoints(output: Path) -> list[Path]:
    """Return the checkpoints in an output folder, oldest first."""
    found = []
    for path in output.glob(STEP_FOLDER.format("*")):
        match = re.fullmatch(STEP_FOLDER.format(r"(\d+)"), path.name)
        if match:
            found.append((int(match[1]), path))
    return [path for _, path in sorted(found)]


def keep_last(output: Path, written: Path, limit: int | None) -> None:
    """Give the checkpoint `written` its place in `output`, then remove all but the last `limit` (None keeps all)."""
    for file in written.rglob("*"):
        if file.is_file():
            with file.open("rb") as opened:
                os.fsync(opened.fileno())
    place = output / written.name
    shutil.rmtree(place, ignore_errors=True)
    written.rename(place)
    shutil.rmtree(output / PARTIAL, ignore_errors=True)
    for old in checkpoints(output)[: -limit if limit else 0]:
        shutil.rmtree(old)


def model_outline(model: PreTrainedModel) -> str:
    """Return a line that tells models of different shapes apart, whatever their weights."""
    # ZeRO-3 leaves empty tensors behind and the shape beside them.
    shapes = [[name, list(getattr(p, "ds_shape", p.shape))] for name, p in model.named_parameters()]
    size = sum(math.prod(shape) for _, shape in shapes)
    return f"{type(model).__name__}, {size} parameters, {stable_hash(shapes)[:12]}"


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Write plain data; what JSON does not know becomes text."""
    with whole(path) as partial:
        partial.write_text(json.dumps(dict(data), indent=1, default=str) + "\n", "utf-8")


def check_made_with(checkpoint: Path, run: Mapping[str, Any]) -> None:
    """Raise `BadSetting` naming the first entry in which a checkpoint's run differs from `run`."""
    try:
        made_with = json.loads((checkpoint / MADE_WITH).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise BadSetting(f"resume: {checkpoint} does not say what it was made with ({error})") from error
    check_same(checkpoint, made_with, run)


def check_same(place: Path, made_with: Mapping[str, Any], run: Mapping[str, Any]) -> None:
    """Raise `BadSetting` naming the first entry in which `made_with`, found at `place`, differs from `run`."""
    now = json.loads(json.dumps(dict(run), default=str))
    for name in [*now, *(name for name in made_with if name not in now)]:
        if made_with.get(name) != now.get(name):
            raise BadSetting(
                f"resume: {place} was made with {name}={made_with.get(name)!r}, and this run has {now.get(name)!r}: "
                "give it the same, or start a new run"
            )

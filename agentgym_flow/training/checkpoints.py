"""Checkpoints that a run resumes from: complete or not there, the last few kept, refused by runs they do not fit.

A checkpoint is a folder `checkpoint-STEP` in the output folder: what the Hugging Face trainer saves (weights,
optimizer, schedule, random states, progress), `unlogged_RANK.json` with what each process had measured since the last
log, `made_with.json` with the settings, model and environment it belongs to, and `manifest.json` with the size and
SHA-256 of every other file. It is written under another name and renamed when all processes are done, so a killed run
leaves complete checkpoints only. The manifest finds what a disk, a copy or a quota has damaged since: a run resumes
from the last checkpoint that is intact.

Checkpoints are taken between batches: the episodes of a half-used batch are not kept.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from safetensors import SafetensorError

from agentgym_flow._util.files import whole
from agentgym_flow.errors import AgentGymFlowError, BadData, BadSetting, TrainingFailed
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

SOURCE = "group_source.json"
"""The file with the state of the source of groups: which tasks come next."""

MANIFEST = "manifest.json"
"""The file that lists the other files of a checkpoint, with size and SHA-256."""

_STATE = "trainer_state.json"


class CheckpointProgress(NamedTuple):
    """How far a checkpoint is: optimizer steps done, and epochs of the training tasks."""

    step: int
    epoch: float


def progress_of(checkpoint: Path) -> CheckpointProgress:
    """Return how far a checkpoint is. Raises `BadSetting` when the folder is not a checkpoint."""
    try:
        state = json.loads((checkpoint / _STATE).read_text("utf-8"))
        return CheckpointProgress(int(state["global_step"]), float(state["epoch"]))
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
    """Give the checkpoint `written` its manifest and its place in `output`, then remove all but the last `limit`.

    With None for `limit` all are kept.
    """
    write_manifest(written)
    for file in _files(written):
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
    place = output / written.name
    shutil.rmtree(place, ignore_errors=True)
    written.rename(place)
    shutil.rmtree(output / PARTIAL, ignore_errors=True)
    for old in checkpoints(output)[: -limit if limit else 0]:
        shutil.rmtree(old)


# ---------------------------------------------------------------- intact or not
def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _fingerprint(file: Path) -> dict[str, Any]:
    with file.open("rb") as opened:
        return {"bytes": file.stat().st_size, "sha256": hashlib.file_digest(opened, "sha256").hexdigest()}


def write_manifest(folder: Path) -> None:
    """Write the manifest of a folder: size and SHA-256 of every file in it."""
    write_json(
        folder / MANIFEST,
        {file.relative_to(folder).as_posix(): _fingerprint(file) for file in _files(folder) if file.name != MANIFEST},
    )


def check_intact(folder: Path) -> None:
    """Raise `BadData` naming the first file that is missing or is not what the manifest of `folder` says."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text("utf-8"))
        for name, expected in manifest.items():
            file = folder / name
            size, digest = expected["bytes"], expected["sha256"]
            if file.stat().st_size != size:
                raise BadData(f"{file} is damaged: it has {file.stat().st_size} bytes instead of {size}")
            if _fingerprint(file)["sha256"] != digest:
                raise BadData(f"{file} is damaged: its SHA-256 is not the one in {MANIFEST}")
    except FileNotFoundError as error:
        raise BadData(f"{error.filename} is missing") from error
    except OSError as error:
        raise BadData(f"{error.filename} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, BadData):
            raise
        raise BadData(f"{folder / MANIFEST} is damaged: {error}") from error


def last_intact(output: Path) -> tuple[Path | None, list[str]]:
    """Return the last intact checkpoint of a run, and what is wrong with each later one; None without checkpoints.

    Raises `BadData` when there are checkpoints and none of them is intact.
    """
    problems: list[str] = []
    for checkpoint in reversed(checkpoints(output)):
        try:
            check_intact(checkpoint)
        except BadData as error:
            problems.append(str(error))
        else:
            return checkpoint, problems
    if problems:
        raise BadData(
            f"resume: no checkpoint in {output} is intact ({'; '.join(problems)}): restore one from a copy, or remove "
            "them all to train from the beginning"
        )
    return None, []


def _unwritten(partial: Path, error: Exception) -> str:
    """Return what could not be written: the library names no file, and the last one begun is the one."""
    if isinstance(error, SafetensorError):  # writes elsewhere first
        return "the weights"
    newest = max(_files(partial), key=lambda file: file.stat().st_mtime_ns, default=partial)
    return newest.name


@contextmanager
def writing(folder: Path, partial: Path) -> Iterator[None]:
    """Within, `folder` is written under the name `partial`; if that fails, `partial` is removed to make room again.

    Raises `TrainingFailed` for every error of the disk. PyTorch and safetensors report a full disk without naming the
    file, and as `RuntimeError` and `SafetensorError`.
    """
    try:
        yield
    except AgentGymFlowError:
        raise
    except (OSError, RuntimeError, SafetensorError) as error:
        place = f"{folder}: {_unwritten(partial, error)}" if partial.is_dir() else str(folder)
        free = shutil.disk_usage(folder.parent).free / 1e6
        shutil.rmtree(partial, ignore_errors=True)
        full = "the disk is full."
        why = full if free < 1 else f"{free:,.0f} MB are free, so perhaps a quota or a limit on file sizes was reached."
        reason = str(error).partition("\n")[0]
        raise TrainingFailed(
            f"{place} cannot be written ({reason}): {why} Make room, and go on with resume; what was saved before is "
            "intact"
        ) from error


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

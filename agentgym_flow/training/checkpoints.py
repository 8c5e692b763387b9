"""Checkpoints for resuming a run: atomic, verified, limited in number, and checked against the run that loads them.

A checkpoint is a folder `checkpoint-STEP` in the output folder: what the Hugging Face trainer saves (weights,
optimizer, schedule, random states, progress), `unlogged_RANK.json` with the metrics of each process since the last log,
`made_with.json` with the settings, model and environment of its run, and `manifest.json` with the size and SHA-256 of
every other file. It is written under another name and renamed when all processes are done, so a killed run leaves only
complete checkpoints. The manifest reveals later damage by a disk, a copy or a quota: a run resumes from the last intact
checkpoint.

Checkpoints are taken between batches, because the episodes of a half-used batch are not saved.
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

from agentgym_flow._util.files import write_atomically
from agentgym_flow.core import stable_hash
from agentgym_flow.errors import AgentGymFlowError, BadData, BadSetting, TrainingFailed

if TYPE_CHECKING:
    from transformers import PreTrainedModel

STEP_FOLDER = "checkpoint-{}"
"""The name of a checkpoint, as in Hugging Face's trainer."""

PARTIAL = "checkpoints.partial"
"""The folder in which a checkpoint is written. One left by a killed run is removed with the next checkpoint."""

UNLOGGED = "unlogged_{}.json"
"""The file with the metrics of one process since the last log."""

MADE_WITH = "made_with.json"
"""The file with the settings, model and environment of a checkpoint's run."""

SOURCE = "group_source.json"
"""The file with the state of the source of groups."""

MANIFEST = "manifest.json"
"""The file with the size and SHA-256 of the other files."""

_STATE = "trainer_state.json"


class CheckpointProgress(NamedTuple):
    """The progress of a checkpoint: optimizer steps, and epochs of the training tasks."""

    step: int
    epoch: float


def progress_of(checkpoint: Path) -> CheckpointProgress:
    """Return the progress of a checkpoint. Raises `BadSetting` if the folder is not a checkpoint."""
    try:
        state = json.loads((checkpoint / _STATE).read_text("utf-8"))
        return CheckpointProgress(int(state["global_step"]), float(state["epoch"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadSetting(f"resume: {checkpoint} is not a checkpoint that can be resumed ({error})") from error


def checkpoints(output: Path) -> list[Path]:
    """Return the checkpoints in an output folder, oldest first."""
    found = []
    for path in output.glob(STEP_FOLDER.format("*")):
        match = re.fullmatch(STEP_FOLDER.format(r"(\d+)"), path.name)
        if match:
            found.append((int(match[1]), path))
    return [path for _, path in sorted(found)]


def keep_last(output: Path, written: Path, limit: int | None) -> None:
    """Add a manifest to the checkpoint `written`, move it to `output`, and remove all but the last `limit` checkpoints.

    None for `limit` keeps all.
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


# ---------------------------------------------------------------- integrity
def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _fingerprint(file: Path) -> dict[str, Any]:
    with file.open("rb") as opened:
        return {"bytes": file.stat().st_size, "sha256": hashlib.file_digest(opened, "sha256").hexdigest()}


def write_manifest(folder: Path) -> None:
    """Write the manifest of a folder, with the size and SHA-256 of every file."""
    write_json(
        folder / MANIFEST,
        {file.relative_to(folder).as_posix(): _fingerprint(file) for file in _files(folder) if file.name != MANIFEST},
    )


def check_intact(folder: Path) -> None:
    """Raise `BadData` naming the first file of `folder` that is missing or differs from the manifest."""
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

    Raises `BadData` if there are checkpoints and all are damaged.
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


def _failed_file(partial: Path, error: Exception) -> str:
    """Return which file could not be written: the newest one, because the libraries do not name it."""
    if isinstance(error, SafetensorError):  # it writes to a temporary file first
        return "the weights"
    newest = max(_files(partial), key=lambda file: file.stat().st_mtime_ns, default=partial)
    return newest.name


@contextmanager
def writing(folder: Path, partial: Path) -> Iterator[None]:
    """Convert errors while `folder` is written under the name `partial`, which is removed to free space.

    Raises `TrainingFailed` for every disk error. PyTorch and safetensors report a full disk as `RuntimeError` and
    `SafetensorError`, without a file name.
    """
    try:
        yield
    except AgentGymFlowError:
        raise
    except (OSError, RuntimeError, SafetensorError) as error:
        place = f"{folder}: {_failed_file(partial, error)}" if partial.is_dir() else str(folder)
        free = shutil.disk_usage(folder.parent).free / 1e6
        shutil.rmtree(partial, ignore_errors=True)
        full = "the disk is full."
        why = full if free < 1 else f"{free:,.0f} MB are free, so perhaps a quota or a limit on file sizes was reached."
        reason = str(error).partition("\n")[0]
        raise TrainingFailed(
            f"{place} cannot be written ({reason}): {why} Free some space, and resume; files saved before are intact"
        ) from error


def model_outline(model: PreTrainedModel) -> str:
    """Return a line that identifies the shape of a model, whatever its weights."""
    # ZeRO-3 replaces tensors by empty ones with the original shape in an attribute.
    shapes = [[name, list(getattr(p, "ds_shape", p.shape))] for name, p in model.named_parameters()]
    size = sum(math.prod(shape) for _, shape in shapes)
    return f"{type(model).__name__}, {size} parameters, {stable_hash(shapes)[:12]}"


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Write plain data as JSON; other types become text."""
    with write_atomically(path) as partial:
        partial.write_text(json.dumps(dict(data), indent=1, default=str) + "\n", "utf-8")


def check_made_with(checkpoint: Path, run: Mapping[str, Any]) -> None:
    """Raise `BadSetting` naming the first entry in which a checkpoint's run differs from `run`."""
    try:
        made_with = json.loads((checkpoint / MADE_WITH).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise BadSetting(f"resume: {checkpoint} has no readable {MADE_WITH} ({error})") from error
    check_same(checkpoint, made_with, run)


def check_same(place: Path, made_with: Mapping[str, Any], run: Mapping[str, Any]) -> None:
    """Raise `BadSetting` naming the first entry in which `made_with`, found at `place`, differs from `run`."""
    now = json.loads(json.dumps(dict(run), default=str))
    for name in [*now, *(name for name in made_with if name not in now)]:
        if made_with.get(name) != now.get(name):
            raise BadSetting(
                f"resume: {place} was made with {name}={made_with.get(name)!r}, but this run has {now.get(name)!r}: "
                "use the same value, or start a new run"
            )

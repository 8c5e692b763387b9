"""What a run leaves on disk: its folder, checkpoints to resume from, and the record of finished training.

A checkpoint is a folder `checkpoint-STEP` in the output folder: what the Hugging Face trainer saves (weights,
optimizer, schedule, random states, progress), `unlogged_RANK.json` with the metrics of each process since the last log,
`made_with.json` with the settings, model and environment of its run, and `manifest.json` with the size and SHA-256 of
every other file. It is written under another name and renamed when all processes are done, so a killed run leaves only
complete checkpoints. The manifest reveals later damage by a disk, a copy or a quota: a run resumes from the last intact
checkpoint. Checkpoints are taken between batches, because the episodes of a half-used batch are not saved.

A run that is stopped after training is evaluated without training again: the folder with the trained model gets
`made_with.json`, as in a checkpoint, `trained.json` with the number of optimizer steps and the group that the report
shows, and `manifest.json`, which is written last.
"""

from __future__ import annotations

import glob
import hashlib
import json
import math
import os
import re
import shutil
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from safetensors import SafetensorError

from agentgym_flow._util.files import write_atomically
from agentgym_flow._util.signals import signals_go_to
from agentgym_flow.core import stable_hash
from agentgym_flow.episodes import Episode, Group
from agentgym_flow.errors import AgentGymFlowError, BadData, BadSetting, OtherProcessFailed, TrainingFailed

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# ---------------------------------------------------------------- the folder
CONFIG = "config.yaml"
"""The file of a run folder with the settings."""

SUMMARY = "summary.json"
"""The file of a run folder with the status and results of the run."""

VOCABULARY = "vocabulary.json"
"""The file of a run folder with a vocabulary collected by play, for the tiny policy."""

OF_THE_START = frozenset({CONFIG, SUMMARY, VOCABULARY, "weights", "dataflow.yaml", "dataflow"})
"""What a run folder holds before any work. A run that a wrong setting ends there leaves no folder."""

RUNNING, FINISHED = "running", "finished"
"""The status of a run that is running or was killed, and of a finished one."""


class RunFolder:
    """The folder of one run: the given path, or with the suffix `-2`, `-3`, ... if it is taken.

    The `status` in `summary.json` is always up to date: `running`, `finished`, `interrupted` or `failed`. Every file
    except the metrics file, which grows, is written atomically. A new run with a wrong setting that is found
    before any work leaves no folder.

    Args:
        wanted: the path.
        resume: open the folder of a killed or interrupted run, at exactly this path.

    Raises:
        BadSetting: the run to resume does not exist or is finished.
    """

    def __init__(self, wanted: str | Path, *, resume: bool = False) -> None:
        wanted = path = Path(wanted)
        if resume:
            _check_unfinished(path)
        number = 2
        while not resume and path.exists() and (not path.is_dir() or any(path.iterdir())):
            path = wanted.with_name(f"{wanted.name}-{number}")
            number += 1
        path.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._is_new = not resume
        self.metrics = path / "metrics.jsonl"
        self.config = path / CONFIG
        self.report = path / "report.html"
        self.curve = path / "learning_curve.png"
        self.evaluations = path / "evaluations"
        self.checkpoint = path / "checkpoint"
        self.warm_start = path / "warm_start"
        self.weights = path / "weights"  # for transfer to a generator
        self.vocabulary = path / VOCABULARY
        self.summarise(RUNNING)

    def summarise(self, status: str, results: Mapping[str, Any] | None = None) -> None:
        """Write `summary.json`: the status, and results."""
        text = json.dumps({"status": status, **(results or {})}, indent=1, allow_nan=False)
        with write_atomically(self.path / SUMMARY) as partial, partial.open("w", encoding="utf-8") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())  # or a power failure could leave an empty file

    def contents(self) -> dict[str, Path]:
        """Return the files and folders to show the user, by name."""
        return {
            "Page to open": self.report,
            "Learning curve": self.curve,
            "Metrics": self.metrics,
            "Episode logs": self.evaluations,
            "Checkpoint": self.checkpoint,
            "Settings": self.config,
        }

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Record in the summary if the run is interrupted or fails; the exception propagates.

        The folder of a failed start is removed. If another process failed first, that process records the reason.
        """
        try:
            yield
        except OtherProcessFailed:
            raise
        except KeyboardInterrupt:
            self._end("interrupted")
            raise
        except BaseException as error:
            self._end("failed", {"error": f"{type(error).__name__}: {error}"})
            wrong_setting = isinstance(error, ValueError | ImportError | OSError)  # not what may be resumed
            if wrong_setting and self._is_new and {path.name for path in self.path.glob("*")} <= OF_THE_START:
                shutil.rmtree(self.path, ignore_errors=True)
            raise

    def _end(self, status: str, results: Mapping[str, Any] | None = None) -> None:
        # A full disk must not hide the exception that ended the run.
        with signals_go_to(signal.SIG_IGN), suppress(OSError):
            if _status(self.path) == RUNNING:
                self.summarise(status, results)


def _check_unfinished(path: Path) -> None:
    if is_finished(path):
        raise BadSetting(f"resume: the run in {path} is finished: leave resume out for a new run")


def is_finished(path: Path) -> bool:
    """Return whether the run in a folder is finished. Raises `BadSetting` if there is no run."""
    try:
        return _status(path) == FINISHED
    except OSError as error:
        raise BadSetting(f"resume: {path} has no run ({error})") from error


def _status(path: Path) -> str:
    """Return the status of a run. A damaged summary is one that a crash cut short, so the run counts as running."""
    text = (path / SUMMARY).read_text("utf-8", errors="replace")
    try:
        return str(json.loads(text)["status"])
    except (ValueError, KeyError, TypeError):
        return RUNNING


def last_run(wanted: str | Path) -> Path:
    """Return the last of the run folders `wanted`, `wanted-2`, ... Raises `BadSetting` if there is none."""
    wanted = Path(wanted)
    numbered = {1: wanted} if wanted.is_dir() else {}
    for path in wanted.parent.glob(f"{glob.escape(wanted.name)}-*"):
        number = path.name.removeprefix(f"{wanted.name}-")
        if number.isdecimal() and path.is_dir():
            numbered[int(number)] = path
    if not numbered:
        raise BadSetting(f"resume: there is no run at output_dir {wanted} yet: leave resume out, or name its folder")
    return numbered[max(numbered)]


# ---------------------------------------------------------------- checkpoints
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


def check_made_with(checkpoint: Path, run: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """Raise `BadSetting` naming the first entry in which a checkpoint's run differs from `run`, see `check_same`."""
    try:
        made_with = json.loads((checkpoint / MADE_WITH).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise BadSetting(f"resume: {checkpoint} has no readable {MADE_WITH} ({error})") from error
    check_same(checkpoint, made_with, run, defaults)


def check_same(place: Path, made_with: Mapping[str, Any], run: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """Raise `BadSetting` naming the first entry in which `made_with`, found at `place`, differs from `run`.

    A setting that `made_with` lacks, or an entry of one that is a mapping, counts as its default: the version that
    wrote it did not have this setting.
    """
    now, usual = (json.loads(json.dumps(dict(settings), default=str)) for settings in (run, defaults))
    for name in [*now, *(name for name in made_with if name not in now)]:
        before = made_with.get(name, usual.get(name))
        if isinstance(before, dict) and isinstance(usual.get(name), dict):
            before = {**usual[name], **before}
        if before != now.get(name):
            raise BadSetting(
                f"resume: {place} was made with {name}={before!r}, but this run has {now.get(name)!r}: "
                "use the same value, or start a new run"
            )


# ---------------------------------------------------------------- finished training
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
    episodes = [episode.as_dict() for episode in done.group]
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
    return Trained(recorded["steps"], Group([Episode.from_dict(episode) for episode in recorded["group"]]))

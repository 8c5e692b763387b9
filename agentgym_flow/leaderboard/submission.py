"""A submission: a folder with `submission.yaml`, an episode log, a README, and optionally the weights of a policy.

Submissions are untrusted. Only files with known names and limited size are read; nothing is imported or run.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Self

from agentgym_flow.errors import BadSubmission, MissingExtra
from agentgym_flow.leaderboard import schemas
from agentgym_flow.prompts import TURN

SCHEMA = "agentgym_flow.submission/1"
"""The `schema` of a `submission.yaml`."""

ABOUT, LOG, README = "submission.yaml", "episodes.jsonl.gz", "README.md"

SOURCE = "source.py"
"""The source file of the training. The site shows it; it is never run."""

TRAINING = "training.yaml"
"""The settings of the training, for tracks on which CI runs it."""

WEIGHTS, MODEL_CONFIG = "policy/model.safetensors", "policy/config.json"

MOST_BYTES: Mapping[str, int] = {
    ABOUT: 1 << 14,
    LOG: 20 << 20,
    README: 1 << 16,
    SOURCE: 1 << 18,
    TRAINING: 1 << 14,
    WEIGHTS: 20 << 20,
    MODEL_CONFIG: 1 << 14,
}
"""The files of a submission, and their largest sizes in bytes."""

REPRODUCED, ATTESTED, REPLAYED = BADGES = ("reproduced", "attested", "replayed")
"""The badges, each for another kind of proof."""


@dataclass(frozen=True, slots=True)
class Submission:
    """The content of a `submission.yaml`. The fields are those of its schema, `submission-1.json`.

    Attributes:
        schema: `SCHEMA`.
        track: the name of the track.
        name: the name of the entry, in lower case with hyphens.
        date: year-month-day.
        badge: one of `BADGES`.
        prompt: the prompt template.
        title: one line for the board.
        authors: the authors.
        command: the command that was run.
        training: the environments and data that the policy was trained on.
        link: a link to more information; empty if there is none.
        model: name, number of parameters and URL of the model.
        sampling: the temperature, and whether the most likely token is chosen.
        layout: the prompt layout of submitted weights, `turn` or `conversation`.
    """

    schema: str
    track: str
    name: str
    date: str
    badge: str
    prompt: str
    title: str
    authors: list[str]
    command: str
    training: dict[str, Any]
    link: str = ""
    model: dict[str, Any] = field(default_factory=dict)
    sampling: dict[str, Any] = field(default_factory=dict)
    layout: str = TURN

    @property
    def id(self) -> str:
        """The name of its folder."""
        return f"{self.date}-{self.name}"

    @classmethod
    def parse(cls, text: bytes) -> Self:
        """Return the submission described by a `submission.yaml`. Raises `BadSubmission`."""
        value = plain_yaml(text, ABOUT)
        schemas.check("submission-1", value, BadSubmission, ABOUT)
        submission = cls(**value)
        try:
            date.fromisoformat(submission.date)
        except ValueError:
            raise BadSubmission(f"{ABOUT}: date: there is no day {submission.date}") from None
        return submission


@dataclass(frozen=True, slots=True)
class Folder:
    """A submission with its files.

    Attributes:
        about: the content of `submission.yaml`.
        path: the folder.
        names: the names of its files.
        digest: one SHA-256 of all files.
    """

    about: Submission
    path: Path
    names: tuple[str, ...]
    digest: str

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the submission in a folder.

        Raises `BadSubmission` if a file is missing, unknown, too large, not a plain file or invalid.
        """
        names = _files(path)
        for needed in (ABOUT, LOG, README):
            if needed not in names:
                raise BadSubmission(f"{needed} is missing: a submission has {', '.join((ABOUT, LOG, README))}")
        about = Submission.parse((path / ABOUT).read_bytes())
        weights = {WEIGHTS, MODEL_CONFIG} & set(names)
        if about.badge == REPRODUCED and (bool(weights) == (TRAINING in names) or len(weights) == 1):
            raise BadSubmission(
                f"badge: {REPRODUCED} needs {MODEL_CONFIG} and {WEIGHTS}, or {TRAINING}; else apply for {REPLAYED}"
            )
        if about.badge != REPRODUCED and (weights or TRAINING in names):
            raise BadSubmission(f"policy: only a submission for the badge {REPRODUCED} has weights; leave them out")
        whole = hashlib.sha256()
        for name in names:
            whole.update(f"{hashlib.sha256((path / name).read_bytes()).hexdigest()}  {name}\n".encode("ascii"))
        return cls(about, path, names, whole.hexdigest())


def check_place(place: tuple[str, str], about: Submission) -> None:
    """Raise `BadSubmission` unless the folder matches its `submission.yaml`: `<track>/<date>-<name>`."""
    if place != (about.track, about.id):
        raise BadSubmission(f"{ABOUT} says {about.track}/{about.id}, and the folder is {place[0]}/{place[1]}")


def _files(path: Path) -> tuple[str, ...]:
    """Return the names of the files in a folder, in order. Raises `BadSubmission`."""
    found = []
    for folder, folders, files in os.walk(path, followlinks=False):
        for name in [*folders, *files]:
            file = Path(folder, name)
            relative = file.relative_to(path).as_posix()
            state = file.lstat()
            if stat.S_ISDIR(state.st_mode) and relative == "policy":
                continue
            limit = MOST_BYTES.get(relative)
            if limit is None:
                raise BadSubmission(
                    f"{relative!r:.80} is not a file of a submission. A submission has {', '.join(MOST_BYTES)}"
                )
            if not stat.S_ISREG(state.st_mode):
                raise BadSubmission(f"{relative} must be a plain file, not a link or a device")
            if state.st_size > limit:
                raise BadSubmission(f"{relative} has {state.st_size:,} bytes, more than {limit:,}")
            found.append(relative)
    return tuple(sorted(found))


def plain_yaml(raw: bytes, where: str) -> Any:
    """Return the value of a YAML text. Tags, anchors, aliases and repeated keys are not allowed.

    Raises `BadSubmission` with a message that starts with `where`.
    """
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingExtra.of("PyYAML", "leaderboard") from error
    try:
        text = raw.decode("utf-8")
        depth = 0
        for token in yaml.scan(text, Loader=yaml.SafeLoader):  # stops early, because deep nesting takes quadratic time
            name = type(token).__name__
            depth += name.endswith("StartToken") - name.endswith("EndToken")
            if depth > 2 * _MOST_DEEP:
                raise BadSubmission(f"{where} line {token.start_mark.line + 1}: nested more than {_MOST_DEEP} deep")
            if isinstance(token, yaml.AnchorToken | yaml.AliasToken | yaml.TagToken | yaml.DirectiveToken):
                raise BadSubmission(
                    f"{where} line {token.start_mark.line + 1}: anchors, aliases and tags are forbidden"
                )
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        return None if node is None else _value(node, 0, where)
    except UnicodeDecodeError as error:
        raise BadSubmission(f"{where}: byte {error.start} is not UTF-8") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        if isinstance(error, BadSubmission):
            raise
        raise BadSubmission(f"{where}: not valid YAML ({' '.join(str(error).split()):.200})") from None


def _value(node: Any, depth: int, where: str) -> Any:
    """Return the value of a YAML node. Numbers, true, false and null are read as in JSON, all other scalars as text."""
    line = node.start_mark.line + 1
    if depth > _MOST_DEEP:
        raise BadSubmission(f"{where} line {line}: nested more than {_MOST_DEEP} deep")
    if node.id == "mapping":
        pairs = [(str(key.value), _value(value, depth + 1, where)) for key, value in node.value]
        if len(dict(pairs)) != len(pairs):
            raise BadSubmission(f"{where} line {line}: a name occurs twice")
        return dict(pairs)
    if node.id == "sequence":
        return [_value(item, depth + 1, where) for item in node.value]
    if node.style is None and node.value in _WORDS:
        return _WORDS[node.value]
    if node.style is None and _NUMBER.fullmatch(node.value):
        number = float(node.value)
        return int(node.value) if node.value.lstrip("-").isdigit() else number
    return node.value


_MOST_DEEP = 8
_WORDS = {"true": True, "false": False, "null": None, "~": None, "": None}
_NUMBER = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,18})?([eE][-+]?[0-9]{1,2})?")

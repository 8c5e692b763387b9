"""A submission: a folder with `submission.yaml`, an episode log, a README, and optionally the weights of a policy.

Submissions are untrusted. Only files with known names and limited size are read; nothing is imported or run.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from msgspec import Meta

from agentgym_flow._util.files import file_digest, write_folder_atomically
from agentgym_flow._util.values import decode_file, typed
from agentgym_flow.episodes import NO_LIMITS, read_log, write_log
from agentgym_flow.errors import BadSetting, BadSubmission, MissingExtra
from agentgym_flow.leaderboard.files import (
    SUBMISSIONS,
    BoardRecord,
    Day,
    DigestOrNone,
    Link,
    Slug,
    Text,
    plain_text,
    plain_yaml,
    whole,
)
from agentgym_flow.leaderboard.track import Track
from agentgym_flow.prompts.templates import published_of, templates_of
from agentgym_flow.prompts.words import VOCABULARY

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
    MODEL_CONFIG: 1 << 16,
}
"""The files of a submission, and their largest sizes in bytes."""

Badge = Literal["reproduced", "attested", "replayed"]
"""The badges, each for another kind of proof."""

REPRODUCED, ATTESTED, REPLAYED = get_args(Badge)


class TrainingSources(BoardRecord, frozen=True):
    """What the policy has learnt from: environments, data beyond them (empty for none), core-seconds, and episodes."""

    environments: Annotated[list[Text], Meta(max_length=30)]
    data: Annotated[str, plain_text(300, empty=True, lines=True)]
    core_seconds: Annotated[float, Meta(ge=0, le=1e12)] | None = None
    episodes: Annotated[int, Meta(ge=0, le=10**15)] | None = None


class ModelCard(BoardRecord, frozen=True):
    """A model: its name, the number of its parameters, where its open weights are, and their `open_weights_digest`."""

    name: Text
    sha256: DigestOrNone = ""
    parameters: Annotated[int, Meta(ge=0, le=10**15)] | None = None
    weights: Link = ""


class SamplingSettings(BoardRecord, frozen=True):
    """The temperature, 1 if it is not given, and whether the most likely token is chosen."""

    temperature: Annotated[float, Meta(gt=0, le=100)] | None = None
    greedy: bool = False


class StoredFiles(BoardRecord, frozen=True):
    """The SHA-256 of the files of a submission that are in the store of the leaderboards; empty if they are not."""

    log: DigestOrNone = ""
    weights: DigestOrNone = ""

    def digests(self) -> dict[str, str]:
        """Return file name -> SHA-256."""
        return {name: digest for name, digest in ((LOG, self.log), (WEIGHTS, self.weights)) if digest}


class Submission(BoardRecord, frozen=True):
    """The content of a `submission.yaml`: who has made an entry, how, and what it asks to be proved.

    Attributes:
        schema: `SCHEMA`.
        track: the name of the track.
        name: the name of the entry, in lower case with hyphens.
        date: year-month-day.
        badge: one of `Badge`.
        prompt: the prompt template.
        title: one line for the board.
        authors: the authors.
        command: the command that was run.
        training: the environments and data that the policy was trained on.
        link: a link to more information; empty if there is none.
        model: name, number of parameters and URL of the model.
        sampling: the temperature, and whether the most likely token is chosen.
        layout: the prompt layout of submitted weights, `turn` or `conversation`.
        stored: the files that are not in the folder but in the store of the leaderboards.
    """

    schema: Literal["agentgym_flow.submission/1"]
    track: Slug
    name: Slug
    date: Day
    badge: Badge
    prompt: Annotated[str, whole("[A-Za-z0-9_.-]{1,40}", "the name of a prompt template")]
    title: Annotated[str, plain_text(80)]
    authors: Annotated[list[Text], Meta(min_length=1, max_length=30)]
    command: Annotated[str, plain_text(2000, lines=True)]
    training: TrainingSources
    link: Link = ""
    model: ModelCard | None = None
    sampling: SamplingSettings = SamplingSettings()
    layout: Literal["turn", "conversation"] = "turn"
    stored: StoredFiles = StoredFiles()

    @property
    def id(self) -> str:
        """The name of its folder."""
        return f"{self.date}-{self.name}"

    @classmethod
    def parse(cls, text: bytes) -> Self:
        """Return the submission described by a `submission.yaml`. Raises `BadSubmission`."""
        submission = typed(plain_yaml(text, ABOUT), cls, BadSubmission, ABOUT)
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
        names = file_names(path)
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


def file_names(path: Path) -> tuple[str, ...]:
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


SAME_DATA, ZERO_SHOT, TEN_MINUTES = "same data", "zero-shot", "ten minutes"

NO_MODEL, SHORT, TEXT, NUMERIC = CLASSES = ("none", "compact", "text", "numeric")
"""The classes of prompts. Entries of different classes are in separate tables. `none` is for scripts."""

OWN = "own"
"""The name of a prompt that is not part of the package."""

_CLASS_OF = {"none": NO_MODEL, "compact": SHORT, "compact-turned": SHORT, "choice": SHORT, "numeric": NUMERIC}


def class_of(prompt: str) -> str:
    """Return the class of a prompt template. Published and own prompts are texts."""
    return _CLASS_OF.get(prompt, TEXT)


def check_rules(entry: Folder, track: Track) -> None:
    """Raise `BadSubmission` at the first rule of the track that the submission's description breaks."""
    about, training = entry.about, entry.about.training
    known = [NO_MODEL, *templates_of(track.env_id), *published_of(track.env_id), OWN]
    if about.prompt not in known:
        raise BadSubmission(
            f"{ABOUT}: prompt: {track.env_id} has no prompt template {about.prompt!r}; name one of {', '.join(known)}, "
            f"where {OWN} is for a prompt that is not part of the package"
        )
    admitted = {class_of(prompt) for prompt in track.prompts} | ({NO_MODEL} if track.rules != ZERO_SHOT else set())
    if class_of(about.prompt) not in admitted:
        raise BadSubmission(f"{ABOUT}: prompt: track {track.name} admits {', '.join(track.prompts)}")
    if track.rules == SAME_DATA and (training.data or set(training.environments) - {track.env_id}):
        raise BadSubmission(f"{ABOUT}: training: track {track.name} admits nothing but {track.env_id}")
    if track.rules == ZERO_SHOT and (training.environments or not about.model):
        raise BadSubmission(
            f"{ABOUT}: track {track.name} is for language models that learnt in no environment: name the model, and "
            "leave training.environments empty"
        )
    if (track.rules == TEN_MINUTES) != (TRAINING in entry.names):
        brings = "needs this file" if track.rules == TEN_MINUTES else "takes no such file"
        raise BadSubmission(f"{TRAINING}: track {track.name}, with the rules {track.rules}, {brings}")
    if track.core_seconds:
        spent = training.core_seconds
        if spent is None or spent > track.core_seconds:
            raise BadSubmission(
                f"{ABOUT}: training.core_seconds must be there, and at most {track.core_seconds:,g}, got {spent}"
            )
        if SOURCE not in entry.names:
            raise BadSubmission(f"{SOURCE} is missing: track {track.name} shows the source of the training")


def open_weights_digest(weights: Path) -> str:
    """Return the digest that names open weights: the SHA-256 of a file, or that of a folder's `.safetensors` files.

    The latter is what `LC_ALL=C; sha256sum *.safetensors | sha256sum` prints. Raises `BadSetting` if there are none.
    """
    if weights.is_file():
        return file_digest(weights)
    files = sorted(weights.glob("*.safetensors"))
    if not files:
        raise BadSetting(f"{weights} has no .safetensors file: name the folder or the file of the weights")
    lines = "".join(f"{file_digest(file)}  {file.name}\n" for file in files)
    return hashlib.sha256(lines.encode("utf-8")).hexdigest()


EVALUATION = "evaluation.json"
"""The file in which `agentgym-flow evaluate --track` writes the track and the result."""


def make_submission(
    run: Path,
    about: Mapping[str, Any],
    root: Path,
    *,
    policy: Path | None = None,
    half: bool = False,
    source: Path | None = None,
    training: Path | None = None,
    day: str = "",
    put: Callable[[bytes], str] | None = None,
) -> Path:
    """Create the folder of a submission below `root`, and return it. Its log is the log of the run, in version 2.

    Args:
        run: the output folder of `agentgym-flow evaluate --track ... --out`.
        about: the content of `submission.yaml` without `schema`, `track` and `date`, see `Submission`.
        root: the folder of the leaderboards.
        policy: the folder with `config.json` and `model.safetensors`, for the badge *reproduced*.
        half: store the weights in half precision. CI scores the stored weights.
        source: the source file of the training.
        training: the settings with which CI trains, instead of a policy.
        day: the date, year-month-day; empty for today.
        put: puts the content of a file into the store and returns its SHA-256; None to keep all files in the folder.

    Raises:
        BadSubmission: a file or an entry is missing or invalid.
        BadLog: a line of the log cannot be read.
        FileExistsError: the entry exists already.
    """
    track = evaluated(run)
    name, day = about["name"], day or date.today().isoformat()
    value: dict[str, Any] = {"schema": SCHEMA, "track": track, "name": name, "date": day, **about}
    typed(value, Submission, BadSubmission, ABOUT)
    if (about["badge"] == REPRODUCED) != (policy is not None or training is not None):
        raise BadSubmission(f"badge: {REPRODUCED} needs the folder of the policy, and only this badge takes one")
    place = root / SUBMISSIONS / track / f"{day}-{name}"
    if place.exists():
        raise FileExistsError(f"{place} already exists: entries do not change, so choose another name")
    for own in [] if policy is None else [policy / Path(file).name for file in (WEIGHTS, MODEL_CONFIG)]:
        most = MOST_BYTES[f"policy/{own.name}"]
        if not own.is_file() or own.stat().st_size > 2 * most:  # float32 may be halved
            raise BadSubmission(
                f"{own} is {'too large' if own.is_file() else 'missing'}: {REPRODUCED} takes the folder of a whole "
                f"model of the tiny model's architecture. Other models apply for {ATTESTED} or {REPLAYED}"
            )
    place.parent.mkdir(parents=True, exist_ok=True)
    with write_folder_atomically(place) as partial:
        partial.mkdir(exist_ok=True)
        (partial / ABOUT).write_text(_yaml(value), "utf-8")
        write_log(partial / LOG, (episode.for_board() for episode in read_log(run / LOG, NO_LIMITS)))
        (partial / README).write_text(f"# {about['title']}\n\n```bash\n{about['command']}\n```\n", "utf-8")
        for given, name in ((source, SOURCE), (training, TRAINING)):
            if given is not None:
                shutil.copyfile(given, partial / name)
        if policy is not None:
            (partial / "policy").mkdir()
            for name in (WEIGHTS, MODEL_CONFIG):
                shutil.copyfile(policy / Path(name).name, partial / name)
            _add_words(partial / MODEL_CONFIG, policy / "tokenizer.json")
            if half:
                _halve(partial / WEIGHTS)
        if put is not None:
            value["stored"] = {}
            for field, file in (("log", partial / LOG), ("weights", partial / WEIGHTS)):
                if file.is_file():
                    value["stored"][field] = put(file.read_bytes())
                    file.unlink()
            (partial / ABOUT).write_text(_yaml(value), "utf-8")
    return place


def _add_words(config: Path, tokenizer: Path) -> None:
    """Write the words of the weights into their `config.json`, because a prompt template may get other words later."""
    if not tokenizer.is_file():
        return
    told = json.loads(tokenizer.read_bytes())
    special = {token["content"] for token in told["added_tokens"]}
    tokens = told["model"]["vocab"]
    if told["model"]["type"] == "WordLevel":
        words = [word for word in sorted(tokens, key=tokens.__getitem__) if word not in special]
        config.write_text(json.dumps({**json.loads(config.read_bytes()), VOCABULARY: words}, indent=1) + "\n", "utf-8")


def _halve(weights: Path) -> None:
    """Store float32 weights as float16. Raises `BadSubmission` if a number does not fit."""
    try:
        import numpy as np
        from safetensors import SafetensorError
        from safetensors.numpy import load_file, save_file
    except ImportError as error:
        raise MissingExtra.of("safetensors", "train") from error
    try:
        halves = {name: value.astype(np.float16) for name, value in load_file(weights).items()}
    except (SafetensorError, TypeError, KeyError) as error:
        raise BadSubmission(f"{WEIGHTS} cannot be halved ({error!s:.200}): leave it as it is") from None
    for name, value in halves.items():
        if not np.isfinite(value).all():
            raise BadSubmission(f"{WEIGHTS}: {name} does not fit into half precision: leave it as it is")
    save_file(halves, weights, {"format": "pt"})


def evaluated(run: Path) -> str:
    """Return the track that was evaluated in a folder. Raises `BadSubmission` if there is no such evaluation."""
    for name in (EVALUATION, LOG):
        if not (run / name).is_file():
            raise BadSubmission(
                f"{run} has no {name}: run agentgym-flow evaluate --track TRACK ... --out {shlex.quote(str(run))}"
            )
    value = decode_file((run / EVALUATION).read_bytes(), BadSubmission, EVALUATION)
    if not isinstance(value, dict) or not isinstance(value.get("track"), str):
        raise BadSubmission(f"{EVALUATION} names no track")
    return str(value["track"])


def write_evaluation(run: Path, track: str, result: Mapping[str, Any]) -> None:
    """Write the result of an evaluation next to its log."""
    (run / EVALUATION).write_text(json.dumps({"track": track, **result}, indent=1) + "\n", "utf-8")


def _yaml(value: Mapping[str, Any]) -> str:
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingExtra.of("PyYAML", "leaderboard") from error
    quoted = dict(value) | {"date": _Quoted(value["date"])}

    class Dumper(yaml.SafeDumper):  # type: ignore[misc]
        """Writes dates as text."""

    Dumper.add_representer(
        _Quoted, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style='"')
    )
    return str(yaml.dump(quoted, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100))


class _Quoted(str):
    """A text that YAML writes in quotes."""

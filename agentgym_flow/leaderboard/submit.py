"""Make the folder of a submission from an evaluation of a track."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from agentgym_flow._util.files import whole_folder
from agentgym_flow._util.strict_json import decode_file
from agentgym_flow.errors import BadSubmission, MissingExtra
from agentgym_flow.leaderboard import schemas
from agentgym_flow.leaderboard.places import SUBMISSIONS
from agentgym_flow.leaderboard.submission import (
    ABOUT,
    LOG,
    MODEL_CONFIG,
    README,
    REPRODUCED,
    SCHEMA,
    SOURCE,
    TRAINING,
    WEIGHTS,
)

EVALUATION = "evaluation.json"
"""The file of an evaluation of a track, `agentgym-flow evaluate --track`, that says what was played."""


@dataclass(frozen=True)
class About:
    """What a submitter says of an entry; see the schema `submission-1.json`.

    Attributes:
        name: of the entry.
        badge: what it asks to be proved.
        title: one line for the board.
        authors: who made it.
        command: what was run.
        prompt: the prompt profile.
        environments: what the policy has learnt in.
        data: further data that it has learnt from.
        core_seconds: what training cost; None if not known.
        more: optional entries: link, model, sampling, layout.
    """

    name: str
    badge: str
    title: str
    authors: list[str]
    command: str
    prompt: str
    environments: list[str]
    data: str = ""
    core_seconds: float | None = None
    more: Mapping[str, Any] = field(default_factory=dict)


def make_submission(
    run: Path,
    about: About,
    root: Path,
    *,
    policy: Path | None = None,
    half: bool = False,
    source: Path | None = None,
    training: Path | None = None,
    day: str = "",
) -> Path:
    """Make the folder of a submission below `root`, and return it.

    Args:
        run: the folder that `agentgym-flow evaluate --track ... --out` has written.
        about: what is said of it.
        root: the folder of the boards.
        policy: the folder with `config.json` and `model.safetensors`, for the badge *reproduced*.
        half: store the weights in half precision, which is half as large; they are scored as they are stored.
        source: what trained the policy.
        training: the settings with which CI trains, instead of a policy.
        day: the date, year-month-day; empty for today.

    Raises:
        BadSubmission: something is missing or cannot be.
        FileExistsError: there is such an entry already.
    """
    track = evaluated(run)
    value = {
        "schema": SCHEMA,
        "track": track,
        "name": about.name,
        "date": day or date.today().isoformat(),
        "badge": about.badge,
        "prompt": about.prompt,
        "title": about.title,
        "authors": about.authors,
        "command": about.command,
        "training": {
            "environments": about.environments,
            "data": about.data,
            **({} if about.core_seconds is None else {"core_seconds": about.core_seconds}),
        },
        **about.more,
    }
    schemas.check("submission-1", value, BadSubmission, ABOUT)
    if (about.badge == REPRODUCED) != (policy is not None or training is not None):
        raise BadSubmission(f"badge: {REPRODUCED} needs the folder of the policy, and only this badge takes one")
    place = root / SUBMISSIONS / track / f"{value['date']}-{about.name}"
    if place.exists():
        raise FileExistsError(f"{place} is there already: entries do not change, so choose another name")
    place.parent.mkdir(parents=True, exist_ok=True)
    with whole_folder(place) as partial:
        partial.mkdir(exist_ok=True)
        (partial / ABOUT).write_text(_yaml(value), "utf-8")
        shutil.copyfile(run / LOG, partial / LOG)
        (partial / README).write_text(f"# {about.title}\n\n```bash\n{about.command}\n```\n", "utf-8")
        if source is not None:
            shutil.copyfile(source, partial / SOURCE)
        if training is not None:
            shutil.copyfile(training, partial / TRAINING)
        if policy is not None:
            (partial / "policy").mkdir()
            for name in (WEIGHTS, MODEL_CONFIG):
                source = policy / Path(name).name
                if not source.is_file():
                    raise BadSubmission(f"{source} is missing: give the folder that the policy was saved in")
                shutil.copyfile(source, partial / name)
            if half:
                _halve(partial / WEIGHTS)
    return place


def _halve(weights: Path) -> None:
    """Store float32 weights as float16. Raises `BadSubmission` where a number does not fit."""
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
    """Return the name of the track that an evaluation played. Raises `BadSubmission` if there is none in the folder."""
    for name in (EVALUATION, LOG):
        if not (run / name).is_file():
            raise BadSubmission(f"{run} has no {name}: agentgym-flow evaluate --track TRACK ... --out {run}")
    value = decode_file((run / EVALUATION).read_bytes(), BadSubmission, EVALUATION)
    if not isinstance(value, dict) or not isinstance(value.get("track"), str):
        raise BadSubmission(f"{EVALUATION} names no track")
    return str(value["track"])


def write_evaluation(run: Path, track: str, result: Mapping[str, Any]) -> None:
    """Write what an evaluation of a track came to beside its log."""
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
    """A text that is written in quotes."""

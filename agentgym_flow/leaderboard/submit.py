"""Create the folder of a submission from the evaluation of a track."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

from agentgym_flow._util.files import write_folder_atomically
from agentgym_flow._util.values import decode_file
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
) -> Path:
    """Create the folder of a submission below `root`, and return it.

    Args:
        run: the output folder of `agentgym-flow evaluate --track ... --out`.
        about: the content of `submission.yaml` without `schema`, `track` and `date`, see `submission-1.json`.
        root: the folder of the leaderboards.
        policy: the folder with `config.json` and `model.safetensors`, for the badge *reproduced*.
        half: store the weights in half precision. CI scores the stored weights.
        source: the source file of the training.
        training: the settings with which CI trains, instead of a policy.
        day: the date, year-month-day; empty for today.

    Raises:
        BadSubmission: a file or an entry is missing or invalid.
        FileExistsError: the entry exists already.
    """
    track = evaluated(run)
    name, day = about["name"], day or date.today().isoformat()
    value = {"schema": SCHEMA, "track": track, "name": name, "date": day, **about}
    schemas.check("submission-1", value, BadSubmission, ABOUT)
    if (about["badge"] == REPRODUCED) != (policy is not None or training is not None):
        raise BadSubmission(f"badge: {REPRODUCED} needs the folder of the policy, and only this badge takes one")
    place = root / SUBMISSIONS / track / f"{day}-{name}"
    if place.exists():
        raise FileExistsError(f"{place} already exists: entries do not change, so choose another name")
    place.parent.mkdir(parents=True, exist_ok=True)
    with write_folder_atomically(place) as partial:
        partial.mkdir(exist_ok=True)
        (partial / ABOUT).write_text(_yaml(value), "utf-8")
        shutil.copyfile(run / LOG, partial / LOG)
        (partial / README).write_text(f"# {about['title']}\n\n```bash\n{about['command']}\n```\n", "utf-8")
        for given, name in ((source, SOURCE), (training, TRAINING)):
            if given is not None:
                shutil.copyfile(given, partial / name)
        if policy is not None:
            (partial / "policy").mkdir()
            for name in (WEIGHTS, MODEL_CONFIG):
                given = policy / Path(name).name
                if not given.is_file():
                    raise BadSubmission(f"{given} is missing: name the folder in which the policy was saved")
                shutil.copyfile(given, partial / name)
            if half:
                _halve(partial / WEIGHTS)
    return place


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

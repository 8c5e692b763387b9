"""Tracks on which CI trains: a submission contains settings, and CI trains the tiny policy with them.

No submitted code is run. The settings are numbers, booleans and names from lists. Trainer, model, prompt and
environment are those of the package.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentgym_flow.errors import BadSubmission
from agentgym_flow.leaderboard import schemas
from agentgym_flow.leaderboard.submission import TRAINING, plain_yaml
from agentgym_flow.leaderboard.track import Track

if sys.platform != "win32":  # on Windows this module can only be imported
    import resource

MOST_SECONDS = 600.0
"""The time limit of a training: ten minutes on two cores."""

PROMPT = "compact"
"""The prompt template of these policies and of their submissions."""

_MOST_MEMORY = 12 << 30
_THREADS = 2


def settings_of(raw: bytes) -> Mapping[str, Any]:
    """Return the settings in a `training.yaml`. Raises `BadSubmission` unless they follow `training-1.json`."""
    settings: Mapping[str, Any] = plain_yaml(raw, TRAINING)
    schemas.check("training-1", settings, BadSubmission, TRAINING)
    return settings


def train(settings: Mapping[str, Any], track: Track, scratch: Path) -> Path:
    """Train for a track, and return the folder with the weights, below `scratch`.

    Raises `BadSubmission` if the run fails, or is not finished after `MOST_SECONDS`.
    """
    kwargs = {name: value for name, value in track.kwargs.items() if name != "season" and value is not None}
    given = {name: value for name, value in settings.items() if name != "algorithm"}
    given |= {
        "env_kwargs": {**kwargs, "max_steps": track.max_steps},
        "template": PROMPT,
        "model": "tiny",
        "threads": _THREADS,
        "validations": 0,
        "eval_episodes": 1,
        "save_strategy": "no",
        "output_dir": str(scratch / "run"),
    }
    words = ["train", str(settings["algorithm"]), "--env", track.env_id]
    for name, value in given.items():
        words += [f"--{name}", value if isinstance(value, str) else json.dumps(value)]
    run = subprocess.Popen(
        [sys.executable, "-m", "agentgym_flow", *words],
        cwd=scratch,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env={**os.environ, "OMP_NUM_THREADS": str(_THREADS), "HF_HUB_OFFLINE": "1"},
        start_new_session=True,
        preexec_fn=_bounded,
    )
    try:
        _, said = run.communicate(timeout=MOST_SECONDS)
    except subprocess.TimeoutExpired:
        raise BadSubmission(f"{TRAINING}: training is not done after {MOST_SECONDS:g} seconds") from None
    finally:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
            run.communicate()
    if run.returncode:
        last = next((line for line in reversed(said.splitlines()) if line.strip()), f"status {run.returncode}")
        raise BadSubmission(f"{TRAINING}: training fails: {last:.300}")
    return scratch / "run" / "checkpoint"


def _bounded() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (_MOST_MEMORY, _MOST_MEMORY))

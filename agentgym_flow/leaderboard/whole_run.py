"""Tracks where the whole run is in CI: a submission brings settings, and CI trains the tiny policy with them.

Nothing of the submitter runs. The settings are numbers, switches and names from lists; trainer, model, prompt and
environment are the package's own.
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

if sys.platform != "win32":  # there this module can be imported and does nothing
    import resource

MOST_SECONDS = 600.0
"""For how long CI trains: ten minutes, on two cores."""

PROMPT = "compact"
"""The prompt profile of these policies, and of their submissions."""

_MOST_MEMORY = 12 << 30
_THREADS = 2


def settings_of(raw: bytes) -> Mapping[str, Any]:
    """Return what a `training.yaml` says. Raises `BadSubmission` for anything but the settings of `training-1.json`."""
    value = plain_yaml(raw, TRAINING)
    schemas.check("training-1", value, BadSubmission, TRAINING)
    settings: Mapping[str, Any] = value
    return settings


def train(settings: Mapping[str, Any], track: Track, scratch: Path) -> Path:
    """Train for a track, and return the folder of the weights, below `scratch`.

    Raises `BadSubmission` if the run fails, or is not done in `MOST_SECONDS`.
    """
    kwargs = {name: value for name, value in track.kwargs.items() if name != "season" and value is not None}
    given = {name: value for name, value in settings.items() if name != "algorithm"}
    given |= {
        "env_kwargs": {**kwargs, "max_steps": track.max_steps},
        "profile": PROMPT,
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

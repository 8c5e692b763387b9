"""Check a submission's own description against the rules of its track."""

from __future__ import annotations

from agentgym_flow.errors import BadSubmission
from agentgym_flow.leaderboard.submission import ABOUT, SOURCE, TRAINING, Folder
from agentgym_flow.leaderboard.track import Track

SAME_DATA, ZERO_SHOT, TEN_MINUTES = "same data", "zero-shot", "ten minutes"

NO_MODEL, SHORT, TEXT, NUMERIC = CLASSES = ("none", "compact", "text", "numeric")
"""The classes of prompts. Entries of different classes are in separate tables. `none` is for scripts."""

_CLASS_OF = {"none": NO_MODEL, "compact": SHORT, "compact-turned": SHORT, "choice": SHORT, "numeric": NUMERIC}


def class_of(prompt: str) -> str:
    """Return the class of a prompt template. Unknown templates are texts."""
    return _CLASS_OF.get(prompt, TEXT)


def check_rules(entry: Folder, track: Track) -> None:
    """Raise `BadSubmission` at the first rule of the track that the submission's description breaks."""
    about, training = entry.about, entry.about.training
    admitted = {class_of(prompt) for prompt in track.prompts} | ({NO_MODEL} if track.rules != ZERO_SHOT else set())
    if class_of(about.prompt) not in admitted:
        raise BadSubmission(f"{ABOUT}: prompt: track {track.name} admits {', '.join(track.prompts)}")
    if track.rules == SAME_DATA and (training["data"] or set(training["environments"]) - {track.env_id}):
        raise BadSubmission(f"{ABOUT}: training: track {track.name} admits nothing but {track.env_id}")
    if track.rules == ZERO_SHOT and (training["environments"] or not about.model):
        raise BadSubmission(
            f"{ABOUT}: track {track.name} is for language models that learnt in no environment: name the model, and "
            "leave training.environments empty"
        )
    if (track.rules == TEN_MINUTES) != (TRAINING in entry.names):
        brings = "needs this file" if track.rules == TEN_MINUTES else "takes no such file"
        raise BadSubmission(f"{TRAINING}: track {track.name}, with the rules {track.rules}, {brings}")
    if track.core_seconds:
        spent = training.get("core_seconds")
        if spent is None or spent > track.core_seconds:
            raise BadSubmission(
                f"{ABOUT}: training.core_seconds must be there, and at most {track.core_seconds:,g}, got {spent}"
            )
        if SOURCE not in entry.names:
            raise BadSubmission(f"{SOURCE} is missing: track {track.name} shows the source of the training")

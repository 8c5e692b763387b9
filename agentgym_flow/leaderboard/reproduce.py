"""Fresh tasks for submitted weights: they are drawn after the submission, so training on them is impossible."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from agentgym_flow.envs import make_text_env
from agentgym_flow.errors import AgentGymFlowError, BadSubmission
from agentgym_flow.leaderboard.budget import MOST_CORE_SECONDS, BudgetedPolicy
from agentgym_flow.leaderboard.coverage import Claims
from agentgym_flow.leaderboard.submission import Folder
from agentgym_flow.leaderboard.track import Track, make_track
from agentgym_flow.play import rollout
from agentgym_flow.play.slots import EpisodeSpec
from agentgym_flow.policies import Policy

MakePolicy = Callable[[Folder, Track], Policy]
"""A function that makes the policy of a submission for a track; raises `BadSubmission` if the weights are invalid."""

NUM_ENVS = 256


def season_of(secret: bytes, digest: str) -> str:
    """Return the season for a submission: the HMAC-SHA256 of its digest, as 64 hex digits.

    It cannot be computed without the secret, and anyone can check it after the secret is revealed. An empty secret
    gives the season of a rehearsal.
    """
    return hmac.new(secret, bytes.fromhex(digest), hashlib.sha256).hexdigest()


def fresh_track(track: Track, season: str) -> Track:
    """Return a copy of a track with the same number of tasks, taken from a season.

    Raises `BadSubmission` for official data, which has no fresh tasks.
    """
    if track.data:
        raise BadSubmission(
            f"badge: track {track.name} has official data, so there are no fresh tasks; apply for replayed"
        )
    kwargs = {**track.kwargs, "season": season, "max_steps": track.max_steps}
    made = make_track(
        track.env_id, track.name, track.title, tasks=len(track.tasks), kwargs=kwargs, split=track.split, seed=track.seed
    )
    return replace(track, kwargs=made.kwargs, tasks=made.tasks)


def played(policy: Policy, track: Track) -> Claims:
    """Return the results of a policy on a track.

    Raises `BadSubmission` if the policy fails, or needs more than `MOST_CORE_SECONDS`.
    """
    policy = BudgetedPolicy(policy, MOST_CORE_SECONDS)
    specs = [EpisodeSpec(start.seed, start.task, start.attempt) for start in track.starts()]
    settings = track.env_settings()
    try:
        episodes = rollout(policy, lambda: make_text_env(track.env_id, **settings), specs, num_envs=NUM_ENVS)
    except BadSubmission:
        raise
    except AgentGymFlowError as error:  # such as a prompt that is longer than the context, or NaN outputs
        raise BadSubmission(f"the policy cannot play the track: {error}") from error
    rows = {task.number: row for row, task in enumerate(track.tasks)}
    shape = len(track.tasks), track.attempts
    scores, steps = np.zeros(shape), np.zeros(shape, np.int64)
    for episode in episodes:
        place = rows[episode.task], episode.attempt
        scores[place] = float(episode.success) if track.metric == "success" else episode.score
        steps[place] = len(episode.turns)
    return Claims(scores, steps)

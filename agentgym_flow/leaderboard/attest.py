"""Check the completions of a language model: each has log-probabilities, and parsing it gives the logged action.

This proves that the actions come from these texts. It does not prove that a model wrote the texts: for that, somebody
with the weights can recompute the log-probabilities of a random share of them (`agentgym-flow leaderboard rescore`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from agentgym_flow.core import Stream
from agentgym_flow.episodes import EpisodeRecorder, LoggedEpisode, LogLimits, scan_log
from agentgym_flow.errors import BadLog, BadSubmission, UnknownTemplate
from agentgym_flow.leaderboard.track import Track
from agentgym_flow.policies import PolicyInput
from agentgym_flow.policies.openai_chat import LOGPROBS
from agentgym_flow.prompts import PromptTemplate, template_for
from agentgym_flow.replay.stepping import step_again


def check_completions(
    log: Path, track: Track, prompt: str, limits: LogLimits, data: Mapping[str, str | Path] | None = None
) -> None:
    """Check the completions of a log whose episodes are already verified.

    Args:
        log: the log.
        track: its track.
        prompt: the name of a prompt template that is part of the package.
        limits: limits on reading the log.
        data: paths of official data, by name.

    Raises `BadSubmission` at the first turn without completion or log-probabilities, or whose completion gives another
    action.
    """
    template = _own_template(track, prompt)
    with closing(track.make_env(data)) as env:
        recorder = EpisodeRecorder(env)
        for number, logged in scan_log(log, limits):
            if isinstance(logged, BadLog):
                raise BadSubmission(str(logged))
            where = f"{log.name} line {number}"
            if logged.completions is None:
                raise BadSubmission(f"{where}: there are no completions; attested entries need a language model")
            _check_logprobs(logged, where)
            rng = Stream("policy", logged.seed, logged.attempt, logged.task)
            steps = zip(logged.actions, logged.completions, step_again(recorder, logged), strict=False)
            for step, (action, completion, episode) in enumerate(steps, 1):
                policy_input = PolicyInput(env, recorder.observation, recorder.info, episode, rng)
                parsed = template.parse_action(completion, policy_input)
                if parsed != action:
                    raise BadSubmission(
                        f"{where}: step {step}: prompt template {prompt} reads {parsed!r:.80} from the completion, and "
                        f"the log has {action!r:.80}"
                    )


def _own_template(track: Track, prompt: str) -> PromptTemplate:
    if ":" in prompt:
        raise BadSubmission(f"prompt: {prompt!r:.60} reads a file; name a template of the environment")
    try:
        return template_for(track.env_id, prompt)
    except UnknownTemplate as error:
        raise BadSubmission(f"prompt: {error}") from None


def _check_logprobs(logged: LoggedEpisode, where: str) -> None:
    turns: Any = (logged.meta or {}).get(LOGPROBS)
    if not isinstance(turns, list) or len(turns) != len(logged.actions):
        raise BadSubmission(
            f"{where}: meta.{LOGPROBS} must be a list of {len(logged.actions)}, one list for each turn: evaluate with "
            f"--policy-arg {LOGPROBS}=true"
        )
    assert logged.completions is not None  # checked before
    for step, (tokens, completion) in enumerate(zip(turns, logged.completions, strict=True), 1):
        known = isinstance(tokens, list) and all(
            isinstance(one, int | float) and not isinstance(one, bool) and math.isfinite(one) and one <= 1e-3
            for one in tokens
        )
        if not known or (completion and not tokens):
            raise BadSubmission(f"{where}: step {step}: meta.{LOGPROBS} must hold a number of at most 0 for each token")

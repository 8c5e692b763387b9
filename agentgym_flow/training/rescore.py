"""Recompute the log-probabilities of completions in a log with the open weights that the submitter names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from agentgym_flow.core import Stream, check_positive
from agentgym_flow.episodes import EpisodeRecorder, read_log
from agentgym_flow.errors import BadSetting
from agentgym_flow.leaderboard.track import Track
from agentgym_flow.policies import PolicyInput
from agentgym_flow.policies.openai_chat import LOGPROBS
from agentgym_flow.prompts import PromptTemplate
from agentgym_flow.training.policy import prompt_text, prompt_tokens

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

TOLERANCE = 0.1
"""In nats per token. Engines and number formats differ by a few hundredths, other models by far more."""


@dataclass(frozen=True)
class RescoredShare:
    """The agreement of logged and recomputed log-probabilities.

    Attributes:
        turns: number of turns compared.
        agreed: turns in which the mean absolute difference per token is at most `TOLERANCE`.
        other_tokens: turns in which the tokenizer returns another number of tokens; they count as disagreeing.
        difference: the mean absolute difference over all compared tokens, in nats; 0 without any.
    """

    turns: int
    agreed: int
    other_tokens: int
    difference: float


def rescore(
    log: Path,
    track: Track,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    template: PromptTemplate,
    *,
    share: float = 0.02,
    seed: str = "",
    data: Mapping[str, str | Path] | None = None,
) -> RescoredShare:
    """Compare the log-probabilities of a random share of a log's turns with those of a model.

    Args:
        log: an attested log that has been checked.
        track: its track.
        model: the model; it is compared at temperature 1, as servers report log-probabilities.
        tokenizer: the model's tokenizer.
        template: the prompt template of the entry.
        share: the fraction of turns to compare; at least one is compared.
        seed: selects the turns; use one that the submitter could not know.
        data: paths of official data by name.

    Raises `BadSetting` if `share` is not in (0, 1].
    """
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise BadSetting(f"share must be above 0 and at most 1, got {share!r:.60}")
    agreed = other = compared = turns = 0
    total = 0.0
    for prompt, completion, said in _turns(log, track, tokenizer, template, share, seed, data):
        turns += 1
        ids = tuple(tokenizer(completion, add_special_tokens=False).input_ids)
        if len(said) == len(ids) + 1 and tokenizer.eos_token_id is not None:  # the end-of-sequence token is included
            ids = (*ids, int(tokenizer.eos_token_id))
        if len(said) != len(ids):
            other += 1
            continue
        if not ids:
            agreed += 1
            continue
        own = _logprobs(model, prompt, ids)
        apart = [abs(a - b) for a, b in zip(own, said, strict=True)]
        agreed += sum(apart) / len(apart) <= TOLERANCE
        total, compared = total + sum(apart), compared + len(apart)
    check_positive("the number of turns", turns)
    return RescoredShare(turns, agreed, other, total / max(1, compared))


def _turns(
    log: Path,
    track: Track,
    tokenizer: PreTrainedTokenizerBase,
    template: PromptTemplate,
    share: float,
    seed: str,
    data: Mapping[str, str | Path] | None,
) -> Iterator[tuple[tuple[int, ...], str, list[float]]]:
    """Yield prompt tokens, completion and logged log-probabilities of a random share of the turns."""
    chosen = False
    with closing(track.make_env(data)) as env:
        recorder = EpisodeRecorder(env)
        for logged in read_log(log):
            draws = Stream("rescore", seed, logged.task, logged.attempt)
            if logged.recording is not None:
                env.use_recording(logged.recording)
            episode = recorder.reset(seed=logged.seed, task=logged.task, attempt=logged.attempt)
            rng = Stream("policy", logged.seed, logged.attempt, logged.task)
            logprobs = (logged.meta or {})[LOGPROBS]
            for step, (action, completion) in enumerate(zip(logged.actions, logged.completions or (), strict=True)):
                if draws.uniform() < share or not chosen:
                    chosen = True
                    policy_input = PolicyInput(env, recorder.observation, recorder.info, episode, rng)
                    prompt = prompt_tokens(tokenizer, prompt_text(tokenizer, template, policy_input))
                    yield prompt, completion, logprobs[step]
                recorder.step(action)


def _logprobs(model: PreTrainedModel, prompt: tuple[int, ...], completion: tuple[int, ...]) -> list[float]:
    tokens = torch.tensor([[*prompt, *completion]], device=model.device)
    with torch.no_grad():
        logits = model(input_ids=tokens).logits[0, len(prompt) - 1 : -1].float()
    scores = torch.log_softmax(logits, dim=-1)
    return [float(one) for one in scores.gather(1, tokens[0, len(prompt) :, None])[:, 0]]

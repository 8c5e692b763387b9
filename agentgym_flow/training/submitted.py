"""Leaderboard entries that a model proves: the policy of submitted weights, and log-probabilities computed again.

Submitted weights are untrusted. Nothing from a submission is executed: safetensors contain numbers only, the model is
Transformers' GPT-2 with a shape read from a few known entries, the tokenizer is built from the template's vocabulary,
and the prompt template is the environment's own.

The completions of a log are scored again with the open weights that the submitter names.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from transformers import GPT2LMHeadModel

from agentgym_flow._util.values import decode_file
from agentgym_flow.core import Stream, check_positive, stable_hash
from agentgym_flow.episodes import LOGPROBS, EpisodeRecorder, read_log
from agentgym_flow.errors import BadSetting, BadSubmission, UnknownTemplate
from agentgym_flow.leaderboard.reproduce import settings_of, train
from agentgym_flow.leaderboard.submission import MODEL_CONFIG, TRAINING, WEIGHTS, Folder, Submission
from agentgym_flow.leaderboard.track import Track
from agentgym_flow.policies import PolicyInput
from agentgym_flow.prompts import PromptTemplate, template_for
from agentgym_flow.replay.stepping import step_again
from agentgym_flow.training.policy import ModelPolicy, prompt_text, prompt_tokens
from agentgym_flow.training.tiny import gpt2_config, known_words, word_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# ---------------------------------------------------------------- submitted weights
KIND = "gpt2"
"""The supported `model_type`."""

SHAPE: Mapping[str, tuple[int, int]] = {
    "n_embd": (8, 1024),
    "n_layer": (1, 24),
    "n_head": (1, 32),
    "n_inner": (8, 4096),
    "n_positions": (16, 4096),
    "vocab_size": (4, 65536),
}
"""The entries of `config.json` that are read -> their ranges."""

TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""The types of submitted numbers."""

MOST_WEIGHTS = 10_000_000
"""The largest number of weights, which are 20 MB in half precision."""


def entry_policy(entry: Folder, track: Track) -> tuple[ModelPolicy, str]:
    """Make the policy of a submission, as a `MakePolicy` does; the training in a `training.yaml` is run first."""
    if TRAINING not in entry.names:
        policy = submitted_policy(track.env_id, entry.about, (entry.path / WEIGHTS).parent)
        return policy, weights_digest(policy.model)
    settings = settings_of((entry.path / TRAINING).read_bytes())
    with TemporaryDirectory(prefix="agentgym_flow-") as scratch:
        folder = train(settings, track, Path(scratch))
        return submitted_policy(track.env_id, entry.about, folder), stable_hash(settings)


def submitted_policy(env_id: str, about: Submission, folder: Path) -> ModelPolicy:
    """Return the policy with the submitted weights.

    Args:
        env_id: the environment to play.
        about: the submission. Its prompt template must have a fixed vocabulary, such as that of `compact`.
        folder: the folder with `model.safetensors` and `config.json`, of which only `model_type`, `vocabulary` and the
            entries of `SHAPE` are read.

    Raises:
        BadSubmission: the prompt template has no vocabulary, the shape is out of range, or the weights do not fit it or
            are not finite.
    """
    config = decode_file((folder / Path(MODEL_CONFIG).name).read_bytes(), BadSubmission, "config.json")
    weights = (folder / Path(WEIGHTS).name).read_bytes()
    if not isinstance(config, Mapping):
        raise BadSubmission("config.json must be an object with the shape of the model")
    if ":" in about.prompt:
        raise BadSubmission(f"prompt: {about.prompt!r:.60} names a file; use a prompt template of the environment")
    try:
        template = template_for(env_id, about.prompt)
    except UnknownTemplate as error:
        raise BadSubmission(f"prompt: {error}") from None
    vocabulary = getattr(template, "vocabulary", ())
    if not vocabulary:
        raise BadSubmission(
            f"prompt: prompt template {about.prompt!r} has no fixed vocabulary, so its tokens are unknown"
        )
    try:
        template, words = known_words(config, template)
        tokenizer = word_tokenizer(words)
    except BadSetting as error:
        raise BadSubmission(f"config.json: {error}") from None
    model = GPT2LMHeadModel(gpt2_config(tokenizer, **_shape(config, len(tokenizer))))
    _load(model, weights)
    try:
        return ModelPolicy(
            model.eval(),
            tokenizer,
            template,
            temperature=about.sampling.temperature or 1.0,
            greedy=about.sampling.greedy,
            layout=about.layout,
            name="submitted",
        )
    except BadSetting as error:  # such as a layout that the prompt template does not have
        raise BadSubmission(f"the policy cannot play the track: {error}") from None


def _shape(config: Mapping[str, Any], words: int) -> dict[str, int]:
    """Return the checked entries of `SHAPE` for a vocabulary of `words` words. Raises `BadSubmission`."""
    if config.get("model_type") != KIND:
        raise BadSubmission(f"config.json: model_type must be {KIND!r}, got {config.get('model_type')!r:.60}")
    shape = {}
    for name, (least, most) in SHAPE.items():
        value = config.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise BadSubmission(f"config.json: {name} must be a number from {least} to {most}, got {value!r:.60}")
        shape[name] = value
    if shape["vocab_size"] != words:
        raise BadSubmission(
            f"config.json: vocab_size is {shape['vocab_size']}, but the words of the weights, or without them those of "
            f"the prompt template, make {words} tokens"
        )
    if shape["n_embd"] % shape["n_head"]:
        raise BadSubmission("config.json: n_embd must be a multiple of n_head")
    wide, inner = shape["n_embd"], shape["n_inner"]
    layers = shape["n_layer"] * (4 * wide * wide + 2 * wide * inner)
    if (numbers := layers + wide * (words + shape["n_positions"])) > MOST_WEIGHTS:
        raise BadSubmission(f"config.json: a model of {numbers:,} weights is larger than {MOST_WEIGHTS:,}")
    return shape


def _load(model: GPT2LMHeadModel, weights: bytes) -> None:
    """Load the weights of a safetensors file, as float32. Raises `BadSubmission` if they do not fit."""
    try:
        state = load(weights)
    except (SafetensorError, ValueError, KeyError, RuntimeError) as error:
        raise BadSubmission(f"model.safetensors is not a safetensors file ({error!s:.200})") from None
    own = model.state_dict()
    for name in sorted(state.keys() - own.keys()):
        raise BadSubmission(f"model.safetensors: {name!r:.80} is not a weight of this model")
    tied = {"lm_head.weight"}
    for name in sorted(own.keys() - state.keys() - tied):
        raise BadSubmission(f"model.safetensors: {name!r} is missing")
    for name, value in state.items():
        if value.shape != own[name].shape:
            raise BadSubmission(
                f"model.safetensors: {name!r} has shape {tuple(value.shape)}, but the model needs "
                f"{tuple(own[name].shape)}"
            )
        if value.dtype not in TYPES:
            kind, allowed = (", ".join(str(one).removeprefix("torch.") for one in of) for of in ([value.dtype], TYPES))
            raise BadSubmission(f"model.safetensors: {name!r} holds numbers of the type {kind}; use one of {allowed}")
        if not torch.isfinite(value).all():
            raise BadSubmission(f"model.safetensors: {name!r} holds NaN or an infinity; weights must be finite numbers")
        if not torch.isfinite(value.float()).all():
            raise BadSubmission(f"model.safetensors: {name!r} holds a number that does not fit into float32")
    model.load_state_dict({name: value.float() for name, value in state.items()}, strict=False)
    model.tie_weights()


def weights_digest(model: PreTrainedModel) -> str:
    """Return the SHA-256 of a model's shape and of its weights as float32, however a file stores them."""
    whole = hashlib.sha256(json.dumps({name: getattr(model.config, name) for name in SHAPE}).encode("ascii"))
    for name, value in sorted(model.state_dict().items()):
        whole.update(f"{name} {tuple(value.shape)}\n".encode())
        whole.update(value.float().contiguous().numpy().tobytes())
    return whole.hexdigest()


# ---------------------------------------------------------------- log-probabilities of a log
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
        surprise: how much less likely the compared tokens are than tokens drawn from the model, in standard deviations.
            Tokens that the model has drawn have a mean of 0 and a standard deviation of 1, those of a more careful
            sampling (greedy, top-p) less.
    """

    turns: int
    agreed: int
    other_tokens: int
    difference: float
    surprise: float


def rescore(
    log: Path,
    track: Track,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    template: PromptTemplate,
    *,
    share: float = 0.02,
    seed: str = "",
    temperature: float = 1.0,
    data: Mapping[str, str | Path] | None = None,
) -> RescoredShare:
    """Compare the log-probabilities of a random share of a log's turns with those of a model.

    Args:
        log: an attested log that has been checked.
        track: its track.
        model: the model; log-probabilities are compared at temperature 1, as servers report them.
        tokenizer: the model's tokenizer.
        template: the prompt template of the entry.
        share: the fraction of turns to compare; at least one is compared.
        seed: selects the turns; use one that the submitter could not know.
        temperature: the sampling temperature of the entry, at which tokens are drawn.
        data: paths of official data by name.

    Raises `BadSetting` if `share` is not in (0, 1], or a log-probability of the model is not finite.
    """
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise BadSetting(f"share must be above 0 and at most 1, got {share!r:.60}")
    agreed = other = compared = turns = 0
    total = excess = variance = 0.0
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
        own, unlikely, spread = _logprobs(model, prompt, ids, temperature)
        excess, variance = excess + unlikely, variance + spread
        apart = [abs(a - b) for a, b in zip(own, said, strict=True)]
        agreed += sum(apart) / len(apart) <= TOLERANCE
        total, compared = total + sum(apart), compared + len(apart)
    check_positive("the number of turns", turns)
    surprise = excess / math.sqrt(variance) if variance else 0.0
    if not math.isfinite(total + surprise):
        raise BadSetting("the model's log-probabilities are not finite: choose another dtype")
    return RescoredShare(turns, agreed, other, total / max(1, compared), surprise)


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
            outputs = logged.outputs()  # a template may show earlier answers
            said = zip(outputs, (logged.meta or {})[LOGPROBS], strict=True)
            for (output, logprobs), _ in zip(said, step_again(recorder, logged, outputs), strict=True):
                if draws.uniform() < share or not chosen:
                    chosen = True
                    prompt = prompt_tokens(tokenizer, prompt_text(tokenizer, template, PolicyInput.of(recorder)))
                    yield prompt, output.text, logprobs


def _logprobs(
    model: PreTrainedModel, prompt: tuple[int, ...], completion: tuple[int, ...], temperature: float
) -> tuple[list[float], float, float]:
    """Return the log-probabilities of the tokens, and the sum of their surprises with its variance.

    The surprise of a token is its negative log-probability without the mean of that of a drawn token, the entropy.
    """
    tokens = torch.tensor([[*prompt, *completion]], device=model.device)
    with torch.no_grad():
        logits = model(input_ids=tokens).logits[0, len(prompt) - 1 : -1].float()
    chosen = tokens[0, len(prompt) :, None]
    drawn = torch.log_softmax(logits / temperature, dim=-1).clamp_min(
        -1e4
    )  # a masked token has -inf, and 0 * -inf is NaN
    likely = drawn.exp()
    mean = (likely * drawn).sum(dim=-1, keepdim=True)
    variance = float((likely * (drawn - mean) ** 2).sum())
    scores = torch.log_softmax(logits, dim=-1).gather(1, chosen)[:, 0]
    return scores.tolist(), float((mean - drawn.gather(1, chosen)).sum()), variance

"""Policies with given weights: of a Hugging Face folder, such as the checkpoint of a run; and of leaderboard entries.

Submitted weights are untrusted. Nothing from a submission is executed: safetensors contain numbers only, the model is
Transformers' GPT-2 with a shape read from a few known entries, the tokenizer is built from the template's vocabulary,
and the prompt template is the environment's own.

The completions of a submitted log are scored again with the open weights that the submitter names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import yaml  # type: ignore[import-untyped]
from safetensors import SafetensorError
from safetensors.torch import load
from transformers import GenerationConfig, GPT2LMHeadModel, PreTrainedModel

from agentgym_flow._util.files import write_folder_atomically
from agentgym_flow.core import Stream, check_positive
from agentgym_flow.episodes import EpisodeRecorder, read_log
from agentgym_flow.errors import BadSetting, BadSubmission, UnknownOption, UnknownTemplate
from agentgym_flow.generation import has_adapter
from agentgym_flow.generation.transformers_generator import ROWS, TransformersGenerator
from agentgym_flow.leaderboard.submission import ABOUT, Submission
from agentgym_flow.leaderboard.track import Track
from agentgym_flow.policies import PolicyInput
from agentgym_flow.policies.openai_chat import LOGPROBS
from agentgym_flow.prompts import TURN, PromptTemplate, TextTemplate, template_for
from agentgym_flow.replay.stepping import step_again
from agentgym_flow.training.conversation import NONE, checked_date, is_plain, reads_clock, write_date
from agentgym_flow.training.models import is_language_model, load_model, quiet
from agentgym_flow.training.policy import ModelPolicy, check_vocabulary, pad_token, prompt_text, prompt_tokens
from agentgym_flow.training.run_config import DTYPES, mapping
from agentgym_flow.training.run_folder import CONFIG
from agentgym_flow.training.tiny import gpt2_config, word_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MAX_TOKENS = 512
"""The longest completion, in tokens, in prompt templates without their own vocabulary."""


def local_policy(
    folder: str,
    env_id: str,
    *,
    template: str | None = None,
    template_settings: Mapping[str, Any] | None = None,
    shots: int | None = None,
    chat_template: str | None = None,
    layout: str | None = None,
    max_tokens: int | None = None,
    temperature: float = 1.0,
    greedy: bool = False,
    dtype: str = "float32",
    rows: int | None = None,
    date: str | None = None,
    num_envs: int = ROWS,
) -> ModelPolicy:
    """Return the policy of a causal language model in a folder, on the GPU if there is one.

    If the folder is the checkpoint of a run, beside its `config.yaml`, the defaults of prompt template, prompt template
    settings, layout and longest completion are those of the run. For `policy/` of a leaderboard entry, the defaults of
    prompt template and layout are those of the entry's `submission.yaml`.

    Args:
        folder: a folder saved by Hugging Face, with its tokenizer, the name of a downloaded model, or a GGUF file.
        env_id: the environment to play.
        template: the prompt template; by default the run's, else `text`.
        template_settings: new values for fields of the prompt template; by default the run's.
        shots: the number of solved turns in front of the first prompt, a shorter form of
            `template_settings={"shots": N}`.
        chat_template: `none` replaces the chat template of the model by plain text, which suits base models; None: the
            model's own, or plain text if it has none.
        layout: `turn` or `conversation`; by default the run's, else `turn`.
        max_tokens: the longest completion; by default the run's, else 1 if the prompt template has its own vocabulary,
            and 512 otherwise.
        temperature: the sampling temperature.
        greedy: take the most likely token.
        dtype: the type of the weights, such as `bfloat16`.
        date: the date, in ISO format, for chat templates that read the clock; by default the run's, else today's.
        rows: the rows of a forward pass, see `TransformersGenerator`; by default enough for `num_envs`, at most 16.
        num_envs: the number of episodes played in parallel; only `rows` depends on it.

    Raises:
        BadSetting: a number is out of range, or the model does not exist or does not fit the prompt template.
        BadSubmission: the entry's `submission.yaml` is invalid.
        UnknownTemplate, UnknownOption: the prompt template, its setting, the chat template or layout is unknown.
        MissingExtra: the package `gguf` is not installed.
    """
    if max_tokens is not None:
        check_positive("max_tokens", max_tokens)
    quiet()
    run = _settings_of_run(Path(folder))
    name = run.get("template") or "text" if template is None else template
    if template_settings is None and name == run.get("template"):
        template_settings = run.get("template_settings")
    changed = mapping("template_settings", template_settings) | ({} if shots is None else {"shots": shots})
    prompts = template_for(env_id, name, changed)
    if chat_template not in (None, NONE):
        raise UnknownOption.among(chat_template, [NONE], "chat_template replaces that of the model.")
    model, tokenizer = load_model(folder, prompts, dtype=dtype, chat_template=chat_template)
    check_vocabulary(model, tokenizer)
    date = checked_date(run.get("date") if date is None else date)
    write_date(tokenizer, date)
    model = model.eval().to("cuda" if torch.cuda.is_available() else "cpu")
    if max_tokens is None:
        usual = 1 if getattr(prompts, "vocabulary", None) is not None else MAX_TOKENS
        max_tokens = run.get("max_completion_length") or usual
    if layout is None:
        layout = run.get("layout") or TURN
    policy = ModelPolicy(
        model,
        tokenizer,
        prompts,
        generator=TransformersGenerator(
            model, pad_token(tokenizer), rows=rows, num_envs=num_envs, tokenizer=tokenizer, exact=dtype == "float32"
        ),
        temperature=temperature,
        greedy=greedy,
        max_new_tokens=max_tokens,
        layout=layout,
        name=f"hf:{folder}",
    )
    sampling = {"temperature": temperature, "greedy": greedy, "max_tokens": max_tokens, "dtype": dtype}
    policy.settings = {"template": name, "layout": layout, **sampling}
    chosen = {"template_settings": changed, "chat_template": NONE if is_plain(tokenizer) else None, "rows": rows}
    policy.settings |= {name: value for name, value in chosen.items() if value not in (None, {})}
    if reads_clock(tokenizer):
        policy.settings["date"] = date
    return policy


def export_model(name: str, folder: Path, *, dtype: str = "float32", replace: bool = False) -> dict[str, Any]:
    """Write a model for a server: adapters merged into their base model, a chat template, and neutral sampling.

    The chat template of a model without one is the plain one (`write_plain`), with which it plays here, too. Servers
    take sampling settings that a request does not have from `generation_config.json`; those written here change
    nothing, so that a server samples as training does.

    Args:
        name: as for `local_policy`; a checkpoint of a run, a base model, or a GGUF file.
        folder: the new folder.
        dtype: the type of the written weights. Adapters are merged in float32.
        replace: replace an existing folder.

    Returns:
        The settings of the run that the model comes from; empty if it comes from none.

    Raises:
        BadSetting: the model does not exist, or its prompts are no chats.
        UnknownOption: the type is unknown.
        OSError: the folder exists or cannot be written.
    """
    if dtype not in DTYPES:
        raise UnknownOption.among(dtype, DTYPES, "dtype is the type of the weights.")
    if not is_language_model(name):
        raise BadSetting(f"the prompts of {name} are words of its own and no chats: no server plays it, hf:{name} does")
    quiet()
    run = dict(_settings_of_run(Path(name)))
    named = {key: run[key] for key in ("env_id", "template", "template_settings") if run.get(key)}
    prompts: PromptTemplate = TextTemplate()
    if "env_id" in named:
        prompts = template_for(named["env_id"], named.get("template", "text"), named.get("template_settings"))
    with write_folder_atomically(folder, replace=replace) as partial:
        model, tokenizer = load_model(name, prompts)
        whole: PreTrainedModel = model.merge_and_unload() if has_adapter(model) else model
        special = ("pad_token_id", "bos_token_id", "eos_token_id")
        tokens = {one: getattr(whole.generation_config, one) for one in special}
        whole.generation_config = GenerationConfig(**tokens, do_sample=True, temperature=1.0, top_p=1.0, top_k=0)
        whole.to(getattr(torch, dtype)).save_pretrained(partial)
        tokenizer.save_pretrained(partial)
    return run


def _settings_of_run(folder: Path) -> Mapping[str, Any]:
    """Return the settings of the run or leaderboard entry whose model a folder is; empty if there is neither."""
    file, entry = folder.parent / CONFIG, folder.parent / ABOUT
    if not file.is_file():
        about = Submission.parse(entry.read_bytes()) if entry.is_file() else None
        return {} if about is None else {"template": about.prompt, "layout": about.layout}
    try:
        settings = yaml.safe_load(file.read_text("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadSetting(
            f"{file} cannot be read ({error!s:.200}): pass prompt template and layout explicitly"
        ) from None
    return settings if isinstance(settings, dict) else {}


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

MOST_WEIGHTS = 10_000_000
"""The largest number of weights, which are 20 MB in half precision."""


def submitted_policy(
    env_id: str,
    template_name: str,
    config: Any,
    weights: bytes,
    *,
    temperature: float = 1.0,
    greedy: bool = False,
    layout: str = TURN,
) -> ModelPolicy:
    """Return the policy with the submitted weights.

    Args:
        env_id: the environment to play.
        template_name: a prompt template of the environment with a fixed vocabulary, such as `compact`.
        config: the content of `config.json`; only `model_type` and the entries of `SHAPE` are read.
        weights: the bytes of a safetensors file.
        temperature: the sampling temperature.
        greedy: take the most likely token.
        layout: `turn` or `conversation`.

    Raises:
        BadSubmission: the prompt template has no vocabulary, the shape is out of range, or the weights do not fit it or
            are not finite.
    """
    if not isinstance(config, Mapping):
        raise BadSubmission("config.json must be an object with the shape of the model")
    if ":" in template_name:
        raise BadSubmission(f"prompt: {template_name!r:.60} names a file; use a prompt template of the environment")
    try:
        template = template_for(env_id, template_name)
    except UnknownTemplate as error:
        raise BadSubmission(f"prompt: {error}") from None
    vocabulary = getattr(template, "vocabulary", ())
    if not vocabulary:
        raise BadSubmission(
            f"prompt: prompt template {template_name!r} has no fixed vocabulary, so its tokens are unknown"
        )
    tokenizer = word_tokenizer(vocabulary)
    model = GPT2LMHeadModel(gpt2_config(tokenizer, **_shape(config, len(tokenizer))))
    _load(model, weights)
    return ModelPolicy(
        model.eval(),
        tokenizer,
        template,
        temperature=temperature,
        greedy=greedy,
        layout=layout,
        name="submitted",
    )


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
            f"config.json: vocab_size is {shape['vocab_size']}, but the prompt template has {words} words"
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
        if not value.is_floating_point() or not torch.isfinite(value.float()).all():
            raise BadSubmission(f"model.safetensors: {name!r} must hold finite numbers")
    model.load_state_dict({name: value.float() for name, value in state.items()}, strict=False)
    model.tie_weights()


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
            outputs = logged.outputs()  # a template may show earlier answers
            said = zip(outputs, (logged.meta or {})[LOGPROBS], strict=True)
            for (output, logprobs), _ in zip(said, step_again(recorder, logged, outputs), strict=True):
                if draws.uniform() < share or not chosen:
                    chosen = True
                    prompt = prompt_tokens(tokenizer, prompt_text(tokenizer, template, PolicyInput.of(recorder)))
                    yield prompt, output.text, logprobs


def _logprobs(model: PreTrainedModel, prompt: tuple[int, ...], completion: tuple[int, ...]) -> list[float]:
    tokens = torch.tensor([[*prompt, *completion]], device=model.device)
    with torch.no_grad():
        logits = model(input_ids=tokens).logits[0, len(prompt) - 1 : -1].float()
    scores = torch.log_softmax(logits, dim=-1)
    return [float(one) for one in scores.gather(1, tokens[0, len(prompt) :, None])[:, 0]]

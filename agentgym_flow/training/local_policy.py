"""A policy with local weights: a Hugging Face folder, such as the checkpoint of a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig, PreTrainedModel

from agentgym_flow._util.files import write_folder_atomically
from agentgym_flow._util.values import settings_in
from agentgym_flow.core import check_positive
from agentgym_flow.errors import BadSetting, UnknownOption
from agentgym_flow.generation import has_adapter
from agentgym_flow.generation.transformers_generator import ROWS, TransformersGenerator
from agentgym_flow.leaderboard.submission import ABOUT, Submission
from agentgym_flow.prompts import TURN, PromptTemplate, TextTemplate, template_for
from agentgym_flow.training.compatibility import check_vocabulary
from agentgym_flow.training.conversation import NONE, checked_date, is_plain, reads_clock, write_date
from agentgym_flow.training.models import is_language_model, load_model, quiet
from agentgym_flow.training.policy import ModelPolicy, pad_token
from agentgym_flow.training.run_config import DTYPES, mapping
from agentgym_flow.training.run_folder import CONFIG
from agentgym_flow.training.tiny import known_words

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
    if getattr(prompts, "vocabulary", ()):
        prompts, _ = known_words(model.config.to_dict(), prompts)
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
        return settings_in(file, BadSetting)
    except BadSetting as error:
        raise BadSetting(f"{error}: move the file away, and pass prompt template and layout explicitly") from None

"""The model of a run: loading and saving, adapters (LoRA), and what a process sets before it trains one.

LoRA trains a pair of small matrices beside each weight matrix of a large, frozen model (E. Hu and others. LoRA:
low-rank adaptation of large language models. 2022). Implemented with `peft`.
"""

from __future__ import annotations

import gc
import logging
import re
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from transformers.integrations import is_deepspeed_zero3_enabled

from agentgym_flow._util.importing import find_modules_here, imported
from agentgym_flow.errors import AgentGymFlowError, BadSetting, MissingExtra, UnknownOption
from agentgym_flow.generation import has_adapter
from agentgym_flow.prompts import PromptTemplate
from agentgym_flow.training.conversation import write_plain
from agentgym_flow.training.run_folder import writing
from agentgym_flow.training.tiny import TINY, known_words, tiny_model, word_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# ---------------------------------------------------------------- loading and saving
_logger = logging.getLogger(__name__)

_NAME_ON_HUB = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")

COLLECT_AFTER = 100_000
"""New objects per garbage collection while a policy trains; Python's default is 700."""


def quiet() -> None:
    """Silence the progress bars and warnings of the Hugging Face libraries, and DeepSpeed's on standard output."""
    from transformers.utils import logging as of_transformers

    of_transformers.disable_progress_bar()
    of_transformers.set_verbosity_error()
    logging.getLogger("DeepSpeed").addFilter(_is_error)  # its import would write into what --json prints
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")


def _is_error(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR


def save_model(
    folder: Path,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    weights: Mapping[str, torch.Tensor] | None = None,
) -> None:
    """Write a plain Hugging Face folder, replacing an older one atomically.

    `weights` are the model's weights if it does not hold them itself (ZeRO-3). Raises `TrainingFailed` if the folder
    cannot be written.
    """
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    with writing(folder, partial):
        chosen = {"selected_adapters": [POLICY]} if has_adapter(model) else {}
        model.save_pretrained(partial, state_dict=weights, **chosen)
        tokenizer.save_pretrained(partial)
        shutil.rmtree(folder, ignore_errors=True)
        partial.replace(folder)


@contextmanager
def loaded_whole() -> Iterator[None]:
    """Let a single process load a whole model, also under ZeRO-3, which normally splits it among all processes."""
    from transformers.integrations import deepspeed

    config = deepspeed._hf_deepspeed_config_weak_ref and deepspeed._hf_deepspeed_config_weak_ref()
    deepspeed.unset_hf_deepspeed_config()
    try:
        yield
    finally:
        if config is not None:
            deepspeed.set_hf_deepspeed_config(config)


def load_weights(folder: Path, model: PreTrainedModel) -> None:
    """Load weights or an adapter that `save_model` wrote into a `model` of the same shape.

    The model may be split by ZeRO-3; all processes must call this then.
    """
    if has_adapter(model):
        with _gathered(model):
            model.load_adapter(str(folder), POLICY, is_trainable=True)
        return
    from transformers import AutoModelForCausalLM

    with loaded_whole():
        weights = AutoModelForCausalLM.from_pretrained(folder).state_dict()
    with _gathered(model):
        model.load_state_dict(weights)


@contextmanager
def _gathered(model: PreTrainedModel) -> Iterator[None]:
    """Gather the trained weights that ZeRO-3 has split, and keep the changes of the main process."""
    split = [parameter for parameter in model.parameters() if parameter.requires_grad and hasattr(parameter, "ds_id")]
    if not split:
        yield
        return
    import deepspeed

    with deepspeed.zero.GatheredParameters(split, modifier_rank=0):
        yield


def load_model(
    name: str,
    template: PromptTemplate,
    *,
    seed: int = 0,
    dtype: str = "float32",
    chat_template: str | None = None,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return model and tokenizer: a new tiny model for the template's vocabulary, or a Hugging Face causal model.

    For a folder with LoRA adapters, the adapters on their base model; for a GGUF file, its weights, dequantised. A
    tokenizer without a chat template gets a plain one, see `write_plain` for this and `chat_template`. A folder without
    a tokenizer, such as `policy/` of a leaderboard entry, has the `known_words` of its configuration. For
    `module:function`, what the user's function returns when called with the prompt template and the keyword argument
    `seed`. Weights are converted to `dtype`, adapters to float32.

    Raises:
        BadSetting: the prompt template has no vocabulary for the tiny model, the model or its tokenizer does not exist,
            `dtype` is no floating-point type, or the function returns something else.
        UnknownOption: the function does not exist.
        MissingExtra: the package `gguf` is not installed.
    """
    kind = getattr(torch, str(dtype), None)
    if not isinstance(kind, torch.dtype) or not kind.is_floating_point:
        raise BadSetting(f"dtype must be a floating-point type such as bfloat16, got {dtype!r:.60}")
    if is_own_model(name):
        model, tokenizer = _own_model(name, template, seed, dtype)
        write_plain(tokenizer, template, chat_template, name)
        return model, tokenizer
    if name == TINY:
        vocabulary = getattr(template, "vocabulary", ())
        if not vocabulary:
            raise BadSetting(
                f"template {template.name!r} has no fixed vocabulary for the tiny model: use template compact, or "
                "another model"
            )
        tokenizer = word_tokenizer(vocabulary)
        return tiny_model(tokenizer, seed=seed), tokenizer
    from safetensors import SafetensorError

    if not Path(name).exists() and not _NAME_ON_HUB.fullmatch(name):
        raise BadSetting(f"there is no folder {name}")
    load = load_adapter if is_adapter(name) else _load_whole
    try:
        model = load(name, dtype)
        tokenizer = load_tokenizer(name, template, chat_template)
    except AgentGymFlowError:
        raise
    except (OSError, ValueError, SafetensorError) as error:
        if not Path(name).exists():
            raise BadSetting(
                f"there is no folder {name}, and no downloaded model of this name (HF_HUB_OFFLINE=0 allows "
                "downloading it)"
            ) from error
        reason = str(error).partition("\n")[0]  # the other lines list all supported models
        files = (*Path(name).glob("*/config.json"), *Path(name).glob("*/adapter_config.json"))
        if inside := sorted({str(file.parent) for file in files}):  # the folder of a run
            reason = f"Models in this folder: {', '.join(inside)}"
        raise BadSetting(
            f"cannot load a causal language model from {name!r}, which must be a folder saved by Hugging Face, with "
            f"its tokenizer. {reason}"
        ) from error
    if len(tokenizer) > len(tokenizer.added_tokens_decoder):
        return model, tokenizer
    # The folder has no tokenizer, and Transformers has made one that has only special tokens.
    has_words = bool(getattr(template, "vocabulary", ()))
    tokenizer = word_tokenizer(known_words(model.config.to_dict(), template)[1]) if has_words else None
    if tokenizer is None or len(tokenizer) != model.config.get_text_config().vocab_size:
        raise BadSetting(f"{name} has no tokenizer: save it there, or use the prompt template of its training")
    return model, tokenizer


def load_tokenizer(name: str, template: PromptTemplate, chat_template: str | None = None) -> PreTrainedTokenizerBase:
    """Return the tokenizer of a Hugging Face model; see `load_model`. Raises what Transformers raises as well."""
    from transformers import AutoTokenizer

    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(**_place(name), padding_side="left")
    if len(tokenizer) > len(tokenizer.added_tokens_decoder):  # else the folder has none
        write_plain(tokenizer, template, chat_template, name)
    return tokenizer


def is_gguf(name: str) -> bool:
    """Return whether `name` is a GGUF file."""
    return name.endswith(".gguf") and Path(name).is_file()


def _place(name: str) -> dict[str, str]:
    """Return the arguments of `from_pretrained` that say where a model is."""
    if not is_gguf(name):
        return {"pretrained_model_name_or_path": name}
    return {"pretrained_model_name_or_path": str(Path(name).parent), "gguf_file": Path(name).name}


def is_own_model(name: str) -> bool:
    """Return whether `name` is a `module:function`."""
    return ":" in name and not Path(name).exists()


def is_language_model(name: str) -> bool:
    """Return whether `name` is a pretrained language model: not `tiny` or its checkpoint, and no `module:function`."""
    if name == TINY or is_own_model(name):
        return False
    if not Path(name).is_dir():
        return True
    words = Path(name) / "tokenizer.json"  # absent: of a leaderboard entry, or an older kind of tokenizer
    if not words.is_file():
        return any(Path(name).glob("*.model")) or (Path(name) / "vocab.json").is_file()
    return '"WordLevel"' not in words.read_text("utf-8", errors="replace")


def _own_model(
    name: str, template: PromptTemplate, seed: int, dtype: str
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    find_modules_here()
    made = imported(name, UnknownOption)(template, seed=seed)
    if not (
        isinstance(made, tuple)
        and len(made) == 2
        and isinstance(made[0], PreTrainedModel)
        and isinstance(made[1], PreTrainedTokenizerBase)
    ):
        raise BadSetting(f"model: {name} must return a model and a tokenizer of Transformers, got {made!r:.200}")
    return made[0].to(getattr(torch, dtype)), made[1]


def _load_whole(name: str, dtype: str) -> PreTrainedModel:
    """Load a model. Raises `BadSetting` if weights are missing or misshaped, which Transformers would initialise."""
    from transformers import AutoModelForCausalLM

    if is_gguf(name):
        if find_spec("gguf") is None:
            raise MissingExtra(f"gguf is not installed, which reads {name}. Install it with: pip install gguf")
        _logger.warning("Reading %s: converting its tokenizer and its weights takes a minute or two", name)
    model, found = AutoModelForCausalLM.from_pretrained(
        **_place(name), dtype=dtype, output_loading_info=True, ignore_mismatched_sizes=True
    )
    for weight, saved, wanted in sorted(found["mismatched_keys"]):
        raise BadSetting(
            f"model: {weight} in {name!r} has shape {tuple(saved)}, but its config.json needs {tuple(wanted)}: use a "
            "folder whose weights and config.json belong together"
        )
    for weight in sorted(found["missing_keys"]):
        raise BadSetting(f"model: {name!r} has no {weight}: use a folder with all weights of a causal language model")
    whole_model: PreTrainedModel = model
    return whole_model


@contextmanager
def frozen_heap() -> Iterator[None]:
    """Exclude existing objects from garbage collection, and collect once per `COLLECT_AFTER` new objects.

    Episodes are many small objects, so the collector runs often while a policy trains, and each full pass walks half a
    million objects of the imported libraries: a sixth of the time of a batch of the quickstart. Another tenth is passes
    over turns that are still in use. A collector that is turned off stays off.
    """
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(before[0] and max(before[0], COLLECT_AFTER), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


# ---------------------------------------------------------------- adapters
ADAPTER = "adapter_config.json"
"""The file that identifies the folder of an adapter."""


POLICY, REFERENCE = "default", "reference"
"""Names of the adapters on a model: the trained one, and the frozen one of the KL term."""

ALL_LINEAR = "all-linear"
"""Adapters on every linear layer except the output head."""


def with_lora(
    model: PreTrainedModel, *, rank: int, alpha: int, seed: int, dropout: float = 0.0, targets: str = ALL_LINEAR
) -> PreTrainedModel:
    """Return `model` with new adapters on its linear layers; only they are trainable.

    Args:
        model: a causal language model loaded from a folder or the Hub.
        rank: the inner dimension of the adapters.
        alpha: the output of the adapters is scaled by `alpha / rank`.
        seed: determines the initial weights, with which the adapters change nothing.
        dropout: dropout on the inputs of the adapters in training mode.
        targets: the layers with adapters: `ALL_LINEAR`, or the ends of their names, separated by commas.

    Raises:
        MissingExtra: peft is not installed.
        BadSetting: the model has no such layer.
    """
    _require_peft()
    from peft import LoraConfig, get_peft_model

    layers = targets if targets == ALL_LINEAR else [name.strip() for name in targets.split(",")]
    named = "".join(f".{layer} " for layer, _ in model.named_modules())
    unknown = [name for name in layers if f".{name} " not in named] if isinstance(layers, list) else []
    if unknown:  # peft raises only if none of them exists
        raise BadSetting(f"lora_targets: the model has no layer whose name ends in {unknown[0]!r}")
    settings = LoraConfig(task_type="CAUSAL_LM", target_modules=layers, r=rank, lora_alpha=alpha, lora_dropout=dropout)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        # ZeRO-3 cannot gather weights of two types at once; with bf16 it keeps float32 copies of what is trained.
        return get_peft_model(model, settings, autocast_adapter_dtype=not is_deepspeed_zero3_enabled())


def add_reference(model: PreTrainedModel) -> None:
    """Add a second, frozen adapter of the same shape to a model; the first one stays active and trained."""
    if REFERENCE in model.peft_config:  # added by an earlier trainer
        return
    with torch.random.fork_rng(devices=[]):  # its random initial weights will be replaced
        model.add_adapter(REFERENCE, model.peft_config[POLICY], autocast_adapter_dtype=not is_deepspeed_zero3_enabled())
    model.set_adapter(POLICY)


@contextmanager
def active_adapter(model: PreTrainedModel, adapter: str) -> Iterator[None]:
    """Activate another adapter of a model within the context, in evaluation mode, without dropout."""
    was_training = model.training
    model.eval()
    model.set_adapter(adapter)
    try:
        yield
    finally:
        model.set_adapter(POLICY)
        model.train(was_training)


def is_adapter(name: str) -> bool:
    """Return whether `name` is a folder with an adapter instead of a whole model."""
    return (Path(name) / ADAPTER).is_file()


def load_adapter(folder: str, dtype: str) -> PreTrainedModel:
    """Return the adapter in `folder` on its base model, ready for further training.

    The model is converted to `dtype`, the adapter to float32.

    Raises `MissingExtra` if peft is not installed, and `OSError` or `ValueError` if either cannot be loaded.
    """
    _require_peft()
    from peft import AutoPeftModelForCausalLM

    return AutoPeftModelForCausalLM.from_pretrained(folder, is_trainable=True, dtype=dtype)


def _require_peft() -> None:
    try:
        import peft  # noqa: F401
    except ImportError:
        raise MissingExtra.of("peft", "train") from None

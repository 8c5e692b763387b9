"""The folder of a training run, and loading and saving of its model."""

from __future__ import annotations

import gc
import glob
import json
import logging
import os
import re
import shutil
import signal
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentgym_flow._util.files import write_atomically
from agentgym_flow._util.importing import find_modules_here, imported
from agentgym_flow._util.signals import signals_go_to
from agentgym_flow.errors import AgentGymFlowError, BadSetting, MissingExtra, OtherProcessFailed, UnknownOption
from agentgym_flow.generation.weights import has_adapter
from agentgym_flow.prompts import PromptTemplate
from agentgym_flow.training.chat_template import write_plain
from agentgym_flow.training.checkpoints import writing
from agentgym_flow.training.lora import POLICY, is_adapter, load_adapter
from agentgym_flow.training.tiny import tiny_model, word_tokenizer

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

CONFIG = "config.yaml"
"""The file of a run folder with the settings."""

SUMMARY = "summary.json"
"""The file of a run folder with the status and results of the run."""

VOCABULARY = "vocabulary.json"
"""The file of a run folder with a vocabulary collected by play, for the tiny policy."""

OF_THE_START = frozenset({CONFIG, SUMMARY, VOCABULARY, "weights", "dataflow.yaml", "dataflow"})
"""What a run folder holds before any work. A run that a wrong setting ends there leaves no folder."""

RUNNING, FINISHED = "running", "finished"
"""The status of a run that is running or was killed, and of a finished one."""

TINY = "tiny"
"""The name of the built-in model, which starts from random weights."""

_logger = logging.getLogger(__name__)

_NAME_ON_HUB = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")

COLLECT_AFTER = 100_000
"""New objects per garbage collection while a policy trains; Python's default is 700."""


class RunFolder:
    """The folder of one run: the given path, or with the suffix `-2`, `-3`, ... if it is taken.

    The `status` in `summary.json` is always up to date: `running`, `finished`, `interrupted` or `failed`. Every file
    except the metrics file, which grows, is written atomically. A new run with a wrong setting that is found
    before any work leaves no folder.

    Args:
        wanted: the path.
        resume: open the folder of a killed or interrupted run, at exactly this path.

    Raises:
        BadSetting: the run to resume does not exist or is finished.
    """

    def __init__(self, wanted: str | Path, *, resume: bool = False) -> None:
        wanted = path = Path(wanted)
        if resume:
            _check_unfinished(path)
        number = 2
        while not resume and path.exists() and (not path.is_dir() or any(path.iterdir())):
            path = wanted.with_name(f"{wanted.name}-{number}")
            number += 1
        path.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._is_new = not resume
        self.metrics = path / "metrics.jsonl"
        self.config = path / CONFIG
        self.report = path / "report.html"
        self.curve = path / "learning_curve.png"
        self.evaluations = path / "evaluations"
        self.checkpoint = path / "checkpoint"
        self.warm_start = path / "warm_start"
        self.weights = path / "weights"  # for transfer to a generator
        self.vocabulary = path / VOCABULARY
        self.summarise(RUNNING)

    def summarise(self, status: str, results: Mapping[str, Any] | None = None) -> None:
        """Write `summary.json`: the status, and results."""
        text = json.dumps({"status": status, **(results or {})}, indent=1, allow_nan=False)
        with write_atomically(self.path / SUMMARY) as partial, partial.open("w", encoding="utf-8") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())  # or a power failure could leave an empty file

    def contents(self) -> dict[str, Path]:
        """Return the files and folders to show the user, by name."""
        return {
            "Page to open": self.report,
            "Learning curve": self.curve,
            "Metrics": self.metrics,
            "Episode logs": self.evaluations,
            "Checkpoint": self.checkpoint,
            "Settings": self.config,
        }

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Record in the summary if the run is interrupted or fails; the exception propagates.

        The folder of a failed start is removed. If another process failed first, that process records the reason.
        """
        try:
            yield
        except OtherProcessFailed:
            raise
        except KeyboardInterrupt:
            self._end("interrupted")
            raise
        except BaseException as error:
            self._end("failed", {"error": f"{type(error).__name__}: {error}"})
            wrong_setting = isinstance(error, ValueError | ImportError | OSError)  # not what may be resumed
            if wrong_setting and self._is_new and {path.name for path in self.path.glob("*")} <= OF_THE_START:
                shutil.rmtree(self.path, ignore_errors=True)
            raise

    def _end(self, status: str, results: Mapping[str, Any] | None = None) -> None:
        # A full disk must not hide the exception that ended the run.
        with signals_go_to(signal.SIG_IGN), suppress(OSError):
            if _status(self.path) == RUNNING:
                self.summarise(status, results)


def _check_unfinished(path: Path) -> None:
    if is_finished(path):
        raise BadSetting(f"resume: the run in {path} is finished: leave resume out for a new run")


def is_finished(path: Path) -> bool:
    """Return whether the run in a folder is finished. Raises `BadSetting` if there is no run."""
    try:
        return _status(path) == FINISHED
    except OSError as error:
        raise BadSetting(f"resume: {path} has no run ({error})") from error


def _status(path: Path) -> str:
    """Return the status of a run. A damaged summary is one that a crash cut short, so the run counts as running."""
    text = (path / SUMMARY).read_text("utf-8", errors="replace")
    try:
        return str(json.loads(text)["status"])
    except (ValueError, KeyError, TypeError):
        return RUNNING


def last_run(wanted: str | Path) -> Path:
    """Return the last of the run folders `wanted`, `wanted-2`, ... Raises `BadSetting` if there is none."""
    wanted = Path(wanted)
    numbered = {1: wanted} if wanted.is_dir() else {}
    for path in wanted.parent.glob(f"{glob.escape(wanted.name)}-*"):
        number = path.name.removeprefix(f"{wanted.name}-")
        if number.isdecimal() and path.is_dir():
            numbered[int(number)] = path
    if not numbered:
        raise BadSetting(f"resume: there is no run at output_dir {wanted} yet: leave resume out, or name its folder")
    return numbered[max(numbered)]


def quiet() -> None:
    """Silence the progress bars and future warnings of the Hugging Face libraries."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")


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
    a tokenizer, such as `policy/` of a leaderboard entry, has the words of the template, if it has as many. For
    `module:function`, what the user's function returns when called with the prompt template and the keyword argument
    `seed`. Weights are converted to `dtype`, adapters to float32.

    Raises:
        BadSetting: the prompt template has no vocabulary for the tiny model, the model or its tokenizer does not exist,
            or the function returns something else.
        UnknownOption: the function does not exist.
        MissingExtra: the package `gguf` is not installed.
    """
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
        raise BadSetting(
            f"cannot load a causal language model from {name!r}, which must be a folder saved by Hugging Face, with "
            f"its tokenizer. {reason}"
        ) from error
    if len(tokenizer) > len(tokenizer.added_tokens_decoder):
        return model, tokenizer
    # The folder has no tokenizer, and Transformers has made one that has only special tokens.
    vocabulary = getattr(template, "vocabulary", ())
    tokenizer = word_tokenizer(vocabulary) if vocabulary else None
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
    import torch
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

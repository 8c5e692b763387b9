"""A tiny Qwen3 from its config, and real vLLM: in this process, and as servers. `make nightly` runs these tests.

vLLM wants versions of its own of some packages, so they run in a virtual environment of their own.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

os.environ["VLLM_CPU_KVCACHE_SPACE"] = "1"
os.environ["TORCHDYNAMO_DISABLE"] = "1"  # it would compile for half a minute what takes a millisecond

import pytest
import torch

pytest.importorskip("trl", reason="training needs the extra train")

from transformers import Qwen3Config, Qwen3ForCausalLM

from agentgym_flow.envs.sokoban.prompt import PROMPT_TEMPLATES
from agentgym_flow.training.models import load_model, save_model, with_lora

torch.set_num_threads(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = None
    if find_spec("vllm") is None:
        reason = "needs vLLM, in an environment of its own: make nightly"
    elif "avx2" not in Path("/proc/cpuinfo").read_text("utf-8") and not torch.cuda.is_available():
        reason = "vLLM for CPUs needs AVX2"
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.nightly)
            if reason is not None:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    """A tokenizer of whole words."""
    return load_model("tiny", PROMPT_TEMPLATES["compact"])[1]


@pytest.fixture(scope="session")
def make_model(tokenizer: Any) -> Callable[..., Any]:
    """Makes a small Qwen3 with random weights, large enough that no answer is likely; or one with an adapter on it."""

    def make(seed: int, adapter: bool = False) -> Any:
        config = Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=32,
            max_position_embeddings=4096,
            tie_word_embeddings=True,
            initializer_range=0.1,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = Qwen3ForCausalLM(config)
        return with_lora(model, rank=4, alpha=8, seed=seed) if adapter else model

    return make


@pytest.fixture(scope="session")
def model_folder(make_model: Callable[..., Any], tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with such a model, as a server or a recipe is given it."""
    folder = tmp_path_factory.mktemp("models") / "qwen"
    save_model(folder, make_model(0), tokenizer)
    return folder


class Server:
    """A server of vLLM, as the documentation says to start one."""

    def __init__(self, model: Path, log: Path, *options: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url, self.log = f"http://127.0.0.1:{self.port}", log
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
        command += ["--dtype", "float32", "--enforce-eager", "--host", "127.0.0.1", "--port", str(self.port)]
        command += ["--logprobs-mode", "processed_logprobs", "--no-enable-chunked-prefill", *options]
        settings = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1", "OMP_NUM_THREADS": "1"}
        environment = {**os.environ, **settings, "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
        environment.pop("VLLM_ENABLE_V1_MULTIPROCESSING", None)  # of an engine in this process
        with log.open("w") as file:
            self.process = subprocess.Popen(
                command, env=environment, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
            )

    def end(self, signal_number: int = signal.SIGKILL) -> None:
        """End the server with the processes that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal_number)
        self.process.wait()


@pytest.fixture(scope="session")
def servers(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    """Three servers of the model, of which the last takes adapters as well."""
    folder = tmp_path_factory.mktemp("servers")
    adapters = ("--enable-lora", "--max-lora-rank", "8")
    started = [Server(model_folder, folder / f"{n}.log", *(adapters if n == 2 else ())) for n in range(3)]
    yield started
    for server in started:
        server.end()

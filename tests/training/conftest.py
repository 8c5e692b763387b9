"""A tiny model, hand-made episodes with tokens, and a trainer small enough for a test."""

from __future__ import annotations

import gc
import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("trl", reason="training needs the extra train")

from transformers import Qwen2Config, Qwen2ForCausalLM

from agentgym_flow.core import TextEnv
from agentgym_flow.envs import make_text_env
from agentgym_flow.envs.sokoban.prompt import PROMPT_TEMPLATES
from agentgym_flow.prompts import PromptTemplate
from agentgym_flow.training import tiny as tiny_module
from agentgym_flow.training.config import AgentConfig
from agentgym_flow.training.models import load_model, save_model
from agentgym_flow.training.trainer import AgentTrainer

SOKOBAN = "agentgym_flow/Sokoban-v0"
TEMPLATE = PROMPT_TEMPLATES["compact"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what reads the results of a comparison or a tuning that really runs, which is slow to make."""
    for item in items:
        if {"done", "copied"} & {*getattr(item, "fixturenames", ())}:
            item.add_marker(pytest.mark.heavy)


MINUTES = 30
"""How long the processes of one test may take on a busy machine; some that wait for each other would never end."""


@pytest.fixture(scope="session")
def run_processes(root: Path) -> Callable[..., str]:
    """Runs a command that may start processes of its own, and returns what it printed.

    Fails, with what was printed, when the exit status is an error (with `fails=True` when it is none), or after
    `MINUTES`.
    """

    def run(command: Sequence[object], fails: bool = False) -> str:
        process = start_process(root, command)
        try:
            said, _ = process.communicate(timeout=60 * MINUTES)
        except subprocess.TimeoutExpired:
            process.terminate()  # a launcher ends those it has started; killed, it would leave them behind
            said, _ = process.communicate()
            pytest.fail(f"not done after {MINUTES} minutes: {said[-4000:]}")
        assert bool(process.returncode) is fails, said[-4000:]
        return said

    return run


def start_process(root: Path, command: Sequence[object]) -> subprocess.Popen[str]:
    """Start a command that imports this checkout; a crash prints where it was."""
    environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1"}
    return subprocess.Popen(
        [*map(str, command)],
        cwd=root,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


@pytest.fixture(scope="session")
def start(root: Path) -> Callable[[Sequence[object]], subprocess.Popen[str]]:
    """Starts a command, see `start_process`."""
    return partial(start_process, root)


@pytest.fixture(scope="session")
def launcher(root: Path) -> Callable[[str], list[str]]:
    """Gives the command that starts the processes of one of our Accelerate configurations, on any free port."""

    def launch(config: str) -> list[str]:
        file = root / "baselines" / "configs" / "accelerate" / config
        command = [sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch", "--config_file", str(file)]
        return [*command, "--main_process_port", "0"]

    return launch


@pytest.fixture(scope="session")
def import_benchmark(root: Path) -> Iterator[Callable[[str], Any]]:
    """Imports a script of `benchmarks/` by its name; scripts in that folder import each other by their bare names."""
    folder = str(root / "benchmarks")
    sys.path.insert(0, folder)
    yield importlib.import_module
    sys.path.remove(folder)


@pytest.fixture(scope="session")
def _extensions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("torch_extensions")


@pytest.fixture
def deepspeed(_extensions: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets DeepSpeed compile its CPU communication, once, where no killed build may have left a lock."""
    if find_spec("deepspeed") is None:
        pytest.skip("needs the extra deepspeed")
    if shutil.which("c++") is None:
        pytest.skip("needs a C++ compiler")
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(_extensions))
    # ninja may be installed with pip
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Threads of torch only get into each other's way at this size; a recipe sets their number for the process."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def what_other_tests_left() -> None:
    """Trainers ask for full garbage collections, and each would walk what the tests before these have kept as well."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def heap_stays_frozen(what_other_tests_left: None) -> None:
    """A recipe unfreezes everything when it ends; to collect here would cost what is to be saved."""
    if not gc.get_freeze_count():
        gc.freeze()


@pytest.fixture(scope="module")
def narrow() -> Iterator[None]:
    """Makes `tiny` a third as wide, where a test asks what a run does and not how well it learns."""
    shaped = tiny_module.GPT2Config

    def narrowed(**settings: Any) -> Any:
        return shaped(**{**settings, "n_embd": 32, "n_head": 2, "n_inner": 64})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiny_module, "GPT2Config", narrowed)
        yield


@pytest.fixture
def tiny() -> tuple[Any, Any]:
    """A fresh tiny model and its tokenizer."""
    return load_model("tiny", TEMPLATE, seed=0)


@pytest.fixture
def make_warm() -> Callable[..., tuple[Any, Any]]:
    """Makes a model that mostly plays the four words, so that some episodes succeed; and its tokenizer."""

    def make(seed: int = 0) -> tuple[Any, Any]:
        model, tokenizer = load_model("tiny", TEMPLATE, seed=seed)
        with torch.no_grad():
            actions = model.transformer.wte.weight[3:7]
            direction = actions.mean(0) / actions.mean(0).norm()
            actions += 3.0 * direction
            model.transformer.ln_f.bias += 3.0 * direction
        return model, tokenizer

    return make


@pytest.fixture
def warm(make_warm: Callable[..., tuple[Any, Any]]) -> tuple[Any, Any]:
    """Such a model."""
    return make_warm()


@pytest.fixture
def acting_model(make_warm: Callable[..., tuple[Any, Any]], tmp_path: Path) -> Path:
    """The folder of such a model, with weights whose first episodes differ in length."""
    save_model(tmp_path / "acting", *make_warm(seed=1))
    return tmp_path / "acting"


@pytest.fixture
def published(tiny: tuple[Any, Any], tmp_path: Path) -> Path:
    """The folder of a small Qwen2 with random weights, in bfloat16 as such models are published."""
    _, tokenizer = tiny
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        save_model(tmp_path / "published", Qwen2ForCausalLM(config).to(torch.bfloat16), tokenizer)
    return tmp_path / "published"


def _make_env() -> TextEnv:
    return make_text_env(SOKOBAN, size=6, boxes=1, min_pushes=1, split="train")


@pytest.fixture
def make_env() -> Callable[[], TextEnv]:
    """Makes a small Sokoban."""
    return _make_env


@pytest.fixture
def template() -> PromptTemplate:
    """The compact prompt of Sokoban."""
    return TEMPLATE


@pytest.fixture
def make_trainer(tmp_path: Path, tiny: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> Callable[..., AgentTrainer]:
    """Makes a trainer on 4 levels x 4 attempts, 2 minibatches; keywords change settings, or name the `tasks`."""

    def make(tasks: Sequence[int] | None = None, **settings: Any) -> AgentTrainer:
        model, tokenizer = settings.pop("model", tiny)
        chosen = {
            "output_dir": str(tmp_path / "trainer"),
            "num_generations": 4,
            "per_device_train_batch_size": 8,
            "steps_per_generation": 2,
            "max_steps": 2,
            "logging_steps": 2,
            "learning_rate": 1e-3,
            "muon_learning_rate": 5e-3,
            "seed": 0,
            **settings,
        }
        trainer = AgentTrainer(model, AgentConfig(**chosen), tokenizer, TEMPLATE, _make_env)
        if tasks is not None:
            monkeypatch.setattr(trainer.source.tasks, "at", lambda position, count: list(tasks))
        return trainer

    return make

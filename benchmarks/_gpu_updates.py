"""Parts of `gpu.py`: the GPU's utilisation, shared prefixes against plain rows, and the scores of sampled tokens.

The model has the shape of Qwen2.5-0.5B and random weights; the rows are those of `text_training.py`.
"""

from __future__ import annotations

import argparse
import gc
import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import text_training
import torch
from _byte_level import byte_level_tokenizer
from transformers import Qwen2Config, Qwen2ForCausalLM

from agentgym_flow.training.config import AgentConfig
from agentgym_flow.training.memory import QWEN
from agentgym_flow.training.rows import TrainingRow, collate
from agentgym_flow.training.scoring import sampled_scores
from agentgym_flow.training.trainer import AgentTrainer

SHAPE = QWEN["Qwen/Qwen2.5-0.5B-Instruct"]
SMALL_SHAPE = SHAPE | {"num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128, "vocab_size": 2048}
LAYOUTS = ("turn", "conversation")
HEADER = (
    "layout",
    "rows",
    "update",
    "seconds",
    "tokens of rows/s",
    "faster",
    "bound",
    "gradient norm",
    "GPU",
    "memory",
)


class Gpu:
    """GPU utilisation during a run, sampled by a thread if nvidia-ml-py is installed."""

    def __init__(self) -> None:
        self.there = torch.cuda.is_available()
        self.can_ask = self.there and find_spec("pynvml") is not None
        self.busy: list[float] = []
        self.memory: list[int] = []

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Sample twice a second within the context."""
        self.busy, self.memory = [], []
        if self.there:
            torch.cuda.reset_peak_memory_stats()
        done = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(done,), daemon=True)
        if self.can_ask:
            watcher.start()
        try:
            yield
        finally:
            done.set()
            if self.can_ask:
                watcher.join()

    def _watch(self, done: threading.Event) -> None:
        while not done.wait(0.5):
            self.busy.append(torch.cuda.utilization())
            self.memory.append(torch.cuda.device_memory_used())

    def figures(self) -> tuple[str, str]:
        """Return utilisation and memory as text."""
        if not self.there:
            return "no GPU", "no GPU"
        peak = f"{torch.cuda.max_memory_allocated() / 1e9:.1f} GB by PyTorch"
        if not self.busy:
            return ("no sample" if self.can_ask else "install nvidia-ml-py"), peak
        return f"{sum(self.busy) / len(self.busy):.0f} %", f"{peak}, {max(self.memory) / 1e9:.1f} GB in all"


class Updates:
    """Measures updates of one model.

    Args:
        small: a tiny model and two attempts at one task.
        gpu: the GPU that is watched.
    """

    def __init__(self, small: bool, gpu: Gpu) -> None:
        self.gpu = gpu
        groups, attempts = (1, 2) if small else (8, 8)
        self.options = argparse.Namespace(env="Sokoban-v0", groups=groups, attempts=attempts, steps=3, keep=False)
        self.tokenizer = byte_level_tokenizer("agentgym_flow/Sokoban-v0", {"size": 6}, episodes=30)
        shape = SMALL_SHAPE if small else SHAPE
        ends = {"pad_token_id": self.tokenizer.pad_token_id, "eos_token_id": self.tokenizer.eos_token_id}
        self.config = Qwen2Config(**shape, **ends, max_position_embeddings=32_768)
        self.device = "cuda" if torch.cuda.is_available() else "cpu"

    def tree(self) -> Iterator[tuple[object, ...]]:
        """Yield rows of a table: an update with and without shared prefixes, in each layout."""
        for layout in LAYOUTS:
            rows, counts = self._rows(layout)
            first = 0.0
            for share in (False, True):
                with self._model() as model, self.gpu.watched():
                    found = text_training.train(model, self.tokenizer, rows, self.options, share_prefixes=share)
                first = first or found["wall"]
                yield (
                    layout,
                    counts["rows"],
                    "tree" if share else "plain",
                    f"{found['wall']:.2f}",
                    f"{counts['tokens'] / found['wall']:,.0f}",
                    f"{first / found['wall']:.1f}x",
                    f"{counts['tokens'] / counts['of the tree']:.1f}x" if share else "",
                    f"{found['grad_norm']:.5g}",
                    *self.gpu.figures(),
                )

    def scores(self) -> Iterator[tuple[object, ...]]:
        """Yield rows of a table: the scores of one group by three ways, the largest difference, and seconds.

        The differences are those of log-probabilities in float32, and in bfloat16 autocast, from the log-softmax of all
        logits in the same precision.
        """
        rows, _ = self._rows("conversation")
        batch = collate(rows[: self.options.attempts], pad=self.tokenizer.pad_token_id, multiple=1)
        batch = {name: tensor.to(self.device) for name, tensor in batch.items()}
        sampled = batch["tool_mask"] > 0
        with self._model() as model, tempfile.TemporaryDirectory() as folder:
            ways = {
                "log-softmax": lambda: _plain(model, batch),
                "sampled": lambda: sampled_scores(model, batch, 1.0)[0],
            }
            ways["tree"] = lambda: sampled_scores(model, batch, 1.0, share=True)[0]
            ways["TRL"] = self._of_trl(model, batch, folder)
            for precision in (torch.float32, torch.bfloat16):
                reference = None
                for name, way in ways.items():
                    with torch.autocast(self.device, torch.bfloat16, enabled=precision is torch.bfloat16):
                        seconds = min(self._seconds(model, way, sampled) for _ in range(3))
                        with torch.no_grad():
                            found = way()[sampled].float()
                    reference = found if reference is None else reference
                    difference = float((found - reference).abs().max())
                    yield str(precision).removeprefix("torch."), name, f"{difference:.1e}", f"{seconds:.3f}"

    def _of_trl(self, model: Any, batch: dict[str, torch.Tensor], folder: str) -> Callable[[], torch.Tensor]:
        """Return TRL's scores: its trainer's own method, with its Triton kernel on a GPU."""
        args = AgentConfig(output_dir=folder, max_completion_length=16, layout="conversation", merge_prompts=False)
        template = text_training.template(self.options.env)
        trainer = AgentTrainer(model, args, self.tokenizer, template, lambda: text_training.make_env(self.options.env))
        ids, mask = (
            torch.cat([batch[f"{of}_{what}"] for of in ("prompt", "completion")], 1) for what in ("ids", "mask")
        )
        method = super(AgentTrainer.__mro__[1], trainer)._get_per_token_logps_and_entropies  # that of GRPOTrainer
        keep = batch["completion_ids"].shape[1]
        return lambda: method(model, ids, mask, keep, compute_entropy=True)[0]

    def _seconds(self, model: Any, way: Callable[[], torch.Tensor], sampled: torch.Tensor) -> float:
        """Return the seconds of one pass forward and backward."""
        model.zero_grad()
        started = self._now()
        way()[sampled].sum().backward()
        return self._now() - started

    def _now(self) -> float:
        if self.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def _rows(self, layout: str) -> tuple[list[TrainingRow], dict[str, int]]:
        self.options.layout = layout
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "rows.json"
            counts = text_training.record(self.options, file, self.tokenizer)
            return [TrainingRow(*row) for row in json.loads(file.read_text("utf-8"))], counts

    @contextmanager
    def _model(self) -> Iterator[Qwen2ForCausalLM]:
        """Yield the model with its first weights, and free the memory of the GPU afterwards."""
        torch.manual_seed(0)
        with torch.device(self.device):
            model = Qwen2ForCausalLM(self.config)
        try:
            yield model
        finally:
            del model
            gc.collect()
            torch.cuda.empty_cache()


def _plain(model: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return the log-probabilities of completion tokens from all logits."""
    ids, mask = (torch.cat([batch[f"{of}_{what}"] for of in ("prompt", "completion")], 1) for what in ("ids", "mask"))
    places = (mask.cumsum(1) - 1).clamp(min=0)
    width = batch["completion_ids"].shape[1]
    logits = model(input_ids=ids, attention_mask=mask, position_ids=places, logits_to_keep=width + 1).logits[:, :-1]
    return logits.float().log_softmax(-1).gather(-1, batch["completion_ids"][..., None])[..., 0]

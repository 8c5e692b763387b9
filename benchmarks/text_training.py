"""The cost of an update of a language model: today's build, and this one with and without shared prefixes.

    python benchmarks/text_training.py MODEL [--other CHECKOUT] [--env Sokoban-v0] [--layout conversation]
        [--groups 8] [--attempts 8] [--dtype float32] [--full] [--ways plain,sampled,tree]

MODEL is the folder of a language model. An expert, a quarter of whose actions are random, plays every task of a batch
`--attempts` times with the template `text`, bare one-line answers and no history. The batch is one optimizer step, one
group per forward pass. Every way trains on the same rows, in its own process with one thread, and must arrive at the
same gradient norm:

- *plain*: the trainer of another checkout of this repository (`--other`), whose modules must have the names that this
  script imports: for an older one, run the script of a commit of its time;
- *sampled*: this one, without shared prefixes: only sampled tokens have logits;
- *tree*: this one with shared prefixes.

Figures are CPU seconds of the step (rows are sorted and packed in it) and peak memory of the process. The bound is the
tokens of all rows over the tokens of the tree.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _timing import arguments, peak_megabytes, print_header, print_row

SHORT = {"history": 0, "think": False, "tags_required": False, "lists_actions": False}
WAYS = ("plain", "sampled", "tree")


def train(
    model: Any, tokenizer: Any, rows: list[Any], options: argparse.Namespace, **settings: Any
) -> dict[str, float]:
    """Train on the rows, one step for each of `options.steps`, and return the figures of the last one.

    They are wall and CPU seconds, peak memory of the process before training, loss, gradient norm and entropy.
    `settings` are further settings of the trainer.
    """
    import torch
    from transformers import TrainerCallback

    from agentgym_flow.training.config import AgentConfig
    from agentgym_flow.training.rows import collate
    from agentgym_flow.training.trainer import AgentTrainer

    class OnRows(AgentTrainer):
        def make_batch(self) -> dict[str, torch.Tensor]:
            torch.manual_seed(0)
            items = torch.tensor(float(sum(row.trained_tokens for row in rows)))
            batch = collate(rows, pad=tokenizer.pad_token_id, multiple=options.groups)
            device = self.accelerator.device
            return {name: tensor.to(device) for name, tensor in (batch | {"num_items_in_batch": items}).items()}

    class Clock(TrainerCallback):  # type: ignore[misc]
        def now(self) -> tuple[float, float]:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            return time.perf_counter(), time.process_time()

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.since = self.now()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            wall, cpu = self.now()
            self.seconds = {"wall": wall - self.since[0], "seconds": cpu - self.since[1]}

    with tempfile.TemporaryDirectory() as folder:
        args = AgentConfig(
            output_dir=folder,
            credit="grpo",
            num_generations=options.attempts,
            per_device_train_batch_size=options.attempts,
            groups_per_batch=options.groups,
            steps_per_batch=1,
            max_steps=options.steps,
            logging_steps=1,
            learning_rate=1e-5,
            max_completion_length=16,
            layout=options.layout,
            merge_prompts=False,
            activation_checkpointing=not options.keep,
            report_to="none",
            **settings,
        )
        trainer = OnRows(
            model, args, tokenizer, template(options.env), lambda: make_env(options.env), [clock := Clock()]
        )
        before = peak_megabytes()
        trainer.train()
        log = [log for log in trainer.state.log_history if "loss" in log][-1]
    return {**clock.seconds, "before": before, **{name: float(log[name]) for name in ("loss", "grad_norm", "entropy")}}


def measure(options: argparse.Namespace, way: str, rows_file: Path) -> None:
    """Train on the rows; print the figures of `train` and peak memory as JSON."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from agentgym_flow.training.models import quiet, with_lora
    from agentgym_flow.training.rows import TrainingRow

    quiet()
    torch.set_num_threads(1)
    rows = [TrainingRow(*row) for row in json.loads(rows_file.read_text("utf-8"))]
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=getattr(torch, options.dtype))
    if not options.full:
        model = with_lora(model, rank=16, alpha=32, seed=0)
    settings = {} if way == "plain" else {"share_prefixes": way == "tree"}
    found = train(model, AutoTokenizer.from_pretrained(options.model), rows, options, **settings)
    print(json.dumps(found | {"megabytes": peak_megabytes()}))


def make_env(env_id: str) -> Any:
    """Return the training environment."""
    from agentgym_flow.envs import make_text_env

    settings = {"size": 6, "boxes": 1, "min_pushes": 1} if env_id.startswith("Sokoban") else {}
    return make_text_env(f"agentgym_flow/{env_id}", split="train", **settings)


def template(env: str) -> Any:
    """Return the prompt template of the benchmark."""
    from agentgym_flow.prompts import template_for

    return template_for(f"agentgym_flow/{env}", settings=SHORT)


def record(options: argparse.Namespace, rows_file: Path, tokenizer: Any) -> dict[str, int]:
    """Let the noisy expert play; write the rows to a file and return counts of tokens."""
    from dataclasses import astuple

    from agentgym_flow.play import EpisodeSpec, rollout_groups
    from agentgym_flow.training.rows import rows
    from agentgym_flow.training.warm_start import NoisyExpert

    expert = NoisyExpert(tokenizer, template(options.env), 0.25, options.layout, max_new_tokens=16)
    specs = [EpisodeSpec(seed=1, task=task) for task in range(options.groups)]
    groups = rollout_groups(expert, lambda: make_env(options.env), specs, options.attempts)
    weight = [[[(-1.0) ** number for _ in e.turns] for number, e in enumerate(g)] for g in groups]
    made = rows(groups, weight, layout=options.layout)
    rows_file.write_text(json.dumps([astuple(row) for row in made]), "utf-8")
    every = [(*row.prompt, *row.completion) for row in made]
    prefixes = {hash(row[:end]) for row in every for end in range(1, len(row) + 1)}
    sampled = sum(row.trained_tokens for row in made)
    return {"rows": len(made), "tokens": sum(map(len, every)), "of the tree": len(prefixes), "sampled": sampled}


def main() -> None:
    """Record rows, measure every way in its own process, and print a table."""
    parser = arguments(__doc__)
    parser.add_argument("model", help="folder of a language model")
    parser.add_argument("--other", help="another checkout of this repository")
    parser.add_argument("--env", default="Sokoban-v0")
    parser.add_argument("--layout", default="conversation")
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--attempts", type=int, default=8)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--full", action="store_true", help="train all weights, not adapters")
    parser.add_argument("--keep", action="store_true", help="keep activations, without checkpointing")
    parser.add_argument("--steps", type=int, default=1, help="the last one is measured")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options, options.measure[0], Path(options.measure[1]))
        return
    from transformers import AutoTokenizer

    here = Path(__file__).resolve().parent.parent
    with tempfile.TemporaryDirectory() as folder:
        rows_file = Path(folder) / "rows.json"
        counts = record(options, rows_file, AutoTokenizer.from_pretrained(options.model))
        bound = counts["tokens"] / counts["of the tree"]
        print(f"{options.env}, {options.layout}: {counts}, bound {bound:.1f}")
        print_header("Way", "CPU s", "Peak MB", "MB of the step", "Loss", "Gradient norm", "Entropy", "Faster")
        first = 0.0
        for way in options.ways.split(","):
            checkout = options.other if way == "plain" else here
            if checkout is None:
                continue
            environment = {**os.environ, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
            command = [sys.executable, __file__, *sys.argv[1:], "--measure", way, str(rows_file)]
            said = subprocess.run(command, env=environment, text=True, capture_output=True, check=False)
            if said.returncode:
                sys.exit(said.stderr[-2000:])
            found = json.loads(said.stdout.splitlines()[-1])
            first = first or found["seconds"]
            print_row(
                way,
                f"{found['seconds']:.1f}",
                f"{found['megabytes']:,.0f}",
                f"{found['megabytes'] - found['before']:,.0f}",
                f"{found['loss']:.6f}",
                f"{found['grad_norm']:.6g}",
                f"{found['entropy']:.5f}",
                f"{first / found['seconds']:.1f}x",
            )


if __name__ == "__main__":
    main()

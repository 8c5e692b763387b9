"""Updates with shared prefixes, then behaviour cloning, GRPO and RewardFlow in bf16 on one GPU, in eight minutes.

    python benchmarks/gpu.py [--deadline 430] [--output runs/gpu] [--parts scores,tree,sokoban,alfworld]
        [--generators vllm]
    python benchmarks/gpu.py --small --batches 1          # a tiny model on a CPU: shows that the script works

The parts `scores` and `tree` are in `_gpu_updates.py`. A model of the shape of Qwen2.5-0.5B, random weights, trains on
the same rows with and without shared prefixes, and its scores of sampled tokens are compared with a plain log-softmax
and with TRL's. The other parts are environments. Their model has Qwen3's architecture (85 million parameters; 0.1
million with --small), random weights and a byte-level tokenizer, which is trained first. In each environment it clones
the expert once. All runs start from these weights: GRPO, whose rollouts use Transformers, and RewardFlow with every
installed generator. A run is the recipe of `agentgym-flow train`, except that it stops after the batch in which its
share of the time runs out, so the command always ends with results. A table shows success on the same test tasks before
and after training, with 95 % intervals, the next one where the time went. A failed run or part is a row of the first of
the two.
"""

from __future__ import annotations

import copy
import gc
import json
import math
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import torch
from _byte_level import byte_level_tokenizer, write_model
from _gpu_updates import HEADER, Gpu, Updates
from _timing import arguments, print_header, print_row
from rich.console import Console
from transformers import TrainerCallback

from agentgym_flow.errors import AgentGymFlowError
from agentgym_flow.training.config import Configs
from agentgym_flow.training.config_file import parse_configs
from agentgym_flow.training.model_evaluation import EvaluationRun, ModelEvaluation
from agentgym_flow.training.models import quiet, save_model
from agentgym_flow.training.recipe import Recipe, open_run
from agentgym_flow.training.results import Results
from agentgym_flow.training.warm_start import clone, demonstrations

TRANSFORMERS, VLLM = "transformers", "vllm"

Settings = dict[str, Any]

SHAPE: Settings = {"width": 768, "layers": 12, "heads": 12, "context": 2048, "theta": 10_000.0}
SMALL_SHAPE: Settings = {"width": 64, "layers": 2, "heads": 4, "context": 1536, "theta": 100.0}
"""Shape of the model."""

ENVS: dict[str, Settings] = {
    "sokoban": {
        "env_id": "agentgym_flow/Sokoban-v0",
        "env_kwargs": {"size": 8, "boxes": 2, "max_steps": 30},
        "max_completion_length": 12,
    },
    "alfworld": {
        "env_id": "agentgym_flow/ALFWorld-v0",
        "env_kwargs": {"max_steps": 20},
        "max_completion_length": 48,
    },
}
SMALL_ENVS: dict[str, Settings] = {
    "sokoban": {**ENVS["sokoban"], "env_kwargs": {"size": 5, "max_steps": 5}},
    "alfworld": {**ENVS["alfworld"], "env_kwargs": {"max_steps": 2}},
}
"""Settings of each environment."""

COMMON: Settings = {
    "template": "text",
    "merge_prompts": False,
    "lr_scheduler_type": "constant_with_warmup",
    "validations": 0,
    "invalid_action_penalty": 0.1,
    "save_strategy": "no",
    "max_steps": 100_000,  # the clock ends training first
}
LARGE: Settings = {
    "eval_episodes": 200,
    "warm_start_levels": 1000,
    "warm_start_noise": 0.2,
    "warm_start_updates": 1000,
    "warm_start_batch": 64,
    "warm_start_learning_rate": 6e-4,
    "warm_start_muon_learning_rate": 0.01,
    "num_generations": 8,
    "groups_per_batch": 16,
    "steps_per_batch": 4,
    "per_device_train_batch_size": 8,
    "num_envs": 200,
    "warmup_steps": 4,
    "learning_rate": 3e-5,
    "muon_learning_rate": 5e-4,
}
SMALL: Settings = {
    **LARGE,
    "eval_episodes": 8,
    "warm_start_levels": 20,
    "warm_start_updates": 10,
    "warm_start_batch": 8,
    "warm_start_learning_rate": 6e-3,
    "num_generations": 4,
    "groups_per_batch": 4,
    "steps_per_batch": 2,
    "per_device_train_batch_size": 4,
    "activation_checkpointing": False,
    "threads": 1,
}
CLONING = 0.25
"""Largest fraction of an environment's time for behaviour cloning."""

RESERVE = 3.0
"""Seconds reserved for the current batch and the report, plus 1.3 times the time of the first evaluation."""

LAST = 5.0
"""Seconds before the deadline when work is interrupted, so that the tables are printed in time."""

PARTS = ("env", "generate", "credit", "update")
UPDATES = ("scores", "tree")
HOW, WHAT = ("sampled", "greedy"), ("before", "after", "gain in points")


class TimeOver(KeyboardInterrupt):
    """Raised at the deadline; a recipe handles it like Ctrl-C."""


@dataclass
class Meter(TrainerCallback):  # type: ignore[misc]
    """Counts tokens and seconds, and stops training after the batch in which time runs out.

    The recipe must log once per batch.

    Args:
        recipe: the run.
        stop_at: when to stop, by `time.monotonic`.
        most: the maximum number of batches.
    """

    recipe: Recipe
    stop_at: float
    most: float
    batches: int = 0
    episodes: int = 0
    read: int = 0
    said: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PARTS, 0.0))

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        """Add one batch to the totals."""
        if not logs or "time/update" not in logs:
            return
        self.batches += 1
        for name in self.seconds:
            self.seconds[name] += logs[f"time/{name}"]
        for episode in (episode for group in self.recipe.trainer.groups for episode in group):
            self.episodes += 1
            self.read += sum(len(turn.output.prompt_ids or ()) for turn in episode.turns)
            self.said += sum(len(turn.output.completion_ids or ()) for turn in episode.turns)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Stop training when time or batches run out."""
        over = time.monotonic() >= self.stop_at or state.global_step >= self.most * args.steps_per_batch
        if over and state.global_step % args.steps_per_batch == 0:
            control.should_training_stop = True

    def rates(self) -> tuple[str, str]:
        """Return tokens per second as text: of rollouts (prompts and completions) and of updates."""
        generate, update = (max(self.seconds[name], 1e-9) for name in ("generate", "update"))
        rollout = f"{(self.read + self.said) / generate:,.0f} ({self.said / generate:,.0f} sampled)"
        return rollout, f"{(self.read + self.said) / update:,.0f}"


@dataclass(frozen=True)
class Job:
    """One training run."""

    env: str
    algorithm: str
    generator: str

    @property
    def name(self) -> str:
        """Name in the folder and the tables."""
        return f"{self.env}-{self.algorithm}-{self.generator}"


@dataclass(frozen=True)
class Cloned:
    """Initial weights of all runs in an environment: model folder, evaluation, and seconds of the evaluation."""

    model: Path
    before: ModelEvaluation
    evaluating: float


@dataclass
class Call:
    """Shared state of one call of the script.

    Args:
        output: the folder of the runs.
        small: whether model and tasks are tiny.
        generators: the generators for RewardFlow.
        batches: the maximum number of batches per run.
    """

    output: Path
    small: bool
    generators: Sequence[str]
    batches: float
    gpu: Gpu = field(default_factory=Gpu)
    outcomes: list[tuple[object, ...]] = field(default_factory=list)
    costs: list[tuple[object, ...]] = field(default_factory=list)

    def settings(self, env: str) -> Settings:
        """Return the settings of all runs in an environment."""
        of_env, sizes = (SMALL_ENVS, SMALL) if self.small else (ENVS, LARGE)
        return {**COMMON, **sizes, **of_env[env], "logging_steps": sizes["steps_per_batch"]}

    def configs(self, env: str, algorithm: str, name: str, **others: Any) -> Configs:
        """Return the parsed settings, updated with `others`."""
        chosen = {**self.settings(env), "credit": algorithm, "output_dir": str(self.output / name), **others}
        file = self.output / f"{name}.yaml"
        file.write_text(json.dumps(chosen), "utf-8")  # JSON is YAML
        return parse_configs([f"--config={file}", f"--credit={algorithm}"])

    def play(self, env: str, until: float) -> None:
        """Do all runs in one environment until `until`, by `time.monotonic`."""
        settings, folder = self.settings(env), self.output / f"{env}-model"
        tokenizer = byte_level_tokenizer(settings["env_id"], settings["env_kwargs"], episodes=30, vocabulary=1024)
        size = write_model(folder, tokenizer, **(SMALL_SHAPE if self.small else SHAPE))
        print(f"{env}: {size:,} parameters, {len(tokenizer)} tokens", flush=True)
        cloning = time.monotonic() + CLONING * (until - time.monotonic())
        console = Console(quiet=True)
        with open_run(self.configs(env, "grpo", f"{env}-cloned", model=str(folder)), console) as recipe:
            cloned = self._clone(recipe, cloning)
        jobs = [Job(env, "grpo", TRANSFORMERS), *(Job(env, "rewardflow", generator) for generator in self.generators)]
        for number, job in enumerate(jobs):
            now = time.monotonic()
            self._attempt(job, cloned, now + (until - now) / (len(jobs) - number))
            gc.collect()  # trainers are reference cycles
            torch.cuda.empty_cache()

    def update(self, part: str) -> None:
        """Print the table of `scores` or `tree`, row by row."""
        updates = Updates(self.small, self.gpu)
        print_header(*(HEADER if part == "tree" else ("precision", "scores", "difference", "seconds")))
        for row in updates.tree() if part == "tree" else updates.scores():
            print_row(*row)
        print(flush=True)

    def _clone(self, recipe: Recipe, until: float) -> Cloned:
        """Clone the expert with as many updates as the time allows, and evaluate."""
        few = replace(recipe.warm, warm_start_updates=2, warm_start_validations=1)
        rows = demonstrations(
            recipe.run.make_env,
            recipe.tokenizer,
            recipe.template,
            tasks=few.warm_start_levels,
            noise=few.warm_start_noise,
            max_new_tokens=recipe.agent.max_completion_length or 1,
        )
        pad, precision = recipe.tokenizer.pad_token_id, recipe.trainer.accelerator.autocast
        spare = copy.deepcopy(recipe.model)
        for _ in range(2):  # the first warms up
            started = time.monotonic()
            clone(spare, rows, few, pad=pad, precision=precision)
            each = (time.monotonic() - started) / few.warm_start_updates
        del spare
        fit = max(1, int((until - time.monotonic()) / each))
        updates = min(recipe.warm.warm_start_updates, fit)
        many = replace(few, warm_start_updates=updates)
        losses, _ = clone(recipe.model, rows, many, pad=pad, precision=precision)
        print(f"cloned {len(rows):,} turns in {updates} updates of {each:.2f} s: loss {losses[-1]:.3f}", flush=True)
        started = time.monotonic()
        recipe.evaluate("before")
        evaluating = time.monotonic() - started
        save_model(recipe.folder.warm_start, recipe.model, recipe.tokenizer)
        recipe.folder.summarise("finished")
        return Cloned(recipe.folder.warm_start, recipe.evaluations["before"], evaluating)

    def _attempt(self, job: Job, cloned: Cloned, until: float) -> None:
        """Do one run until `until` and store its results, or the reason if it fails."""
        stop_at = until - 1.3 * cloned.evaluating - RESERVE
        if time.monotonic() >= stop_at:
            self.outcomes.append((job.name, "no time left"))
            return
        generator = {} if job.generator == TRANSFORMERS else {"generator": job.generator}
        try:
            configs = self.configs(
                job.env, job.algorithm, job.name, model=str(cloned.model), warm_start_levels=0, **generator
            )
            with open_run(configs, Console(quiet=True)) as recipe:
                recipe.evaluations["before"] = cloned.before
                meter = Meter(recipe, stop_at, self.batches)
                recipe.trainer.add_callback(meter)
                with self.gpu.watched():
                    recipe.train()
                recipe.evaluate("after")
                results = recipe.finish()
        except (AgentGymFlowError, OSError, RuntimeError) as error:
            self.outcomes.append((job.name, f"{type(error).__name__}: {error}"))
            return
        self._keep(job, meter, results)

    def _keep(self, job: Job, meter: Meter, results: Results) -> None:
        cells: list[object] = [job.name, meter.batches, f"{meter.episodes:,}"]
        for how in ("sampled", "greedy"):
            for evaluation in (results.before, results.after):
                found: EvaluationRun = getattr(evaluation, how)
                low, high = found.evaluation.success_interval
                cells.append(f"{found.success:.1%} [{low:.1%}, {high:.1%}]")
            gain = results.improvement(greedy=how == "greedy")
            cells.append(f"{100 * gain.mean:+.1f} [{100 * gain.low:+.1f}, {100 * gain.high:+.1f}]")
        self.outcomes.append(tuple(cells))
        seconds = (f"{meter.seconds[part]:.0f}" for part in PARTS)
        self.costs.append((job.name, *meter.rates(), *seconds, *self.gpu.figures()))

    def show(self) -> None:
        """Print the tables."""
        print_header("run", "batches", "episodes", *(f"{how}, {what}" for how in HOW for what in WHAT))
        for outcome in self.outcomes:
            print_row(*outcome)
        print()
        parts = (f"{part}, s" for part in PARTS)
        print_header("run", "rollout, tokens/s", "update, tokens/s", *parts, "GPU busy", "memory")
        for cost in self.costs:
            print_row(*cost)


def _time_over(*_: object) -> NoReturn:
    raise TimeOver


def main() -> None:
    """Divide the time among the runs and print the results."""
    started = time.monotonic()
    parser = arguments(__doc__ or "")
    parser.add_argument("--deadline", type=float, default=430.0, help="seconds for the whole call (default 430)")
    parser.add_argument("--output", type=Path, default=Path("runs/gpu"))
    parser.add_argument("--parts", default=",".join((*UPDATES, *ENVS)), help="comma-separated (default: all)")
    parser.add_argument("--generators", help="for RewardFlow, comma-separated (default: all installed ones)")
    parser.add_argument("--small", action="store_true", help="a tiny model and tiny tasks")
    parser.add_argument("--batches", type=int, default=math.inf, help="maximum per run (default: no limit)")
    chosen = parser.parse_args()
    quiet()
    installed = [TRANSFORMERS, *([VLLM] if find_spec(VLLM) else [])]
    generators = chosen.generators.split(",") if chosen.generators else installed
    chosen.output.mkdir(parents=True, exist_ok=True)
    call = Call(chosen.output, chosen.small, generators, chosen.batches)
    print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name() if call.gpu.there else 'no GPU'}", flush=True)
    end = started + chosen.deadline
    parts = chosen.parts.split(",")
    envs = [part for part in parts if part not in UPDATES]
    signal.signal(signal.SIGALRM, _time_over)
    signal.setitimer(signal.ITIMER_REAL, max(1.0, chosen.deadline - LAST))
    try:
        for part in parts:
            if part in UPDATES:
                try:
                    call.update(part)
                except (
                    AgentGymFlowError,
                    AttributeError,
                    OSError,
                    RuntimeError,
                    TypeError,
                    ValueError,
                ) as error:  # the other parts continue
                    call.outcomes.append((part, f"{type(error).__name__}: {error}"))
        for number, env in enumerate(envs):
            now = time.monotonic()
            try:
                call.play(env, now + (end - LAST - now) / (len(envs) - number))
            except AgentGymFlowError as error:  # cloning failed; the other environments continue
                call.outcomes.append((env, str(error)))
    except TimeOver:
        call.outcomes.append(("the rest", "cut short by the deadline"))
    signal.setitimer(signal.ITIMER_REAL, 0)
    print(f"\n{time.monotonic() - started:.0f} seconds\n")
    call.show()


if __name__ == "__main__":
    main()

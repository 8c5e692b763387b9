"""The cost of an update with our trainer and with TRL's on the same rows, our optimisations, the environment's share.

    python benchmarks/training_step.py [--repetitions 5] [--levels 64]

The peer is `trl.GRPOTrainer` as installed: not subclassed, with its own loss and optimizer step. Both trainers start
with the same weights, train on the same rows in the same minibatches, and must end with the same weights; otherwise the
script fails. The rows are real episodes, recorded beforehand (see `_training_rows.py`). TRL gets them in two ways:

- *update*: both trainers get the same tensors in place of those they would make (TRL's
  `_generate_and_score_completions` is replaced on the instance; our `make_batch` is overridden). This compares loss,
  backward pass and optimizer. Steps of both trainers alternate; figures are medians, the ratio is that of pairs.
- *from episodes*: TRL gets the recorded completions from its public `rollout_func` and their outcomes from a public
  reward function, and processes them like any rollout. It cannot take the log-probabilities of sampling with
  Transformers, and recomputes them when a batch has more than one optimizer step. Our trainer gets the recorded
  episodes instead of playing them.

Here, our trainer merges, drops and trims nothing. The second table shows what that would save: our trainer with and
without each optimisation, per batch of the same episodes. The last table shows where the time of whole training steps
goes, rollouts included.

Figures are CPU time on one thread, the best of repetitions in which all contestants take turns: other programs on the
machine can only slow down an update.
"""

from __future__ import annotations

import copy
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

import torch
from _timing import arguments, in_turns, print_header, print_row
from _training_rows import SPOKEN, Recording, quickstart, recorded_conversations, recorded_turns, tokens_in
from datasets import Dataset
from transformers import PrinterCallback, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from agentgym_flow.episodes import Episode
from agentgym_flow.training import group_source, minibatch
from agentgym_flow.training.config import AgentConfig
from agentgym_flow.training.models import quiet
from agentgym_flow.training.rows import Batch, collate
from agentgym_flow.training.run_config import WarmStartConfig
from agentgym_flow.training.trainer import AgentTrainer
from agentgym_flow.training.warm_start import warm_start

Weights = list[torch.Tensor]
TOLERANCE = 1e-3
"""The largest allowed difference of two results, as a fraction of the largest change by training."""

BATCHES = 3
"""Batches that are played and trained on for the last table; the first is not counted."""

PARTS = ("env", "generate", "credit", "update")


class StepClock(TrainerCallback):  # type: ignore[misc]
    """Sums the CPU time of optimizer steps, which includes making batches."""

    seconds = 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Start the clock."""
        self._since = time.process_time()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Stop the clock."""
        self.seconds += time.process_time() - self._since


class FromTensors(AgentTrainer):
    """Our trainer on given tensors."""

    tensors: Batch

    def make_batch(self) -> Batch:
        """Return the tensors given."""
        torch.manual_seed(0)
        return self.tensors


class Comparison:
    """One batch, and its division into optimizer steps.

    Args:
        recording: the episodes.
        folder: where trainers may write.
        steps: the number of optimizer steps that one batch is used for.
        micro_batches: forward passes per optimizer step.
    """

    def __init__(self, recording: Recording, folder: str, steps: int, micro_batches: int = 1) -> None:
        self.recording = recording
        self.rows = recording.rows()
        self.arrived: dict[str, Weights] = {}
        parts = steps * micro_batches
        self.settings: dict[str, Any] = {
            "output_dir": folder,
            "num_generations": len(recording.groups[0]),
            "per_device_train_batch_size": len(recording.episodes) // parts,
            "steps_per_generation": parts,
            "gradient_accumulation_steps": micro_batches,
            "max_steps": steps,
            "max_completion_length": 2,
            "learning_rate": 1e-3,
            "lr_scheduler_type": "constant",
            "epsilon": 0.2,
            "epsilon_high": 0.28,
            # The gradient of GPT-2's key bias is only rounding errors. Adam would otherwise turn them into full steps.
            "adam_epsilon": 1e-5,
            "report_to": "none",
            "logging_strategy": "no",
        }
        pad = recording.tokenizer.pad_token_id
        items = torch.tensor(float(sum(row.trained_tokens for row in self.rows)))
        self.tensors = {**collate(self.rows, pad=pad, multiple=parts), "num_items_in_batch": items}

    def ours(self, kind: type[AgentTrainer] = AgentTrainer, **changes: Any) -> AgentTrainer:
        """Return our trainer; it merges and drops no rows unless `changes` enables it."""
        chosen = {"credit": "grpo", "credit_settings": {"norm": "mean"}, "merge_prompts": False, **changes}
        of = self.recording
        config = AgentConfig(**self.settings, layout=of.layout, **chosen)
        trainer = kind(copy.deepcopy(of.model), config, of.tokenizer, of.template, of.make_env)
        if isinstance(trainer, FromTensors):
            trainer.tensors = self.tensors
        return trainer

    def trl(self, **given: Any) -> GRPOTrainer:
        """Return TRL's trainer with empty prompts as data set; its rows come from elsewhere."""
        config = GRPOConfig(
            **self.settings,
            scale_rewards="none",
            bf16=False,
            use_cpu=True,
            activation_checkpointing=False,
            dataloader_pin_memory=False,
            save_strategy="no",
            disable_tqdm=True,
        )
        return GRPOTrainer(
            model=copy.deepcopy(self.recording.model),
            args=config,
            processing_class=self.recording.tokenizer,
            train_dataset=Dataset.from_dict({"prompt": [""] * len(self.recording.groups)}),
            **{"reward_funcs": outcome_of, **given},
        )

    def trl_from_tensors(self) -> GRPOTrainer:
        """Return TRL's trainer on the given tensors."""
        trainer = self.trl()

        def make_batch(inputs: list[dict[str, Any]]) -> Batch:
            torch.manual_seed(0)
            return self.tensors

        trainer._generate_and_score_completions = make_batch
        return trainer

    def played(self, *_: Any, **__: Any) -> list[Episode]:
        """Stand in for `rollout` in our trainer: return the recorded episodes."""
        torch.manual_seed(0)  # seeds the shuffling into minibatches, which comes next
        return self.recording.episodes

    def rollout(self, prompts: list[Any], trainer: GRPOTrainer) -> dict[str, list[Any]]:
        """Return the recorded episodes in the format of TRL's `rollout_func`."""
        return {
            "prompt_ids": [list(row.prompt) for row in self.rows],
            "completion_ids": [list(row.completion) for row in self.rows],
            "logprobs": [list(row.logprobs) for row in self.rows],
            "env_mask": [list(row.sampled or [1] * len(row.completion)) for row in self.rows],
            "success": [float(episode.success) for episode in self.recording.episodes],
        }

    def contestant(self, name: str, make: Callable[[], GRPOTrainer], *, trim: bool = True) -> Callable[[], float]:
        """Return a function that runs a new trainer and returns the seconds of its steps.

        It stores the final weights under `name`. `trim` lets our trainer remove columns of padding.
        """

        def run() -> float:
            trainer, clock = make(), StepClock()
            trainer.add_callback(clock)
            trainer.remove_callback(PrinterCallback)
            trimming = nullcontext() if trim else mock.patch.object(minibatch, "trim_padding", as_it_is)
            with mock.patch.object(group_source, "rollout", self.played), trimming:
                trainer.train()
            self.arrived[name] = [parameter.detach() for parameter in trainer.model.parameters()]
            return clock.seconds

        return run

    def race(self, repetitions: int, **contestants: Callable[[], float]) -> dict[str, float]:
        """Return the seconds of every contestant, the best of the repetitions."""
        return in_turns(contestants, repetitions, min)

    def step_by_step(self, rounds: int) -> tuple[float, float, float]:
        """Alternate optimizer steps of both trainers on the given tensors, each batch `rounds` times.

        Returns the median seconds of a step of ours and of TRL's, and the median ratio of consecutive pairs. On a busy
        machine, step times vary more than the trainers differ; those of consecutive steps vary least.
        """
        trainers = {"ours": self.ours(FromTensors), "trl": self.trl_from_tensors()}
        seconds: dict[str, list[float]] = {name: [] for name in trainers}
        for trainer in trainers.values():
            trainer.create_optimizer()
            trainer.current_gradient_accumulation_steps = 1
        with mock.patch.object(minibatch, "trim_padding", as_it_is):
            for number in range(rounds * self.settings["steps_per_generation"]):
                for name, trainer in list(trainers.items())[:: 1 if number % 2 else -1]:
                    started = time.process_time()
                    trainer.training_step(trainer.model, [], None)
                    torch.nn.utils.clip_grad_norm_(trainer.model.parameters(), trainer.args.max_grad_norm)
                    trainer.optimizer.step()
                    trainer.optimizer.zero_grad()
                    seconds[name].append(time.process_time() - started)
        for name, trainer in trainers.items():
            self.arrived[name] = [parameter.detach() for parameter in trainer.model.parameters()]
        pairs = [trl / ours for ours, trl in zip(seconds["ours"], seconds["trl"], strict=True)]
        return statistics.median(seconds["ours"]), statistics.median(seconds["trl"]), statistics.median(pairs)

    def apart(self) -> float:
        """Return the largest difference of a weight between contestants, as a fraction of the largest change of one.

        Exits if it exceeds `TOLERANCE`, because then the contestants did not do the same work.
        """
        first, *others = self.arrived.values()
        distance = max(furthest(first, other) for other in others)
        share = distance / furthest(list(self.recording.model.parameters()), first)
        if not share <= TOLERANCE:
            raise SystemExit(
                f"{' and '.join(self.arrived)} came to different weights: {share:.1e} of the largest change"
            )
        return share


def furthest(some: Weights, others: Weights) -> float:
    """Return the largest difference between two lists of tensors."""
    return max((a - b).abs().max().item() for a, b in zip(some, others, strict=True))


def as_it_is(batch: Batch) -> Batch:
    """Stand in for `trim_padding` in our trainer: keep all padding, as TRL does."""
    return batch


def outcome_of(completions: list[Any], success: list[float], **_: Any) -> list[float]:
    """Return the outcome of each recorded episode, as a reward function of TRL."""
    torch.manual_seed(0)  # seeds the shuffling into minibatches, which comes next
    return success


def identical_rows(turns: Recording, spoken: Recording, folder: str, repetitions: int) -> None:
    """Print the table of our trainer and TRL's."""
    print_header(
        "Rows", "Compared", "Optimizer steps", "TRL, s/step", "Ours, s/step", "Ours, tokens/s", "Ratio", "Apart"
    )
    for recording, steps, alone in ((turns, 4, True), (spoken, 4, True), (spoken, 4, False), (spoken, 1, False)):
        comparison = Comparison(recording, folder, steps)
        if alone:
            ours, trl, ratio = comparison.step_by_step(repetitions)
        else:
            found = comparison.race(
                repetitions,
                ours=comparison.contestant("ours", comparison.ours, trim=False),
                trl=comparison.contestant("trl", partial(comparison.trl, rollout_func=comparison.rollout)),
            )
            ours, trl, ratio = found["ours"] / steps, found["trl"] / steps, found["trl"] / found["ours"]
        print_row(
            f"{len(comparison.rows):,} {recording.layout}s",
            "update" if alone else "from episodes",
            steps,
            f"{trl:.3f}",
            f"{ours:.3f}",
            f"{tokens_in(comparison.rows) / steps / ours:,.0f}",
            f"**{ratio:.3f}x**",
            f"{comparison.apart():.0e}",
        )


def savings(turns: Recording, spoken: Recording, folder: str, repetitions: int) -> None:
    """Print the time per batch of our trainer with and without each saving."""
    print_header("Saved", "Seconds per batch, all", "saved", "Ratio")
    for rows_each in (4, 16):
        comparison = Comparison(spoken, folder, 1, len(spoken.episodes) // rows_each)
        make = comparison.ours
        found = comparison.race(
            repetitions,
            all=comparison.contestant("all", make, trim=False),
            trimmed=comparison.contestant("trimmed", make),
        )
        comparison.apart()
        print_saving(f"padding, conversations, {rows_each} at a time", found["all"], found["trimmed"])
    comparison = Comparison(turns, folder, 4)
    # Differences and batch are large, so fewer repetitions are enough.
    ways: dict[str, dict[str, Any]] = {
        "all": {},
        "rows without advantage, turns": {"zero_advantage_share": 0.0},
        "equal prompts, turns": {"merge_prompts": True},
        "both, turns": {"zero_advantage_share": 0.0, "merge_prompts": True},
    }
    found = comparison.race(
        max(1, repetitions // 3),
        **{name: comparison.contestant(name, partial(comparison.ours, **way)) for name, way in ways.items()},
    )
    for name in list(ways)[1:]:
        print_saving(name, found["all"], found[name])


def print_saving(what: str, everything: float, saved: float) -> None:
    """Print one row of the table of savings."""
    print_row(what, f"{everything:.2f}", f"{saved:.2f}", f"**{everything / saved:.2f}x**")


def learners(turns: Recording, spoken: Recording, folder: str) -> dict[str, AgentTrainer]:
    """Return trainers that play and train on `BATCHES` batches each, after a warm start."""

    def tiny(*arguments: str) -> AgentTrainer:
        run, _, agent = quickstart(folder, "--max_steps", str(4 * BATCHES), "--report_to", "none", *arguments)
        return AgentTrainer(copy.deepcopy(turns.model), agent, turns.tokenizer, turns.template, run.make_env)

    llama = copy.deepcopy(spoken.model)
    cloning = WarmStartConfig(warm_start_levels=50, warm_start_updates=30, warm_start_batch=16)
    warm_start(llama, spoken.tokenizer, SPOKEN, spoken.make_env, cloning, max_new_tokens=2)
    settings = AgentConfig(
        output_dir=folder,
        credit="grpo",
        num_generations=8,
        per_device_train_batch_size=4,
        steps_per_generation=4,
        max_steps=4 * BATCHES,
        logging_steps=4,
        max_completion_length=2,
        report_to="none",
    )
    every_turn = ("--merge_prompts", "false", "--zero_advantage_share", "1", "--per_device_train_batch_size", "32")
    return {
        "quickstart": tiny(),
        "quickstart, a row for every turn": tiny(*every_turn),
        "Llama, text prompts, answers of two tokens": AgentTrainer(
            llama, settings, spoken.tokenizer, SPOKEN, spoken.make_env
        ),
    }


def time_split(trainers: dict[str, AgentTrainer]) -> None:
    """Print where the wall time of training with rollouts goes."""
    print_header("Training", "Turns a batch", "Seconds a batch", *PARTS)
    for name, trainer in trainers.items():
        trainer.train()
        # The first batch also made the environments.
        records = [record for record in trainer.state.log_history if "time/update" in record][1:]
        seconds = [statistics.median(float(record[f"time/{part}"]) for record in records) for part in PARTS]
        turns_each = statistics.mean(float(record["turns"]) for record in records)
        shares = (f"{part / sum(seconds):.1%}" for part in seconds)
        print_row(name, f"{turns_each:,.0f}", f"{sum(seconds):.2f}", *shares)


def main() -> None:
    """Record, measure and print three Markdown tables."""
    parser = arguments(__doc__, repetitions=5)
    parser.add_argument("--levels", type=int, default=64, help="groups of turns (default 64, as in the quickstart)")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    quiet()
    with tempfile.TemporaryDirectory() as folder:
        turns = recorded_turns(quickstart(folder), chosen.levels)
        spoken = recorded_conversations(max(2, chosen.levels // 32), attempts=8)
        some = replace(turns, groups=turns.groups[: max(1, chosen.levels // 8)])
        identical_rows(some, spoken, folder, chosen.repetitions)
        print()
        savings(turns, spoken, folder, chosen.repetitions)
        print()
        time_split(learners(turns, spoken, folder))


if __name__ == "__main__":
    main()

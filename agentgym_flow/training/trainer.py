"""The trainer: TRL's training loop and loss with our rollouts, credit and rows.

An algorithm is a credit function, which maps a batch of groups of episodes to one advantage per turn, and for some
algorithms a weight per episode. All other steps are the same: take the groups of a batch from their source, compute
advantages, make rows, and take `steps_per_generation` minibatch steps.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, astuple, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from accelerate.utils import gather_object
from datasets import Dataset
from transformers import PrinterCallback, TrainerCallback
from transformers.integrations import is_deepspeed_zero3_enabled

from agentgym_flow.core import Stream, TextEnv, stable_hash
from agentgym_flow.episodes import Episode, Group
from agentgym_flow.errors import BadSetting, TrainingFailed
from agentgym_flow.generation import Generator
from agentgym_flow.generation.padding import ignores_padding
from agentgym_flow.generation.sampling import drop_unused_settings
from agentgym_flow.play import ERROR, EnvPool
from agentgym_flow.prompts import TURN, PromptTemplate, valid_turns
from agentgym_flow.rewards.credit import WEIGHTS
from agentgym_flow.rewards.credit.comparison import Advantages, penalise_invalid
from agentgym_flow.training._trl import UpdateClock
from agentgym_flow.training.compatibility import (
    check_answers,
    check_device,
    check_environment,
    check_source,
    check_vocabulary,
    first_turn,
)
from agentgym_flow.training.config import AgentConfig
from agentgym_flow.training.config_file import lasting_defaults, lasting_settings
from agentgym_flow.training.conversation import checked_date, reads_clock, write_date, write_settings
from agentgym_flow.training.diagnostics import WeightWatch, credit_metrics
from agentgym_flow.training.group_source import GroupSource, OwnRollout, TaskReplay
from agentgym_flow.training.loss import batch_logprobs, next_logprobs, row_logprobs
from agentgym_flow.training.minibatch import MinibatchTrainer
from agentgym_flow.training.off_policy import Mismatch, corrected, staleness
from agentgym_flow.training.optim import linear_decay, muon_of
from agentgym_flow.training.outcomes import TrainingOutcomes, outcome_metrics, without_lost
from agentgym_flow.training.policy import model_policy, pad_token, transformers_generator
from agentgym_flow.training.processes import UPDATE, Processes, out_of_memory
from agentgym_flow.training.reference import Reference
from agentgym_flow.training.rows import (
    Batch,
    MergedRow,
    TrainingRow,
    collate,
    collate_merged,
    merge,
    rows,
    thin_rows,
)
from agentgym_flow.training.run_config import mapping
from agentgym_flow.training.run_folder import (
    MADE_WITH,
    SOURCE,
    check_intact,
    check_made_with,
    model_outline,
    progress_of,
    write_json,
)
from agentgym_flow.training.scoring import can_share
from agentgym_flow.training.self_distillation import Teacher, check_hints
from agentgym_flow.training.tracking import Tracking

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_logger = logging.getLogger(__name__)

INFORMATION_PROMPTS = 64
"""The prompts of a batch whose mutual information with the answers is recorded."""

PLAYED = "played.json"
"""The file in a checkpoint with the counts of episodes played."""


class AgentTrainer(MinibatchTrainer):
    """Trains a causal language model on an environment.

    Credit is computed on the episodes of all processes. Each process then trains on its share of the episodes, so a
    group may be split.

    Args:
        model: the policy's model.
        args: the settings.
        tokenizer: the model's tokenizer.
        template: the prompt template.
        make_env: creates a training environment.
        callbacks: callbacks of the Hugging Face trainer.
        processes: the processes of the run, which wait for each other's episodes; created here if None.
        source: provides the groups to train on; None: they are played here when needed.
        generator: the backend that samples; None: Transformers in this process.
        acts_as: the name of the policy in training if several policies share an episode: only its turns
            are trained on. None: all turns are.

    Raises:
        UnknownOption: the credit function is unknown, or the environment's `info` has no key `stop_when`.
        BadSetting: the credit function does not have a given setting, the environment has no workflow to reward, the
            tokenizer cannot express the answers, has tokens that the model lacks, or has no chat template that reads
            `chat_template_kwargs`, prompts do not fit into the model's context, or a precision for GPUs was requested
            without a GPU.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        args: AgentConfig,
        tokenizer: PreTrainedTokenizerBase,
        template: PromptTemplate,
        make_env: Callable[[], TextEnv],
        callbacks: Sequence[TrainerCallback] = (),
        processes: Processes | None = None,
        source: GroupSource | None = None,
        generator: Generator | None = None,
        acts_as: str | None = None,
    ) -> None:
        check_device(args)
        if source is not None:
            check_source(args)
        env = make_env()
        if source is None:
            env.external.check_servers()
        start = first_turn(env)
        check_vocabulary(model, tokenizer)
        write_settings(tokenizer, mapping("chat_template_kwargs", args.chat_template_kwargs))
        write_date(tokenizer, checked_date(args.date))
        check_answers(tokenizer, template, start, args.max_completion_length or 1)
        check_environment(args, (*start.info, *env.optional_info))
        self.credit = args.credit_function
        self.acts_as = acts_as
        self.generator = generator or transformers_generator(args, model, tokenizer)
        drop_unused_settings(model)
        self.policy = model_policy(
            args, model, tokenizer, template, generator=self.generator, name="policy in training"
        )
        self.policy.prompt_ids(start)
        self.reference = Reference(model, bf16=args.mixed_precision == "bf16") if args.beta else None
        self.teacher: Teacher | None = None
        if args.opsd_weight:
            check_hints(args, template, env)
            self.teacher = Teacher(self.policy, make_env, args, self._scores, acts_as)
        self.groups: list[Group] = []
        self.advantages: Advantages = []
        self.played = TrainingOutcomes()
        self._clock = UpdateClock(self.record)
        tasks = TaskReplay(env.drawn_tasks, args.replay_share, args.seed, args.outcome)
        # TRL counts passes over a data set, and never reads its rows.
        rows_of_trl = Dataset.from_dict({"prompt": [""] * max(len(env.drawn_tasks), args.groups_per_batch)})
        self._environment = {"env_id": env.env_id, "env_kwargs": dict(env.settings), "data": dict(env.data)}
        env.close()
        super().__init__(
            model=model,
            args=args,
            processes=processes,
            processing_class=tokenizer,
            train_dataset=rows_of_trl,
            callbacks=[*callbacks, self._clock, WeightWatch(self.record)],
            optimizers=(muon_of(model, args), None),
        )
        # Whether passes may be split by length: several processes must make equal numbers of them.
        self._alone = bool(self.accelerator.num_processes == 1)
        envs = EnvPool(make_env, keep=args.info_keys)
        self.source = source or OwnRollout(self.policy, envs, tasks, args, self._processes, self.frozen_model)
        self.remove_callback(PrinterCallback)  # metrics are shown and stored by our callbacks
        self.tracking = Tracking(self, str(self._environment["env_id"]))
        if not is_deepspeed_zero3_enabled():  # then the model is whole only in `begin`
            self._check_model()

    def _check_model(self) -> None:
        """Raise `BadSetting` if the model ignores padding: rows of unequal length would get wrong gradients.

        A model that cannot compute rows as a tree computes them one by one.
        """
        with self.frozen_model() as model:
            if ignores_padding(model, pad_token(self.policy.tokenizer)):
                raise BadSetting(
                    f"{type(model).__name__} reads padding as text, so rows of unequal length cannot be trained in one "
                    "forward pass: use a model that takes an attention mask. Evaluation (hf:) runs it without padding"
                )
            if self.shares and (is_deepspeed_zero3_enabled() or not can_share(model)):
                self.shares = False
                why = f"the attention of {type(model).__name__} is not described by a mask alone"
                _logger.warning(
                    "share_prefixes is off: %s",
                    "ZeRO-3 does not support it" if is_deepspeed_zero3_enabled() else why,
                )

    def create_scheduler(self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None) -> Any:
        """Return the learning rate schedule: linear to `final_lr_ratio`, or the one that `lr_scheduler_type` names."""
        if self.args.lr_scheduler_type != "linear":
            return super().create_scheduler(num_training_steps, optimizer)
        self.lr_scheduler = linear_decay(
            self.optimizer if optimizer is None else optimizer,
            warmup=self.args.get_warmup_steps(num_training_steps),
            total=num_training_steps,
            floor=self.args.final_lr_ratio,
        )
        return self.lr_scheduler

    # ---------------------------------------------------------------- resuming
    def train(self, resume_from_checkpoint: str | Path | None = None, **kwargs: Any) -> Any:
        """Train from the beginning or from a checkpoint folder; return what the Hugging Face trainer returns.

        A run resumed on the same machine and number of processes takes exactly the steps of an uninterrupted run. With
        `beta`, the model at the beginning of a run is the reference policy.

        Raises:
            BadData: a file of the checkpoint is damaged or missing.
            BadSetting: the folder is not a checkpoint, or its run had another setting, model, environment or number of
                processes; the message names the first difference.
            TrainingFailed: the loss is not finite, or a GPU runs out of memory.
        """
        checkpoint = None if resume_from_checkpoint is None else Path(resume_from_checkpoint)
        if checkpoint is not None:
            progress_of(checkpoint)
            self._processes.on_main_process(partial(check_intact, checkpoint))
            self.check_made_with(checkpoint)
            self.played = TrainingOutcomes(**json.loads((checkpoint / PLAYED).read_text("utf-8")))
            self.source.load_state_dict(json.loads((checkpoint / SOURCE).read_text("utf-8")))
        self.generator.version = -1  # so that the next update is not skipped: the weights may have changed
        try:
            with out_of_memory(UPDATE):
                return super().train(checkpoint, **kwargs)
        finally:
            self.source.close()
            if self.teacher is not None:
                self.teacher.close()

    def describe(self, folder: Path) -> None:
        """Add to a new checkpoint the settings of its run, the counts of episodes, and the state of the source."""
        write_json(folder / MADE_WITH, self.made_with())
        write_json(folder / PLAYED, asdict(self.played))
        write_json(folder / SOURCE, self.source.state_dict())

    def made_with(self) -> dict[str, Any]:
        """Return the settings, model and environment that a resumed run must have in common with this one."""
        words = self.policy.tokenizer.get_vocab()
        return {
            **self._environment,
            "group_source": type(self.source).__name__,
            "template": self.policy.template.name,
            "model": model_outline(self.accelerator.unwrap_model(self.model)),
            "tokenizer": f"{len(words)} tokens, {stable_hash(sorted(words.items()))[:12]}",
            "num_processes": self.accelerator.num_processes,
            **lasting_settings(self.args),
            "date": self.args.date if reads_clock(self.policy.tokenizer) else None,
        }

    def check_made_with(self, checkpoint: Path) -> None:
        """Raise `BadSetting` naming the first entry in which a checkpoint's run differs from this one."""
        check_made_with(checkpoint, self.made_with(), lasting_defaults(self.args))

    def begin(self, resumed: Path | None) -> None:
        """Copy the current model as the reference policy; a resumed run loads its first one."""
        if is_deepspeed_zero3_enabled():
            self._check_model()
        if self.reference is None:
            return
        self.reference.prepare(self.accelerator)
        if resumed is not None:
            self.reference.restore(resumed.parent)
            return
        self.reference.copy()
        self.reference.save(Path(self.args.output_dir), write=self.accelerator.is_main_process)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log `logs`, the metrics since the last log, and the counts of episodes since training began."""
        super().log({**logs, **asdict(self.played)}, start_time)

    # ---------------------------------------------------------------- a batch
    def make_batch(self) -> Batch:
        """Take the groups of the next batch, compute advantages for all turns, and return the rows as tensors.

        Sets `self.groups` to the groups of all processes to train on, without lost episodes, and `self.advantages` to
        those of their turns. Raises `TrainingFailed` if all episodes were lost.
        """
        started = time.perf_counter()
        taken = self.source.take(self.played.batches, self.state.global_step)
        scoring = time.perf_counter()
        self.groups = without_lost(taken.groups) or without_lost(taken.played)[: len(taken.groups)]
        if not self.groups:
            error = taken.played[0].episodes[0].meta[ERROR]
            raise TrainingFailed(
                f"environment or policy raised in all {sum(map(len, taken.played))} episodes of a batch: "
                f"{error['class']}: {error['message']}. See env_id, env_kwargs and generator"
            )
        self.played.count(taken.played)
        is_valid = valid_turns(self.policy.template)
        penalty = self.args.invalid_action_penalty
        credit = self.credit(self.groups, policy=self.acts_as)
        measured: dict[str, float] = {}
        if self.args.fork_share and isinstance(self.source, OwnRollout):  # `check_source` refuses it for others
            credit, cost = self.source.corrected(self.groups, credit, self.played.batches)
            self.played.env_steps += cost.steps
            measured = {f"forks/{name}": value for name, value in asdict(cost).items()}
        advantages = self.advantages = penalise_invalid(self.groups, credit, penalty, is_valid, policy=self.acts_as)
        weigh = WEIGHTS.get(self.args.credit)
        weights = [[1.0] * len(group) for group in self.groups]
        if weigh is not None:
            weights = weigh(self.groups, observations=not self.args.mask_observations, policy=self.acts_as)
        episodes = [episode for group in self.groups for episode in group]
        share = self._processes.part(len(episodes))
        behind = staleness([turn for e in episodes for turn in e.turns_by(self.acts_as)], self.state.global_step)
        batch, counts = self._rows(
            episodes[share],
            [a for group in advantages for a in group][share],
            [w for g in weights for w in g][share],
            share,
            is_stale=any(behind) or not self.source.exact,
        )
        batch, mismatch = self._corrected(batch, behind)
        done = time.perf_counter()
        self._clock.making += done - started
        figures: dict[str, float] = {}
        if any(one.counts_for(self.acts_as) for one in episodes):  # else others of a team took all turns
            figures = outcome_metrics(
                taken.played,
                outcome=self.args.outcome,
                invalid_action_penalty=penalty,
                is_valid=is_valid,
                policy=self.acts_as,
            )
            figures |= credit_metrics(self.groups, credit, self.args.outcome, self.acts_as)
        self.record({"time/credit": done - scoring, **counts, **taken.metrics, **figures, **mismatch, **measured})
        return batch

    def _rows(
        self,
        episodes: list[Episode],
        advantages: list[list[float]],
        weights: list[float],
        share: slice,
        *,
        is_stale: bool,
    ) -> tuple[Batch, dict[str, float]]:
        plain = rows(
            [Group([episode]) for episode in episodes],
            [[a] for a in advantages],
            layout=self.args.layout,
            weights=[[weight] for weight in weights],
            mask_observations=self.args.mask_observations,
            policy=self.acts_as,
        )
        if self.teacher is not None:
            plain, sums = self.teacher.taught(plain, self.groups, share, rescores=is_stale)
            found = sums.metrics(lambda values: self._over_processes(torch.tensor(values)))
            self.played.env_steps += int(found["opsd/steps"])
            self.record(found)
        counts: dict[str, float] = {"turns": sum(len(episode.turns_by(self.acts_as)) for episode in episodes)}
        selection = self.args.zero_advantage_share, Stream("zero advantages", self.args.seed, self.played.batches)
        if self.args.merge_prompts and self.args.layout == TURN and self.policy.sampling.max_new_tokens == 1:
            merged = merge(plain)
            taught = thin_rows(merged, *selection)
            self.record({"prompt_information": self._prompt_information(merged[:INFORMATION_PROMPTS])})
            counts |= {"unique_prompts": len(merged), "rows": len(taught), "dropped_rows": len(merged) - len(taught)}
            batch = collate_merged(taught, **self._filling(len(taught)))
        else:
            kept = thin_rows(plain, *selection)
            counts |= {"rows": len(kept), "dropped_rows": len(plain) - len(kept)}
            batch = collate(kept, **self._filling(len(kept)))
        # The loss is divided by the number of all turns, including those of dropped rows.
        counts["items"] = float(sum(row.trained_tokens * row.weight for row in plain))
        counts = dict(zip(counts, self._over_processes(torch.tensor([*counts.values()])), strict=True))
        items = torch.tensor(counts.pop("items"), device=self.accelerator.device)
        return {**batch, "num_items_in_batch": items}, counts

    def _prompt_information(self, merged: Sequence[MergedRow]) -> float:
        """Return the mutual information of these prompts and their answers of one token (`rewards.collapse`), exactly.

        It is the mean divergence of the distribution after a prompt from the mean of all.
        """
        if not merged:
            return 0.0
        pad, device = self.policy.tokenizer.pad_token_id, self.accelerator.device
        batch = collate_merged(merged, pad=pad, multiple=1, device=device)
        with self.frozen_model() as model, torch.no_grad(), out_of_memory(UPDATE):
            own = next_logprobs(model, batch, self.args.temperature).double()
        mixture = own.logsumexp(0) - math.log(len(own))
        return float((own.exp() * (own - mixture)).sum(1).mean())

    def _scores(self, some: Sequence[TrainingRow]) -> list[list[float]]:
        """Return the log-probabilities of the completions of rows by the present weights, without gradient."""
        with self.frozen_model() as model, out_of_memory(UPDATE):
            return row_logprobs(
                model,
                some,
                self._filling,
                temperature=self.args.temperature,
                passes=self.args.steps_per_generation or 1,  # as in an update
                share=self.shares,
            )

    def _corrected(self, batch: Batch, behind: Sequence[int]) -> tuple[Batch, dict[str, float]]:
        """Correct a batch for turns sampled by older weights or another backend; return it with metrics.

        `behind` is the staleness of the turns of all processes, so that all processes decide alike. If the model in
        training sampled all turns, there is no correction. Observations that are trained on then get log-probabilities,
        which they lack because no policy sampled them.
        """
        off_policy = not self.source.exact or any(behind)
        correcting = off_policy and self.args.vllm_importance_sampling_correction
        figures: dict[str, float] = {}
        if off_policy:
            figures = {"staleness": sum(behind) / max(1, len(behind)), "staleness_max": max(behind, default=0)}
        if not correcting and self.args.mask_observations:
            return batch, figures
        with self.frozen_model() as model, out_of_memory(UPDATE):
            rows_at_a_time = len(batch["prompt_ids"]) // self.args.steps_per_generation  # as in an update
            found = batch_logprobs(model, batch, self.args.temperature, rows_at_a_time, share=self.shares)
        if not self.args.mask_observations:
            old = batch["old_per_token_logps"]
            batch = {**batch, "old_per_token_logps": torch.where(old.isnan(), found, old)}
        if not correcting:
            return batch, figures
        corrected_batch, mismatch = corrected(batch, found, self.args.importance_bounds)
        largest = self.accelerator.gather(torch.tensor([mismatch.largest], device=self.accelerator.device)).max()
        everywhere = Mismatch(*self._over_processes(torch.tensor(astuple(mismatch))))
        figures |= replace(everywhere, largest=float(largest)).metrics()
        # VESPO weighs rows by their ratio to the sampling policy, so it needs that policy's log-probabilities.
        return batch if self.args.loss_type == "vespo" else corrected_batch, figures

    def _filling(self, count: int) -> dict[str, Any]:
        # All processes must have the same number of rows, divisible into minibatches.
        everywhere = gather_object([count]) if self.accelerator.num_processes > 1 else [count]
        return {
            "pad": self.policy.tokenizer.pad_token_id,
            "multiple": self.args.steps_per_generation,
            "least": max(everywhere),
            "device": self.accelerator.device,
        }

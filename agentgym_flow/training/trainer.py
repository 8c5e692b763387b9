"""The trainer: TRL's loop, optimiser handling and loss around our rollouts, credit and rows.

An algorithm is a credit function: from a batch of groups of episodes to one advantage per turn. Everything else is the
same for all of them: collect a batch with the present policy, ask for credit, make rows, take `steps_per_generation`
minibatch steps.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from accelerate.utils import gather_object
from datasets import Dataset
from transformers import PrinterCallback, TrainerCallback

from agentgym_flow.core import TextEnv
from agentgym_flow.episode import Episode, Group
from agentgym_flow.errors import BadSetting, TrainingFailed, UnknownOption
from agentgym_flow.policies import View
from agentgym_flow.prompts import Profile
from agentgym_flow.rewards.credit import CREDIT, Advantages
from agentgym_flow.rollout import ERROR, Start, rollout
from agentgym_flow.seeding import Stream
from agentgym_flow.training._trl import RowTrainer
from agentgym_flow.training.collate import Batch, collate, collate_merged
from agentgym_flow.training.config import AgentConfig
from agentgym_flow.training.loss import merged_loss
from agentgym_flow.training.optim import MuonAdamW, linear_decay
from agentgym_flow.training.policy import ModelPolicy, check_actions
from agentgym_flow.training.rows import merge, rows, teaches

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

FAILED_BATCH = "failed_batch.pt"
"""The file in the output folder that holds the micro-batch on which training failed."""


def stop_on(key: str | None) -> Callable[[View], bool] | None:
    """Return a function that ends an episode when `info[key]` is true; None for None."""
    return None if key is None else lambda view: bool(view.info[key])


class AgentTrainer(RowTrainer):
    """Trains a causal language model on an environment.

    The `inputs` of a batch are rows of a data set of task numbers, each repeated `num_generations` times: the members
    of a group. Every process plays its share; credit is computed on all episodes of all processes, so a group may be
    split.

    Args:
        model: the policy's model.
        args: the settings.
        tokenizer: of the model.
        profile: the prompt profile.
        make_env: makes a training environment.
        callbacks: of the Hugging Face trainer.

    Raises:
        UnknownOption: there is no such credit function, or `stop_when` is no key of the environment's `info`.
        BadSetting: the credit function does not have a given setting, the tokenizer cannot express the actions, or a
            batch holds more groups than there are tasks.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        args: AgentConfig,
        tokenizer: PreTrainedTokenizerBase,
        profile: Profile,
        make_env: Callable[[], TextEnv],
        callbacks: Sequence[TrainerCallback] = (),
    ) -> None:
        env = make_env()
        _, info = env.reset(seed=0)
        check_actions(tokenizer, info["admissible_actions"], args.max_completion_length or 1)
        if args.stop_when is not None and args.stop_when not in info:
            raise UnknownOption.among(args.stop_when, sorted(info), "stop_when names a key of info.")
        groups = args.generation_batch_size // args.num_generations
        if groups > env.num_tasks:
            raise BadSetting(
                f"a batch is {groups} groups, but there are only {env.num_tasks} training tasks: lower "
                "per_device_train_batch_size or steps_per_generation, or raise num_generations"
            )
        self.credit = _credit(args)
        self.make_env = make_env
        self.policy = ModelPolicy(
            model,
            tokenizer,
            profile,
            temperature=args.temperature,
            max_new_tokens=args.max_completion_length or 1,
            name="policy in training",
        )
        self.groups: list[Group] = []
        self._batch_done: float | None = None
        optimizer = None
        if args.muon_learning_rate is not None:
            optimizer = MuonAdamW(
                model,
                muon_lr=args.muon_learning_rate,
                adamw_lr=args.learning_rate,
                betas=(args.adam_beta1, args.adam_beta2),
                eps=args.adam_epsilon,
                weight_decay=args.weight_decay,
            )
        tasks = Dataset.from_dict({"prompt": [""] * env.num_tasks, "task": list(range(env.num_tasks))})
        env.close()
        super().__init__(
            model=model,
            args=args,
            processing_class=tokenizer,
            train_dataset=tasks,
            callbacks=list(callbacks),
            optimizers=(optimizer, None),
        )
        self.remove_callback(PrinterCallback)  # our callbacks show and keep the metrics

    def create_scheduler(self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None) -> Any:
        """Return the schedule of the step sizes: linear to `final_lr_ratio`, or what `lr_scheduler_type` names."""
        if self.args.lr_scheduler_type != "linear":
            return super().create_scheduler(num_training_steps, optimizer)
        self.lr_scheduler = linear_decay(
            self.optimizer if optimizer is None else optimizer,
            warmup=self.args.get_warmup_steps(num_training_steps),
            total=num_training_steps,
            floor=self.args.final_lr_ratio,
        )
        return self.lr_scheduler

    # ---------------------------------------------------------------- a batch
    def make_batch(self, inputs: list[dict[str, Any]]) -> Batch:
        """Play one episode per input, give credit to all turns and return the rows as tensors.

        `self.groups` then holds the groups of the batch, of all processes.
        """
        started = time.perf_counter()
        generating = self.policy.seconds
        mine = self._collect(inputs)
        collected = time.perf_counter()
        generating = self.policy.seconds - generating
        everyone = gather_object(mine) if self.accelerator.num_processes > 1 else mine
        size = self.num_generations
        self.groups = [Group(everyone[first : first + size]) for first in range(0, len(everyone), size)]
        advantages = self.credit(self.groups)
        batch, counts = self._rows(mine, [a for group in advantages for a in group][self._share(len(mine))])
        done = time.perf_counter()
        if self._batch_done is not None:
            self.record(time__update=started - self._batch_done)
        self._batch_done = done
        self.record(
            time__env=collected - started - generating,
            time__generate=generating,
            time__score=done - collected,
            **counts,
            **outcome_metrics(self.groups),
        )
        return batch

    def _share(self, count: int) -> slice:
        first = self.accelerator.process_index * count
        return slice(first, first + count)

    def _collect(self, inputs: list[dict[str, Any]]) -> list[Episode]:
        # One seed for the whole batch: equal noise within a group, and a resumed run goes on with the same episodes.
        seed = Stream("training batch", self.args.seed, self.state.global_step).word()
        first = self._share(len(inputs)).start
        starts = [Start(seed, int(row["task"]), (first + i) % self.num_generations) for i, row in enumerate(inputs)]
        self.policy.forget()
        with self.frozen_model() as model:
            self.policy.model = model
            stop = stop_on(self.args.stop_when)
            return rollout(self.policy, self.make_env, starts, num_envs=self.args.num_envs, stop=stop)

    def _rows(self, episodes: list[Episode], advantages: list[list[float]]) -> tuple[Batch, dict[str, float]]:
        plain = rows([Group([episode]) for episode in episodes], [[a] for a in advantages])
        counts: dict[str, float] = {"turns": len(plain)}
        keep_all = not self.args.drop_zero_advantages
        if self.args.merge_prompts and self.policy.max_new_tokens == 1:
            merged = merge(plain)
            counts["unique_prompts"] = len(merged)
            merged = [row for row in merged if keep_all or teaches(row)]
            counts["rows"] = len(merged)
            batch = collate_merged(merged, **self._filling(len(merged)))
        else:
            kept = [row for row in plain if keep_all or teaches(row)]
            counts["rows"] = len(kept)
            batch = collate(kept, **self._filling(len(kept)))
        # All turns count, also those of rows left out.
        items = torch.tensor(float(sum(len(row.completion) * row.weight for row in plain)))
        items = self.accelerator.reduce(items.to(self.accelerator.device), reduction="sum")
        return {**batch, "num_items_in_batch": items}, counts

    def _filling(self, count: int) -> dict[str, Any]:
        # Minibatches are equally large, in all processes alike.
        everywhere = gather_object([count]) if self.accelerator.num_processes > 1 else [count]
        return {
            "pad": self.policy.tokenizer.pad_token_id,
            "multiple": self.args.steps_per_generation,
            "least": max(everywhere),
            "device": self.accelerator.device,
        }

    # ---------------------------------------------------------------- a minibatch
    def loss(self, model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        """Return the loss of one micro-batch: TRL's for ordinary rows, ours for merged ones.

        Raises `TrainingFailed` when it is not a number, after saving the micro-batch to the output folder.
        """
        loss = self._merged_loss(model, batch) if "tokens" in batch else super().loss(model, batch)
        if not torch.isfinite(loss):
            path = Path(self.args.output_dir) / FAILED_BATCH
            torch.save({name: tensor.cpu() for name, tensor in batch.items()}, path)
            raise TrainingFailed(
                f"the loss is {loss.item()} at step {self.state.global_step}: lower learning_rate and "
                f"muon_learning_rate, or max_grad_norm. The batch was saved to {path}"
            )
        return loss

    def _merged_loss(self, model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        args = self.args
        sums = merged_loss(
            model,
            batch,
            temperature=args.temperature,
            epsilon_low=args.epsilon,
            epsilon_high=args.epsilon if args.epsilon_high is None else args.epsilon_high,
        )
        logged = torch.stack([sums.entropy.detach(), sums.turns, sums.clipped, sums.total])
        entropy, turns, clipped, total = self.accelerator.reduce(logged, reduction="sum").tolist()
        if turns:
            self.record(entropy=entropy / turns, clip_fraction=clipped / total if total else 0.0)
        # The batch's turns, shared out to the processes and to the optimizer steps it is split into (TRL's "dapo").
        share = self.current_gradient_accumulation_steps / args.steps_per_generation / self.accelerator.num_processes
        turns_per_step = batch["num_items_in_batch"].clamp(min=1.0) * share
        loss: torch.Tensor = (sums.policy - args.entropy_coef * sums.entropy) / turns_per_step
        return loss


def _credit(args: AgentConfig) -> Callable[[Sequence[Group]], Advantages]:
    if args.credit not in CREDIT:
        raise UnknownOption.among(args.credit, CREDIT, "These are the credit functions.")
    function, settings = CREDIT[args.credit], args.credit_keywords
    known = [name for name in inspect.signature(function).parameters if name != "batch"]
    for name in settings:
        if name not in known:
            raise BadSetting(f"credit function {args.credit!r} has no setting {name!r}; it has {', '.join(known)}")
    return lambda batch: function(batch, **settings)


def outcome_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Return means over the episodes of a batch: success, native return and length.

    `zero_variance_groups` is the share of groups whose members all ended alike; `errors` counts episodes in which the
    environment raised.
    """
    episodes = [episode for group in groups for episode in group]
    alike = sum(len({episode.success for episode in group}) == 1 for group in groups)
    return {
        "success": sum(episode.success for episode in episodes) / len(episodes),
        "return": sum(episode.total_reward for episode in episodes) / len(episodes),
        "length": sum(len(episode.turns) for episode in episodes) / len(episodes),
        "zero_variance_groups": alike / len(groups),
        "errors": float(sum(ERROR in episode.meta for episode in episodes)),
    }

"""TRL: any text environment as the `rollout_func` of a stock `GRPOTrainer`, for models that answer in plain text.

::

    trainer = GRPOTrainer(
        model,
        args=args,
        train_dataset=rows,
        reward_funcs=success,
        rollout_func=TextRollout("agentgym_flow/Search-v0", answer_tokens=64),
    )

TRL passes only the prompts of the data set, so the message names the task:
`{"prompt": [{"role": "user", "content": "", "task": 7, "seed": 0}]}`. The environment replaces its content. Each
episode is one row: sampled tokens, and tokens of the environment between them, which TRL masks.

An episode in which the environment or the policy raised says nothing about the model. It is masked completely, and its
reward is None, so TRL leaves it out of its group. A reward function of your own must return None where the column
`lost` is true. An episode that no longer fits into the model's context ends there.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from importlib.util import find_spec
from typing import Any

from agentgym_flow.envs import make_text_env
from agentgym_flow.episodes import TRUNCATED_BY, Episode, Group
from agentgym_flow.errors import BadSetting, MissingExtra, TrainingFailed
from agentgym_flow.integrations.chat import named_start, rounded_return

if find_spec("trl") is None:
    raise MissingExtra.of("trl", "train")

from agentgym_flow.play import ERROR, EnvPool, EpisodeSpec, rollout
from agentgym_flow.prompts import CONVERSATION, template_for
from agentgym_flow.training._trl import frozen_model
from agentgym_flow.training.conversation import checked_date, write_date, write_settings
from agentgym_flow.training.outcomes import is_lost
from agentgym_flow.training.policy import ModelPolicy, pad_token
from agentgym_flow.training.processes import Processes
from agentgym_flow.training.rows import TrainingRow, rows

NOT_READ = {
    *("top_k", "top_p", "min_p", "repetition_penalty", "generation_kwargs", "max_completion_length"),
    *("cache_implementation", "ds3_gather_for_generation", "use_vllm", "use_transformers_paged"),
    *("use_transformers_continuous_batching", "transformers_continuous_batching_config"),
}
"""Settings of TRL's generation that have no effect on a `TextRollout`. A value other than TRL's default is refused."""


class TextRollout:
    """Plays the episodes of a batch with the trainer's model, in this process with Transformers.

    It reads `temperature`, `seed` and `chat_template_kwargs` of TRL's configuration, and refuses the settings in
    `NOT_READ`.

    Args:
        env_id: the id of a text environment.
        template: the name of a prompt template with a `follow_up` message.
        answer_tokens: the longest answer of one turn. With the environment's `max_steps` it limits an episode.
        date: the date, in ISO format, for chat templates that read the clock; None: today's.
        settings: keyword arguments of the environment.

    Raises:
        BadSetting: the date is not in ISO format.
        UnknownEnvironment: there is no text environment with this id.
        UnknownTemplate: the environment has no such prompt template.
    """

    def __init__(
        self, env_id: str, template: str = "text", *, answer_tokens: int = 256, date: str | None = None, **settings: Any
    ) -> None:
        self._pool = EnvPool(lambda: make_text_env(env_id, **settings))
        self._template = template_for(env_id, template)
        self._answer_tokens = answer_tokens
        self._date = checked_date(date)
        self._policy: ModelPolicy | None = None
        self._processes: Processes | None = None
        self._attempts: Counter[tuple[int, int | None]] = Counter()

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, list[Any]]:
        """Return TRL's columns, and further ones for reward functions.

        These are `success` and `native_return` (None for lost episodes), `lost`, `out_of_context` (whether the episode
        no longer fitted into the model's context), and `cut_answers` (the fraction of answers cut at `answer_tokens`).

        Raises `BadSetting` for a prompt without task and seed, or one that is longer than the model's context, and for
        a setting of TRL that has no effect here; `TrainingFailed` if all episodes of a batch are lost.
        """
        self._check(trainer.args)
        specs = [self._spec(prompt, trainer) for prompt in prompts]
        with frozen_model(trainer) as model:
            episodes = rollout(self._current_policy(trainer, model), self._pool, specs)
        lost = [is_lost(episode) for episode in episodes]
        self._processes = self._processes or Processes()
        if all(self._processes.share(lambda: all(lost))):
            error = episodes[0].meta[ERROR]
            raise TrainingFailed(
                f"environment or policy raised in all {len(episodes)} episodes of a batch: {error['class']}: "
                f"{error['message']}"
            )
        made = [_row(episode, trainer.processing_class) for episode in episodes]
        return {
            "prompt_ids": [list(row.prompt) for row in made],
            "completion_ids": [list(row.completion) for row in made],
            "logprobs": [list(row.logprobs) for row in made],
            "env_mask": [list(row.sampled or ()) for row in made],
            "success": [None if gone else float(e.success) for e, gone in zip(episodes, lost, strict=True)],
            "native_return": [
                None if gone else rounded_return(e.total_reward) for e, gone in zip(episodes, lost, strict=True)
            ],
            "lost": lost,
            "out_of_context": [TRUNCATED_BY in episode.meta for episode in episodes],
            "cut_answers": [sum(turn.output.cut for turn in e.turns) / max(1, len(e.turns)) for e in episodes],
        }

    def _check(self, args: Any) -> None:
        """Raise `BadSetting` if a setting of TRL would have no effect, or another one than it says."""
        for setting in fields(args):
            name, value = setting.name, getattr(args, setting.name)
            if name == "max_completion_length" and args.loss_type == "dr_grpo":  # the loss is divided by it
                continue
            if name in NOT_READ and (value or None) != (setting.default or None):
                raise BadSetting(
                    f"{name}={value!r} has no effect with TextRollout: leave it out. Transformers samples from the "
                    "whole distribution, and answer_tokens and max_steps limit an episode"
                )
        if args.mask_truncated_completions and getattr(self._template, "stops", ()):
            raise BadSetting(
                "mask_truncated_completions would mask every episode: TRL takes an answer that ends with a stop text "
                f"of template {self._template.name} for a truncated one. Leave it out"
            )

    def _spec(self, prompt: Any, trainer: Any) -> EpisodeSpec:
        """Return the spec of a prompt's episode; attempts differ only in the random draws of the policy."""
        message = prompt[-1] if isinstance(prompt, list) and prompt else {}
        named: Mapping[str, Any] = message if isinstance(message, Mapping) else {}
        begun = named_start(named, "the last message of a prompt")
        number = self._attempts[begun]
        self._attempts[begun] += 1
        ranks = trainer.accelerator
        first = trainer.args.seed << 32  # runs with another seed have other attempts
        return EpisodeSpec(*begun, attempt=first + number * ranks.num_processes + ranks.process_index)

    def _current_policy(self, trainer: Any, model: Any) -> ModelPolicy:
        """Return the policy with the trainer's current weights."""
        if self._policy is None:
            tokenizer = copy.copy(trainer.processing_class)  # the user's keeps its chat template
            write_settings(tokenizer, trainer.chat_template_kwargs)
            write_date(tokenizer, self._date)
            self._policy = ModelPolicy(
                model,
                tokenizer,
                self._template,
                temperature=trainer.temperature,
                max_new_tokens=self._answer_tokens,
                layout=CONVERSATION,
            )
        generator = self._policy.generator
        generator.update(model, generator.version + 1)
        return self._policy


def _row(episode: Episode, tokenizer: Any) -> TrainingRow:
    """Return the row of an episode. All tokens of a lost one are masked."""
    if not episode.turns:
        return TrainingRow([pad_token(tokenizer)], [pad_token(tokenizer)], [0.0], [0.0], sampled=[0])
    [row] = rows([Group([episode])], [[[0.0] * len(episode.turns)]], layout=CONVERSATION)
    return replace(row, sampled=[0] * len(row.completion)) if is_lost(episode) else row


def success(success: list[float | None], **columns: Any) -> list[float | None]:
    """Return 1 for every successful episode, else 0, as a reward function of TRL; None for lost ones.

    Logs the fractions of lost episodes, of episodes out of context, and of cut answers.
    """
    _log(columns)
    return success


def native_return(native_return: list[float | None], **columns: Any) -> list[float | None]:
    """Return the sum of native rewards of every episode, as a reward function of TRL; None for lost ones.

    Logs what `success` logs.
    """
    _log(columns)
    return native_return


def _log(columns: Mapping[str, Any]) -> None:
    log = columns.get("log_metric")
    for column, name in (("lost", "lost_episodes"), ("out_of_context",) * 2, ("cut_answers",) * 2):
        if log is not None and columns.get(column):
            log(name, sum(columns[column]) / len(columns[column]))

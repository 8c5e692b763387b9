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
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from agentgym_flow.envs import make_text_env
from agentgym_flow.episode import Group
from agentgym_flow.errors import BadSetting, MissingExtra, TrainingFailed

if find_spec("trl") is None:
    raise MissingExtra.of("trl", "train")

from agentgym_flow.prompts import template_for
from agentgym_flow.rollout import ERROR, EnvPool, EpisodeSpec, rollout
from agentgym_flow.training.chat_template import checked_date, write_date
from agentgym_flow.training.policy import ModelPolicy
from agentgym_flow.training.rows import CONVERSATION, rows


class TextRollout:
    """Plays the episodes of a batch with the trainer's model, in this process with Transformers.

    Args:
        env_id: the id of a text environment.
        template: the name of a prompt template with a `follow_up` message.
        answer_tokens: the longest answer of one turn. TRL's `max_completion_length` has no effect.
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
        self._attempts: Counter[tuple[int, int | None]] = Counter()

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, list[Any]]:
        """Return TRL's columns, and the columns `success` and `native_return` for reward functions.

        Raises `BadSetting` for a prompt without task and seed, or a conversation longer than the model's context, and
        `TrainingFailed` if an environment fails in its first turn.
        """
        specs = [self._spec(prompt, trainer.accelerator) for prompt in prompts]
        episodes = rollout(self._current_policy(trainer), self._pool, specs)
        for episode in episodes:
            if not episode.turns:
                raise TrainingFailed(f"task {episode.task} failed in its first step: {episode.meta.get(ERROR)}")
        groups = [Group([episode]) for episode in episodes]
        made = rows(groups, [[[0.0] * len(episode.turns)] for episode in episodes], layout=CONVERSATION)
        return {
            "prompt_ids": [list(row.prompt) for row in made],
            "completion_ids": [list(row.completion) for row in made],
            "logprobs": [list(row.logprobs) for row in made],
            "env_mask": [[1] * len(row.completion) if row.sampled is None else list(row.sampled) for row in made],
            "success": [float(episode.success) for episode in episodes],
            "native_return": [episode.total_reward for episode in episodes],
        }

    def _spec(self, prompt: Any, accelerator: Any) -> EpisodeSpec:
        """Return the spec of a prompt's episode; attempts differ only in the random draws of the policy."""
        message = prompt[-1] if isinstance(prompt, list) and prompt else {}
        named: Mapping[str, Any] = message if isinstance(message, Mapping) else {}
        seed, task = named.get("seed"), named.get("task")
        if seed is None and task is None:
            raise BadSetting("a prompt must be a list of messages, whose last one has a task or a seed")
        begun = (int(seed or 0), None if task is None else int(task))
        number = self._attempts[begun]
        self._attempts[begun] += 1
        return EpisodeSpec(*begun, attempt=number * accelerator.num_processes + accelerator.process_index)

    def _current_policy(self, trainer: Any) -> ModelPolicy:
        """Return the policy with the trainer's current weights."""
        model = trainer.accelerator.unwrap_model(trainer.model)
        if self._policy is None:
            tokenizer = copy.copy(trainer.processing_class)  # the user's keeps its chat template
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


def success(success: list[float], **columns: Any) -> list[float]:
    """Return 1 for every successful episode, else 0, as a reward function of TRL."""
    return success


def native_return(native_return: list[float], **columns: Any) -> list[float]:
    """Return the sum of native rewards of every episode, as a reward function of TRL."""
    return native_return

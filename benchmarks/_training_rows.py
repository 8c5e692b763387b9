"""The batches of `training_step.py`: real episodes, with the model that is trained on them.

There are two kinds. *Turns* are a batch of the quickstart: the tiny policy after its warm start, one row per turn,
prompts of equal length, answers of one token. *Conversations* are typical for language models: one row per episode,
text prompts, observations between answers, and lengths that vary with those of the episodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from agentgym_flow.core import TextEnv
from agentgym_flow.envs import make_text_env
from agentgym_flow.envs.sokoban.prompt import RULES
from agentgym_flow.episodes import Episode, Group
from agentgym_flow.play import EpisodeSpec, rollout, rollout_groups
from agentgym_flow.policies import PolicyInput, RandomPolicy
from agentgym_flow.prompts import CONVERSATION, TURN, PromptTemplate, TextTemplate
from agentgym_flow.rewards.credit import grpo
from agentgym_flow.training.config import Configs
from agentgym_flow.training.config_file import parse_configs
from agentgym_flow.training.group_source import stop_on
from agentgym_flow.training.loss import completion_logprobs
from agentgym_flow.training.models import load_model
from agentgym_flow.training.policy import ModelPolicy
from agentgym_flow.training.rows import TrainingRow, collate, rows
from agentgym_flow.training.run_config import template_of
from agentgym_flow.training.tiny import word_tokenizer
from agentgym_flow.training.warm_start import NoisyExpert, warm_start

SOKOBAN = "agentgym_flow/Sokoban-v0"
SPOKEN = TextTemplate(rules=RULES, history=0, think=False, tags_required=False)
"""The text prompt of Sokoban for a policy that answers with the bare action."""


@dataclass(frozen=True)
class Recording:
    """Groups of episodes with their tokens, and everything needed to train on them.

    Attributes:
        model: the policy that played; it is never trained itself.
        tokenizer: its tokenizer.
        template: its prompt template.
        make_env: creates the environment.
        layout: the layout of rows.
        groups: the episodes.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerFast
    template: PromptTemplate
    make_env: Callable[[], TextEnv]
    layout: str
    groups: list[Group]

    @property
    def episodes(self) -> list[Episode]:
        """All episodes, group by group."""
        return [episode for group in self.groups for episode in group]

    def rows(self) -> list[TrainingRow]:
        """Return all rows, unmerged, with the advantages of GRPO: success less the mean of the group."""
        return rows(self.groups, grpo(self.groups, norm="mean"), layout=self.layout)


def quickstart(folder: str, *arguments: str) -> Configs:
    """Return the packaged settings of the quickstart, without checkpoints; `arguments` are further settings."""
    return parse_configs(["--output_dir", folder, "--save_strategy", "no", *arguments])


def recorded_turns(configs: Configs, levels: int) -> Recording:
    """Warm-start the tiny policy as the settings say, and let it play one group on each of `levels` levels."""
    run, warm, agent = configs
    template = template_of(run)
    model, tokenizer = load_model(run.model, template, seed=agent.seed)
    stop = stop_on(agent.stop_when)
    warm_start(model, tokenizer, template, run.make_env, warm, seed=agent.seed, stop=stop)
    policy = ModelPolicy(model, tokenizer, template, temperature=agent.temperature)
    specs = [EpisodeSpec(seed=1, task=task) for task in range(levels)]
    groups = rollout_groups(policy, run.make_env, specs, agent.num_generations, num_envs=1024, stop=stop)
    return Recording(model, tokenizer, template, run.make_env, TURN, groups)


def recorded_conversations(levels: int, attempts: int) -> Recording:
    """Let a noisy expert play Sokoban in conversations, with log-probabilities of the model."""

    def make_env() -> TextEnv:
        return make_text_env(SOKOBAN, split="train", size=6, boxes=1, min_pushes=1)

    tokenizer = word_tokenizer(_words(make_env))
    model = small_llama(tokenizer)
    expert = NoisyExpert(tokenizer, SPOKEN, noise=0.2, layout=CONVERSATION, max_new_tokens=2)
    groups = rollout_groups(expert, make_env, [EpisodeSpec(seed=1, task=task) for task in range(levels)], attempts)
    recording = Recording(model, tokenizer, SPOKEN, make_env, CONVERSATION, groups)
    for episode, row in zip(recording.episodes, recording.rows(), strict=True):
        _fill_in(model, tokenizer.pad_token_id, episode, row)
    return recording


def small_llama(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """Return a new Llama of 0.8 million parameters: the architecture of large models, at a size for one core.

    Its positions are relative, so it is unaffected by TRL passing no position ids with left-padded prompts.
    """
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        max_position_embeddings=2048,
        bos_token_id=tokenizer.eos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=True,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return LlamaForCausalLM(config)


def _words(make_env: Callable[[], TextEnv]) -> list[str]:
    """Return all words of the text prompts, collected in random play until every turn number has occurred."""
    with_refusal = "Your last action was not accepted. 1"
    found: dict[str, None] = dict.fromkeys(with_refusal.split())

    def listen(policy_input: PolicyInput) -> bool:
        found.update(dict.fromkeys(f"{SPOKEN.prompt(policy_input)} {SPOKEN.follow_up(policy_input)}".split()))
        return False

    rollout(RandomPolicy(), make_env, [EpisodeSpec(seed=2, task=task) for task in range(50)], stop=listen)
    return [*dict.fromkeys([*found, "up", "down", "left", "right"])]


@torch.no_grad()
def _fill_in(model: PreTrainedModel, pad: int, episode: Episode, row: TrainingRow) -> None:
    """Add the model's log-probabilities of the played tokens to every turn."""
    logprobs = completion_logprobs(model, collate([row], pad=pad, multiple=1))[0].tolist()
    sampled = row.sampled or [1] * len(logprobs)
    told = iter([logprob for logprob, was_sampled in zip(logprobs, sampled, strict=True) if was_sampled])
    for turn in episode.turns:
        turn.output.logprobs = list(islice(told, len(turn.output.completion_ids or ())))


def tokens_in(batch: Sequence[TrainingRow]) -> int:
    """Return the number of tokens in rows, without padding."""
    return sum(len(row.prompt) + len(row.completion) for row in batch)

"""The cost of a training run, estimated without loading a model or training.

Prompts are counted in a few episodes of random play, which tend to be long, with the model's tokenizer if it is on this
machine; the rest follows from the settings. Where it must guess, the estimate is an upper bound: answers have the
maximal length, and attempts share no more than their task's first prompt. The embedding costs nothing but at tokens
that are scored, where it is the output layer. Left out are attention over long contexts, which grows quadratically, and
waiting and communication.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch

from agentgym_flow.core import Stream
from agentgym_flow.episodes import EpisodeRecorder
from agentgym_flow.errors import BadSetting
from agentgym_flow.policies import PolicyInput
from agentgym_flow.prompts import TURN, ConversationTemplate, PromptTemplate
from agentgym_flow.training.config import TRANSFORMERS, Configs
from agentgym_flow.training.conversation import Conversation, checked_date, write_date, write_settings
from agentgym_flow.training.memory import LAYOUTS, Memory, config_of, memory
from agentgym_flow.training.models import is_own_model, load_model, load_tokenizer
from agentgym_flow.training.policy import prompt_text, prompt_tokens
from agentgym_flow.training.run_config import RunConfig, mapping, template_of
from agentgym_flow.training.scoring import pack
from agentgym_flow.training.tiny import TINY
from agentgym_flow.training.warm_start import check_demonstrations, fit_demonstrations

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

CHARACTERS_PER_TOKEN = 4.0
"""Roughly, for English text and a large language model."""

READING, WRITING = 200e12, 10e12
"""Floating-point operations per second assumed for one GPU: in passes over many tokens (a fifth to a half of the peak
of large ones), and when answers are written token by token in batches of a hundred."""

CORE = 25e9
"""The same for one CPU core with small models."""

LONG = 24.0
"""Hours above which an estimate has a warning."""

_PROBES = 8  # episodes
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([BM])(?![A-Za-z])")


@dataclass(frozen=True, slots=True)
class Probe:
    """Mean sizes of episodes of a few training tasks.

    Attributes:
        turns: turns per episode.
        read: prompt tokens per episode that sampling reads.
        trained: prompt and answer tokens per episode in training rows.
        longest: tokens of the longest prompt.
        step_seconds: processor time of an environment step on this machine.
        tree: tokens of the training rows of the largest episode, every common prefix once.
        first: tokens of its first prompt, which all attempts at a task have in common.
        distinct: tokens of the training rows of an episode, every common prefix once; 0 if it was not measured.
    """

    turns: float
    read: float
    trained: float
    longest: int
    step_seconds: float
    tree: int = 0
    first: int = 0
    distinct: float = 0.0


class Flops(NamedTuple):
    """Floating-point operations of updates, reading prompts and writing answers.

    `again` is for reading a conversation's past again in every turn, where its keys and values are not kept: with
    Transformers on a GPU.
    """

    update: float
    read: float
    write: float
    again: float = 0.0


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """The cost of a run.

    Attributes:
        parameters: number of the model's parameters.
        batches: batches of training.
        episodes: episodes of training.
        evaluated: episodes of evaluation and validation.
        answer: the longest answer, in tokens.
        probe: mean sizes of episodes.
        flops: operations, including evaluation.
        memory: the need of each GPU, by (number of GPUs, ZeRO stage); empty if the model's shape is unknown. The key
            (0, 0) is one process on a CPU, in float32.
        counted: whether prompts were counted with the model's tokenizer.
    """

    parameters: int
    batches: float
    episodes: float
    evaluated: int
    answer: int
    probe: Probe
    flops: Flops
    memory: Mapping[tuple[int, int], Memory]
    counted: bool = True

    @property
    def core_hours(self) -> float:
        """Hours of one CPU core at the assumed throughput."""
        return (self.flops.update + self.flops.read + self.flops.write) / CORE / 3600

    @property
    def warning(self) -> str:
        """One sentence if the run takes more than `LONG` hours on a GPU, or without any on a CPU core; else empty."""
        hours, where = (self.gpu_hours, "GPU") if torch.cuda.is_available() else (self.core_hours, "CPU core")
        if hours <= LONG:
            return ""
        return (
            f"the run would take about {hours:,.0f} hours on one {where}: lower max_steps, groups_per_batch, "
            "max_completion_length, eval_episodes or validations, or use a smaller model"
        )

    @property
    def gpu_hours(self) -> float:
        """Hours of one GPU at the assumed throughput."""
        reading = self.flops.update + self.flops.read + self.flops.again
        return (reading / READING + self.flops.write / WRITING) / 3600

    def summary(self) -> dict[str, str]:
        """Return the figures and their assumptions, by name."""
        turns, probe = self.episodes * self.probe.turns, self.probe
        steps = (self.episodes + self.evaluated) * probe.turns
        return {
            "Model": f"{self.parameters / 1e6:,.2f} million parameters",
            "Training": f"{self.batches:,.0f} batches, {self.episodes:,.0f} episodes, {turns:,.0f} turns",
            "Evaluation": f"{self.evaluated:,} episodes",
            "Prompts": f"{probe.read / probe.turns:,.0f} tokens on average, the longest seen {probe.longest:,}",
            "Training tokens": (
                f"{self.episodes * probe.trained - turns * self.answer:,.0f} in prompts, "
                f"{turns * self.answer:,.0f} in answers"
            ),
            "Operations": (
                f"{self.flops.update:.2g} in updates, {self.flops.read:.2g} to read prompts, {self.flops.write:.2g} to "
                "write answers, with evaluation"
                + (f"; {self.flops.again:.2g} on a GPU to read conversations again" if self.flops.again else "")
            ),
            "Environment": f"{steps * probe.step_seconds / 3600:.2g} core-hours at the speed of this machine",
            "One GPU": (
                f"{self.gpu_hours:,.2g} hours, at {READING / 1e12:.0f} teraflops in updates and reading and "
                f"{WRITING / 1e12:.0f} in writing"
            ),
            "One CPU core": f"{self.core_hours:,.2g} hours, at {CORE / 1e9:.0f} gigaflops",
            **self._memory(),
            "Assumed": (
                f"{self._tokens}; answers as long as may be, episodes as long as random play; attempts share the first "
                "prompt only, and that if share_prefixes is on; 2 operations per parameter and token forwards, 4 "
                "backwards (2 with LoRA), the output layer at scored tokens; attention, waiting, communication left "
                "out; memory on a GPU in bfloat16, where updates and play take turns, without the one or two GB of "
                "CUDA and of the allocator; on a CPU in float32, or with adapters in the dtype of the model"
            ),
        }

    @property
    def _tokens(self) -> str:
        if self.counted:
            return "prompts counted with the model's tokenizer"
        return f"{CHARACTERS_PER_TOKEN:g} characters a token, because the model's tokenizer is not on this machine"

    def _memory(self) -> dict[str, str]:
        if not self.memory:
            return {"Memory": "not known: give a folder with config.json (the tiny policy needs little)"}
        shown = {}
        for (processes, stage), needed in self.memory.items():
            name = "CPU" if not processes else "1 GPU" if processes == 1 else f"{processes} GPUs"
            shown[f"Memory, {name}, ZeRO-{stage}" if stage else f"Memory, {name}"] = str(needed)
        return shown


def estimate(configs: Configs) -> CostEstimate:
    """Return the cost of a run with these settings.

    Raises:
        AgentGymFlowError: a setting is invalid, or the size of the model is unknown.
    """
    run, warm, agent = configs
    fit_demonstrations(run, warm)
    _ = agent.credit_function  # raises for invalid settings
    template = template_of(run)
    with closing(run.make_env()) as env:  # fails now instead of soon after the start of the run
        if warm.warm_start_levels:
            check_demonstrations(env, warm.warm_start_levels, warm.warm_start_noise if env.has_expert else 1.0)
    parameters = count_parameters(run, template)
    answer = agent.max_completion_length or 1
    tokenizer = tokenizer_of(configs, template)
    found = probe(run, template, agent.layout, answer, tokenizer)
    batches = agent.max_steps / agent.steps_per_batch
    episodes = batches * agent.generation_batch_size
    evaluated = 4 * run.eval_episodes + run.validations * run.validation_episodes
    # A backward pass costs two forward passes; half of it is the gradient of weights, which LoRA does not need.
    per_token = 2 + (2 if run.lora else 4) + (2 if agent.gradient_checkpointing else 0)
    passes = per_token * agent.num_iterations + (2 if agent.beta else 0) + (2 if agent.opsd_weight else 0)
    cloned = warm.warm_start_updates * warm.warm_start_batch if warm.warm_start_levels else 0
    layers, output = _split(run, parameters)
    written = found.turns * answer
    shared = bool(agent.share_prefixes and found.distinct)
    common = found.first * (1 - 1 / agent.num_generations)  # of an episode, computed for another attempt already
    trained = found.distinct - common if shared else found.trained
    # A row is a turn, or in a conversation an episode.
    rows = cloned / found.turns if agent.layout == TURN else cloned
    update = passes * episodes * (layers * trained + output * written)
    update += per_token * rows * (layers * found.trained + output * written)
    once = found.read if agent.layout == TURN else found.trained - written
    begun = common if shared and agent.generator == TRANSFORMERS else 0.0
    read = 2 * layers * (episodes * (once - begun) + evaluated * once)
    played = episodes + evaluated
    again = found.read - once if agent.generator == TRANSFORMERS else 0.0
    flops = Flops(update, read, 2 * played * (layers + output) * written, 2 * played * layers * again)
    needed = memory_of(configs, found, answer)
    counted = tokenizer is not None
    return CostEstimate(parameters, batches, episodes, evaluated, answer, found, flops, needed, counted)


def _split(run: RunConfig, parameters: int) -> tuple[int, int]:
    """Return the parameters that every token meets, and those of the output layer."""
    config = None if run.model == TINY or is_own_model(run.model) else config_of(run.model)
    if config is None:
        return parameters, 0
    text = config.get_text_config()
    output = text.vocab_size * text.hidden_size
    return parameters - output * (1 if text.tie_word_embeddings else 2), output


def tokenizer_of(configs: Configs, template: PromptTemplate) -> PreTrainedTokenizerBase | None:
    """Return the tokenizer of a run with its chat template; None if it is not on this machine."""
    run, _, agent = configs
    if run.model == TINY or is_own_model(run.model):
        return load_model(run.model, template, chat_template=run.chat_template)[1]
    try:
        tokenizer = load_tokenizer(run.model, template, run.chat_template)
    except (OSError, ValueError):  # another part of the run names what is wrong with the folder
        return None
    write_settings(tokenizer, mapping("chat_template_kwargs", agent.chat_template_kwargs))
    write_date(tokenizer, checked_date(agent.date))
    return tokenizer if len(tokenizer) > len(tokenizer.added_tokens_decoder) else None


def memory_of(configs: Configs, probe: Probe, answer: int) -> dict[tuple[int, int], Memory]:
    """Return the memory of each GPU by number of GPUs and ZeRO stage; empty if the model's shape is unknown."""
    run, _, agent = configs
    config = None if run.model == TINY or is_own_model(run.model) else config_of(run.model)
    if config is None:
        return {}
    turns = probe.turns if agent.layout == TURN else 1
    together = agent.per_device_train_batch_size  # episodes
    rows = max(1, round(together * turns))
    tasks = math.ceil(together / agent.num_generations)
    tree = together * (probe.tree - probe.first) + tasks * probe.first if agent.share_prefixes else 0
    batch = agent.groups_per_batch * agent.num_generations
    read = probe.read if agent.layout == TURN else probe.trained
    evaluated = max(run.eval_episodes, run.validation_episodes if run.validations else 0)
    at_once = max(batch, evaluated)
    return {
        (processes, stage): memory(
            config,
            configs,
            rows=rows,
            prompt=probe.longest,
            answer=answer,
            playing=min(agent.num_envs, math.ceil(at_once / max(1, processes))),
            bf16=processes > 0,
            processes=max(1, processes),
            stage=stage,
            sampled=round(together * probe.turns) * answer,
            tree=tree,
            kept=(batch * read, batch * probe.turns),
        )
        for processes, stage in ((0, 0), *LAYOUTS)
    }


def count_parameters(run: RunConfig, template: PromptTemplate) -> int:
    """Return the number of a model's parameters, from its config.json if there is one, else from its name.

    Raises `BadSetting` if neither has it.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    if run.model == TINY or is_own_model(run.model):
        made: int = load_model(run.model, template)[0].num_parameters()
        return made
    if (Path(run.model) / "config.json").is_file():
        with torch.device("meta"):
            shape: int = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(run.model)).num_parameters()
            return shape
    found = _SIZE.search(run.model.rpartition("/")[2])
    if found is None:
        raise BadSetting(
            f"model {run.model!r} is not a folder with a config.json, and its name has no size such as 1.5B: use the "
            "folder"
        )
    return int(float(found[1]) * (1e9 if found[2] == "B" else 1e6))


def probe(
    run: RunConfig,
    template: PromptTemplate,
    layout: str,
    answer: int,
    tokenizer: PreTrainedTokenizerBase | None = None,
) -> Probe:
    """Play a few training tasks at random and measure them; each answer counts as `answer` tokens.

    Without a `tokenizer` a token is `CHARACTERS_PER_TOKEN`, or a word of the tiny policy.
    """
    written, size = _writer(run, template, layout, tokenizer)
    prompts: list[list[int]] = []
    trees: list[tuple[int, int]] = []
    seconds = 0.0
    with closing(run.make_env()) as env:
        recorder = EpisodeRecorder(env)
        for task in env.drawn_tasks[:_PROBES]:
            episode, rng = recorder.reset(seed=0, task=task), Stream("estimate", task)
            new = []
            while not recorder.done:
                new.append(written(PolicyInput(env, recorder.observation, recorder.info, episode, rng)))
                action = env.sample_action(rng)
                begun = time.process_time()
                recorder.step(action)
                seconds += time.process_time() - begun
            lengths = [size(len(prompt)) for prompt in new]
            if layout == TURN:
                prompts.append(lengths)
                distinct = size(pack(new).ids.shape[1]) + len(new) * answer
            else:
                prompts.append([said - answer for said in accumulate(n + answer for n in lengths)])
                distinct = prompts[-1][-1] + answer
            trees.append((distinct, lengths[0]))
    count, turns = len(prompts), sum(map(len, prompts))
    # A conversation is one training row: its last prompt contains all others.
    trained = [sum(p) + len(p) * answer if layout == TURN else p[-1] + answer for p in prompts]
    tree, first = max(trees)
    return Probe(
        turns=turns / count,
        read=sum(map(sum, prompts)) / count,
        trained=sum(trained) / count,
        longest=max(map(max, prompts)),
        step_seconds=seconds / turns,
        tree=tree,
        first=first,
        distinct=sum(distinct for distinct, _ in trees) / count,
    )


def _writer(
    run: RunConfig, template: PromptTemplate, layout: str, tokenizer: PreTrainedTokenizerBase | None
) -> tuple[Callable[[PolicyInput], list[int]], Callable[[int], int]]:
    """Return a function that writes a turn's new text, and one that turns its length into tokens.

    The new text is the prompt, or in a conversation the follow-up message: its tokens, or without a tokenizer a number
    for each character, or for each word of the tiny policy.
    """
    talk = None
    if tokenizer is not None and layout != TURN:
        talk = Conversation(tokenizer, template, frozenset())
    words: dict[str, int] = {}

    def write(policy_input: PolicyInput) -> list[int]:
        later = layout != TURN and policy_input.episode.turns and isinstance(template, ConversationTemplate)
        if tokenizer is not None:
            if later and talk is not None:
                return [*talk.follow_up(policy_input)]
            return [*prompt_tokens(tokenizer, prompt_text(tokenizer, template, policy_input))]
        text = template.follow_up(policy_input) if later else template.prompt(policy_input)  # type: ignore[attr-defined]
        return [words.setdefault(word, len(words)) for word in (text.split() if run.model == TINY else text)]

    each = 1.0 if tokenizer is not None or run.model == TINY else CHARACTERS_PER_TOKEN
    return write, lambda length: round(length / each)

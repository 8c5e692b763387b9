"""Warm start: behaviour cloning of expert episodes, so that training starts with some success.

The demonstrations can be few and noisy: after cloning thousands of perfect solutions, a tiny policy has little left to
learn by reinforcement, and estimators could hardly be told apart.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from agentgym_flow._util.files import write_atomically
from agentgym_flow.core import Stream, TextEnv
from agentgym_flow.episodes import Group
from agentgym_flow.errors import BadSetting, TrainingFailed
from agentgym_flow.play import ERROR, EpisodeSpec, rollout
from agentgym_flow.policies import PolicyInput, PolicyOutput
from agentgym_flow.policies.base import check_expert
from agentgym_flow.prompts import CONVERSATION, TURN, PromptTemplate
from agentgym_flow.training.conversation import Conversation
from agentgym_flow.training.loss import completion_logprobs, passes_by_length
from agentgym_flow.training.models import load_weights
from agentgym_flow.training.optim import MuonAdamW, linear_decay
from agentgym_flow.training.outcomes import without_lost
from agentgym_flow.training.policy import check_context, context_of, prompt_text, prompt_tokens
from agentgym_flow.training.processes import CLONING, out_of_memory
from agentgym_flow.training.rows import Batch, TrainingRow, collate, rows, teaches
from agentgym_flow.training.run_config import RunConfig, WarmStartConfig
from agentgym_flow.training.run_folder import MANIFEST, check_intact, write_manifest
from agentgym_flow.training.scoring import is_small
from agentgym_flow.training.self_distillation import HintWriter

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


RECORD = "warm_start.json"
"""The file beside the cloned weights with the results of cloning."""


TOKENS_PER_PASS = 1 << 13
"""The most tokens in a forward pass of cloning a model whose logits are not few, unless one row has more."""

_DRAWS = 1000  # the most random actions tried until the prompt template can express one


class NoisyExpert:
    """Plays the expert's action, or with some probability a random valid one, and records its tokens.

    Prompts are those of a `ModelPolicy`, and the answer is the template's text for the action. If a prompt does
    not distinguish two actions, the action played is the one that the answer parses to. Random actions that the prompt
    template cannot express are drawn again.

    Args:
        tokenizer: tokenises prompts and answers.
        template: the prompt template.
        noise: the probability of a random action.
        layout: `turn` or `conversation`, as for `ModelPolicy`.
        max_new_tokens: the longest answer of the policy; shorter answers end with the end-of-sequence token.
        route: if several policies share an episode, returns the name of the one that acts; None: one acts in all turns.
        acts_as: the name of the policy to clone; turns of others have no tokens.

    Attributes:
        random: the turns with a random action, as pairs of task and turn number.

    Raises:
        BadSetting: the prompt template or chat template does not support conversations.
    """

    name = "noisy expert"

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        template: PromptTemplate,
        noise: float,
        layout: str = TURN,
        max_new_tokens: int = 1,
        route: Callable[[PolicyInput], str] | None = None,
        acts_as: str | None = None,
    ) -> None:
        self.route, self.acts_as = route, acts_as
        self.tokenizer = tokenizer
        self.template = template
        self.noise = noise
        self.random: set[tuple[int, int]] = set()
        self.max_new_tokens = max_new_tokens
        ends = frozenset() if tokenizer.eos_token_id is None else frozenset([tokenizer.eos_token_id])
        self.conversation = Conversation(tokenizer, template, ends) if layout == CONVERSATION else None

    def act(self, inputs: Sequence[PolicyInput]) -> list[PolicyOutput]:
        """Return one output per input, each with the tokens of its prompt and answer.

        Raises `BadSetting` if an expert is needed and the environment has none, or if the prompt template cannot
        express the action.
        """
        for policy_input in inputs if self.noise < 1 else ():
            check_expert(policy_input.env)
        return [self._output(policy_input) for policy_input in inputs]

    def _choose_answer(self, policy_input: PolicyInput, mine: bool) -> str:
        """Return the answer that asks for the action to play; the action itself in a turn of another policy."""
        expert = None if policy_input.rng.uniform() < self.noise else policy_input.env.expert_action()
        if expert is None:
            self.random.add((policy_input.episode.task, len(policy_input.episode.turns)))
        for _ in range(_DRAWS if expert is None else 1):
            action = policy_input.env.sample_action(policy_input.rng) if expert is None else expert
            asked = self.template.format_action(action, policy_input) if mine else action
            if asked is not None:
                return asked
        raise BadSetting(
            f"template {self.template.name!r} cannot express the action {action!r}, so there is nothing to clone: set "
            "warm_start_levels to 0, or use another prompt template"
        )

    def _output(self, policy_input: PolicyInput) -> PolicyOutput:
        acting = None if self.route is None else self.route(policy_input)
        asked = self._choose_answer(policy_input, acting == self.acts_as)
        if acting != self.acts_as:
            return PolicyOutput(asked, policy=acting)
        action = self.template.parse_action(asked, policy_input)
        going_on = None if self.conversation is None else self.conversation.prompt(policy_input, self.acts_as)
        if going_on is None:
            prompt = prompt_tokens(self.tokenizer, prompt_text(self.tokenizer, self.template, policy_input))
        else:
            prompt = tuple(chain(*going_on))
        answer = self.tokenizer(asked, add_special_tokens=False).input_ids
        if len(answer) < self.max_new_tokens and self.tokenizer.eos_token_id is not None:
            answer = [*answer, self.tokenizer.eos_token_id]
        # Demonstrations have no sampling distribution; cloning ignores the log-probabilities.
        completion = None if asked == action else asked
        return PolicyOutput(action, completion, prompt, answer, [0.0] * len(answer), policy=acting)


@dataclass(frozen=True, slots=True)
class WarmStart:
    """The results of cloning.

    Attributes:
        episodes: number of demonstrated tasks, including episodes that were lost because the environment raised.
        turns: number of turns to learn from, those with hints included; those of lost episodes are not among them.
        losses: the mean cross-entropy of every update, in nats per token.
        validation: pairs of updates done and success rate.
    """

    episodes: int
    turns: int
    losses: list[float]
    validation: list[tuple[int, float]]


def record_warm_start(folder: Path, done: WarmStart) -> None:
    """Write the results of cloning and a manifest into the folder of the cloned model.

    A resumed run then does not clone again.
    """
    with write_atomically(folder / RECORD) as partial:
        partial.write_text(json.dumps(asdict(done)) + "\n", "utf-8")
    write_manifest(folder)


def restore_warm_start(folder: Path, model: PreTrainedModel) -> WarmStart | None:
    """Load the cloned weights of a killed run into `model`; return the results of cloning, or None if not finished.

    Raises `BadData` if a file of the folder is damaged.
    """
    if not (folder / MANIFEST).exists():
        return None
    check_intact(folder)
    load_weights(folder, model)
    recorded = json.loads((folder / RECORD).read_text("utf-8"))
    return WarmStart(**{**recorded, "validation": [(update, success) for update, success in recorded["validation"]]})


def fit_demonstrations(run: RunConfig, config: WarmStartConfig) -> str:
    """Lower a number of demonstrations that the user did not choose to that of training tasks; return what to say.

    This also says if the prompt asks for thoughts: demonstrations have none, so cloning teaches to leave them out.

    Raises what the constructors of the environment and of the prompt template raise.
    """
    if not config.warm_start_levels:
        return ""
    said = []
    if not config.levels_are_chosen:
        with closing(run.make_env()) as env:
            count = len(env.drawn_tasks)
        default, config.warm_start_levels = config.warm_start_levels, min(config.warm_start_levels, count)
        if default > count:
            said.append(f"warm_start_levels is {count} instead of {default}: the split 'train' has {count} tasks.")
    if getattr(run.make_template(), "asks_for_thoughts", False):
        said.append(
            "The prompt asks for thoughts and the demonstrations have none, so cloning teaches to answer without: add "
            'template_settings {"think": false}, or set warm_start_levels to 0.'
        )
    return " ".join(said)


def check_demonstrations(env: TextEnv, tasks: int, noise: float) -> None:
    """Raise `BadSetting` if the environment has fewer than `tasks` tasks, or no expert and `noise` is below 1."""
    count = len(env.drawn_tasks)
    if tasks > count:
        raise BadSetting(f"warm_start_levels is {tasks}, but split {env.split!r} has only {count} tasks")
    if noise < 1:
        check_expert(env)


def demonstrations(
    make_env: Callable[[], TextEnv],
    tokenizer: PreTrainedTokenizerBase,
    template: PromptTemplate,
    *,
    tasks: int,
    noise: float,
    seed: int = 0,
    stop: Callable[[PolicyInput], bool] | None = None,
    layout: str = TURN,
    max_new_tokens: int = 1,
    imitate_noise: bool = True,
    route: Callable[[PolicyInput], str] | None = None,
    acts_as: str | None = None,
    hints: HintWriter | None = None,
) -> list[TrainingRow]:
    """Let the noisy expert play the first `tasks` training tasks once each; return the rows in the given layout.

    With `hints`, the same rows follow with hints that say what the expert then does.

    Episodes in which the environment raised are left out. The advantages of a row are the weights of its tokens in the
    loss of cloning: 1 for answers, but 0 for random ones without `imitate_noise`. For `route` and `acts_as` see
    `NoisyExpert`: only the turns of `acts_as` have rows.

    Raises `BadSetting` as `check_demonstrations` does, and `TrainingFailed` if no episode is left.
    """
    env = make_env()
    check_demonstrations(env, tasks, noise)
    policy = NoisyExpert(tokenizer, template, noise, layout, max_new_tokens, route, acts_as)
    episodes = rollout(policy, make_env, [EpisodeSpec(seed, task) for task in env.drawn_tasks[:tasks]], stop=stop)
    groups = without_lost(Group([episode]) for episode in episodes)
    if not groups:
        error = episodes[0].meta[ERROR]
        raise TrainingFailed(
            f"the environment raised in all {len(episodes)} demonstrations: {error['class']}: {error['message']}. See "
            "env_id and env_kwargs"
        )
    left_out = set() if imitate_noise else policy.random
    weights = [[[float((e.task, t) not in left_out) for t in range(len(e.turns))] for e in group] for group in groups]
    every = rows(groups, weights, layout=layout, policy=acts_as)
    examples = [row for row in every if teaches(row)]
    if acts_as is not None and not examples:
        raise BadSetting(f"the expert's episodes have no turn of {acts_as} to clone: set warm_start_levels to 0")
    hinted = [] if hints is None else hints.hinted(every, groups, slice(None), demonstrated=True)
    return examples + [row for row in hinted if row is not None and teaches(row)]


def with_text(row: TrainingRow, weight: float) -> TrainingRow:
    """Return a demonstration as one text to learn, after its first token; given tokens have the weight `weight`."""
    before = len(row.prompt) - 1
    sampled = row.sampled or [1] * len(row.completion)
    weights = [a if s else weight for a, s in zip(row.advantages, sampled, strict=True)]
    return TrainingRow(
        row.prompt[:1],
        [*row.prompt[1:], *row.completion],
        [0.0] * (before + len(row.completion)),
        [*[weight] * before, *weights],
        row.weight,
        [*[1] * before, *[1] * len(row.completion)],
    )


def clone(
    model: PreTrainedModel,
    examples: Sequence[TrainingRow],
    config: WarmStartConfig,
    *,
    pad: int,
    seed: int = 0,
    validate: Callable[[], float] | None = None,
    precision: Callable[[], AbstractContextManager[Any]] = nullcontext,
    on_update: Callable[[int, float], None] | None = None,
    share: bool = False,
) -> tuple[list[float], list[tuple[int, float]]]:
    """Train `model` in place on `examples` by cross-entropy, with Muon and AdamW, or AdamW alone; linear decay to 0.

    Args:
        model: the causal language model.
        examples: demonstrated turns.
        config: the number and size of updates, and the learning rates.
        pad: the padding token.
        seed: determines the order of examples.
        validate: measures the success rate; called `warm_start_validations` times, evenly spread, the last time at the
            end.
        precision: creates the context of an update's forward pass and of a validation, such as autocast.
        on_update: called after every update with the number of updates done and the loss.
        share: compute every distinct prefix of the rows of a pass once; only for models with `scoring.can_share`.

    Returns:
        The loss of every update, and (updates done, success rate) for every validation.

    Raises:
        TrainingFailed: the loss is not finite, or a GPU runs out of memory.
    """
    optimizer: torch.optim.Optimizer
    rate, muon_rate = config.warm_start_learning_rate, config.warm_start_muon_learning_rate
    if muon_rate is None:
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=rate, weight_decay=0.0)
    else:
        optimizer = MuonAdamW(model, muon_lr=muon_rate, adamw_lr=rate)
    updates = config.warm_start_updates
    schedule = linear_decay(optimizer, warmup=0, total=updates, floor=0.0)
    order = Stream("clone", seed)
    losses: list[float] = []
    validation: list[tuple[int, float]] = []
    model.train()
    for done in range(1, updates + 1):
        chosen = [examples[order.below(len(examples))] for _ in range(config.warm_start_batch)]
        optimizer.zero_grad()
        with out_of_memory(CLONING):
            with precision():  # a new context each time: autocast caches its cast weights within one
                loss = _gradients(model, chosen, pad, share=share)
            if not math.isfinite(loss):
                raise TrainingFailed(
                    f"the loss of cloning is {loss} at update {done}: lower the warm_start learning rates"
                )
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        schedule.step()
        losses.append(loss)
        if on_update is not None:
            on_update(done, loss)
        if validate is not None and done * config.warm_start_validations // updates > len(validation):
            with precision():
                validation.append((done, validate()))
    return losses, validation


def _gradients(model: PreTrainedModel, chosen: Sequence[TrainingRow], pad: int, *, share: bool) -> float:
    """Accumulate the gradients of the cloning loss on these rows; return the loss.

    Rows that begin alike share a pass, or else conversations of similar length, as far as `TOKENS_PER_PASS` allows.
    """
    parts = [list(chosen)]
    lengths = [len(row.prompt) + len(row.completion) for row in chosen]
    if share:
        parts = [sorted(chosen, key=lambda row: (*row.prompt, *row.completion))]
    elif all(row.sampled is not None for row in chosen):
        passes = passes_by_length(torch.tensor(lengths, device=model.device))
        parts = [[chosen[number] for number in numbers.tolist()] for numbers, _ in passes]
    at_once = len(chosen) if is_small(model, sum(lengths)) else max(1, TOKENS_PER_PASS // max(lengths))
    tokens = sum(sum(row.advantages) for row in chosen)
    total = 0.0
    for part in parts:
        for first in range(0, len(part), at_once):
            some = part[first : first + at_once]
            fraction = sum(sum(row.advantages) for row in some) / tokens
            batch = collate(some, pad=pad, multiple=1, device=model.device)
            loss = fraction * imitation_loss(model, batch, share=share)
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.item()
    return total


def imitation_loss(model: PreTrainedModel, batch: Batch, *, share: bool = False) -> torch.Tensor:
    """Return the mean cross-entropy of the sampled completion tokens of `batch`, in nats per token.

    The advantages are weights of tokens: 1, or 0 for actions that are shown but not imitated.
    """
    mask = batch["completion_mask"] * batch["tool_mask"] * batch["advantages"]
    loss: torch.Tensor = -(completion_logprobs(model, batch, share=share) * mask).sum() / mask.sum()
    return loss


def warm_start(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    template: PromptTemplate,
    make_env: Callable[[], TextEnv],
    config: WarmStartConfig,
    *,
    seed: int = 0,
    stop: Callable[[PolicyInput], bool] | None = None,
    max_new_tokens: int = 1,
    validate: Callable[[], float] | None = None,
    layout: str = TURN,
    precision: Callable[[], AbstractContextManager[Any]] = nullcontext,
    on_update: Callable[[int, float], None] | None = None,
    share: bool = False,
    route: Callable[[PolicyInput], str] | None = None,
    acts_as: str | None = None,
    hints: HintWriter | None = None,
) -> WarmStart:
    """Collect demonstrations and clone them; see `demonstrations` and `clone` for arguments and errors."""
    examples = demonstrations(
        make_env,
        tokenizer,
        template,
        tasks=config.warm_start_levels,
        noise=config.warm_start_noise,
        seed=seed,
        stop=stop,
        layout=layout,
        max_new_tokens=max_new_tokens,
        imitate_noise=config.warm_start_imitate_noise,
        route=route,
        acts_as=acts_as,
        hints=hints,
    )
    turns = sum(row.turns for row in examples)
    longest = max(examples, key=lambda row: len(row.prompt) + len(row.completion))
    check_context(context_of(model), len(longest.prompt), len(longest.completion), layout)
    if config.warm_start_text_weight:
        examples = [with_text(row, config.warm_start_text_weight) for row in examples]
    pad = tokenizer.pad_token_id
    losses, validation = clone(
        model,
        examples,
        config,
        pad=pad,
        seed=seed,
        validate=validate,
        precision=precision,
        on_update=on_update,
        share=share,
    )
    return WarmStart(config.warm_start_levels, turns, losses, validation)

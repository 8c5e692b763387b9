"""A causal language model as a policy: a prompt template, and a generator that runs the model.

The answers in an episode depend on its own random stream and prompts, not on the episodes that run beside it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch

from agentgym_flow.errors import BadSetting, ContextFull, UnknownOption
from agentgym_flow.generation import (
    SEEDS,
    BatchGenerator,
    Completion,
    GenerationRequest,
    Generator,
    Sampling,
    check_fits,
)
from agentgym_flow.generation.sampling import answer_text, holds_stop, length_of_answer
from agentgym_flow.generation.transformers_generator import TransformersGenerator
from agentgym_flow.policies import PolicyInput, PolicyOutput
from agentgym_flow.policies.base import CONTEXT, NO_ANSWER, session
from agentgym_flow.prompts import CONVERSATION, LAYOUTS, TURN, IndexTemplate, PromptTemplate, TextTemplate
from agentgym_flow.training.config import SERVERS, VLLM, AgentConfig
from agentgym_flow.training.conversation import Conversation, ThoughtStyle, check_words, is_plain, thought_style
from agentgym_flow.training.processes import Processes

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

MAX_PROMPTS = 1 << 17
"""The largest number of tokenised prompts in the cache."""


def prompt_text(tokenizer: PreTrainedTokenizerBase, template: PromptTemplate, policy_input: PolicyInput) -> str:
    """Return the text of a turn's prompt: its messages if the tokenizer has a chat template, else plain text.

    If the last message has the role of the assistant, the policy continues it.
    """
    if tokenizer.chat_template is None:
        return template.prompt(policy_input)
    messages, begun = template.messages(policy_input), ""
    if messages[-1]["role"] == "assistant":
        *messages, last = messages
        begun = last["content"]
    return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)) + begun


def prompt_tokens(tokenizer: PreTrainedTokenizerBase, text: str) -> tuple[int, ...]:
    """Return the tokens of a text of `prompt_text`."""
    special = tokenizer.chat_template is None  # a chat template writes its own special tokens
    if tokenizer.is_fast:  # the backend alone is several times faster
        backend = tokenizer.backend_tokenizer
        if backend.truncation is None and backend.padding is None:
            return tuple(backend.encode(text, add_special_tokens=special).ids)
    return tuple(tokenizer(text, add_special_tokens=special).input_ids)


class PromptedPolicy:
    """Turns observations into requests to a generator, and its answers into actions.

    In the layout `conversation` the first prompt of an episode is the same. Every later one is the conversation so far,
    token by token, followed by the template's `follow_up` message (see `agentgym_flow.training.conversation`).

    Args:
        model: the causal language model. Read for its context length and the tokens that end an answer; it generates
            only if there is no `generator`.
        tokenizer: the model's tokenizer. With a chat template the template's messages are used, else its plain
            prompt.
        template: the prompt template.
        generator: the backend that runs the model; None: Transformers in this process.
        temperature: divides the logits; log-probabilities are those of the tempered distribution.
        greedy: take the most likely token instead of sampling (`temperature` then only affects log-probabilities).
        max_new_tokens: the longest completion, in tokens.
        layout: one of `agentgym_flow.prompts.types.LAYOUTS`.
        name: the name in reports.
        acts_as: the name of the policy if several share the episodes: its conversation continues its own turns.

    Attributes:
        seconds: total time spent waiting for answers.
        settings: what a stopped evaluation must have in common with the one that resumes it.

    Raises:
        BadSetting: a number is out of range, or the prompt template or chat template does not support conversations.
        UnknownOption: the layout is unknown.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        template: PromptTemplate,
        *,
        generator: Generator | None = None,
        temperature: float = 1.0,
        greedy: bool = False,
        max_new_tokens: int = 1,
        layout: str = TURN,
        name: str = "model",
        acts_as: str | None = None,
    ) -> None:
        if layout not in LAYOUTS:
            raise UnknownOption.among(layout, LAYOUTS)
        declared = model.generation_config.eos_token_id
        ends = {declared} if isinstance(declared, int) else {*(declared or ())}
        ends |= set() if tokenizer.eos_token_id is None else {tokenizer.eos_token_id}
        self.model = model
        self.tokenizer = tokenizer
        self.template = template
        closings = getattr(template, "closings", ()) if is_plain(tokenizer) else ()  # base models write on and on
        stops = tuple(getattr(template, "stops", closings))
        self.sampling = Sampling(temperature, greedy, max_new_tokens, frozenset(ends), stops)
        self.generator = generator or TransformersGenerator(model, pad_token(tokenizer), tokenizer=tokenizer)
        self.name, self.acts_as = name, acts_as
        self.settings: dict[str, Any] = {}
        self.conversation = Conversation(tokenizer, template, ends) if layout == CONVERSATION else None
        # Published templates read completions verbatim.
        reads = isinstance(template, TextTemplate | IndexTemplate)
        self._thoughts = thought_style(tokenizer) if reads else ThoughtStyle()
        self.seconds = 0.0
        # Cached, because reading a configuration is slow. A generator may read less than its model.
        self._context = min(context_of(model), getattr(self.generator, "context", sys.maxsize))
        self._ids: dict[str, tuple[int, ...]] = {}
        self._words: dict[int, str] = {}

    # ---------------------------------------------------------------- prompts
    def encode(self, text: str) -> tuple[int, ...]:
        """Return the tokens of a prompt. Raises `BadSetting` if they are too many or some are unknown."""
        ids = self._ids.get(text)
        if ids is None:
            ids = prompt_tokens(self.tokenizer, text)
            self._check_length(len(ids))
            if not ids:
                advice = "use the folder that the model was saved in"
                raise BadSetting(f"the tokenizer returns no tokens for a prompt: {advice}")
            check_words(self.tokenizer, self.template, text, ids)
            if len(self._ids) >= MAX_PROMPTS:
                self._ids.clear()
            self._ids[text] = ids
        return ids

    def prompt_ids(self, policy_input: PolicyInput) -> tuple[int, ...]:
        """Return the tokens of this turn's prompt.

        Raises `BadSetting` if some are unknown, or if those of an episode's first prompt are too many; `ContextFull` if
        those of a later prompt are.
        """
        try:
            going_on = None if self.conversation is None else self.conversation.prompt(policy_input, self.acts_as)
            if going_on is None:
                return self.encode(prompt_text(self.tokenizer, self.template, policy_input))
            said, new = going_on
            self._check_length(len(said) + len(new))
        except ContextFull as error:
            if policy_input.episode.turns:
                raise
            raise BadSetting(str(error)) from None
        return (*said, *new)

    def _check_length(self, length: int) -> None:
        layout = TURN if self.conversation is None else CONVERSATION
        check_context(self._context, length, self.sampling.max_new_tokens, layout)

    # ---------------------------------------------------------------- requests and answers
    def show(self, on_text: Callable[[str], None]) -> None:
        """From now on call `on_text` with every piece of an answer as it comes, if the generator tells it.

        For one episode at a time; answers of a single token are not shown.
        """
        shown = ""

        def add(tokens: Sequence[int]) -> None:
            nonlocal shown
            shown = "" if len(tokens) == 1 else shown
            text = answer_text(self.tokenizer, tokens, self.sampling.ends)
            if text != shown and not text.endswith("\N{REPLACEMENT CHARACTER}"):  # the half of a character
                on_text(text[len(shown) :])
                shown = text

        if isinstance(self.generator, TransformersGenerator):
            self.generator.on_tokens = add

    def request(self, policy_input: PolicyInput) -> GenerationRequest:
        """Return this turn's request to the generator; takes one draw from `policy_input.rng`.

        Raises what `prompt_ids` raises.
        """
        ids = self.prompt_ids(policy_input)
        return GenerationRequest(ids, self.sampling, int(policy_input.rng.uniform() * SEEDS))  # the seed is exact

    def output(self, policy_input: PolicyInput, request: GenerationRequest, answer: Completion) -> PolicyOutput:
        """Return the policy output for an answer."""
        length = length_of_answer(self.tokenizer, answer.token_ids, request.sampling.stops, request.sampling.ends)
        tokens, logprobs = answer.token_ids[:length], answer.logprobs[:length]
        text = self._text(tokens)
        action = self._action(text, policy_input)  # not cached: it depends on the candidates
        completion = None if text == action else text
        cut = self.is_cut(tokens)
        return PolicyOutput(action, completion, request.prompt_ids, tokens, logprobs, version=answer.version, cut=cut)

    def is_cut(self, sampled: Sequence[int]) -> bool:
        """Return whether the token limit cut an answer of these tokens: neither an end token nor a stop text ended it.

        Answers that are one token long by design, as those of word templates, are whole.
        """
        sampling = self.sampling
        if len(sampled) < sampling.max_new_tokens or sampling.max_new_tokens == 1 or sampled[-1] in sampling.ends:
            return False
        return not holds_stop(self.tokenizer, sampled, sampling.stops)

    def _action(self, text: str, policy_input: PolicyInput) -> str:
        if self._thoughts.begun:  # a model may have learned to answer at once, without closing the thought
            action = self.template.parse_action(text, policy_input)
            if self.template.format_action(action, policy_input) == text.strip():
                return action
        return self.template.parse_action(self._thoughts.plain(text), policy_input)

    def _text(self, tokens: tuple[int, ...]) -> str:
        if len(tokens) > 1:
            return answer_text(self.tokenizer, tokens, self.sampling.ends)
        if tokens[0] not in self._words:
            self._words[tokens[0]] = answer_text(self.tokenizer, tokens, self.sampling.ends)
        return self._words[tokens[0]]


class ModelPolicy(PromptedPolicy):
    """Answers all running episodes in one batch, for generators in this process; see `PromptedPolicy`."""

    def act(self, inputs: Sequence[PolicyInput]) -> list[PolicyOutput]:
        """Return one output per input, with its tokens and log-probabilities; adds the time taken to `seconds`.

        The output for an episode that no longer fits into the model's context is `truncated_by` it.

        Raises:
            BadSetting: the first prompt of an episode does not fit into the model's context, or a prompt has words that
                the tokenizer does not know.
            TrainingFailed: the model's output is not finite.
        """
        assert isinstance(self.generator, BatchGenerator)
        outputs = [PolicyOutput(NO_ANSWER, truncated_by=CONTEXT)] * len(inputs)
        requests: dict[int, GenerationRequest] = {}
        for number, policy_input in enumerate(inputs):
            with suppress(ContextFull):
                requests[number] = self.request(policy_input)
        started = time.perf_counter()
        answers = self.generator.generate_batch([*requests.values()]) if requests else []
        self.seconds += time.perf_counter() - started
        for (number, request), answer in zip(requests.items(), answers, strict=True):
            outputs[number] = self.output(inputs[number], request, answer)
        return outputs


class AsyncModelPolicy(PromptedPolicy):
    """Answers every episode as soon as its own answer is ready; see `PromptedPolicy`.

    A generator that is an asynchronous context manager is entered together with the policy, as `rollout` does.
    """

    _pending = 0  # requests under way
    _since = 0.0

    async def __aenter__(self) -> Self:
        await session(self.generator).__aenter__()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await session(self.generator).__aexit__(*raised)

    async def respond(self, policy_input: PolicyInput) -> PolicyOutput:
        """Return the output for one input, as `ModelPolicy.act` does.

        Adds the time in which any answer was pending to `seconds`. Raises what `ModelPolicy.act` raises, and
        `GenerationFailed` if the generator has no answer.
        """
        try:
            request = self.request(policy_input)
        except ContextFull:
            return PolicyOutput(NO_ANSWER, truncated_by=CONTEXT)
        if not self._pending:
            self._since = time.perf_counter()
        self._pending += 1
        try:
            answer = await self.generator.generate(request)
        finally:
            self._pending -= 1
            if not self._pending:
                self.seconds += time.perf_counter() - self._since
        return self.output(policy_input, request, answer)


def model_policy(
    args: AgentConfig,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    template: PromptTemplate,
    *,
    generator: Generator,
    name: str,
    greedy: bool = False,
) -> ModelPolicy | AsyncModelPolicy:
    """Return the policy of a run that suits a generator: `ModelPolicy` for a `BatchGenerator`, else `AsyncModelPolicy`.

    `args` has the temperature, the longest answer and the layout. For the other arguments and errors see
    `PromptedPolicy`.
    """
    kind = ModelPolicy if isinstance(generator, BatchGenerator) else AsyncModelPolicy
    return kind(
        model,
        tokenizer,
        template,
        generator=generator,
        temperature=args.temperature,
        greedy=greedy,
        max_new_tokens=args.max_completion_length or 1,
        layout=args.layout,
        name=name,
    )


def pad_token(tokenizer: PreTrainedTokenizerBase) -> int:
    """Return the padding token of prompts."""
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    return 0 if pad is None else int(pad)


def context_of(model: PreTrainedModel) -> int:
    """Return the longest sequence that a model reads, in tokens; `sys.maxsize` if it declares no limit."""
    declared = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return sys.maxsize if declared is None else int(declared)


def check_context(context: int, prompt: int, completion: int, layout: str) -> None:
    """Raise `ContextFull` if a prompt and a completion of these lengths do not fit into the model's context."""
    shorter = "a shorter prompt template, a smaller board"
    if layout == CONVERSATION:
        shorter = "layout turn, a lower max_steps or max_completion_length, a shorter prompt template"
    advice = f"use {shorter} or a model with a longer context (vLLM may be started with less than the model's)"
    check_fits(prompt, completion, context, "the model's", advice)


# ---------------------------------------------------------------- generators
def transformers_generator(
    args: AgentConfig, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> TransformersGenerator:
    """Return the default generator: Transformers in this process."""
    exact = args.mixed_precision == "no" and model.dtype == torch.float32
    return TransformersGenerator(
        model,
        pad_token(tokenizer),
        exact=exact,
        rows=args.generation_rows,
        num_envs=args.num_envs,
        tokenizer=tokenizer,
        context=args.vllm_max_model_length,
    )


def make_generator(
    args: AgentConfig,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
    processes: Processes | None,
    name: str | None = None,
) -> Generator:
    """Return the generator that the settings select; all processes must call this.

    Args:
        args: the settings.
        model: the current model.
        tokenizer: the model's tokenizer.
        folder: a folder of the run for transferring weights to the generator.
        processes: the processes of the run; None for this one alone.
        name: of the generator, in place of that in the settings.

    Raises:
        MissingExtra: vLLM is not installed.
        UnsupportedVLLM: its version is not supported, or it cannot run on this machine.
        BadSetting: vLLM cannot run the model, or a server is not set up for training.
        ServerDown: a server cannot be reached.
    """
    half = "bfloat16" if args.mixed_precision == "bf16" else "float32"
    rank, name = 0 if processes is None else processes.rank, name or args.generator
    if name == VLLM:
        from agentgym_flow.generation.vllm_engine import VLLMEngine

        return VLLMEngine(
            model,
            tokenizer,
            folder / f"process-{rank}",
            dtype=half,
            memory_share=args.vllm_gpu_memory_utilization,
            max_model_len=args.vllm_max_model_length,
        )
    if name.startswith(SERVERS):
        from agentgym_flow.generation.vllm_server import VLLMServers

        return VLLMServers(
            model,
            name.split(","),
            folder,
            dtype=half,
            max_model_len=args.vllm_max_model_length,
            silence=args.vllm_server_timeout,
            on_main_process=(lambda work: work()) if processes is None else processes.on_main_process,
            rank=rank,
        )
    return transformers_generator(args, model, tokenizer)

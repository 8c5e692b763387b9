"""Checks that settings, machine, model, tokenizer, prompt template and environment belong together, before any work."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import torch

from agentgym_flow.core import Stream, TextEnv
from agentgym_flow.episodes import EpisodeRecorder
from agentgym_flow.errors import BadSetting, UnknownOption
from agentgym_flow.generation.sampling import answer_text
from agentgym_flow.policies import PolicyInput
from agentgym_flow.prompts import PromptTemplate
from agentgym_flow.rewards.structure import WORKFLOW
from agentgym_flow.training.config import AgentConfig

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


# ---------------------------------------------------------------- settings
def check_device(args: AgentConfig) -> None:
    """Raise `BadSetting` if the settings request a precision for GPUs and there is no GPU."""
    if torch.accelerator.is_available() or not args.wants_gpu:
        return
    reason = "it was built without CUDA: install a build with CUDA"
    if torch.version.cuda is not None or torch.version.hip is not None:
        reason = "look at nvidia-smi, the driver and CUDA_VISIBLE_DEVICES"
    name, otherwise = ("fp16", "leave it out") if args.fp16 else ("bf16", "set use_cpu=true to use it on the CPU")
    raise BadSetting(f"{name} needs a GPU, and PyTorch {torch.__version__} finds none ({reason}), or {otherwise}")


def check_source(args: AgentConfig) -> None:
    """Raise `BadSetting` for settings that only the trainer's own rollout reads."""
    for name in ("replay_share", "dynamic_sampling", "fork_share"):
        given = getattr(args, name)
        if given:
            raise BadSetting(
                f"{name} is for the trainer's own rollout, and another source of groups is given: leave it out"
            )


def check_environment(args: AgentConfig, info: Collection[str]) -> None:
    """Raise `UnknownOption` or `BadSetting` if the settings need keys that are not among those of `info`."""
    if args.stop_when is not None and args.stop_when not in info:
        raise UnknownOption.among(args.stop_when, sorted(info), "stop_when names a key of info.")
    if args.structure_score is not None and WORKFLOW not in info:
        raise BadSetting(
            f"reward {args.reward} needs info[{WORKFLOW!r}], which this environment lacks: set it to native"
        )
    for key in args.info_keys:
        if key not in info:
            raise BadSetting(
                f"reward and credit read info[{key!r}], which this environment lacks: leave out reproduce_official"
            )


# ---------------------------------------------------------------- model, tokenizer and prompt template
def check_vocabulary(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise `BadSetting` if the tokenizer has tokens that the model does not have."""
    known = model.config.get_text_config().vocab_size
    if len(tokenizer) > known:
        raise BadSetting(
            f"the tokenizer has {len(tokenizer)} tokens and the model only {known}: set model to a folder whose "
            "tokenizer and weights belong together"
        )


def first_turn(env: TextEnv) -> PolicyInput:
    """Reset an environment; return what a policy sees of its first turn."""
    recorder = EpisodeRecorder(env)
    episode = recorder.reset(seed=0)
    return PolicyInput(env, recorder.observation, recorder.info, episode, Stream("first prompt"))


def check_answers(
    tokenizer: PreTrainedTokenizerBase, template: PromptTemplate, policy_input: PolicyInput, max_new_tokens: int
) -> None:
    """Check that the answer for every admissible action of a turn can be sampled and parsed.

    Raises `BadSetting` naming the first answer that changes when it is tokenised and decoded, as one with unknown words
    does, or needs more than `max_new_tokens` tokens, or if no action has an answer.
    """
    asked = [template.format_action(action, policy_input) for action in policy_input.info["admissible_actions"]]
    answers = list(dict.fromkeys(answer for answer in asked if answer is not None))
    if asked and not answers:
        raise BadSetting(f"template {template.name!r} cannot express any action here: use another prompt template")
    for answer in answers:
        ids = tokenizer(answer, add_special_tokens=False).input_ids
        if answer_text(tokenizer, ids).strip() != answer:
            raise BadSetting(
                f"the tokenizer, of {len(tokenizer)} tokens, cannot express the answer {answer!r}: set model to one "
                "whose tokenizer has these words, or choose another prompt template"
            )
        if len(ids) > max_new_tokens:
            raise BadSetting(
                f"the answer {answer!r} is {len(ids)} tokens long: set max_completion_length to at least that "
                f"(it is {max_new_tokens})"
            )

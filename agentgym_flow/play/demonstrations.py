"""Let a policy play, and record its episodes as demonstrations: a log, or rows for supervised fine-tuning.

A row is one turn in the conversational prompt-completion format of TRL's `SFTTrainer`: the prompt for a language model
in this situation, and a completion with the action that the policy took.

    {"prompt": [{"role": "user", "content": ...}], "completion": [{"role": "assistant", "content": ...}]}
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentgym_flow.core import TextEnv
from agentgym_flow.episodes import Episode, EpisodeRecorder, LoggedEpisode, LogWriter
from agentgym_flow.errors import BadSetting, UnknownOption
from agentgym_flow.play.split import EpisodePlan, Play, play_split
from agentgym_flow.policies import AsyncPolicy, Policy, PolicyInput
from agentgym_flow.prompts import Message, PromptTemplate, TextTemplate, template_for
from agentgym_flow.replay.stepping import step_again

FORMATS = ("log", "sft")
"""The formats that `collect` can write."""

Row = dict[str, list[Message]]
"""`prompt` and `completion`, each a list of messages."""


def completion_for(template: PromptTemplate, action: str, policy_input: PolicyInput) -> str:
    """Return a completion that `template` parses as `action` in this turn.

    Raises `BadSetting` if there is none, for example because the prompt shows several actions in the same way.
    """
    completion = template.format_action(action, policy_input)
    if completion is None or template.parse_action(completion, policy_input) != action:
        raise BadSetting(
            f"template {template.name!r} cannot ask for the action {action!r}: choose another prompt template"
        )
    return completion


def rows_of(episode: Episode, env: TextEnv, template: PromptTemplate) -> Iterator[Row]:
    """Yield one row per turn: the prompt for a language model, and the completion.

    Args:
        episode: the recorded episode.
        env: an environment to replay it in, without new external requests.
        template: the prompt template. A completion of the policy is kept if the template parses it as the same action.

    Raises `BadSetting` if the template has no completion for one of the actions.
    """
    recorder = EpisodeRecorder(env)
    outputs = [turn.output for turn in episode.turns]  # a template may show earlier answers
    for output, _ in zip(outputs, step_again(recorder, LoggedEpisode.of(episode), outputs), strict=False):
        policy_input, completion = PolicyInput.of(recorder), output.completion
        if completion is None or template.parse_action(completion, policy_input) != output.action:
            completion = completion_for(template, output.action, policy_input)
        answer: Message = {"role": "assistant", "content": completion}
        yield {"prompt": template.messages(policy_input), "completion": [answer]}


@dataclass(frozen=True, slots=True)
class CollectionSummary:
    """The numbers of collected episodes, their turns (rows, in the format `sft`), and successes."""

    episodes: int
    turns: int
    successes: int

    @classmethod
    def of(cls, episodes: Sequence[Episode]) -> CollectionSummary:
        """Count `episodes`."""
        turns = sum(len(episode.turns) for episode in episodes)
        return cls(len(episodes), turns, sum(episode.success for episode in episodes))


def collect(
    policy: Policy | AsyncPolicy,
    env_id: str,
    out: str | os.PathLike[str],
    *,
    form: str = "log",
    template: str | None = None,
    split: str = "train",
    num_episodes: int | None = None,
    attempts: int = 1,
    task_types: Sequence[str] | None = None,
    seed: int = 0,
    env_kwargs: Mapping[str, Any] | None = None,
    num_envs: int = 64,
    replace: bool = False,
    resume: bool = False,
    on_plan: Callable[[EpisodePlan], None] | None = None,
    on_episode: Callable[[Episode], None] | None = None,
) -> CollectionSummary:
    """Let `policy` play tasks of a split and record its episodes in `out`, in order of seeds.

    `out` is written at the end. After Ctrl-C, or if the policy or a reset raises, it contains the finished episodes,
    and a journal next to it, from which a stopped run is resumed (`play.journal`).

    Args:
        policy: the policy that plays.
        env_id: the id of the environment.
        out: the file, JSONL; compressed if its name ends in `.gz`.
        form: `log` for an episode log, `sft` for rows.
        template: the prompt template of the rows; None: that of a language model that plays with messages and answers
            in text, else `text`.
        split: see `evaluate`, as for all other arguments.
        num_episodes: see there.
        attempts: see there.
        task_types: see there.
        seed: see there.
        env_kwargs: see there.
        num_envs: see there.
        replace: replace an existing `out`, and the journal of a stopped collection.
        resume: continue a stopped collection, if there is one.
        on_plan: see there.
        on_episode: see there.

    Raises:
        UnknownOption: `form` is not one of `FORMATS`.
        FileExistsError: `out` exists already.
        UnknownTemplate: the environment has no such template.
        BadSetting: the template has no completion for an action of the policy. Other errors are those of `evaluate`.
    """
    play = Play(
        policy,
        env_id,
        split,
        num_episodes,
        attempts,
        task_types,
        seed,
        env_kwargs,
        num_envs,
        file=Path(out),
        replace=replace,
        resume=resume,
        on_plan=on_plan,
        on_episode=on_episode,
    )
    return collect_play(play, form, template)


def collect_play(play: Play, form: str, template: str | None) -> CollectionSummary:
    """Play, and write the episodes or rows of them. The arguments and errors are those of `collect`."""
    if form not in FORMATS:
        raise UnknownOption.among(form, FORMATS)
    if form == "log":
        return CollectionSummary.of(play_split(play))
    prompts = getattr(play.policy, "template", None)
    if template is not None or not isinstance(prompts, TextTemplate) or prompts.tools:
        prompts = template_for(play.env_id, template or "text")
    env: TextEnv | None = None

    def write_rows(writer: LogWriter, episode: Episode) -> None:
        nonlocal env
        env = env or stack.enter_context(closing(play.maker()()))
        writer.write_lines(json.dumps(row) for row in rows_of(episode, env, prompts))

    with ExitStack() as stack:
        return CollectionSummary.of(play_split(play, write_rows))

"""Demonstrations: let a policy play, and record its episodes as a log or as rows for supervised fine-tuning.

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

from agentgym_flow.core import Stream, TextEnv
from agentgym_flow.episodes import Episode, EpisodeRecorder, LogWriter, Turn
from agentgym_flow.errors import BadSetting, UnknownOption
from agentgym_flow.play.split import EpisodePlan, data_files, journalled, maker, play_split
from agentgym_flow.policies import AsyncPolicy, Policy, PolicyInput
from agentgym_flow.prompts import Message, PromptTemplate, template_for

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
    recording = [episode.recording, *(turn.recording for turn in episode.turns)]
    if any(entry is not None for entry in recording):
        env.use_recording(recording)
    recorder = EpisodeRecorder(env)
    again = recorder.reset(seed=episode.seed, task=episode.task, attempt=episode.attempt)
    rng = Stream("policy", episode.seed, episode.attempt, episode.task)
    for turn in episode.turns:
        policy_input = PolicyInput(env, recorder.observation, recorder.info, again, rng)
        said: Message = {"role": "assistant", "content": _completion(turn, template, policy_input)}
        yield {"prompt": template.messages(policy_input), "completion": [said]}
        recorder.step(turn.action, completion=turn.completion, policy=turn.policy)


def _completion(turn: Turn, template: PromptTemplate, policy_input: PolicyInput) -> str:
    if turn.completion is not None and template.parse_action(turn.completion, policy_input) == turn.action:
        return turn.completion
    return completion_for(template, turn.action, policy_input)


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
    template: str = "text",
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
    and a journal next to it allows to resume (`play.journal`).

    Args:
        policy: the policy that plays.
        env_id: the id of the environment.
        out: the file, JSONL; compressed if its name ends in `.gz`.
        form: `log` for an episode log, `sft` for rows.
        template: the prompt template of the rows.
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
    if form not in FORMATS:
        raise UnknownOption.among(form, FORMATS)
    prompts = template_for(env_id, template) if form == "sft" else None
    with ExitStack() as stack:
        kept = journalled(policy, Path(out), replace=replace, resume=resume, inputs=data_files(env_kwargs))
        journal, replacing = stack.enter_context(kept)
        writer = stack.enter_context(LogWriter(out, keep_finished=True, replace=replacing))
        write: Callable[[Episode], None] = writer.write
        if prompts is not None:
            env = stack.enter_context(closing(maker(env_id, {**(env_kwargs or {}), "split": split})()))

            def write_rows(episode: Episode) -> None:
                writer.write_lines(json.dumps(row) for row in rows_of(episode, env, prompts))

            write = write_rows
        episodes = play_split(
            policy,
            env_id,
            split=split,
            num_episodes=num_episodes,
            attempts=attempts,
            task_types=task_types,
            seed=seed,
            env_kwargs=env_kwargs,
            num_envs=num_envs,
            write=write,
            journal=journal,
            on_plan=on_plan,
            on_episode=on_episode,
        )
    return CollectionSummary.of(episodes)

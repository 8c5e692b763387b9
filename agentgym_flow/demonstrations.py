"""Demonstrations: let a policy play, and keep what it did as an episode log or as rows for supervised fine-tuning.

A row is one turn in the conversational prompt-completion format of TRL's `SFTTrainer`: the prompt that a language
model would be given there, and the answer that asks for the action the policy took.

    {"prompt": [{"role": "user", "content": ...}], "completion": [{"role": "assistant", "content": ...}]}
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentgym_flow._util.files import LineWriter
from agentgym_flow.core import TextEnv
from agentgym_flow.episode import Episode, EpisodeRecorder, Turn
from agentgym_flow.episode_log import LogWriter
from agentgym_flow.errors import BadSetting, UnknownOption
from agentgym_flow.play_split import EpisodePlan, data_files, journalled, maker, play_split
from agentgym_flow.policies import AsyncPolicy, Policy, PolicyInput
from agentgym_flow.prompts import Message, PromptTemplate, profile_for
from agentgym_flow.seeding import Stream

FORMATS = ("log", "sft")
"""What `collect` can write."""

Row = dict[str, list[Message]]
"""`prompt` and `completion`, each a list of messages."""


def completion_for(profile: PromptTemplate, action: str, view: PolicyInput) -> str:
    """Return a completion that `profile` reads `action` from in this turn.

    Raises `BadSetting` when there is none, or when the prompt does not tell the action apart from others.
    """
    completion = profile.format_action(action, view)
    if completion is None or profile.parse_action(completion, view) != action:
        raise BadSetting(f"profile {profile.name!r} cannot ask for the action {action!r}: choose another profile")
    return completion


def rows_of(episode: Episode, env: TextEnv, profile: PromptTemplate) -> Iterator[Row]:
    """Yield a row per turn: what a language model would have been told, and have answered.

    Args:
        episode: what was played.
        env: takes its steps again, to see what a policy could see; nothing outside is asked.
        profile: writes the prompts. A policy's own completion is kept where the profile reads the same action from it.

    Raises `BadSetting` when the profile cannot ask for one of the actions.
    """
    tape = [episode.tape, *(turn.tape for turn in episode.turns)]
    if any(entry is not None for entry in tape):
        env.use_tape(tape)
    recorder = EpisodeRecorder(env)
    again = recorder.reset(seed=episode.seed, task=episode.task, attempt=episode.attempt)
    rng = Stream("policy", episode.seed, episode.attempt, episode.task)
    for turn in episode.turns:
        view = PolicyInput(env, recorder.observation, recorder.info, again, rng)
        said: Message = {"role": "assistant", "content": _completion(turn, profile, view)}
        yield {"prompt": profile.messages(view), "completion": [said]}
        recorder.step(turn.action, completion=turn.completion, policy=turn.policy)


def _completion(turn: Turn, profile: PromptTemplate, view: PolicyInput) -> str:
    if turn.completion is not None and profile.parse_action(turn.completion, view) == turn.action:
        return turn.completion
    return completion_for(profile, turn.action, view)


@dataclass(frozen=True, slots=True)
class CollectionSummary:
    """What was written.

    Attributes:
        episodes: how many were played.
        turns: the decisions in them; rows, in the format `sft`.
        successes: how many episodes achieved their task.
    """

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
    out: Path,
    *,
    form: str = "log",
    profile: str = "text",
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
    """Let `policy` play tasks of a split and write what it did to `out`, in order of seeds.

    The file comes whole or not at all; after Ctrl-C, or when the policy or a reset raises, it holds the episodes that
    had finished, and a journal beside it has these and the answers in unfinished ones.

    Args:
        policy: who acts.
        env_id: the environment.
        out: the file, JSONL; compressed when its name ends in `.gz`.
        form: `log` for an episode log, `sft` for rows.
        profile: the prompt profile of the rows.
        split: the split.
        num_episodes: only the first so many tasks; None as `evaluate`. Task i is played with seed `seed + i`.
        attempts: how many episodes each task gets.
        task_types: only tasks of these types; None for all.
        seed: of task 0.
        env_kwargs: other arguments of the environment.
        num_envs: the largest number of episodes under way; changes nothing but time.
        replace: `out` may be there already, and is replaced; so is the journal of a collection that was stopped.
        resume: go on with the collection that was stopped, if one was, as `evaluate` does.
        on_plan: called once, before the first episode, with what will be played.
        on_episode: called with every finished episode at once.

    Raises:
        UnknownOption: there is no such form.
        FileExistsError: `out` is there already.
        UnknownProfile: the environment has no such profile.
        BadSetting: the profile cannot ask for an action of the policy. Also what `evaluate` raises.
    """
    how: dict[str, Any] = {
        "split": split,
        "num_episodes": num_episodes,
        "attempts": attempts,
        "task_types": task_types,
        "seed": seed,
        "env_kwargs": env_kwargs,
        "num_envs": num_envs,
        "on_plan": on_plan,
        "on_episode": on_episode,
    }
    if form not in FORMATS:
        raise UnknownOption.among(form, FORMATS)
    prompts = profile_for(env_id, profile) if form == "sft" else None
    with journalled(policy, out, replace=replace, resume=resume, inputs=data_files(env_kwargs)) as (journal, replacing):
        if prompts is None:
            with LogWriter(out, keep_finished=True, replace=replacing) as log:
                return CollectionSummary.of(play_split(policy, env_id, write=log.write, journal=journal, **how))
        make_env = maker(env_id, {**(env_kwargs or {}), "split": split})
        with closing(make_env()) as env, LineWriter(out, keep_finished=True, replace=replacing) as lines:

            def write(episode: Episode) -> None:
                lines.write_lines(json.dumps(row) for row in rows_of(episode, env, prompts))

            return CollectionSummary.of(play_split(policy, env_id, write=write, journal=journal, **how))

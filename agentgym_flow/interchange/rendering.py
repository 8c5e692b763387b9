"""The episodes of a log with the prompts that the log does not have: replayed, and rendered anew with a template."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from agentgym_flow._util.values import is_number
from agentgym_flow.episodes import REASONING, Episode, EpisodeRecorder, LoggedEpisode, notes_by_turn, scan_log
from agentgym_flow.errors import AgentGymFlowError, BadLog
from agentgym_flow.interchange.readers import OURS, PLACE
from agentgym_flow.policies import PolicyInput
from agentgym_flow.policies.openai_chat import TOOL_CALLS
from agentgym_flow.policies.spending import USAGE
from agentgym_flow.prompts import CONVERSATION, Message, template_for, templates_of
from agentgym_flow.prompts.tools import arguments_in
from agentgym_flow.prompts.types import ConversationTemplate, SettingsTemplate
from agentgym_flow.replay.stepping import Environments, check, settings_of, step_again

RECONSTRUCTED = "reconstructed from a replay; what a model was shown may differ"
"""What the files say about their prompts."""


class RenderedTurn(NamedTuple):
    """A turn: what the policy wrote, its tool call (name and arguments) if one is noted, and the reply to it."""

    text: str
    action: str
    call: tuple[str, dict[str, Any]] | None
    reasoning: str
    reply: str
    reward: float


@dataclass(slots=True)
class RenderedEpisode:
    """An episode of a log with its prompts.

    Attributes:
        number: its line in the log, from 1.
        logged: the line.
        episode: the replayed episode.
        template: the name of the prompt template.
        opening: the messages before the first turn.
        turns: the turns, in order. The reply to the last one is the last observation.
    """

    number: int
    logged: LoggedEpisode
    episode: Episode
    template: str
    opening: list[Message] = field(default_factory=list)
    turns: list[RenderedTurn] = field(default_factory=list)

    @property
    def name(self) -> str:
        """A name that is unique in the log."""
        one = self.logged
        return f"{short_name(one.env_id)}-{printable(one.split)}-{one.task}-{one.attempt}-line{self.number}"

    @property
    def policy(self) -> str:
        """The name of the policy; `"unknown"` if the log has none."""
        return printable(str((self.logged.meta or {}).get("policy") or "unknown"))

    @property
    def usage(self) -> dict[str, float]:
        """The tokens and the cost of the episode, as far as they are logged: `prompt`, `cached`, `completion`, ..."""
        found = (self.logged.meta or {}).get(USAGE)
        return {str(k): v for k, v in found.items() if is_number(v)} if isinstance(found, Mapping) else {}

    @property
    def free(self) -> dict[str, Any]:
        """What goes into the free field of a format: the line as text, which no JSON library can change."""
        return {OURS: self.logged.line(), PLACE: self.number}

    @property
    def about(self) -> dict[str, Any]:
        """How the messages came to be, and what the episode is."""
        one = self.logged
        return {
            "prompts": RECONSTRUCTED,
            "template": self.template,
            "layout": CONVERSATION,
            "policy": self.policy,
            "usage": self.usage,
            "env_id": one.env_id,
            "split": printable(one.split),
            "task": one.task,
            "task_key": printable(one.task_key),
            "task_type": printable(self.episode.task_type),
            "attempt": one.attempt,
        }

    def messages(self) -> Iterator[dict[str, Any]]:
        """Yield the episode as a chat in OpenAI's form; answers have `tool_calls` and `reasoning` if they are noted."""
        yield from (dict(message) for message in self.opening)
        for number, turn in enumerate(self.turns):
            said: dict[str, Any] = {"role": "assistant", "content": turn.text}
            said |= {"reasoning": turn.reasoning} if turn.reasoning else {}
            if turn.call is None:
                yield said
                yield {"role": "user", "content": turn.reply}
                continue
            function = {"name": turn.call[0], "arguments": json.dumps(turn.call[1])}
            yield said | {"tool_calls": [{"id": f"call_{number}", "type": "function", "function": function}]}
            yield {"role": "tool", "tool_call_id": f"call_{number}", "content": turn.reply}


def printable(text: str) -> str:
    """Return `text` with lone surrogates replaced, which other programs refuse."""
    return text.encode("utf-8", "replace").decode("utf-8")


def short_name(env_id: str) -> str:
    """Return the name of an environment in other tools, such as `sokoban` for `agentgym_flow/Sokoban-v0`."""
    return re.sub(r"[^a-z0-9]+", "_", env_id.lower().removeprefix("agentgym_flow/").removesuffix("-v0")) or "_"


def rendered_episodes(
    log: Path, template: str | None = None, data: Mapping[str, str | Path] | None = None
) -> Iterator[RenderedEpisode]:
    """Replay the episodes of a log and yield them with prompts.

    Args:
        log: the log.
        template: the prompt template; None for the one that a line names in `meta`, otherwise `text`.
        data: paths of official data, by name.

    Raises:
        BadLog: a line cannot be read, or does not replay.
        UnknownTemplate, BadPromptFile: an environment has no such template, or its file cannot be read.
    """
    with closing(Environments(data or {})) as environments:
        for number, logged in scan_log(log):
            if isinstance(logged, BadLog):
                raise logged
            if (apart := check(logged, environments)[0]) is not None:
                raise BadLog(f"{log.name} line {number} does not replay, so it is not exported. {apart}")
            recorder = EpisodeRecorder(environments.of(logged, settings_of(logged)).env)
            yield _rendered(number, logged, recorder, template)


def _rendered(number: int, logged: LoggedEpisode, recorder: EpisodeRecorder, named: str | None) -> RenderedEpisode:
    meta = logged.meta or {}
    noted = meta.get("template")  # a remark, which may be anything, such as a published prompt without its file
    name = named or (noted if isinstance(noted, str) and noted in templates_of(logged.env_id) else "text")
    calls, thoughts = notes_by_turn(meta, TOOL_CALLS), notes_by_turn(meta, REASONING)
    tools = {"tools": True} if calls and name == "text" else {}
    template = template_for(logged.env_id, name, tools)
    if name == noted and isinstance(settings := meta.get("template_settings"), Mapping):
        with suppress(AgentGymFlowError):  # remarks may be anything
            template = template_for(logged.env_id, name, {**settings, **tools})
    if isinstance(template, SettingsTemplate):
        template = template.for_settings(logged.kwargs)
    opening: list[Message] = []
    replies: list[str] = []
    for episode in step_again(recorder, logged, logged.outputs()):
        here = PolicyInput.of(recorder)
        if not episode.turns:
            opening = [{"role": one["role"], "content": printable(one["content"])} for one in template.messages(here)]
        else:
            told = isinstance(template, ConversationTemplate)
            replies.append(template.follow_up(here) if told else recorder.observation)  # type: ignore[attr-defined]
    assert recorder.episode is not None  # step_again has reset it
    logged.add_remarks(recorder.episode)
    rendered = RenderedEpisode(number, logged, recorder.episode, template.name, opening)
    for n, (turn, reply) in enumerate(zip(recorder.episode.turns, [*replies, recorder.observation], strict=True)):
        said = printable(turn.output.text), printable(turn.action)
        thought = thoughts.get(n, {}).get("text")
        rendered.turns.append(
            RenderedTurn(*said, _call(calls.get(n, {})), printable(str(thought or "")), printable(reply), turn.reward)
        )
    return rendered


def _call(note: Mapping[str, Any]) -> tuple[str, dict[str, Any]] | None:
    calls = note.get("calls")
    first = calls[0] if isinstance(calls, list) and calls and isinstance(calls[0], Mapping) else {}
    arguments = arguments_in(printable(str(first.get("arguments"))))
    if arguments is None:
        return None
    whole = json.loads(printable(json.dumps(arguments, ensure_ascii=False)))  # JSON can escape half a character
    return printable(str(first.get("name"))), whole

"""A task of Inspect for every environment: `inspect eval agentgym_flow/sokoban --model ...`.

Inspect loads this module through the entry-point group `inspect_ai`. The model acts with tools
(`agentgym_flow.prompts.tools_for`) or, with `-T tools=false`, with the tags of a prompt template. Every sample carries
the line of an episode log, so that the `.eval` file imports as a log that verifies.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from inspect_ai import Epochs
from inspect_ai import Task as InspectTask
from inspect_ai import task as registered_task
from inspect_ai.dataset import MemoryDataset
from inspect_ai.dataset import Sample as InspectSample
from inspect_ai.model import ChatMessageTool, ChatMessageUser, get_model
from inspect_ai.scorer import Score, mean, scorer, stderr
from inspect_ai.solver import solver
from inspect_ai.tool import ToolCallError, ToolInfo, ToolParams

from agentgym_flow.core import check_positive, make_text_env
from agentgym_flow.envs import text_arguments
from agentgym_flow.episodes import REASONING, TRUNCATED_BY, EpisodeRecorder, LoggedEpisode, PolicyOutput
from agentgym_flow.errors import BadSetting
from agentgym_flow.interchange.inspect_log import CLUSTER, chat_message
from agentgym_flow.interchange.readers import OURS, PLACE
from agentgym_flow.interchange.rendering import short_name
from agentgym_flow.policies import PolicyInput
from agentgym_flow.policies.base import CONTEXT, NO_ANSWER
from agentgym_flow.policies.openai_chat import NOT_EXECUTED, TOOL_CALLS
from agentgym_flow.policies.spending import USAGE, add_usage
from agentgym_flow.prompts import CONVERSATION, template_for, tools_for
from agentgym_flow.prompts.tools import BAD_JSON, NO_CALL, called
from agentgym_flow.prompts.types import ConversationTemplate, SettingsTemplate


def _play(
    env_id: str, split: str, seed: int, attempts: int, template: str, tools: bool, env_kwargs: Mapping[str, Any]
) -> Any:
    """Return the solver: it plays one episode, and puts its line and outcome into the metadata of the sample."""
    chosen = template_for(env_id, template, {"tools": True} if tools and template == "text" else None)
    if isinstance(chosen, SettingsTemplate):
        chosen = chosen.for_settings(env_kwargs)
    if tools and template != "text":
        raise BadSetting("tools are offered with the template text: leave -T template out, or add -T tools=false")
    if not isinstance(chosen, ConversationTemplate):
        raise BadSetting(f"template {template!r} has no follow_up message, which a conversation needs")
    known = tools_for(env_id) if tools else {}
    offered = [
        ToolInfo(name=name, description=tool.description, parameters=ToolParams.model_validate(tool.schema))
        for name, tool in known.items()
    ]

    async def solve(state: Any, generate: Any) -> Any:
        task, model = state.metadata["task"], get_model()
        with closing(make_text_env(env_id, **env_kwargs, split=split)) as env:
            recorder = EpisodeRecorder(env)
            episode = recorder.reset(seed=seed + task, task=task, attempt=state.epoch - 1)
            episode.meta |= {"policy": f"inspect:{model}", "template": chosen.name, "layout": CONVERSATION}
            state.messages = [chat_message(dict(message)) for message in chosen.messages(PolicyInput.of(recorder))]
            try:
                while not recorder.done and TRUNCATED_BY not in episode.meta:
                    state.output = await model.generate(state.messages, tools=offered)
                    state.messages += _turn(recorder, state.output)
            finally:  # also if a limit of Inspect ends the sample
                line = LoggedEpisode.of(episode)
                state.metadata |= {"success": line.success, "score": line.score}
                state.metadata |= {OURS: line.line(), PLACE: task * attempts + state.epoch}
        state.completed = True
        return state

    def _turn(recorder: EpisodeRecorder, output: Any) -> list[Any]:
        """Play what a model has answered, and return its message and the reply."""
        episode, before = recorder.episode, PolicyInput.of(recorder)
        assert episode is not None
        meta, turn = episode.meta, len(episode.turns)
        if output.stop_reason == "model_length":  # every further turn would be longer
            meta[TRUNCATED_BY] = CONTEXT
            return []
        calls = (output.message.tool_calls or []) if tools else []
        if tools:
            action, why = _action(known, calls)
            noted = [{"id": one.id, "name": one.function, "arguments": json.dumps(one.arguments)} for one in calls]
            note = {"turn": turn, **({"calls": noted} if noted else {}), **({"bad": why} if why else {})}
            meta.setdefault(TOOL_CALLS, []).append(note)
        else:
            action, why = chosen.parse_action(output.completion, before), ""
        parts = output.message.content if isinstance(output.message.content, list) else []
        if thoughts := [part.text for part in parts if part.type == "reasoning"]:
            meta.setdefault(REASONING, []).append({"turn": turn, "text": "\n".join(thoughts)})
        if output.usage is not None:
            add_usage(meta.setdefault(USAGE, {}), _spent(output.usage))
        recorder.step(PolicyOutput(action, completion=output.completion, cut=output.stop_reason == "max_tokens"))
        told = recorder.observation if recorder.done else chosen.follow_up(PolicyInput.of(recorder))
        told = f"There was no action: {why}.\n\n{told}" if why else told
        replies = [(told, why), *[(NOT_EXECUTED, NOT_EXECUTED)] * (len(calls) - 1)]
        results = [
            ChatMessageTool(
                content=text,
                tool_call_id=call.id,
                function=call.function,
                error=ToolCallError("parsing", fault) if fault else None,
            )
            for call, (text, fault) in zip(calls, replies, strict=False)
        ]
        return [output.message, *(results or [ChatMessageUser(content=told)])]

    return solve


def _action(tools: Mapping[str, Any], calls: list[Any]) -> tuple[str, str]:
    """Return the action of the first call; or no action, and why."""
    if not calls:
        return NO_ANSWER, NO_CALL
    if calls[0].parse_error:
        return NO_ANSWER, BAD_JSON
    return called(tools, calls[0].function, json.dumps(calls[0].arguments))


def _spent(usage: Any) -> dict[str, float]:
    """Return Inspect's usage of an answer as ours, whose prompt tokens include the cached ones."""
    cached = usage.input_tokens_cache_read or 0
    prompt = usage.input_tokens + cached + (usage.input_tokens_cache_write or 0)
    spent = {"prompt": prompt, "cached": cached, "completion": usage.output_tokens}
    return spent | ({"reasoning": usage.reasoning_tokens} if usage.reasoning_tokens else {})


def _score_of(key: str) -> Any:
    async def score(state: Any, target: Any) -> Any:
        return Score(value=float(state.metadata.get(key, 0)))  # without it, the sample ended before its first turn

    return score


def _success() -> Any:
    """Return the scorer of success, 0 or 1."""
    return _score_of("success")


def _score() -> Any:
    """Return the scorer of the native metric, in [0, 1]."""
    return _score_of("score")


play = solver("play")(_play)
_METRICS = [mean(), stderr(cluster=CLUSTER)]
success = scorer(metrics=_METRICS, name="success")(_success)
native_score = scorer(metrics=_METRICS, name="score")(_score)


def _register(env_id: str) -> None:
    def make(
        split: str = "test",
        num_tasks: int | None = None,
        attempts: int = 1,
        seed: int = 0,
        template: str = "text",
        tools: bool = True,
        **env_kwargs: Any,
    ) -> Any:
        """Return the task: the first `num_tasks` tasks of a split (all by default), `attempts` episodes of each.

        Task i is played with seed `seed` + i. All other arguments are those of the environment.
        """
        check_positive("num_tasks", 1 if num_tasks is None else num_tasks)
        samples = []
        with closing(make_text_env(env_id, **env_kwargs, split=split)) as env:
            for task in range(env.num_tasks if num_tasks is None else min(num_tasks, env.num_tasks)):
                env.reset(seed=seed + task, options={"task": task})
                known = {"task": task, CLUSTER: env.task_key}  # metrics read it from here
                samples.append(InspectSample(id=f"{split}-{task}", input=env.goal, metadata=known))
        several = [f"pass_at_{attempts}", f"pass_k_{attempts}"] if attempts > 1 else []
        return InspectTask(
            dataset=MemoryDataset(samples, name=split),
            solver=play(env_id, split, seed, attempts, template, tools, env_kwargs),
            scorer=[success(), native_score()],
            epochs=Epochs(attempts, ["mean", *several]),
        )

    registered_task(name=short_name(env_id))(make)


for _env_id in filter(text_arguments.is_text, text_arguments.registered_ids()):
    _register(_env_id)

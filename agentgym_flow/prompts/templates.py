"""Prompt templates for language models, and how to find the template of an environment by name.

Three generic templates work in every environment: `text`, whose completions are actions; `choice`, whose completions
are numbers in a list; and `compact`, for the tiny policy (`prompts.words`). An environment can have better ones:
`template_for` looks for a dictionary `PROMPT_TEMPLATES` in a module `prompt` next to the module of the environment.

Published prompts are read from a file that the user provides. A dictionary `PUBLISHED` in a module `published_prompt`
next to the module of the environment maps their names to functions that make templates from such files.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from typing import Any

import gymnasium as gym

from agentgym_flow.episodes import EpisodeRecorder, Turn
from agentgym_flow.errors import BadSetting, UnknownEnvironment, UnknownOption, UnknownTemplate
from agentgym_flow.prompts.files import PromptFile
from agentgym_flow.prompts.thoughts import CLOSE_THOUGHT, OPEN_THOUGHT, without_thoughts
from agentgym_flow.prompts.tools import CALL_A_TOOL, TAKE_ACTION, Tool
from agentgym_flow.prompts.types import (
    CLOSE,
    OPEN,
    Message,
    PromptContext,
    PromptTemplate,
)
from agentgym_flow.prompts.words import WordTemplate

DEFAULT_HISTORY = 2
"""The default number of past turns in a text prompt."""

_LONGEST_NUMBER = 10  # digits; `int` would take long for a completion of a million digits


def tagged_action(completion: str, *, tags_required: bool = False) -> str:
    """Return the text between the last `<action>` and the `</action>` after it, outside of thoughts, stripped.

    Thoughts are removed first (`prompts.thoughts`), so no tag in them counts. Of several actions, the last one
    counts. If a tag is missing, returns the text outside of thoughts, or with `tags_required` the empty string, which
    no environment accepts. Actions inside a sentence are not extracted: "left, then up" is not the action `up`.
    """
    text = without_thoughts(completion)
    opened = text.rfind(OPEN, 0, max(text.rfind(CLOSE), 0))
    if opened >= 0:
        return text[opened + len(OPEN) : text.find(CLOSE, opened)].strip()
    return "" if tags_required else text.strip()


def history_window(turns: Sequence[Turn], length: int) -> str:
    """Return the last `length` turns as text, numbered from the start of the episode; empty if there are none."""
    first = max(0, len(turns) - length)
    return "\n\n".join(_past_turn(number, turn) for number, turn in enumerate(turns[first:], first + 1))


def _past_turn(number: int, turn: Turn) -> str:
    verdict = "" if turn.action_valid else " (not accepted)"
    return f"Observation {number}:\n{turn.observation}\nAction {number}: {turn.action}{verdict}"


@dataclass(frozen=True, slots=True)
class TextTemplate:
    """The prompt for any instruction-tuned model: rules, goal, history, observation, actions, and the answer format.

    The action is read outside of thoughts; if a completion has several actions there, the last one counts.

    Attributes:
        rules: a description of the environment; templates of an environment set it.
        history: the number of past turns to show (observation and action); 0 for none.
        think: ask for reasoning in `<think>` tags before the action.
        tags_required: treat a completion without action tags as invalid instead of as the action itself.
        lists_actions: show the actions that the environment offers, in every turn.
        numbers_turns: say the number of the turn and the limit. Without them, equal situations have equal prompts, and
            the observation stands alone in a conversation.
        shots: the number of solved turns in front of the first prompt of a chat (few-shot), each with the answer of
            the environment's expert; see `solved_turns`. They have no thoughts, so none
            are asked for.
        tools: ask for the call of a tool instead of an answer in tags; a policy that offers tools sets it.
        name: the name under which results are reported.

    Raises:
        BadSetting: `history` or `shots` is negative.
    """

    rules: str = "You act in a text environment, one action per turn."
    history: int = DEFAULT_HISTORY
    think: bool = True
    tags_required: bool = True
    lists_actions: bool = True
    numbers_turns: bool = True
    shots: int = 0
    tools: bool = False
    name: str = "text"

    def __post_init__(self) -> None:
        for name in ("history", "shots"):
            if getattr(self, name) < 0:
                raise BadSetting(f"{name} must be at least 0 turns, got {getattr(self, name)}")

    @property
    def closings(self) -> tuple[str, ...]:
        """The texts at which the answer of a model without a chat template ends."""
        return (CLOSE,) if self.tags_required else () if self.asks_for_thoughts else ("\n",)

    def prompt(self, policy_input: PromptContext) -> str:
        """Return the prompt of this turn as one text."""
        turns = policy_input.episode.turns
        past = history_window(turns, self.history)
        parts = [
            self.rules,
            f"Your task: {policy_input.info['goal']}",
            f"What happened lately:\n\n{past}" if past else "",
            self._turn_now(policy_input),
            self._offered(policy_input),
            self._how_to_answer(),
        ]
        return "\n\n".join(part for part in parts if part)

    def messages(self, policy_input: PromptContext) -> list[Message]:
        """Return the prompt as a chat: solved turns, and a user message, which repeats the whole context in every turn.

        Raises `BadSetting` if there are not enough solved turns.
        """
        solved = solved_turns(self, policy_input, self.shots) if self.shots else []
        return [*solved, {"role": "user", "content": self.prompt(policy_input)}]

    def follow_up(self, policy_input: PromptContext) -> str:
        """Return the result of the last action. Rules, goal and answer format are only in the first message."""
        turns = policy_input.episode.turns
        parts = [
            "" if turns[-1].action_valid else "Your last action was not accepted.",
            self._turn_now(policy_input) if self.numbers_turns else self._seen(policy_input),
            self._offered(policy_input),
        ]
        return "\n\n".join(part for part in parts if part)

    def parse_action(self, completion: str, policy_input: PromptContext) -> str:
        """Return the action in the completion; see `tagged_action`."""
        return tagged_action(completion, tags_required=self.tags_required)

    def format_action(self, action: str, policy_input: PromptContext) -> str | None:
        """Return `action`, in tags if they are required; None if parsing would give another action."""
        completion = f"{OPEN}{action}{CLOSE}" if self.tags_required else action
        return completion if self.parse_action(completion, policy_input) == action else None

    def _turn_now(self, policy_input: PromptContext) -> str:
        number, limit = len(policy_input.episode.turns) + 1, policy_input.episode.max_steps
        turn = f"Turn {number} of at most {limit}. " if self.numbers_turns else ""
        return f"{turn}The observation now:\n{self._seen(policy_input)}"

    def _seen(self, policy_input: PromptContext) -> str:
        return policy_input.observation

    def _offered(self, policy_input: PromptContext) -> str:
        lines: list[str] = []
        if not self.lists_actions:
            return ""
        if policy_input.info["admissible_actions"]:
            lines.append("Actions you can take now: " + ", ".join(policy_input.info["admissible_actions"]))
        if policy_input.info["action_templates"]:
            lines.append("Actions to fill in: " + ", ".join(policy_input.info["action_templates"]))
        return "\n".join(lines)

    @property
    def asks_for_thoughts(self) -> bool:
        """Whether the prompt asks for reasoning: not after solved turns, which have none."""
        return self.think and not self.shots

    def _how_to_answer(self) -> str:
        if self.tools:
            return CALL_A_TOOL
        where = f" inside {OPEN} and {CLOSE}." if self.tags_required else ", and nothing else."
        action = f"exactly one {self._asked_for}{where}"
        if self.asks_for_thoughts:
            return f"First reason about the situation inside {OPEN_THOUGHT} and {CLOSE_THOUGHT}. Then give {action}"
        return f"Answer with {action}"

    @property
    def _asked_for(self) -> str:
        return "action"


@dataclass(frozen=True, slots=True)
class ChoiceTemplate(TextTemplate):
    """The same prompt with a numbered list of candidates; the completion is a number in this list, starting with 1.

    Any other completion is invalid, even the text of an action, so all results under this name come from choices.
    """

    name: str = "choice"

    def parse_action(self, completion: str, policy_input: PromptContext) -> str:
        """Return the candidate with the number in the completion; the empty string if there is no such candidate."""
        number = tagged_action(completion, tags_required=self.tags_required)
        candidates = policy_input.candidates()
        if number.isascii() and number.isdecimal() and len(number) < _LONGEST_NUMBER:
            return candidates[int(number) - 1] if 1 <= int(number) <= len(candidates) else ""
        return ""

    def format_action(self, action: str, policy_input: PromptContext) -> str | None:
        """Return the number of `action`, in tags if they are required; None if it is not a candidate."""
        candidates = policy_input.candidates()
        if action not in candidates:
            return None
        number = candidates.index(action) + 1
        return f"{OPEN}{number}{CLOSE}" if self.tags_required else str(number)

    def _offered(self, policy_input: PromptContext) -> str:
        lines = [f"{number}. {action}" for number, action in enumerate(policy_input.candidates(), 1)]
        return "\n".join(["Actions you can choose from:", *lines])

    @property
    def _asked_for(self) -> str:
        return "number of an action"


_TRIED = 8  # training tasks for each solved turn, until enough of them give one

_solved: dict[object, list[tuple[tuple[str, int], list[Message]]]] = {}


def solved_turns(template: PromptTemplate, policy_input: PromptContext, count: int) -> list[Message]:
    """Return `count` solved turns as a chat: each a prompt, and the answer of the environment's expert.

    They are turns 1, 2, 3, ... of the expert's episodes of the first training tasks, one per task, in an environment
    with the same settings, but without those that leave it without an expert (`without_expert`). The task that is being
    played is left out, so no prompt contains its own answer.

    Args:
        template: a prompt template with a field `shots`.
        policy_input: the turn to be prompted, with its environment.
        count: the number of solved turns.

    Raises `BadSetting` if the environment has no expert, or its training tasks give fewer solved turns.
    """
    env = getattr(policy_input, "env", None)
    if env is None:
        raise BadSetting("shots are solved turns of the environment, which this caller does not pass: set shots to 0")
    key = template, env.env_id, env.max_steps, repr(env.settings), repr(env.data)
    found = _solved.get(key)
    if found is None:
        found = _solved[key] = list(_solve(template, policy_input, count + 1))
    played = policy_input.episode.task if env.split == "train" else None  # the key depends on the executor
    chosen = [turn for (key, task), turn in found if key != policy_input.info["task_key"] and task != played][:count]
    if len(chosen) < count:
        raise BadSetting(f"shots is {count}, but the training tasks of {env.env_id} give only {len(chosen)}: lower it")
    return [message for turn in chosen for message in turn]


def _solve(template: PromptTemplate, policy_input: Any, count: int) -> Iterator[tuple[tuple[str, int], list[Message]]]:
    """Yield up to `count` pairs of a training task, as its key and index, and a solved turn of that task."""
    template = replace(template, shots=0, think=False)  # type: ignore[type-var]
    like = policy_input.env
    settings = like.settings if like.spec is None else like.spec.kwargs
    left_out = {"season", "render_mode", *like.card.without_expert}
    kwargs = {name: value for name, value in settings.items() if name not in left_out}
    kwargs |= {"max_steps": like.max_steps, "split": "train"}
    make: Callable[..., Any] = (
        type(like) if like.spec is None else partial(gym.make, like.spec.id, disable_env_checker=True)
    )
    made: Any = make(**kwargs).unwrapped
    with closing(made) as env:
        if not env.has_expert:
            raise BadSetting(f"shots are turns of the expert, and {like.env_id} has none for these tasks: set it to 0")
        recorder, number = EpisodeRecorder(env), 0
        for task in env.drawn_tasks[: _TRIED * count]:
            episode = recorder.reset(seed=0, task=task)
            while not recorder.done and (action := env.expert_action()) is not None:
                now = {"observation": recorder.observation, "info": recorder.info, "episode": episode}
                here = replace(policy_input, env=env, **now)
                prompt, answer = template.messages(here), template.format_action(action, here)
                recorder.step(action)
                if answer is not None and (recorder.done or len(episode.turns) > number):
                    yield (env.task_key, task), [*prompt, {"role": "assistant", "content": answer}]
                    number += 1
                    break
            if number == count:
                return


Published = Mapping[str, Callable[[PromptFile], PromptTemplate]]
"""The name of a published prompt -> the function that makes a template from the file with the prompt."""


def templates_of(env_id: str) -> dict[str, PromptTemplate]:
    """Return the templates of an environment by name: the generic ones, replaced or extended by its own.

    Raises `UnknownEnvironment` if the id is not registered.
    """
    generic: dict[str, PromptTemplate] = {"text": TextTemplate(), "choice": ChoiceTemplate(), "compact": WordTemplate()}
    return generic | _beside(env_id, "prompt", "PROMPT_TEMPLATES")


def published_of(env_id: str) -> Published:
    """Return the functions that make templates from published prompts of an environment, by name.

    Raises `UnknownEnvironment` if the id is not registered.
    """
    return _beside(env_id, "published_prompt", "PUBLISHED")


def tools_for(env_id: str) -> dict[str, Tool]:
    """Return the tools of an environment by name. Raises `UnknownEnvironment` if the id is not registered."""
    return _beside(env_id, "prompt", "TOOLS") or {"take_action": TAKE_ACTION}


def _beside(env_id: str, module: str, name: str) -> dict[str, Any]:
    """Return the dictionary `name` of a module next to the module of an environment; empty if there is none.

    Raises `UnknownEnvironment` if the id is not registered.
    """
    spec = gym.registry.get(env_id)
    if spec is None:
        raise UnknownEnvironment.among(env_id, sorted(i for i in gym.registry if i.startswith("agentgym_flow/")))
    home = spec.entry_point.partition(":")[0] if isinstance(spec.entry_point, str) else ""
    own = f"{home.rpartition('.')[0]}.{module}"
    if not home.count(".") or importlib.util.find_spec(own) is None:
        return {}
    return dict(getattr(importlib.import_module(own), name, {}))


def template_for(env_id: str, name: str = "text", settings: Mapping[str, Any] | None = None) -> PromptTemplate:
    """Return a prompt template of an environment.

    Args:
        env_id: the id of a registered environment.
        name: the name of the template; or `NAME:PATH` for a published prompt, where PATH is the published file, or a
            folder with several files.
        settings: new values for fields of the template, such as `{"rules": "You play Sokoban.", "think": False}` for
            `TextTemplate`.

    Raises:
        UnknownEnvironment: the id is not registered.
        UnknownTemplate: the environment has no template of that name.
        UnknownOption: the template has no such field.
        BadSetting: the value of a field has the wrong type or is out of range.
        BadPromptFile: the file cannot be read, or lacks a string that the template needs.
    """
    name, colon, path = str(name).partition(":")  # a command line may hold a number
    published, own = published_of(env_id), {} if colon else templates_of(env_id)
    if name in own:
        return _with_settings(own[name], settings or {})
    if name not in published or not path:
        advice = f"Published prompts are read from a file that you name: {name}:PATH." if name in published else ""
        raise UnknownTemplate.among(f"{name}{colon}", [*own, *(f"{one}:PATH" for one in published)], advice)
    return _with_settings(published[name](PromptFile.read(path)), settings or {})


def _with_settings(template: PromptTemplate, settings: Mapping[str, Any]) -> PromptTemplate:
    known: list[str] = [one.name for one in fields(template)] if is_dataclass(template) else []
    for name, value in settings.items():
        if name not in known:
            advice = f"These are the settings of prompt template {template.name!r}."
            raise UnknownOption.among(
                name, known, advice if known else f"Prompt template {template.name!r} has no settings."
            )
        usual = type(getattr(template, name))
        if type(value) is not usual:
            raise BadSetting(
                f"setting {name} of prompt template {template.name!r} must be of type {usual.__name__}, got {value!r}"
            )
    return replace(template, **settings) if settings else template  # type: ignore[type-var]

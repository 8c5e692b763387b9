"""What a language model is shown in a turn, and how its answer becomes an action.

A *profile* is the pair of both: it writes the prompt of a turn and reads the completion. Environments know nothing of
it: they take their own commands, and an answer that cannot be read is simply an action they do not accept. The generic
profiles work in every environment: `text`, whose answers are actions; `choice`, whose answers are numbers in a list;
and `compact`, the words that the tiny policy reads (`agentgym_flow.word_prompts`). An environment may ship better ones
in a module `prompt` next to its `env`, in a dictionary `PROFILES`, and `profile_for` finds them. Prompts that others
have published are read from a file that the user brings: a module `published_prompt` next to `env` has a dictionary
`PUBLISHED` of what makes profiles of such files.
"""

from __future__ import annotations

import importlib
import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from operator import attrgetter
from typing import Any, Protocol, Self, TypedDict, runtime_checkable

import gymnasium as gym

from agentgym_flow.episode import Episode, Turn
from agentgym_flow.errors import BadSetting, UnknownEnvironment, UnknownOption, UnknownProfile
from agentgym_flow.prompt_files import PromptFile

OPEN, CLOSE = "<action>", "</action>"
"""The tags around an action."""

DEFAULT_HISTORY = 2
"""How many past turns a text prompt shows unless told otherwise."""


class Message(TypedDict):
    """One message of a chat."""

    role: str
    content: str


class PromptContext(Protocol):
    """What a profile may read of a running episode; `agentgym_flow.policies.PolicyInput` is one."""

    @property
    def observation(self) -> str:
        """The present observation."""

    @property
    def info(self) -> Mapping[str, Any]:
        """The present `info`."""

    @property
    def episode(self) -> Episode:
        """The episode so far."""

    def candidates(self) -> list[str]:
        """Return concrete actions to choose from, built only from what has been shown."""


class PromptTemplate(Protocol):
    """How a policy is prompted and read in one environment. A profile has no state: equal situations, equal prompts.

    What a completion means may depend on the situation, as numbers in a list do.
    """

    @property
    def name(self) -> str:
        """The name results are reported under."""

    def prompt(self, view: PromptContext) -> str:
        """Return the prompt of this turn as one text."""

    def messages(self, view: PromptContext) -> list[Message]:
        """Return the prompt of this turn as a chat."""

    def parse_action(self, completion: str, view: PromptContext) -> str:
        """Return the action that `completion` asks for here. Never raises: what cannot be read is an invalid action."""

    def format_action(self, action: str, view: PromptContext) -> str | None:
        """Return the completion that asks for `action` here, or for one that the prompt does not tell apart from it.

        None where nothing asks for it.
        """


@runtime_checkable
class ConversationTemplate(PromptTemplate, Protocol):
    """A profile that can also hold one conversation over a whole episode: the first prompt stays, later turns add."""

    def follow_up(self, view: PromptContext) -> str:
        """Return the environment's answer to the last action: the text of one new message, without history."""


@runtime_checkable
class TranscriptTemplate(ConversationTemplate, Protocol):
    """A profile whose whole episode is one text: what came of an answer follows it, without a message of its own."""

    @property
    def stops(self) -> tuple[str, ...]:
        """The texts that end an answer: nothing behind the first of them belongs to it."""


@runtime_checkable
class FormatTemplate(PromptTemplate, Protocol):
    """A profile that calls completions malformed by rules of its own; their actions are played all the same."""

    def well_formed(self, completion: str) -> bool:
        """Return whether a completion has the form that was asked for."""


@runtime_checkable
class SettingsTemplate(PromptTemplate, Protocol):
    """A profile whose vocabulary depends on the settings of the environment."""

    def for_settings(self, settings: Mapping[str, Any]) -> PromptTemplate:
        """Return the profile for these arguments of the environment."""


def valid_turns(profile: PromptTemplate) -> Callable[[Turn], bool]:
    """Return the function that tells whether a turn goes without the invalid-action penalty.

    That is for the profile to say, if it has rules for it; else for the environment, which accepted the action or not.
    """
    if not isinstance(profile, FormatTemplate):  # asked once, as a protocol is slow to ask for
        return attrgetter("action_valid")
    return lambda turn: profile.well_formed(turn.action if turn.completion is None else turn.completion)


def tagged_action(completion: str, *, tags_required: bool = False) -> str:
    """Return the text between the first `<action>` and the first `</action>` after it, stripped.

    Without both tags: the whole text stripped, or the empty string (which no environment accepts) when `tags_required`.
    Nothing is guessed from words inside a sentence: "left, then up" is not the action `up`.
    """
    _, opened, rest = completion.partition(OPEN)
    action, closed, _ = rest.partition(CLOSE)
    if opened and closed:
        return action.strip()
    return "" if tags_required else completion.strip()


def history_window(turns: Sequence[Turn], length: int) -> str:
    """Return the last `length` turns as text, numbered from the episode's start; empty when there are none."""
    first = max(0, len(turns) - length)
    return "\n\n".join(_past_turn(number, turn) for number, turn in enumerate(turns[first:], first + 1))


def _past_turn(number: int, turn: Turn) -> str:
    verdict = "" if turn.action_valid else " (not accepted)"
    return f"Observation {number}:\n{turn.observation}\nAction {number}: {turn.action}{verdict}"


@dataclass(frozen=True, slots=True)
class TextTemplate:
    """The prompt for any instruction-tuned model: rules, goal, history, observation, what can be done, how to answer.

    Attributes:
        rules: what the environment is and how to read it; an environment's own profile fills this in.
        history: how many past turns are shown (observation and action); 0 for none.
        think: ask for reasoning in `<think>` tags before the action.
        tags_required: take an answer without action tags for an invalid action instead of for the action itself.
        lists_actions: show the actions that the environment offers, in every turn.
        name: the name results are reported under.

    Raises:
        BadSetting: `history` is negative.
    """

    rules: str = "You act in a text environment, one action per turn."
    history: int = DEFAULT_HISTORY
    think: bool = True
    tags_required: bool = True
    lists_actions: bool = True
    name: str = "text"

    def __post_init__(self) -> None:
        if self.history < 0:
            raise BadSetting(f"history must be at least 0 turns, got {self.history}")

    def prompt(self, view: PromptContext) -> str:
        """Return the prompt of this turn as one text."""
        turns = view.episode.turns
        past = history_window(turns, self.history)
        parts = [
            self.rules,
            f"Your task: {view.info['goal']}",
            f"What happened lately:\n\n{past}" if past else "",
            _turn_now(view),
            self._offered(view),
            self._how_to_answer(),
        ]
        return "\n\n".join(part for part in parts if part)

    def messages(self, view: PromptContext) -> list[Message]:
        """Return the prompt as a chat of one user message: the whole context is restated every turn."""
        return [{"role": "user", "content": self.prompt(view)}]

    def follow_up(self, view: PromptContext) -> str:
        """Return what the last action led to; rules, goal and how to answer stand in the first message."""
        turns = view.episode.turns
        parts = [
            "" if turns[-1].action_valid else "Your last action was not accepted.",
            _turn_now(view),
            self._offered(view),
        ]
        return "\n\n".join(part for part in parts if part)

    def parse_action(self, completion: str, view: PromptContext) -> str:
        """Return the action in the completion; see `tagged_action`."""
        return tagged_action(completion, tags_required=self.tags_required)

    def format_action(self, action: str, view: PromptContext) -> str | None:
        """Return `action`, in tags where these are required; None when it would not be read back so."""
        completion = f"{OPEN}{action}{CLOSE}" if self.tags_required else action
        return completion if self.parse_action(completion, view) == action else None

    def _offered(self, view: PromptContext) -> str:
        lines: list[str] = []
        if not self.lists_actions:
            return ""
        if view.info["admissible_actions"]:
            lines.append("Actions you can take now: " + ", ".join(view.info["admissible_actions"]))
        if view.info["action_templates"]:
            lines.append("Actions to fill in: " + ", ".join(view.info["action_templates"]))
        return "\n".join(lines)

    def _how_to_answer(self) -> str:
        action = f"exactly one {self._asked_for} inside {OPEN} and {CLOSE}."
        if self.think:
            return f"First reason about the situation inside <think> and </think>. Then give {action}"
        return f"Answer with {action}"

    @property
    def _asked_for(self) -> str:
        return "action"


@dataclass(frozen=True, slots=True)
class ChoiceTemplate(TextTemplate):
    """The same prompt with the candidates as a numbered list; the answer is a number of it, from 1 on.

    Nothing else is an answer, not even the words of an action: results under this name are all made by choosing.
    """

    name: str = "choice"

    def parse_action(self, completion: str, view: PromptContext) -> str:
        """Return the candidate of the number in the completion; the empty string when it has no number in the list."""
        number = tagged_action(completion, tags_required=self.tags_required)
        candidates = view.candidates()
        if number.isascii() and number.isdecimal() and len(number) < _LONGEST_NUMBER:
            return candidates[int(number) - 1] if 1 <= int(number) <= len(candidates) else ""
        return ""

    def format_action(self, action: str, view: PromptContext) -> str | None:
        """Return the number of `action`, in tags where these are required; None when it is no candidate."""
        candidates = view.candidates()
        if action not in candidates:
            return None
        number = candidates.index(action) + 1
        return f"{OPEN}{number}{CLOSE}" if self.tags_required else str(number)

    def _offered(self, view: PromptContext) -> str:
        lines = [f"{number}. {action}" for number, action in enumerate(view.candidates(), 1)]
        return "\n".join(["Actions you can choose from:", *lines])

    @property
    def _asked_for(self) -> str:
        return "number of an action"


@dataclass(frozen=True, slots=True)
class IndexedPrompt:
    """A prompt of words that lists candidates.

    Attributes:
        text: the prompt.
        actions: the completion, which is one word -> the action that it asks for.
        indices: every action that a completion asks for, or for one that the words do not tell apart -> the completion.
    """

    text: str
    actions: Mapping[str, str]
    indices: Mapping[str, str]

    @classmethod
    def listing(
        cls, situation: Sequence[str], alike: Iterable[tuple[Sequence[str], Sequence[str]]], completions: Sequence[str]
    ) -> Self:
        """Return the prompt that says the words of `situation`, and then those of each candidate with its index.

        Args:
            situation: the words that come first.
            alike: for each candidate its words, and all actions that they stand for; the first of these is taken.
            completions: the indices; further candidates are left out.
        """
        said = list(situation)
        actions: dict[str, str] = {}
        indices: dict[str, str] = {}
        for index, (words, same) in zip(completions, alike, strict=False):
            said += [*words, index]
            actions[index] = same[0]
            indices.update(dict.fromkeys(same, index))
        return cls(" ".join([*said, "choose"]), actions, indices)


class IndexTemplate(ABC):
    """The prompt of a tiny policy: words of a closed vocabulary that list candidates; the completion is one's index.

    A subclass writes the prompt and says which words there are.
    """

    name = "compact"
    vocabulary: tuple[str, ...]
    """Every word of a prompt or of a completion."""

    @abstractmethod
    def written(self, view: PromptContext) -> IndexedPrompt:
        """Return the prompt for the present situation."""

    def prompt(self, view: PromptContext) -> str:
        """Return the words for the present situation."""
        return self.written(view).text

    def messages(self, view: PromptContext) -> list[Message]:
        """Return the same as one user message."""
        return [{"role": "user", "content": self.prompt(view)}]

    def parse_action(self, completion: str, view: PromptContext) -> str:
        """Return the candidate of this index; the empty string when there is none."""
        return self.written(view).actions.get(completion.strip(), "")

    def format_action(self, action: str, view: PromptContext) -> str | None:
        """Return the index of the candidate that has the same words as `action`; None when there is none."""
        return self.written(view).indices.get(action)


_LONGEST_NUMBER = 10  # a completion may be digits without end


def _turn_now(view: PromptContext) -> str:
    number, limit = len(view.episode.turns) + 1, view.episode.max_steps
    return f"Turn {number} of at most {limit}. The observation now:\n{view.observation}"


Published = Mapping[str, Callable[[PromptFile], PromptTemplate]]
"""The name of a published prompt -> what makes a profile of the file that it stands in."""


def profiles_of(env_id: str) -> dict[str, PromptTemplate]:
    """Return the profiles of an environment by name: its own ones over the generic `text`, `choice` and `compact`.

    They are looked for in the module `prompt` of the package that holds the environment's class, under `PROFILES`.
    Raises `UnknownEnvironment` when the id is not registered.
    """
    from agentgym_flow.word_prompts import WordTemplate  # which is made of classes of this module

    profiles: dict[str, PromptTemplate] = {
        "text": TextTemplate(),
        "choice": ChoiceTemplate(),
        "compact": WordTemplate(),
    }
    return profiles | _beside(env_id, "prompt", "PROFILES")


def published_of(env_id: str) -> Published:
    """Return what makes profiles of published prompts for an environment, by name; see `profile_for`.

    They are looked for in the module `published_prompt` beside the environment's class, under `PUBLISHED`. Raises
    `UnknownEnvironment` when the id is not registered.
    """
    return _beside(env_id, "published_prompt", "PUBLISHED")


def _beside(env_id: str, module: str, name: str) -> dict[str, Any]:
    """Return the dictionary `name` of a module in the package that holds an environment; empty where there is none."""
    spec = gym.registry.get(env_id)
    if spec is None:
        raise UnknownEnvironment.among(env_id, sorted(i for i in gym.registry if i.startswith("agentgym_flow/")))
    home = spec.entry_point.partition(":")[0] if isinstance(spec.entry_point, str) else ""
    own = f"{home.rpartition('.')[0]}.{module}"
    if not home.count(".") or importlib.util.find_spec(own) is None:
        return {}
    return dict(getattr(importlib.import_module(own), name))


def profile_for(env_id: str, name: str = "text", settings: Mapping[str, Any] | None = None) -> PromptTemplate:
    """Return one profile of an environment.

    Args:
        env_id: the id of a registered environment.
        name: that of a profile; or `NAME:PATH` for prompts that others have published, where PATH is the file that
            they published, or a folder with several.
        settings: fields of the profile that get other values, such as `{"rules": "You play Sokoban.", "think": False}`
            for `TextTemplate`.

    Raises:
        UnknownEnvironment: the id is not registered.
        UnknownProfile: the environment has no profile of that name, published or its own.
        UnknownOption: the profile has no such field.
        BadSetting: the value of a field has another type, or the profile refuses it.
        BadPromptFile: the file cannot be read, or lacks what the profile needs.
    """
    name, colon, path = name.partition(":")
    published, own = published_of(env_id), {} if colon else profiles_of(env_id)
    if name in own:
        return _with_settings(own[name], settings or {})
    if name not in published or not path:
        advice = f"Published prompts are read from a file that you name: {name}:PATH." if name in published else ""
        raise UnknownProfile.among(f"{name}{colon}", [*own, *(f"{one}:PATH" for one in published)], advice)
    return _with_settings(published[name](PromptFile.read(path)), settings or {})


def _with_settings(profile: PromptTemplate, settings: Mapping[str, Any]) -> PromptTemplate:
    known: list[str] = [one.name for one in fields(profile)] if is_dataclass(profile) else []
    for name, value in settings.items():
        if name not in known:
            advice = f"These are the settings of profile {profile.name!r}."
            raise UnknownOption.among(name, known, advice if known else f"Profile {profile.name!r} has no settings.")
        usual = type(getattr(profile, name))
        if type(value) is not usual:
            raise BadSetting(f"setting {name} of profile {profile.name!r} must be a {usual.__name__}, got {value!r}")
    return replace(profile, **settings) if settings else profile  # type: ignore[type-var]

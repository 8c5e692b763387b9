"""The interfaces of prompts: what a template can read of an episode, and what it offers to a language model.

A *prompt template* writes the prompt of a turn and reads the action from the completion. Environments do not depend on
templates: they take their own commands, and a completion that cannot be parsed becomes an invalid action.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Protocol, TypedDict, runtime_checkable

from agentgym_flow.episodes import Episode, Turn

OPEN, CLOSE = "<action>", "</action>"
"""The tags around an action."""

TURN, CONVERSATION = LAYOUTS = ("turn", "conversation")
"""What a prompt is: that of one turn, or the whole conversation so far. In training, a row is one or the other."""


class Message(TypedDict):
    """One message of a chat."""

    role: str
    content: str


class PromptContext(Protocol):
    """The part of a running episode that a template can read; `agentgym_flow.policies.PolicyInput` implements it."""

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
        """Return concrete actions to choose from, built only from shown text."""


class PromptTemplate(Protocol):
    """How a policy is prompted in one environment, and how its completions become actions.

    Templates are stateless: the same situation always gives the same prompt. The meaning of a completion may depend on
    the situation, for example if it is a number in a list.
    """

    @property
    def name(self) -> str:
        """The name under which results are reported."""

    def prompt(self, policy_input: PromptContext) -> str:
        """Return the prompt of this turn as one text."""

    def messages(self, policy_input: PromptContext) -> list[Message]:
        """Return the prompt of this turn as a chat."""

    def parse_action(self, completion: str, policy_input: PromptContext) -> str:
        """Return the action in `completion`. Never raises: an unreadable completion gives an invalid action."""

    def format_action(self, action: str, policy_input: PromptContext) -> str | None:
        """Return a completion for `action`, or for an action that the prompt shows in the same way; None if none."""


@runtime_checkable
class ConversationTemplate(PromptTemplate, Protocol):
    """A template that can also write one conversation per episode: the first prompt stays, later turns add messages."""

    def follow_up(self, policy_input: PromptContext) -> str:
        """Return the environment's reply to the last action: the text of one new message, without history."""


@runtime_checkable
class TranscriptTemplate(ConversationTemplate, Protocol):
    """A template that writes the whole episode as one text: the environment's reply directly follows the completion."""

    @property
    def stops(self) -> tuple[str, ...]:
        """The texts that end a completion; everything after the first of them is cut off."""


@runtime_checkable
class FormatTemplate(PromptTemplate, Protocol):
    """A template with its own rules for well-formed completions. Actions in malformed completions are still played."""

    def well_formed(self, completion: str) -> bool:
        """Return whether a completion has the requested form."""


@runtime_checkable
class SettingsTemplate(PromptTemplate, Protocol):
    """A template whose vocabulary depends on the settings of the environment."""

    def for_settings(self, settings: Mapping[str, Any]) -> PromptTemplate:
        """Return the template for these arguments of the environment."""


def valid_turns(template: PromptTemplate) -> Callable[[Turn], bool]:
    """Return a function that decides whether a turn avoids the invalid-action penalty.

    The rules of a `FormatTemplate` decide, otherwise whether the environment accepted the action.
    """
    if not isinstance(template, FormatTemplate):  # checked once, because `isinstance` with a protocol is slow
        return attrgetter("action_valid")
    return lambda turn: template.well_formed(turn.output.text)

"""Prompts of words for tiny policies, and the default one: the words of the observation, an index per candidate.

`WordTemplate` is the template `compact` of every environment that has no own one. Its prompts contain, in this order:

1. `goal:` and the words of the goal,
2. `now:` and the words of the observation,
3. every candidate: its words and its index, such as `#0`,
4. the last `TURNS` turns, newest first: `did:` and the words of the action, `refused:` if it was not accepted, `saw:`
   and the words of the observation before it,
5. `choose:`. The completion is one index.

At most `MOST_WORDS` words fit. What does not fit is cut in this order: the oldest turns; the ends of candidates, all to
one length; the end of the observation, down to `OBSERVATION` words; the end of the goal, down to `GOAL` words;
candidates beyond the first `MOST`. Candidates with equal words are shown once and stand for the first of them.

The prompt does not depend on the vocabulary: the tokenizer maps unknown words to one token. The vocabulary is built
from played episodes when a tiny model is created (`agentgym_flow.training.tiny`), and saved with the model.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Self

from agentgym_flow.prompts.thoughts import without_thoughts
from agentgym_flow.prompts.types import Message, PromptContext

MOST_WORDS = 126
"""The longest prompt, in words. The context of the tiny model also holds the completion and its end token."""

MOST = 32
"""The largest number of candidates in a prompt."""

OBSERVATION, GOAL = 40, 19
"""The number of words that are reserved for the observation and for the goal."""

TURNS = 8
"""The number of past turns in a prompt."""

MOST_CHARACTERS = 1 << 14
"""The number of characters that are read of a text; more would not fit into a prompt."""

INDICES = tuple(f"#{index}" for index in range(MOST))
"""The completions."""

MARKS = ("goal:", "now:", "did:", "refused:", "saw:", "choose:")
"""The words that introduce the parts of a prompt."""

DIGITS = (*(str(digit) for digit in range(10)), *(f"+{digit}" for digit in range(10)))
"""The words of numbers: the first digit, and the following digits."""

FIXED = (*INDICES, *MARKS, *DIGITS)
"""The words of every vocabulary. Of these, only digits can come from texts."""

VOCABULARY = "vocabulary"
"""The entry of the `config.json` of weights with their words, in the order of their tokens."""

_PARTS = re.compile(r"[^\W\d_]+(?:['_-][^\W\d_]+)*|\d|[^\w\s]|_")
_LINE = re.compile(r"[-+=_|]{3,}")
_AROUND = ".,;:!?()\"'"


def words_of(text: str) -> tuple[str, ...]:
    """Return the words in the first `MOST_CHARACTERS` characters of a text.

    Words become lower case. Words in capitals are split into letters, and single letters keep their case, because both
    can be part of a drawn board. Numbers are split into digits. Punctuation around words is dropped; separate symbols
    are words, and a line of a table such as `+---+---+` is one word.
    """
    return _words(text[:MOST_CHARACTERS])


@lru_cache(maxsize=1 << 12)  # texts may be long
def _words(text: str) -> tuple[str, ...]:
    found: list[str] = []
    for chunk in text.encode("utf-8", "replace").decode("utf-8").split():
        if _LINE.fullmatch(chunk):
            found.append("--")
            continue
        bare = chunk.strip(_AROUND) if any(character.isalnum() for character in chunk) else chunk
        end = -1  # of the last digit
        for part in _PARTS.finditer(bare):
            word = part.group()
            if word.isdecimal():
                found.append(f"+{int(word)}" if part.start() == end else str(int(word)))
                end = part.end()
            elif word.isupper():
                found += word
            else:
                found.append(word.lower() if len(word) > 1 else word)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class IndexedPrompt:
    """A prompt of words that lists candidates.

    Attributes:
        text: the prompt.
        actions: completion (one word) -> its action.
        indices: action -> its completion. Actions with the same words have the same completion.
    """

    text: str
    actions: Mapping[str, str]
    indices: Mapping[str, str]

    @classmethod
    def listing(
        cls, situation: Sequence[str], alike: Iterable[tuple[Sequence[str], Sequence[str]]], completions: Sequence[str]
    ) -> Self:
        """Return a prompt with the words of `situation`, then the words and the index of each candidate.

        Args:
            situation: the first words.
            alike: for each candidate its words, and all actions with these words; the first of them is played.
            completions: the indices. Candidates beyond their number are left out.
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
    """A prompt for a tiny policy: words of a closed vocabulary that list candidates. The completion is one index.

    A subclass defines `written` and the vocabulary.
    """

    name = "compact"
    vocabulary: tuple[str, ...]
    """All words of prompts and completions."""

    earlier: ClassVar[tuple[IndexTemplate, ...]] = ()
    """The versions of this prompt before its words last changed. Weights that were trained with one need it."""

    @abstractmethod
    def written(self, policy_input: PromptContext) -> IndexedPrompt:
        """Return the prompt of this turn with its candidates."""

    def prompt(self, policy_input: PromptContext) -> str:
        """Return the prompt of this turn as one text."""
        return self.written(policy_input).text

    def messages(self, policy_input: PromptContext) -> list[Message]:
        """Return the prompt as one user message."""
        return [{"role": "user", "content": self.prompt(policy_input)}]

    def parse_action(self, completion: str, policy_input: PromptContext) -> str:
        """Return the candidate with the index outside of thoughts; the empty string if there is none."""
        return self.written(policy_input).actions.get(without_thoughts(completion).strip(), "")

    def format_action(self, action: str, policy_input: PromptContext) -> str | None:
        """Return the index of the candidate with the same words as `action`; None if there is none."""
        return self.written(policy_input).indices.get(action)


@dataclass(frozen=True)
class WordTemplate(IndexTemplate):
    """The default prompt for tiny policies, described at the top of this module.

    Attributes:
        vocabulary: the words with a token of their own in a new tiny model; empty if no model is created.
    """

    vocabulary: tuple[str, ...] = ()

    def written(self, policy_input: PromptContext) -> IndexedPrompt:
        """Return the prompt of this turn with its candidates."""
        turns = policy_input.episode.turns[-TURNS:]
        past = tuple((turn.action, turn.action_valid, turn.observation[:MOST_CHARACTERS]) for turn in reversed(turns))
        goal, observation = (
            policy_input.info["goal"][:MOST_CHARACTERS],
            policy_input.observation[:MOST_CHARACTERS],
        )  # cache keys
        return _written(goal, observation, tuple(policy_input.candidates()), past)


@lru_cache(maxsize=1 << 14)  # prompting, parsing and all attempts with the same history so far share the result
def _written(
    goal: str, observation: str, candidates: tuple[str, ...], past: tuple[tuple[str, bool, str], ...]
) -> IndexedPrompt:
    wanted, seen = words_of(goal), words_of(observation)
    alike: dict[tuple[str, ...], list[str]] = {}
    for action in candidates:
        alike.setdefault(words_of(action), []).append(action)
    room = MOST_WORDS - len(("goal:", "now:", "choose:"))
    listed = _fitted(list(alike)[:MOST], room - min(len(wanted), GOAL) - min(len(seen), OBSERVATION))
    room -= sum(len(words) + 1 for words in listed)
    seen = seen[: room - min(len(wanted), GOAL)]
    wanted = wanted[: room - len(seen)]
    said = ["goal:", *wanted, "now:", *seen]
    actions: dict[str, str] = {}
    indices: dict[str, str] = {}
    for index, words, same in zip(INDICES, listed, alike.values(), strict=False):
        said += [*words, index]
        actions[index] = same[0]
        indices.update(dict.fromkeys(same, index))
    said += _told(past)[: MOST_WORDS - 1 - len(said)]
    return IndexedPrompt(" ".join([*said, "choose:"]), actions, indices)


def _fitted(candidates: Sequence[tuple[str, ...]], room: int) -> list[tuple[str, ...]]:
    """Return the words of candidates, cut to the greatest common length with which they and their indices fit."""
    length = max(map(len, candidates), default=0)
    while length > 1 and sum(min(len(words), length) + 1 for words in candidates) > room:
        length -= 1
    return [words[:length] for words in candidates]


def _told(past: Sequence[tuple[str, bool, str]]) -> list[str]:
    told: list[str] = []
    for action, accepted, before in past:
        told += ["did:", *words_of(action), *([] if accepted else ["refused:"]), "saw:", *words_of(before)]
    return told

"""The compact prompt of any text environment: the words of what was shown, and an index for each candidate.

With it the tiny policy plays environments that have no `compact` profile of their own. A prompt has, in this order:

1. `goal:` and the words of the goal,
2. `now:` and the words of the observation,
3. every candidate: its words and its index, such as `#0`,
4. the last `TURNS` turns, newest first: `did:` and the words of the action, `refused:` if it was not accepted, `saw:`
   and the words of the observation before it,
5. `choose:`. The completion is one index.

At most `MOST_WORDS` words fit. What does not fit is cut in this order: the oldest turns; the ends of candidates, all to
one length; the end of the observation, down to `OBSERVATION` words; the end of the goal, down to `GOAL` words;
candidates beyond the first `MOST`. Candidates with equal words are shown once and stand for the first of them.

The prompt does not depend on the vocabulary: the tokenizer maps words that it does not know to one token. The
vocabulary is made from play when a tiny model is made (`agentgym_flow.training.vocabulary`), and saved with it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from agentgym_flow.prompts import IndexedPrompt, IndexTemplate, PromptContext

MOST_WORDS = 126
"""The longest prompt, in words: what the context of the tiny model holds beside an answer and its end."""

MOST = 32
"""The largest number of candidates in a prompt."""

OBSERVATION, GOAL = 40, 19
"""The words that observation and goal always have, if they need them."""

TURNS = 8
"""The number of past turns in a prompt."""

MOST_CHARACTERS = 1 << 14
"""What is read of a text; a longer one holds more words than a prompt."""

INDICES = tuple(f"#{index}" for index in range(MOST))
"""The completions."""

MARKS = ("goal:", "now:", "did:", "refused:", "saw:", "choose:")
"""The words that say what follows."""

DIGITS = (*(str(digit) for digit in range(10)), *(f"+{digit}" for digit in range(10)))
"""The words of numbers: a first digit, and the digits that follow it."""

FIXED = (*INDICES, *MARKS, *DIGITS)
"""The words that every vocabulary has. Of these, texts hold digits only."""

_PARTS = re.compile(r"[^\W\d_]+(?:['_-][^\W\d_]+)*|\d|[^\w\s]|_")
_LINE = re.compile(r"[-+=_|]{3,}")
_AROUND = ".,;:!?()\"'"


def words_of(text: str) -> tuple[str, ...]:
    """Return the words of a text, of its first `MOST_CHARACTERS` characters.

    Words are in lower case. Those in capitals are split into letters, and single letters keep their case, because both
    may be drawings of a board. Numbers are split into digits. Punctuation around words is dropped; symbols that stand
    alone are words, and a line of a table such as `+---+---+` is one word.
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


@dataclass(frozen=True)
class WordTemplate(IndexTemplate):
    """The prompt of the tiny policy in an environment without a `compact` profile; see the top of this module.

    Attributes:
        vocabulary: the words that get a token each when a tiny model is made; empty where no model is to be made.
    """

    vocabulary: tuple[str, ...] = ()

    def written(self, view: PromptContext) -> IndexedPrompt:
        """Return the words for the present situation."""
        turns = view.episode.turns[-TURNS:]
        past = tuple((turn.action, turn.action_valid, turn.observation[:MOST_CHARACTERS]) for turn in reversed(turns))
        goal, observation = view.info["goal"][:MOST_CHARACTERS], view.observation[:MOST_CHARACTERS]  # they are kept
        return _written(goal, observation, tuple(view.candidates()), past)


@lru_cache(maxsize=1 << 14)  # prompt, completion and all attempts that have seen the same so far share it
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
    """Return the words of candidates, all cut to the greatest length with which they and their indices fit."""
    length = max(map(len, candidates), default=0)
    while length > 1 and sum(min(len(words), length) + 1 for words in candidates) > room:
        length -= 1
    return [words[:length] for words in candidates]


def _told(past: Sequence[tuple[str, bool, str]]) -> list[str]:
    told: list[str] = []
    for action, accepted, before in past:
        told += ["did:", *words_of(action), *([] if accepted else ["refused:"]), "saw:", *words_of(before)]
    return told

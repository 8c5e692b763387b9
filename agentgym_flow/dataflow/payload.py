"""The form of what a worker sends of an episode: what can be read at all, before anything is played."""

from __future__ import annotations

import json
import math
from typing import Any, NamedTuple

from agentgym_flow.dataflow import told
from agentgym_flow.episode_log import MAX_VALUES, LoggedEpisode, read_line
from agentgym_flow.errors import BadLog, Forged, shown
from agentgym_flow.generation import Sampling

LONGEST = 1 << 24
"""The longest payload that is read, in characters."""

MOST, LEAST = 1e-3, -80.0
"""Log-probabilities are between these: rounding may lift one above 0, and nobody samples what has 1e-35.

Ratios to them are finite in float32, so no worker can make a loss infinite.
"""


class WireCopy(NamedTuple):
    """A payload that is well-formed: one list of tokens and one of log-probabilities for each action of the line."""

    logged: LoggedEpisode
    tokens: list[list[int]]
    logprobs: list[list[float]]
    facts: str

    def rows(self) -> list[told.Row]:
        """Return what was reported of each turn. Raises `Forged` if its form is wrong."""
        return told.parse(self.facts, len(self.tokens))

    @classmethod
    def parse(cls, payload: str) -> WireCopy:
        """Return what a payload says. Raises `Forged` if it cannot be read, or is too large."""
        if not isinstance(payload, str) or len(payload) > LONGEST or not payload.isascii():
            raise Forged(f"a payload is at most {LONGEST} ASCII characters, got {shown(payload)}")
        line, _, rest = payload.partition("\n")
        columns, _, facts = rest.partition("\n")
        logged = read_line(f"{line}\n".encode("ascii"), "the line")
        if isinstance(logged, BadLog):
            raise Forged(str(logged))
        if columns.count(",") + columns.count("[") > MAX_VALUES:
            raise Forged(f"the columns have more than {MAX_VALUES} values")
        try:
            tokens, logprobs = json.loads(columns)
        except (ValueError, TypeError, RecursionError) as error:
            raise Forged(f"the columns are not a JSON list of two: {error!s:.100}") from None
        read = _column("tokens", tokens, int, logged), _column("log-probabilities", logprobs, float, logged)
        return cls(logged, *read, facts)


def _column(name: str, column: Any, kind: type, logged: LoggedEpisode) -> list[list[Any]]:
    if not isinstance(column, list) or len(column) != len(logged.actions):
        raise Forged(f"the line has {len(logged.actions)} actions, and the {name} are not a list for each")
    for number, items in enumerate(column, 1):
        if not isinstance(items, list) or set(map(type, items)) != {kind}:
            raise Forged(f"turn {number}: the {name} are not a list of {kind.__name__}, with at least one")
    return column


def check_tokens(
    turn: int, tokens: tuple[int, ...], logprobs: tuple[float, ...], sampling: Sampling, words: int
) -> None:
    """Raise `Forged` for tokens and log-probabilities that no generator gives for a vocabulary of so many words."""
    if len(tokens) == len(logprobs) == 1 and 0 <= tokens[0] < words and LEAST <= logprobs[0] <= MOST:
        return  # what follows says the same, more slowly; `sampling` asks for one token at least
    if len(tokens) > sampling.max_new_tokens:
        raise Forged(f"turn {turn}: {len(tokens)} tokens are more than max_new_tokens={sampling.max_new_tokens}")
    if min(tokens) < 0 or max(tokens) >= words:
        raise Forged(f"turn {turn}: a token is not in the vocabulary of {words}")
    if not sampling.ends.isdisjoint(tokens[:-1]):
        raise Forged(f"turn {turn}: tokens follow the one that ends an answer")
    if len(logprobs) != len(tokens):
        raise Forged(f"turn {turn}: {len(logprobs)} log-probabilities for {len(tokens)} tokens")
    for number in logprobs:
        if not (math.isfinite(number) and LEAST <= number <= MOST):
            raise Forged(f"turn {turn}: {number} is not the log-probability of a sampled token")


def differ(told: Any, ours: Any) -> bool:
    """Return whether two values differ as JSON: 1, 1.0 and true are equal in Python only."""
    if type(told) is type(ours) and isinstance(told, str | int | float | None):
        return bool(told != ours)
    if repr(told) == repr(ours):  # cheap, and true of nearly all; only lists and tuples are equal without it
        return False
    return json.dumps(told, sort_keys=True) != json.dumps(ours, sort_keys=True)

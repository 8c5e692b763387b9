"""Parse and check what a worker sends of an episode, before it is replayed."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from agentgym_flow.dataflow import reports
from agentgym_flow.dataflow.records import LONGEST
from agentgym_flow.episodes import MAX_VALUES, LoggedEpisode, read_line
from agentgym_flow.errors import BadLog, Forged, shown
from agentgym_flow.generation import Sampling

MOST, LEAST = 1e-3, -80.0
"""The bounds of log-probabilities: rounding may lift one above 0, and tokens of probability 1e-35 are never sampled.

Within them, probability ratios are finite in float32, so no worker can make a loss infinite.
"""


class WireCopy(NamedTuple):
    """A well-formed payload: the line of the log, and for each action tokens, log-probabilities and a prompt digest."""

    logged: LoggedEpisode
    tokens: list[list[int]]
    logprobs: list[list[float]]
    prompts: list[str]
    report: str

    def rows(self) -> list[reports.Row]:
        """Return the worker's report on each turn. Raises `Forged` if it is malformed."""
        return reports.parse(self.report, len(self.tokens))

    @classmethod
    def parse(cls, payload: str) -> WireCopy:
        """Return the parts of a payload. Raises `Forged` if it is malformed or too large."""
        if not isinstance(payload, str) or len(payload) > LONGEST or not payload.isascii():
            raise Forged(f"a payload is at most {LONGEST} ASCII characters, got {shown(payload)}")
        line, _, rest = payload.partition("\n")
        columns, _, report = rest.partition("\n")
        logged = read_line(f"{line}\n".encode("ascii"), "the line")
        if isinstance(logged, BadLog):
            raise Forged(str(logged))
        if columns.count(",") + columns.count("[") > MAX_VALUES:
            raise Forged(f"the columns have more than {MAX_VALUES} values")
        try:
            tokens, logprobs, prompts = json.loads(columns)
        except (ValueError, TypeError, RecursionError) as error:
            raise Forged(f"the columns are not a JSON list of three: {error!s:.100}") from None
        read = _column("tokens", tokens, int, logged), _column("log-probabilities", logprobs, float, logged)
        if not isinstance(prompts, list) or [type(one) for one in prompts] != [str] * len(logged.actions):
            raise Forged(
                f"the line has {len(logged.actions)} actions, and the digests of prompts are not a text for each"
            )
        return cls(logged, *read, prompts, report)


def _column(name: str, column: Any, kind: type, logged: LoggedEpisode) -> list[list[Any]]:
    if not isinstance(column, list) or len(column) != len(logged.actions):
        raise Forged(f"the line has {len(logged.actions)} actions, and the {name} are not a list for each")
    for number, items in enumerate(column, 1):
        if not isinstance(items, list) or set(map(type, items)) != {kind}:
            raise Forged(f"turn {number}: the {name} are not a list of {kind.__name__}, with at least one")
    return column


def prompt_digest(ids: Sequence[int]) -> str:
    """Return a digest of the tokens of a prompt."""
    return hashlib.sha256(np.asarray(ids, dtype="<i8").tobytes()).hexdigest()[:16]


def check_tokens(
    turn: int, tokens: tuple[int, ...], logprobs: tuple[float, ...], sampling: Sampling, words: int
) -> None:
    """Raise `Forged` for tokens and log-probabilities that cannot come from a vocabulary of `words` tokens."""
    if len(tokens) == len(logprobs) == 1 and 0 <= tokens[0] < words and LEAST <= logprobs[0] <= MOST:
        return  # a fast path for the checks below; `sampling` allows at least one token
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


def differ(sent: Any, ours: Any) -> bool:
    """Return whether two values differ as JSON, in which 1, 1.0 and true are different."""
    if type(sent) is type(ours) and isinstance(sent, str | int | float | None):
        return bool(sent != ours)
    if repr(sent) == repr(ours):  # a fast path; tuples and lists differ here, but not as JSON
        return False
    return json.dumps(sent, sort_keys=True) != json.dumps(ours, sort_keys=True)

"""The text of an episode that workers send to trainers: how it is written, parsed, and checked without playing it.

A worker sends the line of the episode log, the tokens that it sampled with their log-probabilities, and a digest of
each prompt; no observation, no prompt, no `info`. The trainer replays the episode, see `batches.inbox.Receiver`.

If a trainer replays only a share of the episodes, workers add a report on each turn: the observations, states, validity
and prompts that a replay would produce. Trainers check its form, but not its truth. See `batches.inbox` for which
episodes they replay, and what they do after a forgery.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from operator import attrgetter
from typing import Annotated, Any, NamedTuple

import numpy as np
from msgspec import Meta

from agentgym_flow._util.values import typed
from agentgym_flow.dataflow.records import LONGEST
from agentgym_flow.episodes import MAX_VALUES, TRUNCATED_BY, Episode, LoggedEpisode, read_line
from agentgym_flow.errors import BadLog, BadSetting, Forged, shown
from agentgym_flow.generation import Sampling
from agentgym_flow.play import ERROR
from agentgym_flow.policies.base import CONTEXT
from agentgym_flow.training.policy import PromptedPolicy, check_context, context_of

MOST, LEAST = 1e-3, -80.0
"""The bounds of log-probabilities: rounding may lift one above 0, and tokens of probability 1e-35 are never sampled.

Within them, probability ratios are finite in float32, so no worker can make a loss infinite.
"""


class ReportedTurn(NamedTuple):
    """The report on a turn, a list in JSON: fields of `Turn` and of its output, in this order."""

    next_observation: str
    next_state_key: str
    action_valid: bool
    terminated: bool
    truncated: bool
    success: bool
    score: Annotated[float, Meta(ge=0, le=1)]
    next_official_key: str | None
    info: dict[str, Any] | None
    prompt_ids: list[int]


_reported_of = attrgetter(*("output.prompt_ids" if name == "prompt_ids" else name for name in ReportedTurn._fields))


def encode(episode: Episode, *, report: bool = False, versions: bool = False) -> str:
    """Return an episode as the text that `Receiver.replay` reads: two lines of JSON, in ASCII.

    With `report` a third line has the report that `Receiver.trust` needs. With `versions` the second one has the
    version of the weights of each turn.

    Raises `BadSetting` for an episode that is lost (its lease must be given back) or has turns without tokens.
    """
    if ERROR in episode.meta:
        raise BadSetting("an episode that was lost cannot be sent: give its lease back")
    outputs = [turn.output for turn in episode.turns]
    if any(not one.completion_ids or one.logprobs is None or one.prompt_ids is None for one in outputs):
        raise BadSetting("an episode is sent with its tokens and log-probabilities; a turn of this one has none")
    tokens = [[int(token) for token in one.completion_ids or ()] for one in outputs]
    logprobs = [[float(number) for number in one.logprobs or ()] for one in outputs]
    prompts = [prompt_digest(one.prompt_ids or ()) for one in outputs]
    columns = [tokens, logprobs, prompts, *([[one.version for one in outputs]] if versions else [])]
    values = [columns, *([report_of(episode)] if report else [])]
    rest = [json.dumps(value, allow_nan=False, separators=(",", ":")) for value in values]
    return "\n".join([LoggedEpisode.of(episode).line(), *rest])


def report_of(episode: Episode) -> list[list[Any]]:
    """Return the report on each turn of an episode, as plain data."""
    rows = [ReportedTurn(*_reported_of(turn)) for turn in episode.turns]
    return [[*row._replace(score=float(row.score), prompt_ids=[*row.prompt_ids])] for row in rows]


def prompt_digest(ids: Sequence[int]) -> str:
    """Return a digest of the tokens of a prompt."""
    return hashlib.sha256(np.asarray(ids, dtype="<i8").tobytes()).hexdigest()[:16]


class WireCopy(NamedTuple):
    """A well-formed payload: the line of the log, and for each action tokens, log-probabilities and a prompt digest.

    `versions` has the version of the weights that sampled each; None if those of the lease sampled all.
    """

    logged: LoggedEpisode
    tokens: list[list[int]]
    logprobs: list[list[float]]
    prompts: list[str]
    versions: list[int] | None
    report: str

    @property
    def is_full(self) -> bool:
        """Whether the line says that the episode no longer fitted into a model's context."""
        return (self.logged.meta or {}).get(TRUNCATED_BY) == CONTEXT

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
            tokens, logprobs, prompts, *others = json.loads(columns)
            (versions,) = others or [None]
        except (ValueError, TypeError, RecursionError) as error:
            raise Forged(f"the columns are not a JSON list of three or four: {error!s:.100}") from None
        read = _column("tokens", tokens, int, logged), _column("log-probabilities", logprobs, float, logged)
        if not isinstance(prompts, list) or [type(one) for one in prompts] != [str] * len(logged.actions):
            raise Forged(
                f"the line has {len(logged.actions)} actions, and the digests of prompts are not a text for each"
            )
        if others and (not isinstance(versions, list) or [*map(type, versions)] != [int] * len(logged.actions)):
            raise Forged(f"the line has {len(logged.actions)} actions, and the versions are not an integer for each")
        return cls(logged, *read, prompts, versions, report)

    def reported(self) -> list[dict[str, Any]]:
        """Return the worker's report on each turn, as in `ReportedTurn`. Raises `Forged` if it is malformed."""
        turns = len(self.tokens)
        if self.report.count(",") + self.report.count("[") > MAX_VALUES:
            raise Forged(f"the report on the turns has more than {MAX_VALUES} values")
        try:
            value = json.loads(self.report)
        except (ValueError, RecursionError) as error:
            raise Forged(f"the report on the turns is not JSON: {error!s:.100}") from None
        rows = typed(value, list[ReportedTurn], Forged, "the report on the turns, from 0")
        if len(rows) != turns:
            raise Forged(f"the report on the turns is not a list for each of {turns}")
        for number, row in enumerate(rows, 1):
            if row.terminated + row.truncated > (number == turns):
                raise Forged(f"turn {number}: the episode is reported to end twice, or before its last turn")
        return [row._asdict() for row in rows]


def _column(name: str, column: Any, kind: type, logged: LoggedEpisode) -> list[list[Any]]:
    if not isinstance(column, list) or len(column) != len(logged.actions):
        raise Forged(f"the line has {len(logged.actions)} actions, and the {name} are not a list for each")
    for number, items in enumerate(column, 1):
        if not isinstance(items, list) or set(map(type, items)) != {kind}:
            raise Forged(f"turn {number}: the {name} are not a list of {kind.__name__}, with at least one")
    return column


# ---------------------------------------------------------------- what no model can have read or sampled
def check_prompt(number: int, policy: PromptedPolicy, prompt: list[int], before: Sequence[int], words: int) -> None:
    """Raise `Forged` for a prompt that a model with a vocabulary of `words` tokens cannot have read.

    The prompt must begin with `before`: in the layout `conversation`, everything said so far.
    """
    if not prompt or min(prompt) < 0 or max(prompt) >= words:
        raise Forged(f"turn {number}: a prompt is reported that has tokens outside the vocabulary of {words}, or none")
    if [*prompt[: len(before)]] != [*before]:
        raise Forged(f"turn {number}: a prompt is reported that does not begin with what was said before")
    try:
        check_context(context_of(policy.model), len(prompt), policy.sampling.max_new_tokens, "turn")
    except BadSetting as error:
        raise Forged(f"turn {number}: {error}") from None


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

"""Workers' reports on the turns of an episode, for trainers that do not replay all episodes.

A report has the observations, states, validity and prompts that a replay would produce. Trainers check its form, but
not its truth. See `agentgym_flow.dataflow.batches.inbox` for which episodes they replay, and what they do after a
forgery.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from agentgym_flow.episodes import MAX_VALUES, Episode, Turn
from agentgym_flow.errors import BadSetting, Forged, shown
from agentgym_flow.training.policy import PromptedPolicy, check_context, context_of

Row = list[Any]
"""The report on a turn: values in the order of `_KINDS`."""

_KINDS: dict[str, tuple[type, ...]] = {
    "next_observation": (str,),
    "next_state_key": (str,),
    "action_valid": (bool,),
    "terminated": (bool,),
    "truncated": (bool,),
    "success": (bool,),
    "score": (float,),
    "next_official_key": (str, type(None)),
    "info": (dict, type(None)),
    "prompt_ids": (list,),
}
_ENDS = slice([*_KINDS].index("terminated"), [*_KINDS].index("truncated") + 1)
_SCORE, _PROMPT = [*_KINDS].index("score"), [*_KINDS].index("prompt_ids")


def rows_of(episode: Episode) -> list[Row]:
    """Return the report on each turn of an episode, as plain data."""
    rows = [[getattr(turn, name) for name in _KINDS] for turn in episode.turns]
    for row in rows:
        row[_SCORE], row[_PROMPT] = float(row[_SCORE]), [*row[_PROMPT]]
    return rows


def parse(text: str, turns: int) -> list[Row]:
    """Return the rows of an episode of `turns` turns. Raises `Forged` if they are malformed."""
    if text.count(",") + text.count("[") > MAX_VALUES:
        raise Forged(f"the report on the turns has more than {MAX_VALUES} values")
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Forged(f"the report on the turns is not JSON: {error!s:.100}") from None
    if not isinstance(rows, list) or len(rows) != turns:
        raise Forged(f"the report on the turns is not a list for each of {turns}")
    for number, row in enumerate(rows, 1):
        if not isinstance(row, list) or len(row) != len(_KINDS):
            raise Forged(f"turn {number}: the report must have {len(_KINDS)} values")
        for (name, kinds), value in zip(_KINDS.items(), row, strict=True):
            if type(value) not in kinds:
                raise Forged(f"turn {number}: {name} is reported as {shown(value)}")
        if not 0 <= row[_SCORE] <= 1:
            raise Forged(f"turn {number}: score is reported as {shown(row[_SCORE])}")
        if sum(row[_ENDS]) > (number == turns):
            raise Forged(f"turn {number}: the episode is reported to end twice, or before its last turn")
    return rows


def check_prompt(number: int, policy: PromptedPolicy, row: Row, before: Sequence[int], words: int) -> None:
    """Raise `Forged` for a prompt that a model with a vocabulary of `words` tokens cannot have read.

    The prompt must begin with `before`: in the layout `conversation`, everything said so far.
    """
    prompt = row[_PROMPT]
    if not prompt or set(map(type, prompt)) != {int} or min(prompt) < 0 or max(prompt) >= words:
        raise Forged(f"turn {number}: a prompt is reported that has tokens outside the vocabulary of {words}, or none")
    if [*prompt[: len(before)]] != [*before]:
        raise Forged(f"turn {number}: a prompt is reported that does not begin with what was said before")
    try:
        check_context(context_of(policy.model), len(prompt), policy.sampling.max_new_tokens, "turn")
    except BadSetting as error:
        raise Forged(f"turn {number}: {error}") from None


def turn_of(row: Row, **more: Any) -> Turn:
    """Return a turn with the values of its report; `more` are the other fields of `Turn`."""
    reported = dict(zip(_KINDS, row, strict=True))
    return Turn(**{**reported, "prompt_ids": tuple(row[_PROMPT])}, **more)

"""Credit for the turns of episodes that another trainer has collected: one advantage per token of a response.

A trainer such as verl, prime-rl or AReaL keeps an episode as one response: the tokens of the policy, with those of the
environment between them, and a mask. What it lacks is credit for single turns. Say of each turn which state it was
decided in, which one it led to, and where its tokens are:

    attempts = [Attempt(steps=[Step("room 0", "room 1", reward=0.0, span=(0, 12)), ...], success=True, length=340), ...]
    advantages = token_advantages(attempts)

All attempts are at one task, from one start. The numbers are those of `agentgym_flow.rewards.credit`.
`batch_advantages` does the same for a whole padded batch, whose response mask says where the turns are.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from agentgym_flow.episode import Episode, Group, Turn
from agentgym_flow.errors import BadSetting
from agentgym_flow.rewards.credit import credit_function


@dataclass(frozen=True, slots=True)
class TokenTurn:
    """One turn.

    Attributes:
        state: the state it was decided in. Equal texts are one state: leave out what does not matter, keep what does.
        next_state: the state it led to.
        reward: of the environment.
        span: where its tokens are in the response, from the first to behind the last.
    """

    state: str
    next_state: str
    reward: float
    span: tuple[int, int]


@dataclass(frozen=True, slots=True)
class TokenEpisode:
    """One episode.

    Attributes:
        steps: the turns, in order.
        success: whether the task was achieved at the end.
        length: the number of tokens of the response.
    """

    steps: Sequence[TokenTurn]
    success: bool
    length: int


def token_advantages(
    attempts: Sequence[TokenEpisode], credit: str = "rewardflow", **settings: Any
) -> list[list[float]]:
    """Return the advantages of all tokens, [attempts][tokens]; 0 for tokens outside of the turns.

    Args:
        attempts: at one task.
        credit: one of `agentgym_flow.rewards.CREDIT`, or `module:function`.
        settings: its keyword arguments, such as `gamma=0.9`.

    Raises:
        UnknownOption: there is no such credit function.
        BadSetting: there are no attempts, their first states differ, or spans overlap or leave the response.
    """
    starts = {attempt.steps[0].state for attempt in attempts if attempt.steps}
    if not attempts or len(starts) > 1:
        raise BadSetting(f"a group is several attempts from one start, got {len(attempts)} from {len(starts)} starts")
    start = next(iter(starts), "")
    group = Group([_episode(attempt, number, start) for number, attempt in enumerate(attempts)])
    (of_group,) = credit_function(credit)([group], **settings)
    return [_spread(attempt, of_turns) for attempt, of_turns in zip(attempts, of_group, strict=True)]


def batch_advantages(
    turns: Sequence[Sequence[tuple[str, str, float]]],
    success: Sequence[bool],
    response_mask: npt.ArrayLike,
    index: Sequence[Hashable] | npt.NDArray[Any],
    credit: str = "rewardflow",
    **settings: Any,
) -> npt.NDArray[np.float32]:
    """Return the advantages of a padded batch, (bs, response_length); 0 where the mask is 0.

    Args:
        turns: for each row its turns in order: the state it was decided in, the state it led to, the reward.
        success: for each row, whether the task was achieved.
        response_mask: (bs, response_length), 1 for the tokens of the policy. Every stretch of ones is a turn; turns
            that a cut response has lost count for the others.
        index: for each row its group, such as verl's `uid`. All rows of a group are attempts at one task.
        credit: one of `agentgym_flow.rewards.CREDIT`, or `module:function`.
        settings: its keyword arguments, such as `gamma=0.9`.

    Raises:
        UnknownOption: there is no such credit function.
        BadSetting: the arguments differ in length, a row has more stretches of ones than turns, or the first states of
            a group differ.
    """
    mask = np.asarray(response_mask) != 0
    if mask.ndim != 2 or not len(turns) == len(success) == len(index) == len(mask):
        raise BadSetting(
            f"a batch has one row for each of its {len(turns)} lists of turns, got {len(success)} outcomes, "
            f"{len(index)} groups and a mask of shape {mask.shape}"
        )
    length = mask.shape[1]
    groups: dict[Hashable, list[int]] = {}
    attempts = []
    for number, (row, steps) in enumerate(zip(mask, turns, strict=True)):
        spans = _stretches(row)
        if len(spans) > len(steps):
            raise BadSetting(f"row {number} has {len(spans)} stretches of the policy's tokens and {len(steps)} turns")
        spans += [(length, length)] * (len(steps) - len(spans))
        made = [
            TokenTurn(state, following, reward, span)
            for (state, following, reward), span in zip(steps, spans, strict=True)
        ]
        attempts.append(TokenEpisode(made, bool(success[number]), length))
        groups.setdefault(index[number], []).append(number)
    advantages = np.zeros(mask.shape, np.float32)
    for numbers in groups.values():
        advantages[numbers] = token_advantages([attempts[number] for number in numbers], credit, **settings)
    return advantages


def _stretches(row: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return where the stretches of ones in a row begin, and the places behind their ends."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], row, [False]]).astype(np.int8)))
    return [(int(first), int(behind)) for first, behind in edges.reshape(-1, 2)]


def _episode(attempt: TokenEpisode, number: int, start: str) -> Episode:
    last = len(attempt.steps) - 1
    turns = [
        Turn(
            observation=step.state,
            state_key=step.state,
            action="",
            reward=step.reward,
            next_observation=step.next_state,
            next_state_key=step.next_state,
            terminated=attempt.success and place == last,  # what failed may have run out of steps: no dead end
            truncated=not attempt.success and place == last,
            action_valid=True,
            success=attempt.success and place == last,
            score=float(attempt.success and place == last),
        )
        for place, step in enumerate(attempt.steps)
    ]
    return Episode("", {}, {}, "", 0, "", "", 0, number, 1, start, start, turns=turns)


def _spread(attempt: TokenEpisode, of_turns: Sequence[float]) -> list[float]:
    advantages, end = [0.0] * attempt.length, 0
    for step, advantage in zip(attempt.steps, of_turns, strict=True):
        first, behind = step.span
        if not end <= first <= behind <= attempt.length:
            raise BadSetting(f"span {step.span} overlaps the one before, or leaves the {attempt.length} tokens")
        advantages[first:behind] = [advantage] * (behind - first)
        end = behind
    return advantages

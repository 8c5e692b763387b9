"""Credit for the turns of episodes that another trainer has collected: one advantage per token of a response.

Trainers such as verl, prime-rl or AReaL store an episode as one response: the tokens of the policy, separated by tokens
of the environment, and a mask. They have no credit for single turns. To get it, describe each turn by the state before
it, the state after it, and the span of its tokens:

    turns = [TokenTurn("room 0", "room 1", reward=0.0, span=(0, 12)), ...]
    advantages = token_advantages([TokenEpisode(turns, success=True, length=340), ...])

All attempts are at one task, from one start. The advantages are those of `agentgym_flow.rewards.credit`.
`batch_advantages` does the same for a padded batch and finds the turns in the response mask.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from agentgym_flow.episodes import Episode, Group, PolicyOutput, Turn
from agentgym_flow.errors import BadSetting
from agentgym_flow.rewards.credit import credit_function


@dataclass(frozen=True, slots=True)
class TokenTurn:
    """One turn.

    Attributes:
        state: the state before the turn. Equal texts are one state, so it should contain what matters and nothing else.
        next_state: the state after the turn.
        reward: the reward of the environment.
        span: the positions of its first token and after its last token in the response.
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
    """Return the advantages of all tokens, `[attempt][token]`; 0 for tokens outside of turns.

    Args:
        attempts: attempts at one task.
        credit: one of `agentgym_flow.rewards.CREDIT`, or `module:function`.
        settings: keyword arguments of the credit function, such as `gamma=0.9`.

    Raises:
        UnknownOption: the credit function is unknown.
        BadSetting: there are no attempts, their first states differ, or spans overlap or exceed the response.
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
    """Return the advantages of a padded batch, `float32[rows, response_length]`; 0 where the mask is 0.

    Args:
        turns: for each row, its turns in order: (state before the turn, state after it, reward).
        success: for each row, whether the task was achieved.
        response_mask: `[rows, response_length]`, 1 for the tokens of the policy. Every run of ones is a turn. Turns
            that are missing from a truncated response still count in comparisons.
        index: for each row, its group, such as verl's `uid`. All rows of a group are attempts at one task.
        credit: one of `agentgym_flow.rewards.CREDIT`, or `module:function`.
        settings: keyword arguments of the credit function, such as `gamma=0.9`.

    Raises:
        UnknownOption: the credit function is unknown.
        BadSetting: the arguments differ in length, a row has more runs of ones than turns, or the first states of a
            group differ.
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
        edges = np.flatnonzero(np.diff(np.concatenate([[False], row, [False]]).astype(np.int8)))
        spans = [(int(first), int(behind)) for first, behind in edges.reshape(-1, 2)]  # of every run of ones
        if len(spans) > len(steps):
            raise BadSetting(f"row {number} has {len(spans)} spans of the policy's tokens and {len(steps)} turns")
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


def _episode(attempt: TokenEpisode, number: int, start: str) -> Episode:
    last = len(attempt.steps) - 1
    turns = [
        Turn(
            observation=step.state,
            state_key=step.state,
            output=PolicyOutput(""),
            reward=step.reward,
            next_observation=step.next_state,
            next_state_key=step.next_state,
            terminated=attempt.success
            and place == last,  # a failure may be due to the time limit and is then not terminal
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

"""Credit for the turns of episodes that another trainer has collected: one advantage per token of a response.

A trainer such as verl, prime-rl or AReaL keeps an episode as one response: the tokens of the policy, with those of the
environment between them, and a mask. What it lacks is credit for single turns. Say of each turn which state it was
decided in, which one it led to, and where its tokens are:

    attempts = [Attempt(steps=[Step("room 0", "room 1", reward=0.0, span=(0, 12)), ...], success=True, length=340), ...]
    advantages = token_advantages(attempts)

All attempts are at one task, from one start. The numbers are those of `agentgym_flow.rewards.credit`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentgym_flow.episode import Episode, Group, Turn
from agentgym_flow.errors import BadSetting
from agentgym_flow.rewards.credit import credit_function


@dataclass(frozen=True, slots=True)
class Step:
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
class Attempt:
    """One episode.

    Attributes:
        steps: the turns, in order.
        success: whether the task was achieved at the end.
        length: the number of tokens of the response.
    """

    steps: Sequence[Step]
    success: bool
    length: int


def token_advantages(attempts: Sequence[Attempt], credit: str = "rewardflow", **settings: Any) -> list[list[float]]:
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


def _episode(attempt: Attempt, number: int, start: str) -> Episode:
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


def _spread(attempt: Attempt, of_turns: Sequence[float]) -> list[float]:
    advantages, end = [0.0] * attempt.length, 0
    for step, advantage in zip(attempt.steps, of_turns, strict=True):
        first, behind = step.span
        if not end <= first <= behind <= attempt.length:
            raise BadSetting(f"span {step.span} overlaps the one before, or leaves the {attempt.length} tokens")
        advantages[first:behind] = [advantage] * (behind - first)
        end = behind
    return advantages

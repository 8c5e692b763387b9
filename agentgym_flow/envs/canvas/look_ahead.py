"""Precomputes turns of many episodes in parallel, because a turn with a real model mostly consists of waiting.

A copy of the episode computes the turn. The copy replaces the episode when this step is taken, and is discarded when
another one is.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple

from agentgym_flow.envs.canvas.actions.drafting import TurnResult
from agentgym_flow.envs.canvas.backends.replay import ResponseRecorder
from agentgym_flow.envs.canvas.game import CanvasGame
from agentgym_flow.envs.canvas.workflow.together import all_of

MOST = 128
"""The maximum number of concurrent turns."""


class LookAhead(NamedTuple):
    """A precomputed turn.

    Attributes:
        action: the action.
        game: the episode after it.
        recorder: the recorder of its calls.
        outcome: its outcome, or its exception.
    """

    action: str
    game: CanvasGame
    recorder: ResponseRecorder
    outcome: TurnResult | Exception

    def turn(self) -> TurnResult:
        """Return the outcome of the turn, or raise its exception."""
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


def take_ahead(starts: Sequence[tuple[CanvasGame, ResponseRecorder, str]]) -> list[LookAhead]:
    """Compute the turn of each action; the episodes themselves do not change.

    Raises only interrupts, after which no request is active.

    Args:
        starts: the episodes with the recorders of their calls, and the actions.
    """
    copies = [_copied(*start) for start in starts]
    with ThreadPoolExecutor(min(MOST, len(copies)) or 1) as pool:
        parts = [pool.submit(_taken, *one) for one in copies]

        def stop() -> None:
            for part in parts:
                part.cancel()

        def cancel() -> None:
            for _, recorder, _ in copies:
                recorder.cancel()

        return all_of(parts, stop, cancel)


def _copied(game: CanvasGame, recorder: ResponseRecorder, action: str) -> tuple[CanvasGame, ResponseRecorder, str]:
    """Return a copy of the episode that shares only the backend and immutable objects."""
    recorder = copy.copy(recorder)
    interpreter = copy.copy(game.interpreter)
    interpreter.backend, interpreter.cache = recorder, copy.deepcopy(interpreter.cache)
    return replace(game, interpreter=interpreter), recorder, action


def _taken(game: CanvasGame, recorder: ResponseRecorder, action: str) -> LookAhead:
    outcome: TurnResult | Exception
    try:
        outcome = game.turn(action)
    except Exception as error:  # it concerns only this step of the rollout
        outcome = error
    return LookAhead(action, game, recorder, outcome)

"""Turns of many episodes taken ahead, at the same time: with a real model, a turn is waiting for the most part.

A turn is taken ahead by a copy of the episode. It becomes the episode when the step is really taken, and is forgotten
when another one is.
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
"""So many turns are taken at the same time."""


class LookAhead(NamedTuple):
    """A turn that was taken ahead.

    Attributes:
        action: what was written.
        game: the episode after it.
        recorder: what recorded its calls.
        outcome: what came of it, or what it raised.
    """

    action: str
    game: CanvasGame
    recorder: ResponseRecorder
    outcome: TurnResult | Exception

    def turn(self) -> TurnResult:
        """Return what came of it. Raises what it raised."""
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


def take_ahead(starts: Sequence[tuple[CanvasGame, ResponseRecorder, str]]) -> list[LookAhead]:
    """Return what comes of an action in each episode; the episodes themselves do not change.

    Nothing is raised but an interrupt, after which no request is under way.

    Args:
        starts: the episodes, what records their calls, and the actions.
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
    """Return a copy of the episode, which shares its backend and nothing else that changes."""
    recorder = copy.copy(recorder)
    interpreter = copy.copy(game.interpreter)
    if interpreter is not None:
        interpreter.backend, interpreter.cache = recorder, copy.deepcopy(interpreter.cache)
    return replace(game, interpreter=interpreter), recorder, action


def _taken(game: CanvasGame, recorder: ResponseRecorder, action: str) -> LookAhead:
    outcome: TurnResult | Exception
    try:
        outcome = game.turn(action)
    except Exception as error:  # whatever it is, it concerns this step and no others of the rollout
        outcome = error
    return LookAhead(action, game, recorder, outcome)

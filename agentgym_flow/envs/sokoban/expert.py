"""The expert, which follows push-optimal plans."""

from __future__ import annotations

from collections.abc import Iterable

from agentgym_flow.envs.sokoban.bitboard import WORDS, steps
from agentgym_flow.envs.sokoban.level import Level
from agentgym_flow.envs.sokoban.solver import MAX_EXPANSIONS, solve
from agentgym_flow.errors import SearchLimit


class SokobanExpert:
    """Follows the plans of `solve`, and calls it again only in states that are not on an earlier plan.

    Args:
        level: the level to play.
        max_expansions: as in `solve`. States that need more have no plan. None for the default of `solve`, or for a
            twentieth of it on boards of more than 255 cells.
    """

    def __init__(self, level: Level, max_expansions: int | None = None) -> None:
        self._level = level
        if max_expansions is None:
            max_expansions = (
                MAX_EXPANSIONS if len(level.cells) < 256 else MAX_EXPANSIONS // 20
            )  # otherwise a search takes minutes
        self._max_expansions = max_expansions
        self._words: dict[tuple[int, tuple[int, ...]], str | None] = {}

    def next(self, player: int, boxes: Iterable[int]) -> str | None:
        """Return the next word of a push-optimal plan; None if the state is solved or has no plan."""
        state = (player, tuple(sorted(boxes)))
        if state not in self._words:
            self._remember(*state)
        return self._words[state]

    def _remember(self, player: int, boxes: tuple[int, ...]) -> None:
        """Solve a state and store the next word of every state along the plan."""
        try:
            plan = solve(self._level, player, boxes, self._max_expansions)
        except SearchLimit:
            plan = None
        step_of = dict(zip(WORDS, steps(self._level.width), strict=True))
        for word in plan or ():
            self._words[player, boxes] = word
            step = step_of[word]
            player += step
            if player in boxes:
                boxes = tuple(sorted(cell + step if cell == player else cell for cell in boxes))
        self._words[player, boxes] = None

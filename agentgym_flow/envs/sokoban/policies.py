"""The policies that need no training: the expert, and a scripted policy that plays from the text alone.

The scripted policy is a baseline between random play and the expert. It pushes greedily without search, so it solves
most boards with one box and few with several. Of all deadlocks it recognises only corners. `docs/policies.md` has its
success rates.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from agentgym_flow.envs.sokoban.level import ACTIONS, TARGET, WALL, Level, offsets
from agentgym_flow.envs.sokoban.solver import MAX_EXPANSIONS, solve
from agentgym_flow.errors import SearchLimit

if TYPE_CHECKING:
    from agentgym_flow.episodes import PolicyOutput
    from agentgym_flow.policies.base import PolicyInput

_FAR = 1 << 16
_Push = tuple[int, int]  # the cell of the box, the index of the action


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
        step_of = dict(zip(ACTIONS, offsets(self._level.width), strict=True))
        for word in plan or ():
            self._words[player, boxes] = word
            step = step_of[word]
            player += step
            if player in boxes:
                boxes = tuple(sorted(cell + step if cell == player else cell for cell in boxes))
        self._words[player, boxes] = None


class GreedyPusher:
    """Makes the push that decreases the distance of a box to a target most, after a shortest walk.

    It never pushes a box into a corner without a target, and undoes its last push only if there is no other push. It
    reads only observations and uses no random numbers.
    """

    name = "scripted"

    def act(self, inputs: Sequence[PolicyInput]) -> list[PolicyOutput]:
        """Return one action per input, which depends only on the observations of its episode."""
        from agentgym_flow.episodes import PolicyOutput  # which the environment does not need for its expert

        return [PolicyOutput(_action(policy_input)) for policy_input in inputs]


def _action(policy_input: PolicyInput) -> str:
    level = _read(policy_input.observation)
    steps = offsets(level.width)
    boxes = set(level.boxes)
    floor = {cell for cell, code in enumerate(level.cells) if not code & WALL}
    free = floor - boxes
    to_target = _distances(level.targets, floor, steps)
    from_player = _distances([level.player], free, steps)
    undo = _undo_of_last_push(policy_input, steps)

    def cost(push: _Push) -> tuple[bool, int, int, _Push]:
        box, action = push
        gain = to_target.get(box, _FAR) - to_target.get(box + steps[action], _FAR)
        return push == undo, -gain, from_player[box - steps[action]], push

    pushes = [
        (box, action)
        for box in boxes
        for action, step in enumerate(steps)
        if box - step in from_player and box + step in free and not _is_corner(level, box + step, steps)
    ]
    if not pushes:
        return ACTIONS[0]
    box, action = min(pushes, key=cost)
    standing = box - steps[action]
    if standing == level.player:
        return ACTIONS[action]
    back = _distances([standing], free, steps)
    return ACTIONS[min(range(4), key=lambda index: back.get(level.player + steps[index], _FAR))]


@lru_cache(maxsize=1024)
def _read(observation: str) -> Level:
    return Level.parse(observation)


def _distances(sources: Iterable[int], free: Collection[int], steps: Sequence[int]) -> dict[int, int]:
    """Return the distance in steps over `free` cells from the nearest of `sources`, for every reachable cell."""
    found = dict.fromkeys(sources, 0)
    queue = deque(found)
    while queue:
        cell = queue.popleft()
        for step in steps:
            if cell + step not in found and cell + step in free:
                found[cell + step] = found[cell] + 1
                queue.append(cell + step)
    return found


def _is_corner(level: Level, cell: int, steps: Sequence[int]) -> bool:
    up, down, left, right = (bool(level.cells[cell + step] & WALL) for step in steps)
    return not level.cells[cell] & TARGET and (up or down) and (left or right)


def _undo_of_last_push(policy_input: PolicyInput, steps: Sequence[int]) -> _Push | None:
    for turn in reversed(policy_input.episode.turns):
        if turn.observation == turn.next_observation:
            continue
        before, after = set(_read(turn.observation).boxes), set(_read(turn.next_observation).boxes)
        if before != after:
            [left], [reached] = before - after, after - before
            return reached, steps.index(left - reached)
    return None

"""Sokoban as numbers: observations are grids of cell codes, actions are indices."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from agentgym_flow.core import PlainSpec, check_info_keys, check_options, check_positive, check_render_mode, choose_task
from agentgym_flow.envs.sokoban.env import SokobanEnv
from agentgym_flow.envs.sokoban.game import SokobanGame, check_backend, effective_actions
from agentgym_flow.envs.sokoban.level import (
    ACTIONS,
    BOX_SWAP,
    NUM_CODES,
    PLAYER_SHIFT,
    board_text,
    cell_codes,
    rgb_frame,
)
from agentgym_flow.envs.sokoban.tasks import DEFAULT_BOXES, DEFAULT_MIN_PUSHES, DEFAULT_SIZE, LevelSource
from agentgym_flow.errors import BadAction, ResetNeeded

Grid = npt.NDArray[np.uint8]

RESET_OPTIONS = ("task",)
"""The keys that `reset(options=...)` understands."""


class SokobanGridEnv(PlainSpec, gym.Env[Grid, int]):
    """Sokoban for numeric agents: `agentgym_flow/Sokoban-v0` with numeric observations and actions.

    ## Description
    Push every box onto a target. Boxes cannot be pulled. The levels, seeds, rules and state keys are those of the text
    environment: a seed or task number selects the same level in both, and the same moves give the same rewards and the
    same `state_key`. `gym.make_vec` creates a batch of boards that step together
    (`agentgym_flow.envs.sokoban.vector`). gym-sokoban's push-and-pull, fixed-target and two-player variants are not
    supported.

    ```python
    >>> import gymnasium as gym
    >>> import agentgym_flow
    >>> env = gym.make("agentgym_flow/SokobanGrid-v0")
    >>> observation, info = env.reset(seed=0)
    >>> observation.shape, observation.dtype
    ((6, 6), dtype('uint8'))
    >>> action = env.action_space.sample(info["action_mask"])
    >>> observation, reward, terminated, truncated, info = env.step(action)

    ```

    ## Action Space
    `Discrete(4)`: 0 up, 1 down, 2 left, 3 right. Walking into a wall or pushing a stuck box is allowed: it uses up a
    step and leaves the board unchanged. Any other action raises `BadAction`.

    ## Observation Space
    `Box(0, 6, (rows, columns), uint8)`: gym-sokoban's cell codes.

    | code | cell | code | cell |
    |---|---|---|---|
    | 0 | wall | 4 | box |
    | 1 | floor | 5 | player |
    | 2 | target | 6 | player on a target |
    | 3 | box on a target | | |

    ## Starting State
    The seed draws a level from the split, unless `reset(options={"task": k})` selects one.

    ## Rewards
    -0.1 for every step, +1 if a push brings one more box onto a target, -1 if it takes one off, and +10 for the last
    box. All rewards of a step are added.

    ## Episode End
    - Termination: every box is on a target.
    - Truncation: after `max_steps` steps without termination. The two are never true together.

    Calling `step` after the end raises `ResetNeeded`.

    ## Information
    | key | meaning |
    |---|---|
    | `task` (int), `task_key` (str) | the index of the level in the split, and its identity |
    | `state_key` (str) | the identity of the position within `task_key` |
    | `success` (bool), `score` (float) | whether every box is on a target; 1.0 or 0.0 |
    | `action_valid` (bool) | always True, because every action of the space is valid |
    | `deadlock` (bool) | the level is certainly lost |
    | `boxes_on_target` (int) | the number of boxes on a target |
    | `action_mask` (int8[4]) | 1 for each action that would change the board |

    ## Arguments
    Those of `agentgym_flow/Sokoban-v0`, except that all levels of `data` must have the same size, and:

    | argument | default | meaning |
    |---|---|---|
    | `info_keys` | `None` | the keys of `info` to return; None for all |

    Because all levels have one size, their task types differ only in the number of boxes.

    To play with the keys w, s, a and d, call `gymnasium.utils.play.play(env, wait_on_player=True)`.

    ## References
    - M.-P. B. Schrader, *gym-sokoban*, 2018: the rules, rewards and cell codes.

    ## Version History
    - v0: first version.

    Raises:
        BadSetting: an argument has an invalid value, or contradicts another argument.
        BadLevel: `level` or a level in `data` cannot be played.
        UnknownSplit: `split` is not a split.
        UnknownData: `data` is neither a path nor a registered name.
        BadData: `data` is missing, cannot be read, or differs from its registered digest.
        UnknownOption: `backend` or a key in `info_keys` is unknown.
        MissingExtra: `backend="gym-sokoban"` and the package is not installed.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}  # noqa: RUF012 (as gym.Env)

    def __init__(
        self,
        *,
        size: int | Sequence[int] = DEFAULT_SIZE,
        boxes: int = DEFAULT_BOXES,
        min_pushes: int = DEFAULT_MIN_PUSHES,
        level: str | None = None,
        data: str | os.PathLike[str] | None = None,
        skip_damaged: bool = False,
        backend: str = "native",
        split: str = "train",
        season: str = "",
        task_types: Sequence[str] | None = None,
        max_steps: int | None = None,
        info_keys: Sequence[str] | None = None,
        render_mode: str | None = None,
    ) -> None:
        levels: dict[str, Any] = {"size": size, "boxes": boxes, "min_pushes": min_pushes, "level": level}
        levels |= {"data": data, "skip_damaged": skip_damaged}
        self._source = LevelSource(**levels, split=split, season=season)
        self._among = tasks_of_types(task_types, **levels, split=split, season=season)
        check_backend(backend)
        self._backend = backend
        self.max_steps = check_positive("max_steps", self._source.default_max_steps if max_steps is None else max_steps)
        self._info_keys = check_info_keys(INFO_KEYS if info_keys is None else info_keys, INFO_KEYS)
        self.render_mode = check_render_mode(render_mode, self.metadata)
        self.observation_space, self.action_space = single_spaces(self._source)
        self.task: int = -1
        self.task_key: str = ""
        self.steps = 0
        self._playing = False

    @property
    def num_tasks(self) -> int:
        """The number of levels in this split."""
        return self._source.num_tasks

    @property
    def game(self) -> SokobanGame:
        """The level in play, to read only. Change it with `step`."""
        return self._game

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Grid, dict[str, Any]]:
        """Start an episode of the level that `seed` draws or `options={"task": k}` selects; return grid and `info`.

        Raises:
            UnknownOption: a key of `options` other than `"task"`.
            UnknownTask: the task is not an integer in `range(num_tasks)`.
        """
        super().reset(seed=seed)
        fixed = check_options(options, RESET_OPTIONS).get("task")
        self.task, _ = choose_task(self.np_random, seed, fixed, self.num_tasks, self._source.split, self._among)
        self._playing = False  # if the start fails, no step is possible
        level = self._source.level(self.task)
        self.task_key = self._source.task_key(level)
        self._game = SokobanGame(level, self._backend)
        self._codes = bytearray(cell_codes(level.cells, level.player))
        self.steps = 0
        self._playing = True
        return self._grid(), self._info()

    def step(self, action: int) -> tuple[Grid, float, bool, bool, dict[str, Any]]:
        """Apply an action index; return the grid, reward, terminated, truncated and `info`.

        Raises:
            BadAction: the action is not an integer from 0 to 3.
            ResetNeeded: the environment has not been reset, or the episode has ended.
        """
        if not self._playing:
            raise ResetNeeded("no episode is running: call reset() before step()")
        try:
            index = operator.index(action)
        except TypeError:  # a float, a word, an array
            index = -1
        if not 0 <= index < len(ACTIONS):
            raise BadAction(f"action {action!r} does not exist; 0 to 3 are: {', '.join(ACTIONS)}")
        board = self._game.board
        left = board.player
        reward, changed, solved = self._game.move(index)
        if changed:
            self._repaint(left)
        self.steps += 1
        truncated = not solved and self.steps >= self.max_steps
        self._playing = not (solved or truncated)
        return self._grid(), reward, solved, truncated, self._info()

    def _repaint(self, left: int) -> None:
        board, codes = self._game.board, self._codes
        codes[left] -= PLAYER_SHIFT
        if board.pushed_to >= 0:
            for cell in (board.player, board.pushed_to):
                codes[cell] = BOX_SWAP - codes[cell]
        codes[board.player] += PLAYER_SHIFT

    def _grid(self) -> Grid:
        return np.frombuffer(bytearray(self._codes), np.uint8).reshape(self._game.level.height, self._game.level.width)

    def _info(self) -> dict[str, Any]:
        return {key: _INFO[key](self) for key in self._info_keys}

    def action_mask(self) -> npt.NDArray[np.int8]:
        """Return a new `int8[4]` array: 1 for each action that would change the board."""
        board = self._game.board
        return np.array(effective_actions(board.cells, board.player, self._game.level.width), np.int8)

    def render(self) -> Any:
        """Return the board as in the text environment (`"ansi"`), or as a picture (`"rgb_array"`)."""
        if self.render_mode == "rgb_array":
            return rgb_frame(self._grid())
        if self.render_mode == "ansi":
            return board_text(self._codes, self._game.level.width)
        return None

    def get_keys_to_action(self) -> dict[tuple[str, ...], int]:
        """Return the keys for `gymnasium.utils.play.play(env, wait_on_player=True)`: w, s, a, d."""
        return {("w",): 0, ("s",): 1, ("a",): 2, ("d",): 3}


_INFO: dict[str, Callable[[SokobanGridEnv], Any]] = {
    "task": lambda env: env.task,
    "task_key": lambda env: env.task_key,
    "state_key": lambda env: env.game.state_key,
    "success": lambda env: env.game.board.solved,
    "score": lambda env: 1.0 if env.game.board.solved else 0.0,
    "action_valid": lambda env: True,
    "deadlock": lambda env: env.game.deadlock,
    "boxes_on_target": lambda env: env.game.board.boxes_on_target,
    "action_mask": lambda env: env.action_mask(),
}
INFO_KEYS = tuple(_INFO)
"""The keys of `info` of the numeric environments."""


def tasks_of_types(task_types: Sequence[str] | None, **levels: Any) -> npt.NDArray[np.int64] | None:
    """Return the tasks that seeds draw from, as the text environment chooses them; None for all."""
    return None if task_types is None else np.array(SokobanEnv(**levels, task_types=task_types).drawn_tasks, np.int64)


def single_spaces(source: LevelSource) -> tuple[spaces.Space[Any], spaces.Space[Any]]:
    """Return the observation and action space of one board. Raises `BadSetting` if the levels differ in size."""
    return spaces.Box(0, NUM_CODES - 1, source.shape, np.uint8), spaces.Discrete(len(ACTIONS))

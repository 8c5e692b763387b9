"""Sokoban as text: the board in, a word out."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from agentgym_flow.core import COMPAT_KEY, TextEnv, Transition
from agentgym_flow.envs.sokoban.codes import board_text, cell_codes, level_codes
from agentgym_flow.envs.sokoban.game import BACKENDS, SokobanGame, check_backend
from agentgym_flow.envs.sokoban.level import BOX, LLM_SYMBOLS, PLAYER, TARGET
from agentgym_flow.envs.sokoban.rules import ACTIONS, STEP_REWARD
from agentgym_flow.envs.sokoban.solver import SokobanExpert
from agentgym_flow.envs.sokoban.source import DEFAULT_BOXES, DEFAULT_MIN_PUSHES, DEFAULT_SIZE, ENV_ID, GOAL, LevelSource
from agentgym_flow.seeding import Stream
from agentgym_flow.settings import Integer, Items, OneOf, SeasonSeed, Setting, Text

_INDEX = {word: index for index, word in enumerate(ACTIONS)}
_STAND_IN = "*"  # for the one symbol outside ASCII, so that the canvas has one byte a character
_ASCII = bytearray(2 * PLAYER)
for _code, _symbol in LLM_SYMBOLS.items():
    _ASCII[_code] = ord(_symbol if _symbol.isascii() else _STAND_IN)
_ON_TARGET = LLM_SYMBOLS[TARGET | BOX]


class SokobanEnv(TextEnv):
    r"""Sokoban, played by a language model: push every box onto a target.

    ## Description
    A warehouse of square cells, seen from above. The player walks up, down, left and right, and pushes a box by walking
    into it when the cell behind is free. Boxes are never pulled, so a careless push can make a level impossible:
    planning ahead is the whole game. Dynamics and rewards are exactly those of gym-sokoban's four push actions, and
    `backend="gym-sokoban"` lets that package itself decide them. Its push-and-pull, fixed-target and two-player
    variants are not covered.

    ```python
    >>> import gymnasium as gym
    >>> import agentgym_flow
    >>> env = gym.make("agentgym_flow/Sokoban-v0", level="#####\n#@$.#\n#####")
    >>> observation, info = env.reset(seed=0)
    >>> print(observation)
    # # # # #
    # P X O #
    # # # # #
    >>> observation, reward, terminated, truncated, info = env.step("right")
    >>> print(observation)
    # # # # #
    # _ P √ #
    # # # # #
    >>> round(reward, 1), terminated, info["success"], info["state_key"]
    (10.9, True, True, 'end:success:solved')

    ```

    ## Action Space
    `UnicodeText`: one of the words `up`, `down`, `left`, `right`, in any case, white space around it ignored. Any other
    text is invalid: the board does not change, the step is counted and costs -0.1, and `info["action_valid"]` is False.
    There is no search for a word inside a longer text. Walking into a wall or pushing a stuck box is valid, and does
    the same to the board.

    ## Observation Space
    `UnicodeText`: the board, cells separated by one space and rows by a newline.

    | symbol | cell | symbol | cell |
    |---|---|---|---|
    | `#` | wall | `X` | box |
    | `_` | floor | `√` | box on a target |
    | `O` | target | `P` | player |
    | | | `S` | player on a target |

    ## Starting State
    The level that the seed draws from the split, or the one that `reset(options={"task": k})` names. Generated levels
    are solvable and need at least `min_pushes` pushes. The three splits share no level, rotated and mirrored ones
    included. Within a split, levels are drawn independently, and small boards have few: of the default 6x6 levels with
    one box, 472 of 500 in `valid`, 484 of 500 in `test` and 7,211 of 10,000 in `train` differ from all before them
    (with `min_pushes=3`, 464 and 470 in `valid` and `test`). Boards of 7x7 with two boxes hardly ever repeat.

    ## Rewards
    | event | reward |
    |---|---|
    | every step | -0.1 |
    | a push brings one more box onto a target | +1 |
    | a push takes a box off a target | -1 |
    | the last box comes home | +10 |

    The events of one step add up; the last push of a level gives 10.9. A box that slides from one target to an adjacent
    target gives only the -0.1. Boxes that start on a target are counted from the reset on (gym-sokoban counts from 0
    and would pay for them at the first step; neither generated nor Boxoban levels have any).

    ## Episode End
    - Termination: every box is on a target. A hopeless board is reported in `info["deadlock"]` and ends nothing.
    - Truncation: `max_steps` steps without that. The two never come together.

    A step after the end raises `ResetNeeded`.

    ## Information
    The contract keys of `agentgym_flow.core.TextEnv` (`task`, `task_key`, `task_type`, `goal`, `state_key`, `success`,
    `score`, `action_valid`, `admissible_actions`, `action_templates`), and:

    | key | meaning |
    |---|---|
    | `task_type` (str) | the shape of the level: rows, columns and boxes, such as `6x6, 1 box` |
    | `deadlock` (bool) | the level is certainly lost: a box is stuck off target for good |
    | `boxes_on_target` (int) | how many boxes stand on a target |
    | `compat_key` (str) | on request: the state as RewardFlow's code names it, the board |

    A `deadlock` of False is no promise: some lost positions are only found by searching. `state_key` is the positions
    of the boxes, `@`, and the player's, each two hexadecimal digits (row-major cell numbers); beyond 30 boxes a digest
    of them. On boards of more than 256 cells a box has four digits, and the digest begins beyond 14.

    ## Arguments
    | argument | default | meaning |
    |---|---|---|
    | `size` | `(6, 6)` | rows and columns of generated levels; an integer for a square |
    | `boxes` | `1` | boxes in a generated level |
    | `min_pushes` | `1` | fewest pushes that a generated level may need |
    | `level` | `None` | one level as text, the only task of every split |
    | `data` | `None` | a file or folder in Boxoban's format or in XSB, or the name of registered data |
    | `backend` | `"native"` | whose rules decide: ours, or `"gym-sokoban"` (extra `sokoban`) |
    | `split` | `"train"` | `"train"`, `"valid"` or `"test"` |
    | `season` | `""` | the seed of a season: other generated test levels of the same kind, see "Seasons" in the docs |
    | `task_types` | `None` | `reset(seed=...)` draws only tasks of these types, a list; None for all |
    | `max_steps` | `None` | the step budget; None for 20 up to 6x6, 50 up to 7x7 and 200 beyond |
    | `render_mode` | `None` | `"ansi"` (the board) or `"rgb_array"` |

    `level` may use the symbols of XSB (`# @ + $ * .`; floor is a space, `-` or `_`; also run-length encoded) or those
    above. Files may be collections of XSB with titles and remarks between the boards. Data are registered with
    `agentgym-flow data add NAME PATH`; the tasks are the levels in file order. If a folder has sub-folders named after
    splits, the split picks one of them. A file or folder in a folder named after a split is of that split; any other is
    of the split `test`. Of the Boxoban repository, give one collection such as `unfiltered`: the whole is refused.
    `size`, `boxes` and `min_pushes` describe generated levels and are refused beside `level` or `data`.

    ## References
    - M.-P. B. Schrader, *gym-sokoban*, 2018: the rules and rewards.
    - S. Racanière et al., *Imagination-Augmented Agents for Deep Reinforcement Learning*, NeurIPS 2017: the scheme of
      the rewards.
    - A. Guez et al., *An investigation of model-free planning*, ICML 2019: the Boxoban levels.

    ## Version History
    - v0: first version.

    Raises:
        BadSetting: an argument has a value that cannot work, or contradicts another.
        BadLevel: `level` or a level in `data` cannot be played.
        UnknownSplit, UnknownData, BadData: as their names say.
        UnknownOption: an unknown backend.
        MissingExtra: gym-sokoban was asked for and is not installed.
    """

    env_id: ClassVar[str] = ENV_ID
    train_config = "sokoban_tiny"
    script = "agentgym_flow.envs.sokoban.scripted:GreedyPusher"
    optional_info: ClassVar[tuple[str, ...]] = (COMPAT_KEY,)
    metadata: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}  # noqa: RUF012 (as gym.Env)
    presentation_settings: ClassVar[frozenset[str]] = frozenset({"backend"})
    logged_settings: ClassVar[Mapping[str, Setting]] = {
        "size": Items(Integer(3, 255), 2, 2),
        "boxes": Integer(1, 255),
        "min_pushes": Integer(1, 1 << 16),
        "level": Text(),
        "backend": OneOf(*BACKENDS),
        "season": SeasonSeed(),
    }

    def __init__(
        self,
        *,
        size: int | Sequence[int] = DEFAULT_SIZE,
        boxes: int = DEFAULT_BOXES,
        min_pushes: int = DEFAULT_MIN_PUSHES,
        level: str | None = None,
        data: str | os.PathLike[str] | None = None,
        backend: str = "native",
        split: str = "train",
        season: str = "",
        task_types: Sequence[str] | None = None,
        max_steps: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        source = LevelSource(
            size=size, boxes=boxes, min_pushes=min_pushes, level=level, data=data, split=split, season=season
        )
        check_backend(backend)
        super().__init__(
            split=split,
            max_steps=source.default_max_steps if max_steps is None else max_steps,
            settings={**source.settings, "backend": backend},
            data=source.data,
            season=season,
            render_mode=render_mode,
        )
        self._source = source
        self._backend = backend
        self.goal = GOAL
        self.draw_only(task_types)

    @property
    def num_tasks(self) -> int:
        """The number of levels in this split."""
        return self._source.num_tasks

    def task_type_of(self, task: int) -> str:
        """Return the shape of a level: rows, columns and boxes, such as `"6x6, 1 box"`."""
        return self._source.task_type(task)

    @property
    def game(self) -> SokobanGame:
        """The level in play. For looking at; `step` is the way to change it."""
        return self._game

    def _begin(self, task: int, noise: Stream, options: Mapping[str, Any]) -> str:
        level = self._source.level(task)
        self.task_key = self._source.task_key(level)
        self._game = SokobanGame(level, self._backend)
        self._expert = SokobanExpert(level)
        text = board_text(level_codes(level), level.width)
        self._canvas = bytearray(text.replace(_ON_TARGET, _STAND_IN).encode("ascii"))
        self._observation = self._read_canvas()
        self._pushed = False
        return self._observation

    def _apply(self, action: str) -> Transition:
        index = _INDEX.get(action)
        if index is None:
            index = _INDEX.get(action.strip().lower())
            if index is None:
                return Transition(self._observation, STEP_REWARD, False, False)
        left = self._game.board.player
        reward, changed, solved = self._game.move(index)
        if changed:
            self._repaint(left)
        return Transition(self._observation, reward, solved, True)

    def _repaint(self, left: int) -> None:
        """Bring the text up to date after the player left the cell `left`.

        A move changes at most three cells. Patching those in a canvas of one byte a character, and decoding it whole,
        is what makes a text step cheap.
        """
        board, canvas = self._game.board, self._canvas
        cells, player, pushed_to = board.cells, board.player, board.pushed_to
        canvas[2 * left] = _ASCII[cells[left]]
        canvas[2 * player] = _ASCII[cells[player] | PLAYER]
        if pushed_to >= 0:
            canvas[2 * pushed_to] = _ASCII[cells[pushed_to]]
            self._pushed = True
        self._observation = self._read_canvas()

    def _read_canvas(self) -> str:
        text = self._canvas.decode("ascii")
        return text.replace(_STAND_IN, _ON_TARGET) if self._game.board.boxes_on_target else text

    def state_key(self) -> str:
        """Return the positions of the boxes and the player; one key for all solved boards."""
        return self._game.state_key()

    def describe_state(self) -> str:
        """Return the board, and under it how many boxes are home and whether the position is known to be lost."""
        game = self._game
        note = "; deadlocked" if game.deadlock else ""
        return f"{self._observation}\n{game.board.boxes_on_target} of {len(game.boxes)} boxes on target{note}"

    def score(self) -> float:
        """Return 1.0 when every box is on a target, else 0.0."""
        return 1.0 if self._game.board.solved else 0.0

    def admissible_actions(self) -> list[str]:
        """Return the four words."""
        return [*ACTIONS]

    def sample_action(self, rng: Stream) -> str:
        """Return one of the four words, uniformly."""
        return rng.choice(ACTIONS)

    def expert_action(self) -> str | None:
        """Return the next move of a push-optimal solution from here, or None when there is none."""
        return self._expert.next(self._game.board.player, self._game.boxes)

    def _requested_info(self, key: str) -> str:
        """Return the state as RewardFlow names it: the board, as text where its code takes the picture."""
        return self._observation

    @classmethod
    def end_figures(cls, observation: str) -> dict[str, float]:
        """Return how many boxes stand on a target."""
        return {"boxes_on_target": float(observation.count(_ON_TARGET))}

    def _renewed_info(self, kept: dict[str, Any]) -> dict[str, Any]:
        game = self._game
        if self._pushed:  # a walk changes none of these
            kept.update(self._extra_info(), success=game.board.solved, score=self.score())
            self._pushed = False
        info = kept.copy()
        info["state_key"] = game.state_key()
        info["admissible_actions"] = [*ACTIONS]
        info["action_templates"] = []
        return info

    def _extra_info(self) -> dict[str, Any]:
        return {"deadlock": self._game.deadlock, "boxes_on_target": self._game.board.boxes_on_target}

    def render(self) -> Any:
        """Return the board as text (`"ansi"`; `Level.parse` reads it back) or as a picture (`"rgb_array"`)."""
        if self.render_mode == "ansi":
            return self._observation
        if self.render_mode == "rgb_array":
            from agentgym_flow.envs.sokoban.render import rgb_frame

            level, board = self._game.level, self._game.board
            return rgb_frame(cell_codes(board.cells, board.player).reshape(level.height, level.width))
        return None

"""The prompts of Sokoban: the text prompt of a language model, and the word-token prompt of the tiny policy.

The compact prompt is computed from the board as text and from the actions that the episode has already taken on the
same board. Hand-made features precede the board, because a small causal model can relate a cell only to earlier tokens:

1. the offset from the player to the focus box (rows down, columns right),
2. the offset from the focus box to its target,
3. the symbols of the four neighbours of the player (up, down, left, right),
4. the symbols of the four neighbours of the focus box,
5. for each of the four sides of the focus box (above, below, left, right), the first step of a shortest walk there:
   an action, `go` if the player is there, or `#` if no walk without a push leads there,
6. the absolute cells of player, focus box and target,
7. the actions that the episode has already taken on the same board, as one word. These actions led back to the board.
   Without this memory, a policy that always takes its most likely action walks in circles.

The fifth feature is the most informative: it finds the way around walls, but does not tell from which side to push.
After the features follow the cells inside the border, row by row, and the word `go`. If there are several boxes, the
focus box is the nearest one that is not on a target, by distance without obstacles. So the prompt works for any board,
including boards of other sizes than in training.

The template `compact-turned` shows one of the board's rotations and mirror images: the one in which the target lies as
far to the right of the focus box as possible, then as far below it, then the box likewise from the player; the text of
the board decides among the rest. Directions are those of the turned board, in the prompt and in the completion.
Symmetric boards have equal prompts, so there are eight times fewer situations to learn.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import NamedTuple

from agentgym_flow.envs.sokoban import level as codes
from agentgym_flow.envs.sokoban.level import ACTIONS, LLM_SYMBOLS
from agentgym_flow.errors import BadLevel
from agentgym_flow.prompts import (
    ChoiceTemplate,
    Message,
    PromptContext,
    PromptTemplate,
    TextTemplate,
    Tool,
    without_thoughts,
)

# The symbols of the observation.
OUTSIDE, TARGET = LLM_SYMBOLS[codes.WALL], LLM_SYMBOLS[codes.TARGET]
BOX, BOX_ON_TARGET = LLM_SYMBOLS[codes.BOX], LLM_SYMBOLS[codes.TARGET | codes.BOX]
PLAYER, PLAYER_ON_TARGET = LLM_SYMBOLS[codes.PLAYER], LLM_SYMBOLS[codes.TARGET | codes.PLAYER]
WALKABLE = (LLM_SYMBOLS[0], TARGET)
SYMBOLS = tuple(LLM_SYMBOLS.values())
_NAMED = {
    "You": (PLAYER, PLAYER_ON_TARGET),
    "Boxes": (BOX, BOX_ON_TARGET),
    "Targets": (TARGET, BOX_ON_TARGET, PLAYER_ON_TARGET),
}

REACH = 9
"""The limit to which offsets and coordinates are clipped (a Boxoban board is 10 by 10)."""

TRIED = tuple(
    "tried:" + "+".join(action for bit, action in enumerate(ACTIONS) if taken >> bit & 1)
    for taken in range(1 << len(ACTIONS))
)
"""The words for sets of earlier actions: bit i of the index stands for `ACTIONS[i]`."""

VOCABULARY = (
    *ACTIONS,
    "go",
    *TRIED,
    *SYMBOLS,
    *(f"{offset:+d}" for offset in range(-REACH, REACH + 1)),
    *(f"{row},{column}" for row in range(REACH + 1) for column in range(REACH + 1)),
)
"""All words of compact prompts and their completions."""

RULES = """You play Sokoban: push every box onto a target.
The board is drawn row by row with these symbols:
# wall, _ floor, O target, X box, √ box on a target, P you, S you on a target.
An action moves you one cell up, down, left or right. Walking into a box pushes it one cell further if the cell behind
it holds neither a wall nor a box; boxes cannot be pulled, so a box pushed into a corner off target is lost.
A move into a wall changes nothing."""

Cell = tuple[int, int]

Symmetry = tuple[bool, bool, bool]
"""A symmetry of a square: whether rows and columns are swapped, then rows are reversed, then columns are reversed."""


class SokobanCompactPrompt:
    """The prompt of the tiny policy: words of `VOCABULARY` separated by spaces; the completion is one of `ACTIONS`.

    20 words of features, the cells inside the border, and `go`: 37 words on a 6 by 6 board, 85 on a 10 by 10 one.

    Args:
        turned: show every board in the rotation or mirror image that is described above, as the template
            `compact-turned`.
    """

    vocabulary = VOCABULARY

    def __init__(self, *, turned: bool = False) -> None:
        self.turned = turned
        self.name = "compact-turned" if turned else "compact"

    def prompt(self, policy_input: PromptContext) -> str:
        """Return the words for the present observation. Raises `BadLevel` if it is not a Sokoban board."""
        now = policy_input.observation
        tried = frozenset(turn.action for turn in policy_input.episode.turns if turn.observation == now)
        return compact_prompt(now, tried, self.turned)

    def messages(self, policy_input: PromptContext) -> list[Message]:
        """Return the prompt as one user message."""
        return [{"role": "user", "content": self.prompt(policy_input)}]

    def parse_action(self, completion: str, policy_input: PromptContext) -> str:
        """Return the completion without thoughts and white space around it; on a turned board, the action it means."""
        word = without_thoughts(completion).strip()
        return _view(policy_input.observation, True).meant.get(word, word) if self.turned else word

    def format_action(self, action: str, policy_input: PromptContext) -> str | None:
        """Return the word for the action on the board as shown; None if it would be parsed differently."""
        word = _view(policy_input.observation, True).shown.get(action, action) if self.turned else action
        return word if self.parse_action(word, policy_input) == action else None


@dataclass(frozen=True, slots=True)
class SokobanText(TextTemplate):
    """The text prompt.

    Attributes:
        names_cells: name the cells of you, the boxes and the targets under the board, as row and column counted from 0
            at the top left.
    """

    names_cells: bool = False

    def _seen(self, policy_input: PromptContext) -> str:
        board = policy_input.observation
        if not self.names_cells:
            return board
        rows = [row.split() for row in board.splitlines()]
        cells = [(symbol, f"{r},{c}") for r, row in enumerate(rows) for c, symbol in enumerate(row)]
        said = (
            f"{name}: {' '.join(cell for symbol, cell in cells if symbol in symbols)}."
            for name, symbols in _NAMED.items()
        )
        return f"{board}\n{' '.join(said)}"


@lru_cache(maxsize=1 << 16)
def compact_prompt(observation: str, tried: frozenset[str] = frozenset(), turned: bool = False) -> str:
    """Return the compact prompt of a board in the symbols of the text environment.

    `tried` contains the earlier actions on this board; texts that are not in `ACTIONS` are ignored. See
    `SokobanCompactPrompt` for `turned`.

    Raises `BadLevel` unless the text is a rectangle with one player, at least one box and as many targets as boxes.
    """
    board, player, box, target, shown, _ = _view(observation, turned)
    taken = {shown.get(action) for action in tried}
    words = [
        *_offset(player, box),
        *_offset(box, target),
        *_neighbours(board, player),
        *_neighbours(board, box),
        *_first_steps(board, player, box),
        *(f"{min(row, REACH)},{min(column, REACH)}" for row, column in (player, box, target)),
        TRIED[sum(1 << bit for bit, action in enumerate(ACTIONS) if action in taken)],
        *(symbol for row in board[1:-1] for symbol in row[1:-1]),
        "go",
    ]
    return " ".join(words)


class _View(NamedTuple):
    """A board as a prompt shows it, with the three cells in focus, and the words of actions in both directions."""

    board: list[list[str]]
    player: Cell
    box: Cell
    target: Cell
    shown: dict[str, str]
    meant: dict[str, str]


@lru_cache(maxsize=1 << 16)
def _view(observation: str, turned: bool) -> _View:
    """Return a board unchanged or turned as the head of this file says; other than square ones are only mirrored."""
    board = [row.split() for row in observation.splitlines()]
    cells = _focus(board)
    symmetries = (
        [one for one in _SYMMETRIES if len(board) == len(board[0]) or not one[0]] if turned else _SYMMETRIES[:1]
    )
    return max((_seen(board, cells, symmetry) for symmetry in symmetries), key=_order)


def _seen(board: list[list[str]], cells: tuple[Cell, Cell, Cell], symmetry: Symmetry) -> _View:
    swapped, rows_reversed, columns_reversed = symmetry
    rows = [list(row) for row in zip(*board, strict=True)] if swapped else board
    rows = rows[::-1] if rows_reversed else rows
    player, box, target = (_moved(cell, symmetry, len(board), len(board[0])) for cell in cells)
    shown = _WORDS[symmetry]
    meant = {word: action for action, word in shown.items()}
    return _View([row[::-1] for row in rows] if columns_reversed else rows, player, box, target, shown, meant)


def _order(view: _View) -> tuple[int, int, int, int, list[list[str]]]:
    (y, x), (box_y, box_x), (target_y, target_x) = view.player, view.box, view.target
    return target_x - box_x, target_y - box_y, box_x - x, box_y - y, view.board


def _moved(cell: Cell, symmetry: Symmetry, height: int, width: int) -> Cell:
    y, x = cell
    swapped, rows_reversed, columns_reversed = symmetry
    if swapped:
        y, x, height, width = x, y, width, height
    return height - 1 - y if rows_reversed else y, width - 1 - x if columns_reversed else x


def _focus(board: list[list[str]]) -> tuple[Cell, Cell, Cell]:
    """Return the cells of the player, of the nearest box off target, and of the nearest free target to that box.

    Distances are in rows plus columns; in a tie, the first in reading order wins. On a solved board both are the first
    box.
    """
    where: dict[str, list[Cell]] = {symbol: [] for symbol in SYMBOLS}
    try:
        for y, row in enumerate(board):
            for x, symbol in enumerate(row):
                where[symbol].append((y, x))
    except KeyError as error:
        raise BadLevel(f"a Sokoban observation has the symbols {' '.join(SYMBOLS)}, found {error.args[0]!r}") from None
    players = where[PLAYER] + where[PLAYER_ON_TARGET]
    free = sorted(where[TARGET] + where[PLAYER_ON_TARGET])
    loose, done = where[BOX], where[BOX_ON_TARGET]
    if len({len(row) for row in board}) != 1 or len(players) != 1 or len(free) != len(loose) or not loose + done:
        raise BadLevel("a Sokoban observation is a rectangle with one player, boxes and as many targets as boxes")
    player = players[0]
    if not loose:
        return player, done[0], done[0]
    box = min(loose, key=lambda cell: _distance(player, cell))
    return player, box, min(free, key=lambda cell: _distance(box, cell))


def _distance(a: Cell, b: Cell) -> int:
    return abs(a[0] - b[0]) + abs(a[1] - b[1])


def _offset(start: Cell, end: Cell) -> list[str]:
    return [f"{max(-REACH, min(REACH, b - a)):+d}" for a, b in zip(start, end, strict=True)]


def _around(cell: Cell) -> tuple[Cell, ...]:
    """Return the four neighbours of a cell, in the order of `ACTIONS`."""
    y, x = cell
    return (y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)


_SYMMETRIES: list[Symmetry] = list(product((False, True), (False, True), (False, True)))  # the first changes nothing
_STEPS = dict(zip(_around((0, 0)), ACTIONS, strict=True))
_WORDS = {one: {action: _STEPS[_moved(step, one, 1, 1)] for step, action in _STEPS.items()} for one in _SYMMETRIES}
"""For each symmetry, the word of every action on the turned board."""


def _neighbours(board: list[list[str]], cell: Cell) -> list[str]:
    return [board[r][c] if 0 <= r < len(board) and 0 <= c < len(board[0]) else OUTSIDE for r, c in _around(cell)]


def _first_steps(board: list[list[str]], player: Cell, box: Cell) -> list[str]:
    """Return for each side of the box the first action of a shortest walk there (feature 5)."""
    first = {player: "go"}
    reached = deque([player])
    while reached:
        cell = reached.popleft()
        for action, following in zip(ACTIONS, _around(cell), strict=True):
            y, x = following
            if following not in first and 0 <= y < len(board) and 0 <= x < len(board[0]) and board[y][x] in WALKABLE:
                first[following] = action if cell == player else first[cell]
                reached.append(following)
    return [first.get(side, OUTSIDE) for side in _around(box)]


PROMPT_TEMPLATES: dict[str, PromptTemplate] = {
    "text": SokobanText(rules=RULES),
    "choice": ChoiceTemplate(rules=RULES),
    "compact": SokobanCompactPrompt(),
    "compact-turned": SokobanCompactPrompt(turned=True),
}
"""The prompt templates of Sokoban by name."""

TOOLS = {
    "move": Tool(
        "Move one cell. Walking into a box pushes it.",
        {"direction": {"type": "string", "enum": list(ACTIONS)}},
        lambda given: str(given["direction"]),
    )
}
"""The tools of Sokoban by name."""

"""Where games come from: generated ones, or official files on disk; by number, by path, by type."""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, SupportsIndex, cast

from agentgym_flow import data as registry
from agentgym_flow.core import check_season, check_split
from agentgym_flow.data import DataSet
from agentgym_flow.envs.alfworld import tasks
from agentgym_flow.envs.alfworld.compiled import kept_or_compiled
from agentgym_flow.envs.alfworld.compiled_game import CompiledGame, compile_game
from agentgym_flow.envs.alfworld.gamefile import GAME_FILE, content_of, game_in, game_json
from agentgym_flow.envs.alfworld.goal import TASK_TYPES
from agentgym_flow.envs.alfworld.grammar import Words
from agentgym_flow.envs.alfworld.official import Games, find_games
from agentgym_flow.envs.alfworld.pddl import PDDLProblem
from agentgym_flow.errors import BadSetting, UnknownOption, UnknownTask
from agentgym_flow.seeding import seasonal, stable_hash

ENV_ID = "agentgym_flow/ALFWorld-v0"
"""The id of the text face; all faces share its task keys and its draws."""

SPLIT_ALIASES = {
    "valid_seen": "valid",
    "valid_unseen": "test",
    "eval_in_distribution": "valid",
    "eval_out_of_distribution": "test",
    "valid_train": "valid_train",
}
"""The official names of the splits, as the data and the original's own tools call them.

`valid_train` is a fourth split; only official data have it.
"""


class Task(NamedTuple):
    """A game made ready to be played.

    Attributes:
        game: the compiled game.
        content: the identity of what is played, the wording left out.
    """

    game: CompiledGame
    content: str


class GameSource:
    """The games of one split. Immutable, so copies of an environment share it.

    Args:
        data: official games, as `official.find_games` finds them; the name of registered data; `"alfworld"` for what
            `ALFWORLD_DATA` announces; None for generated games.
        split: `"train"`, `"valid"` or `"test"`, or an official name.
        season: the seed of a season of generated test games; `""` for the standard ones.

    Attributes:
        split: the split.
        season: the season.
        num_tasks: the number of games in it.
        data: name -> SHA-256 of the official games of the split.

    Raises:
        UnknownSplit, UnknownData, BadData: as their names say; also `BadData` when there is no game for the split.
    """

    def __init__(
        self, *, data: str | os.PathLike[str] | DataSet | None = None, split: str = "train", season: str = ""
    ) -> None:
        self.split = check_split(split, SPLIT_ALIASES)
        self.season = check_season(season, self.split, "" if data is None else "data")
        self.data: dict[str, str] = {}
        self._found: Path | None = None
        self._games = Games(Path(), Path(), (), "")
        if data is None:
            self.num_tasks = tasks.num_tasks(self.split)
            return
        found = registry.resolve(data)
        self._found = found.path
        self._games = find_games(found.path, self.split)
        self.data = {found.name: self._games.digest}
        self.num_tasks = len(self._games.names)

    def __copy__(self) -> GameSource:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> GameSource:
        return self

    def task(self, number: int) -> Task:
        """Return game number `number` of the split, compiled. Raises `BadGame` when its file cannot be read."""
        if not self.data:
            return _generated(self.split, number, self.season)
        [digest] = self.data.values()
        return _official(self._path(number), digest, registry.may_cache())

    def for_original(self, number: int) -> dict[str, Any]:
        """Return what the file of a game holds; of a generated game, what its file would hold."""
        if not self.data:
            return game_json(*tasks.task_problem(self.split, number, self.season), ())
        return dict(json.loads(self._path(number).read_text("utf-8")))

    def _path(self, number: int) -> Path:
        return self._games.top / self._games.names[number]

    def file(self, number: int) -> str | None:
        """Return the path of a game below the folder of all splits; None for a generated one."""
        return self._games.names[number] if self.data else None

    def number_of(self, game_file: object) -> int:
        """Return the number of the game at a path.

        The path is absolute, or relative to the current folder, to the data, to the folder of all splits or to that of
        the split. The folder of a `game.tw-pddl` stands for it. Raises `UnknownTask` when this split has no such game.
        """
        if self._found is None:
            raise BadSetting(
                "game_file names an official game, and these are generated; make an environment with data="
            )
        wanted = Path(os.fspath(game_file)) if isinstance(game_file, (str, os.PathLike)) else Path(repr(game_file))
        names = self._games.names
        bases = (Path.cwd(), self._found, self._games.top, self._games.folder)
        places = dict.fromkeys(base / wanted for base in bases)
        found = {name for place in places for name in _names_below(self._games.top, place) if name in names}
        if len(found) == 1:
            return names.index(found.pop())
        if found:
            raise UnknownTask(f"{str(wanted)!r:.200} may be any of {', '.join(sorted(found))}; name one of them")
        raise UnknownTask(
            f"{str(wanted)!r:.200} is none of the {self.num_tasks} games of split {self.split!r}; "
            f"the first of them is {names[0]!r}"
        )

    def task_type(self, number: int) -> str:
        """Return which of the six types a game has. Raises `BadGame` if its file is needed and cannot be read."""
        if not self.data:
            return tasks.task_type(self.split, number, self.season)
        return _type_of_file(self._games.top, self._games.names[number], self._games.digest)

    def tasks_of_type(self, task_type: object) -> Sequence[int]:
        """Return the numbers of the games of a type, given by name or by its official number from 1 to 6.

        Raises:
            UnknownOption: there is no such type.
            UnknownTask: the split has no game of it.
        """
        try:
            number = operator.index(cast("SupportsIndex", task_type))
        except TypeError:  # a name, or nothing that is known
            number = TASK_TYPES.index(task_type) + 1 if task_type in TASK_TYPES else 0
        if isinstance(task_type, bool) or not 1 <= number <= len(TASK_TYPES):
            raise UnknownOption.among(task_type, TASK_TYPES, "Or a number from 1 to 6.")
        name = TASK_TYPES[number - 1]
        found = self._by_type().get(name, ())
        if not found:
            raise UnknownTask(f"split {self.split!r} has no game of type {name!r}")
        return found

    def _by_type(self) -> Mapping[str, Sequence[int]]:
        if not self.data:
            return _generated_by_type(self.split, self.season)
        return _official_by_type(self._games)


def _names_below(base: Path, path: Path) -> Iterator[str]:
    """Yield the names that a path can have below a folder: as it is written, and with all links followed."""
    try:
        path = path / GAME_FILE if path.is_dir() else path
        for root, file in ((base, path), (base.resolve(), path.resolve())):
            if file.is_relative_to(root):
                yield file.relative_to(root).as_posix()
    except (OSError, ValueError):  # no file can have this name
        return


# Shared by all environments of the process: a compiled game takes about 50 kB.
@lru_cache(maxsize=512)
def _generated(split: str, number: int, season: str) -> Task:
    return _prepared(*tasks.task_problem(split, number, season), f"task {number} of {seasonal(split, season)}")


@lru_cache(maxsize=512)
def _official(path: Path, digest: str, may_cache: bool) -> Task:
    """Return a game of a file. `may_cache` keeps apart what was read where the cache on disk must not be used."""
    content = content_of(path)

    def compile_it() -> Task:
        read = game_in(content, str(path))
        return _prepared(read.problem, read.words, str(path))

    return Task(*kept_or_compiled(content, compile_it))


def _prepared(problem: PDDLProblem, words: Words, where: str) -> Task:
    # Of the wording only what decides which commands there are.
    content = stable_hash([sorted(problem.facts), problem.goal, words.put, words.help is not None])
    return Task(compile_game(problem, words, where), content)


@lru_cache(maxsize=8)
def _generated_by_type(split: str, season: str) -> Mapping[str, Sequence[int]]:
    by_type: dict[str, list[int]] = {}
    for number in range(tasks.num_tasks(split)):
        by_type.setdefault(tasks.task_type(split, number, season), []).append(number)
    return by_type


@lru_cache(maxsize=8)
def _official_by_type(games: Games) -> Mapping[str, Sequence[int]]:
    by_type: dict[str, list[int]] = {}
    for number, name in enumerate(games.names):
        by_type.setdefault(_type_of_file(games.top, name, games.digest), []).append(number)
    return by_type


@lru_cache(maxsize=1 << 13)
def _type_of_file(top: Path, name: str, digest: str) -> str:
    """Return the task type of an official game: its folder begins with it, else its goal says it."""
    for part in Path(name).parts:
        if part.partition("-")[0] in TASK_TYPES:
            return part.partition("-")[0]
    return _official(top / name, digest, registry.may_cache()).game.goal.task_type

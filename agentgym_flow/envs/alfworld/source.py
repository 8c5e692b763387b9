"""The games of all ALFWorld environments, generated or from official files, selected by number, path or type."""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, SupportsIndex, cast

from agentgym_flow import data as registry
from agentgym_flow.core import check_season, check_split, seasonal, stable_hash
from agentgym_flow.data import DataSet
from agentgym_flow.envs.alfworld import tasks
from agentgym_flow.envs.alfworld.compiled import kept_or_compiled
from agentgym_flow.envs.alfworld.compiled_game import CompiledGame, compile_game
from agentgym_flow.envs.alfworld.gamefile import GAME_FILE, content_of, game_in, game_json
from agentgym_flow.envs.alfworld.goal import TASK_TYPES
from agentgym_flow.envs.alfworld.grammar import Words
from agentgym_flow.envs.alfworld.official import VERSION, Games, find_games
from agentgym_flow.envs.alfworld.pddl import PDDLProblem
from agentgym_flow.errors import BadSetting, UnknownOption, UnknownTask

ENV_ID = "agentgym_flow/ALFWorld-v0"
"""The id of the text environment. All ALFWorld environments have its task keys and draw the same tasks."""

SPLIT_ALIASES = {
    "valid_seen": "valid",
    "valid_unseen": "test",
    "eval_in_distribution": "valid",
    "eval_out_of_distribution": "test",
    "valid_train": "valid_train",
}
"""The official names of the splits in the data and in ALFWorld's tools.

`valid_train` is a fourth split of official data.
"""


class Task(NamedTuple):
    """A game that is ready to be played.

    Attributes:
        game: the compiled game.
        content: the identity of the game without its wording.
    """

    game: CompiledGame
    content: str


class GameSource:
    """The games of one split. Immutable, so copies of an environment share it.

    Args:
        data: the path of official games (see `official.find_games`), the name of registered data, `"alfworld"` for the
            folder in `ALFWORLD_DATA`, or None for generated games.
        split: `"train"`, `"valid"` or `"test"`, or an official name.
        season: the seed of a season of generated test games; `""` for the standard games.

    Attributes:
        split: the split.
        season: the season.
        num_tasks: the number of games in the split.
        data: name -> SHA-256 of the official games of the split.

    Raises:
        UnknownSplit: `split` is not a split.
        UnknownData: `data` is neither a path nor a registered name.
        BadData: `data` cannot be read, or has no game of the split.
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

    def task(self, number: int) -> Task:
        """Return the compiled game with this number. Raises `BadGame` if its file cannot be read."""
        if not self.data:
            return _generated(self.split, number, self.season)
        [digest] = self.data.values()
        return _official(self._path(number), digest, registry.may_cache())

    def for_original(self, number: int) -> dict[str, Any]:
        """Return the content of a game file, for a generated game as it would be exported."""
        if not self.data:
            return game_json(*tasks.task_problem(self.split, number, self.season), ())
        return dict(json.loads(self._path(number).read_text("utf-8")))

    def _path(self, number: int) -> Path:
        return self._games.top / self._games.names[number]

    def file(self, number: int) -> str | None:
        """Return the path of a game relative to the folder of all splits; None for a generated game."""
        return self._games.names[number] if self.data else None

    def number_of(self, game_file: object) -> int:
        """Return the number of the game at a path.

        The path is absolute, or relative to the current folder, the data, the folder of all splits, or the folder of
        the split. As in published lists, it may begin with `json_2.1.1/`, whatever the folder of all splits is called.
        It can be the folder of a `game.tw-pddl`. Raises `UnknownTask` if the split has no such game.
        """
        if self._found is None:
            raise BadSetting(
                "game_file names an official game, and these are generated; make an environment with data="
            )
        wanted = Path(os.fspath(game_file)) if isinstance(game_file, (str, os.PathLike)) else Path(repr(game_file))
        names = self._games.names
        bases = (Path.cwd(), self._found, self._games.top, self._games.folder)
        places = dict.fromkeys(base / wanted for base in bases)
        if wanted.parts[:1] == (VERSION,):
            places[self._games.top / wanted.relative_to(VERSION)] = None
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
        """Return the task type of a game. Raises `BadGame` if its file is needed and cannot be read."""
        if not self.data:
            return tasks.task_type(self.split, number, self.season)
        return _type_of_file(self._games.top, self._games.names[number], self._games.digest)

    def tasks_of_type(self, task_type: object) -> Sequence[int]:
        """Return the numbers of the games of a type, given by name or by its official number from 1 to 6.

        Raises:
            UnknownOption: the type is unknown.
            UnknownTask: the split has no game of this type.
        """
        try:
            number = operator.index(cast("SupportsIndex", task_type))
        except TypeError:  # not a number
            number = TASK_TYPES.index(task_type) + 1 if task_type in TASK_TYPES else 0
        if isinstance(task_type, bool) or not 1 <= number <= len(TASK_TYPES):
            raise UnknownOption.among(task_type, TASK_TYPES, "Or a number from 1 to 6.")
        name = TASK_TYPES[number - 1]
        found = (_official_by_type(self._games) if self.data else _generated_by_type(self.split, self.season)).get(name)
        if not found:
            raise UnknownTask(f"split {self.split!r} has no game of type {name!r}")
        return found


def _names_below(base: Path, path: Path) -> Iterator[str]:
    """Yield the possible names of a path below a folder: as written, and with all links resolved."""
    try:
        path = path / GAME_FILE if path.is_dir() else path
        for root, file in ((base, path), (base.resolve(), path.resolve())):
            if file.is_relative_to(root):
                yield file.relative_to(root).as_posix()
    except (OSError, ValueError):  # not a valid path
        return


# Shared by all environments of the process. A compiled game takes about 50 kB.
@lru_cache(maxsize=512)
def _generated(split: str, number: int, season: str) -> Task:
    return _prepared(*tasks.task_problem(split, number, season), f"task {number} of {seasonal(split, season)}")


@lru_cache(maxsize=512)
def _official(path: Path, digest: str, may_cache: bool) -> Task:
    """Return the game of a file. `may_cache` separates results that must not come from the cache on disk."""
    content = content_of(path)

    def compile_it() -> Task:
        read = game_in(content, str(path))
        return _prepared(read.problem, read.words, str(path))

    return Task(*kept_or_compiled(content, compile_it))


def _prepared(problem: PDDLProblem, words: Words, where: str) -> Task:
    # Of the wording, only the parts that affect commands.
    content = stable_hash([sorted(problem.facts), problem.goal, words.put, words.help is not None])
    return Task(compile_game(problem, words, where), content)


@lru_cache(maxsize=8)
def _generated_by_type(split: str, season: str) -> Mapping[str, Sequence[int]]:
    return _numbers_by_type(tasks.task_type(split, number, season) for number in range(tasks.num_tasks(split)))


@lru_cache(maxsize=8)
def _official_by_type(games: Games) -> Mapping[str, Sequence[int]]:
    return _numbers_by_type(_type_of_file(games.top, name, games.digest) for name in games.names)


def _numbers_by_type(types: Iterable[str]) -> Mapping[str, Sequence[int]]:
    by_type: dict[str, list[int]] = {}
    for number, task_type in enumerate(types):
        by_type.setdefault(task_type, []).append(number)
    return by_type


@lru_cache(maxsize=1 << 13)
def _type_of_file(top: Path, name: str, digest: str) -> str:
    """Return the task type of an official game from the name of its folder, or else from its goal."""
    for part in Path(name).parts:
        if part.partition("-")[0] in TASK_TYPES:
            return part.partition("-")[0]
    return _official(top / name, digest, registry.may_cache()).game.goal.task_type

"""The games of all ALFWorld environments, generated or from official files, selected by number, path or type.

The generated games have three splits, disjoint by construction, and each game depends only on its number. Hashes decide
the split, so that it can be checked without generating other games:

- The pair of object and destination (receptacle or lamp) belongs either to `test` or to the other two splits, for all
  task types. So no pair of `test` occurs in `train` or `valid`.
- The plan of a room (its receptacles, and which share spots) belongs either to `test` or to the other two splits. So
  rooms of `test` occur nowhere else.
- The contents of the receptacles belong either to `valid` or to `train`. Every task of `valid` also occurs in `train`.

The hashes include what a player can see (kinds, numbers, places), but no coordinates.
"""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex, cast

from agentgym_flow.core import Stream, canonical, check_season, check_split, check_task, seasonal
from agentgym_flow.envs.alfworld.compiled_game import Task, Words, compile_game, prepared
from agentgym_flow.envs.alfworld.generator import make_problem, trajectory_json, trial_folder
from agentgym_flow.envs.alfworld.problem import TASK_TYPES, PDDLProblem
from agentgym_flow.envs.alfworld.rooms import FAMILIES, Errand, FloorPlan, FurnishedRoom, draw_plan, errands, furnish
from agentgym_flow.errors import BadSetting, UnknownOption, UnknownTask

if TYPE_CHECKING:
    from agentgym_flow.data import DataSet
    from agentgym_flow.envs.alfworld.official import Games

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
        data: name -> SHA-256 of what decides play in the official games of the split.
        former_data: the same as logs of earlier versions have it: of the whole files.

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
        self.former_data: dict[str, str] = {}
        self._games: Games | None = None
        if data is None:
            self.num_tasks = num_tasks(self.split)
            return
        from agentgym_flow import data as registry  # imported when used, because the usual games are generated
        from agentgym_flow.envs.alfworld.official import find_games

        found = registry.resolve(data)
        self._place = found.path
        self._games = find_games(found.path, self.split)
        self.data = {found.name: self._games.digest}
        self.former_data = {found.name: self._games.former_digest}
        self.num_tasks = len(self._games.names)

    def task(self, number: int) -> Task:
        """Return the compiled game with this number. Raises `BadGame` if its file cannot be read."""
        return _generated(self.split, number, self.season) if self._games is None else self._games.task(number)

    def goal(self, number: int) -> str:
        """Return the sentence of a game's task. Raises `BadGame` if its file is needed and cannot be read."""
        if self._games is None:
            return task_errand(self.split, number, self.season).sentence
        return self.task(number).game.words.task

    def for_original(self, number: int) -> dict[str, Any]:
        """Return the content of a game file, for a generated game as it would be exported."""
        if self._games is not None:
            return dict(json.loads(self._games.path(number).read_text("utf-8")))
        from agentgym_flow.envs.alfworld.official import game_json

        return game_json(*task_problem(self.split, number, self.season), ())

    def file(self, number: int) -> str | None:
        """Return the path of a game relative to the folder of all splits; None for a generated game."""
        return None if self._games is None else self._games.names[number]

    def number_of(self, game_file: object) -> int:
        """Return the number of the game at a path.

        The path is absolute, or relative to the current folder, the data, the folder of all splits, or the folder of
        the split. As in published lists, it may begin with `json_2.1.1/`, whatever the folder of all splits is called.
        It can be the folder of a `game.tw-pddl`. Raises `UnknownTask` if the split has no such game.
        """
        if self._games is None:
            raise BadSetting(
                "game_file names an official game, and these are generated; make an environment with data="
            )
        wanted = Path(os.fspath(game_file)) if isinstance(game_file, (str, os.PathLike)) else Path(repr(game_file))
        names, found = self._games.names, self._games.names_at(wanted, self._place)
        if len(found) == 1:
            return names.index(found.pop())
        if found:
            raise UnknownTask(f"{str(wanted)!r:.200} may be any of {', '.join(sorted(found))}; name one of them")
        raise UnknownTask(
            f"{str(wanted)!r:.200} is none of the {self.num_tasks} games of split {self.split!r}; "
            f"the first of them is {names[0]!r}"
        )

    def task_type(self, number: int) -> str:
        """Return which of ALFWorld's six types a game has. Raises `BadGame` if its file is needed and unreadable."""
        if self._games is None:
            return task_type(self.split, number, self.season)
        return self._games.task_type(number)

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
        found = _numbers_by_type(self._games, self.split, self.season).get(name)
        if not found:
            raise UnknownTask(f"split {self.split!r} has no game of type {name!r}")
        return found


# Shared by all environments of the process. A compiled game takes about 50 kB.
@lru_cache(maxsize=512)
def _generated(split: str, number: int, season: str) -> Task:
    return prepared(*task_problem(split, number, season), f"task {number} of {seasonal(split, season)}")


@lru_cache(maxsize=8)
def _numbers_by_type(games: Games | None, split: str, season: str) -> Mapping[str, Sequence[int]]:
    """Return task type -> the numbers of its games: those of official `games`, or the generated ones of a split."""
    by_type: dict[str, list[int]] = {}
    for number in range(num_tasks(split) if games is None else len(games.names)):
        of_type = task_type(split, number, season) if games is None else games.task_type(number)
        by_type.setdefault(of_type, []).append(number)
    return by_type


# ---------------------------------------------------------------- the generated games
_NUM_TASKS = {"train": 3_553, "valid": 500, "test": 500}

_TYPES = tuple(kind for kind, family in FAMILIES.items() for _ in range(family.share))
_PARTS = 4  # one in four pairs and plans belongs to test; one in four of the other layouts to valid


def num_tasks(split: str) -> int:
    """Return the number of games in a split. Raises `UnknownSplit`."""
    return _NUM_TASKS[check_split(split, {})]


def is_unseen_pair(thing: str, place: str) -> bool:
    """Return whether this pair of object and receptacle (or lamp) is reserved for `test`."""
    return sha256(f"{thing}|{place}".encode("ascii")).digest()[0] % _PARTS == 0


def is_unseen_plan(plan: FloorPlan) -> bool:
    """Return whether rooms with this plan are reserved for `test`."""
    return int(plan.digest()[:8], 16) % _PARTS == 0


def is_valid_layout(layout: FurnishedRoom) -> bool:
    """Return whether this layout, of a plan that is not reserved for `test`, is reserved for `valid`."""
    return int(layout.digest()[:8], 16) % _PARTS == 0


def task_errand(split: str, task: int, season: str = "") -> Errand:
    """Return the errand of a game; errands of `valid` also occur in `train`.

    Every season has its own games; `""` selects the standard games.

    Raises:
        UnknownSplit: the split does not exist.
        UnknownTask: `task` is not a number in the split.
    """
    return _task_errand(split, _stream(split, task, season))


def task_type(split: str, task: int, season: str = "") -> str:
    """Return the task type of a game. Raises the errors of `task_errand`."""
    return task_errand(split, task, season).task_type


def task_layout(split: str, task: int) -> tuple[Errand, FurnishedRoom]:
    """Return the errand and the layout of a game. Raises the errors of `task_errand`."""
    errand, layout, _ = _draw(split, task)
    return errand, layout


@lru_cache(maxsize=64)
def task_problem(split: str, task: int, season: str = "") -> tuple[PDDLProblem, Words]:
    """Return the problem and the sentences of a game, without computing any other game.

    Raises the errors of `task_errand`.
    """
    errand, layout, stream = _draw(split, task, season)
    return make_problem(stream, layout, errand, f"{seasonal(split, season)}_{task}"), Words.current(errand.sentence)


def _stream(split: str, task: int, season: str = "") -> Stream:
    return Stream(ENV_ID, seasonal(split, season), check_task(task, num_tasks(split), split))


def _draw(split: str, task: int, season: str = "") -> tuple[Errand, FurnishedRoom, Stream]:
    stream = _stream(split, task, season)
    errand = _task_errand(split, stream)
    plan = draw_plan(stream, errand)
    while is_unseen_plan(plan) != (split == "test"):
        plan = draw_plan(stream, errand)
    layout = furnish(stream, plan, errand)
    while split != "test" and is_valid_layout(layout) != (split == "valid"):
        layout = furnish(stream, plan, errand)
    return errand, layout, stream


def _task_errand(split: str, stream: Stream) -> Errand:
    """Draw a task type by its share, a room for it, and a pair of the split with equal probability."""
    if split == "valid":
        stream = _stream("train", stream.below(_NUM_TASKS["train"]))
    kind = stream.choice(_TYPES)
    room = stream.choice(FAMILIES[kind].rooms)
    return Errand(kind, room, *stream.choice(_pairs(kind, room, split == "test")), stream.below(2))


@lru_cache(maxsize=64)
def _pairs(kind: str, room: str, unseen: bool) -> tuple[tuple[str, str], ...]:
    """Return the pairs of object and place that belong to a split."""
    pairs = ((thing, place) for thing, places in errands(kind, room).items() for place in places)
    return tuple(pair for pair in pairs if is_unseen_pair(*pair) == unseen)


def manifest_digest(split: str) -> str:
    """Return the SHA-256, in hex, of the canonical JSON of all games of a split, each followed by a newline."""
    digest = sha256()
    for task in range(num_tasks(split)):
        problem, words = task_problem.__wrapped__(split, task)
        content = [problem.name, problem.objects, problem.facts, problem.goal, words.task]
        digest.update(canonical(content) + b"\n")
    return digest.hexdigest()


MANIFEST: dict[str, str] = {
    "train": "c6c6c9e64b1d7cdc5508120bf4769c8de83dad303e00199288894299c2b5d645",
    "valid": "a596697045af87762309cbf70af803d147e98e4f50f9fcc56884da2c994d4d0c",
    "test": "8a93ec5187491ca4b9fd6a93fd73be7d885ed5ba7faeebfac7cf22c6b339af9b",
}
"""The recorded digests. If one changes, the games of published results have changed, and the id needs a new version."""


def export_game(folder: str | os.PathLike[str], split: str, task: int) -> Path:
    """Write one generated game, with a walkthrough and its `traj_data.json`; return the path of the game file.

    The path is `folder/SPLIT/TASK/TRIAL/game.tw-pddl`, with the official name of the split.

    Raises:
        UnknownSplit, UnknownTask: the game does not exist.
        OSError: a file cannot be written.
    """
    from agentgym_flow.envs.alfworld.game import ALFWorldGame  # imported when used: an environment does not export
    from agentgym_flow.envs.alfworld.official import OFFICIAL_FOLDERS, write_game
    from agentgym_flow.envs.alfworld.policies import shortest_plan

    problem, words = task_problem(split, task)
    errand, layout = task_layout(split, task)
    game, walkthrough = ALFWorldGame(compile_game(problem, words)), []
    for move in shortest_plan(game) or ():
        walkthrough.append(game.text(move))
        game.make(move)
    trial = f"trial_{split}_{task:04d}"
    target = Path(folder) / OFFICIAL_FOLDERS[split] / trial_folder(errand, trial)
    return write_game(target, problem, words, walkthrough, True, trajectory_json(errand, layout, trial))

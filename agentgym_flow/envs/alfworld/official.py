"""Find official games on disk, with their splits, and select those that ALFWorld plays.

The path is the folder in `ALFWORLD_DATA`, its sub-folder `json_2.1.1`, the folder of one split, or a part of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from agentgym_flow._util.file_state import per_state
from agentgym_flow.data import digest_of_files, digests_line
from agentgym_flow.envs.alfworld.gamefile import GAME_FILE, TRAJECTORY_FILE, content_of, object_in
from agentgym_flow.envs.split_folders import find_split, split_folders, splits_of
from agentgym_flow.errors import BadData, BadGame

OFFICIAL_FOLDERS = {"train": "train", "valid": "valid_seen", "test": "valid_unseen", "valid_train": "valid_train"}
"""Our splits -> the folders of the official data."""

SPLIT_FOLDERS = {folder: split for split, folder in OFFICIAL_FOLDERS.items()} | {"valid": "valid", "test": "test"}
"""Possible names of folders -> our splits."""

VERSION = "json_2.1.1"
"""The sub-folder of `ALFWORLD_DATA` with the official games."""

_VERSIONS = "json_*"
_UNSUPPORTED = ("movable", "Sliced")


class Games(NamedTuple):
    """The games of a split.

    Attributes:
        top: the folder of all splits, or the given part of it.
        folder: the folder of the split.
        names: the files below `top`, sorted, such as `valid_seen/TASK/TRIAL/game.tw-pddl`.
        digest: SHA-256 of the contents and of the names relative to the folder of the split.
        left_out: pairs of a reason and the names of the games that are left out for it, relative to `folder`.
    """

    top: Path
    folder: Path
    names: tuple[str, ...]
    digest: str
    left_out: tuple[tuple[str, tuple[str, ...]], ...] = ()


def find_games(place: Path, split: str) -> Games:
    """Return the games of a split in a file or folder; of official data, those that ALFWorld's collector selects.

    Games named `movable` or `Sliced` and games that are not marked as solvable are left out, and so are folders that
    have only `traj_data.json`; `Games.left_out` names them. ALFWorld's collector has
    other differences: it looks for these words in the whole path (here: below the split's folder), requires
    `traj_data.json` next to each game, and takes only the task types in its configuration (here: all).

    Raises `BadData` if there are no games, the split is ambiguous, or a game is damaged; the message says what was
    found, and names the damaged file.
    """
    where = find_split(_version(place), split, SPLIT_FOLDERS, _is_game)
    if where.path.is_file():
        name = where.path.relative_to(where.top).as_posix()
        return Games(where.top, where.path.parent, (name,), _look((where.path,))[0])
    files = tuple(filter(_is_game, where.files))
    if not files:
        advice = f"official games lie in folders such as TASK/TRIAL/{GAME_FILE}"
        if any(file.name == TRAJECTORY_FILE for file in where.files):
            advice = f"it has files {TRAJECTORY_FILE}, and alfworld-download fetches the games to them"
        raise BadData(f"{where.path} holds no {GAME_FILE}; {advice}")
    bare = {file.parent for file in where.files if file.name == TRAJECTORY_FILE} - {file.parent for file in files}
    return _games(files, where.path, where.top, tuple(sorted(bare)))


def games_by_split(place: Path) -> dict[str, Games]:
    """Return split -> its games in a file or folder. Raises the errors of `find_games`."""
    place = _version(place)
    return {split: find_games(place, split) for split in splits_of(place, SPLIT_FOLDERS, _is_game)}


def remarks(place: Path) -> Iterator[str]:
    """Yield a report of the games in a file or folder: splits, and what is left out. Raises as `find_games` does."""
    found = games_by_split(place)
    yield "played as: " + ", ".join(f"{split} {len(games.names):,}" for split, games in found.items())
    yield digests_line({split: games.digest for split, games in found.items()})
    for split, games in found.items():
        for reason, names in games.left_out:
            yield f"{split}: {len(names):,} left out, {reason}. The first: {names[0]}"


def _is_game(file: Path) -> bool:
    return file.name == GAME_FILE


def _version(place: Path) -> Path:
    """Return the folder of the splits: `place` or its versioned sub-folder. Raises `BadData` if there are several."""
    versions = [folder for folder in sorted(place.glob(_VERSIONS)) if split_folders(folder, SPLIT_FOLDERS)]
    if not versions:
        return place
    if split_folders(place, SPLIT_FOLDERS):
        versions.insert(0, place)
    elif place / VERSION in versions:
        return place / VERSION
    if len(versions) > 1:
        raise BadData(f"{place} has splits in several folders; name one of: {', '.join(map(str, versions))}")
    return versions[0]


@per_state
def _look(files: tuple[Path, ...]) -> tuple[str, bool | None]:
    """Return the SHA-256 of a game file, and its flag `solvable`; None if it has no flag. Raises `BadData`."""
    try:
        content = content_of(files[0])
        solvable = object_in(content, str(files[0])).get("solvable")
    except BadGame as error:
        raise BadData(f"{error}; the file is damaged: fetch it again, or remove it to play without this game") from None
    if not isinstance(solvable, bool | None):
        raise BadData(f"{files[0]}: 'solvable' must be true or false, got {solvable!r:.60}")
    return sha256(content).hexdigest(), solvable


@per_state
def _games(files: tuple[Path, ...], folder: Path, top: Path, bare: tuple[Path, ...]) -> Games:
    digests: dict[str, str] = {}
    trials: dict[tuple[str, ...], str] = {}
    left_out: defaultdict[str, list[str]] = defaultdict(list)
    for file in files:
        name = file.relative_to(folder).as_posix()
        if any(word in name for word in _UNSUPPORTED):
            left_out["named movable or Sliced"].append(name)
            continue
        digest, solvable = _look((file,))
        if not solvable:
            left_out["without the key solvable" if solvable is None else "marked as not solvable"].append(name)
            continue
        digests[name] = digest
        before = trials.setdefault(file.parts[-3:], name)
        if before != name:
            raise BadData(f"{folder} has a game twice, {before} and {name}; remove one of the copies")
    if not digests:
        why = ", ".join(f"{len(found)} {reason}" for reason, found in left_out.items())
        raise BadData(f"{folder} has no game that ALFWorld plays: {why}")
    if bare:
        left_out[f"with {TRAJECTORY_FILE} but without {GAME_FILE}"] += [
            one.relative_to(folder).as_posix() for one in bare
        ]
    names = sorted((folder.relative_to(top) / name).as_posix() for name in digests)
    skipped = tuple((reason, tuple(found)) for reason, found in left_out.items())
    return Games(top, folder, tuple(names), digest_of_files(digests), skipped)

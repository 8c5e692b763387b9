"""Read and write ALFWorld's game files: `game.tw-pddl`, and the optional `traj_data.json` next to it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agentgym_flow._util.files import write_atomically
from agentgym_flow.envs.alfworld.domain import DOMAIN, DOMAIN_WITHOUT_HELP, check_domain
from agentgym_flow.envs.alfworld.grammar import Words, read_grammar, write_grammar
from agentgym_flow.envs.alfworld.pddl import PDDLProblem, read_problem, write_problem
from agentgym_flow.errors import BadGame

GAME_FILE = "game.tw-pddl"
"""The name of a game file; each is in its own folder."""

TRAJECTORY_FILE = "traj_data.json"
"""The name of ALFRED's record of the task, which is not needed to play the game."""


@dataclass(frozen=True, slots=True)
class GameFile:
    """The content of a game file.

    Attributes:
        problem: things, facts and goal.
        words: the sentences that differ between games.
        walkthrough: commands that win; empty if the file has none.
        solvable: the flag in the file; None if it has none.
        trajectory: the content of `traj_data.json`; None if there is none.
    """

    problem: PDDLProblem
    words: Words
    walkthrough: tuple[str, ...]
    solvable: bool | None
    trajectory: Mapping[str, Any] | None


def read_game(path: str | os.PathLike[str], *, trajectory: bool = True) -> GameFile:
    """Return the game in the file `path`, or in the `game.tw-pddl` of the folder `path`.

    `trajectory` decides whether the `traj_data.json` next to it is read as well.

    Raises:
        BadGame: the file does not exist or cannot be played; the message names the file and the line.
    """
    file = Path(path)
    if file.is_dir():
        file = file / GAME_FILE
    game = game_in(content_of(file), str(file))
    beside = file.with_name(TRAJECTORY_FILE)
    if not trajectory or not beside.exists():
        return game
    return replace(game, trajectory=object_in(content_of(beside), str(beside)))


def content_of(path: Path) -> bytes:
    """Return the bytes of a file. Raises `BadGame` with its name if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadGame(f"{path}: cannot be read: {error.strerror}") from None


def game_in(content: bytes, where: str) -> GameFile:
    """Return the game in the bytes of a game file, without a trajectory. Raises `BadGame` like `read_game`."""
    return parse_game(object_in(content, where), where)


def parse_game(mapping: Mapping[str, Any], where: str) -> GameFile:
    """Return the game in the contents of a game file, without a trajectory.

    Args:
        mapping: the JSON object in the file.
        where: the name of the file, for error messages.

    Raises:
        BadGame: a part is missing or cannot be played. The message names the part and the line within it.
    """
    texts = {}
    for key in ("pddl_domain", "grammar", "pddl_problem"):
        if not isinstance(mapping.get(key), str):
            raise BadGame(
                f"{where}: the key {key!r} is {'not a string' if key in mapping else 'missing'}; is it a game file?"
            )
        texts[key] = mapping[key]
    walkthrough = mapping.get("walkthrough")
    if walkthrough is not None and not _is_commands(walkthrough):
        raise BadGame(f"{where}: 'walkthrough' must be a list of commands, got {walkthrough!r:.60}")
    solvable = mapping.get("solvable")
    if solvable is not None and not isinstance(solvable, bool):
        raise BadGame(f"{where}: 'solvable' must be true or false, got {solvable!r:.60}")
    rules = check_domain(texts["pddl_domain"], f"{where}: pddl_domain")
    words = read_grammar(texts["grammar"], f"{where}: grammar")
    if "help" not in rules.actions:
        words = replace(words, help=None)  # the grammar has a text for it, but there is no such command
    elif words.help is None:
        raise BadGame(f"{where}: grammar: line 1: the action 'help' is missing, and pddl_domain has it")
    problem = read_problem(texts["pddl_problem"], f"{where}: pddl_problem")
    kinds = {fact[2] for fact in problem.facts if fact[0] == "receptacletype"}
    if "sinktype" in kinds and not rules.washes_in_sinks:
        raise BadGame(f"{where}: pddl_problem has a receptacle of SinkType, and pddl_domain cannot clean there")
    return GameFile(problem, words, tuple(walkthrough or ()), solvable, None)


def game_json(
    problem: PDDLProblem, words: Words, walkthrough: Sequence[str], solvable: bool | None = True
) -> dict[str, Any]:
    """Return the content of a game file with the keys of official files, which the original engine can load.

    Raises:
        BadGame: reading the content would give another game.
    """
    game = {
        "pddl_domain": DOMAIN_WITHOUT_HELP if words.help is None else DOMAIN,
        "grammar": write_grammar(words),
        "pddl_problem": write_problem(problem),
        "solvable": solvable,
        "walkthrough": list(walkthrough),
    }
    if solvable is None:
        del game["solvable"]
    if parse_game(game, "the game to be written") != GameFile(problem, words, tuple(walkthrough), solvable, None):
        raise BadGame("the game cannot be written: names must be single words in lower case, facts tuples of them")
    return game


def write_game(
    folder: str | os.PathLike[str],
    problem: PDDLProblem,
    words: Words,
    walkthrough: Sequence[str],
    solvable: bool | None = True,
    trajectory: Mapping[str, Any] | None = None,
) -> Path:
    """Write `game.tw-pddl`, and `traj_data.json` if `trajectory` is given, to `folder`; return the path of the game.

    Raises:
        BadGame: see `game_json`.
        OSError: a file cannot be written.
    """
    game = game_json(problem, words, walkthrough, solvable)
    path = Path(folder) / GAME_FILE
    if trajectory is not None:
        _write_json(path.with_name(TRAJECTORY_FILE), trajectory)
    _write_json(path, game)
    return path


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    with write_atomically(path) as partial:
        partial.write_text(json.dumps(value), "ascii")


def _is_commands(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(command, str) for command in value)


def object_in(content: bytes, where: str) -> dict[str, Any]:
    """Return the JSON object in the bytes of a file. Raises `BadGame` with `where` and the line if there is none."""
    try:
        value = json.loads(content.decode("utf-8"))
    except json.JSONDecodeError as error:
        raise BadGame(f"{where}: line {error.lineno}: invalid JSON: {error.msg} (column {error.colno})") from None
    except UnicodeDecodeError as error:
        raise BadGame(f"{where}: byte {error.start} is not UTF-8") from None
    except (ValueError, RecursionError) as error:  # numbers with thousands of digits, deeply nested lists
        raise BadGame(f"{where}: not a valid game file ({error})") from None
    if not isinstance(value, dict):
        raise BadGame(f"{where}: line 1: expected a JSON object")
    return value

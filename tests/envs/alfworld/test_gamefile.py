"""Game files: the official ones are read, what is written is read back, what is wrong is named."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentgym_flow.envs.alfworld.compiled_game import Words
from agentgym_flow.envs.alfworld.official import GAME_FILE, GameFile, game_json, parse_game, read_game, write_game
from agentgym_flow.envs.alfworld.problem import PDDLProblem
from agentgym_flow.envs.alfworld.tasks import task_problem
from agentgym_flow.errors import BadGame

WORDS = Words.current("put a cup on table.")
OLD_WORDS = Words.old("put a cup on table.")
PROBLEM = PDDLProblem(
    objects={"agent1": "agent", "cup": "object", "table": "receptacle", "here": "location", "cuptype": "otype"},
    facts=(("atlocation", "agent1", "here"), ("receptacleatlocation", "table", "here"), ("holds", "agent1", "cup")),
    goal=("exists", ("?o", "-", "object"), ("inreceptacle", "?o", "table")),
    name="p",
)
PLAN = ("go to table 1", "move cup 1 to table 1")


@pytest.fixture(scope="session")
def official_games(sample_data: Path) -> list[dict[str, Any]]:
    """What the manifest of the samples says about each, with its folder."""
    folder = sample_data / "alfworld"
    if not folder.is_dir():
        pytest.skip("the sample data have no folder alfworld")
    games = json.loads((folder / "manifest.json").read_text("utf-8"))["games"]
    return [{**game, "folder": folder / game["path"]} for game in games]


def test_every_official_game_is_read_as_its_manifest_says(official_games: list[dict[str, Any]]) -> None:
    assert len(official_games) == 12
    for said in official_games:
        game = read_game(said["folder"])
        assert game.words.task == said["task"] + "."
        assert game.words.put == "move {o} to {r}"
        assert game.words.arrive == "You arrive at {r}."
        assert game.words.help is not None
        assert game.words.help.startswith("Available commands:\n  look: ")
        assert game.words.help.endswith("using a sharp object\n")
        assert len(game.walkthrough) == said["walkthrough_len"]
        assert game.solvable is True
        assert game.trajectory is not None
        assert game.trajectory["task_type"] == said["task_type"]
        assert {"agent", "location", "receptacle", "object", "rtype", "otype"} == set(game.problem.objects.values())


def test_every_official_game_survives_writing(official_games: list[dict[str, Any]], tmp_path: Path) -> None:
    for said in official_games:
        game = read_game(said["folder"])
        path = write_game(
            tmp_path / said["path"], game.problem, game.words, game.walkthrough, game.solvable, game.trajectory
        )
        again = read_game(path)
        assert again == game
        assert list(again.problem.objects) == list(game.problem.objects)


def test_an_official_game_of_the_older_edition_is_read(official_games: list[dict[str, Any]]) -> None:
    """The older files differ in three sentences, and have neither `help` nor a walkthrough."""
    data = json.loads((official_games[0]["folder"] / GAME_FILE).read_text("utf-8"))
    grammar, domain = data["grammar"], data["pddl_domain"]
    grammar = grammar[: grammar.index("action help")]
    for new, old in (
        ("move {o} to {r}", "put {o} in/on {r}"),
        ("You move the {o.name} to the {r.name}", "You put the {o.name} in/on the {r.name}"),
        ("You arrive at {r.name}", "You arrive at {lend.name}"),
    ):
        assert new in grammar
        grammar = grammar.replace(new, old)
    older = {
        "pddl_domain": domain[: domain.index("(:action help")] + ")",
        "grammar": grammar,
        "pddl_problem": data["pddl_problem"],
        "solvable": True,
    }
    game = parse_game(older, "t")
    assert game.words == Words.old(official_games[0]["task"] + ".")
    assert game.walkthrough == ()
    assert parse_game(game_json(game.problem, game.words, ()), "t") == game


def test_a_written_game_has_the_keys_of_the_official_ones(tmp_path: Path) -> None:
    path = write_game(tmp_path / "new", PROBLEM, WORDS, PLAN, trajectory={"task_type": "x"})
    assert path == tmp_path / "new" / "game.tw-pddl"
    assert list(json.loads(path.read_text("ascii"))) == [
        "pddl_domain",
        "grammar",
        "pddl_problem",
        "solvable",
        "walkthrough",
    ]
    assert sorted(file.name for file in path.parent.iterdir()) == ["game.tw-pddl", "traj_data.json"]
    game = GameFile(PROBLEM, WORDS, PLAN, True, {"task_type": "x"})
    assert read_game(path) == read_game(str(path.parent)) == game


def test_a_game_without_help_says_so_in_both_places() -> None:
    game = game_json(PROBLEM, OLD_WORDS, (), None)
    assert "help" not in game["pddl_domain"]
    assert "action help" not in game["grammar"]
    assert "solvable" not in game
    assert parse_game(game, "t") == GameFile(PROBLEM, OLD_WORDS, (), None, None)


def test_help_needs_the_action_and_the_words() -> None:
    current, old = game_json(PROBLEM, WORDS, ()), game_json(PROBLEM, OLD_WORDS, ())
    with pytest.raises(BadGame, match=r"^t: grammar: line 1: the action 'help' is missing, and pddl_domain has it"):
        parse_game({**current, "grammar": old["grammar"]}, "t")
    assert parse_game({**old, "grammar": current["grammar"]}, "t").words == replace(WORDS, help=None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda game: game.pop("grammar"), "the key 'grammar' is missing; is it a game file?"),
        (lambda game: game.update(pddl_problem=None), "the key 'pddl_problem' is not a string"),
        (lambda game: game.update(walkthrough="look"), "'walkthrough' must be a list of commands, got 'look'"),
        (lambda game: game.update(walkthrough=[1]), "'walkthrough' must be a list of commands, got [1]"),
        (lambda game: game.update(solvable=1), "'solvable' must be true or false, got 1"),
        (
            lambda game: game.update(pddl_problem=game["pddl_problem"].replace("holds agent1", "holds agent2")),
            "pddl_problem: line 13: 'agent2' is not declared in :objects",
        ),
        (
            lambda game: game.update(pddl_domain=game["pddl_domain"].replace("(not (isCool ?o))", "")),
            "pddl_domain: line 126: the action 'heatobject' differs",
        ),
        (
            lambda game: game.update(grammar=game["grammar"].replace("You close", "You shut")),
            "grammar: line 19: the rule 'CloseObject.feedback' differs",
        ),
    ],
)
def test_a_defect_is_named_with_file_part_and_line(
    change: Callable[[dict[str, Any]], object], message: str, tmp_path: Path
) -> None:
    path = write_game(tmp_path, PROBLEM, WORDS, PLAN)
    game = json.loads(path.read_text("ascii"))
    change(game)
    path.write_text(json.dumps(game), "ascii")
    with pytest.raises(BadGame, match=f"^{re.escape(str(path))}: {re.escape(message)}"):
        read_game(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{\n "grammar": \n}', "line 3: invalid JSON: Expecting value (column 1)"),
        (b'"\xff"', "byte 1 is not UTF-8"),
        (b"[]", "line 1: expected a JSON object"),
    ],
)
@pytest.mark.parametrize("name", ["game.tw-pddl", "traj_data.json"])
def test_a_file_that_is_no_json_is_named(content: bytes, message: str, name: str, tmp_path: Path) -> None:
    write_game(tmp_path, PROBLEM, WORDS, PLAN)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadGame, match=f"^{re.escape(str(tmp_path / name))}: {re.escape(message)}"):
        read_game(tmp_path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "other.tw-pddl"):
        named = path / GAME_FILE if path == tmp_path else path
        with pytest.raises(BadGame, match=f"^{re.escape(str(named))}: cannot be read: No such file"):
            read_game(path)


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (replace(PROBLEM, name="Big"), "names must be single words in lower case"),
        (replace(PROBLEM, objects={**PROBLEM.objects, "Cup": "object"}), "cup is declared twice"),
        (replace(PROBLEM, objects={**PROBLEM.objects, "red cup": "object"}), "cup is declared twice"),
        (replace(PROBLEM, objects={**PROBLEM.objects, "a b": "object"}), "names must be single words"),
        (replace(PROBLEM, facts=(("holds", "agent1"),)), "holds takes 2 argument(s), got 1"),
        (replace(PROBLEM, facts=(("=", "cup", "cup"),)), "names must be single words"),
    ],
)
def test_a_game_that_could_not_be_read_back_is_not_written(problem: PDDLProblem, message: str, tmp_path: Path) -> None:
    with pytest.raises(BadGame, match=re.escape(message)):
        write_game(tmp_path, problem, WORDS, PLAN)
    assert not list(tmp_path.iterdir())


def test_a_domain_that_washes_in_basins_only_is_played_where_there_is_no_other_sink() -> None:
    game = game_json(*task_problem("valid", 0), ())
    basins = game["pddl_domain"].replace("(receptacleType ?r SinkType)", "")
    assert basins != game["pddl_domain"]
    parse_game(game | {"pddl_domain": basins}, "x")
    of_a_sink = game["pddl_problem"].replace("sinktype - otype", "sinktype - rtype")
    of_a_sink = re.sub(r"\(objecttype \S+ sinktype\)", "", of_a_sink)
    of_a_sink = re.sub(r"\(receptacletype (\S+) \S+\)", r"(receptacletype \1 sinktype)", of_a_sink, count=1)
    parse_game(game | {"pddl_problem": of_a_sink}, "x")
    with pytest.raises(BadGame, match="a receptacle of SinkType"):
        parse_game(game | {"pddl_problem": of_a_sink, "pddl_domain": basins}, "x")

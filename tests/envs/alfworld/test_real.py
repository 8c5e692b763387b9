"""Our rules against the real packages, step by step; and that the real packages leave the process as they found it."""

from __future__ import annotations

import copy
import importlib
import json
import os
import pickle
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentgym_flow.core import Stream
from agentgym_flow.envs.alfworld import real, tasks
from agentgym_flow.envs.alfworld.compiled_game import NOWHERE, CompiledGame
from agentgym_flow.envs.alfworld.game import ALFWorldGame
from agentgym_flow.envs.alfworld.generator import trajectory_json, trial_folder
from agentgym_flow.envs.alfworld.official import game_json, write_game
from agentgym_flow.envs.alfworld.problem import TASK_TYPES
from agentgym_flow.envs.alfworld.real import TextWorldGame
from agentgym_flow.errors import BadGame, MissingExtra, UnsupportedPython

# Importing alfworld to find out would make its folder in the home directory.
MISSING = any(find_spec(name) is None for name in ("alfworld", "textworld", "fast_downward"))
TOO_NEW = sys.version_info >= (3, 13)

installed = pytest.mark.skipif(
    MISSING or TOO_NEW, reason="the extra 'alfworld' is not installed, or this Python is too new for TextWorld 1.7"
)


@pytest.fixture(scope="module")
def differential(root: Path) -> Iterator[Any]:
    """The differential run as a module; scripts in its folder import each other by their bare names."""
    folder = str(root / "benchmarks")
    sys.path.insert(0, folder)
    try:
        yield importlib.import_module("alfworld_differential")
    finally:
        sys.path.remove(folder)


@pytest.fixture(scope="module")
def content() -> dict[str, Any]:
    """What the file of a generated game says."""
    problem, words = tasks.task_problem("valid", 0)
    return game_json(problem, words, ())


def world(play: ALFWorldGame | TextWorldGame) -> tuple[object, ...]:
    return play.commands(), play.won, play.facts()


# -------------------------------------------------------------------------------- the differential suite
class Sloppy(ALFWorldGame):
    """Rules with one of the defects that a re-implementation can have; it shows only once something is held."""

    def __init__(self, game: CompiledGame, defect: str) -> None:
        super().__init__(game)
        self.defect = defect

    def flawed(self, aspect: str) -> bool:
        return self.defect == aspect and self.held != NOWHERE

    def act(self, command: str) -> tuple[str, bool]:
        told, valid = super().act(command)
        return told.replace("a apple", "an apple") if self.flawed("answer") else told, valid

    def commands(self) -> list[str]:
        return super().commands()[: -1 if self.flawed("commands") else None]

    def facts(self) -> frozenset[tuple[str, ...]]:
        return frozenset(fact for fact in super().facts() if fact[0] != "not_inreceptacle" or not self.flawed("facts"))

    @property
    def won(self) -> bool:
        return super().won or self.flawed("won")


def test_lockstep_plays_every_kind_of_command(kitchen: CompiledGame, differential: Any) -> None:
    tally = differential.Tally()
    wanderer = differential.Wanderer(Stream("lockstep test"))
    assert differential.lockstep(ALFWorldGame(kitchen), ALFWorldGame(kitchen), wanderer, 400, tally) is None
    assert tally.steps == 400
    assert set(tally.schemas) == set(differential.SCHEMAS) - {"use"}  # there is no lamp
    seen = {situation for situation, count in tally.situations.items() if count}
    assert seen == {"no command", "look at a shared spot", "look with something beside"}


@pytest.mark.parametrize("defect", ["answer", "commands", "facts", "won"])
def test_lockstep_finds_a_defect_and_tells_how_to_get_there(
    defect: str, kitchen: CompiledGame, differential: Any
) -> None:
    wanderer = differential.Wanderer(Stream("lockstep test"))
    found = differential.lockstep(ALFWorldGame(kitchen), Sloppy(kitchen, defect), wanderer, 400, differential.Tally())
    assert found.what.split(",")[0] == defect
    assert found.ours != found.real
    ours, sloppy = ALFWorldGame(kitchen), Sloppy(kitchen, defect)
    equal = [(ours.act(c), *world(ours)) == (sloppy.act(c), *world(sloppy)) for c in found.history]
    assert equal == [True] * (len(found.history) - 1) + [False]


def test_lockstep_compares_introductions(kitchen: CompiledGame, small: Any, differential: Any) -> None:
    other = small.build({"drawer 1": 1}, {"apple 1": "drawer 1"}, small.placed("apple", "drawer"))
    wanderer = differential.Wanderer(Stream("lockstep test"))
    found = differential.lockstep(ALFWorldGame(kitchen), ALFWorldGame(other), wanderer, 400, differential.Tally())
    assert (found.what, found.history) == ("introduction", ())


def test_what_an_engine_raises_is_a_difference(differential: Any, content: dict[str, Any]) -> None:
    broken = differential.Case("broken", content | {"pddl_problem": "("})
    outcome = differential.play_case(broken, 5, 0)
    assert list(outcome.differences) == ["broken"]
    assert "BadGame" in outcome.differences["broken"]


@pytest.mark.nightly
@installed
def test_generated_games_and_their_variants_play_alike(differential: Any) -> None:
    outcome = differential.play_all(differential.cases(24, 11, None), steps=25, seed=11, jobs=1)
    assert outcome.differences == {}
    assert outcome.tally.steps >= 500
    assert set(outcome.tally.schemas) == set(differential.SCHEMAS)


@pytest.mark.nightly
@installed
def test_official_games_and_their_variants_play_alike(differential: Any, sample_data: Path) -> None:
    games = [case for case in differential.cases(0, 12, sample_data / "alfworld") if "told" in case.name]
    games += [case for case in differential.cases(0, 13, sample_data / "alfworld") if "as it is" in case.name]
    outcome = differential.play_all(games, steps=15, seed=12, jobs=1)
    assert outcome.differences == {}
    assert outcome.games["as it is"] == 12
    assert outcome.games["told"] > 5


@pytest.mark.nightly
@installed
def test_what_is_spared_the_real_engine_changes_nothing(content: dict[str, Any]) -> None:
    """As it is without us: four translations, the planner's among them, and information on request."""
    play = TextWorldGame(content)
    textworld: Any = importlib.import_module("textworld")
    stock = real.packages().new_environment()
    stock.unwrapped.request_infos = textworld.EnvInfos(won=True, admissible_commands=True, facts=True)
    arguments = sys.argv
    try:
        stock.load(content)
        state = stock.reset()
    finally:
        sys.argv = arguments
    assert play.start() == state.feedback
    rng = Stream("stock")
    for _ in range(15):
        assert play.commands() == state.admissible_commands
        command = rng.choice(play.commands())
        state, _, _ = stock.step(command)
        assert play.act(command) == (state.feedback, True)
        assert play.won == state.won


@pytest.mark.nightly
@installed
def test_alfworlds_own_tools_find_and_play_generated_games(tmp_path: Path) -> None:
    """Its collector takes the folder for official data, and its handcoded expert wins games of each type.

    Not every game: the expert gets lost where there is much to search, or raises an error of its own. So it has three
    of the smallest games of each type.
    """
    by_type: dict[str, list[tuple[int, int]]] = {}
    for task in range(60):
        problem, _ = tasks.task_problem("valid", task)
        size = sum(kind == "receptacle" for kind in problem.objects.values())
        by_type.setdefault(tasks.task_type("valid", task), []).append((size, task))
    for found in by_type.values():
        for _, task in sorted(found)[:3]:
            errand, layout = tasks.task_layout("valid", task)
            trial = f"trial_valid_{task}"
            folder = tmp_path / "data" / trial_folder(errand, trial)
            problem, words = tasks.task_problem("valid", task)
            write_game(folder, problem, words, (), trajectory=trajectory_json(errand, layout, trial))
    done = subprocess.run(
        [sys.executable, "-c", OWN_TOOLS, str(tmp_path / "data")],
        env=os.environ | {"HOME": str(tmp_path)}, capture_output=True, text=True,
    )  # fmt: skip
    assert "18 games" in done.stdout, done.stderr
    won = {line.removeprefix("won ") for line in done.stdout.splitlines() if line.startswith("won ")}
    assert won == set(TASK_TYPES), done.stdout


OWN_TOOLS = """
import random, sys
from pathlib import Path
from textworld import EnvInfos
from textworld.envs.pddl import PddlEnv
from alfworld.agents.environment import alfred_tw_env as real

settings = {"goal_desc_human_anns_prob": 0, "task_types": [1, 2, 3, 4, 5, 6]}
games = real.AlfredTWEnv({"env": settings, "dataset": {"data_path": sys.argv[1], "num_train_games": -1}}).game_files
infos = EnvInfos(won=True, admissible_commands=True, extras=["gamefile", "expert_plan"])
env = real.AlfredExpert(real.AlfredInfos(real.AlfredDemangler(PddlEnv(infos))))
random.seed(0)
won = set()
for game in sorted(games):
    task_type = Path(game).parent.parent.name.partition("-")[0]
    if task_type in won:
        continue
    env.load(game)
    state, steps = env.reset(), 0
    try:
        while not state["won"] and steps < 100:
            state, _, _ = env.step(state["extra.expert_plan"][0])
            steps += 1
    except IndexError:
        continue
    if state["won"]:
        won.add(task_type)
        print("won", task_type)
"""


# -------------------------------------------------------------------------------- copies, files, threads
@pytest.mark.nightly
@installed
def test_copies_are_independent(content: dict[str, Any]) -> None:
    play = TextWorldGame(content)
    for command in ("look", "nonsense", play.commands()[0]):
        play.act(command)
    for other in (copy.deepcopy(play), pickle.loads(pickle.dumps(play))):
        assert other.start() == play.start()
        assert world(other) == world(play)
        before = world(play)
        other.act(next(command for command in other.commands() if command.startswith("go to")))
        assert world(play) == before != world(other)


@pytest.mark.nightly
@installed
@pytest.mark.parametrize(
    ("key", "text"), [("pddl_problem", "("), ("pddl_problem", "(define (problem x))"), ("grammar", "{")]
)
def test_a_game_that_cannot_be_loaded_says_so(key: str, text: str, content: dict[str, Any]) -> None:
    before = sys.argv, sys.stdout
    with pytest.raises(BadGame, match="the real engine can't load this game"):
        TextWorldGame(content | {key: text})
    assert (sys.argv, sys.stdout) == before
    assert TextWorldGame(content).commands()


@pytest.mark.nightly
@installed
def test_native_libraries_are_used_again(content: dict[str, Any]) -> None:
    """Each environment maps a library of its own, which is never unmapped."""
    plays = [TextWorldGame(content) for _ in range(2)]
    for play in plays:
        play.act("inventory")
    assert len({id(play._env) for play in plays}) == 2
    del plays, play
    idle = {id(environment) for environment in real._idle}
    again = [TextWorldGame(content) for _ in range(2)]
    assert {id(play._env) for play in again} <= idle


@pytest.mark.nightly
@installed
def test_facts_of_earlier_games_are_given_back() -> None:
    """TextWorld keeps one instance of each fact for ever, which took 2 MB a game."""
    counts = []
    for task in (0, 1, 2, 0):
        problem, words = tasks.task_problem("valid", task)
        play = TextWorldGame(game_json(problem, words, ()))
        play.act("look")
        instances, fact = real.packages().instances, real.packages().fact
        counts.append(sum(key[0] is fact for key in instances))
    assert counts[0] == counts[-1] > 100  # of this game alone, whatever was played before
    other = TextWorldGame(game_json(problem, words, ()))
    assert world(other) == world(play)


@pytest.mark.nightly
@installed
def test_threads_take_turns(content: dict[str, Any]) -> None:
    alone = TextWorldGame(content)
    commands = [command for command in alone.commands() if command.startswith("go to")][:3]
    expected = [alone.act(command)[0] for command in commands]
    found: list[list[str]] = []

    def run() -> None:
        play = TextWorldGame(content)
        found.append([play.act(command)[0] for command in commands])

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 4


@pytest.mark.nightly
@installed
def test_global_random_state_is_untouched(content: dict[str, Any]) -> None:
    state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002
    TextWorldGame(content).act("look")
    assert random.getstate() == state
    assert (np.random.get_state()[1] == numpy_state[1]).all()  # noqa: NPY002


@pytest.mark.nightly
@installed
def test_the_process_stays_as_it_was(content: dict[str, Any], tmp_path: Path) -> None:
    """Nothing in the home directory, no variable, no other arguments; a later `import alfworld` does what it does."""
    game, home = tmp_path / "game.json", tmp_path / "home"
    game.write_text(json.dumps(content))
    home.mkdir()
    code = (
        "import json, os, pathlib, sys\n"
        "from agentgym_flow.envs.alfworld.real import TextWorldGame\n"
        "before = dict(os.environ), sys.argv, list(sys.argv), sys.stdout\n"
        "play = TextWorldGame(json.loads(pathlib.Path(sys.argv[1]).read_text()))\n"
        "play.act('look')\n"
        "assert before == (dict(os.environ), sys.argv, list(sys.argv), sys.stdout)\n"
        "assert not list(pathlib.Path.home().iterdir())\n"
        "assert 'alfworld' not in sys.modules\n"
        "import alfworld\n"
        "assert os.environ['ALFWORLD_DATA'] == alfworld.ALFWORLD_DATA\n"
        "assert str(pathlib.Path.home()) in alfworld.ALFWORLD_DATA\n"
    )
    variables = {name: value for name, value in os.environ.items() if name != "ALFWORLD_DATA"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, str(game), "--extra"],
        env=variables | {"HOME": str(home)}, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# -------------------------------------------------------------------------------- what is missing
@pytest.mark.parametrize("missing", ["textworld", "fast_downward", "alfworld", "termcolor"])
def test_a_missing_package_names_the_extra(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real.packages.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == missing]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(MissingExtra, match=r"(alfworld|textworld\[pddl\]) is not installed.*agentgym_flow\[alfworld\]"):
        TextWorldGame({})
    real.packages.cache_clear()


@pytest.mark.nightly
@pytest.mark.skipif(MISSING or not TOO_NEW, reason="needs the extra 'alfworld' on Python 3.13 or newer")
def test_a_python_that_is_too_new_is_named(content: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedPython, match=r"use Python 3\.12 or older"):
        TextWorldGame(content)


def test_a_python_that_textworld_cannot_play_on_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Textgen:
        class EvalSymbol:
            def __init__(self, expression: str) -> None:
                self.derive = partial(self.evaluate, expression)

            def evaluate(self, expression: str, context: Any) -> Any:
                return eval(expression, {})  # what is written into `locals()` is not seen, as from Python 3.13 on

    with pytest.raises(UnsupportedPython, match=r"use Python 3\.12 or older, or engine='fast'"):
        real._check_python(Textgen)

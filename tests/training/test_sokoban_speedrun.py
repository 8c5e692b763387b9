"""The Sokoban speedrun trains, stops at a signal, goes on, and evaluates; what it holds back it never trains on."""

from __future__ import annotations

import json
import os
import re
import signal
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("trl", reason="training needs the extra train")

import torch

from agentgym_flow.envs.sokoban.game import Board
from agentgym_flow.envs.sokoban.level import ACTIONS, cell_codes
from agentgym_flow.envs.sokoban.official import read_levels, write_levels
from agentgym_flow.envs.sokoban.solver import solve
from agentgym_flow.envs.sokoban.tasks import board_hash
from agentgym_flow.errors import BadData, BadSetting
from agentgym_flow.replay import verify_log
from baselines import sokoban_network, sokoban_ppo
from baselines import sokoban_speedrun as speedrun

LEVELS = Path(os.environ.get("AGENTGYM_FLOW_TEST_DATA", "nowhere")) / "boxoban" / "unfiltered-valid.txt"
needs_levels = pytest.mark.skipif(
    not LEVELS.exists(), reason="AGENTGYM_FLOW_TEST_DATA does not name a folder with data"
)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little of everything, and a line after every update."""
    sizes = {"LEVELS_ASKED": 10, "STATES_ASKED": 4, "BATCH": 32, "HORIZON": 20, "SHOW_SECONDS": 0.0}
    for name, value in sizes.items():
        monkeypatch.setattr(speedrun, name, value)
    monkeypatch.setattr(sokoban_ppo, "BOARDS", 16)
    monkeypatch.setattr(sokoban_ppo, "STEPS", 4)


def settings(out: Path, *more: str) -> list[str]:
    """Return the arguments of a small run."""
    sizes = ["--held_back", "4", "--channels", "8", "--blocks", "1", "--threads", "1"]
    return ["--levels", str(LEVELS), *sizes, "--out", str(out), *more]


@pytest.mark.heavy
@needs_levels
def test_a_stopped_run_goes_on_and_can_be_played_and_evaluated(
    small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = settings(tmp_path, "--core_seconds", "4", "--clone", "0.5", "--dense")
    shown: list[str] = []

    def stop(line: str) -> None:
        shown.append(line)
        if len(shown) == 4:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(speedrun, "show", stop)
        assert speedrun.main(command) == 143
    assert "clone: loss" in shown[-2]
    before = torch.load(tmp_path / speedrun.CHECKPOINT, weights_only=True)
    assert before["part"] == "clone"
    assert 0 < before["spent"] < 4

    write_levels(tmp_path / "others.txt", read_levels(LEVELS)[1:])
    for other, begun in (
        (["--held_back", "5"], "held_back=4"),  # what it would evaluate on, it has trained on
        (["--seed", "3"], "seed=0"),
        (["--clone", "0.25", "--minutes", "1"], "clone=0.5, minutes=None"),
        (["--levels", str(tmp_path / "others.txt")], "other --levels"),
    ):
        assert speedrun.main([*command, *other, "--resume"]) == 1
        assert f"{speedrun.CHECKPOINT} was begun with {begun};" in capsys.readouterr().out
    assert speedrun.main([*(word for word in command if word != "--dense"), "--resume"]) == 1
    assert f"{speedrun.CHECKPOINT} was begun with dense=True;" in capsys.readouterr().out
    assert speedrun.main([*command, "--resume"]) == 0
    assert "ppo: stage 1 of 1," in capsys.readouterr().out, "a policy that has cloned gets whole levels"
    after = torch.load(tmp_path / speedrun.CHECKPOINT, weights_only=True)
    assert after["part"] == "ppo"
    assert after["spent"] >= 4
    assert any((after["net"][name] != values).any() for name, values in before["net"].items())

    line = json.loads((tmp_path / "results.jsonl").read_text())
    assert line["clone"] == 0.5
    for way in speedrun.WAYS:
        assert line[way].endswith("%]")
        verdict = verify_log(tmp_path / f"{way}.jsonl.gz", data={"held_back": tmp_path / "held_back.txt"}, jobs=0)
        assert verdict.matched == 4


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--clone", "1.5"], "BadSetting: --clone .*from 0 to 1, got 1.5"),
        (["--clone", "nan"], "BadSetting: --clone .*from 0 to 1, got nan"),
        (["--threads", "0"], "BadSetting: --threads must be at least 1, got 0"),
        (["--channels", "0"], "BadSetting: --channels must be at least 1, got 0"),
        (["--blocks", "-1"], "BadSetting: --blocks must be at least 0, got -1"),
        (["--seed", "-1"], "BadSetting: --seed must be at least 0, got -1"),
        (["--core_seconds", "0"], "BadSetting: --core_seconds must be a finite number above 0, got 0"),
        (["--core_seconds", "inf"], "BadSetting: --core_seconds must be a finite number above 0, got inf"),
        (["--minutes", "0"], "BadSetting: --minutes must be a finite number above 0, got 0"),
        (["--device", "nowhere"], "BadSetting: --device nowhere: "),
        (["--resume"], "BadSetting: there is no .*checkpoint.pt"),
        (["--held_back", "0"], "BadSetting: --held_back must be at least 1, got 0"),
        (["--held_back", "200"], "BadSetting: --held_back must be from 1 to 99"),
        (["--levels", "nowhere.txt"], "BadLevel: nowhere.txt: "),
    ],
)
@needs_levels
def test_settings_that_cannot_be_are_named(
    tmp_path: Path, more: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert speedrun.main(settings(tmp_path, *more)) == 1
    [line] = capsys.readouterr().out.splitlines()
    assert re.match(message, line)


def test_no_levels_are_not_those_of_the_generator(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        speedrun.main(["--levels"])
    assert ended.value.code == 2
    assert "--levels" in capsys.readouterr().err


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "damaged"),
        (b"no checkpoint", "damaged"),
        (b"PK\x03\x04" + bytes(100), "damaged"),
        (None, "damaged"),
        ([1], "lacks .*net"),
        ({"net": {}}, "lacks .*channels"),
    ],
)
@needs_levels
def test_a_checkpoint_that_cannot_be_read_is_named(
    content: Any, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / speedrun.CHECKPOINT
    if content is None:
        file.mkdir()
    elif isinstance(content, bytes):
        file.write_bytes(content)
    else:
        torch.save(content, file)
    assert speedrun.main(settings(tmp_path, "--resume")) == 1
    [line] = capsys.readouterr().out.splitlines()
    assert re.match(rf"BadData: {re.escape(str(file))} .*{message}", line)
    monkeypatch.setenv("SPEEDRUN_CHECKPOINT", str(file))
    with pytest.raises(BadData, match=message):
        speedrun.careful()


def test_a_policy_without_a_checkpoint_says_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPEEDRUN_CHECKPOINT", str(tmp_path / "nowhere.pt"))
    with pytest.raises(BadData, match=r"nowhere\.pt .*FileNotFoundError"):
        speedrun.careful()
    monkeypatch.delenv("SPEEDRUN_CHECKPOINT")
    with pytest.raises(BadSetting, match="set the environment variable SPEEDRUN_CHECKPOINT"):
        speedrun.careful()


@pytest.mark.filterwarnings("ignore:.*is a no-op:UserWarning")  # `meta` has no weights to load
def test_a_run_that_clones_on_another_device_resumes_with_its_states_on_the_cpu(tmp_path: Path) -> None:
    """Cloning makes arrays of its states, which only works on the CPU. The device `meta` stands for a GPU."""
    words = ["--held_back", "1", "--threads", "1", "--channels", "8", "--blocks", "1", "--out", str(tmp_path)]
    states = torch.arange(64, dtype=torch.uint8)[None]
    with ProcessPoolExecutor(1) as pool:
        run = speedrun.Run(speedrun.arguments().parse_args(words), pool)
        run.begin("clone", codes=[states], actions=[torch.zeros(1, dtype=torch.int64)], asked=1)
        run.save()
        resumed = speedrun.Run(speedrun.arguments().parse_args([*words, "--device", "meta"]), pool)
        resumed.load()
    assert resumed.net.head.weight.device.type == "meta"
    assert (torch.cat(resumed.state["codes"]).numpy() == states.numpy()).all()


@pytest.mark.heavy
@needs_levels
def test_ppo_alone_begins_next_to_the_end(small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(line: str) -> None:
        if "ppo: stage" in line:
            shown.append(line)
            os.kill(os.getpid(), signal.SIGTERM)

    shown: list[str] = []
    monkeypatch.setattr(speedrun, "show", stop)
    assert speedrun.main(settings(tmp_path, "--core_seconds", "60")) == 143
    assert "ppo: stage 1 of 10," in shown[0]


class EndlessBoards:
    """Two boards; every step runs into the time limit, in a state of potential 0.5."""

    def step(self, actions: np.ndarray) -> tuple[Any, ...]:
        late = np.ones(2, np.bool_)
        infos = {"deadlock": ~late, "potential": np.full(2, 0.5)}
        return np.ones((2, 100), np.uint8), np.zeros(2), ~late, late, infos

    def reset(self, options: dict[str, Any]) -> tuple[Any, ...]:
        return np.ones((2, 100), np.uint8), {}


class AnyLevel:
    """A curriculum with one level."""

    def note(self, tasks: np.ndarray, solved: np.ndarray) -> None:
        """Record nothing."""

    def draw(self, number: int) -> np.ndarray:
        return np.zeros(number, np.int64)


def test_dense_returns_include_the_potential_at_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shaping subtracts the potential of the last state at every end, but a time limit is no end of the task."""
    monkeypatch.setattr(sokoban_ppo, "BOARDS", 2)
    monkeypatch.setattr(sokoban_ppo, "STEPS", 1)
    returns = []
    for dense in (False, True):
        player = object.__new__(sokoban_ppo.Player)
        torch.manual_seed(0)
        player.net, player.envs, player.curriculum, player.dense = (
            sokoban_network.Net(8, 1),
            EndlessBoards(),
            AnyLevel(),
            dense,
        )
        player.turns, player.back = np.zeros(2, np.int64), np.argsort(sokoban_network.ACTIONS_OF, axis=1)
        player.tasks, player.steps, player.episodes = np.zeros(2, np.int64), 0, 0
        player.grids = np.ones((2, 100), np.uint8)
        returns.append(player.play()[-1])
    np.testing.assert_allclose(
        returns[1] - returns[0], sokoban_ppo.REWARD * sokoban_ppo.DENSE * sokoban_ppo.GAMMA * 0.5, rtol=1e-5
    )


def test_nothing_that_is_held_back_is_trained_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = speedrun.arguments().parse_args(["--held_back", "2", "--threads", "1", "--out", str(tmp_path)])
    with ProcessPoolExecutor(1) as pool:
        run = speedrun.Run(asked, pool)
    held = {board_hash(10, 10, level.cells) for level in run.held}
    assert len(run.held) == 2
    assert len(run.train) == 18
    assert not held & {board_hash(10, 10, level.cells) for level in run.train}
    first = {board_hash(10, 10, level.cells) for level in speedrun.invent([0], frozenset())}
    again = {board_hash(10, 10, level.cells) for level in speedrun.invent([0], frozenset(first))}
    assert first.isdisjoint(again), "what is held back is made no second time"


def test_a_turned_board_with_a_turned_action_is_the_turned_next_board() -> None:
    (level,) = speedrun.invent([1], frozenset())
    board = Board(level)
    step = [-10, 10, -1, 1]
    for word in solve(level) or ():
        action = ACTIONS.index(word)
        before = sokoban_network.inside(cell_codes(board.cells, board.player))
        board.move(action)
        after = sokoban_network.inside(cell_codes(board.cells, board.player))
        for cells, becomes in zip(sokoban_network.CELLS_OF, sokoban_network.ACTIONS_OF, strict=True):
            turned = np.zeros((10, 10), np.uint8)
            turned[1:-1, 1:-1] = before[:, cells].reshape(8, 8)
            start = sokoban_network.level_of(turned)
            again = Board(start)
            again.move(becomes[action])
            assert again.player == start.player + step[becomes[action]]
            assert (sokoban_network.inside(cell_codes(again.cells, again.player)) == after[:, cells]).all()


def test_starts_near_the_end_need_as_many_pushes_as_they_say() -> None:
    levels = speedrun.invent([2], frozenset())
    for level, pushes in sokoban_ppo.unplay(levels, 0)[:6]:
        board, pushed = Board(level), 0
        for word in solve(level) or ():
            board.move(ACTIONS.index(word))
            pushed += board.pushed_to >= 0
        assert board.solved
        assert pushed == pushes

"""Our rules against the real gym-sokoban package: boards, rewards and endings, step by step."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import agentgym_flow  # noqa: F401 (registers the ids)
from agentgym_flow.core import Stream
from agentgym_flow.envs.sokoban import game
from agentgym_flow.envs.sokoban.env import SokobanEnv
from agentgym_flow.envs.sokoban.game import Board, SokobanGame
from agentgym_flow.envs.sokoban.level import ACTIONS, BOX, TARGET, WALL, Level, cell_codes
from agentgym_flow.envs.sokoban.official import read_levels
from agentgym_flow.envs.sokoban.policies import SokobanExpert
from agentgym_flow.envs.sokoban.tasks import LevelSource
from agentgym_flow.errors import MissingExtra

pytest.importorskip("gym_sokoban", reason="the extra 'sokoban' is not installed")


def assert_equal_play(levels: list[Level], steps_each: int, guided: bool = False) -> tuple[int, int]:
    """Play the same random actions under both rules until the end; return the numbers of steps and of solved levels.

    When `guided`, every other action is the expert's, so that pushes onto and off targets and solutions are common.
    """
    steps = solved = 0
    for number, level in enumerate(levels):
        ours, theirs, expert = SokobanGame(level), SokobanGame(level, "gym-sokoban"), SokobanExpert(level)
        rng = Stream("differential", number)
        for _ in range(steps_each):
            advice = expert.next(ours.board.player, ours.boxes) if guided and rng.below(2) else None
            action = rng.below(len(ACTIONS)) if advice is None else ACTIONS.index(advice)
            assert ours.move(action) == theirs.move(action)
            assert ours.board.cells == theirs.board.cells
            assert (ours.board.player, ours.board.pushed_to) == (theirs.board.player, theirs.board.pushed_to)
            assert (ours.boxes, ours.deadlock) == (theirs.boxes, theirs.deadlock)
            assert ours.board.boxes_on_target == theirs.board.boxes_on_target
            assert ours.state_key == theirs.state_key
            steps += 1
            if ours.board.solved:
                solved += 1
                break
    return steps, solved


@pytest.mark.parametrize(("size", "boxes", "count"), [((6, 6), 1, 60), ((7, 8), 2, 40), ((6, 6), 3, 40)])
def test_generated_levels_play_alike(size: tuple[int, int], boxes: int, count: int) -> None:
    source = LevelSource(size=size, boxes=boxes)
    steps, solved = assert_equal_play([source.level(task) for task in range(count)], 60, guided=True)
    assert steps > 400
    assert solved >= count / 4


def test_boxoban_levels_play_alike(sample_data: Path) -> None:
    levels = read_levels(sample_data / "boxoban" / "unfiltered-valid.txt")[:25]
    levels += read_levels(sample_data / "boxoban" / "medium-valid.txt")[:25]
    steps, _ = assert_equal_play(levels, 60)
    assert steps > 2000


def test_boxes_that_start_on_targets_play_alike() -> None:
    texts = ["#######\n#@$*..#\n#  $  #\n#######", "########\n#+$ *  #\n#  $*. #\n########"]
    assert_equal_play([Level.parse(text) for text in texts for _ in range(20)], 60)


def test_boxoban_solutions_play_alike(sample_data: Path) -> None:
    data = str(sample_data / "boxoban" / "medium-valid.txt")
    env = gym.make("agentgym_flow/Sokoban-v0", data=data, split="valid")
    real = gym.make("agentgym_flow/Sokoban-v0", data=data, split="valid", backend="gym-sokoban")
    for task in range(10):
        assert env.reset(seed=1, options={"task": task}) == real.reset(seed=1, options={"task": task})
        done = False
        while not done:
            action = env.unwrapped.expert_action()
            result = env.step(action)
            assert result == real.step(action)
            done = result[2] or result[3]
        assert result[2]
        assert result[1] == -0.1 + 1 + 10


@pytest.mark.filterwarnings("ignore:Starting with ImageIO:DeprecationWarning")
def test_rooms_that_gym_sokoban_generates_play_as_its_own_class_plays_them() -> None:
    state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        random.seed(7)
        np.random.seed(7)  # noqa: NPY002
        for _ in range(12):
            room = game.room_class()(dim_room=(7, 7), max_steps=50, num_boxes=2)
            level = level_of(room)
            board = Board(level)
            done = False
            while not done:
                action = random.randrange(4)
                _, reward, done, _ = room.step(action + 1, observation_mode="tiny_rgb_array")
                assert board.move(action)[0] == reward
                shown = room.room_state.copy()
                shown[(shown == 5) & (room.room_fixed == 2)] = 6
                np.testing.assert_array_equal(cell_codes(board.cells, board.player).reshape(7, 7), shown)
            assert board.solved == room._check_if_all_boxes_on_target()
    finally:
        random.setstate(state)
        np.random.set_state(numpy_state)  # noqa: NPY002


def level_of(room: Any) -> Level:
    bits = np.select([room.room_fixed == 0, room.room_fixed == 2], [WALL, TARGET], 0)
    bits += np.where(np.isin(room.room_state, (3, 4)), BOX, 0)
    height, width = bits.shape
    player = int(room.player_position[0]) * width + int(room.player_position[1])
    return Level(height, width, bits.astype(np.uint8).tobytes(), player)


def test_global_random_state_is_untouched() -> None:
    state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002
    env = SokobanEnv(backend="gym-sokoban")
    env.reset(seed=0)
    env.step("up")
    assert random.getstate() == state
    assert (np.random.get_state()[1] == numpy_state[1]).all()  # noqa: NPY002


def test_the_import_is_silent() -> None:
    code = (
        "from agentgym_flow.envs.sokoban.env import SokobanEnv\n"
        "env = SokobanEnv(backend='gym-sokoban')\n"
        "env.reset(seed=0)\n"
        "env.step('up')"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("missing", ["gym_sokoban", "gym_notices"])
def test_a_missing_package_names_the_extra(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    game.room_class.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == missing]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(MissingExtra, match=r"gym-sokoban is not installed\..*agentgym_flow\[sokoban\]"):
        SokobanEnv(backend="gym-sokoban")
    game.room_class.cache_clear()


def test_both_backends_have_the_same_task_keys() -> None:
    native, real = SokobanEnv(), SokobanEnv(backend="gym-sokoban")
    assert native.reset(seed=5) == real.reset(seed=5)
    assert native.settings != real.settings

"""The text environment: which game is played, what is told, and files on disk."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from agentgym_flow import data
from agentgym_flow.core import MAX_CANDIDATES
from agentgym_flow.envs.alfworld.compiled_game import members
from agentgym_flow.envs.alfworld.env import ALFWorldEnv
from agentgym_flow.envs.alfworld.official import GAME_FILE, read_game, write_game
from agentgym_flow.envs.alfworld.problem import TASK_TYPES
from agentgym_flow.envs.alfworld.tasks import task_problem
from agentgym_flow.errors import (
    BadData,
    BadGame,
    BadSetting,
    ResetNeeded,
    UnknownData,
    UnknownOption,
    UnknownSplit,
    UnknownTask,
)
from agentgym_flow.play import EpisodeSpec, rollout
from agentgym_flow.policies import make_policy


def make(**settings: Any) -> ALFWorldEnv:
    env = gym.make("agentgym_flow/ALFWorld-v0", **settings).unwrapped
    assert isinstance(env, ALFWorldEnv)
    return env


def win(env: ALFWorldEnv) -> tuple[str, float, dict[str, Any]]:
    while True:
        action = env.expert_action()
        assert action is not None
        observation, reward, terminated, truncated, info = env.step(action)
        if terminated or truncated:
            return observation, reward, info


# ---------------------------------------------------------------- which game
@pytest.mark.parametrize("task_type", [*TASK_TYPES, 2, 6])
def test_a_type_of_task_can_be_asked_for(task_type: object) -> None:
    env = make(split="valid")
    name = TASK_TYPES[task_type - 1] if isinstance(task_type, int) else task_type
    tasks = set()
    for seed in range(4):
        _, info = env.reset(seed=seed, options={"task_type": task_type})
        assert info["task_type"] == name
        tasks.add(info["task"])
        assert env.reset(seed=seed, options={"task_type": task_type})[1]["task"] == info["task"]
    assert len(tasks) > 1


def test_contradictory_and_meaningless_options_are_refused(tmp_path: Path) -> None:
    env = make(split="valid")
    task = env.reset(seed=0, options={"task_type": 2})[1]["task"]
    assert env.reset(options={"task": task, "task_type": 2})[1]["task"] == task
    with pytest.raises(UnknownTask, match="not of type 3"):
        env.reset(options={"task": task, "task_type": 3})
    with pytest.raises(UnknownOption, match="look_at_obj_in_light"):
        env.reset(options={"task_type": "look_at_object_in_light"})
    with pytest.raises(UnknownOption):
        env.reset(options={"task_type": 7})
    with pytest.raises(BadSetting, match="with data"):
        env.reset(options={"game_file": str(tmp_path)})
    with pytest.raises(UnknownOption):
        make(engine="quick")


def test_official_names_of_the_splits_are_understood(sample_data: Path) -> None:
    assert make(split="valid_unseen").split == make(split="eval_out_of_distribution").split == "test"
    assert make(split="valid_seen").split == "valid"
    assert make(split="valid_seen", data=sample_data / "alfworld").num_tasks == 12
    with pytest.raises(BadData, match="valid_unseen"):
        make(split="test", data=sample_data / "alfworld")
    with pytest.raises(UnknownSplit):
        make(split="valid_sen")


def test_a_game_is_chosen_by_its_file(sample_data: Path, tmp_path: Path) -> None:
    root = sample_data / "alfworld"
    env = make(split="valid", data=root)
    renamed = tmp_path / "json_2.1.1"  # as published lists say, and ALFWORLD_DATA names its parent
    renamed.symlink_to(root)
    lists = (env, *(make(split="valid", data=data) for data in (tmp_path, renamed)))
    for path in sorted(root.rglob(GAME_FILE))[::5]:
        for name in (path, path.parent, path.relative_to(root), str(path.parent.relative_to(root))):
            _, info = env.reset(options={"game_file": name})
            assert info["game_file"] == path.relative_to(root).as_posix()
        assert env.reset(options={"task": info["task"]})[1]["game_file"] == info["game_file"]
        for named in lists:
            listed = f"json_2.1.1/{path.relative_to(root)}"
            assert named.reset(options={"game_file": listed})[1]["task"] == info["task"]
    with pytest.raises(UnknownTask, match="none of the 12 games"):
        env.reset(options={"game_file": tmp_path / GAME_FILE})
    with pytest.raises(UnknownTask, match="one of them"):
        env.reset(options={"game_file": path, "task": 0})


def test_every_official_sample_is_won(sample_data: Path) -> None:
    env = make(split="valid", data=sample_data / "alfworld")
    env.request_info(["official_key"])
    assert env.data.keys() == {"alfworld"}
    kinds = set()
    for task in range(env.num_tasks):
        _, info = env.reset(options={"task": task})
        assert info["game_file"].split("/")[1].startswith(info["task_type"])
        kinds.add(info["task_type"])
        _, reward, info = win(env)
        assert (reward, info["success"], info["score"], info["state_key"]) == (1.0, True, 1.0, "end:success:won")
        assert info["official_key"] == "You Won!"
    assert kinds == set(TASK_TYPES)


def test_one_file_is_a_data_set_of_one_game(sample_data: Path) -> None:
    path = next((sample_data / "alfworld").rglob(GAME_FILE))
    env = make(split="valid", data=path)
    assert env.num_tasks == 1
    assert env.reset(seed=3)[1]["game_file"] == path.relative_to(sample_data / "alfworld").as_posix()
    with pytest.raises(BadData, match="to the split 'valid' by the name valid_seen, not to 'test'"):
        make(split="test", data=path)


def test_the_variable_of_the_original_is_understood(sample_data: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("AGENTGYM_FLOW_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)
    with pytest.raises(UnknownData, match="alfworld"):
        make(data="alfworld")
    shutil.copytree(sample_data / "alfworld", tmp_path / "official" / "json_2.1.1")
    (tmp_path / "official" / "logic").mkdir()
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path / "official"))
    env = make(data="alfworld", split="valid")
    assert env.num_tasks == 12
    assert data.place("alfworld") == tmp_path / "official" / "json_2.1.1"
    # What is registered goes first, and has the same identity under the same content.
    data.add("alfworld", sample_data / "alfworld")
    assert make(data="alfworld", split="valid").data == env.data


def test_a_damaged_file_is_named_with_its_line(sample_data: Path, tmp_path: Path) -> None:
    path = next((sample_data / "alfworld").rglob(GAME_FILE))
    content = json.loads(path.read_text("utf-8"))
    content["pddl_problem"] = content["pddl_problem"].replace("(inReceptacle ", "(inReceptacles ", 1)
    (tmp_path / GAME_FILE).write_text(json.dumps(content), "utf-8")
    env = make(data=tmp_path, split="test")
    with pytest.raises(BadGame, match=r"game\.tw-pddl: pddl_problem: line \d+: .*inreceptacles"):
        env.reset()
    with pytest.raises(ResetNeeded):
        env.step("look")


def test_numbers_of_any_kind_name_a_type_and_none_names_nothing() -> None:
    env = make(split="valid")
    named = env.reset(seed=1, options={"task_type": np.int64(4)})[1]
    assert named["task_type"] == TASK_TYPES[3]
    assert env.reset(seed=1, options={"task_type": 4})[1]["task"] == named["task"]
    free = env.reset(seed=1, options={"task": None, "task_type": None, "game_file": None})[1]
    assert free["task"] == env.reset(seed=1)[1]["task"]
    with pytest.raises(UnknownOption):
        env.reset(options={"task_type": True})


def test_linked_folders_and_files_are_part_of_the_data(sample_data: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "elsewhere").mkdir()
    games = sorted((sample_data / "alfworld").rglob(GAME_FILE))
    (tmp_path / "elsewhere" / "one").symlink_to(games[0].parent)
    (tmp_path / "data" / "train").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "around").symlink_to(tmp_path / "data")  # a circle
    env = make(data=tmp_path / "data")
    assert env.num_tasks == 1
    _, info = env.reset()
    assert info["game_file"] == f"train/one/{GAME_FILE}"
    assert env.reset(options={"game_file": info["game_file"]})[1]["task"] == 0
    before = env.data
    (tmp_path / "elsewhere" / "two").symlink_to(games[1].parent)
    again = make(data=tmp_path / "data")
    assert again.num_tasks == 2
    assert again.data != before


def test_what_the_game_does_not_need_cannot_stop_it(sample_data: Path, tmp_path: Path) -> None:
    shutil.copy(next((sample_data / "alfworld").rglob(GAME_FILE)), tmp_path)
    (tmp_path / "traj_data.json").write_text("{", "utf-8")
    assert make(data=tmp_path, split="test").reset()[1]["task"] == 0
    with pytest.raises(UnknownTask):
        make(data=tmp_path, split="test").reset(options={"game_file": "x" * 5000})


def test_a_game_with_help_is_another_task_than_one_without(tmp_path: Path) -> None:
    problem, words = task_problem("valid", 0)
    for name, help_text in (("with", words.help), ("without", None)):
        write_game(tmp_path / name, problem, replace(words, help=help_text), ())
    env = make(data=tmp_path, split="test")
    assert len({env.reset(options={"task": task})[1]["task_key"] for task in (0, 1)}) == 2


# ---------------------------------------------------------------- what is told
def test_what_fits_nowhere_is_told() -> None:
    env = make(split="test")
    for task in range(env.num_tasks):
        env.reset(options={"task": task})
        game = env.game.compiled
        lost = [thing for thing in members(game.having["pickupable"] & ~game.wanted) if not game.things[thing].fits]
        open_places = [r for r, mask in enumerate(game.start.inside) if not game.receptacles[r].openable and lost
                       and mask >> lost[0] & 1]  # fmt: skip
        if open_places:
            break
    place = game.receptacles[open_places[0]].name
    assert not env.step(f"go to {place}")[4]["deadlock"]
    *_, info = env.step(f"take {game.things[lost[0]].name} from {place}")
    assert info["action_valid"]
    assert info["deadlock"]
    assert env.expert_action() is None


def test_both_wordings_of_putting_down_are_understood() -> None:
    env = make(split="valid")
    env.reset(seed=0, options={"task_type": 1})
    while not (action := env.expert_action() or "").startswith("move "):
        env.step(action)
    thing, place = action.removeprefix("move ").split(" to ")
    assert action in env.admissible_actions()
    alias = f"put {thing} in/on {place}"
    assert alias not in env.admissible_actions()
    observation, _, _, _, info = env.step(alias)
    assert observation == f"You move the {thing} to the {place}."
    assert info["action_valid"]
    assert env.settings == {"engine": "fast"}
    for aliases in ("yes", 1):
        with pytest.raises(BadSetting, match="aliases must be True, False or None"):
            make(aliases=aliases)


def test_without_aliases_a_game_takes_only_its_own_wording(sample_data: Path) -> None:
    """As the original engine does; so it is with official games, and on request with generated ones."""
    official = min((sample_data / "alfworld" / "valid_seen").glob("pick_and_place*/*/*"))
    logs = []
    for settings in ({"split": "valid", "aliases": False}, {"data": official, "split": "valid"}):
        env = make(**settings)
        env.reset(options={"task_type": 1})
        while not (action := env.expert_action() or "").startswith("move "):
            env.step(action)
        before = env.state_key()
        thing, place = action.removeprefix("move ").split(" to ")
        observation, _, _, _, info = env.step(f"put {thing} in/on {place}")
        assert (observation, info["action_valid"], info["state_key"]) == ("Nothing happens.", False, before)
        assert env.step(action)[4]["action_valid"]
        logs.append(env.settings)
    # What is the default is not in logs, so that those of before say the same as ever.
    assert logs == [{"engine": "fast", "aliases": False}, {"engine": "fast"}]


def test_invalid_text_costs_a_step_and_nothing_else() -> None:
    env = make(split="valid")
    _, before = env.reset(seed=0)
    for text in ("fly to the moon", "", "move x to y", "put the thing in/on", "Look", "go  to"):
        observation, reward, terminated, _, info = env.step(text)
        assert (observation, reward, terminated) == ("Nothing happens.", 0.0, False)
        assert not info["action_valid"]
        assert info["state_key"] == before["state_key"]
    assert env.steps == 6


def test_the_published_key_marks_what_was_just_done() -> None:
    env = make(split="valid")
    env.request_info(["official_key"])
    observation, info = env.reset(seed=0, options={"task_type": 4})
    assert info["official_key"] == f"{observation} You are not carrying anything."
    while not (action := env.expert_action() or "").startswith("heat "):
        env.step(action)
    observation, _, _, _, info = env.step(action)
    thing = action.removeprefix("heat ").split(" with ")[0]
    assert info["official_key"] == f"{observation} You are carrying: a {thing} (heated)."
    observation, _, _, _, info = env.step("look")
    assert info["official_key"] == f"{observation} You are carrying: a {thing}."


def test_candidates_are_few_and_leave_out_what_changes_nothing_first() -> None:
    env = make(split="train")
    seen = 0
    for task in range(40):
        env.reset(options={"task": task})
        commands = env.admissible_actions()
        candidates = env.candidates()
        assert len(candidates) <= MAX_CANDIDATES
        if len(commands) <= MAX_CANDIDATES:
            assert candidates == commands
            seen += 1
    assert seen
    env._game.compiled.menus.clear()
    long = [f"go to cabinet {number}" for number in range(70)]
    env.admissible_actions = lambda: ["examine cabinet 1", *long, "look", "take mug 1 from cabinet 1"]  # type: ignore[method-assign]
    assert env.candidates() == long[:MAX_CANDIDATES]


def test_the_description_shows_the_whole_room() -> None:
    env = make(split="valid", render_mode="ansi")
    env.reset(seed=0)
    text = env.render()
    for place in env.game.compiled.receptacles:
        assert place.name in text
    assert "You are at: the middle of the room" in text
    assert env.goal in text


# ---------------------------------------------------------------- the script
def test_the_script_plays_from_the_text_alone() -> None:
    policy = make_policy("scripted", "agentgym_flow/ALFWorld-v0")
    specs = [EpisodeSpec(0, task) for task in range(0, 500, 5)]
    episodes = rollout(policy, lambda: make(split="test"), specs)
    won = sum(episode.success for episode in episodes)
    assert 85 <= won < 100
    assert max(len(episode.turns) for episode in episodes if episode.success) > 15  # it has to look for things


def test_the_script_looks_around_where_the_task_is_in_free_words(sample_data: Path, tmp_path: Path) -> None:
    path = next((sample_data / "alfworld").rglob(GAME_FILE))
    sentence = read_game(path).words.task
    content = path.read_text("utf-8").replace(sentence, "Do something nice with it.")
    (tmp_path / GAME_FILE).write_text(content, "utf-8")
    [episode] = rollout(
        make_policy("scripted", "agentgym_flow/ALFWorld-v0"),
        lambda: make(data=tmp_path, split="test"),
        [EpisodeSpec(0, 0)],
    )
    assert all(turn.action_valid for turn in episode.turns)
    assert len({turn.action for turn in episode.turns}) > 5

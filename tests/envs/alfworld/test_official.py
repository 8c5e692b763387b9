"""Official games as people have them on disk: each folder is read as its authors lay it out, or refused."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from msgspec import structs
from typer.testing import CliRunner

from agentgym_flow import data
from agentgym_flow.cli.app import app
from agentgym_flow.envs.alfworld.domain import DOMAIN_WITHOUT_HELP
from agentgym_flow.envs.alfworld.env import ALFWorldEnv
from agentgym_flow.envs.alfworld.grammar import write_grammar
from agentgym_flow.envs.alfworld.official import (
    GAME_FILE,
    OFFICIAL_FOLDERS,
    SPLIT_FOLDERS,
    TRAJECTORY_FILE,
    find_games,
    game_json,
    games_by_split,
)
from agentgym_flow.envs.alfworld.tasks import export_game, task_problem
from agentgym_flow.episodes import LoggedEpisode
from agentgym_flow.errors import BadData, UnknownSplit, UnknownTask
from agentgym_flow.leaderboard.track import Track, make_track
from agentgym_flow.play import rollout
from agentgym_flow.play.groups import EpisodeSpec
from agentgym_flow.policies import RandomPolicy
from agentgym_flow.replay import replay

SIZES = {"train": 3553, "valid": 140, "test": 134, "valid_train": 200}
FULL = {split: OFFICIAL_FOLDERS[split] for split in SIZES}


@pytest.fixture(autouse=True)
def no_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTGYM_FLOW_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)


@pytest.fixture(scope="session")
def game(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A game file in the official format."""
    return export_game(tmp_path_factory.mktemp("game"), "valid", 0)


def add_games(folder: Path, game: Path, count: int, **changes: Any) -> None:
    """Put copies of a game into the folder of a split; they differ, and have names of their own."""
    content = json.loads(game.read_text()) | changes
    content = {key: value for key, value in content.items() if value is not None}
    for number in range(count):
        trial = folder / f"pick_and_place_simple-Mug-None-Shelf-{number // 3}" / f"trial_T{folder.name}_{number:06}"
        trial.mkdir(parents=True)
        (trial / GAME_FILE).write_text(json.dumps(content) + " " * number)
        (trial / TRAJECTORY_FILE).write_text("{}")


@pytest.fixture
def root(tmp_path: Path, game: Path) -> Path:
    """The folder that `ALFWORLD_DATA` names, with few games in each split."""
    official = tmp_path / "alfworld" / "json_2.1.1"
    for count, folder in enumerate(OFFICIAL_FOLDERS.values(), 2):
        add_games(official / folder, game, count)
    (tmp_path / "alfworld" / "logic").mkdir()
    (tmp_path / "alfworld" / "detectors").mkdir()
    return tmp_path / "alfworld"


def settle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let new files count as unmodified at once."""
    monkeypatch.setattr("agentgym_flow._util.files._SETTLED", -(10**18))


def make(place: Path | str, split: str = "train") -> ALFWorldEnv:
    return ALFWorldEnv(data=place, split=split)


def files(place: Path, split: str) -> set[Path]:
    found = find_games(place, split)
    return {(found.top / name).resolve() for name in found.names}


@pytest.mark.heavy
def test_the_full_set_has_its_official_sizes_wherever_it_is_named(
    tmp_path: Path, game: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(monkeypatch)
    official = tmp_path / "alfworld" / "json_2.1.1"
    small = tmp_path / "small"
    small.write_text('{"solvable": true}')
    for split, folder in FULL.items():
        for number in range(SIZES[split]):  # which games are there is all that counts here
            trial = official / folder / f"look_at_obj_in_light-CD-None-DeskLamp-{number // 3}" / f"trial_{number}"
            trial.mkdir(parents=True)
            (trial / GAME_FILE).hardlink_to(small)
    for place in (official.parent, official):
        for split, count in SIZES.items():
            assert make(place, split).num_tasks == count
    done = CliRunner().invoke(app, ["data", "add", "alfworld", str(official.parent)])
    assert done.exit_code == 0, done.output
    assert "played as: train 3,553, valid 140, test 134, valid_train 200" in done.stdout
    for split, count in SIZES.items():
        assert make("alfworld", split).num_tasks == count
    monkeypatch.setenv("ALFWORLD_DATA", str(official.parent))
    (tmp_path / "home" / "data.json").unlink()
    assert make("alfworld", "valid_unseen").num_tasks == 134


def test_splits_share_no_file_and_are_the_same_from_the_root_down(root: Path) -> None:
    official = root / "json_2.1.1"
    by_split = {split: files(root, split) for split in OFFICIAL_FOLDERS}
    assert [len(found) for found in by_split.values()] == [2, 3, 4, 5]
    assert len(set().union(*by_split.values())) == sum(map(len, by_split.values()))
    for split, folder in OFFICIAL_FOLDERS.items():
        envs = [make(place, split) for place in (root, official, official / folder)]
        starts = [env.reset(options={"task": 0})[1] for env in envs]
        assert (
            len(
                {
                    (*env.data.values(), info["task_key"], info["game_file"])
                    for env, info in zip(envs, starts, strict=True)
                }
            )
            == 1
        )
        assert starts[0]["game_file"].startswith(f"{folder}/pick_and_place_simple-")
        for other in OFFICIAL_FOLDERS:
            if other != split:
                with pytest.raises(BadData, match=f"belongs to the split '{split}' by the name {folder}"):
                    make(official / folder, other)
    assert make(root, "valid_train").split == "valid_train"
    with pytest.raises(UnknownSplit, match="valid_train"):  # of official data only
        ALFWorldEnv(split="valid_train")


def test_a_task_or_a_file_is_of_the_split_above_it(root: Path) -> None:
    path = min((root / "json_2.1.1" / "valid_unseen").rglob(GAME_FILE))
    for place, count in ((path, 1), (path.parent, 1), (path.parent.parent, 3)):
        assert make(place, "test").num_tasks == count
        assert make(place, "test").reset(options={"task": 0})[1]["game_file"].startswith("valid_unseen/pick_and")
        with pytest.raises(BadData, match="to the split 'test' by the name valid_unseen, not to 'train'"):
            make(place)


def test_games_whose_split_no_name_tells_are_to_be_tested_on(tmp_path: Path, game: Path) -> None:
    mine = tmp_path / "three" / "folders" / "down" / "mine"  # the name of pytest's folder says test
    add_games(mine, game, 3)
    assert make(mine, "test").num_tasks == 3
    message = "no split in its name, so it belongs to 'test' and not to 'train': .* into a folder train"
    with pytest.raises(BadData, match=message):
        make(mine)
    mine.rename(mine.with_name("my_valid_unseen2"))
    [(split, found)] = games_by_split(mine.with_name("my_valid_unseen2")).items()
    assert (split, len(found.names)) == ("test", 3)
    mine.with_name("my_valid_unseen2").rename(mine.with_name("some_train"))
    path = min(mine.with_name("some_train").rglob(GAME_FILE))
    for place in (path, path.parent, path.parents[1], path.parents[2]):
        assert list(games_by_split(place)) == ["train"]


def test_other_versions_have_their_own_names(root: Path, game: Path) -> None:
    names = make(root / "json_2.1.1", "test").data
    assert list(names) == ["json_2.1.1"]  # the ending of a folder's name is a part of it
    (root / "json_2.1.1").rename(root / "json_2.1")
    assert make(root, "test").data == {"alfworld": names["json_2.1.1"]}
    assert list(make(root / "json_2.1", "test").data) == ["json_2.1"]
    add_games(root / "json_2.1.0" / "valid_unseen", game, 1)
    with pytest.raises(BadData, match=r"splits in several folders; name one of: \S*json_2.1, \S*json_2.1.0$"):
        make(root, "test")
    (root / "json_2.1").rename(root / "json_2.1.1")  # the one that the original reads
    assert make(root, "test").num_tasks == 4


LAYOUTS = {
    "two folders above the splits": (
        [("official/alfworld/json_2.1.1/train", 1), ("official/alfworld/json_2.1.1/valid_unseen", 1)],
        "has splits in folders below it; choose one of: .*/alfworld/json_2.1.1$",
    ),
    "two copies beside each other": (
        [("official/one/valid_unseen", 1), ("official/two/valid_unseen", 1)],
        "has splits in folders below it; choose one of: .*/one, .*/two$",
    ),
    "unpacked twice": (
        [("official/valid_unseen", 1), ("official/json_2.1.1/valid_unseen", 1)],
        "has splits in several folders; name one of: .*official, .*json_2.1.1$",
    ),
    "a split in a split": (
        [("official/valid_unseen", 1), ("official/valid_unseen/valid_unseen", 1)],
        "valid_unseen is one split's folder, and has a folder valid_unseen in it",
    ),
    "both names of a split": (
        [("official/valid_unseen", 1), ("official/test", 1)],
        "two folders of the split 'test', valid_unseen and test; leave one",
    ),
    "the split is not there": (
        [("official/train", 1), ("official/valid_seen", 1)],
        "has no folder valid_unseen or test for the split 'test'; it has train, valid_seen$",
    ),
    "nothing": ([("official", 0)], f"holds no {GAME_FILE}; official games lie in"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_can_be_read_in_two_ways_is_refused(layout: str, tmp_path: Path, game: Path) -> None:
    folders, message = LAYOUTS[layout]
    for folder, count in folders:
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        add_games(tmp_path / folder, game, count)
    with pytest.raises(BadData, match=message):
        make(tmp_path / "official", "test")
    done = CliRunner().invoke(app, ["data", "add", "alfworld", str(tmp_path / "official")])
    if layout != "the split is not there":
        assert done.exit_code != 0  # what cannot be played is not registered
        assert data.registered() == []


def test_a_copy_of_a_game_in_its_split_is_refused(root: Path) -> None:
    split = root / "json_2.1.1" / "valid_unseen"
    task = next(path for path in split.iterdir())
    shutil.copytree(task, split / "backup" / task.name)
    with pytest.raises(BadData, match=r"has a game twice, .*; remove one of the copies"):
        make(root, "test")
    (split / "backup").rename(split / ".snapshot")  # hidden folders do not count, nor what macOS leaves
    shutil.copytree(split / ".snapshot", split / "__MACOSX")
    for name in (".DS_Store", f"._{GAME_FILE}"):
        (task / name).write_text("")
    assert make(root, "test").num_tasks == 4


def test_one_folder_under_two_names_is_refused(root: Path) -> None:
    shutil.rmtree(root / "json_2.1.1" / "valid_seen")
    (root / "json_2.1.1" / "valid_seen").symlink_to("train")
    with pytest.raises(BadData, match="train and valid_seen are one folder; each split needs its own"):
        make(root, "train")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"solvable": None}, "1 without the key solvable"), ({"solvable": False}, "1 marked as not solvable")],
)
def test_games_that_the_original_skips_are_skipped(
    changes: dict[str, Any], reason: str, tmp_path: Path, game: Path
) -> None:
    place = tmp_path / "json_2.1.1"
    add_games(place / "valid_unseen", game, 1, **changes)
    with pytest.raises(BadData, match=f"has no game that ALFWorld plays: {reason}$"):
        make(place, "test")
    before = len(list(place.rglob(GAME_FILE)))
    for name in ("good", "pick_heat-movable_recep", "pick-AppleSliced-None"):
        trial = place / "valid_unseen" / name / "trial_1"
        trial.mkdir(parents=True)
        shutil.copy(game, trial)
    (place / "valid_unseen" / "no game" / "trial_1").mkdir(parents=True)
    (place / "valid_unseen" / "no game" / "trial_1" / TRAJECTORY_FILE).write_text("{}")
    assert find_games(place, "test").names == (f"valid_unseen/good/trial_1/{GAME_FILE}",)
    assert before == 1


DAMAGE = {
    "cut off": (lambda content: content[:500], "is damaged: fetch it again"),
    "empty": (lambda content: b"", "line 1: invalid JSON"),
    "no text": (lambda content: b"\xff" + content, "byte 0 is not UTF-8"),
    "cut off after the flag": (lambda content: content[: content.index(b'"solvable"') + 18], "invalid JSON"),
    "another flag": (
        lambda content: content.replace(b'"solvable": true', b'"solvable": "yes"'),
        "must be true or false",
    ),
    "a list": (lambda content: b"[]", "expected a JSON object"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_game_is_named_and_never_left_out(damage: str, root: Path) -> None:
    path = min((root / "json_2.1.1" / "valid_unseen").rglob(GAME_FILE))
    change, message = DAMAGE[damage]
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(BadData, match=f"{path.parent.name}/{GAME_FILE}: .*{message}"):
        make(root, "test")
    with pytest.raises(BadData, match=GAME_FILE):
        make(path, "test")
    assert make(root, "valid").num_tasks == 3
    played = ["evaluate", "ALFWorld-v0", "--policy", "random", "--env-arg", f"data={root}", "--split", "test"]
    checked = ["data", "check", str(root), "--env", "alfworld"]
    for command in (["data", "add", "alfworld", str(root)], checked, played):
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 2
        assert f"{path.parent.name}/{GAME_FILE}" in "".join(done.output.split())
    assert data.registered() == []


def test_what_is_left_out_is_counted_and_shown(root: Path, game: Path) -> None:
    split = root / "json_2.1.1" / "valid_unseen"
    add_games(split / "one", game, 2, solvable=False)
    add_games(split / "two", game, 1, solvable=None)
    add_games(split / "movable", game, 3)
    next((split / "two").rglob(GAME_FILE)).with_name("game.txt").write_text("")
    bare = next(path for path in split.rglob(TRAJECTORY_FILE) if not {"one", "two", "movable"} & set(path.parts))
    bare.with_name(GAME_FILE).unlink()
    assert make(root, "test").num_tasks == 3
    lines = [
        "played as: train 2, valid 3, test 3, valid_train 5",
        "test: 3 left out, named movable or Sliced. The first: movable/",
        "test: 2 left out, marked as not solvable. The first: one/",
        "test: 1 left out, without the key solvable. The first: two/",
        f"test: 1 left out, with traj_data.json but without game.tw-pddl. The first: {bare.parent.parent.name}/",
    ]
    for command in (["add", "alfworld", str(root)], ["check", "alfworld"]):
        done = CliRunner().invoke(app, ["data", *command])
        assert done.exit_code == 0, done.output
        said = done.stdout.replace("\n", "")
        assert all(line in said for line in lines)
        assert said.count("left out") == 4


def test_a_link_to_nothing_and_a_folder_that_cannot_be_read_are_named(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = min((root / "json_2.1.1" / "valid_unseen").rglob(GAME_FILE))
    path.unlink()
    path.symlink_to("gone")
    with pytest.raises(BadData, match=f"{path.parent.name}/{GAME_FILE} is a link to nothing"):
        make(root, "test")
    path.unlink()
    scandir = os.scandir

    def refuse(folder: Any) -> Any:
        if Path(folder) == path.parent:
            raise PermissionError(13, "Permission denied", str(folder))
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(BadData, match=f"{path.parent.name}: cannot be read .Permission denied"):
        make(root, "test")


def test_trajectories_without_games_name_the_tool_that_fetches_them(tmp_path: Path) -> None:
    trial = tmp_path / "json_2.1.1" / "train" / "task" / "trial"
    trial.mkdir(parents=True)
    (trial / TRAJECTORY_FILE).write_text("{}")
    with pytest.raises(BadData, match="alfworld-download"):
        make(tmp_path)


def test_the_original_finds_the_same_games(root: Path, game: Path) -> None:
    """Its own collector, where alfworld is installed."""
    split = root / "json_2.1.1" / "train"
    add_games(split / "odd", game, 2, solvable=None)
    add_games(split / "movable", game, 2)
    found = {path.resolve() for path in map(Path, original_games(split))}
    assert found == files(root, "train")
    assert len(found) == 2


def original_games(folder: Path) -> list[str]:
    from agentgym_flow.envs.alfworld import real

    try:
        tools = real._import_alfworld("alfworld.agents.environment.alfred_tw_env")
    except ImportError:
        pytest.skip("the extra 'alfworld' is not installed")
    for path in folder.rglob(TRAJECTORY_FILE):
        path.write_text('{"task_type": "pick_and_place_simple"}')
    settings = {"goal_desc_human_anns_prob": 0, "task_types": [1, 2, 3, 4, 5, 6]}
    games: list[str] = tools.AlfredTWEnv(
        {"env": settings, "dataset": {"data_path": str(folder), "num_train_games": -1}}
    ).game_files
    return games


def test_a_game_file_may_be_relative_to_any_of_the_folders(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    official = root / "json_2.1.1"
    path = max((official / "valid_unseen").rglob(GAME_FILE))
    monkeypatch.chdir(root.parent)
    env = make("alfworld", "test")  # a relative folder, too
    for base in (root.parent, root, official, official / "valid_unseen"):
        for name in (path.relative_to(base), str(path.parent.relative_to(base)), path):
            _, info = env.reset(options={"game_file": name})
            assert info["game_file"] == path.relative_to(official).as_posix()
    monkeypatch.chdir("/")  # where an environment was made does not matter later
    env.reset(options={"game_file": path.relative_to(root)})
    other = next((official / "train").rglob(GAME_FILE))
    for name in (other, other.relative_to(root), GAME_FILE, "/", "\x00"):
        with pytest.raises(UnknownTask, match="none of the 4 games of split 'test'"):
            env.reset(options={"game_file": name})


# -------------------------------------------------------------------------------- digests
def test_a_game_is_hashed_once_while_it_is_unchanged(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(monkeypatch)
    read: list[str] = []
    whole = Path.read_bytes

    def read_bytes(path: Path) -> bytes:
        read.append(path.name)
        return whole(path)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    first = make(root, "test").data
    assert read == [GAME_FILE] * 4  # no other split, and no trajectory
    for _ in range(3):
        assert make(root, "test").data == first
        assert list(make(root / "json_2.1.1", "test").data.values()) == list(first.values())
    envs = gym.make_vec("agentgym_flow/ALFWorld-v0", num_envs=8, data=str(root), split="test")
    envs.close()
    assert len(read) == 4
    path = next((root / "json_2.1.1" / "valid_unseen").rglob(GAME_FILE))
    path.write_bytes(whole(path).replace(b"mug", b"cup"))
    assert make(root, "test").data != first
    assert len(read) == 5
    path.unlink()
    assert make(root, "test").num_tasks == 3


def key_in(place: Path, split: str = "test") -> tuple[str, str]:
    """The SHA-256 of the data, and the key of the first game."""
    env = make(place, split)
    env.reset(options={"task": 0})
    return *env.data.values(), env.task_key


def test_only_what_decides_play_is_in_digests_and_keys(root: Path) -> None:
    """Copies of the official games differ in `walkthrough` only, and in how their JSON is written."""
    official = root / "json_2.1.1"
    path = min((official / "valid_unseen").rglob(GAME_FILE))
    content, before = path.read_text(), key_in(official)
    as_published = json.loads(content)
    for same in (
        {**as_published, "walkthrough": ["go to Shelf_bar_01", "look"]},
        {key: value for key, value in reversed(as_published.items()) if key != "walkthrough"},
    ):
        path.write_text(json.dumps(same, indent=1))
        assert key_in(official) == before
    another = task_problem("valid", 1)
    for other in (
        game_json(*another, ()),
        {"pddl_domain": DOMAIN_WITHOUT_HELP},
        {"grammar": write_grammar(another[1])},
    ):
        path.write_text(json.dumps(as_published | other))
        assert not {*key_in(official)} & {*before}
    path.write_text(content)
    assert key_in(official) == before


def test_a_log_and_a_track_of_an_earlier_version_say_so(root: Path) -> None:
    official = root / "json_2.1.1"
    games = find_games(official, "test")
    of = {"data": {official.name: games.former_digest}}
    here = {official.name: official}
    (episode,) = rollout(RandomPolicy(), lambda: make(official, "test"), [EpisodeSpec(0, 0)])
    logged = LoggedEpisode.of(episode)
    assert replay(logged, here).task_key == episode.task_key
    with pytest.raises(BadData, match="the log is of an earlier version of this package"):
        replay(dataclasses.replace(logged, **of), here)
    board = make_track("agentgym_flow/ALFWorld-v0", "games", "Games", kwargs={"data": official})
    board.check(here)
    with pytest.raises(BadData, match="track games is of an earlier version of this package"):
        structs.replace(board, **of).check(here)


@pytest.mark.heavy
@pytest.mark.parametrize(("name", "split"), [("alfworld-seen-s0", "valid"), ("alfworld-unseen-s0", "test")])
def test_the_committed_tracks_are_the_official_games_in_any_copy(
    name: str, split: str, sample_data: Path, tmp_path: Path
) -> None:
    published = sample_data / "alfworld_official"
    if not published.is_dir():
        pytest.skip("the official games are not among the sample data")
    board = Track.read(Path(__file__).parents[3] / "leaderboards" / "tracks" / f"{name}.json")
    copy = tmp_path / "json_2.1.1"
    for game in (published / OFFICIAL_FOLDERS[split]).rglob(GAME_FILE):
        other = copy / game.relative_to(published)
        other.parent.mkdir(parents=True)
        other.write_text(json.dumps({**json.loads(game.read_text()), "walkthrough": ["look"]}))
    assert (find_games(copy, split).digest,) == (find_games(published, split).digest,) == (*board.data.values(),)
    assert find_games(copy, split).former_digest != find_games(published, split).former_digest
    board.check({"alfworld": copy})


def test_what_is_modified_again_within_the_clock_is_noticed(root: Path) -> None:
    path = next((root / "json_2.1.1" / "valid_unseen").rglob(GAME_FILE))
    before = make(root, "test").data
    content = path.read_bytes()
    path.write_bytes(content.replace(b"mug", b"cup"))  # of the same length, and perhaps at the same time
    assert make(root, "test").data != before
    path.write_bytes(content)
    assert make(root, "test").data == before


def test_the_folders_of_splits_are_the_official_ones() -> None:
    assert set(OFFICIAL_FOLDERS.values()) < set(SPLIT_FOLDERS)
    assert all(SPLIT_FOLDERS[folder] == split for split, folder in OFFICIAL_FOLDERS.items())

"""The levels that the package has are those that the generator makes; the draws of a batch are NumPy's."""

from __future__ import annotations

import hashlib
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils import seeding

from agentgym_flow.core import SPLITS
from agentgym_flow.envs.sokoban import generator
from agentgym_flow.envs.sokoban.generator import FILES, LevelSettings, pack, standard_levels
from agentgym_flow.envs.sokoban.level import PLAYER_SHIFT, cell_codes
from agentgym_flow.envs.sokoban.tasks import MANIFEST, generated_level, num_tasks, task_level
from agentgym_flow.envs.sokoban.vector import VectorRandom
from agentgym_flow.errors import BadData, UnknownSplit

LARGE = LevelSettings(size=(10, 10), boxes=4)
FOLDER = Path(generator.__file__).with_name(generator.FOLDER)


def name_of(settings: LevelSettings) -> str:
    return FILES[settings][0]


def every(settings: LevelSettings, stride: int) -> None:
    """Compare every `stride`-th level, as the text face, the batch and the generator have it."""
    for split in SPLITS:
        kept = standard_levels(settings, split)
        assert kept is not None
        starts, players = kept.boards()
        assert len(starts) == len(players) == num_tasks(split)
        for task in range(stride // 3, num_tasks(split), stride):
            level = generated_level(settings, split, task)
            assert kept.level(task) == level
            codes = cell_codes(level.cells, level.player)
            codes[level.player] -= PLAYER_SHIFT
            assert starts[task].tolist() == codes.tolist()
            assert players[task] == level.player


@pytest.mark.parametrize("settings", FILES, ids=name_of)
def test_some_levels_are_the_generated_ones(settings: LevelSettings) -> None:
    every(settings, 2000 if settings == LARGE else 100)


@pytest.mark.nightly
@pytest.mark.parametrize("settings", FILES, ids=name_of)
def test_all_levels_are_the_generated_ones(settings: LevelSettings) -> None:
    """Of the large ones, which take minutes, a twentieth."""
    every(settings, 20 if settings == LARGE else 1)


@pytest.mark.parametrize("settings", MANIFEST, ids=name_of)
def test_records_are_what_packing_their_levels_gives(settings: LevelSettings) -> None:
    for split in SPLITS:
        kept = standard_levels(settings, split)
        assert kept is not None
        for some in (range(20), range(num_tasks(split) - 20, num_tasks(split))):
            packed_anew = pack([generated_level(settings, split, task) for task in some])
            assert packed_anew == kept.records[some.start : some.stop].tobytes()


@pytest.mark.nightly
@pytest.mark.parametrize("settings", MANIFEST, ids=name_of)
def test_a_file_is_what_packing_its_levels_gives(settings: LevelSettings) -> None:
    levels = [generated_level(settings, split, task) for split in SPLITS for task in range(num_tasks(split))]
    content = pack(levels)
    name, digest = FILES[settings]
    assert hashlib.sha256(content).hexdigest() == digest
    assert content == (FOLDER / name).read_bytes()


def test_the_files_are_small_and_all_named() -> None:
    assert {file.name for file in FOLDER.iterdir()} == {name for name, _ in FILES.values()}
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < 1_000_000


def test_seasons_and_other_settings_are_generated() -> None:
    assert standard_levels(LevelSettings(), "test", "ab") is None
    assert task_level(LevelSettings(), "test", 7, "ab") != task_level(LevelSettings(), "test", 7)
    assert standard_levels(LevelSettings(size=(7, 8), boxes=2), "train") is None
    assert standard_levels(LevelSettings(max_moves=19), "train") is None
    assert standard_levels(LevelSettings(max_moves=20), "train") is not None


def test_an_unknown_split_is_named() -> None:
    with pytest.raises(UnknownSplit, match="'tset'"):
        standard_levels(LevelSettings(), "tset")


@pytest.mark.parametrize("content", [b"", b"no levels", None])
def test_a_damaged_file_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes | None) -> None:
    name, digest = FILES[LevelSettings()]
    if content is not None:
        (tmp_path / name).write_bytes(content)
    monkeypatch.setattr(generator, "FOLDER", str(tmp_path))
    with pytest.raises(BadData, match=rf"the levels {name} are .*install the package again"):
        generator._records.__wrapped__(name, digest)


# ---------------------------------------------------------------- draws
def test_draws_of_a_batch_are_those_of_single_environments() -> None:
    """Over those that are taken ahead, with a large seed, and seeded anew."""
    seeds = [3, 2**70, None, 2**64 - 1]
    draws, all_of_them = VectorRandom(4), np.arange(4)
    draws.seed(seeds, all_of_them)
    taken = np.array([draws.take(all_of_them) for _ in range(200)])
    for env in (0, 1, 3):
        assert taken[:, env].tolist() == seeding.np_random(seeds[env])[0].bit_generator.random_raw(200).tolist()
    draws.seed([2**70, 4, 5, None], all_of_them)
    again = np.array([draws.take(np.arange(3)) for _ in range(20)])
    for env, seed in enumerate((2**70, 4, 5)):
        assert again[:, env].tolist() == seeding.np_random(seed)[0].bit_generator.random_raw(20).tolist()
    goes_on = seeding.np_random(2**64 - 1)[0].bit_generator.random_raw(201)[-1]
    assert draws.take(np.array([3])).tolist() == [goes_on]


@pytest.mark.parametrize("settings", [{}, {"size": 7, "boxes": 2}, {"size": (5, 8), "boxes": 2}])
def test_a_batch_lays_the_levels_of_its_tasks(settings: dict[str, object]) -> None:
    envs = gym.make_vec("agentgym_flow/SokobanGrid-v0", num_envs=8, info_keys=["task", "task_key"], **settings)
    single = gym.make("agentgym_flow/SokobanGrid-v0", **settings)
    observations, infos = envs.reset(seed=11)
    for env in range(8):
        observation, info = single.reset(seed=11 + env)
        assert (observations[env] == observation).all()
        assert (infos["task"][env], infos["task_key"][env]) == (info["task"], info["task_key"])

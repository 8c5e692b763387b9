from __future__ import annotations

import copy
import json
import pickle
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.error import CustomSpaceError
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from gymnasium.vector.utils import batch_space, create_shared_memory
from gymnasium.wrappers import DelayObservation, FrameStackObservation
from gymnasium.wrappers.utils import create_zero_array
from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow.core.spaces import UnicodeText
from agentgym_flow.testing.example import CaveEnv


@given(st.text(max_size=20))
def test_contains_every_string_up_to_its_length(text: str) -> None:
    assert (text in UnicodeText(10)) == (len(text) <= 10)


@pytest.mark.parametrize("other", [b"bytes", 3, None, ["a"], np.array("a")])
def test_contains_nothing_but_strings(other: object) -> None:
    assert other not in UnicodeText(10)


def test_lone_surrogates_are_text() -> None:
    assert "\ud800" in UnicodeText(1)


def test_clones_sample_alike_and_apart() -> None:
    space = UnicodeText(1000, seed=3)
    clone = copy.deepcopy(space)
    assert clone == space
    drawn = [space.sample() for _ in range(5)]
    assert [clone.sample() for _ in range(5)] == drawn
    fresh = UnicodeText(1000)  # not seeded yet
    clone = copy.deepcopy(fresh)
    clone.seed(3)
    assert clone.sample() == drawn[0]
    fresh.seed(3)
    assert fresh.sample() == drawn[0]


@pytest.mark.parametrize("max_length", [0, 1, 5, 1000])
def test_samples_are_members_and_seeded(max_length: int) -> None:
    space, twin = UnicodeText(max_length, seed=3), UnicodeText(max_length, seed=3)
    drawn = [space.sample() for _ in range(50)]
    assert all(text in space for text in drawn)
    assert drawn == [twin.sample() for _ in range(50)]
    space.seed(3)
    assert drawn == [space.sample() for _ in range(50)]
    assert max_length == 0 or len(set(drawn)) > 10 or max_length == 1


def test_masks_are_refused_and_lengths_checked() -> None:
    with pytest.raises(ValueError, match="mask"):
        UnicodeText(3).sample(mask=())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="negative"):
        UnicodeText(-1)


def test_equal_spaces_hash_alike_and_survive_pickling() -> None:
    space = UnicodeText(7)
    assert space == UnicodeText(7) != UnicodeText(8)
    assert space != spaces.Text(7)
    assert hash(space) == hash(UnicodeText(7))
    assert repr(space) == "UnicodeText(7)"
    assert pickle.loads(pickle.dumps(space)) == space


def test_samples_survive_a_trip_through_json() -> None:
    space, batch = UnicodeText(9), ["√", "", "\ud800"]
    assert space.from_jsonable(json.loads(json.dumps(space.to_jsonable(batch)))) == batch


def test_batches_to_a_tuple_and_is_refused_by_shared_memory() -> None:
    space = UnicodeText(9)
    assert batch_space(space, 3) == spaces.Tuple([space] * 3)
    with pytest.raises(CustomSpaceError):
        create_shared_memory(space, 3)


def test_wrappers_that_need_earlier_observations_start_with_empty_text() -> None:
    stacked = FrameStackObservation(CaveEnv(), 3, padding_type="zero")
    first = stacked.reset(seed=5)[0]
    assert first == ("", "", CaveEnv().reset(seed=5)[0])
    assert stacked.step("left")[0][:2] == first[1:]
    assert FrameStackObservation(CaveEnv(), 3).reset(seed=5)[0] == first[2:] * 3
    delayed = DelayObservation(CaveEnv(), 1)
    assert delayed.reset(seed=5)[0] == ""
    assert delayed.step("left")[0] == first[2]
    assert create_zero_array(spaces.Dict(text=UnicodeText(9))) == {"text": ""}


def test_vector_environments_keep_text_whole() -> None:
    makers = [CaveEnv] * 3
    vector = SyncVectorEnv(makers)
    observations, info = vector.reset(seed=5)
    assert isinstance(observations, tuple)
    alone = [CaveEnv().reset(seed=5 + i)[0] for i in range(3)]
    assert list(observations) == alone
    assert list(info["goal"]) == [CaveEnv().reset(seed=0)[1]["goal"]] * 3
    vector.close()


def test_async_needs_shared_memory_off_and_then_agrees_with_sync() -> None:
    with pytest.raises((CustomSpaceError, ValueError, TypeError)):
        AsyncVectorEnv([CaveEnv] * 2, shared_memory=True)
    processes, threadless = AsyncVectorEnv([CaveEnv] * 2, shared_memory=False), SyncVectorEnv([CaveEnv] * 2)
    try:
        assert list(processes.reset(seed=1)[0]) == list(threadless.reset(seed=1)[0])
        actions = ("left", "no such action √ \ud800")
        ours, theirs = processes.step(actions), threadless.step(actions)
        assert list(ours[0]) == list(theirs[0])
        assert ours[1].tolist() == theirs[1].tolist()
    finally:
        processes.close()
        threadless.close()


def test_make_vec_works_by_id() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        vector = gym.make_vec("example/Cave-v0", num_envs=2, vectorization_mode="sync")
    assert len(vector.reset(seed=0)[0]) == 2
    vector.close()

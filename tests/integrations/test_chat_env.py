"""An environment as a chat, without any package of others; and what those adapters say that lack theirs."""

from __future__ import annotations

import importlib
import subprocess
import sys
from importlib.util import find_spec

import pytest
from expert_play import TEXT_IDS, won
from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow.envs import make_text_env
from agentgym_flow.episodes import EpisodeRecorder
from agentgym_flow.errors import BadSetting, MissingExtra, ResetNeeded, UnknownEnvironment
from agentgym_flow.integrations.chat import ChatEnv, results

ADAPTERS = {
    "skyrl": ("skyrl_gym", "skyrl"),
    "verifiers": ("verifiers", "verifiers"),
    "openenv": ("openenv", "openenv"),
    "trl_text": ("trl", "train"),
}


@pytest.mark.parametrize("env_id", TEXT_IDS)
def test_answers_play_the_episode_of_their_actions(env_id: str) -> None:
    chat_episode, said = won(env_id, 1, seed=4)
    recorder = EpisodeRecorder(make_text_env(env_id))
    episode = recorder.reset(seed=4, task=1)
    chat = ChatEnv(env_id)
    (first,) = chat.reset(seed=4, task=1)
    assert episode.goal in first["content"]
    for answer, turn in zip(said, chat_episode.turns, strict=True):
        recorder.step(turn.action)
        chat.step(answer)
        assert chat.message() != first["content"]
    assert chat.done
    assert chat.episode.digests() == episode.digests()
    assert results(chat.episode)["success"] == results(chat.episode)["valid_actions"] == 1


@given(st.lists(st.text(), max_size=4))
def test_no_answer_raises(said: list[str]) -> None:
    chat = ChatEnv("agentgym_flow/Sokoban-v0", max_steps=5)
    chat.reset(seed=1)
    for answer in said:
        chat.step(answer)
    assert results(chat.episode)["turns"] == len(said)


def test_a_chat_that_has_not_begun_or_is_over_says_so() -> None:
    chat = ChatEnv("agentgym_flow/Search-v0", max_steps=1)
    assert chat.done
    with pytest.raises(ResetNeeded, match="reset"):
        chat.step("up")
    chat.reset()
    with pytest.raises(ResetNeeded, match="first messages"):
        chat.message()
    chat.step("nonsense")
    with pytest.raises(ResetNeeded, match="ended"):
        chat.step("nonsense")


def test_templates_and_ids_that_cannot_work_say_why() -> None:
    with pytest.raises(BadSetting, match="no follow_up"):
        ChatEnv("agentgym_flow/Sokoban-v0", "compact")
    with pytest.raises(UnknownEnvironment, match="not a text environment"):
        ChatEnv("agentgym_flow/SokobanGrid-v0")


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_an_adapter_without_its_package_names_the_extra(adapter: str) -> None:
    package, extra = ADAPTERS[adapter]
    if find_spec(package) is not None:
        pytest.skip(f"{package} is installed")
    with pytest.raises(MissingExtra, match=rf"agentgym_flow\[{extra}\]"):
        importlib.import_module(f"agentgym_flow.integrations.{adapter}")


def test_the_package_of_adapters_imports_no_other() -> None:
    code = "import sys, agentgym_flow.integrations.chat as c; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"trl", "torch", "verifiers", "openenv", "skyrl_gym", "verl", "starlette"} & set(loaded)

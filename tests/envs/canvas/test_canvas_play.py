"""Episodes as people play them: what counts as a difference, what is tried again, what prompts say."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from agentgym_flow.envs.canvas.env import CanvasEnv
from agentgym_flow.envs.canvas.operators.calls import OpCall, OpResult, Value
from agentgym_flow.errors import BadSetting
from agentgym_flow.play import EpisodeSpec, rollout
from agentgym_flow.policies import make_policy
from agentgym_flow.prompts import template_for

ENV = "agentgym_flow/Canvas-v0"


def add(text: str) -> str:
    """Return the edit that adds what is written as a workflow of one node."""
    return f'{{"action": "add", "operator": "{text}"}}'


class Moody:
    """An executor whose first call fails."""

    def __init__(self) -> None:
        self.calls = 0

    def run(self, call: OpCall) -> OpResult:
        self.calls += 1
        return OpResult("error", text="busy") if self.calls == 1 else OpResult("ok", Value(text="42"))


def test_what_failed_is_tried_again_by_the_same_edit() -> None:
    env = CanvasEnv(family="arithmetic", executor=Moody())
    env.reset(options={"task": 0})
    *_, info = env.step(add("Custom"))
    assert info["workflow"]["failed"] == [["node_1", "Custom", "busy"]]
    *_, info = env.step("<action>modify</action><target>node_1</target><operator>Custom</operator>")
    assert (info["workflow"]["failed"], info["workflow"]["result"]) == ([], "42")


def test_an_executor_that_returns_something_else_is_named() -> None:
    env = CanvasEnv(executor=SimpleNamespace(run=lambda call: None))
    env.reset(seed=0)
    with pytest.raises(BadSetting, match="an executor returns an OpResult for every call"):
        env.step(add("Custom"))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"operators": "Custom"}, "operators must be a list"),
        ({"operators": ["Custom", "Custom"]}, "operators is a list of different names"),
        ({"hints": "no"}, "hints must be True or False"),
        ({"strict": 1}, "strict must be True or False"),
    ],
)
def test_settings_that_say_two_things_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(BadSetting, match=said):
        CanvasEnv(**settings)


@pytest.mark.parametrize("said", ["finish", "Enough of that.\n<action>finish</action>"])
def test_who_is_asked_for_a_prompt_can_still_finish(said: str) -> None:
    env = CanvasEnv(prompting="two_phase")
    env.reset(seed=0)
    env.step("<action>add</action><operator>Custom</operator><prompt>Think twice.</prompt>")
    env.step("<action>add</action><operator>Format</operator>")
    assert env.game.draft.asked is not None
    _, _, terminated, _, info = env.step(said)
    assert terminated
    assert info["action_valid"]
    assert info["workflow"]["operators"] == ["Custom"]


@pytest.mark.parametrize(
    "settings",
    [
        {"operators": ["Custom", "Test", "Verify", "Format"]},
        {"operators": ["Custom", "Test", "Verify", "Format"], "finish": "published"},
        {"language": "published", "finish": "published"},
        {"operators": ["Custom"]},
    ],
)
def test_the_script_comes_to_an_end_whatever_it_may_use(settings: dict[str, Any]) -> None:
    episodes = rollout(
        make_policy("scripted", ENV), lambda: CanvasEnv(**settings), [EpisodeSpec(0, task) for task in range(18)]
    )
    assert all(episode.terminated for episode in episodes)
    assert all(turn.action_valid for episode in episodes for turn in episode.turns)


def prompt_of(**settings: Any) -> str:
    env = CanvasEnv(**settings)
    observation, info = env.reset(seed=0)
    policy_input = SimpleNamespace(
        observation=observation, info=info, episode=SimpleNamespace(turns=[], max_steps=20), candidates=env.candidates
    )
    return template_for(ENV, "text").prompt(policy_input)


def test_prompts_teach_what_can_be_used_and_nothing_else() -> None:
    whole, bare = prompt_of(), prompt_of(operators=["Custom", "Programmer"])
    assert "A is one of Test, Review, Verify; B runs when the solution passes it" in whole
    assert "conditional" not in bare
    assert "- Verify:" not in bare
    assert "can be chains and structures, too" in whole
    published = prompt_of(language="published", prompting="two_phase")
    assert "C runs when the solution passes it" in published
    assert "can be chains and structures, too" not in published
    assert "you are asked for it before the edit is done" in published

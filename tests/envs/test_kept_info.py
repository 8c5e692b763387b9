"""Environments that keep parts of `info` between steps tell what they would tell without, and all of it fresh."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from agentgym_flow.core import Stream, TextEnv
from agentgym_flow.envs import make_text_env
from agentgym_flow.envs.alfworld.env import ALFWorldEnv
from agentgym_flow.envs.sokoban.env import SokobanEnv
from agentgym_flow.envs.webshop.env import WebShopEnv

KEEPING = {"Sokoban": SokobanEnv, "ALFWorld": ALFWorldEnv, "WebShop": WebShopEnv}


def looked_up(env: TextEnv, action_valid: bool) -> dict[str, Any]:
    """Return what a copy of the environment tells that has told nothing before."""
    clone = copy.deepcopy(env)
    clone.request_info(())
    return clone._info(action_valid)


def spoil(info: dict[str, Any]) -> None:
    """Change everything in it that can be changed."""
    for value in info.values():
        if isinstance(value, (list, dict)):
            value.clear()
    for key in info:
        info[key] = "spoilt"


@pytest.mark.parametrize("name", KEEPING)
@pytest.mark.parametrize("expert", [True, False])
@pytest.mark.parametrize("asked", [(), ("official_key",)])
def test_every_step_tells_what_a_fresh_look_says(name: str, expert: bool, asked: tuple[str, ...]) -> None:
    env = make_text_env(f"agentgym_flow/{name}-v0", split="valid")
    env.request_info(asked)
    ends = set()
    for task in range(8):
        _, told = env.reset(seed=task, options={"task": task})
        rng = Stream("kept info", task)
        while True:
            fresh = looked_up(env, told["action_valid"])
            assert told == fresh
            assert list(told) == list(fresh)
            spoil(told)
            assert env._keeps_info
            if not env.playing:
                break
            draw = rng.below(8)
            action = "no action" if draw == 0 else env.expert_action() if expert else env.sample_action(rng)
            if draw == 1:  # a step that nobody asks about
                env.advance(action or "")
                told = env._info(True)
            else:
                *_, told = env.step(action or "")
        ends.add(env.success())
    if expert:
        assert ends == {True}


@pytest.mark.parametrize("name", KEEPING)
def test_keys_that_are_asked_for_in_the_middle_come_at_once(name: str) -> None:
    env = make_text_env(f"agentgym_flow/{name}-v0", split="valid")
    env.reset(seed=0)
    env.step("no action")
    env.request_info(["official_key"])
    *_, told = env.step("no action")
    assert told == looked_up(env, False)


@pytest.mark.parametrize("cls", KEEPING.values(), ids=list(KEEPING))
def test_a_subclass_may_tell_something_else(cls: type[TextEnv]) -> None:
    class Counting(cls):  # type: ignore[misc, valid-type]
        def state_key(self) -> str:
            return f"after {self.steps} steps"

        def admissible_actions(self) -> list[str]:
            return ["think"]

        def _extra_info(self) -> dict[str, Any]:
            return {**super()._extra_info(), "steps": self.steps}

    env = Counting(split="valid")
    env.reset(seed=1)
    for number in (1, 2, 3):
        *_, info = env.step("no action")
        assert (info["state_key"], info["steps"]) == (f"after {number} steps", number)
        assert info["admissible_actions"] == ["think"]


@pytest.mark.parametrize("name", ["Sokoban", "ALFWorld", "WebShop", "Search", "Canvas"])
def test_a_method_that_is_replaced_on_an_instance_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    env = make_text_env(f"agentgym_flow/{name}-v0", split="valid")
    monkeypatch.setattr(env, "success", lambda: True)
    monkeypatch.setattr(env, "state_key", lambda: f"after {env.steps} steps")
    _, info = env.reset(seed=1)
    assert (info["success"], info["state_key"]) == (True, "after 0 steps")
    *_, info = env.step("no action")
    assert (info["success"], info["state_key"]) == (True, "after 1 steps")

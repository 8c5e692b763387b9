"""Real verifiers plays any id: its loader, its interception server, its traces. `make nightly` installs it."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest
from expert_play import TEXT_IDS, won
from scripted_model import serving

from agentgym_flow.errors import BadSetting

pytest.importorskip("verifiers", reason="needs verifiers, in an environment of its own: make nightly")

import verifiers.v1 as vf
from verifiers.v1.utils.loaders import load_environment, resolve_env_config

from agentgym_flow.integrations.verifiers_credit import KEY, assign_credit

pytestmark = pytest.mark.nightly

MODULE = """
from agentgym_flow.integrations.verifiers import FlowEnv, FlowHarness, FlowTaskset

__all__ = ["FlowEnv", "FlowHarness", "FlowTaskset"]
"""
NOTHING = ["I would rather not."]


@pytest.fixture(scope="module", autouse=True)
def module_of_ones_own(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("modules")
    (folder / "my_flow_env.py").write_text(MODULE, "utf-8")
    sys.path.insert(0, str(folder))
    yield
    sys.path.remove(str(folder))


def env_of(env_id: str, agent: dict[str, Any] | None = None, rewards: dict[str, Any] | None = None, **own: Any) -> Any:
    taskset = {"id": "my_flow_env", "env_id": env_id, "settings": own, "task": {"rewards": rewards or {}}}
    return load_environment(resolve_env_config({"taskset": taskset, "agent": agent or {}}))


def play(env: Any, number: int, models: dict[str, list[str]]) -> list[Any]:
    """Play task `number` once with each model; return the traces."""
    (task,) = env.taskset.include(idx=[number])

    async def run(url: str) -> list[Any]:
        client = vf.EvalClientConfig(base_url=url, api_key_var="NO_KEY")
        async with env.serving():
            contexts = [vf.ModelContext(model=name, client=client) for name in models]
            slots = [env.slots(task)[0] for _ in models]
            return await asyncio.gather(*(env.run_slot(*both) for both in zip(slots, contexts, strict=True)))

    with serving(models) as url:
        episodes = asyncio.run(run(url))
    for episode in episodes:
        assert not episode.errors
    return [episode.traces[0] for episode in episodes]


@pytest.mark.parametrize("env_id", TEXT_IDS)
def test_the_expert_wins_every_environment_through_verifiers(env_id: str) -> None:
    episode, answers = won(env_id, 2)
    (trace,) = play(env_of(env_id), 2, {"expert": answers})
    assert trace.ok
    assert trace.reward == 1
    assert trace.rewards["success"].score == 1
    assert trace.rewards["native_return"].score == pytest.approx(episode.total_reward)
    assert trace.metrics == {"score": 1, "turns": len(answers), "valid_actions": 1}
    assert [message.content for message in trace.assistant_messages] == answers
    assert trace.info[KEY]["steps"] == [(turn.state_key, turn.next_state_key, turn.reward) for turn in episode.turns]
    assert episode.goal in trace.messages[0].content


def test_the_native_return_can_be_the_reward() -> None:
    rewards = {"success": {"weight": 0}, "native_return": {"weight": 1}}
    (trace,) = play(env_of("agentgym_flow/Sokoban-v0", rewards=rewards, max_steps=3), 0, {"idle": NOTHING})
    assert trace.reward == trace.rewards["native_return"].score < 0
    assert trace.metrics["turns"] == 3
    assert trace.metrics["valid_actions"] == 0


def test_the_budget_of_the_agent_ends_an_episode_without_success() -> None:
    (trace,) = play(env_of("agentgym_flow/Sokoban-v0", agent={"max_turns": 2}), 0, {"idle": NOTHING})
    assert trace.stop_condition == "max_turns"
    assert trace.metrics["turns"] == 2
    assert trace.reward == 0


def test_turns_of_a_group_get_credit_of_their_own() -> None:
    _, answers = won("agentgym_flow/Sokoban-v0", 1)
    env = env_of("agentgym_flow/Sokoban-v0", max_steps=len(answers) + 2)
    late = [NOTHING[0], *answers]
    traces = play(env, 1, {"expert": answers, "late": late, "idle": NOTHING})
    for trace in traces:  # as a client in training would have: two tokens of scaffold, three that were sampled
        for node in trace.nodes:
            node.token_ids, node.mask = [7] * 5, [False, False, *[node.sampled] * 3]
    expert, slow, idle = assign_credit(traces, gamma=0.9, norm="mean")
    assert expert[0] > slow[0] > idle[0]  # one state: a step towards success, one that changes nothing
    assert slow[0] < slow[1]
    assert [len(row) for row in (expert, slow, idle)] == [len(answers), len(late), len(answers) + 2]
    (branch,) = traces[1].branches
    assert [value for value in branch.advantages if value] == [value for value in slow for _ in range(3) if value]
    assert all(value == 0 for value, sampled in zip(branch.advantages, branch.sampled_mask, strict=True) if not sampled)


def test_traces_that_are_no_group_are_refused() -> None:
    env = env_of("agentgym_flow/Sokoban-v0", max_steps=1)
    first, second = (play(env, number, {"idle": NOTHING})[0] for number in (0, 1))
    with pytest.raises(BadSetting, match="2 starts"):
        assign_credit([first, second])
    del first.info[KEY]
    with pytest.raises(BadSetting, match="not a complete episode"):
        assign_credit([first])

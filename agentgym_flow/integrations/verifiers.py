"""verifiers and prime-rl: any text environment as a taskset with an environment that plays it, turn by turn.

verifiers finds an environment by the name of an installed module, so create a module of that name with two lines:

    from agentgym_flow.integrations.verifiers import FlowEnv, FlowHarness, FlowTaskset
    __all__ = ["FlowEnv", "FlowHarness", "FlowTaskset"]

The environment is the user of the conversation. A trace is rewarded with `success` and `native_return`, whose weight is
0 by default. `verifiers_credit.assign_credit` gives the turns of a group advantages of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from agentgym_flow.errors import MissingExtra
from agentgym_flow.integrations.chat import ChatEnv, results
from agentgym_flow.integrations.verifiers_credit import KEY

if find_spec("verifiers") is None:
    raise MissingExtra.of("verifiers", "verifiers")

import httpx
import verifiers.v1 as vf
from pydantic import Field
from verifiers.v1.dialects.chat import message_to_wire


class FlowTasksetConfig(vf.TasksetConfig):  # type: ignore[misc]  # the package's types are not read
    """The tasks, under `--env.taskset.*`."""

    env_id: str = "agentgym_flow/Sokoban-v0"
    """The id of a text environment."""
    template: str = "text"
    """The prompt template, see `agentgym_flow.template_for`."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the environment, such as its split."""
    seed: int = 0
    """Determines the noise of every episode; all rollouts of a task start equally."""


class FlowData(vf.TaskData):  # type: ignore[misc]
    """One task."""

    env_id: str
    template: str
    settings: dict[str, Any]
    seed: int
    task: int


class FlowTask(vf.Task[FlowData, vf.State, vf.TaskConfig]):  # type: ignore[misc]
    """The rewards of a finished conversation; weights are set under `--env.taskset.task.rewards.*`."""

    @vf.reward  # type: ignore[untyped-decorator]
    async def success(self, trace: Any) -> float:
        """Return 1 if the episode is successful, else 0."""
        return _result(trace, "success")

    @vf.reward(weight=0.0)  # type: ignore[untyped-decorator]
    async def native_return(self, trace: Any) -> float:
        """Return the sum of native rewards."""
        return _result(trace, "return")

    @vf.metric  # type: ignore[untyped-decorator]
    async def episode(self, trace: Any) -> dict[str, float]:
        """Return the other metrics: the score, the number of turns and the fraction of valid actions."""
        return {name: _result(trace, name) for name in ("score", "turns", "valid_actions")}


class FlowTaskset(vf.Taskset[FlowTask, FlowTasksetConfig]):  # type: ignore[misc]
    """All tasks of the selected split, in order."""

    def load(self) -> Iterator[FlowTask]:
        """Yield the tasks. Raises `UnknownEnvironment` and what the environment's constructor raises."""
        own = self.config
        chat = ChatEnv(own.env_id, own.template, **own.settings)
        tasks = chat.env.drawn_tasks
        chat.close()
        for task in tasks:
            row = {"env_id": own.env_id, "template": own.template, "settings": own.settings, "seed": own.seed}
            yield FlowTask(FlowData(name=f"{own.env_id}#{task}", task=task, **row), own.task)


class FlowHarness(vf.Harness[vf.HarnessConfig]):  # type: ignore[misc]
    """Requests one answer to the conversation from the model, without starting a program or loading a package."""

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self, ctx: Any, trace: Any, runtime: Any, endpoint: str, secret: str, mcp_urls: Any, data: Any
    ) -> Any:
        """Make the model call; verifiers records the answer on the trace."""
        system, prompt = self.resolve_prompt(data)
        messages = [{"role": "system", "content": system}] if system else []
        messages += [{"role": "user", "content": prompt}] if isinstance(prompt, str) else map(message_to_wire, prompt)
        async with httpx.AsyncClient(timeout=None) as client:  # the agent has its own timeouts
            response = await client.post(
                f"{endpoint.rstrip('/')}/chat/completions",
                headers={"Authorization": f"Bearer {secret}"},
                json={"model": ctx.model, "messages": messages},
            )
        return vf.ProgramResult(0 if response.is_success else 1, "", "" if response.is_success else response.text)


class FlowEnvConfig(vf.EnvConfig):  # type: ignore[misc]
    """The environment's configuration, with one agent in this process."""

    agent: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())


class FlowEnv(vf.Env[FlowEnvConfig]):  # type: ignore[misc]
    """Plays an episode: environment and agent take turns until the episode or the agent's budget ends."""

    async def run(self, task: Any, agents: Any) -> None:
        """Play one episode of `task` and store its results in `trace.info`."""
        row = task.data
        chat = await asyncio.to_thread(ChatEnv, row.env_id, row.template, **row.settings)
        try:
            said: Any = await asyncio.to_thread(chat.reset, seed=row.seed, task=row.task)
            async with agents.agent.interaction(task) as conversation:
                while not chat.done:
                    segment = await conversation.turn(said)
                    if segment.terminated:
                        break
                    await asyncio.to_thread(chat.step, segment.last_reply)
                    said = chat.message()
                steps = [(turn.state_key, turn.next_state_key, turn.reward) for turn in chat.episode.turns]
                conversation.trace.info[KEY] = {**results(chat.episode), "steps": steps}
        finally:
            await asyncio.to_thread(chat.close)


def _result(trace: Any, name: str) -> float:
    """Return one result of an episode; 0 if it is unfinished."""
    return float(trace.info.get(KEY, {}).get(name, 0.0))

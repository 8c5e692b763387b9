"""OpenEnv: any text environment as an `Environment`, with its action, observation and client.

`agentgym_flow.integrations.openenv_server` serves it. Each session of the server has its own environment:

    with FlowClient("http://127.0.0.1:8000", headers=bearer(token)).sync() as env:
        result = env.reset(task=7, seed=0)
        result = env.step(FlowAction(action="up"))
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from typing import Any

from agentgym_flow._util.http import check_token
from agentgym_flow.envs import make_text_env
from agentgym_flow.errors import MissingExtra, UnknownOption

if find_spec("openenv") is None:
    raise MissingExtra.of("openenv", "openenv")

from openenv.core import EnvClient
from openenv.core.client_types import StepResult
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State

RESET = ("task", "seed", "episode_id")
"""The arguments of `reset`."""


class FlowAction(Action):  # type: ignore[misc]  # the package's types are not read
    """An action: a command of the environment, such as `up` or `search[red shoes]`."""

    action: str


class FlowObservation(Observation):  # type: ignore[misc]
    """An observation with the common keys of `info`; `done` and `reward` are inherited from OpenEnv."""

    text: str
    goal: str
    task: int
    task_key: str
    state_key: str
    success: bool
    score: float
    action_valid: bool
    truncated: bool
    admissible_actions: list[str]
    action_templates: list[str]


class OpenEnvEnvironment(Environment):  # type: ignore[misc]
    """One text environment in a session of the server; arguments as for `make_text_env`."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, env_id: str, **settings: Any) -> None:
        super().__init__()
        self._env = make_text_env(env_id, **settings)
        self._state = State()

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, task: int | None = None, **others: Any
    ) -> FlowObservation:
        """Start `task`, or the one that `seed` selects.

        Raises `UnknownTask` if there is no such task, and `UnknownOption` for other arguments, which OpenEnv's server
        would drop without a word if this signature did not take them.
        """
        _check_reset(others)
        text, info = self._env.reset(seed=seed, options=None if task is None else {"task": task})
        self._state = State(episode_id=episode_id, env_id=self._env.env_id, split=self._env.split)
        return self._observation(text, info, None, done=False, truncated=False)

    def step(self, action: FlowAction, timeout_s: float | None = None) -> FlowObservation:
        """Play an action. Raises `ResetNeeded` before the first reset and after the end."""
        text, reward, terminated, truncated, info = self._env.step(action.action)
        self._state.step_count = self._env.steps
        return self._observation(text, info, reward, done=terminated or truncated, truncated=truncated)

    def _observation(
        self, text: str, info: dict[str, Any], reward: float | None, *, done: bool, truncated: bool
    ) -> FlowObservation:
        told = {key: info[key] for key in FlowObservation.model_fields if key in info}
        return FlowObservation(text=text, done=done, reward=reward, truncated=truncated, **told)

    @property
    def state(self) -> State:
        """The ids of episode and environment, the split, and the number of steps."""
        return self._state

    def close(self) -> None:
        """Close the environment."""
        self._env.close()


class FlowClient(EnvClient[FlowAction, FlowObservation, State]):  # type: ignore[misc]
    """A client of the server: `FlowClient(url, headers=bearer(token))`; `.sync()` returns a synchronous client.

    `reset` takes `task`, `seed` and `episode_id`, and `step` an action; both raise `UnknownOption` for other arguments.
    """

    # Both clients, the asynchronous and the synchronous one, call these two.
    async def _reset_async(self, **arguments: Any) -> StepResult:
        _check_reset(arguments)
        return await super()._reset_async(**arguments)

    async def _step_async(self, action: FlowAction, **arguments: Any) -> StepResult:
        if arguments:
            raise UnknownOption(f"step takes an action and nothing else, got {', '.join(arguments)}")
        return await super()._step_async(action)

    def _step_payload(self, action: FlowAction) -> dict[str, Any]:
        return {"action": action.action}

    def _parse_result(self, payload: dict[str, Any]) -> StepResult:
        done, reward = payload["done"], payload["reward"]
        observation = FlowObservation(**payload["observation"], done=done, reward=reward)
        return StepResult(observation=observation, reward=reward, done=done)

    def _parse_state(self, payload: dict[str, Any]) -> State:
        return State(**payload)


def _check_reset(arguments: Iterable[str]) -> None:
    for name in arguments:
        if name not in RESET:
            raise UnknownOption.among(name, RESET, "They are the arguments of reset; the server has chosen the split.")


def bearer(token: str) -> dict[str, str]:
    """Return the headers that authenticate with a token."""
    return {"Authorization": f"Bearer {check_token(token)}"}

"""Real OpenEnv: its server behind our guard, its clients. `make nightly` installs it."""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from expert_play import TEXT_IDS, won

from agentgym_flow.errors import BadSetting, UnknownEnvironment, UnknownOption

pytest.importorskip("openenv", reason="needs openenv, in an environment of its own: make nightly")

from openenv.core import GenericEnvClient
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from agentgym_flow.integrations.openenv import FlowAction, FlowClient, OpenEnvEnvironment, bearer
from agentgym_flow.integrations.openenv_server import serve

pytestmark = pytest.mark.nightly

TOKEN = "nobody-guesses-this"
PROGRAM = """
import contextlib, json, sys
from agentgym_flow.integrations.openenv_server import serve
with contextlib.suppress(KeyboardInterrupt):
    serve(on_ready=lambda address: print(address, flush=True), port=0, **json.loads(sys.argv[1]))
"""


@contextmanager
def serving(env_id: str = "agentgym_flow/Sokoban-v0", **settings: Any) -> Iterator[str]:
    """Serve in a process of its own, end it with Ctrl-C; give the address."""
    asked = json.dumps({"env_id": env_id, "token": TOKEN, **settings})
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, asked], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serving(max_steps=30, sessions=4) as url:
        yield url


def client_of(address: str) -> Any:
    return FlowClient(address, headers=bearer(TOKEN)).sync()


def session(address: str, headers: dict[str, str] | None = None) -> Any:
    """Return a WebSocket, to be entered."""
    headers = bearer(TOKEN) if headers is None else headers
    return connect(address.replace("http", "ws") + "/ws", additional_headers=headers)


def test_the_expert_wins_over_the_network(address: str) -> None:
    episode, _ = won("agentgym_flow/Sokoban-v0", 3, max_steps=30)
    with client_of(address) as env:
        result = env.reset(task=3, seed=0, episode_id="third")
        assert result.observation.text == episode.observation
        assert result.observation.admissible_actions == ["up", "down", "left", "right"]
        assert not result.done
        for turn in episode.turns:
            result = env.step(FlowAction(action=turn.action))
            assert result.reward == turn.reward
            assert result.observation.state_key == turn.next_state_key
        assert result.done
        assert result.observation.success
        state = env.state()
        assert (state.episode_id, state.step_count) == ("third", len(episode.turns))
        assert (state.env_id, state.split) == ("agentgym_flow/Sokoban-v0", "train")


@pytest.mark.parametrize("env_id", TEXT_IDS)
def test_the_expert_wins_every_environment_of_openenv(env_id: str) -> None:
    episode, _ = won(env_id, 2)
    env = OpenEnvEnvironment(env_id)
    observation = env.reset(seed=0, task=2)
    assert (observation.goal, observation.task_key) == (episode.goal, episode.task_key)
    for turn in episode.turns:
        assert not observation.done
        observation = env.step(FlowAction(action=turn.action))
    assert observation.done
    assert observation.success
    env.close()


def test_openenvs_own_client_plays_and_equal_seeds_begin_equally(address: str) -> None:
    async def begun() -> Any:
        async with GenericEnvClient(address, headers=bearer(TOKEN)) as env:
            first = await env.reset(seed=7)
            await env.step({"action": "no such word"})
            return first.observation

    first, second = asyncio.run(begun()), asyncio.run(begun())
    assert first == second
    assert first["state_key"]


def test_mistakes_of_clients_are_told_and_end_no_session(address: str) -> None:
    with session(address) as socket:

        def told(message: str) -> str:
            socket.send(message)
            answer = json.loads(socket.recv(10))
            return f"{answer['type']} {answer['data'].get('message', '')}"

        def step(action: object) -> str:
            return told(json.dumps({"type": "step", "data": {"action": action}}))

        assert "call reset() before the first step" in step("up")
        assert "task 99999999 does not exist" in told('{"type": "reset", "data": {"task": 99999999}}')
        assert "Did you mean 'seed'?" in told('{"type": "reset", "data": {"task": 7, "sede": 3}}')
        assert told("no JSON").startswith("error")
        assert told('{"type": "step", "data": {"action": 3}}').startswith("error")
        assert told('{"type": "reset", "data": {"seed": 1}}').startswith("observation")
        for text in ("", "up" * 100_000, "\x00\ud800", "<action>up</action>"):
            assert step(text).startswith("observation")


@pytest.mark.parametrize("other", [{"index": 7}, {"tsk": 7}, {"task": 7, "sede": 3}, {"task": 7, "split": "test"}])
def test_other_arguments_of_reset_are_refused_on_both_sides(address: str, other: dict[str, Any]) -> None:
    """OpenEnv's server drops what the environment's signature lacks, and another task was played."""
    with client_of(address) as env, pytest.raises(UnknownOption, match="Known: task, seed, episode_id"):
        env.reset(**other)

    async def own() -> Any:
        async with FlowClient(address, headers=bearer(TOKEN)) as env:
            return await env.reset(**other)

    async def openenvs() -> Any:
        async with GenericEnvClient(address, headers=bearer(TOKEN)) as env:
            return await env.reset(**other)

    with pytest.raises(UnknownOption, match="Known: task, seed, episode_id"):
        asyncio.run(own())
    with pytest.raises(RuntimeError, match="Known: task, seed, episode_id"):
        asyncio.run(openenvs())
    env = OpenEnvEnvironment("agentgym_flow/Sokoban-v0")
    with pytest.raises(UnknownOption, match="Known: task, seed, episode_id"):
        env.reset(**other)
    env.close()


def test_the_named_task_is_played(address: str) -> None:
    with client_of(address) as env:
        assert [env.reset(task=7, seed=seed).observation.task for seed in (0, 1)] == [7, 7]
        with pytest.raises(UnknownOption, match="step takes an action and nothing else, got timeout_s"):
            env.step(FlowAction(action="up"), timeout_s=1.0)


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}])
def test_nobody_gets_in_without_the_token(address: str, headers: dict[str, str]) -> None:
    with (
        pytest.raises(InvalidStatus) as caught,
        connect(address.replace("http", "ws") + "/ws", additional_headers=headers),
    ):
        pass
    assert caught.value.response.status_code == 401
    assert status(address, "/health", headers) == 401


def status(address: str, path: str, headers: dict[str, str]) -> int:
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=10)
    connection.request("GET", path, headers=headers)
    try:
        return connection.getresponse().status
    finally:
        connection.close()


def test_only_what_sessions_need_is_served_and_only_under_names_of_this_machine(address: str) -> None:
    assert status(address, "/health", bearer(TOKEN)) == 200
    assert status(address, "/schema", bearer(TOKEN)) == 200
    for path in ("/reset", "/step", "/state", "/mcp", "/docs", "/web", "/list_environments"):
        assert status(address, path, bearer(TOKEN)) == 404
    assert status(address, "/health", {**bearer(TOKEN), "Host": "rebound.example"}) == 421


def test_sessions_are_limited_and_idle_ones_make_room() -> None:
    begin = '{"type": "reset", "data": {"seed": 1}}'
    with serving(sessions=2, idle=3.0) as address, ExitStack() as opened:
        sockets = [opened.enter_context(session(address)) for _ in range(2)]
        for socket in sockets:
            socket.send(begin)
            assert json.loads(socket.recv(10))["type"] == "observation"
        with session(address) as refused:
            assert json.loads(refused.recv(10))["data"]["code"] == "CAPACITY_REACHED"
        for socket in sockets:  # nobody closes them
            with pytest.raises(ConnectionClosed) as caught:
                socket.recv(20)
            assert (caught.value.rcvd.code, caught.value.rcvd.reason) == (1001, "idle")
        with session(address) as third:
            third.send(begin)
            assert json.loads(third.recv(10))["type"] == "observation"


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"token": ""}, BadSetting, "token"),
        ({"token": TOKEN, "sessions": 0}, BadSetting, "sessions"),
        ({"token": TOKEN, "idle": 0}, BadSetting, "idle"),
        ({"token": TOKEN, "env_id": "agentgym_flow/Sokobahn-v0"}, UnknownEnvironment, "Sokoban-v0"),
    ],
)
def test_settings_that_cannot_work_say_why(settings: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        serve(**{"env_id": "agentgym_flow/Sokoban-v0", "port": 0, **settings})

"""Play episodes independently with an asynchronous policy: no episode waits for the answer of another one.

In rounds, every turn takes as long as the slowest answer. Here, every slot is a task of one event loop. Environments
with external requests take their steps in threads, and requests within a few milliseconds of each other are combined.
"""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

from agentgym_flow.core import TextEnv
from agentgym_flow.errors import AgentGymFlowError, GenerationFailed
from agentgym_flow.play.slots import EpisodeSpec, PoolSlot
from agentgym_flow.policies.base import AsyncPolicy, PolicyInput, PolicyOutput, checked, session

TRIES = 3
"""The number of tries for one answer of a policy that raises."""

PAUSE = 0.5
"""Seconds before the second try. The pause doubles before each further try."""

WINDOW = 0.002
"""Seconds that a step with a shared external request waits for other steps, to combine their requests."""

T = TypeVar("T")


async def play_independently(
    policy: AsyncPolicy,
    slots: Sequence[PoolSlot],
    waiting: Iterator[tuple[int, EpisodeSpec]],
    finish: Callable[[PoolSlot], None],
    stop: Callable[[PolicyInput], bool] | None,
) -> None:
    """Play one episode per `waiting` spec, each in the next free slot, and call `finish` at the end of each episode.

    A policy that raises is called again with the same input and the same random draws. If it keeps raising, only this
    episode ends (`meta["error"]`). Errors of this package other than `GenerationFailed` concern more than one answer,
    so they stop the rollout.
    """
    requests = SharedRequests()

    async def play(slot: PoolSlot) -> None:
        while slot.begin(waiting):
            while not await take_turn(policy, slot, requests, stop):
                pass
            finish(slot)

    async with session(policy):
        tasks = [asyncio.create_task(play(slot)) for slot in slots]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def take_turn(
    policy: AsyncPolicy, slot: PoolSlot, requests: SharedRequests, stop: Callable[[PolicyInput], bool] | None
) -> bool:
    """Take one turn; return whether the episode is over. Errors as in `play_independently`."""
    try:
        output = await _asked(policy, slot.policy_input)
    except Exception as error:
        if _concerns_all(error):
            raise
        slot.lose(error)
        return True
    if slot.policy_input.env.card.outside_requests == "none":
        return slot.play(output, stop)
    try:
        if slot.policy_input.env.card.outside_requests == "shared":
            await requests.prepare(slot.policy_input.env, output.action)
        return await _in_thread(lambda: slot.play(output, stop))
    except asyncio.CancelledError:
        slot.abandon()  # a thread may still be using its environment
        raise


async def _asked(policy: AsyncPolicy, policy_input: PolicyInput) -> PolicyOutput:
    rng = policy_input.rng
    for number in range(TRIES):
        policy_input.rng = copy.copy(rng)  # every try makes the same draws
        try:
            return checked(policy, await policy.respond(policy_input))
        except Exception as error:
            if _concerns_all(error) or number + 1 == TRIES:
                raise
        await asyncio.sleep(PAUSE * 2**number)
    raise AssertionError  # the last try returns or raises


def _concerns_all(error: Exception) -> bool:
    return isinstance(error, AgentGymFlowError) and not isinstance(error, GenerationFailed)


class SharedRequests:
    """Combines the external requests of steps that are taken at nearly the same time, and sends them in a thread."""

    def __init__(self) -> None:
        self._waiting: dict[type[TextEnv], tuple[list[TextEnv], list[str]]] = {}
        self._prepared: dict[type[TextEnv], asyncio.Task[None]] = {}

    async def prepare(self, env: TextEnv, action: str) -> None:
        """Send the request of the next step of `env`, combined with others."""
        kind = type(env)
        if kind not in self._waiting:
            self._waiting[kind] = [], []
            self._prepared[kind] = asyncio.create_task(self._prepare(kind))
        envs, actions = self._waiting[kind]
        envs.append(env)
        actions.append(action)
        await asyncio.shield(self._prepared[kind])

    async def _prepare(self, kind: type[TextEnv]) -> None:
        await asyncio.sleep(WINDOW)
        envs, actions = self._waiting.pop(kind)
        await _in_thread(lambda: kind.prepare_steps(envs, actions))


async def _in_thread(work: Callable[[], T]) -> T:
    """Do `work` in a daemon thread, so that Ctrl-C does not wait for a server that does not answer."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def tell(done: Callable[[Any], None], what: Any) -> None:
        if not future.done():
            done(what)

    def run() -> None:
        try:
            outcome: tuple[Callable[[Any], None], Any] = future.set_result, work()
        except BaseException as error:  # raised again by `await future`
            outcome = future.set_exception, error
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(tell, *outcome)

    threading.Thread(target=run, name="environment steps", daemon=True).start()
    return await future


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run `main` to its end, even if an event loop is already running, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(main)
        return
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, main).result()

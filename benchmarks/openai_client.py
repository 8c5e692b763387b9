"""CPU time per request of the official OpenAI client, used as documented, and of this package's client.

    python benchmarks/openai_client.py [--repetitions 7] [--requests 320] [--concurrency 32]

A server on the loopback interface, in another process, answers every request after 50 ms. The variants take turns, each
with its own client and `--concurrency` concurrent requests:

- `chat.completions.create`: arguments are validated, and the response is parsed into a model object;
- `chat.completions.with_streaming_response.create`: the response stays bytes, and can be cut off if it gets too long;
- `OpenAIPolicy`: `respond`, including the prompt of a Sokoban board and the parsing of the response;
- Canvas's backend: its request without the operator.

Figures are CPU milliseconds of the whole client process per request, medians of the repetitions. Opening connections
is excluded.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import openai
from _slow_server import slow_server
from _timing import arguments, in_turns, print_header, print_row

from agentgym_flow._util.endpoint import RequestThreads, Tries
from agentgym_flow._util.openai_access import ChatEndpoint
from agentgym_flow.envs import make_text_env
from agentgym_flow.envs.canvas.backends.openai_compatible import ask_model
from agentgym_flow.play import EnvPool, EpisodeSpec, PoolSlot
from agentgym_flow.policies import PolicyInput
from agentgym_flow.policies.openai_chat import OpenAIPolicy

LATENCY = 0.05
Ask = Callable[[], Awaitable[object]]


def sokoban_input() -> PolicyInput:
    """Return the policy input at the start of an episode."""
    slot = PoolSlot(EnvPool(lambda: make_text_env("agentgym_flow/Sokoban-v0")))
    slot.begin(iter([(0, EpisodeSpec(0))]))
    return slot.policy_input


@asynccontextmanager
async def created(url: str, request: Mapping[str, Any], *, stream: bool) -> AsyncIterator[Ask]:
    """Send requests by `create`, as the client's guide shows."""
    async with openai.AsyncOpenAI(base_url=url, api_key="none") as client:
        completions = client.chat.completions

        async def streamed() -> object:
            async with completions.with_streaming_response.create(**request) as answer:
                return json.loads(b"".join([part async for part in answer.iter_bytes()]))

        yield streamed if stream else partial(completions.create, **request)


@asynccontextmanager
async def by_policy(url: str, policy_input: PolicyInput) -> AsyncIterator[Ask]:
    """Send requests as a policy does."""
    async with OpenAIPolicy("benchmark", url, "agentgym_flow/Sokoban-v0") as policy:
        yield partial(policy.respond, policy_input)


@asynccontextmanager
async def by_canvas(url: str, request: Mapping[str, Any]) -> AsyncIterator[Ask]:
    """Send requests as Canvas's operators do."""
    server, threads = ChatEndpoint(url, patience=0.0), RequestThreads(1000)
    tries = Tries(retries=0, deadline=60.0, backoff=0.5, timeout=60.0)
    yield lambda: threads.run(lambda call: ask_model(server, request, "none", tries, call))
    threads.close()
    server.close()


def measure(options: argparse.Namespace, url: str) -> None:
    """Print the table."""
    policy_input = sokoban_input()
    messages = OpenAIPolicy("benchmark", url, "agentgym_flow/Sokoban-v0").template.messages(policy_input)
    request: dict[str, Any] = {"model": "benchmark", "messages": messages, "temperature": 0.0, "max_tokens": 512}
    ways = {
        "`chat.completions.create`": partial(created, url, request, stream=False),
        "the same as a stream": partial(created, url, request, stream=True),
        "`OpenAIPolicy`": partial(by_policy, url, policy_input),
        "Canvas's backend": partial(by_canvas, url, request),
    }

    async def spent(way: Callable[[], Any], count: int) -> float:
        async with way() as ask:
            room = asyncio.Semaphore(options.concurrency)

            async def one() -> None:
                async with room:
                    await ask()

            async def all_of(number: int) -> None:
                await asyncio.gather(*[one() for _ in range(number)])

            await all_of(options.concurrency)
            start = time.process_time()
            await all_of(count)
            return time.process_time() - start

    figures = in_turns(
        {name: lambda way=way: asyncio.run(spent(way, options.requests)) for name, way in ways.items()},
        options.repetitions,
    )
    usual = figures["`chat.completions.create`"]
    print_header("asked by", "CPU ms per request", "to `create`")
    for name, total in figures.items():
        print_row(name, f"{total / options.requests * 1e3:.2f}", f"{total / usual:.2f}x")


def main() -> None:
    """Start the server, measure, and print."""
    parser = arguments(__doc__ or "", repetitions=7)
    parser.add_argument("--requests", type=int, default=320, help="requests per repetition (default 320)")
    parser.add_argument("--concurrency", type=int, default=32, help="concurrent requests (default 32)")
    options = parser.parse_args()
    message = {"role": "assistant", "content": "<action>up</action>"}
    body = json.dumps({"choices": [{"index": 0, "finish_reason": "stop", "message": message}]}).encode()
    with slow_server(LATENCY, body) as url:
        measure(options, url)


if __name__ == "__main__":
    main()

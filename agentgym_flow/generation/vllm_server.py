"""A generator that uses vLLM servers: requests are distributed, and new weights go to all servers first.

A server is a separate process, possibly on another machine. It can die, hang, restart with its initial weights, or
receive weights from somebody else. The version that vLLM stores with its weights reveals that: it is set with every
update, and checked before and after every use.

Except for completions, the endpoints belong to vLLM's development mode; see docs/training.md.
"""

from __future__ import annotations

import asyncio
import json
import math
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import torch

from agentgym_flow._util.endpoint import Endpoint, RequestThreads
from agentgym_flow._util.http import Answer, Call, TryFailed, server_address
from agentgym_flow.errors import BadSetting, GenerationFailed, ServerDown, TrainingFailed, UpdateFailed, shown
from agentgym_flow.generation import (
    NOT_A_NUMBER,
    Completion,
    GenerationRequest,
    check_finite,
    check_fits,
    checked_completion,
    has_adapter,
)
from agentgym_flow.generation.sampling import VLLM_NEUTRAL, tell_unused_settings
from agentgym_flow.generation.vllm_engine import check_version, save_weights

if TYPE_CHECKING:
    from transformers import PreTrainedModel

T = TypeVar("T")

WHOLE, ADAPTER = "whole", "adapter"
"""The version that servers store after an update. With whole weights, `WHOLE` is its prefix.

With adapters it is `ADAPTER`, because a server has several at a time, for other versions and other processes, each
under a name of its own.
"""

SHORT = 10.0
"""Timeout in seconds for requests that a healthy server answers immediately."""

MOST = 4096
"""The largest number of requests of a process at a time."""

_START = "start it with VLLM_SERVER_DEV_MODE=1 and --logprobs-mode processed_logprobs"
_START_ADAPTERS = "start it with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 and --enable-lora, with room for lora_rank"


@dataclass(slots=True, eq=False)
class _VLLMServer:
    """The state of one server.

    Attributes:
        url: its URL.
        endpoint: its client.
        model: the name of its model.
        context: the longest prompt and answer together, in tokens.
        down: why it is not used; None while it is.
        busy: number of pending requests of this process.
    """

    url: str
    endpoint: Endpoint
    model: str = ""
    context: int = 0
    down: str | None = None
    busy: int = 0

    def get(self, path: str, seconds: float, call: Call | None = None) -> Answer:
        """Raises `TryFailed`."""
        return self.endpoint.send(path, method="GET", until=time.monotonic() + seconds, call=call)

    def post(self, path: str, body: Any, seconds: float = math.inf, call: Call | None = None) -> Answer:
        """Raises `TryFailed`."""
        text = None if body is None else json.dumps(body).encode()
        return self.endpoint.send(path, text, until=time.monotonic() + seconds, call=call)


class _Unreachable(Exception):
    """The server does not answer."""


class VLLMServers:
    """Generates with vLLM servers.

    If a server dies, its requests go to another one. It is not used until the next update, which it must accept.
    Log-probabilities of greedy answers are at temperature 1.

    Args:
        model: the causal language model, the same as on the servers. If it has adapters, updates transfer only these.
        urls: the URLs of the servers, without a path.
        folder: a folder for weights that the servers must see under the same path. It is removed at the end.
        dtype: the type of the written weights.
        max_model_len: the longest prompt and answer together, in tokens; None: that of the servers.
        silence: seconds after which a silent server is checked, and the time limit for loading weights and starting.
        on_main_process: runs a function in the main process of a run, and returns its result in all processes.
        rank: the number of this process.

    Raises:
        ServerDown: a server cannot be reached.
        UnsupportedVLLM: the version of a server is not supported.
        BadSetting: a server is not set up for training; the message names it.
    """

    exact = False

    def __init__(
        self,
        model: PreTrainedModel,
        urls: Sequence[str],
        folder: Path,
        *,
        dtype: str = "float32",
        max_model_len: int | None = None,
        silence: float = 240.0,
        on_main_process: Callable[[Callable[[], Any]], Any] = lambda work: work(),
        rank: int = 0,
    ) -> None:
        self.version = -1
        self._with_adapter = has_adapter(model)
        self._folder = folder.resolve()
        self._dtype: torch.dtype = getattr(torch, dtype)
        self._silence = silence
        self._on_main_process = on_main_process
        self._is_main = rank == 0
        self._mark = ""  # the version of the servers' weights
        self._adapter: str | None = None
        self._foreign: str | None = None  # which server has other weights, and why
        self._threads: RequestThreads | None = None
        first = rank % len(urls)  # processes start with different servers
        self._servers = [_server_at(url) for url in [*urls[first:], *urls[:first]]]
        found = on_main_process(partial(self._on_all_servers, self._inspect))
        for server in self._servers:
            server.model, server.context = found[server.url]
        self.context = min(max_model_len or sys.maxsize, *(server.context for server in self._servers))
        if self._is_main:
            tell_unused_settings(model)

    # ---------------------------------------------------------------- answers
    async def __aenter__(self) -> Self:
        self._threads = RequestThreads(MOST)
        await self._check_marks()
        self._foreign = None  # servers with other weights are left out from the start
        self._check_any()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                await self.check()
        finally:
            self._running.close()
            self._threads = None

    async def check(self) -> None:
        """Raise `UpdateFailed` if answers since the session began may be from other weights than the last update's."""
        await self._check_marks()
        if self._foreign is not None:
            raise UpdateFailed(
                f"{self._foreign}: it was restarted, or received weights from somebody else, while in use. Resume with "
                "--resume=true"
            )

    @property
    def _running(self) -> RequestThreads:
        assert self._threads is not None, "VLLMServers must be entered: async with"
        return self._threads

    async def generate(self, request: GenerationRequest) -> Completion:
        """Answer one request with the least busy server; see `Generator`.

        Raises `ServerDown`, which names the servers, if none is left, and `BadSetting` if a request is refused.
        """
        while True:
            self._check_any()
            server = min((one for one in self._servers if one.down is None), key=lambda one: one.busy)
            advice = "start it with a larger --max-model-len, or lower max_completion_length"
            lengths = len(request.prompt_ids), request.sampling.max_new_tokens
            check_fits(*lengths, server.context, f"{server.url}'s", advice)
            server.busy += 1
            try:
                return await self._ask(server, request)
            except _Unreachable as gone:
                server.down = server.down or str(gone)
            finally:
                server.busy -= 1

    def _check_any(self) -> None:
        if all(server.down is not None for server in self._servers):
            each = "; ".join(f"{server.url} {server.down}" for server in self._servers)
            raise ServerDown(f"no vLLM server is left: {each}. Start one, and resume with --resume=true")

    async def _ask(self, server: _VLLMServer, request: GenerationRequest) -> Completion:
        answer = await self._post(server, {"model": self._adapter or server.model, **body_of(request)})
        if answer.status >= 500:
            await self._running.run(partial(self._check_alive, server))
            raise GenerationFailed(f"{server.url} failed with HTTP {answer.status}: {_shown(answer)}")
        if answer.status == 404:
            raise _Unreachable(f"no longer has the weights of version {self.version}")
        if answer.status >= 400 and "Out of range float" in answer.text:  # JSON has no NaN
            raise TrainingFailed(f"the model's output {NOT_A_NUMBER}")
        if answer.status >= 400:
            raise BadSetting(f"{server.url} refused a request with HTTP {answer.status}: {_shown(answer)}")
        return completion_of(answer, server.url, self.version)

    async def _post(self, server: _VLLMServer, body: dict[str, Any]) -> Answer:
        """Post a request; check that the server is alive after every `silence` seconds without an answer."""
        work = partial(server.post, "/v1/completions", body, math.inf)
        post = asyncio.ensure_future(self._running.run(work))
        try:
            while not (await asyncio.wait({post}, timeout=self._silence))[0]:
                await self._running.run(partial(self._check_alive, server))
            return post.result()
        except TryFailed as error:
            raise _Unreachable(f"did not answer ({error})") from None
        finally:
            post.cancel()

    def _check_alive(self, server: _VLLMServer, call: Call) -> None:
        try:
            healthy = server.get("/health", SHORT, call).status == 200
        except TryFailed as error:
            raise _Unreachable(f"is silent ({error})") from None
        if not healthy:
            raise _Unreachable("reports that its engine is dead")

    async def _check_marks(self) -> None:
        """Mark servers without the latest weights as down."""
        if not self._mark:
            raise UpdateFailed("vLLM servers received a request before any weights: call update first")
        up = [server for server in self._servers if server.down is None]
        await asyncio.gather(*(self._running.run(partial(self._check_mark, server)) for server in up))

    def _check_mark(self, server: _VLLMServer, call: Call) -> None:
        try:
            answer = server.get("/weight_info", self._silence, call)
        except TryFailed as error:
            server.down = f"did not answer ({error})"
            return
        if answer.status >= 500:
            server.down = f"did not answer (HTTP {answer.status})"
        elif _field(answer, "weight_version") != self._mark:
            server.down = f"has other weights than those of version {self.version}"
            self._foreign = f"{server.url} {server.down}"

    # ---------------------------------------------------------------- weights
    def update(self, model: PreTrainedModel, version: int) -> None:
        """Send the weights of `model` to all servers, including those that were down; see `Generator`.

        Unreachable servers are left out. Raises `UpdateFailed`, which names the server, if a reachable server does not
        load the weights, and `ServerDown` if none is left.
        """
        if version == self.version:
            return
        check_finite(model)
        down, self._mark, self._adapter = self._on_main_process(partial(self._send, model, version))
        for server in self._servers:
            server.down = down[server.url]
        self.version = version
        self._check_any()

    def _send(self, model: PreTrainedModel, version: int) -> tuple[dict[str, str | None], str, str | None]:
        """Write and send the weights; return the reasons of servers that are down, the version, and the adapter."""
        kind = ADAPTER if self._with_adapter else WHOLE
        name = f"{kind}-{version}-{secrets.token_hex(4)}"  # unique among runs, processes and restarts
        mark, adapter = (ADAPTER, name) if self._with_adapter else (name, None)
        path = self._folder / name
        save_weights(model, path, self._dtype)
        down = self._on_all_servers(partial(self._deliver, path=path, mark=mark, adapter=adapter))
        for old in self._folder.iterdir():
            if old != path:
                shutil.rmtree(old, ignore_errors=True)
        return down, mark, adapter

    def _deliver(self, server: _VLLMServer, *, path: Path, mark: str, adapter: str | None) -> str | None:
        """Let one server load weights; return why it is down, or None. Raises `UpdateFailed`."""

        def accepted(to: str, body: Any) -> Answer:
            answer = server.post(to, body, self._silence)
            if answer.status != 200:
                advice = f"; {_START}" if answer.status == 404 else "; it must see that folder under the same path"
                raise UpdateFailed(
                    f"{server.url} did not load the weights in {path}: HTTP {answer.status}: {_shown(answer)}{advice}"
                )
            return answer

        try:
            if adapter is None:
                accepted("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": str(path)}})
            else:
                accepted("/v1/load_lora_adapter", {"lora_name": adapter, "lora_path": str(path)})
                if self._adapter is not None:  # fails on a restarted server, which does not have it
                    server.post("/v1/unload_lora_adapter", {"lora_name": self._adapter}, self._silence)
            # The cache knows adapters by name, and cannot be cleared while others are in use.
            if adapter is None and _field(accepted("/reset_prefix_cache", None), "success") is False:
                raise UpdateFailed(f"{server.url} could not clear its prefix cache of earlier weights")
            accepted("/update_weight_version", {"new_version": mark})
        except TryFailed as error:
            if error.unreached:
                return f"cannot be reached ({error})"
            raise UpdateFailed(
                f"{server.url} did not load the weights in {path} ({error}) within vllm_server_timeout seconds "
                f"({self._silence:g})"
            ) from error
        return None

    def _on_all_servers(self, work: Callable[[_VLLMServer], T]) -> dict[str, T]:
        """Run `work` for all servers in parallel; return the results by URL."""
        with ThreadPoolExecutor(len(self._servers)) as pool:
            return {
                server.url: result for server, result in zip(self._servers, pool.map(work, self._servers), strict=True)
            }

    # ---------------------------------------------------------------- setup
    def _inspect(self, server: _VLLMServer) -> tuple[str, int]:
        """Return the name of a server's model and its context in tokens; wait until the server is up."""
        url, models = server.url, self._wait_until_up(server)
        check_version(str(_field(server.get("/version", self._silence), "version")), url)
        mark = _field(server.get("/weight_info", self._silence), "weight_version")
        if not isinstance(mark, str):
            raise BadSetting(f"{url} does not report the version of its weights: {_START}")
        self._check_settings(server)
        if self._with_adapter and mark.startswith(WHOLE):
            raise BadSetting(f"{url} has whole weights of an earlier run instead of the base model: restart it")
        try:
            model = json.loads(models.body)["data"][0]
            return str(model["id"]), int(model["max_model_len"])
        except (ValueError, LookupError, TypeError) as error:
            raise BadSetting(f"{url} does not report its model as vLLM servers do") from error

    def _wait_until_up(self, server: _VLLMServer) -> Answer:
        until = time.monotonic() + self._silence
        while True:
            try:
                answer = server.get("/v1/models", SHORT)
            except TryFailed as error:
                if time.monotonic() > until:
                    raise ServerDown(
                        f"{server.url} cannot be reached ({error}) within vllm_server_timeout seconds "
                        f"({self._silence:g}): start the server, or correct the address"
                    ) from error
                time.sleep(min(1.0, self._silence / 10))
                continue
            if answer.status == 200:
                return answer
            raise BadSetting(f"{server.url} is not a vLLM server: HTTP {answer.status} at /v1/models")

    def _check_settings(self, server: _VLLMServer) -> None:
        """Raise `BadSetting` unless a server's settings fit the weights it will receive."""
        found = _field(server.get("/server_info?config_format=json", self._silence), "vllm_config")
        try:
            mode, adapters = found["model_config"]["logprobs_mode"], found["lora_config"] is not None
        except (LookupError, TypeError):
            raise BadSetting(f"{server.url} does not report its settings: {_START}") from None
        if mode != "processed_logprobs":
            raise BadSetting(f"{server.url} returns log-probabilities without temperature: {_START}")
        if self._with_adapter and not adapters:
            raise BadSetting(f"{server.url} does not accept adapters: {_START_ADAPTERS}")

    def close(self) -> None:
        """Remove the weights written for the servers, which keep running."""
        if self._is_main:  # without waiting for the other processes, which may have failed
            shutil.rmtree(self._folder, ignore_errors=True)


def body_of(request: GenerationRequest) -> dict[str, Any]:
    """Return the body of a request to vLLM's completions endpoint."""
    sampling = request.sampling
    return {
        "prompt": list(request.prompt_ids),
        "max_tokens": sampling.max_new_tokens,
        "temperature": 0.0 if sampling.greedy else sampling.temperature,
        "seed": None if sampling.greedy else request.seed,
        **VLLM_NEUTRAL,  # a server takes what is not given from the model's generation_config.json
        "stop_token_ids": sorted(sampling.ends),
        "stop": list(sampling.stops),
        "include_stop_str_in_output": True,
        "skip_special_tokens": False,  # a tag of an answer may be one
        "ignore_eos": True,  # only `ends` end an answer
        "logprobs": 0,  # only that of the sampled token
        "return_token_ids": True,
    }


def completion_of(answer: Answer, url: str, version: int) -> Completion:
    """Return a server's answer. Raises `GenerationFailed` if it is malformed, `TrainingFailed` if it is not finite."""
    try:
        choice = json.loads(answer.body)["choices"][0]
        tokens = tuple(int(token) for token in choice["token_ids"])
        values = choice["logprobs"]["token_logprobs"]
        logprobs = tuple(float("nan" if value is None else value) for value in values)
    except (ValueError, LookupError, TypeError) as error:
        raise GenerationFailed(f"{url} gave an answer without token ids and log-probabilities") from error
    if not tokens or len(tokens) != len(logprobs):
        raise GenerationFailed(f"{url} gave {len(tokens)} tokens and {len(logprobs)} log-probabilities")
    return checked_completion(Completion(tokens, logprobs, version))


def _server_at(url: str) -> _VLLMServer:
    address = server_address(url, "http://localhost:8000", "vLLM's key is not supported")
    return _VLLMServer(url, Endpoint(address, headers={"Content-Type": "application/json"}, proxies=True))


def _field(answer: Answer, name: str) -> Any:
    try:
        return json.loads(answer.body)[name]
    except (ValueError, LookupError, TypeError):
        return None


def _shown(answer: Answer) -> str:
    return shown(" ".join(answer.text.split())[:200])

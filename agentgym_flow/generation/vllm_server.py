"""A generator that uses vLLM servers: requests are distributed, and new weights go to all servers first.

A server is a separate process, possibly on another machine. It can die, hang, restart with its initial weights, or
receive weights from somebody else. The version that vLLM stores with its weights reveals that: it is set with every
update, and checked before and after every use.

Except for completions, the endpoints belong to vLLM's development mode; see docs/training.md.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import httpx2
import torch

from agentgym_flow.errors import BadSetting, GenerationFailed, ServerDown, TrainingFailed, UpdateFailed, shown
from agentgym_flow.generation.base import NOT_A_NUMBER, Completion, GenerationRequest, check_fits, checked_completion
from agentgym_flow.generation.sampling import VLLM_NEUTRAL, tell_unused_settings
from agentgym_flow.generation.vllm_engine import check_version
from agentgym_flow.generation.weights import check_finite, has_adapter, save_weights

if TYPE_CHECKING:
    from transformers import PreTrainedModel

T = TypeVar("T")

WHOLE, ADAPTER = "whole", "adapter"
"""Prefixes of weight versions: for whole weights, and for an adapter."""

SHORT = 10.0
"""Timeout in seconds for requests that a healthy server answers immediately."""

_START = "start it with VLLM_SERVER_DEV_MODE=1 and --logprobs-mode processed_logprobs"
_START_ADAPTERS = "start it with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 and --enable-lora, with room for lora_rank"


@dataclass(slots=True)
class _VLLMServer:
    """The state of one server.

    Attributes:
        url: its URL.
        model: the name of its model.
        context: the longest prompt and answer together, in tokens.
        down: why it is not used; None while it is.
        busy: number of pending requests of this process.
    """

    url: str
    model: str = ""
    context: int = 0
    down: str | None = None
    busy: int = 0


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
        self._client: httpx2.AsyncClient | None = None
        first = rank % len(urls)  # processes start with different servers
        found = dict(on_main_process(partial(self._on_all_servers, self._inspect, urls)))
        self._servers = [_VLLMServer(url, *found[url]) for url in [*urls[first:], *urls[:first]]]
        self.context = min(server.context for server in self._servers)
        if self._is_main:
            tell_unused_settings(model)

    # ---------------------------------------------------------------- answers
    async def __aenter__(self) -> Self:
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
        self._client = httpx2.AsyncClient(limits=limits, timeout=None)
        await self._check_marks()
        self._check_any()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        assert self._client is not None  # entered
        try:
            if kind is None:
                for server in await self._check_marks():  # its earlier answers may have used other weights
                    raise UpdateFailed(
                        f"{server.url} {server.down}: it was restarted, or received weights from somebody else, while "
                        "in use. Resume with --resume=true"
                    )
        finally:
            client, self._client = self._client, None
            await client.aclose()

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
        response = await self._post(server, {"model": self._adapter or server.model, **body_of(request)})
        if response.status_code >= 500:
            await self._check_alive(server)
            raise GenerationFailed(f"{server.url} failed with HTTP {response.status_code}: {_text_of(response)}")
        if response.status_code == 404:
            raise _Unreachable(f"no longer has the weights of version {self.version}")
        if response.status_code >= 400 and "Out of range float" in response.text:  # JSON has no NaN
            raise TrainingFailed(f"the model's output {NOT_A_NUMBER}")
        if response.status_code >= 400:
            raise BadSetting(f"{server.url} refused a request with HTTP {response.status_code}: {_text_of(response)}")
        return completion_of(response, server.url, self.version)

    async def _post(self, server: _VLLMServer, body: dict[str, Any]) -> httpx2.Response:
        """Post a request; check that the server is alive after every `silence` seconds without an answer."""
        assert self._client is not None, "VLLMServers must be entered: async with"
        post = asyncio.ensure_future(self._client.post(f"{server.url}/v1/completions", json=body))
        try:
            while not (await asyncio.wait({post}, timeout=self._silence))[0]:
                await self._check_alive(server)
            return post.result()
        except httpx2.TransportError as error:
            raise _Unreachable(f"did not answer ({_error_name(error)})") from None
        finally:
            post.cancel()

    async def _check_alive(self, server: _VLLMServer) -> None:
        assert self._client is not None
        try:
            healthy = (await self._client.get(f"{server.url}/health", timeout=SHORT)).status_code == 200
        except httpx2.TransportError as error:
            raise _Unreachable(f"is silent ({_error_name(error)})") from None
        if not healthy:
            raise _Unreachable("reports that its engine is dead")

    async def _check_marks(self) -> list[_VLLMServer]:
        """Mark servers without the latest weights as down; return those that have other weights."""
        if not self._mark:
            raise UpdateFailed("vLLM servers received a request before any weights: call update first")
        up = [server for server in self._servers if server.down is None]
        stale = await asyncio.gather(*map(self._is_stale, up))
        return [server for server, is_stale in zip(up, stale, strict=True) if is_stale]

    async def _is_stale(self, server: _VLLMServer) -> bool:
        assert self._client is not None
        try:
            response = await self._client.get(f"{server.url}/weight_info", timeout=self._silence)
        except httpx2.TransportError as error:
            server.down = f"did not answer ({_error_name(error)})"
            return False
        if response.status_code >= 500:
            server.down = f"did not answer (HTTP {response.status_code})"
            return False
        if _field(response, "weight_version") == self._mark:
            return False
        server.down = f"has other weights than those of version {self.version}"
        return True

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
        mark = f"{kind}-{version}-{secrets.token_hex(4)}"  # unique among runs and restarts
        adapter = mark if self._with_adapter else None
        path = self._folder / mark
        save_weights(model, path, self._dtype)
        urls = [server.url for server in self._servers]
        down = dict(self._on_all_servers(partial(self._deliver, path=path, mark=mark, adapter=adapter), urls))
        for old in self._folder.iterdir():
            if old != path:
                shutil.rmtree(old, ignore_errors=True)
        return down, mark, adapter

    def _deliver(self, client: httpx2.Client, url: str, *, path: Path, mark: str, adapter: str | None) -> str | None:
        """Let one server load weights; return why it is down, or None. Raises `UpdateFailed`."""
        try:
            if adapter is None:
                weights = {"method": "reload_weights", "kwargs": {"weights_path": str(path)}}
                _accepted(client.post(f"{url}/collective_rpc", json=weights), url, path)
            else:
                _accepted(
                    client.post(f"{url}/v1/load_lora_adapter", json={"lora_name": adapter, "lora_path": str(path)}),
                    url,
                    path,
                )
                if self._adapter is not None:  # fails on a restarted server, which does not have it
                    client.post(f"{url}/v1/unload_lora_adapter", json={"lora_name": self._adapter})
            emptied = _accepted(client.post(f"{url}/reset_prefix_cache"), url, path)
            if _field(emptied, "success") is False:
                raise UpdateFailed(f"{url} could not clear its prefix cache of earlier weights")
            _accepted(client.post(f"{url}/update_weight_version", json={"new_version": mark}), url, path)
        except httpx2.ConnectError as error:
            return f"cannot be reached ({_error_name(error)})"
        except httpx2.TransportError as error:
            raise UpdateFailed(
                f"{url} did not load the weights in {path} ({_error_name(error)}) within vllm_server_timeout seconds "
                f"({self._silence:g})"
            ) from error
        return None

    def _on_all_servers(self, work: Callable[[httpx2.Client, str], T], urls: Sequence[str]) -> list[tuple[str, T]]:
        """Run `work` for all servers in parallel; return the results."""
        with httpx2.Client(timeout=self._silence) as client, ThreadPoolExecutor(len(urls)) as pool:
            return list(zip(urls, pool.map(partial(work, client), urls), strict=True))

    # ---------------------------------------------------------------- setup
    def _inspect(self, client: httpx2.Client, url: str) -> tuple[str, int]:
        """Return the name of a server's model and its context in tokens; wait until the server is up."""
        models = self._wait_until_up(client, url)
        check_version(str(_field(client.get(f"{url}/version"), "version")), url)
        mark = _field(client.get(f"{url}/weight_info"), "weight_version")
        if not isinstance(mark, str):
            raise BadSetting(f"{url} does not report the version of its weights: {_START}")
        self._check_settings(client, url)
        if self._with_adapter and mark.startswith(WHOLE):
            raise BadSetting(f"{url} has whole weights of an earlier run instead of the base model: restart it")
        try:
            model = models.json()["data"][0]
            name, context = str(model["id"]), int(model["max_model_len"])
        except (ValueError, LookupError, TypeError) as error:
            raise BadSetting(f"{url} does not report its model as vLLM servers do") from error
        return name, context

    def _wait_until_up(self, client: httpx2.Client, url: str) -> httpx2.Response:
        until = time.monotonic() + self._silence
        while True:
            try:
                response = client.get(f"{url}/v1/models", timeout=SHORT)
            except httpx2.TransportError as error:
                if time.monotonic() > until:
                    raise ServerDown(
                        f"{url} cannot be reached ({_error_name(error)}) within vllm_server_timeout seconds "
                        f"({self._silence:g}): start the server, or correct the address"
                    ) from error
                time.sleep(min(1.0, self._silence / 10))
                continue
            if response.status_code == 200:
                return response
            raise BadSetting(f"{url} is not a vLLM server: HTTP {response.status_code} at /v1/models")

    def _check_settings(self, client: httpx2.Client, url: str) -> None:
        """Raise `BadSetting` unless a server's settings fit the weights it will receive."""
        found = _field(client.get(f"{url}/server_info", params={"config_format": "json"}), "vllm_config")
        try:
            mode, adapters = found["model_config"]["logprobs_mode"], found["lora_config"] is not None
        except (LookupError, TypeError):
            raise BadSetting(f"{url} does not report its settings: {_START}") from None
        if mode != "processed_logprobs":
            raise BadSetting(f"{url} returns log-probabilities without temperature: {_START}")
        if self._with_adapter and not adapters:
            raise BadSetting(f"{url} does not accept adapters: {_START_ADAPTERS}")

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


def completion_of(response: httpx2.Response, url: str, version: int) -> Completion:
    """Return a server's answer. Raises `GenerationFailed` if it is malformed, `TrainingFailed` if it is not finite."""
    try:
        choice = response.json()["choices"][0]
        tokens = tuple(int(token) for token in choice["token_ids"])
        values = choice["logprobs"]["token_logprobs"]
        logprobs = tuple(float("nan" if value is None else value) for value in values)
    except (ValueError, LookupError, TypeError) as error:
        raise GenerationFailed(f"{url} gave an answer without token ids and log-probabilities") from error
    if not tokens or len(tokens) != len(logprobs):
        raise GenerationFailed(f"{url} gave {len(tokens)} tokens and {len(logprobs)} log-probabilities")
    return checked_completion(Completion(tokens, logprobs, version))


def _accepted(response: httpx2.Response, url: str, path: Path) -> httpx2.Response:
    if response.status_code != 200:
        advice = f"; {_START}" if response.status_code == 404 else "; it must see that folder under the same path"
        raise UpdateFailed(
            f"{url} did not load the weights in {path}: HTTP {response.status_code}: {_text_of(response)}{advice}"
        )
    return response


def _field(response: httpx2.Response, name: str) -> Any:
    try:
        return response.json()[name]
    except (ValueError, LookupError, TypeError):
        return None


def _text_of(response: httpx2.Response) -> str:
    return shown(" ".join(response.text.split())[:200])


def _error_name(error: Exception) -> str:
    return type(error).__name__

"""Servers of vLLM as a generator: requests are spread over them, and all get new weights before any is asked again.

A server is a separate process, perhaps on another machine, so it can die, hang, come back with the weights that it was
started with, or get weights from somebody else. The version that vLLM keeps beside its weights tells: it is set with
every update, and asked for before and after every use.

What a server is asked for beside completions belongs to vLLM's development mode; see docs/training.md.
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
from agentgym_flow.generation.base import NOT_A_NUMBER, Completion, GenerationRequest, checked_completion
from agentgym_flow.generation.vllm_version import check_version
from agentgym_flow.generation.weights import check_finite, has_adapter, save_weights

if TYPE_CHECKING:
    from transformers import PreTrainedModel

T = TypeVar("T")

WHOLE, ADAPTER = "whole", "adapter"
"""The first words of the versions that servers get: of whole weights, or of an adapter."""

SHORT = 10.0
"""Seconds for what a living server answers at once."""

_START = "start it with VLLM_SERVER_DEV_MODE=1 and --logprobs-mode processed_logprobs"
_START_ADAPTERS = "start it with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 and --enable-lora, with room for lora_rank"


@dataclass(slots=True)
class _VLLMServer:
    """One server.

    Attributes:
        url: its address.
        model: the name of its model.
        context: the longest prompt with its answer, in tokens.
        down: why it is not asked any more; None while it is.
        busy: how many requests it is working on, of this process.
    """

    url: str
    model: str = ""
    context: int = 0
    down: str | None = None
    busy: int = 0


class _Unreachable(Exception):
    """There is nobody at the address."""


class VLLMServers:
    """Answers with servers of vLLM.

    A request whose server dies is asked of another one. A dead server is left out until the next update, and is asked
    again if it takes that. Greedy answers have log-probabilities at temperature 1.

    Args:
        model: the causal language model, which must be that of the servers; of one with adapters, these alone are sent.
        urls: the addresses, each without a path.
        folder: where weights are put; the servers must see it under the same name. It is removed in the end.
        dtype: in what weights are written.
        silence: seconds after which a silent server is asked whether it is alive, and for which it may take new
            weights over, or start up.
        on_main_process: does work in the main process of a run alone, and returns its result in all of them.
        rank: the number of this process.

    Raises:
        ServerDown: a server cannot be reached.
        UnsupportedVLLM: one is of a version that is not supported.
        BadSetting: one is not set up as training needs it; the message names it.
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
        self._mark = ""  # of the weights that the servers have
        self._adapter: str | None = None
        self._client: httpx2.AsyncClient | None = None
        first = rank % len(urls)  # not all processes begin with the same one
        found = dict(on_main_process(partial(self._everywhere, self._looked_up, urls)))
        self._servers = [_VLLMServer(url, *found[url]) for url in [*urls[first:], *urls[:first]]]

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
                for server in await self._check_marks():  # it may have had others for a while
                    raise UpdateFailed(
                        f"{server.url} {server.down}: it was started again, or given weights by somebody else, while "
                        "it was in use. Go on with --resume=true"
                    )
        finally:
            client, self._client = self._client, None
            await client.aclose()

    async def generate(self, request: GenerationRequest) -> Completion:
        """Answer one request, by the server that has the least to do; see `Generator`.

        Raises `ServerDown`, which names the servers, when none is left, and `BadSetting` when a request is refused.
        """
        while True:
            server = self._least_busy()
            self._check_length(server, request)
            server.busy += 1
            try:
                return await self._ask(server, request)
            except _Unreachable as gone:
                server.down = server.down or str(gone)
            finally:
                server.busy -= 1

    def _least_busy(self) -> _VLLMServer:
        self._check_any()
        return min((server for server in self._servers if server.down is None), key=lambda server: server.busy)

    def _check_any(self) -> None:
        if all(server.down is not None for server in self._servers):
            each = "; ".join(f"{server.url} {server.down}" for server in self._servers)
            raise ServerDown(f"no vLLM server is left: {each}. Start one again, and go on with --resume=true")

    @staticmethod
    def _check_length(server: _VLLMServer, request: GenerationRequest) -> None:
        prompt, answer = len(request.prompt_ids), request.sampling.max_new_tokens
        if prompt + answer > server.context:
            raise BadSetting(
                f"a prompt of {prompt} tokens and a completion of {answer} do not fit into the {server.context} tokens "
                f"of {server.url}: start it with a larger --max-model-len, or lower max_completion_length"
            )

    async def _ask(self, server: _VLLMServer, request: GenerationRequest) -> Completion:
        response = await self._patient(server, {"model": self._adapter or server.model, **body_of(request)})
        if response.status_code >= 500:
            await self._check_alive(server)
            raise GenerationFailed(f"{server.url} failed with HTTP {response.status_code}: {_said(response)}")
        if response.status_code == 404:
            raise _Unreachable(f"has lost the weights of version {self.version}")
        if response.status_code >= 400 and "Out of range float" in response.text:  # NaN, which JSON does not have
            raise TrainingFailed(f"the model's output {NOT_A_NUMBER}")
        if response.status_code >= 400:
            raise BadSetting(f"{server.url} refused a request with HTTP {response.status_code}: {_said(response)}")
        return completion_of(response, server.url, self.version)

    async def _patient(self, server: _VLLMServer, body: dict[str, Any]) -> httpx2.Response:
        """Post a request; after every `silence` seconds without an answer ask whether the server is alive."""
        assert self._client is not None, "VLLMServers is to be entered: async with"
        post = asyncio.ensure_future(self._client.post(f"{server.url}/v1/completions", json=body))
        try:
            while not (await asyncio.wait({post}, timeout=self._silence))[0]:
                await self._check_alive(server)
            return post.result()
        except httpx2.TransportError as error:
            raise _Unreachable(f"did not answer ({_kind(error)})") from None
        finally:
            post.cancel()

    async def _check_alive(self, server: _VLLMServer) -> None:
        assert self._client is not None
        try:
            healthy = (await self._client.get(f"{server.url}/health", timeout=SHORT)).status_code == 200
        except httpx2.TransportError as error:
            raise _Unreachable(f"is silent ({_kind(error)})") from None
        if not healthy:
            raise _Unreachable("says that its engine is dead")

    async def _check_marks(self) -> list[_VLLMServer]:
        """Leave out servers that do not have the weights that were sent last; return those that have others."""
        if not self._mark:
            raise UpdateFailed("vLLM servers were asked before they got any weights: call update first")
        up = [server for server in self._servers if server.down is None]
        stale = await asyncio.gather(*map(self._is_stale, up))
        return [server for server, is_stale in zip(up, stale, strict=True) if is_stale]

    async def _is_stale(self, server: _VLLMServer) -> bool:
        assert self._client is not None
        try:
            response = await self._client.get(f"{server.url}/weight_info", timeout=self._silence)
        except httpx2.TransportError as error:
            server.down = f"did not answer ({_kind(error)})"
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
        """Give all servers the weights of `model`, those that were down as well; see `Generator`.

        A server that cannot be reached is left out. Raises `UpdateFailed`, which names it, when one can be reached and
        does not take the weights over, and `ServerDown` when none is left.
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
        """Write and post the weights; return why a server is down, for each, the mark and the name of the adapter."""
        kind = ADAPTER if self._with_adapter else WHOLE
        mark = f"{kind}-{version}-{secrets.token_hex(4)}"  # no other run's, nor that of an earlier start of this one
        adapter = mark if self._with_adapter else None
        path = self._folder / mark
        save_weights(model, path, self._dtype)
        urls = [server.url for server in self._servers]
        down = dict(self._everywhere(partial(self._deliver, path=path, mark=mark, adapter=adapter), urls))
        for old in self._folder.iterdir():
            if old != path:
                shutil.rmtree(old, ignore_errors=True)
        return down, mark, adapter

    def _deliver(self, client: httpx2.Client, url: str, *, path: Path, mark: str, adapter: str | None) -> str | None:
        """Let one server take weights over; return why it is down, None when it has them. Raises `UpdateFailed`."""
        try:
            if adapter is None:
                weights = {"method": "reload_weights", "kwargs": {"weights_path": str(path)}}
                _taken(client.post(f"{url}/collective_rpc", json=weights), url, path)
            else:
                _taken(
                    client.post(f"{url}/v1/load_lora_adapter", json={"lora_name": adapter, "lora_path": str(path)}),
                    url,
                    path,
                )
                if self._adapter is not None:  # a server that was started again does not know it
                    client.post(f"{url}/v1/unload_lora_adapter", json={"lora_name": self._adapter})
            emptied = _taken(client.post(f"{url}/reset_prefix_cache"), url, path)
            if _field(emptied, "success") is False:
                raise UpdateFailed(f"{url} still holds what it computed with earlier weights")
            _taken(client.post(f"{url}/update_weight_version", json={"new_version": mark}), url, path)
        except httpx2.ConnectError as error:
            return f"cannot be reached ({_kind(error)})"
        except httpx2.TransportError as error:
            raise UpdateFailed(
                f"{url} did not take the weights in {path} over ({_kind(error)}); it may take vllm_server_timeout "
                f"seconds ({self._silence:g})"
            ) from error
        return None

    def _everywhere(self, work: Callable[[httpx2.Client, str], T], urls: Sequence[str]) -> list[tuple[str, T]]:
        """Do `work` with every server at the same time; return the results."""
        with httpx2.Client(timeout=self._silence) as client, ThreadPoolExecutor(len(urls)) as pool:
            return list(zip(urls, pool.map(partial(work, client), urls), strict=True))

    # ---------------------------------------------------------------- what a server is
    def _looked_up(self, client: httpx2.Client, url: str) -> tuple[str, int]:
        """Return the name of a server's model and how many tokens it has room for; wait until it is up."""
        models = self._when_up(client, url)
        check_version(str(_field(client.get(f"{url}/version"), "version")), url)
        mark = _field(client.get(f"{url}/weight_info"), "weight_version")
        if not isinstance(mark, str):
            raise BadSetting(f"{url} does not tell which weights it has: {_START}")
        self._check_settings(client, url)
        if self._with_adapter and mark.startswith(WHOLE):
            raise BadSetting(f"{url} has had whole weights, which are not those below the adapter: start it again")
        try:
            model = models.json()["data"][0]
            name, context = str(model["id"]), int(model["max_model_len"])
        except (ValueError, LookupError, TypeError) as error:
            raise BadSetting(f"{url} does not say which model it has, as a server of vLLM does") from error
        return name, context

    def _when_up(self, client: httpx2.Client, url: str) -> httpx2.Response:
        until = time.monotonic() + self._silence
        while True:
            try:
                response = client.get(f"{url}/v1/models", timeout=SHORT)
            except httpx2.TransportError as error:
                if time.monotonic() > until:
                    raise ServerDown(
                        f"{url} cannot be reached ({_kind(error)}), also after vllm_server_timeout seconds "
                        f"({self._silence:g}): start the server, or correct the address"
                    ) from error
                time.sleep(min(1.0, self._silence / 10))
                continue
            if response.status_code == 200:
                return response
            raise BadSetting(f"{url} is not a vLLM server: HTTP {response.status_code} at /v1/models")

    def _check_settings(self, client: httpx2.Client, url: str) -> None:
        """Raise `BadSetting` unless a server is set up for the weights it will get."""
        found = _field(client.get(f"{url}/server_info", params={"config_format": "json"}), "vllm_config")
        try:
            mode, adapters = found["model_config"]["logprobs_mode"], found["lora_config"] is not None
        except (LookupError, TypeError):
            raise BadSetting(f"{url} does not tell how it is set up: {_START}") from None
        if mode != "processed_logprobs":
            raise BadSetting(f"{url} gives log-probabilities that know no temperature: {_START}")
        if self._with_adapter and not adapters:
            raise BadSetting(f"{url} takes no adapters: {_START_ADAPTERS}")

    def close(self) -> None:
        """Remove what was written for the servers; they go on running."""
        if self._is_main:  # no meeting of the processes: one of them may have failed
            shutil.rmtree(self._folder, ignore_errors=True)


def body_of(request: GenerationRequest) -> dict[str, Any]:
    """Return a request as vLLM's completions endpoint reads it."""
    sampling = request.sampling
    return {
        "prompt": list(request.prompt_ids),
        "max_tokens": sampling.max_new_tokens,
        "temperature": 0.0 if sampling.greedy else sampling.temperature,
        "seed": None if sampling.greedy else request.seed,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "stop_token_ids": sorted(sampling.ends),
        "stop": list(sampling.stops),
        "include_stop_str_in_output": True,
        "ignore_eos": True,  # `ends` are all there are
        "logprobs": 0,  # that of the sampled token
        "return_token_ids": True,
    }


def completion_of(response: httpx2.Response, url: str, version: int) -> Completion:
    """Return a server's answer. Raises `GenerationFailed` when it is none, `TrainingFailed` when it is no number."""
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


def _taken(response: httpx2.Response, url: str, path: Path) -> httpx2.Response:
    if response.status_code != 200:
        advice = f"; {_START}" if response.status_code == 404 else "; it must see that folder under the same name"
        raise UpdateFailed(
            f"{url} did not take the weights in {path} over: HTTP {response.status_code}: {_said(response)}{advice}"
        )
    return response


def _field(response: httpx2.Response, name: str) -> Any:
    try:
        return response.json()[name]
    except (ValueError, LookupError, TypeError):
        return None


def _said(response: httpx2.Response) -> str:
    return shown(" ".join(response.text.split())[:200])


def _kind(error: Exception) -> str:
    return type(error).__name__

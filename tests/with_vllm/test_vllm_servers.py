"""Real servers of vLLM: weights by path and adapters, kills, and whole training runs with them and with an engine.

The order matters: the last tests kill servers.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
import torch
from asking import PROMPTS, ask, difference, requests
from conftest import Server
from rich.console import Console
from safetensors.torch import load_file

from agentgym_flow.dataflow.bookkeeping.manager import Manager
from agentgym_flow.dataflow.config import FlowConfig
from agentgym_flow.dataflow.run import train as train_by_workers
from agentgym_flow.envs import make_text_env
from agentgym_flow.errors import BadSetting, GenerationFailed, ServerDown, TrainingFailed, UpdateFailed
from agentgym_flow.generation import Sampling
from agentgym_flow.generation.sampling import length_of_answer
from agentgym_flow.generation.transformers_generator import TransformersGenerator
from agentgym_flow.generation.vllm_engine import VLLMEngine
from agentgym_flow.generation.vllm_server import VLLMServers
from agentgym_flow.play import EpisodeSpec, rollout
from agentgym_flow.policies import make_policy
from agentgym_flow.training import recipe
from agentgym_flow.training.config_file import parse_configs

ALFWORLD = "agentgym_flow/ALFWorld-v0"
LONG = Sampling(temperature=0.7, max_new_tokens=20)
SMALL = {
    "template": "compact",
    "env_kwargs": '{"size": 6, "boxes": 1, "min_pushes": 1, "max_steps": 4}',
    "warm_start_levels": 0,
    "num_generations": 4,
    "per_device_train_batch_size": 8,
    "steps_per_generation": 2,
    "max_steps": 4,
    "learning_rate": 1e-3,
    "logging_steps": 1,
    "eval_episodes": 4,
    "validations": 1,
    "validation_episodes": 4,
    "use_cpu": "true",
}


def train(folder: Path, model: Path, generator: str, **settings: Any) -> tuple[str, list[dict[str, Any]]]:
    """Run a recipe; return what it showed, and its metrics without times."""
    given = {**SMALL, "model": model, "output_dir": folder, "generator": generator, **settings}
    screen = io.StringIO()
    recipe.train(parse_configs([f"--{name}={value}" for name, value in given.items()]), Console(file=screen))
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    ratios = [line["importance/ratio_max"] for line in lines if "importance/ratio_max" in line]
    assert len(ratios) == 2  # batches
    assert ratios == pytest.approx([1, 1], abs=1e-4)  # nothing stale was trained on
    return screen.getvalue(), [{k: v for k, v in line.items() if not k.startswith(("time/", "step"))} for line in lines]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "checkpoint" / "model.safetensors")


# ---------------------------------------------------------------- an engine
# A base model repeats what it has seen: two calls before the messages, and it calls as well.
CALL = """<tool_call>
{"name": "{{ tools[0].function.name }}", "arguments": {"action": "look"}}
</tool_call>
"""
CHAT = (
    "{% set call %}"
    + CALL
    + "{% endset %}{% for m in ['A room.', 'A desk 1.'] %}Observation: {{ m }}\nCall: {{ call }}{% endfor %}"
    "{% for m in messages %}{% if m.role == 'assistant' %}Call: {{ call }}{% else %}"
    "Observation: {{ (m.content if m.content is string else m.content[0].text) | truncate(300) }}\n"
    "{% endif %}{% endfor %}Call:"
)


def test_a_real_model_calls_the_tools_that_are_offered(language_model: Path, tmp_path: Path) -> None:
    """In all three protocols, which vLLM has."""
    (template := tmp_path / "chat.jinja").write_text(CHAT, "utf-8")
    options = ["--chat-template", str(template), "--max-model-len", "4096", "--served-model-name", "m"]
    options += ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"]
    server = Server(language_model, tmp_path / "log", *options)
    try:
        while server.process.poll() is None:
            with suppress(httpx2.TransportError):
                if httpx2.get(f"{server.url}/health").status_code == 200:
                    break
            time.sleep(0.5)
        for dialect in ("chat", "responses", "anthropic"):
            policy = make_policy(f"openai:m@{server.url}/v1", ALFWORLD, tools=True, dialect=dialect, max_tokens=34)
            [episode] = rollout(policy, lambda: make_text_env(ALFWORLD, max_steps=2), [EpisodeSpec(0)])
            assert [turn.action for turn in episode.turns] == ["look", "look"], dialect
            assert "failed_requests" not in episode.meta
            assert episode.meta["usage"]["completion"] > 0
    finally:
        server.end()


def test_a_run_with_an_engine_repeats_and_resumes_to_the_bit(model_folder: Path, tmp_path: Path) -> None:
    checkpoints = {"save_strategy": "steps", "save_steps": 2, "save_total_limit": 2}
    _, first = train(tmp_path / "first", model_folder, "vllm", **checkpoints)
    assert (tmp_path / "first" / "summary.json").exists()
    assert not (tmp_path / "first" / "weights").exists()
    _, again = train(tmp_path / "again", model_folder, "vllm", **checkpoints)
    assert again == first
    summary = json.loads((tmp_path / "again" / "summary.json").read_text())
    (tmp_path / "again" / "summary.json").write_text(json.dumps({**summary, "status": "interrupted"}))
    train(tmp_path / "again", model_folder, "vllm", resume=tmp_path / "again", **checkpoints)
    ends = weights(tmp_path / "first"), weights(tmp_path / "again")
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])
    start = load_file(model_folder / "model.safetensors")
    assert not any(torch.equal(ends[0][name], start[name]) for name in start if "norm" not in name)


def two_processes(folder: Path, model: Path, generator: str, root: Path) -> list[dict[str, Any]]:
    """Run a recipe in two processes; return its metrics."""
    given = {**SMALL, "model": model, "output_dir": folder, "generator": generator, "credit": "grpo"}
    given |= {"per_device_train_batch_size": 4}
    config = root / "baselines" / "configs" / "accelerate" / "processes.yaml"
    command = [sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch", "--config_file", str(config)]
    command += ["--main_process_port", "0", "-m", "agentgym_flow", "train", "grpo"]
    command += [f"--{name}={value}" for name, value in given.items() if name != "credit"]
    environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, env=environment, text=True, capture_output=True, timeout=400, check=False)
    assert ended.returncode == 0, (ended.stdout + ended.stderr)[-4000:]
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["importance/ratio_max"] for line in lines if "importance/ratio_max" in line] == pytest.approx(
        [1, 1], abs=1e-4
    )
    return lines


@pytest.mark.parametrize("generator", ["vllm", "servers"])
def test_two_processes_share_the_episodes(
    servers: list[Server], model_folder: Path, tmp_path: Path, root: Path, generator: str
) -> None:
    addresses = ",".join(server.url for server in servers[:2])
    lines = two_processes(tmp_path / "run", model_folder, addresses if generator == "servers" else generator, root)
    assert lines[-1]["episodes"] == 32
    assert lines[-1]["lost_episodes"] == 0
    assert not (tmp_path / "run" / "weights").exists()


# ---------------------------------------------------------------- servers
@pytest.fixture(scope="module")
def whole(
    servers: list[Server], make_model: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> VLLMServers:
    folder = tmp_path_factory.mktemp("run") / "weights"
    return VLLMServers(make_model(0), [server.url for server in servers[:2]], folder)


def test_answers_are_those_of_the_weights_that_were_sent(whole: VLLMServers, make_model: Callable[..., Any]) -> None:
    with pytest.raises(UpdateFailed, match="before any weights"):
        ask(whole, requests(LONG))
    for version, seed in enumerate((1, 2)):
        model = make_model(seed)
        whole.update(model, version)
        assert len(list(whole._folder.iterdir())) == 1
        for sampling in (LONG, Sampling(max_new_tokens=1), Sampling(greedy=True, max_new_tokens=8)):
            asked = requests(sampling)
            answers = ask(whole, asked)
            assert difference(model, asked, answers) < 1e-5
            assert {answer.version for answer in answers} == {version}
            again = ask(whole, asked)  # the beginnings of long prompts are cached now
            assert [answer.token_ids for answer in again] == [answer.token_ids for answer in answers]
            assert difference(model, asked, again) < 1e-5


def test_a_stop_ends_an_answer_everywhere_alike(
    whole: VLLMServers, make_model: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    model = make_model(2)
    engine = VLLMEngine(model, tokenizer, tmp_path / "weights")
    for generator in (TransformersGenerator(model, 0, tokenizer=tokenizer), engine, whole):
        generator.update(model, 1)
        before = ask(generator, requests(LONG))
        stops = tuple(filter(None, (tokenizer.decode([answer.token_ids[4]]) for answer in before[:3])))
        lengths = [length_of_answer(tokenizer, answer.token_ids, stops) for answer in before]
        assert min(lengths) < 20
        sampling = Sampling(temperature=0.7, max_new_tokens=20, stops=stops)
        for answer, cut, length in zip(before, ask(generator, requests(sampling)), lengths, strict=True):
            assert cut.token_ids == answer.token_ids[:length]
            assert cut.logprobs == pytest.approx(answer.logprobs[:length], abs=1e-5)
    engine.close()


def test_adapters_are_sent_alone(servers: list[Server], make_model: Callable[..., Any], tmp_path: Path) -> None:
    model = make_model(0, adapter=True)
    generator = VLLMServers(model, [servers[2].url], tmp_path / "weights")
    seen = []
    for version in range(2):
        generator.update(model, version)
        assert not list((tmp_path / "weights").glob("*/model.safetensors"))
        asked = requests(LONG)
        answers = ask(generator, asked)
        assert difference(model, asked, answers) < 1e-5
        seen.append([answer.token_ids for answer in answers])
        with torch.no_grad(), torch.random.fork_rng():
            torch.manual_seed(version)
            for name, weight in model.named_parameters():
                if "lora_B" in name:
                    weight.normal_(std=0.3)
    assert seen[0] != seen[1]
    names = [model["id"] for model in httpx2.get(f"{servers[2].url}/v1/models").json()["data"]]
    assert len(names) == 2  # the base and the last adapter
    generator.close()
    assert not (tmp_path / "weights").exists()


# ---------------------------------------------------------------- as rollout services of a dataflow
def train_with_workers(folder: Path, model: Path, generator: str, flow: FlowConfig, **settings: Any) -> dict[str, int]:
    """Run a recipe whose episodes are played by worker processes; return the counts of their slots."""
    given = {**SMALL, "model": model, "output_dir": folder, "generator": generator, "eval_episodes": 1, **settings}
    counts: dict[str, int] = {}
    finish = Manager.finish

    def finished(manager: Manager, claim: Any) -> None:
        counts.update(manager.status()["streams"][claim.stream]["counts"])
        finish(manager, claim)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Manager, "finish", finished)
        configs = parse_configs([f"--{name}={value}" for name, value in given.items()])
        train_by_workers(configs, flow, "local", "policy", Console(file=io.StringIO()))
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    ratios = [line["importance/ratio_max"] for line in lines if "importance/ratio_max" in line]
    assert ratios == pytest.approx([1, 1], abs=1e-4), "nothing stale was trained on, and the mismatch is shown"
    return counts


def test_an_engine_in_each_worker_plays_a_run(model_folder: Path, tmp_path: Path) -> None:
    counts = train_with_workers(tmp_path / "run", model_folder, "vllm", FlowConfig(staleness=0, workers=1, versions=1))
    assert counts["committed"] == 2 * 16


def test_two_policies_have_an_engine_and_a_tokenizer_each(
    model_folder: Path, tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One answers with a word, the other in bytes, in a conversation; a worker has both engines."""
    monkeypatch.syspath_prepend(root / "benchmarks")
    from _byte_level import byte_level_tokenizer, write_model  # type: ignore[import-not-found]
    from _supervised import PROGRAM, Child, OverHttp, finish  # type: ignore[import-not-found]

    class OneVersion(OverHttp):  # type: ignore[misc]
        def _worker(self, number: int) -> Any:
            child = super()._worker(number)
            child._command = [*child._command, "--versions", 1]
            return child

    tokenizer = byte_level_tokenizer("agentgym_flow/Sokoban-v0", {"size": 6}, episodes=10)
    write_model(tmp_path / "qwen", tokenizer, width=64, layers=1, heads=2, context=4096, theta=1e3)
    other = {"model": tmp_path / "qwen", "template": "text", "layout": "conversation", "max_completion_length": 4}
    other |= {"merge_prompts": "false", "template_settings": '{"think": false}'}
    settings = tmp_path / "flow.yaml"
    settings.write_text("{staleness: 0, workers: 0, deadline: 400, turns: [word, bytes, ...]}", "utf-8")
    parts = OneVersion(tmp_path, settings, workers=1, num_envs=16)
    try:
        parts.start()
        trainers = []
        for name, own in (("word", {"model": model_folder}), ("bytes", other)):
            given = {**SMALL, **own, "output_dir": tmp_path / name, "generator": "vllm", "stop_when": "deadlock"}
            words = [f"--{key}={value}" for key, value in given.items()]
            flow = ["--env=Sokoban-v0", "--dataflow", settings, "--policy", name, *parts.trainer_options()]
            command = [*PROGRAM, "train", "grpo", *flow, *words]
            trainers.append(Child(name, command, tmp_path, parts.trainer_environment()))
        finish(*trainers)
    finally:
        (stream,) = parts.close()["streams"].values()
    assert stream["counts"]["committed"] == 2 * 16
    assert stream["counts"].get("failed", 0) == stream["counts"].get("rejected", 0) == 0
    for name in ("word", "bytes"):
        lines = [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        ratios = [line["importance/ratio_max"] for line in lines if "importance/ratio_max" in line]
        assert ratios == pytest.approx([1, 1], abs=1e-4), name


def test_two_workers_share_a_server_with_adapters(servers: list[Server], model_folder: Path, tmp_path: Path) -> None:
    flow = FlowConfig(staleness=0, workers=2)
    counts = train_with_workers(tmp_path / "run", model_folder, servers[2].url, flow, lora="true", lora_rank=4)
    assert counts["committed"] == 2 * 16
    assert counts.get("failed", 0) == 0


def test_a_server_that_gets_other_weights_costs_only_episodes(
    servers: list[Server], model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, disturbed = Manager.commit, []

    def commit_and_disturb(manager: Manager, **given: Any) -> Any:
        if not disturbed:  # other episodes are being played
            disturbed.append(httpx2.post(f"{servers[0].url}/update_weight_version", json={"new_version": "older"}))
        return commit(manager, **given)

    monkeypatch.setattr(Manager, "commit", commit_and_disturb)
    urls = f"{servers[0].url},{servers[1].url}"
    counts = train_with_workers(tmp_path / "run", model_folder, urls, FlowConfig(staleness=0, workers=2))
    assert disturbed
    assert counts["committed"] == 2 * 16
    assert counts.get("failed", 0) == 0


def test_a_server_with_whole_weights_takes_no_adapters_any_more(
    servers: list[Server], make_model: Callable[..., Any], tmp_path: Path
) -> None:
    model = make_model(1)
    generator = VLLMServers(model, [servers[2].url], tmp_path / "weights")
    generator.update(model, 0)
    assert difference(model, requests(LONG), ask(generator, requests(LONG))) < 1e-5
    with pytest.raises(BadSetting, match=f"{servers[2].url} has whole weights"):
        VLLMServers(make_model(0, adapter=True), [servers[2].url], tmp_path)


def test_a_server_that_takes_no_adapters_is_named(
    servers: list[Server], make_model: Callable[..., Any], tmp_path: Path
) -> None:
    with pytest.raises(BadSetting, match=f"{servers[0].url} does not accept adapters"):
        VLLMServers(make_model(0, adapter=True), [servers[0].url], tmp_path)


def test_what_goes_wrong_is_named(whole: VLLMServers, make_model: Callable[..., Any]) -> None:
    bad = make_model(1)
    with torch.no_grad():  # finite weights whose products are not
        bad.model.norm.weight.fill_(3e38)
    whole.update(bad, 20)
    with pytest.raises(TrainingFailed, match="the model's output is not a number"):
        ask(whole, requests(LONG))
    whole.update(make_model(1), 21)
    with pytest.raises(BadSetting, match=r"4090 tokens and a completion of 20 .* http.* 4096: .*--max-model-len"):
        ask(whole, requests(LONG, [(3,) * 4090]))
    with pytest.raises(BadSetting, match=r"http.* refused a request with HTTP 400"):
        ask(whole, requests(Sampling(temperature=3.0)))


def test_weights_of_somebody_else_are_not_used(whole: VLLMServers, make_model: Callable[..., Any]) -> None:
    model = make_model(1)
    whole.update(model, 30)
    url = whole._servers[0].url
    httpx2.post(f"{url}/update_weight_version", json={"new_version": "another run's"})
    assert difference(model, requests(LONG), ask(whole, requests(LONG))) < 1e-5  # by the other server
    assert whole._servers[0].down == "has other weights than those of version 30"
    whole.update(model, 31)

    async def in_the_middle() -> None:
        async with whole:
            await whole.generate(requests(LONG)[0])
            httpx2.post(f"{url}/update_weight_version", json={"new_version": "another run's"})

    with pytest.raises(UpdateFailed, match=f"{url} has other weights .* while in use"):
        asyncio.run(in_the_middle())
    whole.update(model, 32)


def test_a_run_with_servers_survives_the_kill_of_one(
    servers: list[Server], model_folder: Path, make_model: Callable[..., Any], tmp_path: Path
) -> None:
    """SIGKILL in the middle of a batch: the other server goes on; killed as well, the run ends and names both."""
    both = ",".join(server.url for server in servers[:2])
    _, with_both = train(tmp_path / "both", model_folder, both)
    assert len(with_both) == 4
    assert not (tmp_path / "both" / "weights").exists()

    killed: list[Server] = []

    def kill_when(server: Server, requests: int) -> threading.Thread:
        """Kill a server in a thread as soon as it has been asked so often."""
        already = server.log.read_text().count("/v1/completions")

        def watch() -> None:
            ends = time.monotonic() + 240
            while server.log.read_text().count("/v1/completions") < already + requests:
                if time.monotonic() > ends:  # fewer requests than expected fail the test, and do not hang it
                    return
                time.sleep(0.01)
            server.end()
            killed.append(server)

        thread = threading.Thread(target=watch)
        thread.start()
        return thread

    killer = kill_when(servers[0], 20)
    _, metrics = train(tmp_path / "one", model_folder, both)
    killer.join()
    assert killed == servers[:1]
    assert len(metrics) == 4
    assert all(line["lost_episodes"] == 0 for line in metrics)
    killer = kill_when(servers[1], 20)
    with pytest.raises(ServerDown, match=f"(?s)no vLLM server is left.*{servers[1].url} .*--resume=true"):
        train(tmp_path / "none", model_folder, servers[1].url)
    killer.join()
    assert json.loads((tmp_path / "none" / "summary.json").read_text())["status"] == "failed"
    with pytest.raises(ServerDown, match=f"{servers[0].url} cannot be reached"):
        VLLMServers(make_model(0), [servers[0].url], tmp_path / "weights", silence=1)


def test_an_engine_that_dies_behind_its_server_is_named(
    servers: list[Server], make_model: Callable[..., Any], tmp_path: Path
) -> None:
    model = make_model(0)
    generator = VLLMServers(model, [servers[2].url], tmp_path / "weights", silence=3)
    generator.update(model, 0)
    assert len(ask(generator, requests(LONG))) == len(PROMPTS)
    children = Path(f"/proc/{servers[2].process.pid}/task/{servers[2].process.pid}/children").read_text().split()
    for child in children:
        os.kill(int(child), signal.SIGKILL)

    def go_on_asking() -> None:
        for _ in range(100):
            with suppress(GenerationFailed):  # the server has not noticed yet
                ask(generator, requests(LONG))
            time.sleep(0.2)

    with pytest.raises((ServerDown, UpdateFailed), match=servers[2].url):
        go_on_asking()

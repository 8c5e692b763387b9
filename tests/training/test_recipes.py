"""Recipes for language models: three sizes for each environment, what they cost, and how they are started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from agentgym_flow import training
from agentgym_flow.cli import app
from agentgym_flow.errors import BadSetting, MissingExtra
from agentgym_flow.prompts import template_for
from agentgym_flow.training import config as config_module
from agentgym_flow.training import config_file
from agentgym_flow.training.config import AgentConfig, Configs, share_out
from agentgym_flow.training.config_file import find_config, parse_configs, read_config, resolved
from agentgym_flow.training.estimate import estimate

CONFIGS = Path(training.__file__).parent / "configs"
SIZES = {"0.5b": "Qwen/Qwen2.5-0.5B-Instruct", "1.5b": "Qwen/Qwen2.5-1.5B-Instruct", "7b": "Qwen/Qwen2.5-7B-Instruct"}
ENVS = {name.lower(): f"agentgym_flow/{name}-v0" for name in ("Sokoban", "ALFWorld", "WebShop", "Search", "Canvas")}
PUBLISHED = {  # group size, episodes, batches, longest episode, weight of the KL term
    "sokoban": (8, 16 * 8, 150, 15, 0.01),
    "alfworld": (8, 16 * 8, 150, 50, 0.01),
    "webshop": (8, 16 * 8, 150, 15, 0.01),
    "search": (5, 256 * 5, 200, 4, 0.001),
    "canvas": (8, 5 * 8, 300, 20, 0.005),
}
GB = 1e9


def settings(name: str, folder: Path, *more: str) -> Configs:
    return parse_configs(["--config", name, "--output_dir", str(folder), "--credit=grpo", *more])


@pytest.mark.parametrize("env", ENVS)
def test_each_environment_has_a_recipe_in_three_sizes_that_differ_in_size_alone(env: str, tmp_path: Path) -> None:
    found = {}
    for size, model in SIZES.items():
        run, warm, agent = configs = settings(f"{env}_{size}", tmp_path)
        assert (run.env_id, run.model, run.template, warm.warm_start_levels) == (ENVS[env], model, "text", 0)
        assert (agent.layout, agent.gradient_checkpointing) == ("conversation", True)
        assert not run.lora
        batches = agent.max_steps / agent.steps_per_batch
        shape = (agent.num_generations, agent.generation_batch_size, batches, run.env_settings["max_steps"], agent.beta)
        assert shape == PUBLISHED[env]
        found[size] = {name: value for name, value in resolved(configs).items() if name != "model"}
        text = (CONFIGS / f"{env}_{size}.yaml").read_text()
        assert yaml.safe_load(text).keys() == {"base", "output_dir"}
        assert "credit" not in text  # the algorithm is an argument
    assert found["0.5b"] == found["1.5b"] == found["7b"]


def test_the_published_layout_is_two_arguments(tmp_path: Path) -> None:
    plain = ("--layout=turn", "--template_settings={}")
    for env in ENVS:
        run, _, agent = settings(f"{env}_0.5b", tmp_path, *plain)
        assert agent.layout == "turn"
        assert run.make_template() == template_for(ENVS[env])
    run, _, _ = settings("alfworld_0.5b", tmp_path)
    with closing(run.make_env()) as env:
        env.reset(seed=0, options={"task": 0})
        forms = [line.split("   ")[0].strip() for line in env.step("help")[0].splitlines()[1:-1]]
    rules = " ".join(run.make_template().rules.split())  # type: ignore[attr-defined]
    assert len(forms) == 11
    assert all(form in rules for line in forms for form in line.split(", "))


@pytest.mark.parametrize("processes", [2, 8])
def test_processes_share_the_episodes_of_a_pass(
    processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config_module, "share_out", lambda agent, _: share_out(agent, processes))
    monkeypatch.setattr(config_file, "processes", lambda: processes)
    for env in ENVS.keys() - {"canvas"}:  # whose 40 episodes a batch no 8 processes can share
        _, _, agent = settings(f"{env}_0.5b", tmp_path)
        assert agent.steps_per_generation * agent.per_device_train_batch_size * processes == PUBLISHED[env][1]
        assert agent.steps_per_generation % agent.steps_per_batch == 0
    with pytest.raises(BadSetting, match="must divide"):
        settings("sokoban_0.5b", tmp_path, "--per_device_train_batch_size=8")


@pytest.mark.heavy
@pytest.mark.parametrize(
    "env", ["sokoban", *(pytest.param(env, marks=pytest.mark.nightly) for env in ENVS if env != "sokoban")]
)
def test_every_recipe_has_a_price(env: str, tmp_path: Path) -> None:
    cost = {size: estimate(settings(f"{env}_{size}", tmp_path)) for size in SIZES}
    assert cost["0.5b"].probe.longest + cost["0.5b"].answer <= 32_768  # Qwen2.5's context
    needed = {size: found.memory for size, found in cost.items()}
    for size, where in (("0.5b", (1, 0)), ("1.5b", (1, 0)), ("7b", (8, 3))):
        assert needed[size][where].total < 80 * GB
    assert needed["7b"][1, 0].total > 80 * GB
    adapters = estimate(settings(f"{env}_7b", tmp_path, "--lora", "--dtype", "bfloat16"))
    assert adapters.memory[1, 0].total < 80 * GB


def test_the_command_takes_a_recipe_by_name(tmp_path: Path) -> None:
    line = ["train", "gigpo", "--config", "alfworld_1.5b", "--dry-run", "--output_dir", str(tmp_path / "run")]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 0, result.output
    for told in ("1,500.00 million", "150 batches, 19,200 episodes", "Memory, 8 GPUs, ZeRO-3", "Nothing was run."):
        assert told in result.stdout
    assert not (tmp_path / "run").exists()
    with pytest.raises(BadSetting, match=r"is neither a file nor a file of this package: alfworld_0\.5b"):
        find_config("alfworld_15b")


def test_a_file_goes_on_from_others(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text("seed: 1\nbeta: 0.1\nmodel: a")
    (tmp_path / "two.yaml").write_text("base: one.yaml\nbeta: 0.2\n")
    (tmp_path / "three.yaml").write_text("model: c\n")
    (tmp_path / "own.yaml").write_text("base: [two.yaml, three.yaml]\nnum_envs: 3\n")
    assert read_config(tmp_path / "own.yaml") == {"seed": 1, "beta": 0.2, "model": "c", "num_envs": 3}
    (tmp_path / "three.yaml").unlink()
    with pytest.raises(BadSetting, match=r"three\.yaml cannot be read"):
        read_config(tmp_path / "own.yaml")
    (tmp_path / "own.yaml").write_text("base: 2\nnum_envs: 3\n")
    with pytest.raises(BadSetting, match=r"base of .*own\.yaml must be a file or a list of files, got 2"):
        read_config(tmp_path / "own.yaml")


@pytest.mark.parametrize("name", config_module.REPORTERS)
def test_a_missing_tracker_is_named_before_any_work(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_module, "find_spec", lambda package: None)
    with pytest.raises(MissingExtra, match=f"report_to: {name} is not installed. Install it with: pip install {name}"):
        AgentConfig(output_dir=str(tmp_path), report_to=name)
    assert not list(tmp_path.iterdir())


ACCELERATE = {
    "one_gpu.yaml": ("NO", 1, 1, None),
    "eight_gpus.yaml": ("MULTI_GPU", 1, 8, None),
    "eight_gpus_zero2.yaml": ("DEEPSPEED", 1, 8, (2, "none")),
    "eight_gpus_zero3.yaml": ("DEEPSPEED", 1, 8, (3, "none")),
    "eight_gpus_zero3_offload.yaml": ("DEEPSPEED", 1, 8, (3, "cpu")),
    "two_nodes_zero3.yaml": ("DEEPSPEED", 2, 16, (3, "none")),
}


@pytest.mark.parametrize("name", ACCELERATE)
def test_accelerate_reads_our_configurations(root: Path, name: str) -> None:
    from accelerate.commands.config.config_args import load_config_from_file

    file = root / "baselines" / "configs" / "accelerate" / name
    found = load_config_from_file(str(file))
    kind, machines, processes, zero = ACCELERATE[name]
    assert (found.distributed_type, found.num_machines, found.num_processes) == (kind, machines, processes)
    assert found.mixed_precision == "bf16"
    deepspeed = found.deepspeed_config or {}
    assert (zero is None) is (not deepspeed)
    if zero:
        assert (deepspeed["zero_stage"], deepspeed["offload_optimizer_device"]) == zero
        assert deepspeed["zero3_save_16bit_model"]


TRAINED = """
import pathlib, signal, sys, time

summary = pathlib.Path("run/summary.json")

def stop(*_):
    summary.write_text('{"status": "interrupted"}')
    sys.exit(143)

signal.signal(signal.SIGTERM, stop)
summary.write_text('{"status": "running"}')
time.sleep(60)
"""
"""What stands for a training run: a signal finishes it."""


def test_a_slurm_job_that_is_preempted_is_queued_again(root: Path, tmp_path: Path) -> None:
    """SLURM's commands are stand-ins here; signals, processes and files are real."""
    tools = tmp_path / "bin"
    tools.mkdir()
    (tmp_path / "trained.py").write_text(TRAINED)
    scripts = {
        "srun": 'shift; exec "$@"\n',
        "scontrol": 'if [ "$1" = show ]; then echo head; else echo "$@" > requeued; fi\n',
        # A launcher that would kill its processes soon after a signal, as Accelerate's does.
        "accelerate": f"trap 'touch killed; kill -9 $it' TERM\n{sys.executable} trained.py & it=$!; wait $it\n",
    }
    for name, text in scripts.items():
        (tools / name).write_text("#!/bin/bash\n" + text)
        (tools / name).chmod(0o755)
    (tmp_path / "run").mkdir()
    env = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "SLURM_JOB_ID": "7", "SLURM_NNODES": "1"}
    env |= {"SLURM_NODEID": "0", "SLURM_JOB_NODELIST": "head", "OUT": "run", "PORT": "1"}
    script = root / "baselines" / "configs" / "slurm.sh"
    job = subprocess.Popen(["bash", script, "gigpo", "alfworld_1.5b"], cwd=tmp_path, env=env, start_new_session=True)
    while not (tmp_path / "run" / "summary.json").exists():
        assert job.poll() is None
        time.sleep(0.02)
    time.sleep(0.3)
    os.killpg(job.pid, signal.SIGTERM)  # as SLURM signals the processes of a step
    assert job.wait(timeout=30) == 0
    assert not (tmp_path / "killed").exists()
    assert (tmp_path / "requeued").read_text() == "requeue 7\n"

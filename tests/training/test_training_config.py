"""Settings: files and command lines that resolve, repeat a run, and refuse what cannot work."""

from __future__ import annotations

import dataclasses
import gc
import os
import resource
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from transformers.integrations import deepspeed
from typer.testing import CliRunner

from agentgym_flow._util.signals import PASSIVE
from agentgym_flow.cli import app
from agentgym_flow.errors import BadSetting, UnknownOption
from agentgym_flow.prompts import template_for
from agentgym_flow.training import config_file
from agentgym_flow.training.config import AgentConfig
from agentgym_flow.training.config_file import check_types, parse_configs, read_config, resolved, write_config
from agentgym_flow.training.main_settings import MAIN_SETTINGS, setting_names
from agentgym_flow.training.models import is_language_model, load_model, save_model
from agentgym_flow.training.processes import share_out
from agentgym_flow.training.run_config import RunConfig, WarmStartConfig
from baselines import grpo

BASE = """
output_dir: {folder}
env_kwargs: {{size: 6, min_pushes: 2}}
num_generations: 4
per_device_train_batch_size: 8
credit_settings: {{gamma: 0.8}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "settings.yaml"
    path.write_text(BASE.format(folder=tmp_path / "run"))
    return path


def test_the_command_line_wins_over_the_file(file: Path) -> None:
    line = ["--config", str(file), "--num_generations", "2", "--env_kwargs", '{"size": 7}', "--credit", "grpo"]
    run, warm_start, agent = parse_configs(line)
    assert run.env_settings == {"size": 7}
    assert agent.num_generations == 2
    assert agent.per_device_train_batch_size == 8
    assert agent.credit == "grpo"
    assert agent.credit_keywords == {"gamma": 0.8}
    assert warm_start.warm_start_levels == 300


def test_writing_the_settings_leaves_the_run_under_zero_3(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class DeepSpeed:  # of Transformers, which keeps a weak reference to the one of the last configuration that was made
        def is_zero3(self) -> bool:
            return True

    made = AgentConfig.__post_init__

    def under_deepspeed(self: AgentConfig) -> None:
        made(self)
        self.own_deepspeed = DeepSpeed()  # type: ignore[attr-defined]
        deepspeed.set_hf_deepspeed_config(self.own_deepspeed)  # type: ignore[attr-defined]

    monkeypatch.setattr(AgentConfig, "__post_init__", under_deepspeed)
    monkeypatch.setattr(deepspeed, "_hf_deepspeed_config_weak_ref", None)
    configs = parse_configs(["--config", str(file)])
    resolved(configs)
    gc.collect()
    assert deepspeed.is_deepspeed_zero3_enabled()


def test_null_takes_a_value_of_the_file_away(file: Path) -> None:
    file.write_text(file.read_text() + "muon_learning_rate: 0.5\nthreads: 2\n")
    without = ["--muon_learning_rate", "null", "--threads=null", "--stop_when", "null"]
    run, _, agent = parse_configs(["--config", str(file), *without])
    assert (agent.muon_learning_rate, agent.stop_when, run.threads) == (None, None, None)


def test_the_resolved_settings_repeat_the_run(file: Path, tmp_path: Path) -> None:
    configs = parse_configs(["--config", str(file), "--learning_rate", "0.125", "--muon_learning_rate", "0.5"])
    write_config(tmp_path / "resolved.yaml", configs)
    again = parse_configs(["--config", str(tmp_path / "resolved.yaml"), "--output_dir", str(tmp_path / "other")])
    assert resolved(again) == resolved(configs)
    shown = yaml.safe_load((tmp_path / "resolved.yaml").read_text())
    assert shown["learning_rate"] == 0.125
    assert shown["num_generations"] == 4
    assert shown["env_kwargs"] == {"size": 6, "min_pushes": 2}
    assert str(tmp_path) not in (tmp_path / "resolved.yaml").read_text()
    assert not list(tmp_path.glob("*.partial"))


def test_without_a_file_the_settings_are_those_of_the_quickstart(tmp_path: Path) -> None:
    run, _, agent = parse_configs(["--output_dir", str(tmp_path)])
    assert run.env_settings["min_pushes"] >= 3
    assert run.eval_episodes == 500
    assert agent.generation_batch_size % agent.num_generations == 0
    assert not agent.bf16


def test_a_batch_is_the_same_however_many_processes_share_it() -> None:
    def shared(processes: int, **settings: Any) -> tuple[int | None, int, float]:
        agent = AgentConfig(output_dir="unused", num_generations=8)
        vars(agent).update({"steps_per_generation": None, **settings})
        share_out(agent, processes)
        return agent.steps_per_generation, agent.gradient_accumulation_steps, agent.steps_per_batch

    batch: dict[str, Any] = {"groups_per_batch": 16, "steps_per_batch": 4, "per_device_train_batch_size": 2}
    assert shared(1, **batch) == (64, 16, 4)
    assert shared(8, **batch) == (8, 2, 4)
    assert shared(1, **batch | {"per_device_train_batch_size": 4}) == (32, 8, 4)
    assert shared(1, **batch, num_iterations=2) == (64, 32, 4)
    for settings, message in (
        (batch | {"groups_per_batch": 15, "per_device_train_batch_size": 16}, "cannot be divided among 1 processes"),
        (batch | {"steps_per_batch": 5}, "must divide the 64 passes"),
        (batch | {"steps_per_batch": 0}, "must divide"),
        (batch | {"gradient_accumulation_steps": 8}, "every 16 passes, and gradient_accumulation_steps says 8"),
    ):
        with pytest.raises(BadSetting, match=message):
            shared(1, **settings)


def test_the_file_of_a_run_serves_any_number_of_processes(tmp_path: Path, file: Path) -> None:
    written = tmp_path / "config.yaml"
    settings = ["--config", str(file), "--steps_per_generation", "2", "--gradient_accumulation_steps", "2"]
    write_config(written, parse_configs(settings))
    for more in (["--per_device_train_batch_size", "4"], ["--groups_per_batch", "8"], ["--steps_per_batch", "2"]):
        _, _, agent = parse_configs(["--config", str(written), "--output_dir", str(tmp_path / "run"), *more])
        batch = agent.generation_batch_size, agent.steps_per_batch
        assert batch == {"--groups_per_batch": (32, 1), "--steps_per_batch": (16, 2)}.get(more[0], (16, 1))


def test_several_batches_may_make_one_step(tmp_path: Path) -> None:
    agent = AgentConfig(output_dir="unused", steps_per_generation=1, gradient_accumulation_steps=3, num_generations=8)
    again = AgentConfig(
        output_dir="unused", steps_per_generation=1, steps_per_batch=agent.steps_per_batch, num_generations=8
    )
    assert again.gradient_accumulation_steps == 3
    assert all(agent.ends_batch(step) for step in range(5))


def test_a_batch_is_said_in_one_way() -> None:
    given: dict[str, Any] = {"output_dir": "unused", "num_generations": 8, "per_device_train_batch_size": 4}
    ours = AgentConfig(**given, groups_per_batch=16, steps_per_batch=4)
    trls = AgentConfig(**given, steps_per_generation=32, gradient_accumulation_steps=8)
    assert ours.to_dict() == trls.to_dict()
    assert ours.generation_batch_size == 128
    with pytest.raises(
        BadSetting, match=r"takes 32 passes .* but steps_per_generation is 8: set steps_per_generation to 32"
    ):
        AgentConfig(**given, groups_per_batch=16, steps_per_generation=8)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("env_kwargs: [1]", "env_kwargs must be a mapping"),
        ("warm_start_noise: 1.5", "probability"),
        ("warm_start_updates: 0", "warm_start_updates"),
        ("eval_episodes: 0", "eval_episodes"),
        ("validations: -1", "validations"),
        ("num_generations: 3", "divisible"),
        ("credit_settings: [", "flow"),
        ("threads: [1]", "threads must be an integer"),
        ("warm_start_noise: [1]", "warm_start_noise must be a number, got"),
        ("warm_start_learning_rate: null", "warm_start_learning_rate must be a number, got None"),
        ("lora: 1.5", "lora must be true or false, got 1.5"),
        ("max_steps: 2.5", "max_steps must be an integer, got 2.5"),
        ("template: 5", "template must be a text, got 5"),
        ("learning_rate: {a: 1}", "learning_rate must be a number, got"),
        ("muon_learning_rate: true", "muon_learning_rate must be a number or null, got True"),
    ],
)
def test_bad_files_are_refused(file: Path, key: str, message: str) -> None:
    file.write_text(file.read_text().replace("num_generations: 4\n", "") + key + "\n")
    with pytest.raises(BadSetting, match=message):
        parse_configs(["--config", str(file)])


def test_a_text_that_looks_like_a_date_is_a_text(file: Path) -> None:
    file.write_text(file.read_text() + "output_dir: 2026-11-29\nmodel: 2026-11-28\n")
    run, _, agent = parse_configs(["--config", str(file)])
    assert (agent.output_dir, run.model) == ("2026-11-29", "2026-11-28")


def test_every_setting_of_the_wrong_type_is_named() -> None:
    kinds = (RunConfig, WarmStartConfig, AgentConfig)
    for field in (field for kind in kinds for field in dataclasses.fields(kind) if field.init):
        with pytest.raises(BadSetting, match=rf"^{field.name} must be "):
            check_types({field.name: b""}, kinds)
        if field.default not in (dataclasses.MISSING, None):
            check_types({field.name: field.default}, kinds)


def test_a_language_model_starts_from_the_recipe_of_one(tmp_path: Path) -> None:
    model, tokenizer = load_model("tiny", template_for("agentgym_flow/Sokoban-v0", "compact"))
    save_model(tmp_path / "words", model, tokenizer)
    assert not is_language_model(str(tmp_path / "words"))
    with pytest.raises(UnknownOption, match="mine"):
        RunConfig(chat_template="mine")
    assert parse_configs(["--model", str(tmp_path / "words")])[0].template == "compact-turned"
    large = Path(config_file.__file__).parent / "configs" / "large"
    for env, name in (("Sokoban-v0", "sokoban"), ("Search-v0", "search")):
        run, warm_start, agent = parse_configs(["--env", env, "--model", "some/Model-0.5B"])
        recipe = read_config(large / f"{name}.yaml")
        assert (run.model, run.template, warm_start.warm_start_levels) == ("some/Model-0.5B", "text", 0)
        assert agent.max_completion_length == recipe["max_completion_length"] > 1
        assert (agent.max_steps, agent.groups_per_batch) == (recipe["max_steps"], recipe["groups_per_batch"])
        assert Path(agent.output_dir) == Path("runs") / f"{name}_language_model"
    line = ["--model", "some/Model", "--per_device_train_batch_size", "8", "--steps_per_generation", "4"]
    assert parse_configs(line)[2].groups_per_batch == 4  # said in other terms than the recipe
    assert parse_configs(["--config", "sokoban_tiny", "--model", "some/Model"])[0].template == "compact-turned"
    alfworld = ["--env=ALFWorld-v0", "--model=some/Model"]
    assert parse_configs(alfworld)[0].template_settings == read_config(large / "alfworld.yaml")["template_settings"]
    assert parse_configs([*alfworld, "--template", "choice"])[0].template_settings == {}  # the recipe's are for text
    assert "lists_actions" in parse_configs([*alfworld, "--template=text"])[0].template_settings
    (tmp_path / "a.gguf").touch()
    with pytest.raises(BadSetting, match="GGUF file, which can play but not be trained"):
        parse_configs(["--model", str(tmp_path / "a.gguf")])


def test_the_names_read_from_sources_are_the_fields_of_the_configurations() -> None:
    kinds = (RunConfig, WarmStartConfig, AgentConfig)
    assert setting_names() == {field.name for kind in kinds for field in dataclasses.fields(kind) if field.init}


@pytest.mark.parametrize("command", [["agentgym_flow", "train", "grpo"], ["baselines.rewardflow"]])
def test_a_misspelled_setting_costs_no_import_of_torch(command: list[str], root: Path, tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    words = [sys.executable, "-m", *command, f"--output_dir={tmp_path / 'run'}", "--lerning_rate", "1"]
    said = subprocess.run(words, cwd=root, capture_output=True, text=True, timeout=60)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert said.returncode
    assert "Unknown option 'lerning_rate'. Did you mean 'learning_rate'?" in said.stderr
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 2  # with torch 6 to 8
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("word", "meant"), [("learning_rat", "learning_rate"), ("see", "seed"), ("bet", "beta")])
def test_an_abbreviation_is_an_error(word: str, meant: str, file: Path) -> None:
    with pytest.raises(UnknownOption, match=f"Did you mean '{meant}'"):
        parse_configs(["--config", str(file), f"--{word}", "1"])


def test_a_misspelled_key_of_a_file_is_an_error(file: Path) -> None:
    file.write_text(file.read_text() + "lerning_rate: 1\n")
    with pytest.raises(UnknownOption, match="Did you mean 'learning_rate'"):
        parse_configs(["--config", str(file)])


def test_no_script_takes_abbreviations(root: Path) -> None:
    for path in (
        file for folder in ("agentgym_flow", "baselines", "benchmarks") for file in root.glob(f"{folder}/**/*.py")
    ):
        text = path.read_text("utf-8")
        assert text.count("ArgumentParser(") == text.count("allow_abbrev=False") - text.count("_Parser(kinds, "), path


def test_settings_are_spelled_as_in_other_commands(file: Path, tmp_path: Path) -> None:
    line = ["--config", str(file), "--env", "Sokoban-v0", "--env-arg", "size=7", "--env-arg=boxes=2", "--out", "new"]
    run, _, agent = parse_configs(line)
    assert (run.env_settings, agent.output_dir) == ({"size": 7, "boxes": 2}, "new")
    run = parse_configs([*line, "--env_kwargs", '{"boxes": 1, "min_pushes": 2}'])[0]
    assert run.env_settings == {"size": 7, "boxes": 2, "min_pushes": 2}
    with pytest.raises(UnknownOption, match="Did you mean 'boxes'"):
        parse_configs(["--env-arg", "boxs=2"])


def test_train_takes_the_spellings_of_the_other_commands() -> None:
    given = (["--env-arg", "size=7", "--out=mine"], ["--env_kwargs", '{"size": 7}', "--output_dir", "mine"])
    shown = [CliRunner().invoke(app, ["train", "grpo", *words, "--settings"]).stdout for words in given]
    assert shown[0] == shown[1]
    assert "{'size': 7}" in shown[0]
    assert "mine" in shown[0]


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="nowhere"):
        parse_configs(["--config", str(tmp_path / "nowhere.yaml")])


@pytest.mark.parametrize(("module", "offline"), [("agentgym_flow.training", None), ("baselines", "1")])
def test_only_the_commands_go_off_line(root: Path, module: str, offline: str | None) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    code = f"import os, {module}; print(os.environ.get('HF_HUB_OFFLINE'), os.environ.get('HF_HUB_DISABLE_TELEMETRY'))"
    command = [sys.executable, "-c", code]
    said = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert said.stdout.split() == [str(offline)] * 2


@pytest.mark.parametrize(
    ("command", "given", "spinning"),
    [
        ("import baselines", {}, "0"),
        ("import baselines.rewardflow", {}, "0"),  # before it imports torch
        ("from agentgym_flow.cli import main\nimport pytest\nwith pytest.raises(SystemExit): main()", {}, "0"),
        ("import baselines", {"OMP_WAIT_POLICY": "ACTIVE"}, None),
        ("import baselines", {"GOMP_SPINCOUNT": "7"}, "7"),
        ("import agentgym_flow.training", {}, None),
    ],
)
def test_threads_of_commands_sleep_while_they_wait(
    root: Path, command: str, given: dict[str, str], spinning: str | None
) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in PASSIVE} | given
    watch = "import sys, os\nclass Watch:\n def find_spec(self, name, *_):\n  if name == 'torch': told()\n"
    told = "def told(): print('spinning', os.environ.get('GOMP_SPINCOUNT')); os._exit(0)\n"
    code = f"{watch}{told}sys.meta_path.insert(0, Watch())\nsys.argv[1:] = ['--version']\n{command}\ntold()"
    words = [sys.executable, "-uc", code]
    said = subprocess.run(words, cwd=root, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert said.stdout.splitlines()[-1] == f"spinning {spinning}"


def test_the_main_settings_are_shown_with_the_values_of_the_run() -> None:
    words = ["train", "rewardflow", "--env", "WebShop-v0", "--seed", "3"]
    shown = CliRunner().invoke(app, [*words, "--settings"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0, shown.output
    rows = {line.split()[0]: line for line in shown.stdout.splitlines()[1:] if line[:1].strip()}
    assert list(rows) == list(MAIN_SETTINGS)
    assert rows["seed"].split()[1] == "3"
    assert rows["steps_per_batch"].split()[1].isdecimal()  # the number is a float, as it may be a fraction
    assert "'anchors': 'information'" in rows["credit_settings"]
    everything = CliRunner().invoke(app, [*words, "--all-settings"], env={"COLUMNS": "200"})
    assert len(everything.stdout.splitlines()) > 150


def test_help_of_a_baseline_lists_the_main_settings_and_says_how_to_see_all(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["baselines/grpo.py", "--help", *words])
        with pytest.raises(SystemExit) as ended:
            grpo.main()
        assert not ended.value.code
        return capsys.readouterr().out

    short = said()
    assert [name for name in MAIN_SETTINGS if f"--{name} " not in short] == []
    assert "--adam_beta1" not in short
    assert "--adam_beta1" in said("--all-settings")


def test_threads_read_settings_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parser changes the types in the fields of the classes while it reads them."""
    add, reads, at_once = config_file._Parser._add_dataclass_arguments, threading.Barrier(2), []

    def add_slowly(self: Any, kind: type) -> None:
        try:
            reads.wait(0.1)
            at_once.append(kind)
        except threading.BrokenBarrierError:  # nobody else is here
            pass
        add(self, kind)

    monkeypatch.setattr(config_file._Parser, "_add_dataclass_arguments", add_slowly)
    with ThreadPoolExecutor(2) as pool:
        read = [*pool.map(parse_configs, [["--seed=1"], ["--seed=2"]])]
    assert [agent.seed for _, _, agent in read] == [1, 2]
    assert not at_once

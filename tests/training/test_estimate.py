"""What a run would cost: arithmetic that can be done by hand, and a command that loads and runs nothing."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_chat_templates import base_model
from transformers import Qwen3Config
from typer.testing import CliRunner

from agentgym_flow import training
from agentgym_flow.cli import app
from agentgym_flow.core import Stream
from agentgym_flow.episodes import EpisodeRecorder, PolicyOutput
from agentgym_flow.errors import BadSetting
from agentgym_flow.policies import PolicyInput
from agentgym_flow.prompts import PromptTemplate, TextTemplate, template_for
from agentgym_flow.training import estimate as module
from agentgym_flow.training.config_file import parse_configs
from agentgym_flow.training.estimate import (
    CORE,
    READING,
    WRITING,
    CostEstimate,
    Flops,
    Probe,
    count_parameters,
    estimate,
    probe,
)
from agentgym_flow.training.models import load_model, save_model
from agentgym_flow.training.policy import ModelPolicy
from agentgym_flow.training.run_config import RunConfig

QWEN = Path(training.__file__).parent / "configs" / "alfworld_1.5b.yaml"
SMALL = [
    *("--env_kwargs", '{"size": 6, "max_steps": 7}', "--warm_start_levels", "0", "--eval_episodes", "3"),
    *("--validations", "2", "--validation_episodes", "5", "--num_generations", "4", "--steps_per_generation", "2"),
    *("--per_device_train_batch_size", "8", "--max_steps", "6", "--save_strategy", "no"),
]


def settings(folder: Path, *more: str) -> Any:
    return parse_configs([*SMALL, "--output_dir", str(folder), *more])


def test_the_cost_is_what_can_be_worked_out_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "probe", lambda *_: Probe(turns=7, read=70, trained=77, longest=10, step_seconds=0))
    monkeypatch.setattr(module, "count_parameters", lambda *_: 1000)
    found = estimate(settings(tmp_path))
    assert (found.batches, found.episodes, found.evaluated) == (3, 48, 4 * 3 + 2 * 5)
    assert found.flops.update == 6 * 1000 * 77 * 48
    assert found.flops.read == 2 * 1000 * 70 * (48 + 22)
    assert found.flops.write == 2 * 1000 * 7 * (48 + 22)
    assert found.gpu_hours == pytest.approx(
        ((found.flops.update + found.flops.read) / READING + found.flops.write / WRITING) / 3600
    )
    assert f"{sum(found.flops) / CORE / 3600:,.2g} hours" in found.summary()["One CPU core"]


@pytest.mark.parametrize(
    ("changed", "per_token"),
    [
        (["--beta", "0.1"], 8),
        (["--lora", "--model", "folder", "--beta", "0", "--max_completion_length", "1"], 6),
        (["--num_iterations", "2", "--max_steps", "12"], 12),
        (["--activation_checkpointing", "true"], 8),
    ],
)
def test_what_costs_more_or_less_does(
    changed: list[str], per_token: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "probe", lambda *_: Probe(7, 70, 77, 10, 0))
    monkeypatch.setattr(module, "count_parameters", lambda *_: 1000)
    assert estimate(settings(tmp_path, *changed)).flops.update == per_token * 1000 * 77 * 48


def test_cloning_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "probe", lambda *_: Probe(7, 70, 77, 10, 0))
    cloned = ["--warm_start_levels", "5", "--warm_start_updates", "10", "--warm_start_batch", "4"]
    without, added = (estimate(settings(tmp_path, *more)) for more in ([], cloned))
    assert added.flops.update - without.flops.update == pytest.approx(6 * without.parameters * 77 / 7 * 40)


def test_prompts_are_counted_on_episodes() -> None:
    run = RunConfig(env_kwargs={"size": 6, "max_steps": 5, "min_pushes": 4})
    found = probe(run, template_for(run.env_id, "compact"), "turn", 1)
    assert (found.turns, found.longest, found.read, found.trained) == (5, 37, 5 * 37, 5 * 38)
    assert found.step_seconds > 0


def test_a_conversation_is_read_again_every_turn_and_trained_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ten(TextTemplate):
        def prompt(self, policy_input: Any) -> str:
            return "word " * 10

        def follow_up(self, policy_input: Any) -> str:
            return "word word"

    run = RunConfig(env_kwargs={"size": 6, "max_steps": 3, "min_pushes": 4})
    talk = probe(run, Ten(), "conversation", 4)
    assert (talk.read, talk.trained, talk.longest) == (10 + 16 + 22, 22 + 4, 22)
    apart = probe(run, Ten(), "turn", 4)
    assert (apart.read, apart.trained, apart.longest) == (30, 42, 10)
    assert (talk.tree, talk.first) == (22 + 4, 10)
    assert (apart.tree, apart.first) == (10 + 3 * 4, 10)  # three equal prompts, three answers


def test_only_transformers_on_a_gpu_reads_a_conversation_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "probe", lambda *_: Probe(turns=7, read=700, trained=170, longest=10, step_seconds=0))
    monkeypatch.setattr(module, "count_parameters", lambda *_: 1000)
    line = ["--model=folder", "--layout=conversation", "--max_completion_length=10"]
    own, engine = (estimate(settings(tmp_path, *line, *more)) for more in ([], ["--generator=http://127.0.0.1:1"]))
    assert own.flops.read == engine.flops.read == 2 * 1000 * (170 - 7 * 10) * (48 + 22)
    assert (own.flops.again, engine.flops.again) == (2 * 1000 * 600 * (48 + 22), 0)
    assert own.core_hours == engine.core_hours
    assert own.gpu_hours > engine.gpu_hours
    assert "on a GPU to read conversations again" in own.summary()["Operations"]


def test_shared_prefixes_and_the_embedding_are_not_paid_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = Qwen3Config(vocab_size=100, hidden_size=4, tie_word_embeddings=True)
    monkeypatch.setattr(module, "config_of", lambda _: config)
    monkeypatch.setattr(module, "memory_of", lambda *_: {})
    monkeypatch.setattr(module, "count_parameters", lambda *_: 1000)
    monkeypatch.setattr(module, "probe", lambda *_: Probe(7, 700, 170, 10, 0, tree=170, first=40, distinct=170))
    line = ["--model=folder", "--layout=conversation", "--max_completion_length=10"]
    line += ["--beta=0", "--activation_checkpointing=false"]
    found = estimate(settings(tmp_path, *line, "--share_prefixes=true"))
    tokens = 170 - 40 + 40 / 4  # four attempts at a task
    assert found.flops.update == 6 * 48 * (600 * tokens + 400 * 7 * 10)
    assert found.flops.read == 2 * 600 * (48 * (100 - 30) + 22 * 100)
    assert found.summary()["Training tokens"] == f"{48 * 100:,} in prompts, {48 * 70:,} in answers"
    whole = estimate(settings(tmp_path, *line, "--share_prefixes=false"))
    assert whole.flops.update == 6 * 48 * (600 * 170 + 400 * 7 * 10)


@pytest.mark.parametrize("layout", ["turn", "conversation"])
def test_prompts_are_those_that_the_model_reads(layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = base_model(tmp_path / "base", "<action>up</action>")
    small = ["--template_settings", '{"think": false}', "--max_completion_length", "16", f"--layout={layout}"]
    line = ["--model", str(folder), "--env_kwargs", '{"size": 6, "max_steps": 3, "min_pushes": 4}', *small]
    configs = parse_configs([*line, "--max_steps", "16", "--eval_episodes", "2", "--validations", "0"])
    run, _, agent = configs
    template = run.make_template()
    found = estimate(configs)
    model, tokenizer = load_model(str(folder), template)
    policy = ModelPolicy(model, tokenizer, template, max_new_tokens=16, layout=agent.layout)
    monkeypatch.setattr(module, "_PROBES", 1)
    one = probe(run, template, agent.layout, 16, tokenizer)
    lengths: list[int] = []

    with closing(run.make_env()) as env:
        recorder = EpisodeRecorder(env)
        task = env.drawn_tasks[0]
        episode, rng = recorder.reset(seed=0, task=task), Stream("estimate", task)
        answer = tuple(tokenizer("x" * 16, add_special_tokens=False).input_ids)
        while not recorder.done:
            here = PolicyInput(env, recorder.observation, recorder.info, episode, rng)
            ids = policy.prompt_ids(here)
            lengths.append(len(ids))
            recorder.step(PolicyOutput(env.sample_action(rng), prompt_ids=ids, completion_ids=answer))
    assert (one.read, one.longest) == (sum(lengths), lengths[-1] if layout == "conversation" else max(lengths))
    assert found.counted
    assert "counted with the model's tokenizer" in found.summary()["Assumed"]
    assert found.summary()["Memory, CPU"].partition(":")[0].endswith("GB")
    assert found.memory[0, 0].weights == 4 * found.parameters


def test_a_run_of_weeks_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    probed = Probe(7, 70, 77, 10, 0)
    cost = CostEstimate(10**9, 150, 19200, 2000, 512, probed, Flops(1e18, 1e18, 1e18), {})
    assert "the run would take about 33,333 hours on one CPU core: lower max_steps" in cost.warning
    assert replace(cost, flops=Flops(1e15, 1e14, 1e14)).warning == ""
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert "285 hours on one GPU" in replace(cost, flops=Flops(5e18, 2e19, 9e18)).warning


def test_the_size_of_a_model_is_that_of_its_folder_or_name(
    tiny: tuple[Any, Any], tmp_path: Path, template: PromptTemplate
) -> None:
    save_model(tmp_path / "model", *tiny)
    for file in (tmp_path / "model").glob("*.safetensors"):
        file.unlink()  # its shape is enough

    def count(model: str) -> int:
        return count_parameters(SimpleNamespace(model=model), template)  # type: ignore[arg-type]

    assert count("tiny") == count(str(tmp_path / "model")) == tiny[0].num_parameters()
    assert count("Qwen/Qwen2.5-1.5B-Instruct") == 1_500_000_000
    assert count("HuggingFaceTB/SmolLM2-135M") == 135_000_000
    with pytest.raises(BadSetting, match="has no size"):
        count("some/model")


def test_the_command_shows_the_cost_and_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["train", "gigpo", "--env", "ALFWorld-v0", "--config", str(QWEN), "--dry-run"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert "1,500.00 million parameters" in result.stdout
    assert "150 batches, 19,200 episodes" in result.stdout
    assert "Nothing was run." in result.stdout
    assert not list(tmp_path.iterdir())
    wrong = CliRunner().invoke(app, [*words, "--credit_settings", '{"no": 1}'])
    assert wrong.exit_code == 2
    assert "has no setting 'no'" in wrong.stderr


def test_what_ends_a_run_at_its_start_is_told_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "probe", lambda *_: pytest.fail("nothing should be played"))
    monkeypatch.setattr("agentgym_flow.envs.sokoban.env.SokobanEnv.num_tasks", 3)
    with pytest.raises(BadSetting, match="warm_start_levels is 5, but split 'train' has only 3 tasks"):
        estimate(settings(tmp_path, "--warm_start_levels", "5"))

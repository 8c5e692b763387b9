"""The recipe on Search in miniature: the published algorithms, the packaged settings, and what a large run costs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from short_run import train

from agentgym_flow.envs import make_text_env
from agentgym_flow.episodes import read_log
from agentgym_flow.prompts import template_for
from agentgym_flow.replay import verify_log
from agentgym_flow.training.config_file import packaged_config, parse_configs
from agentgym_flow.training.models import load_model
from agentgym_flow.training.tiny import CONTEXT
from agentgym_flow.training.warm_start import demonstrations
from baselines.comparison.plan import read_settings

pytestmark = pytest.mark.usefixtures("narrow")

ENV = "agentgym_flow/Search-v0"


# One by default: that the others train, the tests on Sokoban show in less time.
@pytest.mark.parametrize(
    "algorithm", [*(pytest.param(name, marks=pytest.mark.nightly) for name in ("grpo", "rloo", "gigpo")), "rewardflow"]
)
def test_every_published_algorithm_trains_and_its_log_verifies(algorithm: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    result = train(ENV, algorithm, folder)
    assert result.exit_code == 0, result.output
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["status"] == "finished"
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [record["episodes"] for record in records if "success" in record][-1] == 24
    assert "Search" in (folder / "report.html").read_text()
    log = folder / "evaluations" / "after_sampled.jsonl.gz"
    assert verify_log(log).ok
    for episode in read_log(log):
        assert episode.max_steps == 6
        assert episode.success == (episode.score == 1.0)
        assert episode.terminated == episode.actions[-1].startswith("answer[")


def test_demonstrations_search_on_before_they_answer() -> None:
    """What is cloned: prompts that fit the context, in known words, and choices of every sort."""
    template = template_for(ENV, "compact")
    _, tokenizer = load_model("tiny", template)
    rows = demonstrations(lambda: make_text_env(ENV), tokenizer, template, tasks=60, noise=0.0)
    chosen = set()
    for row in rows:
        assert len(row.prompt) + len(row.completion) <= CONTEXT
        words, [answer] = tokenizer.decode(row.prompt).split(), tokenizer.decode(row.completion).split()
        assert "<unk>" not in words
        place = words.index(answer)
        chosen.add(" ".join(words[max(0, place - 4) : place]))
    told = {"search asked self new", "search near hop1 new", "search near hop2 new", "answer near end name"}
    assert told <= chosen


def test_packaged_settings_say_nothing_of_an_algorithm_or_of_another_environment(tmp_path: Path) -> None:
    file = packaged_config(ENV)
    assert file is not None
    run, _, agent = parse_configs(["--config", str(file), "--output_dir", str(tmp_path)])
    assert (run.env_id, run.model, run.template, run.also_on) == (ENV, "tiny", "compact", {})
    assert agent.stop_when is None
    assert "credit" not in file.read_text()
    assert agent.generation_batch_size == 32 * 8


def test_the_published_shape_has_the_papers_settings(tmp_path: Path) -> None:
    file = packaged_config(ENV)
    assert file is not None
    path = file.with_name("search_1.5b.yaml")
    run, warm, agent = parse_configs(["--config", str(path), "--output_dir", str(tmp_path)])
    assert "credit:" not in path.read_text()
    assert (run.env_id, run.model, run.template) == (ENV, "Qwen/Qwen2.5-1.5B-Instruct", "text")
    assert run.env_settings == {"max_steps": 4}
    assert warm.warm_start_levels == 0
    assert (agent.num_generations, agent.generation_batch_size) == (5, 256 * 5)
    assert agent.max_steps / agent.steps_per_batch == 200
    assert (agent.beta, agent.invalid_action_penalty, agent.max_completion_length) == (0.001, 0.01, 512)


def test_the_comparison_has_settings_for_it() -> None:
    setting, _ = read_settings(ENV)
    assert setting.num_generations == 8
    assert setting.lasting["env_kwargs"] == {"max_steps": 6}
    assert setting.lasting["template"] == "compact"

"""The recipe on ALFWorld in miniature: every credit function, the final report, and the packaged settings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from short_run import train

from agentgym_flow.episodes import read_log
from agentgym_flow.replay import verify_log
from agentgym_flow.rewards.credit import CREDIT
from agentgym_flow.training.config_file import packaged_config, parse_configs
from baselines.comparison.plan import read_settings

pytestmark = pytest.mark.usefixtures("narrow")

ENV = "agentgym_flow/ALFWorld-v0"


# One by default: that the others train, the tests on Sokoban show in less time.
@pytest.mark.parametrize(
    "algorithm", [name if name == "graphgpo" else pytest.param(name, marks=pytest.mark.nightly) for name in CREDIT]
)
def test_every_credit_function_trains(algorithm: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    result = train(ENV, algorithm, folder)
    assert result.exit_code == 0, result.output
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["status"] == "finished"
    assert "also_on" not in summary["before"]
    assert "Also on" not in result.stdout
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [record["episodes"] for record in records if "success" in record][-1] == 24
    page = (folder / "report.html").read_text()
    assert "ALFWorld" in page
    assert "Sokoban" not in page
    log = folder / "evaluations" / "after_sampled.jsonl.gz"
    assert verify_log(log).ok
    for episode in read_log(log):
        assert episode.max_steps == 50
        assert episode.success != episode.truncated  # running out of steps is no success
        assert "inventory" not in episode.actions


def test_conversations_and_text_prompts_are_refused_where_they_cannot_work(tmp_path: Path) -> None:
    assert "has no follow_up" in train(ENV, "grpo", tmp_path / "a", layout="conversation").stderr
    assert "no fixed vocabulary" in train(ENV, "grpo", tmp_path / "b", template="text").stderr


def test_packaged_settings_say_nothing_of_an_algorithm_or_of_another_environment(tmp_path: Path) -> None:
    file = packaged_config(ENV)
    assert file is not None
    for path in (file, file.with_name("alfworld_1.5b.yaml")):
        run, warm, agent = parse_configs(["--config", str(path), "--output_dir", str(tmp_path)])
        assert run.env_id == ENV
        assert agent.stop_when is None
        assert not run.also_on
        assert "credit" not in path.read_text()
        assert agent.num_generations == 8
        batch = agent.generation_batch_size
        assert batch == {"tiny": 32 * 8}.get(run.model, 16 * 8)
    assert run.model == "Qwen/Qwen2.5-1.5B-Instruct"
    assert run.template == "text"
    assert run.env_settings == {"max_steps": 50}
    assert warm.warm_start_levels == 0
    assert agent.max_steps / agent.steps_per_batch == 150


def test_the_comparison_has_settings_for_it() -> None:
    as_published, of_the_board, short = read_settings(ENV)
    assert as_published.lasting["env_kwargs"] == {"max_steps": 50}
    assert short.lasting["env_kwargs"] == {"max_steps": 16}
    assert of_the_board.lasting["env_kwargs"] == {"max_steps": 50}
    for setting in (as_published, short, of_the_board):
        assert setting.num_generations == 8
        assert setting.lasting["template"] == "compact"

"""CWRPO on Canvas in three updates, rewarded for designs, and what the published shape would cost."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import yaml
from short_run import train

from agentgym_flow.replay import verify_log
from agentgym_flow.training.config import AgentConfig
from agentgym_flow.training.config_file import parse_configs
from baselines.cwrpo import CWRPO

ENV = "agentgym_flow/Canvas-v0"


@pytest.mark.heavy
def test_cwrpo_trains_on_designs_with_the_papers_settings(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    result = train(ENV, "cwrpo", folder, reward="structure", template="compact", threads=1)
    assert result.exit_code == 0, result.output
    saved = yaml.safe_load((folder / "config.yaml").read_text())
    assert (saved["reward"], saved["credit_settings"]["outcome"], saved["beta"]) == ("structure", "return", 0.005)
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    trained = [record for record in records if "return" in record]
    assert [record["episodes"] for record in trained] == [8, 16, 24]
    assert all(-1.0 <= record["return"] <= 1.0 and math.isfinite(record["kl"]) for record in trained)
    for log in (folder / "evaluations").glob("*.jsonl.gz"):  # native rewards: no wrapper is needed to verify them
        assert verify_log(log).ok


def test_the_papers_settings_are_those_of_the_command_and_of_the_baseline(tmp_path: Path) -> None:
    """The packaged settings of Canvas are no algorithm's; with CWRPO designs are rewarded, and clipping is even."""
    line = ["--env_id", ENV, "--output_dir", str(tmp_path)]
    paper = {"reward": "structure", "layout": "conversation", "epsilon_high": 0.2, "beta": 0.005}
    for run, _, agent in (parse_configs([*line, "--credit=cwrpo"]), parse_configs(line, CWRPO)):
        assert run.env_id == ENV
        assert {name: getattr(agent, name) for name in paper} == paper
    asked = parse_configs([*line, "--credit=cwrpo", "--reward=native", "--layout=turn", "--epsilon_high=0.3"])[2]
    assert (asked.reward, asked.layout, asked.epsilon_high, asked.beta) == ("native", "turn", 0.3, 0.005)
    others = parse_configs([*line, "--credit=grpo"])[2]
    assert (others.reward, others.layout, others.epsilon_high) == ("native", "turn", 0.28)
    own = tmp_path / "own.yaml"
    own.write_text(f"env_id: {ENV}\nreward: native\nepsilon_high: 0.25\n")
    named = parse_configs(["--config", str(own), *line[2:], "--credit=cwrpo"])[2]
    assert (named.reward, named.epsilon_high, named.beta) == ("native", 0.25, 0.005)


def test_a_paper_fixes_elsewhere_what_does_not_need_designs(tmp_path: Path) -> None:
    sokoban = parse_configs(["--output_dir", str(tmp_path)], CWRPO)[2]
    assert (sokoban.reward, sokoban.layout, sokoban.epsilon_high) == ("native", "turn", 0.2)
    plain = parse_configs(["--env_id", ENV, "--output_dir", str(tmp_path), "--credit=cwrpo"], AgentConfig)[2]
    assert (plain.reward, plain.epsilon_high) == ("native", 0.28)  # a comparison of credit: all else is equal

"""The recipe on Canvas in miniature: every algorithm, CWRPO elsewhere, packaged settings, compact prompts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from short_run import SMALL, train

from agentgym_flow.envs import make_text_env
from agentgym_flow.envs.canvas.prompt import MOVES
from agentgym_flow.episodes import read_log
from agentgym_flow.prompts import template_for
from agentgym_flow.replay import verify_log
from agentgym_flow.training.config_file import packaged_config, parse_configs
from agentgym_flow.training.models import load_model
from agentgym_flow.training.tiny import CONTEXT
from agentgym_flow.training.warm_start import demonstrations
from baselines.comparison.plan import read_settings

pytestmark = pytest.mark.usefixtures("narrow")

ENV = "agentgym_flow/Canvas-v0"
OPERATORS_OF_OTHERS = Path(__file__).parents[1] / "envs" / "canvas" / "operators_of_others.py"


# One by default: that the others train, the tests on Sokoban show in less time.
@pytest.mark.parametrize(
    "algorithm", ["grpo", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("rloo", "gigpo", "rewardflow"))]
)
def test_every_other_algorithm_trains_and_its_log_verifies(algorithm: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    result = train(ENV, algorithm, folder, threads=1)
    assert result.exit_code == 0, result.output
    assert json.loads((folder / "summary.json").read_text())["status"] == "finished"
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [record["episodes"] for record in records if "success" in record][-1] == 24
    log = folder / "evaluations" / "after_sampled.jsonl.gz"
    assert verify_log(log).ok
    for episode in read_log(log):
        assert episode.terminated == ("<action>finish" in episode.actions[-1])


@pytest.mark.nightly
@pytest.mark.parametrize("env_id", ["ALFWorld-v0", "Search-v0", "WebShop-v0"])
def test_cwrpo_trains_on_other_environments_and_its_log_verifies(env_id: str, tmp_path: Path) -> None:
    result = train(f"agentgym_flow/{env_id}", "cwrpo", tmp_path / "run", threads=1)
    assert result.exit_code == 0, result.output
    assert verify_log(tmp_path / "run" / "evaluations" / "after_sampled.jsonl.gz").ok


@pytest.mark.parametrize("layout", ["turn", "conversation"])
def test_demonstrations_fit_the_context_in_known_words(layout: str) -> None:
    template = template_for(ENV, "compact")
    _, tokenizer = load_model("tiny", template)
    steps = _packaged_steps()
    rows = demonstrations(
        lambda: make_text_env(ENV, max_steps=steps), tokenizer, template, tasks=60, noise=0.3, layout=layout
    )
    moves = set()
    for row in rows:
        assert len(row.prompt) + len(row.completion) <= CONTEXT
        words = tokenizer.decode(row.prompt).split(), tokenizer.decode(row.completion).split()
        assert "<unk>" not in [*words[0], *words[1]]
        moves.update(words[1])
    assert {"finish", "Programmer", "AnswerGenerate", "try-Verify"} <= moves
    assert set(MOVES) & moves == moves if layout == "turn" else set(MOVES) & moves


def _packaged_steps() -> int:
    file = packaged_config(ENV)
    assert file is not None
    run, _, _ = parse_configs(["--config", str(file), "--output_dir", "unused"])
    steps = run.env_kwargs["max_steps"]
    assert isinstance(steps, int)
    return steps


def test_packaged_settings_say_nothing_of_an_algorithm_or_of_another_environment(tmp_path: Path) -> None:
    file = packaged_config(ENV)
    assert file is not None
    run, _, agent = parse_configs(["--config", str(file), "--output_dir", str(tmp_path)])
    assert (run.env_id, run.model, run.template, run.also_on) == (ENV, "tiny", "compact", {})
    assert agent.stop_when is None
    assert "credit" not in file.read_text()
    assert agent.generation_batch_size == 32 * 8


def test_the_comparison_takes_one_thing_away_from_cwrpo_at_a_time(tmp_path: Path) -> None:
    setting, short = read_settings(ENV)
    assert setting.episodes == 4 * short.episodes
    names = ("cwrpo", "no-mask", "no-diversity", "paper", "no-release")
    made = {name: setting.configs(name, 0, tmp_path)[2] for name in names}
    whole = made["cwrpo"]
    assert (whole.credit, whole.reward, whole.layout, whole.beta) == ("cwrpo", "structure", "conversation", 0.005)
    assert whole.mask_observations
    assert not made["no-mask"].mask_observations
    told = {name: config.reward_settings for name, config in made.items()}
    assert told == {
        "cwrpo": {},
        "no-mask": {},
        "no-diversity": {"diversity": False},
        "paper": {"profile": "paper"},
        "no-release": {"profile": "paper", "release": "always"},
    }
    plain, bare = (setting.configs(name, 0, tmp_path)[2] for name in ("grpo", "grpo-no-mask"))
    for config in (plain, bare):
        assert (config.credit, config.reward, config.layout) == ("grpo", "native", "conversation")
    assert (plain.mask_observations, bare.mask_observations) == (True, False)


@pytest.mark.heavy
def test_a_tiny_policy_is_trained_with_operators_of_others(tmp_path: Path) -> None:
    """The command knows nothing of the module but what the settings of the environment name."""
    source = OPERATORS_OF_OTHERS.read_text("utf-8")
    (tmp_path / "trained_operators.py").write_text(source, "utf-8")
    operators = ["Custom", "trained_operators:Debate", "trained_operators:Doubt", "Revise", "Format"]
    settings = {**SMALL, "output_dir": "run", "env_kwargs": json.dumps({"operators": operators, "max_steps": 6})}
    settings |= {"warm_start_updates": 2, "max_steps": 1, "eval_episodes": 4}
    words = ["train", "grpo", "--env", ENV, *(f"--{name}={value}" for name, value in settings.items())]
    trained = _agentgym(*words, cwd=tmp_path)
    assert trained.returncode == 0, trained.stdout + trained.stderr
    words = json.loads((tmp_path / "run" / "checkpoint" / "tokenizer.json").read_text())["model"]["vocab"]
    assert {"Debate", "mend-Doubt", "Doubt-passed"} <= set(words)
    log = "run/evaluations/after_sampled.jsonl.gz"
    assert _agentgym("verify", log, "--import", "trained_operators", cwd=tmp_path).returncode == 0


def _agentgym(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "agentgym_flow", *words], cwd=cwd, capture_output=True, text=True)

"""Weights in a folder play by `hf:FOLDER`, with the prompt of the run that they come from."""

from __future__ import annotations

import json
import logging
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="training needs the extra train")

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from typer.testing import CliRunner

from agentgym_flow import policies
from agentgym_flow.cli import app
from agentgym_flow.cli.play import Narrator
from agentgym_flow.episodes import read_log
from agentgym_flow.errors import BadSetting, MissingExtra, UnknownOption, UnknownTemplate
from agentgym_flow.generation import transformers_generator
from agentgym_flow.leaderboard.track import Track
from agentgym_flow.play import EpisodeSpec, evaluate, rollout
from agentgym_flow.policies import PolicyOutput, make_policy
from agentgym_flow.prompts import template_for
from agentgym_flow.replay import verify_log
from agentgym_flow.training.conversation import write_plain
from agentgym_flow.training.models import load_model, save_model, with_lora
from agentgym_flow.training.policy import ModelPolicy

SOKOBAN = "agentgym_flow/Sokoban-v0"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """The checkpoint of a run that plays the prompt `compact`."""
    model, tokenizer = load_model("tiny", template_for(SOKOBAN, "compact"))
    save_model(tmp_path / "run" / "checkpoint", model, tokenizer)
    settings = "template: compact\nlayout: turn\nmax_completion_length: 1\noutput_dir: elsewhere\n"
    (tmp_path / "run" / "config.yaml").write_text(settings, "utf-8")
    return tmp_path / "run" / "checkpoint"


def test_it_plays_as_its_run_did(checkpoint: Path, tmp_path: Path) -> None:
    logs = []
    for number, more in enumerate(([], ["--template", "compact"], ["--policy-arg", "greedy=true"])):
        log = tmp_path / f"{number}.jsonl"
        words = ["evaluate", "Sokoban-v0", "--policy", f"hf:{checkpoint}", "--episodes", "4", "--log", str(log), *more]
        result = CliRunner().invoke(app, [*words, "--json"])
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout)["policy"] == f"hf:{checkpoint}"
        logs.append([(episode.task, episode.actions) for episode in read_log(log)])
    assert logs[0] == logs[1] != logs[2]


def test_play_prints_an_answer_as_it_comes_and_costs_one_row(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces: list[str] = []
    answers: list[str] = []
    tell, conclude = Narrator._tell_piece, Narrator.tell_output

    def concluded(self: Narrator, output: PolicyOutput) -> None:
        answers.append(output.action if output.completion is None else output.completion)
        conclude(self, output)

    monkeypatch.setattr(Narrator, "tell_output", concluded)
    monkeypatch.setattr(Narrator, "_tell_piece", lambda self, piece: (pieces.append(piece), tell(self, piece))[1])
    rows: list[int] = []
    scores = transformers_generator.next_scores
    monkeypatch.setattr(
        transformers_generator, "next_scores", lambda *given: (rows.append(given[-1]), scores(*given))[1]
    )
    words = ["play", "Sokoban-v0", "--policy", f"hf:{checkpoint}", "--env-arg", "max_steps=3"]
    result = CliRunner().invoke(app, [*words, "--policy-arg", "max_tokens=4"])
    assert result.exit_code == 0, result.output
    assert "".join(pieces) == "".join(answers)
    assert len(pieces) > len(answers)
    assert all(f"── answer\n{answer}\naction" in result.output for answer in answers)
    assert "reward  -0.10, the answer was cut at the token limit" in result.output
    assert set(rows) == {1}


@pytest.mark.parametrize("name", ["tiny-rewardflow", "tiny-grpo"], ids=["today's words", "earlier words"])
def test_the_policy_of_a_leaderboard_entry_plays(root: Path, name: str) -> None:
    entry = max((root / "leaderboards" / "submissions" / "alfworld-s0").glob(f"*-{name}"))
    assert sorted(file.name for file in (entry / "policy").iterdir()) == ["config.json", "model.safetensors"]
    track = Track.read(root / "leaderboards" / "tracks" / "alfworld-s0.json")
    policy = make_policy(f"hf:{entry / 'policy'}", track.env_id)
    played = rollout(policy, track.make_env, [EpisodeSpec(task, task) for task in range(8)])
    assert sum(episode.success for episode in played) >= 6  # 93 and 79 % in the entries
    with pytest.raises(BadSetting, match="policy has no tokenizer: save it there"):
        make_policy(f"hf:{entry / 'policy'}", track.env_id, template="text")


def test_what_its_run_says_gives_way_to_what_is_asked(checkpoint: Path) -> None:
    policy = make_policy(f"hf:{checkpoint}", SOKOBAN, max_tokens=3, layout="conversation", template="choice")
    assert isinstance(policy, ModelPolicy)
    assert policy.sampling.max_new_tokens == 3
    assert policy.conversation is not None
    assert policy.template.name == "choice"


def test_without_a_run_the_prompt_is_text(checkpoint: Path) -> None:
    (checkpoint.parent / "config.yaml").unlink()
    policy = make_policy(f"hf:{checkpoint}", SOKOBAN)
    assert isinstance(policy, ModelPolicy)
    assert policy.template.name == "text"


def test_it_is_prompted_with_the_template_settings_of_its_run(checkpoint: Path) -> None:
    config = checkpoint.parent / "config.yaml"
    config.write_text("template: text\ntemplate_settings: {rules: Push the boxes., think: false}\n", "utf-8")
    for chosen in ({}, {"template": "text"}):
        policy = make_policy(f"hf:{checkpoint}", SOKOBAN, **chosen)
        assert isinstance(policy, ModelPolicy)
        assert policy.template == replace(template_for(SOKOBAN, "text"), rules="Push the boxes.", think=False)  # type: ignore[type-var]
    policy = make_policy(f"hf:{checkpoint}", SOKOBAN, template="choice")
    assert isinstance(policy, ModelPolicy)
    assert policy.template == template_for(SOKOBAN, "choice")


def test_mistakes_have_names(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")  # the checkout may hold runs
    with pytest.raises(UnknownOption, match="greedy"):
        make_policy(f"hf:{checkpoint}", SOKOBAN, gredy=True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for missing in ("nowhere", "no/where", "./nowhere", "runs/quickstart/checkpoint", f"{checkpoint}s", "a..b", "~/x"):
        with pytest.raises(BadSetting, match=rf"^there is no folder {re.escape(missing)}($|, and no downloaded model)"):
            make_policy(f"hf:{missing}", SOKOBAN)
    with pytest.raises(UnknownTemplate):
        make_policy(f"hf:{checkpoint}", SOKOBAN, template="kompakt")
    with pytest.raises(BadSetting, match=r"max_tokens must be .*got 0"):
        make_policy(f"hf:{checkpoint}", SOKOBAN, max_tokens=0)
    for name, values in {
        "temperature": ["hot", True, 0],
        "greedy": ["no", 1],
        "dtype": ["bfloat17", "int8", 16, "nn"],
    }.items():
        for value in values:
            with pytest.raises(BadSetting, match=f"^{name} must be .*got {value!r}"):
                make_policy(f"hf:{checkpoint}", SOKOBAN, **{name: value})
    with pytest.raises(UnknownTemplate):
        make_policy(f"hf:{checkpoint}", SOKOBAN, template=5)
    with pytest.raises(UnknownTemplate):
        make_policy(f"hf:{checkpoint}", SOKOBAN, template="")
    with pytest.raises(UnknownOption):
        make_policy(f"hf:{checkpoint}", SOKOBAN, layout="")
    (checkpoint.parent / "config.yaml").write_text("a: [", "utf-8")
    with pytest.raises(BadSetting, match=r"config\.yaml cannot be read"):
        make_policy(f"hf:{checkpoint}", SOKOBAN)
    monkeypatch.setattr(policies, "find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match="train"):
        make_policy(f"hf:{checkpoint}", SOKOBAN)


def test_the_import_of_deepspeed_writes_nothing_into_the_output(
    checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_policy(f"hf:{checkpoint}", SOKOBAN)
    logger = logging.getLogger("DeepSpeed")  # which DeepSpeed makes with a handler for standard output
    handler = logging.StreamHandler(sys.stdout)
    logger.addHandler(handler)
    try:
        logger.warning("Setting accelerator to CPU.")
        logger.error("No room left.")
    finally:
        logger.removeHandler(handler)
    assert "accelerator" not in (said := capsys.readouterr().out)
    assert "No room left." in said


def test_an_adapter_is_exported_as_a_whole_model_that_samples_as_in_training(published: Path, tmp_path: Path) -> None:
    base = AutoModelForCausalLM.from_pretrained(published, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(published)
    write_plain(tokenizer, template_for(SOKOBAN, "text"), None, "base")
    adapted = with_lora(base, rank=2, alpha=4, seed=0)
    with torch.no_grad():
        for name, weight in adapted.named_parameters():
            if "lora_B" in name:
                weight.normal_(generator=torch.Generator().manual_seed(1))
    save_model(tmp_path / "run" / "checkpoint", adapted, tokenizer)
    settings = {"env_id": SOKOBAN, "env_kwargs": {"size": 5}, "template": "text", "layout": "conversation"}
    settings |= {"template_settings": {"think": False}, "max_completion_length": 8}
    (tmp_path / "run" / "config.yaml").write_text(json.dumps(settings), "utf-8")
    out = tmp_path / "out"
    words = ["export", str(tmp_path / "run" / "checkpoint"), str(out)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert done.stdout.strip() == str(out)
    told = done.stderr.replace("'", "")
    for said in (f"openai:{out}@http", "--env-arg=size=5", "layout=conversation", "max_tokens=8", '{"think": false}'):
        assert said in told
    ids = torch.tensor([[5, 6, 7]])
    whole, merged = (AutoModelForCausalLM.from_pretrained(folder).eval() for folder in (published, out))
    with torch.no_grad():
        torch.testing.assert_close(merged(ids).logits, adapted.eval()(ids).logits, rtol=1e-4, atol=1e-5)
        assert not torch.allclose(merged(ids).logits, whole.float()(ids).logits, atol=1e-2)
    assert not (out / "adapter_config.json").exists()
    assert AutoTokenizer.from_pretrained(out).chat_template == tokenizer.chat_template
    sampling = merged.generation_config
    assert (sampling.do_sample, sampling.temperature, sampling.top_k, sampling.top_p) == (True, 1.0, 0, 1.0)
    assert "already exists" in CliRunner().invoke(app, words).stderr
    assert CliRunner().invoke(app, [*words, "--force", "--dtype", "bfloat16"]).exit_code == 0
    assert AutoModelForCausalLM.from_pretrained(out, dtype="auto").dtype == torch.bfloat16
    assert "float16" in CliRunner().invoke(app, [*words, "--force", "--dtype", "float16"]).stderr


def test_words_are_not_exported_for_a_chat_server(checkpoint: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["export", str(checkpoint), str(tmp_path / "out")])
    assert (done.exit_code, (tmp_path / "out").exists()) == (2, False)
    assert "no chats" in done.stderr


@pytest.mark.nightly
def test_a_real_base_model_answers_in_form_after_solved_turns(language_model: Path) -> None:
    invalid = []
    for shots in (0, 3):
        policy = make_policy(f"hf:{language_model}", SOKOBAN, shots=shots, max_tokens=12, dtype="bfloat16", rows=4)
        kwargs = {"size": 5, "max_steps": 2}
        invalid.append(evaluate(policy, SOKOBAN, num_episodes=4, num_envs=4, env_kwargs=kwargs)[0].invalid_rate)
    assert invalid[0] > 0.5 > invalid[1]


@pytest.mark.nightly
def test_a_real_base_model_is_graded_whatever_it_writes(language_model: Path, tmp_path: Path) -> None:
    problems, log = "agentgym_flow/Problems-v0", tmp_path / "log.jsonl"
    policy = make_policy(f"hf:{language_model}", problems, max_tokens=24, dtype="bfloat16", rows=4)
    episodes = evaluate(policy, problems, num_episodes=4, num_envs=4, env_kwargs={"max_steps": 2}, log=log)[1]
    assert all(turn.action_valid for episode in episodes for turn in episode.turns)  # all of it is an answer
    assert verify_log(log, jobs=0).matched == 4

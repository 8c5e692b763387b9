"""The gradients of an audit, and the command."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from agentgym_flow.cli.app import app
from agentgym_flow.errors import BadSetting
from agentgym_flow.play import EpisodeSpec, rollout_groups
from agentgym_flow.policies import RandomPolicy, make_policy
from agentgym_flow.training import gradients
from agentgym_flow.training.gradients import GroupGradients
from agentgym_flow.training.rows import collate

ENV = "agentgym_flow/Sokoban-v0"
COMMAND = ["credit", "audit", "Sokoban-v0", "--env-arg", "min_pushes=1", "--env-arg", "max_steps=6", "--all-tasks"]


def test_the_gradient_is_that_of_the_log_probabilities(acting_model: Path, make_env, monkeypatch) -> None:
    policy = make_policy(f"hf:{acting_model}", ENV, template="compact")
    [group] = rollout_groups(policy, make_env, [EpisodeSpec(0, 0)], 3)
    weigh = [[[0.5 * a - t for t in range(len(e.turns))] for a, e in enumerate(group)] for _ in range(2)]
    weigh[1] = [[0.0 for _ in row] for row in weigh[1]]
    found, silent = GroupGradients(policy)(group, weigh)
    assert not silent.any()
    parameters = list(policy.model.parameters())
    total = torch.zeros(())
    for row, episode in zip(weigh[0], group, strict=True):
        for a, turn in zip(row, episode.turns, strict=True):
            ids = torch.tensor([[*turn.output.prompt_ids]])
            logprobs = policy.model(ids).logits[0, -1].log_softmax(-1)
            total = total + a * logprobs[turn.output.completion_ids[0]]
    expected = torch.cat([one.reshape(-1) for one in torch.autograd.grad(total, parameters)])
    torch.testing.assert_close(torch.from_numpy(found), expected, rtol=1e-3, atol=1e-4)
    monkeypatch.setattr(gradients, "POSITIONS", 2 * len(group.turns[0].output.prompt_ids) + 2)
    torch.testing.assert_close(GroupGradients(policy)(group, weigh)[0], found, rtol=1e-3, atol=1e-4)
    monkeypatch.setattr(gradients, "POSITIONS", 1)  # fewer rows than methods in a pass: a backward pass for each row
    torch.testing.assert_close(GroupGradients(policy)(group, weigh)[0], found, rtol=1e-3, atol=1e-4)
    monkeypatch.setattr(gradients, "COORDINATES", 100)
    drawn = GroupGradients(policy)(group, weigh)[0]
    assert len(drawn) == 100
    assert set(drawn.round(3)) <= set(found.round(3)) | set((found + 1e-3).round(3)) | set((found - 1e-3).round(3))
    assert GroupGradients.of(RandomPolicy()) is None


def test_a_language_model_is_audited_in_passes_of_few_tokens(import_benchmark, make_env, tmp_path, monkeypatch) -> None:
    made = import_benchmark("_byte_level")
    tokenizer = made.byte_level_tokenizer(ENV, {"size": 6}, episodes=10)
    made.write_model(tmp_path / "qwen", tokenizer, width=32, layers=1, heads=2, context=4096, theta=1e3)
    policy = make_policy(f"hf:{tmp_path}/qwen", ENV, layout="conversation", max_tokens=4)
    [group] = rollout_groups(policy, make_env, [EpisodeSpec(0, 0)], 3)
    weigh = [[[0.5 * a - t for t in range(len(e.turns))] for a, e in enumerate(group)] for _ in range(2)]
    longest = max(len(turn.output.prompt_ids) + len(turn.output.completion_ids) for turn in group.turns)
    monkeypatch.setattr(gradients, "POSITIONS", 3 * longest)
    sizes = []

    def watched(*given, **settings):
        batch = collate(*given, **settings)
        sizes.append(batch["prompt_ids"].numel() + batch["completion_ids"].numel())
        return batch

    monkeypatch.setattr(gradients, "collate", watched)
    of_policy = GroupGradients(policy)
    found = of_policy(group, weigh)[1]
    total = torch.zeros(())
    for row, episode in zip(weigh[1], group, strict=True):
        for a, turn in zip(row, episode.turns, strict=True):
            answer = turn.output.completion_ids
            logits = policy.model(torch.tensor([[*turn.output.prompt_ids, *answer]])).logits[0, -len(answer) - 1 : -1]
            total = total + a * logits.log_softmax(-1).gather(1, torch.tensor(answer)[:, None]).sum()
    expected = torch.cat([one.reshape(-1) for one in torch.autograd.grad(total, [*policy.model.parameters()])])
    torch.testing.assert_close(torch.from_numpy(found), expected, rtol=1e-3, atol=1e-3)
    assert of_policy.prompt_dependence([group], 4).entropy > 0
    assert len(sizes) > 10
    assert max(sizes) <= 4 * longest  # prompts and answers are padded separately


def test_the_dependence_on_prompts_is_that_of_the_log_probabilities(acting_model: Path, make_env) -> None:
    policy = make_policy(f"hf:{acting_model}", ENV, template="compact")
    [group] = rollout_groups(policy, make_env, [EpisodeSpec(0, 0)], 3)
    once = GroupGradients(policy).prompt_dependence([group], 5)
    for turn in group.turns:  # the general way, for answers of several tokens
        turn.output.completion_ids = (*turn.output.completion_ids, 0)
        turn.output.logprobs = (*turn.output.logprobs, 0.0)
    twice = GroupGradients(policy).prompt_dependence([group], 5)
    assert 0 <= once.information <= math.log(5)
    assert twice.entropy > once.entropy


def test_the_command_writes_an_audit(acting_model: Path, tmp_path: Path) -> None:
    sizes = ["--tasks", "2", "--groups", "2", "--attempts", "3", "--states", "4", "--half-width", ".3", "--least", "6"]
    policy = ["--policy", f"hf:{acting_model}", "--policy-arg", "template=compact"]
    out = tmp_path / "audit"
    done = CliRunner().invoke(app, [*COMMAND, *policy, *sizes, "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "core-seconds" in done.output
    told = json.loads((out / "audit.json").read_text())
    assert told["schema"] == "agentgym_flow.credit_audit/1"
    assert told["policy_settings"].items() >= {"template": "compact", "temperature": 1.0, "layout": "turn"}.items()
    assert told["half_width"] <= 0.3
    assert told["precise_states"] >= 4
    assert {row["name"] for row in told["credit"]} >= {"grpo", "g2po", "gagpo", "hgpo", "graphgpo"}
    page = (out / "audit.html").read_text()
    assert "Agreement with measured credit" in page
    assert "credit of " in page
    assert "template=&#34;compact&#34;, " in page
    assert "4 continuations" not in told["preferred"]
    again = CliRunner().invoke(app, [*COMMAND, *policy, *sizes, "--credit", "grpo", "--json"])
    same = json.loads(again.stdout)
    assert {name: same[name] for name in ("steps", "success", "ceiling")} == {
        name: told[name] for name in ("steps", "success", "ceiling")
    }
    assert all(row in told["credit"] for row in same["credit"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--policy", "random", "--credit", "gppo"], "Did you mean"),
        (["--policy", "random", "--half-width", "0"], "half_width"),
        (["--policy", "random", "--skip", "100000000"], "leaves none of the"),
        (["--policy", "expert", "--tasks", "1"], "had attempts that succeeded and attempts that failed"),
    ],
)
def test_what_cannot_be_audited_is_refused(words: list[str], said: str) -> None:
    command = [one for one in COMMAND if one != "--all-tasks" or "--tasks" not in words]
    done = CliRunner().invoke(app, [*command, *words])
    assert done.exit_code == 2
    assert said in done.output


def test_a_half_width_is_refused_before_anything_is_played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentgym_flow.cli.credit.forked_groups", None)
    done = CliRunner().invoke(app, [*COMMAND, "--policy", "random", "--half-width", ".9"])
    assert (done.exit_code, "half_width must be in (0, .5]" in done.output) == (2, True), done.output


def test_an_audit_of_failures_says_that_it_measured_nothing(acting_model: Path) -> None:
    command = [{"min_pushes=1": "min_pushes=3", "max_steps=6": "max_steps=2"}.get(one, one) for one in COMMAND]
    model = ["--policy", f"hf:{acting_model}", "--policy-arg", "template=compact"]
    sizes = ["--tasks", "1", "--groups", "2", "--attempts", "2", "--states", "1", "--half-width", ".5", "--least", "5"]
    done = CliRunner().invoke(app, [*command, *model, *sizes, "--credit", "grpo"])
    assert "all measured advantages are 0" in " ".join(done.output.split()), done.output
    assert "preferred" not in done.output


def test_a_policy_without_a_model_is_audited_by_rank_and_sign() -> None:
    sizes = ["--tasks", "2", "--groups", "2", "--attempts", "4", "--states", "2", "--half-width", ".3"]
    command = [*COMMAND, "--policy", "random", *sizes, "--credit", 'gagpo{"lam": 0}', "--json"]
    told, later = (json.loads(CliRunner().invoke(app, [*command, *more]).stdout) for more in ([], ["--skip", "1"]))
    assert told["tasks"][1] == later["tasks"][0]
    assert told["tasks"][0] not in later["tasks"]
    assert [row["name"] for row in told["credit"]] == ['gagpo{"lam": 0}', "4 continuations"]
    assert (told["preferred"], told["credit"][0]["one"]) == ([], None)


# ---------------------------------------------------------------- training
def test_training_with_measured_turns_counts_their_steps(make_trainer) -> None:
    settings = {"credit": "gagpo", "credit_settings": {"standardise": False}, "max_steps": 1}
    plain = make_trainer(**settings)
    plain.make_batch()
    trainer = make_trainer(**settings, fork_share=0.2, fork_continuations=2)
    trainer.make_batch()
    assert [e.digests() for g in trainer.groups for e in g] == [e.digests() for g in plain.groups for e in g]
    assert trainer.played.episodes == plain.played.episodes
    assert trainer.played.env_steps > plain.played.env_steps


@pytest.mark.parametrize("settings", [{"fork_share": 2}, {"fork_share": 0.5, "credit": "cwrpo"}])
def test_settings_that_cannot_measure_are_refused(make_trainer, settings) -> None:
    with pytest.raises(BadSetting, match="fork_share"):
        make_trainer(**settings)


def test_the_information_of_single_tokens_is_exact(make_trainer) -> None:
    trainer = make_trainer(max_steps=1)
    trainer.make_batch()
    [recorded] = trainer._metrics["train"]["prompt_information"]
    prompts = list(dict.fromkeys(turn.output.prompt_ids for group in trainer.groups for turn in group.turns))
    with torch.no_grad():
        after = torch.stack([trainer.model(torch.tensor([ids])).logits[0, -1].softmax(-1) for ids in prompts[:64]])
    expected = (after * (after / after.mean(0)).log()).sum(1).mean()
    assert recorded == pytest.approx(float(expected), abs=1e-5)


@pytest.mark.nightly
def test_a_real_language_model_is_audited(language_model: Path, tmp_path: Path) -> None:
    model = [
        "--policy",
        f"hf:{language_model}",
        "--policy-arg",
        "dtype=bfloat16",
        "--policy-arg",
        "layout=conversation",
    ]
    short = ["--policy-arg", "max_tokens=6", "--env-arg", "size=5", "--env-arg", "max_steps=2", "--all-tasks"]
    sizes = ["--tasks", "1", "--groups", "2", "--attempts", "2", "--states", "1", "--half-width", ".5", "--least", "5"]
    out = tmp_path / "audit"
    done = CliRunner().invoke(app, ["credit", "audit", "Sokoban-v0", *model, *short, *sizes, "--out", str(out)])
    assert done.exit_code == 0, done.output
    told = json.loads((out / "audit.json").read_text())
    assert told["tokens"] > told["continuations"] > 0
    assert told["prompt_entropy"] > 0

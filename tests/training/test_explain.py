"""Why a run does not learn: small real runs with a planted fault, and what is said of them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from typer.testing import CliRunner

from agentgym_flow.cli import app
from agentgym_flow.envs.sokoban.env import SokobanEnv
from agentgym_flow.episodes import Group
from agentgym_flow.errors import BadData, TrainingFailed
from agentgym_flow.report.causes import HARMS
from agentgym_flow.report.explain import Expert, RunRecord, causes, explain
from agentgym_flow.rewards.credit import CREDIT
from agentgym_flow.training import trainer as trainer_module
from agentgym_flow.training.diagnostics import credit_metrics
from agentgym_flow.training.group_source import OwnRollout
from agentgym_flow.training.trainer import AgentTrainer

Trainers = Callable[..., AgentTrainer]
Advantages = list[list[list[float]]]


def inverted(batch: Sequence[Group]) -> Advantages:
    """GRPO with the wrong sign."""
    return [[[-a for a in turns] for turns in group] for group in CREDIT["grpo"](batch)]


def nothing(batch: Sequence[Group]) -> Advantages:
    """No credit for anybody."""
    return [[[0.0] * len(one.turns) for one in group] for group in batch]


def record_of(trainer: AgentTrainer, **others: Any) -> RunRecord:
    """What a run leaves behind, from a trainer that has trained."""
    metrics: dict[str, list[tuple[int, float]]] = {}
    for logs in trainer.state.log_history:
        for name, value in logs.items() if "loss" in logs else ():
            metrics.setdefault(name, []).append((int(logs["step"]), float(value)))
    names = ("credit", "credit_settings", "learning_rate", "muon_learning_rate", "max_steps", "warmup_steps", "beta")
    names += ("temperature", "groups_per_batch", "max_grad_norm", "stop_when")  # type: ignore[assignment]
    return RunRecord({name: getattr(trainer.args, name) for name in names}, {}, metrics, **others)


def first_cause(trainer: AgentTrainer, **others: Any) -> str:
    """The cause that is named first after training."""
    trainer.train()
    [first, *_] = explain(record_of(trainer, **others)).findings
    return first.cause


@pytest.fixture
def run(make_trainer: Trainers, warm: tuple[Any, Any]) -> Trainers:
    """Makes a trainer whose policy acts; it trains on one batch."""

    def make(**settings: Any) -> AgentTrainer:
        return make_trainer(
            **{"model": warm, "credit": "grpo", "learning_rate": 2e-4, "muon_learning_rate": 1e-3, **settings}
        )

    return make


def on_groups(monkeypatch: pytest.MonkeyPatch, change: Callable[[list[Group]], list[Group]]) -> None:
    play = OwnRollout._play
    monkeypatch.setattr(OwnRollout, "_play", lambda self, *given: change(play(self, *given)))


def with_keys(groups: list[Group], key: Callable[[str], str]) -> list[Group]:
    for group in groups:
        for one in group:
            one.turns = [replace(turn, state_key=key(turn.state_key)) for turn in one.turns]
    return groups


# ---------------------------------------------------------------- real runs
def test_nothing_is_said_of_a_healthy_run(run: Trainers) -> None:
    trainer = run()
    trainer.train()
    found = explain(record_of(trainer))
    assert found.findings == []
    assert {"audit", "evaluation"} <= found.not_judged.keys()


@pytest.mark.parametrize(
    ("settings", "cause"),
    [
        ({"credit": f"{__name__}:inverted"}, "credit"),
        ({"credit": f"{__name__}:nothing"}, "credit"),
        ({"learning_rate": 1e-9, "muon_learning_rate": 1e-9}, "small_steps"),
        ({"warmup_steps": 1000}, "schedule"),
        ({"learning_rate": 0.05, "muon_learning_rate": 0.5}, "large_steps"),
        ({"max_grad_norm": 1e-9, "muon_learning_rate": None}, "grad_clip"),
        ({"beta": 20.0, "learning_rate": 1e-4, "muon_learning_rate": 5e-4}, "kl"),
    ],
)
def test_settings_that_stop_learning_are_named(run: Trainers, settings: dict[str, Any], cause: str) -> None:
    assert first_cause(run(**settings)) == cause


def test_a_policy_that_does_not_answer_is_named(make_trainer: Trainers) -> None:
    assert first_cause(make_trainer(credit="grpo")) == "unparsed"


def test_other_prompts_in_training_are_named(run: Trainers, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = trainer_module.rows
    monkeypatch.setattr(
        trainer_module,
        "rows",
        lambda *given, **settings: [replace(row, prompt=row.prompt[5:]) for row in rows(*given, **settings)],
    )
    for merged in (True, False):
        trainer = run(merge_prompts=merged)
        trainer.train()
        assert "drift" in {one.cause for one in explain(record_of(trainer)).findings}


def test_groups_of_one_are_named(run: Trainers, monkeypatch: pytest.MonkeyPatch) -> None:
    on_groups(monkeypatch, lambda groups: [Group([one]) for group in groups for one in group])
    assert first_cause(run()) == "lone"


@pytest.mark.parametrize(("key", "cause"), [(lambda _: "same", "key_merges"), (None, "key_splits")])
def test_state_keys_that_say_too_little_or_too_much_are_named(
    run: Trainers, monkeypatch: pytest.MonkeyPatch, key: Callable[[str], str] | None, cause: str
) -> None:
    count = iter(range(1 << 30))
    on_groups(monkeypatch, lambda groups: with_keys(groups, key or (lambda _: str(next(count)))))
    assert first_cause(run(credit="gigpo")) == cause


def test_weights_that_round_updates_away_are_named(run: Trainers, warm: tuple[Any, Any]) -> None:
    model, tokenizer = warm
    half = (model.to(torch.bfloat16), tokenizer)
    assert first_cause(run(model=half, muon_learning_rate=None, learning_rate=1e-6)) == "rounding"


def test_an_optimizer_of_other_weights_is_named(run: Trainers) -> None:
    trainer = run()
    for group in trainer.optimizer.param_groups:
        group["params"] = [torch.nn.Parameter(one.detach().clone()) for one in group["params"]]
    assert first_cause(trainer) == "frozen"


def test_a_frozen_model_is_named(run: Trainers, warm: tuple[Any, Any]) -> None:
    for name, parameter in warm[0].named_parameters():
        parameter.requires_grad_("ln" in name)
    assert first_cause(run(muon_learning_rate=None)) == "frozen"


def test_a_run_that_ended_with_an_error_is_explained_by_it(run: Trainers, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = run()
    monkeypatch.setattr(SokobanEnv, "_apply", lambda *_: 1 / 0)
    with pytest.raises(TrainingFailed) as failed:
        trainer.train()
    record = record_of(trainer)
    for error, cause in ((str(failed.value), "lost"), ("the loss is nan at step 1", "large_steps"), ("disk", "failed")):
        [found] = explain(replace(record, summary={"status": "failed", "error": error})).findings
        assert (found.cause, found.evidence[0]) == (cause, error)


def test_a_budget_that_is_too_short_is_told_from_tasks_that_are_too_hard(run: Trainers) -> None:
    trainer = run()
    trainer.train()
    record = record_of(trainer)
    lost = {**record.metrics, "success": [(2, 0.0)], "frac_reward_zero_std": [(2, 1.0)], "truncated": [(2, 1.0)]}
    for expert, cause in ((Expert(0.1, 20, 20), "truncated"), (Expert(1.0, 9, 20), "too_hard"), (None, "too_hard")):
        assert explain(replace(record, metrics=lost, expert=expert)).findings[0].cause == cause


# ---------------------------------------------------------------- the folder and the command
@pytest.fixture
def folder(run: Trainers, tmp_path: Path) -> Path:
    """A run folder with the metrics of a real run whose learning rate is far too small."""
    trainer = run(learning_rate=1e-9, muon_learning_rate=1e-9)
    trainer.train()
    record = record_of(trainer)
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({**record.settings, "env_id": "Nowhere-v0"}))
    (tmp_path / "summary.json").write_text(json.dumps({"status": "running"}))
    lines = [logs for logs in trainer.state.log_history if "loss" in logs]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"step": 9, "lo')
    return tmp_path


def test_the_command_says_cause_evidence_and_setting(folder: Path) -> None:
    said = CliRunner().invoke(app, ["explain", str(folder)])
    assert said.exit_code == 1
    assert "too small to change the policy (small_steps)" in said.output
    assert "learning_rate" in said.output
    assert "at update 2" in said.output
    told = json.loads(CliRunner().invoke(app, ["explain", str(folder), "--json"]).stdout)
    assert [one["cause"] for one in told["findings"]] == ["small_steps"]


def test_an_evaluation_of_something_else_is_named(folder: Path) -> None:
    own = {
        "schema": "agentgym_flow.episode/1",
        "env_id": "a",
        "kwargs": {"size": 6},
        "max_steps": 20,
        "split": "test",
        "meta": {},
    }
    (folder / "evaluations").mkdir()
    with gzip.open(folder / "evaluations" / "after_sampled.jsonl.gz", "wt") as file:
        file.write(json.dumps(own) + "\n")
    other = folder / "other.jsonl"
    other.write_text(json.dumps({**own, "kwargs": {"size": 8}, "meta": {"template": "choice"}}) + "\n")
    record = RunRecord.read(folder, log=other)
    assert record.differences == ["size: 8 in place of 6", "template: 'choice' in place of None"]
    assert [one.cause for one in explain(record).findings] == ["small_steps", "evaluation"]
    other.write_text(json.dumps(own) + "\n")
    assert [one.cause for one in explain(RunRecord.read(folder, log=other)).findings] == ["small_steps"]


def test_an_evaluation_on_other_tasks_of_the_same_split_is_named(folder: Path) -> None:
    def write(file: Path, tasks: Sequence[str], end: str = "") -> None:
        line = {"schema": "agentgym_flow.episode/1", "env_id": "a", "kwargs": {}, "max_steps": 20, "split": "test"}
        file.write_text("".join(json.dumps({**line, "task": ord(task)}) + "\n" for task in tasks) + end)

    (folder / "evaluations").mkdir()
    own, other = folder / "evaluations" / "after_sampled.jsonl.gz", folder / "other.jsonl"
    write(folder / "own.jsonl", "abcdef")
    own.write_bytes(gzip.compress((folder / "own.jsonl").read_bytes()))
    for tasks, end, found in (("ab", "", []), ("abcdefghij", '{"sch', []), ("xyza", "", ["1 of 4 tasks are the same"])):
        write(other, tasks, end)
        assert RunRecord.read(folder, log=other).differences == found
    own.write_bytes(own.read_bytes()[:-9])  # as of a killed process
    assert RunRecord.read(folder, log=other).own is not None


def test_credit_that_an_audit_rejects_is_named(folder: Path) -> None:
    rows = [{"name": name, "one": {"value": value}, "many": 0.5} for name, value in (("grpo", 0.1), ("gagpo", 0.6))]
    (folder / "audit.json").write_text(json.dumps({"schema": "agentgym_flow.credit_audit/1", "credit": rows}))
    found = explain(RunRecord.read(folder, audit=folder / "audit.json")).findings
    assert [one.cause for one in found] == ["audit", "small_steps"]
    assert found[0].evidence[0] == "cosine for one group: grpo 0.10, gagpo 0.60"


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadData, match=r"config\.yaml"):
        RunRecord.read(tmp_path)
    assert CliRunner().invoke(app, ["explain", str(tmp_path)]).exit_code == 2


def test_files_of_another_kind_are_refused(folder: Path) -> None:
    file = folder / "summary.json"
    for given in ("--audit", "--evaluation"):
        said = CliRunner().invoke(app, ["explain", str(folder), given, str(file)])
        assert said.exit_code == 2


def test_a_run_that_has_just_begun_is_not_judged_by_figures_that_it_lacks(folder: Path) -> None:
    (folder / "metrics.jsonl").unlink()
    found = explain(RunRecord.read(folder))
    assert found.findings == []
    assert found.not_judged["small_steps"] == "weights/step"


def test_damaged_lines_and_values_count_as_not_recorded(folder: Path) -> None:
    lines = (folder / "metrics.jsonl").read_text().splitlines()[:-1]
    odd = [
        "[1]",
        '"step"',
        '{"step": "3", "loss": 1}',
        f'{{"step": 3, "grad_norm": {10**400}}}',
        '{"step": 3, "lo',
        "[",
    ]
    (folder / "metrics.jsonl").write_text("\n".join(['{"step": 0, "entropy": "high"}', *odd, *lines, '{"st']) + "\n")
    assert [one.cause for one in explain(RunRecord.read(folder)).findings] == ["small_steps"]


def test_damaged_results_and_settings_are_not_judged(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = yaml.safe_load((folder / "config.yaml").read_text())
    (folder / "config.yaml").write_text(yaml.safe_dump({**settings, "temperature": "hot", "env_kwargs": "[red]none"}))
    (folder / "summary.json").write_text('{"before": [NaN], "after": {"also_on": 3, "sampled": {"success": NaN}}}')
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('"}\n{"step": 4, "truncated": 1}\n' * 9)  # asks for the expert
    monkeypatch.chdir(folder)
    said = CliRunner().invoke(app, ["explain", ".", "--json"])
    told = json.loads(said.stdout, parse_constant=pytest.fail)
    assert [one["cause"] for one in told["findings"]] == ["small_steps"]
    assert told["not_judged"]["temperature"].startswith("intact settings and results (ValueError: ")
    assert CliRunner().invoke(app, ["explain", "."]).output.startswith(f"{folder.name}: ")


def test_a_run_that_its_evaluation_shows_to_have_learnt_is_not_too_easy() -> None:
    def found(after: float) -> float | None:
        metrics = {"frac_reward_zero_std": [(1, 1.0)], "success": [(1, 0.97)]}
        summary = {
            "before": {"sampled": {"success": 0.9}},
            "after": {"sampled": {"success": after}, "also_on": {"harder": {"success": 0.0}}},
        }
        return HARMS["too_easy"](RunRecord({}, summary, metrics))

    assert (found(0.91), found(0.99)) == (1.0, 0.0)


def test_a_run_without_a_summary_is_explained(folder: Path) -> None:
    (folder / "summary.json").unlink()
    assert [one.cause for one in explain(RunRecord.read(folder)).findings] == ["small_steps"]


def test_what_is_shown_may_differ_between_equal_states(run: Trainers) -> None:
    trainer = run()
    trainer.make_batch()
    groups = trainer.groups
    none = [[[0.0] * len(one.turns) for one in group] for group in groups]
    assert credit_metrics(groups, none, "success")["states/conflicts"] == 0
    for n, turn in enumerate(turn for group in groups for turn in group.turns):
        turn.next_observation += f" Turn {n}."
    assert credit_metrics(groups, none, "success")["states/conflicts"] == 0
    for n, turn in enumerate(turn for group in groups for turn in group.turns):
        turn.reward += n
    assert credit_metrics(groups, none, "success")["states/conflicts"] == 1
    for turn in (turn for group in groups for turn in group.turns):
        turn.state_key = turn.next_state_key = "same"
    assert credit_metrics(groups, none, "success")["states/keys"] == 1


# ---------------------------------------------------------------- the table
def test_every_cause_has_a_harm_and_every_planted_fault_a_cause(root: Path) -> None:
    names = [cause.name for cause in causes()]
    assert set(names) == HARMS.keys()
    planted = yaml.safe_load((root / "benchmarks" / "planted_run_faults.yaml").read_text("utf-8"))
    for faults, healthy in (
        (planted["faults"], planted["healthy"]),
        (
            [one for one in planted["fourth"] if "cause" in one],
            [one for one in planted["fourth"] if "cause" not in one],
        ),
    ):
        assert {one["cause"] for one in faults} <= set(names)
        assert len({one["cause"] for one in faults}) >= 20
        assert len(healthy) >= 10
    assert all(0 < cause.threshold <= 1 for cause in causes())

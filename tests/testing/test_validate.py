"""The report card: planted defects are found and named, honest environments pass, and time is bounded."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
import validate_defects
from typer.testing import CliRunner
from validate_defects import DEFECTS

from agentgym_flow.cli import app, validate
from agentgym_flow.testing.card import (
    STOPPED,
    Finding,
    ReportCard,
    ValidationRequest,
    contract,
    errors_once,
    exploits,
    figures,
    render_card,
    run_part,
)

MODULE = validate_defects.__name__
ADVISED = {"steps_per_second", "random_floor"}
"""Findings that are advice and fail nothing."""


def findings(env_id: str, module: str, until: str | None = None, seconds: float = 60.0) -> dict[str, Finding]:
    """Return the findings of both parts without training, made in this process, up to the one that is looked for."""
    request = ValidationRequest(env_id, {}, [module], seconds)
    found: dict[str, Finding] = {}
    parts = sorted(
        (contract, exploits, figures), key=lambda part: until not in {one.name for one in part.plan(request)}
    )
    for part in parts:
        for finding in part.work(request):
            found[finding.name] = finding
            if finding.name == until:
                return found
    return found


@pytest.mark.parametrize("env_id", DEFECTS)
def test_a_planted_defect_is_found_and_named(env_id: str) -> None:
    name = DEFECTS[env_id]
    finding = findings(env_id, MODULE, name, 10.0 if name == "steps_per_second" else 60.0)[name]
    assert finding.status == ("advice" if name in ADVISED else "fail"), finding
    assert finding.fails is (name not in ADVISED)
    assert finding.said
    assert finding.fix


def test_an_honest_environment_passes() -> None:
    found = findings("example/Cave-v0", "agentgym_flow.testing.example")
    assert {name for name, finding in found.items() if finding.status != "ok"} == set()
    planned = [
        *contract.plan(ValidationRequest("example/Cave-v0", {}, [], 1.0)),
        *exploits.plan(ValidationRequest("", {}, [], 1.0)),
        *figures.plan(ValidationRequest("", {}, [], 1.0)),
    ]
    assert list(found) == [finding.name for finding in planned]
    card = ReportCard("example/Cave-v0", {}, list(found.values()), 1.0)
    assert (card.passed, card.verdict()) == (True, "All essential checks hold.")


def test_an_environment_that_hangs_ends_with_the_time() -> None:
    begun = time.monotonic()
    request = ValidationRequest("defect/HangsOnNonsense-v0", {}, [MODULE], 3.0)
    found = {finding.name: finding for finding in run_part(validate.CONTRACT, request)}
    assert time.monotonic() - begun < 30
    [late] = [finding for finding in found.values() if "during this check" in finding.said]
    assert (late.status, late.fails) == ("unfinished", True)
    assert "before this check" in found["any_sequence_of_calls"].said


def test_an_environment_that_ends_the_process_is_named() -> None:
    request = ValidationRequest("defect/ExitsOnNonsense-v0", {}, [MODULE], 60.0)
    seen: list[Finding] = []
    found = {finding.name: finding for finding in run_part(validate.CONTRACT, request, seen.append)}
    [ended] = [finding for finding in found.values() if "process ended in this check" in finding.said]
    assert (ended.status, ended.fails) == ("fail", True)
    assert found["any_sequence_of_calls"].status == "unfinished"
    assert seen
    assert all(finding.status in ("ok", "skipped", "advice") for finding in seen)


def test_an_environment_may_print() -> None:
    for name in ("other_processes_give_equal_episodes", "start_up"):
        assert findings("defect/Prints-v0", MODULE, name)[name].status == "ok"


def test_processes_that_the_environment_leaves_end_with_the_part() -> None:
    begun = time.monotonic()
    found = run_part(validate.FIGURES, ValidationRequest("defect/LeavesAProcess-v0", {}, [MODULE], 2.0))
    assert time.monotonic() - begun < 30
    assert found[0].name == "task_keys"


def test_an_error_in_half_characters_is_told() -> None:
    found = run_part(validate.FIGURES, ValidationRequest("defect/RaisesHalfACharacter-v0", {}, [MODULE], 20.0))
    assert "RuntimeError: no cave ?" in found[0].said


@pytest.mark.nightly
def test_training_ends_with_the_time_and_says_what_was_learnt() -> None:
    pytest.importorskip("trl")
    [finding, reward] = run_part(
        validate.LEARNING, ValidationRequest("example/Cave-v0", {}, ["agentgym_flow.testing.example"], 240.0)
    )
    assert reward.status == "ok", reward
    assert finding.status in ("ok", "advice"), finding
    assert finding.figures["updates"] >= 1
    assert "test tasks" in finding.said


def run(*words: str, code: int) -> str:
    result = CliRunner().invoke(app, ["validate", *words])
    assert result.exit_code == code, result.output
    return result.output


@pytest.mark.heavy
def test_the_command_writes_a_table_a_page_and_json(tmp_path: Path) -> None:
    example = ("example/Cave-v0", "--import", "agentgym_flow.testing.example")
    out = tmp_path / "card"
    said = run(*example, "--env-arg", "rooms=3", "--no-train", "--out", str(out), code=0)
    assert "All essential checks hold." in said
    assert "Left out by --no-train." in said
    told = json.loads((out / "report_card.json").read_text())
    assert (told["env_id"], told["kwargs"], told["passed"]) == ("example/Cave-v0", {"rooms": 3}, True)
    page = (out / "report_card.html").read_text()
    assert "default-src &#39;none&#39;" in page
    assert not re.search(r"<script|https?://|src=", page)
    assert "What to fix" not in page
    assert "report_card.html" in run(*example, "--out", str(out), code=2)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("CannotBeMade", "RuntimeError: no cave here"),
        ("ExitsWhenMade", "SystemExit: 0"),
        ("EndsWhenMade", "The process ended in this check. "),
    ],
)
def test_an_environment_that_cannot_be_made_is_a_finding(name: str, said: str) -> None:
    told = json.loads(run(f"{MODULE}:defect/{name}-v0", "--json", code=1))
    [finding] = told["findings"]
    assert (finding["name"], finding["status"], finding["said"]) == ("made", "fail", said)


@pytest.mark.parametrize("words", [("sleepy:Maze-v0",), ("Maze-v0", "--import", "sleepy")])
def test_a_module_that_does_not_come_back_is_a_finding(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sleepy.py").write_text("import time\ntime.sleep(300)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("agentgym_flow.testing.card._GRACE", 0.0)
    begun = time.monotonic()
    told = json.loads(run(*words, "--minutes", "0.2", "--json", code=1))
    assert time.monotonic() - begun < 30
    [finding] = told["findings"]
    assert (finding["name"], finding["status"]) == ("made", "unfinished")
    assert "6 seconds were over" in finding["said"]
    assert "Importing" in finding["fix"]


def test_a_module_that_raises_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    told = json.loads(run("broken:Maze-v0", "--json", code=1))
    assert (
        told["findings"][0]["said"] == "module 'broken' raised ZeroDivisionError: division by zero (broken.py, line 1)"
    )
    assert "no module 'missing'" in run("missing:Maze-v0", "--json", code=2)
    assert "--env-arg" not in run("Sokoban-v0", "--env-arg", "boxen=2", code=2)


def test_one_error_that_stops_many_checks_is_reported_once() -> None:
    request = ValidationRequest("defect/EarnsNaN-v0", {}, [MODULE], 60.0)
    found = list(contract.work(request))
    stopped = [finding for finding in found if "canonical JSON has no place for nan" in finding.said]
    assert len(stopped) > 5
    assert all(finding.fix.startswith(STOPPED) for finding in stopped if finding.essential)
    once = errors_once(found)
    [told] = [finding for finding in once if "canonical JSON has no place for nan" in finding.said]
    assert (told.status, told.fails, told.fix) == ("fail", True, STOPPED)
    assert f"This error stopped {len(stopped) - 1} more checks: " in told.said
    for finding in once:
        if finding.name in {other.name for other in stopped} - {told.name}:
            assert (finding.status, finding.fix) == ("skipped", "")
            assert told.title in finding.said
            assert finding.title in told.said
    assert [finding.name for finding in once] == [finding.name for finding in found]
    [warned] = [finding for finding in once if finding.name == "check_env_without_warning"]
    assert warned.said == "UserWarning: WARN: The reward is a NaN value."
    assert warned.fix == contract.NOTES.fix[warned.name]


def test_different_errors_and_failed_assertions_are_reported_each() -> None:
    def stopped(name: str, error: str, essential: bool = True) -> Finding:
        return Finding("contract", name, name, "fail", "", error, "Fix.", essential, {"stopped_by": error})

    plain = Finding("contract", "c", "c", "fail", "", "KeyError: 3", "Fix.", True)
    advice = stopped("a", "KeyError: 1", essential=False)
    found = [advice, stopped("b", "KeyError: 2"), plain, stopped("d", "OSError: 2")]
    once = errors_once(found)
    assert [finding.status for finding in once] == ["skipped", "fail", "fail", "fail"]
    assert once[1].said == "KeyError: 2\nThis error stopped 1 more check: a."
    assert once[2:] == found[2:]


def test_text_of_the_environment_is_escaped(tmp_path: Path) -> None:
    finding = Finding("contract", "x", "X", "fail", "", "<script>alert(1)</script>", "Fix & see.", True)
    page = render_card(ReportCard("a/B-v0", {"k": "<b>"}, [finding], 60.0))
    assert "&lt;script&gt;" in page
    assert "<script>" not in page
    assert "1 essential check does not hold." in page


def test_without_pytest_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    find: Any = validate.find_spec
    monkeypatch.setattr(validate, "find_spec", lambda name: None if name == "hypothesis" else find(name))
    assert "agentgym_flow[test]" in run("Sokoban-v0", code=2)


def test_the_json_of_a_card_holds_no_nan(tmp_path: Path) -> None:
    """JSON has neither NaN nor infinities, and other languages refuse to read them."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    run("defect/EarnsNaN-v0", "--import", MODULE, "--no-train", "--out", str(tmp_path), code=1)
    card = json.loads((tmp_path / "report_card.json").read_text(), parse_constant=refuse)
    [floor] = [finding for finding in card["findings"] if finding["name"] == "random_floor"]
    assert floor["figures"]["mean_return"] is None
    assert floor["figures"]["episodes"] > 0


def test_the_episode_of_an_exploit_can_be_watched_and_does_not_outlive_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out, shown = tmp_path / "a card", {exploits.EPISODE: {"actions": ["take"]}}
    made = Finding(
        "contract", "made", "It can be made", "ok", figures={"env_id": "E-v0", "kwargs": {}, "modules": ["m"]}
    )
    monkeypatch.setattr(validate, "run_part", lambda *_: [made])

    def printed_for(figures: dict[str, Any]) -> str:
        finding = Finding("rewards", "farmed", "It cannot be farmed", "fail", figures=figures)
        monkeypatch.setattr(validate, "_findings", lambda *_: [finding])
        return CliRunner().invoke(app, ["validate", "E-v0", "--out", str(out), "--force"]).output

    assert f"Watch: agentgym-flow view '{out / 'exploits.jsonl'}' --import m --open" in printed_for(shown)
    assert json.loads((out / "exploits.jsonl").read_text()) == shown[exploits.EPISODE]
    printed_for({})
    assert not (out / "exploits.jsonl").exists()

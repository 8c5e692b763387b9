"""The twin of a recorded run: what it reads from a trace, and how well it predicts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agentgym_flow.cli.app import app
from agentgym_flow.cli.simulate import Simulate
from agentgym_flow.dataflow.simulator import simulate
from agentgym_flow.dataflow.simulator.calibration import calibrated, duration, told
from agentgym_flow.dataflow.simulator.scenario import Region, Scenario
from agentgym_flow.dataflow.trace import Event
from agentgym_flow.errors import BadData, BadSetting

REAL = Scenario(
    staleness=1, updates=12, groups=4, size=4, median=20.0, train_seconds=(25.0,), train_sigma=0.2,
    regions=(Region("here", 3, 2),), gap=0.5, load_seconds=3.0, ends=True,
)  # fmt: skip


def recorded(scenario: Scenario, seed: int = 0) -> list[Event]:
    events: list[Event] = []
    simulate(scenario, seed, events.append)
    return sorted(events, key=lambda event: event["at"])


@pytest.mark.parametrize(
    ("mode", "staleness", "workers"),
    [("fixed", 1, 3), ("fixed", 0, 6), ("fixed", 4, 1), ("fixed", 4, 6), ("ready", 2, 6)],
)
def test_one_run_predicts_those_with_other_workers_and_staleness(mode: str, staleness: int, workers: int) -> None:
    other = {"mode": mode, "staleness": staleness}
    truth = simulate(replace(REAL, **other, regions=(Region("here", workers, 2),))).hours
    twin = calibrated(recorded(REAL))
    (region,) = twin.regions
    assert simulate(replace(twin, **other, regions=(replace(region, workers=workers),))).hours == pytest.approx(
        truth, rel=0.05
    )


def test_a_twin_has_the_times_batches_and_places_of_its_run() -> None:
    events = recorded(replace(REAL, failures=0.1))
    twin = calibrated(events)
    assert (twin.updates, twin.groups, twin.size, twin.regions) == (12, 4, 4, (Region("recorded", 3, 2),))
    assert twin.load_seconds == 3.0
    assert twin.gap == pytest.approx(0.5, rel=0.01)
    assert twin.train_seconds[0] == pytest.approx(25.0, rel=0.2)
    assert 0.04 < twin.failures < 0.2
    slow = simulate(replace(twin, failures=0.5))
    assert slow.hours > simulate(replace(twin, failures=0.0)).hours
    assert slow.trained == 12 * 16 or slow.dropped > 0
    assert duration(events) == pytest.approx(3600 * simulate(replace(REAL, failures=0.1)).hours, rel=1e-3)
    assert told(twin).startswith("192 episodes of ")


def test_a_trace_that_has_no_update_or_several_streams_is_refused() -> None:
    events = recorded(REAL)
    with pytest.raises(BadData, match="no whole update"):
        calibrated([event for event in events if event["what"] != "ack"])
    with pytest.raises(BadData, match="2 streams"):
        calibrated([*events, {**next(one for one in events if one["what"] == "lease"), "stream": "another"}])
    for wrong in ({"gap": -1.0}, {"failures": 1.0}, {"load_seconds": -1.0}):
        with pytest.raises(BadSetting, match="below 1"):
            replace(REAL, **wrong)


def test_the_command_compares_numbers_of_workers_and_replaces_what_is_given(tmp_path: Path) -> None:
    (tmp_path / "dataflow").mkdir()
    lines = (json.dumps(event) for event in recorded(REAL))
    (tmp_path / "dataflow" / "trace.jsonl").write_text("\n".join(lines), "utf-8")

    def rows(*options: str) -> list[dict[str, Any]]:
        words = ["dataflow", "simulate", "fixed:0", "fixed:4", "--like", str(tmp_path), *options]
        result = CliRunner().invoke(app, [*words, "--json"])
        assert result.exit_code == 0, result.output
        return [json.loads(line) for line in result.stdout.splitlines()]

    found = rows("--workers", "2", "--workers", "8")
    settings = [(row["mode"], row["workers"]) for row in found]
    assert settings == [("fixed S=0", 2), ("fixed S=4", 2), ("fixed S=0", 8), ("fixed S=4", 8)]
    hours = [row["hours"] for row in found]
    assert min(hours) == hours[3] < max(hours) == hours[0]
    assert [row["trained"] for row in found] == [12 * 16] * 4
    faster = rows("--workers", "2", "--train", "1", "--median", "1", "--sigma", "0", "--updates", "3")[0]
    assert (faster["trained"], faster["length"]) == (3 * 16, 1.0)
    shown = CliRunner().invoke(app, ["dataflow", "simulate", "fixed:4", "--like", str(tmp_path), "--workers", "2"])
    assert "fastest: fixed S=4 with 2 workers" in " ".join(shown.output.split())
    several = CliRunner().invoke(app, ["dataflow", "simulate", "--region", "a=1", "--region", "b=1", "--workers", "2"])
    assert several.exit_code == 2


@pytest.mark.parametrize("damage", ["no slots", "no time passes", "weights of another form", "no publish"])
def test_a_damaged_trace_is_named(damage: str, tmp_path: Path) -> None:
    events = [dict(event) for event in recorded(replace(REAL, updates=3, groups=2, size=2))]
    for event in events:
        if damage == "no slots" and event["what"] == "commit":
            del event["slots"]
        elif damage == "no time passes":
            event["at"] = 0.0
        elif damage == "weights of another form" and event["what"] == "lease":
            event["weights"] = 1
    if damage == "no publish":
        events = [event for event in events if event["what"] not in ("publish", "done")]
    file = tmp_path / "trace.jsonl"
    file.write_text("\n".join(map(json.dumps, events)))
    with pytest.raises(BadData, match="no whole update" if damage == "no publish" else "is damaged"):
        Simulate(like=file, modes=["fixed:1"]).run()

"""The part of the report card that trains keeps to its time, and always reports what was found."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import pytest

from agentgym_flow.testing.card import Finding, ValidationRequest, run_part
from agentgym_flow.training import learning_check

REQUEST = ValidationRequest("example/Cave-v0", {}, ["agentgym_flow.testing.example"], 3.0)


def test_what_takes_too_long_is_named_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def learn(request: ValidationRequest, folder: Path, begun: float, progress: learning_check._Progress) -> None:
        progress.during, progress.updates = "the last evaluation", 7
        while True:
            with suppress(Exception):  # as code of others would
                time.sleep(60)

    monkeypatch.setattr(learning_check, "_learn", learn)
    begun = time.monotonic()
    [finding] = learning_check.work(REQUEST)
    assert time.monotonic() - begun < 3
    assert finding.status == "advice"
    assert finding.said == "No gain measured in 7 updates: 3 seconds were over during the last evaluation."
    assert "--minutes" in finding.fix


@pytest.mark.parametrize(
    ("slower", "settings"),
    [
        (1, {"warm_start_levels": 40, "warm_start_updates": 60, "eval_episodes": 200}),
        (20, {"warm_start_levels": 40, "warm_start_updates": 17, "eval_episodes": 24}),
        (1000, {"warm_start_levels": 1, "warm_start_updates": 1, "eval_episodes": 16}),
    ],
)
def test_slow_environments_get_less_of_everything(slower: float, settings: dict[str, int]) -> None:
    speed = learning_check._Speed(0.01 * slower, 0.05 * slower, 0.5, 0.03 * slower)
    found = learning_check._affordable(speed, 10.0, 40, 100.0, 90.0)
    assert settings.items() <= found.items(), found
    assert found["per_device_train_batch_size"] == (24 if slower == 1 else 16)


@pytest.mark.nightly
def test_a_short_time_gives_a_result() -> None:
    begun = time.monotonic()
    [finding] = run_part(
        "agentgym_flow.training.learning_check", ValidationRequest(REQUEST.env_id, {}, REQUEST.modules, 45.0)
    )
    assert time.monotonic() - begun < 50
    assert isinstance(finding, Finding)
    assert finding.status in ("ok", "advice"), finding
    assert "updates" in finding.figures

"""The part of the report card that trains keeps to its time, and always reports what was found."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from agentgym_flow.core import make_text_env
from agentgym_flow.episodes import Episode, EpisodeRecorder
from agentgym_flow.testing.card import Finding, ValidationRequest, run_part
from agentgym_flow.training import learning_check

sys.path.append(str(Path(__file__).parents[1] / "testing"))
importlib.import_module("planted_exploits")  # registers its environments
REQUEST = ValidationRequest("example/Cave-v0", {}, ["agentgym_flow.testing.example"], 3.0)


def test_what_takes_too_long_is_named_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def learn(request: ValidationRequest, folder: Path, begun: float, progress: learning_check._Progress) -> None:
        progress.during, progress.updates = "the last evaluation", 7
        while True:
            with suppress(Exception):  # as code of others would
                time.sleep(60)

    monkeypatch.setattr(learning_check, "_learn", learn)
    begun = time.monotonic()
    [finding, exploit] = learning_check.work(REQUEST)
    assert (exploit.status, exploit.essential) == ("skipped", True)
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
    [finding, exploit] = run_part(
        "agentgym_flow.training.learning_check", ValidationRequest(REQUEST.env_id, {}, REQUEST.modules, 45.0)
    )
    assert time.monotonic() - begun < 50
    assert isinstance(finding, Finding)
    assert finding.status in ("ok", "advice"), finding
    assert "updates" in finding.figures
    assert exploit.status in ("ok", "skipped"), exploit


def recorded(env_id: str, actions: Sequence[str] | None) -> list[Episode]:
    """Return an episode of 12 tasks: of the expert, or with the same actions in turn."""
    played = []
    recorder = EpisodeRecorder(make_text_env(env_id, split="test"))
    for task in range(12):
        played.append(recorder.reset(seed=task, task=task))
        while not recorder.done:
            expert = recorder.env.expert_action() if actions is None else None
            recorder.step(expert or (actions or [""])[recorder.env.steps % len(actions or [""])])
    return played


@pytest.mark.parametrize(
    ("name", "actions", "status"),
    [
        ("Corridor", ["put"], "ok"),
        ("PaysForToolCalls", ["look[tufel]"], "fail"),
        ("PaysForNovelty", [f"look[{n}]" for n in range(8)], "advice"),  # pays more than before, less than success
        ("Quiz", ["look[tufel]"], "ok"),
        ("Quiz", None, "ok"),
    ],
)
def test_a_policy_that_earns_the_reward_without_success_is_shown(
    name: str, actions: Sequence[str] | None, status: str
) -> None:
    env_id = f"planted/{name}-v0"
    after, expert = recorded(env_id, actions), recorded(env_id, None)
    before = [*expert[:6], *recorded(env_id, ["answer[]"])[6:]]
    progress = learning_check._Progress(updates=9, before=before, after=after, expert=expert)
    finding = learning_check._exploit(progress)
    assert finding.status == status, finding
    assert ("episode" in finding.figures) == (status != "ok")

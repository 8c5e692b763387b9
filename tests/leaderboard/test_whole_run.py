"""Tracks where the whole run is in CI: settings are trained with, and nothing else that is submitted runs."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("trl", reason="training needs the extra train")

from entries import PLACE, YAML, board, files, track, write
from msgspec.structs import replace

from agentgym_flow.cli.leaderboard import _policy
from agentgym_flow.errors import BadSubmission
from agentgym_flow.leaderboard import reproduce
from agentgym_flow.leaderboard.judge import judge
from agentgym_flow.leaderboard.reproduce import settings_of
from agentgym_flow.leaderboard.submission import ABOUT, TRAINING
from agentgym_flow.leaderboard.verdict import SubmissionVerdict

REPRODUCED = YAML.replace("badge: replayed", "badge: reproduced").replace("prompt: none", "prompt: compact").encode()
SMALL = b"""\
algorithm: grpo
seed: 3
warm_start_levels: 4
warm_start_updates: 2
warm_start_batch: 8
num_generations: 2
per_device_train_batch_size: 4
steps_per_generation: 1
max_steps: 1
num_envs: 4
"""


def judged(folder: Path, settings: bytes, rules: str = "ten minutes") -> SubmissionVerdict:
    root = board(folder)
    replace(track(), rules=rules).write(root / "tracks" / f"{PLACE[0]}.json")
    content = files() | {ABOUT: REPRODUCED, TRAINING: settings}
    return judge(write(folder / "entry", content), PLACE, root, jobs=0, make_policy=_policy())


@pytest.mark.nightly
def test_ci_trains_and_plays(tmp_path: Path) -> None:
    first, again = judged(tmp_path / "first", SMALL), judged(tmp_path / "again", SMALL)
    assert first.accepted, first.reason
    assert first == again, "the same settings give the same weights, and those the same scores"
    assert not list((tmp_path / "first" / "entry").glob("run*")), "nothing is left with the submission"


def test_a_run_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduce, "TRAINING_SECONDS", 0.5)
    verdict = judged(tmp_path, SMALL.replace(b"max_steps: 1\n", b"max_steps: 100000\n"))
    assert verdict.reason is not None
    assert verdict.reason.check == "weights"
    assert "training is not done after 0.5 seconds" in verdict.reason.message


@pytest.mark.heavy
def test_a_run_that_fails_says_why(tmp_path: Path) -> None:
    verdict = judged(tmp_path, SMALL.replace(b"per_device_train_batch_size: 4", b"per_device_train_batch_size: 3"))
    assert verdict.reason is not None
    assert "training fails: " in verdict.reason.message


def test_only_such_tracks_take_settings(tmp_path: Path) -> None:
    verdict = judged(tmp_path, SMALL, rules="open")
    assert verdict.reason is not None
    assert (verdict.reason.check, "takes no such file" in verdict.reason.message) == ("rules", True)


@pytest.mark.parametrize(
    "settings",
    [
        b"algorithm: os.system",
        b"algorithm: grpo\nmodel: /etc/passwd",
        b"algorithm: grpo\noutput_dir: /tmp/x",
        b"algorithm: grpo\nalso_on: {etc: {data: /etc}}",
        b"algorithm: grpo\ncredit: my_pkg:credit",
        b"algorithm: grpo\ncredit_settings: {reproduce_official: true}",
        b"algorithm: grpo\ncredit_settings: {outcome: score}",
        b"algorithm: grpo\ngenerator: http://example.org",
        b"algorithm: grpo\nlearning_rate: 1e999",
        b"algorithm: grpo\nmax_steps: 1e9",
        b"algorithm: grpo\nseed: --resume",
        b"algorithm: grpo\nseed: !!python/name:os.system",
        b"algorithm: [grpo]",
        b"[]",
        b"",
        b"\xff",
    ],
)
def test_other_settings_are_refused(settings: bytes) -> None:
    with pytest.raises(BadSubmission, match=r"training\.yaml"):
        settings_of(settings)

"""Policies that share episodes, each with a trainer of its own: kills of trainers and workers change no bit."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="training needs the extra train")

from agentgym_flow.episodes import read_log
from agentgym_flow.replay import verify_log

pytestmark = pytest.mark.nightly

WHEN, HOW = ("before", "after"), ("sampled", "greedy")
"""The evaluations of a team."""

SOKOBAN = [
    "--env", "Sokoban-v0", "--config", "sokoban_tiny_long",
    "--env_kwargs", '{"size": 6, "boxes": 1, "min_pushes": 3, "max_steps": 8}',
    "--warm_start_levels", 8, "--warm_start_updates", 20, "--num_generations", 4, "--groups_per_batch", 4,
]  # fmt: skip
PROBLEMS = [
    "--env", "Problems-v0", "--env_kwargs", '{"family": "arithmetic", "max_steps": 3}',
    "--num_generations", 2, "--groups_per_batch", 1, "--entropy_coef", 0.01,
]  # fmt: skip
ALL = [
    "--threads", 1, "--steps_per_batch", 1, "--per_device_train_batch_size", 4, "--logging_steps", 1,
    "--save_strategy", "steps", "--validations", 0, "--warm_start_validations", 1, "--eval_episodes", 1,
]  # fmt: skip


@dataclass(frozen=True)
class Team:
    """Two policies, `a` and `b`, and when to kill the trainer of one of them.

    Attributes:
        own: their own options.
        batches, staleness: those of the run.
        dies: the policy whose trainer is killed.
        dies_at: after so many batches.
        workers: the number of workers.
    """

    own: dict[str, list[Any]]
    batches: int
    staleness: int
    dies: str
    dies_at: int
    workers: int

    def play(self, folder: Path, *, killed: bool) -> dict[str, Any]:
        """Train, without kills or with them; return the manager's last status."""
        from _supervised import PROGRAM, Child, OverHttp  # type: ignore[import-not-found]

        folder.mkdir()
        settings, chance = folder / "flow.yaml", random.Random(0)
        settings.write_text(
            f"{{staleness: {self.staleness}, workers: 0, deadline: 300, turns: [a, b, ...]}}", encoding="utf-8"
        )
        parts = OverHttp(folder, settings, workers=self.workers, num_envs=8)
        parts.start()
        trainers = {}
        for name, own in self.own.items():
            flow = ["--dataflow", settings, "--policy", name, *parts.trainer_options(), "--output_dir", folder / name]
            command = [*PROGRAM, "train", "grpo", *ALL, *own, *flow]
            trainers[name] = Child(name, command, folder, parts.trainer_environment())
            trainers[name].again = [*command, "--resume", "true"]
            trainers[name].start()

        done = dict.fromkeys(self.own, 0)  # batches of each policy
        worker_killed = not killed

        def look() -> bool:
            """Restart workers, note what is done, and kill a worker that plays, once; return False if unanswered."""
            nonlocal worker_killed
            status = parts.look()
            for one in () if status is None else status["streams"].values():
                done.update({name: figures["done"] for name, figures in one["policies"].items()})
            worker_killed = worker_killed or (status is not None and parts.kill_worker(chance, status))
            return status is not None

        def wait_until(reached: Callable[[], bool]) -> None:
            while not reached():
                time.sleep(0.1)  # the processors are for the others
                ended = [one for one in trainers.values() if one.ended() not in (None, 0, -signal.SIGKILL)]
                assert not ended, [one.said() for one in ended]
                look()

        try:
            if killed:
                other = next(name for name in self.own if name != self.dies)
                wait_until(lambda: done[self.dies] >= self.dies_at)
                trainers[self.dies].kill()
                wait_until(look)
                dead_at = done[self.dies]
                wait_until(lambda: done[other] > dead_at)
                assert done[self.dies] == dead_at, "its trainer is dead"
                trainers[self.dies].start()
            wait_until(lambda: all(child.ended() == 0 for child in trainers.values()))
            assert worker_killed
        finally:
            for child in trainers.values():
                child.close()
            status: dict[str, Any] = parts.close()
        return status


def one_model(tmp_path: Path, request: pytest.FixtureRequest) -> Team:
    own = [*SOKOBAN, "--max_steps", 10, "--save_steps", 2]
    return Team({"a": own, "b": own}, batches=10, staleness=3, dies="a", dies_at=4, workers=2)


def two_models(tmp_path: Path, request: pytest.FixtureRequest) -> Team:
    """`b` has another tokenizer and prompt than `a`, one conversation an episode, and two updates a batch."""
    from _byte_level import byte_level_tokenizer, write_model  # type: ignore[import-not-found]

    tokenizer = byte_level_tokenizer("agentgym_flow/Sokoban-v0", {"size": 6}, episodes=10)
    write_model(tmp_path / "qwen", tokenizer, width=32, layers=1, heads=2, context=2048, theta=1e3)
    of_b = [
        "--model", tmp_path / "qwen", "--template", "text", "--layout", "conversation", "--merge_prompts", "false",
        "--max_completion_length", 4, "--template_settings", '{"think": false}', "--steps_per_batch", 2,
        "--max_steps", 20, "--save_steps", 4, "--warm_start_updates", 4, "--warm_start_batch", 8,
    ]  # fmt: skip
    team = one_model(tmp_path, request)
    return Team({**team.own, "b": [*SOKOBAN, *of_b]}, batches=10, staleness=3, dies="a", dies_at=4, workers=2)


def real_model(tmp_path: Path, request: pytest.FixtureRequest) -> Team:
    """A real language model begins, and a tiny policy has something checked or answers.

    Most first answers of the model end the episode, so the tiny policy has no turn in some batches. With two episodes a
    batch, since the model takes 10 core-seconds for each. Both may end alike, which leaves the gradient of the entropy.
    """
    of_a = [
        "--model", request.getfixturevalue("language_model"), "--lora", "--dtype", "bfloat16",
        "--layout", "conversation", "--max_completion_length", 24, "--max_steps", 3, "--learning_rate", 1e-4,
        "--muon_learning_rate", "null", "--warm_start_levels", 0, "--per_device_train_batch_size", 2,
    ]  # fmt: skip
    of_b = ["--warm_start_levels", 60, "--warm_start_updates", 40, "--steps_per_batch", 2]
    of_b += ["--per_device_train_batch_size", 1, "--steps_per_generation", 2, "--max_steps", 6]
    own = {"a": [*PROBLEMS, *of_a, "--save_steps", 1], "b": [*PROBLEMS, *of_b, "--save_steps", 2]}
    return Team(own, batches=3, staleness=1, dies="a", dies_at=1, workers=1)


def answers(log: Path, policy: str) -> list[str]:
    """Return what a policy has written in the episodes of a log."""
    found = []
    for episode in read_log(log):
        assert episode.meta is not None
        assert episode.completions is not None
        said = zip(episode.meta["policies"], episode.completions, strict=True)
        found += [completion for acting, completion in said if acting == policy]
    return found


@pytest.mark.parametrize("team_of", [one_model, two_models, real_model])
def test_a_team_goes_on_while_a_trainer_is_dead(
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    team_of: Callable[[Path, pytest.FixtureRequest], Team],
) -> None:
    monkeypatch.syspath_prepend(root / "benchmarks")
    from _kills_report import digest  # type: ignore[import-not-found]
    from _supervised import PROGRAM

    team = team_of(tmp_path, request)
    weights = {}
    for name in ("calm", "killed"):
        (stream,) = team.play(tmp_path / name, killed=name == "killed")["streams"].values()
        episodes = team.batches * (2 if team_of is real_model else 16)
        assert stream["states"]["used"] + stream["states"]["trained"] == episodes
        assert stream["counts"].get("rejected", 0) == stream["counts"].get("failed", 0) == 0
        for run in (tmp_path / name / policy for policy in team.own):
            summary = json.loads((run / "summary.json").read_text("utf-8"))
            assert summary.keys() == {"status", "seconds"}, "alone a policy of a team is not evaluated"
            metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]
            assert max(one.get("grad_norm", 0) for one in metrics) > 0, "it learns"
        weights[name] = [digest(tmp_path / name / policy / "checkpoint") for policy in team.own]
    assert weights["killed"] == weights["calm"]
    runs, out = [tmp_path / "calm" / name for name in ("a", "b")], tmp_path / "team"
    words = [*PROGRAM, "dataflow", "evaluate", *runs, "--before", "--episodes", 2, "--out", out]
    subprocess.run([*map(str, words)], cwd=root, check=True, timeout=600)
    logs = [out / f"{when}_{how}.jsonl.gz" for when, how in product(WHEN, HOW)]
    assert all(verify_log(log, jobs=0).matched == 2 for log in logs)
    if team_of is real_model:
        assert max(len(said.split()) for log in logs for said in answers(log, "a")) > 8

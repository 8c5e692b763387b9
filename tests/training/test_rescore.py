"""Completions are scored again: by the model that wrote them, and by another one."""

from __future__ import annotations

import copy
import gzip
import json
import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agentgym_flow.cli import app
from agentgym_flow.envs import make_text_env
from agentgym_flow.episodes import EpisodeRecorder, LoggedEpisode, read_log
from agentgym_flow.errors import BadSetting
from agentgym_flow.leaderboard.submission import ABOUT, LOG, SCHEMA, open_weights_digest
from agentgym_flow.leaderboard.track import Track, make_track
from agentgym_flow.leaderboard.verdict import Mean, SubmissionVerdict
from agentgym_flow.play import rollout
from agentgym_flow.play.groups import EpisodeSpec
from agentgym_flow.policies import PolicyInput
from agentgym_flow.prompts import template_for
from agentgym_flow.replay.stepping import step_again
from agentgym_flow.training import submitted
from agentgym_flow.training.models import load_model
from agentgym_flow.training.policy import ModelPolicy
from agentgym_flow.training.submitted import rescore
from tests.training.conftest import SOKOBAN

TEMPLATE = template_for(SOKOBAN, "text")


@pytest.fixture(scope="module")
def models(import_benchmark: Callable[[str], Any], tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Two models of one shape with other weights."""
    made = import_benchmark("_byte_level")
    tokenizer = made.byte_level_tokenizer(SOKOBAN, {"size": 5}, episodes=10)
    found = []
    for seed in range(2):
        path = tmp_path_factory.mktemp("rescore") / "model"
        made.write_model(path, tokenizer, width=32, layers=1, heads=2, context=1024, theta=100.0, seed=seed)
        found.append(load_model(str(path), TEMPLATE))
    return found


@pytest.fixture(scope="module")
def played(models: list[Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Track]:
    """What the first model has played, with its log-probabilities."""
    track = make_track(SOKOBAN, "try", "Try", tasks=4, kwargs={"size": 5, "boxes": 1, "max_steps": 4})
    log = tmp_path_factory.mktemp("log") / "episodes.jsonl.gz"
    lines = logged(track, ModelPolicy(*models[0], TEMPLATE, max_new_tokens=6))
    log.write_bytes(gzip.compress("".join(f"{line.line()}\n" for line in lines).encode()))
    return log, track


def logged(track: Track, policy: ModelPolicy) -> list[LoggedEpisode]:
    """What a model plays on a track, with its log-probabilities."""
    specs = [EpisodeSpec(start.seed, start.task, start.attempt) for start in track.starts()]
    lines = []
    for episode in rollout(policy, lambda: make_text_env(SOKOBAN, **track.env_settings()), specs):
        for turn in episode.turns:  # what is sent is what can be written again: no half characters, no markers
            turn.output.completion = turn.output.completion or turn.action
        logprobs = [list(turn.output.logprobs or ()) for turn in episode.turns]
        lines.append(replace(LoggedEpisode.of(episode), meta={"logprobs": logprobs}))
    return lines


def test_the_model_that_wrote_them_agrees_and_another_does_not(models: list[Any], played: tuple[Path, Track]) -> None:
    log, track = played
    own, other = (rescore(log, track, model, tokenizer, TEMPLATE, share=1.0) for model, tokenizer in models)
    assert own.turns == 16
    assert own.agreed == own.turns - own.other_tokens > 0
    assert own.difference < 1e-3
    assert other.agreed < own.agreed
    assert other.difference > 10 * own.difference


def test_texts_that_the_model_would_not_write_are_a_surprise(models: list[Any], played: tuple[Path, Track]) -> None:
    """Whoever has the weights can compute the log-probabilities of any text, so these agree."""
    log, track = played
    model, tokenizer = models[0]
    model = copy.deepcopy(model)
    model.get_output_embeddings().weight.data *= 8  # a model that prefers some tokens
    policy = ModelPolicy(model, tokenizer, TEMPLATE, max_new_tokens=6)
    found = {}
    for name, other in (("its own", None), ("others", read_log(log))):
        lines = logged(track, policy) if other is None else list(other)
        with closing(track.make_env()) as env:
            recorder = EpisodeRecorder(env)
            for number, line in enumerate(lines):
                outputs, rows = line.outputs(), []
                for output, _ in zip(outputs, step_again(recorder, line, outputs), strict=True):
                    prompt = submitted.prompt_tokens(
                        tokenizer, submitted.prompt_text(tokenizer, TEMPLATE, PolicyInput.of(recorder))
                    )
                    ids = tuple(tokenizer(output.text, add_special_tokens=False).input_ids)
                    rows.append(submitted._logprobs(model, prompt, ids, 1.0)[0])
                lines[number] = replace(line, meta={"logprobs": rows})
        file = log.with_name(f"{name}.jsonl.gz")
        file.write_bytes(gzip.compress("".join(f"{line.line()}\n" for line in lines).encode()))
        found[name] = rescore(file, track, model, tokenizer, TEMPLATE, share=1.0)
    assert found["its own"].agreed == found["others"].agreed == found["others"].turns == 16
    assert found["its own"].surprise < 3 < 10 < found["others"].surprise


def test_the_command_writes_the_result_into_the_verdict(
    models: list[Any], played: tuple[Path, Track], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, track = played
    root, place, weights = tmp_path / "boards", "try/2026-11-23-mine", Path(models[0][0].name_or_path)
    folder = root / "submissions" / place
    folder.mkdir(parents=True)
    shutil.copy(log, folder / LOG)
    track.write(root / "tracks" / "try.json")
    monkeypatch.setattr(submitted, "TOLERANCE", 0.0)  # the numbers are those of the log: see what is drawn

    def run(named: str, *words: str) -> tuple[int, str]:
        about = {"schema": SCHEMA, "track": "try", "name": "mine", "date": "2026-11-23", "badge": "attested"}
        about |= {"prompt": "text", "title": "T", "authors": ["a"], "command": "c"}
        about |= {"training": {"environments": [], "data": ""}, "model": {"name": "m", "sha256": named}}
        (folder / ABOUT).write_text(json.dumps(about), "utf-8")
        command = ["leaderboard", "rescore", str(folder), "--model", str(weights), "--root", str(root), *words]
        result = CliRunner().invoke(app, command)
        return result.exit_code, " ".join(result.output.split())

    digest = open_weights_digest(weights)
    assert "names abab" in run("ab" * 32)[1], "other weights than the entry names"
    file = root / "verdicts" / f"{place}.json"
    found = {}
    for commit in ("", "a" * 40, "b" * 40):
        SubmissionVerdict(place, accepted=True, badge="attested", score=Mean(1, 1, 1), commit=commit).write(file)
        code, said = run(digest, "--share", "0.5")
        assert code == 1, said
        assert ("not recorded" in said) == (commit == "")
        found[commit] = SubmissionVerdict.read(file).rescored
    first, second = found["a" * 40], found["b" * 40]
    assert found[""] is None
    assert first is not None
    assert second is not None
    assert (first.weights_sha256, first.share) == (digest, 0.5)
    assert first.command.endswith("--share 0.5 --dtype float32")
    assert (first.turns, first.difference) != (second.turns, second.difference), "the merge draws the turns"


def test_the_share_is_drawn_with_the_seed(models: list[Any], played: tuple[Path, Track]) -> None:
    log, track = played
    model, tokenizer = models[0]
    counts = {rescore(log, track, model, tokenizer, TEMPLATE, share=0.3, seed=seed).turns for seed in "abcdef"}
    assert 1 <= min(counts) < max(counts) < 16
    with pytest.raises(BadSetting, match="share must be"):
        rescore(log, track, model, tokenizer, TEMPLATE, share=0)


def test_a_template_sees_what_the_policy_wrote_before(
    models: list[Any], played: tuple[Path, Track], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, track = played
    seen: list[list[str]] = []

    def prompt_text(tokenizer: Any, template: Any, policy_input: PolicyInput) -> str:
        seen.append([turn.output.text for turn in policy_input.episode.turns])
        return "a prompt"

    monkeypatch.setattr(submitted, "prompt_text", prompt_text)
    rescore(log, track, *models[0], TEMPLATE, share=1.0)
    lines = list(read_log(log))
    assert seen == [line.completions[:turn] for line in lines for turn in range(4)]  # type: ignore[index]
    assert any(line.completions != line.actions for line in lines)

"""Submitted weights play fresh tasks, and nothing that comes with them is run."""

from __future__ import annotations

import hashlib
import hmac
import json
import pickle
from functools import cache
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="training needs the extra train")

import torch
from entries import PLACE, YAML, board, files, track, write
from msgspec.structs import replace
from safetensors.torch import save

from agentgym_flow.cli.leaderboard import _policy
from agentgym_flow.errors import MissingExtra
from agentgym_flow.leaderboard.judge import judge
from agentgym_flow.leaderboard.publish import publish
from agentgym_flow.leaderboard.reproduce import fresh_track
from agentgym_flow.leaderboard.submission import ABOUT, MODEL_CONFIG, WEIGHTS, Folder
from agentgym_flow.leaderboard.track import Track
from agentgym_flow.leaderboard.verdict import SubmissionVerdict
from agentgym_flow.prompts import template_for
from agentgym_flow.training.models import load_model, save_model

COMMITTED = Path(__file__).parents[2] / "leaderboards"
REPRODUCED = YAML.replace("badge: replayed", "badge: reproduced").replace("prompt: none", "prompt: compact").encode()


@cache
def saved() -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """The configuration of a tiny model, and its weights."""
    model, _ = load_model("tiny", template_for("agentgym_flow/Sokoban-v0", "compact"))
    state = {name: weight.clone() for name, weight in model.state_dict().items() if name != "lm_head.weight"}
    return model.config.to_dict(), state


def entry(config: Any = None, weights: bytes | None = None) -> dict[str, bytes]:
    own, state = saved()
    told = config if isinstance(config, bytes) else json.dumps(own if config is None else config).encode()
    policy = {MODEL_CONFIG: told}
    return files() | {ABOUT: REPRODUCED, **policy, WEIGHTS: save(state) if weights is None else weights}


def judged(folder: Path, content: dict[str, bytes], secret: str = "", **more: Any) -> SubmissionVerdict:
    root, secrets = board(folder), {"": secret}
    folder = write(folder / "entry", content)
    return judge(folder, PLACE, root, jobs=0, make_policy=_policy(), secrets=secrets, **more)


def test_the_tasks_are_drawn_with_the_secret(tmp_path: Path) -> None:
    found = {secret: judged(tmp_path / (secret or "none"), entry(), secret) for secret in ("one", "two", "")}
    for secret, verdict in found.items():
        assert verdict.accepted, verdict.reason
        assert verdict.badge == "reproduced"
        digest = bytes.fromhex(verdict.weights_sha256)
        assert verdict.season == hmac.new(secret.encode(), digest, hashlib.sha256).hexdigest()
        assert verdict.rehearsal == (secret == "")
        assert len(verdict.scores) == len(track().tasks)
    fresh = [fresh_track(track(), verdict.season) for verdict in found.values()]
    keys = {task.key for one in (*fresh, track()) for task in one.tasks}
    assert len(keys) == 4 * len(track().tasks), "all tasks differ"
    assert found["one"] == judged(tmp_path / "again", entry(), "one"), "the same on every machine"


def test_a_saved_checkpoint_is_a_policy(tmp_path: Path) -> None:
    model, tokenizer = load_model("tiny", template_for("agentgym_flow/Sokoban-v0", "compact"))
    save_model(tmp_path / "checkpoint", model, tokenizer)
    config, weights = (tmp_path / "checkpoint" / name for name in ("config.json", "model.safetensors"))
    assert judged(tmp_path, entry(json.loads(config.read_bytes()), weights.read_bytes())).accepted


def changed(**shape: Any) -> dict[str, Any]:
    return {**saved()[0], **shape}


def weights(name: str | None = None, value: torch.Tensor | None = None) -> bytes:
    state = dict(saved()[1])
    if name is not None and value is None:
        del state[name]
    elif name is not None and value is not None:
        state[name] = value
    return save(state)


FIRST = "transformer.wte.weight"
HOSTILE: dict[str, tuple[Any, bytes | None, str]] = {
    "a pickle": (None, pickle.dumps({"a": 1}), "is not a safetensors file"),
    "nothing": (None, b"", "is not a safetensors file"),
    "a header that lies": (None, (1 << 62).to_bytes(8, "little") + b"{}", "is not a safetensors file"),
    "a weight missing": (None, weights(FIRST), "is missing"),
    "a weight more": (None, weights("transformer.backdoor", torch.zeros(1)), "is not a weight of this model"),
    "another shape": (None, weights(FIRST, torch.zeros(3, 3)), "has shape"),
    "not a number": (None, weights(FIRST, saved()[1][FIRST] * float("nan")), "finite numbers"),
    "infinity": (None, weights(FIRST, saved()[1][FIRST] / 0), "finite numbers"),
    "integers": (None, weights(FIRST, saved()[1][FIRST].int()), "finite numbers"),
    "another model": (changed(model_type="llama"), None, "model_type must be 'gpt2'"),
    "code": (changed(model_type="gpt2-custom", auto_map={"AutoModel": "evil.py"}), None, "model_type must be"),
    "a huge model": (changed(n_embd=1024, n_layer=24, n_inner=4096), None, "is larger than"),
    "beyond all bounds": (changed(n_layer=10**9), None, "n_layer must be a number from"),
    "no number": (changed(n_head="four"), None, "n_head must be a number"),
    "true": (changed(n_layer=True), None, "n_layer must be a number"),
    "a list": ([], None, "must be an object"),
    "no JSON": (b"{", None, "not JSON"),
    "a short context": (changed(n_positions=16), weights("transformer.wpe.weight", torch.zeros(16, 96)), "cannot play"),
    "huge weights": (None, weights(FIRST, torch.full_like(saved()[1][FIRST], 3e38)), "cannot play"),
    "other words": (changed(vocab_size=100), None, "words"),
    "heads that do not fit": (changed(n_head=5), None, "a multiple of n_head"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_weights_are_refused(tmp_path: Path, name: str) -> None:
    config, raw, message = HOSTILE[name]
    verdict = judged(tmp_path, entry(config, raw))
    assert verdict.reason is not None
    assert verdict.reason.check == "weights"
    assert message in verdict.reason.message


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("prompt: compact", "prompt: text", "no fixed vocabulary"),
        ("prompt: compact", "prompt: nothing", "Unknown prompt template"),
    ],
)
def test_a_prompt_without_words_of_its_own_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    verdict = judged(tmp_path, entry() | {ABOUT: REPRODUCED.replace(old.encode(), new.encode())})
    assert verdict.reason is not None
    assert message in verdict.reason.message


def test_any_fault_of_the_submission_is_a_verdict(tmp_path: Path) -> None:
    verdict = judged(tmp_path, entry() | {ABOUT: REPRODUCED + b"layout: conversation\n"})
    assert verdict.reason is not None
    assert verdict.reason.check == "weights"
    assert "conversation" in verdict.reason.message


def test_the_digest_is_that_of_the_weights_however_they_are_stored(tmp_path: Path) -> None:
    state = saved()[1]
    again = judged(tmp_path / "again", entry(weights=save(dict(sorted(state.items())[::-1]), {"made": "again"})))
    assert again.weights_sha256 == judged(tmp_path, entry()).weights_sha256
    value = state[FIRST].clone()
    value[0, 0] += 0.25
    assert judged(tmp_path / "other", entry(weights=weights(FIRST, value))).weights_sha256 != again.weights_sha256
    before = [replace(again, submission=f"{PLACE[0]}/2026-11-20-first")]
    copy = judged(tmp_path / "copy", entry(), before=before)
    assert copy.reason is not None
    assert "these are the weights of sokoban-small/2026-11-20-first" in copy.reason.message


def test_committed_verdicts_name_the_weights() -> None:
    verdict = SubmissionVerdict.read(next((COMMITTED / "verdicts/search-s0").glob("*-tiny-grpo.json")))
    policy = Folder.read(COMMITTED / "submissions" / verdict.submission)
    made = _policy()
    assert made is not None
    _, digest = made(policy, Track.read(COMMITTED / "tracks/search-s0.json"))
    assert verdict.weights_sha256 == digest
    assert verdict.drawn_from == verdict.submission_sha256, "as fresh tasks were drawn before"


def test_without_torch_nobody_is_judged(tmp_path: Path) -> None:
    folder = write(tmp_path / "entry", entry())
    with pytest.raises(MissingExtra):
        judge(folder, PLACE, board(tmp_path), jobs=0)


def test_verdicts_are_written_once(tmp_path: Path) -> None:
    root = tmp_path / "leaderboards"
    board(root)
    write(root / "submissions" / PLACE[0] / PLACE[1], entry())
    first = list(publish(root, jobs=0, make_policy=_policy(), secrets={"": "one"}))
    file = root / "verdicts" / PLACE[0] / f"{PLACE[1]}.json"
    assert [SubmissionVerdict.read(file)] == first
    assert list(publish(root, jobs=0, make_policy=_policy(), secrets={"": "two"})) == []
    assert [SubmissionVerdict.read(file)] == first

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

from agentgym_flow import data as registry
from agentgym_flow.cli.leaderboard import _policy
from agentgym_flow.errors import BadSubmission, MissingExtra
from agentgym_flow.leaderboard.files import track_file
from agentgym_flow.leaderboard.judge import judge
from agentgym_flow.leaderboard.publish import entries, publish, verdict_file
from agentgym_flow.leaderboard.reproduce import BudgetedPolicy, fresh_track, played
from agentgym_flow.leaderboard.submission import (
    ABOUT,
    LOG,
    MODEL_CONFIG,
    MOST_BYTES,
    README,
    VOCABULARY,
    WEIGHTS,
    Folder,
    Submission,
    make_submission,
    write_evaluation,
)
from agentgym_flow.leaderboard.track import Track
from agentgym_flow.leaderboard.verdict import Claims, SubmissionVerdict
from agentgym_flow.policies import PolicyOutput
from agentgym_flow.prompts import template_for
from agentgym_flow.training.models import load_model, save_model
from agentgym_flow.training.tiny import SPECIAL, known_words

REPOSITORY = Path(__file__).parents[2] / "leaderboards"

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
    "not a number": (None, weights(FIRST, saved()[1][FIRST] * float("nan")), "holds NaN or an infinity"),
    "infinity": (None, weights(FIRST, saved()[1][FIRST] / 0), "holds NaN or an infinity"),
    "integers": (None, weights(FIRST, saved()[1][FIRST].int()), "numbers of the type int32; use one of float16,"),
    "small integers": (None, weights(FIRST, saved()[1][FIRST].to(torch.int8)), "numbers of the type int8"),
    "small floats": (None, weights(FIRST, saved()[1][FIRST].to(torch.float8_e4m3fn)), "of the type float8_e4m3fn"),
    "an overflow": (None, weights(FIRST, torch.full((150, 96), 1e300, dtype=torch.float64)), "not fit into float32"),
    "words that are no list": (changed(vocabulary="a b"), None, "must be a list of words"),
    "a word twice": (changed(vocabulary=["a", "a"]), None, "a vocabulary must have distinct words"),
    "words with spaces": (changed(vocabulary=["a b", "c"]), None, "a vocabulary must have distinct words"),
    "fewer words than tokens": (changed(vocabulary=["a"]), None, "make 4 tokens"),
    "words that the prompt lacks": (changed(vocabulary=[f"w{n}" for n in range(147)]), None, "not know every word"),
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
        ("prompt: compact", "prompt: own", "Unknown prompt template"),
    ],
)
def test_a_prompt_without_words_of_its_own_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    verdict = judged(tmp_path, entry() | {ABOUT: REPRODUCED.replace(old.encode(), new.encode())})
    assert verdict.reason is not None
    assert message in verdict.reason.message


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
    assert "sokoban-small/2026-11-20-first has the same weights" in copy.reason.message


def test_a_layout_that_the_prompt_lacks_is_refused(tmp_path: Path) -> None:
    verdict = judged(tmp_path, entry() | {ABOUT: REPRODUCED + b"layout: conversation\n"})
    assert verdict.reason is not None
    assert (verdict.reason.check, "no follow_up message" in verdict.reason.message) == ("weights", True)


def test_whatever_a_policy_raises_is_a_verdict() -> None:
    class Broken:
        name = "broken"

        def act(self, _: object) -> list[PolicyOutput]:
            raise RuntimeError("the sizes of tensors must match")

    with pytest.raises(BadSubmission, match="cannot play the track: RuntimeError: the sizes of tensors"):
        BudgetedPolicy(Broken(), 60.0).act([])


def weighted() -> list[Path]:
    return sorted(path.parents[1] for path in (REPOSITORY / "submissions").glob("*/*/policy/config.json"))


def test_the_words_of_every_committed_entry_are_known() -> None:
    assert len(weighted()) >= 30
    for folder in weighted():
        about = Submission.parse((folder / ABOUT).read_bytes())
        template = template_for(Track.read(track_file(about.track, REPOSITORY)).env_id, about.prompt)
        config = json.loads((folder / MODEL_CONFIG).read_bytes())
        version, words = known_words(config, template)
        assert len(words) + len(SPECIAL) == config["vocab_size"], folder
        assert tuple(words) == version.vocabulary


@pytest.mark.parametrize("name", ["Sokoban", "ALFWorld", "WebShop", "Search", "Canvas", "Problems"])
def test_the_words_of_every_environment_fit_into_a_submission(name: str) -> None:
    template: Any = template_for(f"agentgym_flow/{name}-v0", "compact")
    told = {**saved()[0], VOCABULARY: list(template.vocabulary)}
    assert len(json.dumps(told, indent=1)) < MOST_BYTES[MODEL_CONFIG]


def again(folder: Path, tasks: int) -> tuple[Claims, SubmissionVerdict]:
    """Play the first fresh tasks of a committed entry again; also return its verdict, which names its weights."""
    verdict = SubmissionVerdict.read(verdict_file(REPOSITORY, folder))
    board = Track.read(track_file(folder.parent.name, REPOSITORY))
    make = _policy()
    assert make is not None
    policy, digest = make(Folder.read(folder), board)
    assert digest == verdict.weights_sha256
    return played(policy, fresh_track(replace(board, tasks=board.tasks[:tasks]), verdict.season)), verdict


def test_an_entry_with_earlier_words_plays_as_it_did() -> None:
    said, verdict = again(REPOSITORY / "submissions/alfworld-s0/2026-11-23-tiny-grpo", 12)
    assert (said.scores.tolist(), said.steps.tolist()) == (verdict.scores[:12], verdict.steps[:12])


@pytest.mark.nightly
@pytest.mark.parametrize("folder", entries(REPOSITORY), ids=lambda folder: f"{folder.parent.name}/{folder.name}")
def test_the_verdict_on_every_committed_entry_is_repeated(folder: Path) -> None:
    board = Track.read(track_file(folder.parent.name, REPOSITORY))
    if not all(registry.place(name) for name in board.data):
        pytest.skip("the official data of the track is not here")
    committed = SubmissionVerdict.read(verdict_file(REPOSITORY, folder))
    place = folder.parent.name, folder.name
    verdict = judge(folder, place, REPOSITORY, make_policy=_policy(), before=[committed])
    for field in ("accepted", "reason", "badge", "weights_sha256", "season", "scores", "steps", "score"):
        assert getattr(verdict, field) == getattr(committed, field), field


def test_an_entry_plays_the_tasks_of_its_verdict_again(tmp_path: Path) -> None:
    first = judged(tmp_path / "first", entry())
    former = replace(first, drawn_from=first.submission_sha256)  # as in the first verdicts
    repeated = judged(tmp_path / "again", entry(), before=[former])
    assert repeated.season == hmac.new(b"", bytes.fromhex(first.submission_sha256), hashlib.sha256).hexdigest()
    assert (repeated.accepted, repeated.season != first.season) == (True, True)
    assert judged(tmp_path / "third", entry(), before=[first]) == first
    other = judged(tmp_path / "other", entry() | {README: b"Another text"}, before=[former])
    assert other.season == first.season, "another submission draws its tasks from its weights"


def test_the_words_of_a_checkpoint_are_submitted_with_it(tmp_path: Path) -> None:
    template = template_for("agentgym_flow/Sokoban-v0", "compact")
    model, tokenizer = load_model("tiny", template)
    save_model(tmp_path / "checkpoint", model, tokenizer)
    write(tmp_path / "run", {LOG: files()[LOG]})
    write_evaluation(tmp_path / "run", PLACE[0], {})
    about = {
        "name": "a", "title": "A", "badge": "reproduced", "prompt": "compact", "authors": ["b"], "command": "c",
        "training": {"environments": [], "data": ""},
    }  # fmt: skip
    place = make_submission(tmp_path / "run", about, tmp_path, policy=tmp_path / "checkpoint")
    config = json.loads((place / MODEL_CONFIG).read_bytes())
    assert tuple(config["vocabulary"]) == template.vocabulary
    assert known_words(config, template) == (template, config["vocabulary"])


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

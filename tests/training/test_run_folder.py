"""Run folders and models: nothing half-written, nothing overwritten, plain Hugging Face folders."""

from __future__ import annotations

import gc
import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from agentgym_flow.errors import BadSetting, OtherProcessFailed
from agentgym_flow.prompts import PromptTemplate, TextTemplate
from agentgym_flow.training.models import COLLECT_AFTER, frozen_heap, load_model, save_model
from agentgym_flow.training.run_folder import RunFolder
from agentgym_flow.training.tiny import tiny_model, word_tokenizer


def status(folder: RunFolder) -> Any:
    return json.loads((folder.path / "summary.json").read_text())


def test_a_new_run_never_touches_an_older_one(tmp_path: Path) -> None:
    first, second, third = (RunFolder(tmp_path / "run") for _ in range(3))
    assert [folder.path.name for folder in (first, second, third)] == ["run", "run-2", "run-3"]
    (tmp_path / "empty").mkdir()
    assert RunFolder(str(tmp_path / "empty")).path.name == "empty"
    (tmp_path / "file").write_text("")
    assert RunFolder(tmp_path / "file").path.name == "file-2"


@pytest.mark.parametrize(
    ("error", "summary"),
    [
        (KeyboardInterrupt(), {"status": "interrupted"}),
        (ValueError("why"), {"status": "failed", "error": "ValueError: why"}),
        (OtherProcessFailed("that one has said why"), {"status": "running"}),
    ],
)
def test_the_summary_says_how_a_run_ended(tmp_path: Path, error: BaseException, summary: dict[str, str]) -> None:
    folder = RunFolder(tmp_path / "run")
    assert status(folder) == {"status": "running"}
    folder.warm_start.mkdir()
    with pytest.raises(type(error)), folder.guard():
        raise error
    assert status(folder) == summary
    assert not list(folder.path.glob("*.partial"))


@pytest.mark.parametrize("resume", [False, True])
def test_a_start_that_fails_leaves_no_new_folder(tmp_path: Path, resume: bool) -> None:
    RunFolder(tmp_path / "run")
    folder = RunFolder(tmp_path / "run", resume=resume)
    (folder.path / "config.yaml").touch()
    with pytest.raises(ValueError, match="why"), folder.guard():
        raise ValueError("why")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert folder.path.exists() == resume


def test_what_failed_is_raised_even_if_the_summary_cannot_be_written(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    shutil.rmtree(folder.path)
    folder.path.write_text("")  # no folder any more
    with pytest.raises(ValueError, match="why"), folder.guard():
        raise ValueError("why")


def test_the_first_of_several_processes_says_how_a_run_ended(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.warm_start.mkdir()
    with pytest.raises(ValueError, match="why"), folder.guard():
        raise ValueError("why")
    with pytest.raises(ConnectionError), folder.guard():  # it failed for want of the other
        raise ConnectionError("the other is gone")
    assert status(folder) == {"status": "failed", "error": "ValueError: why"}


@pytest.mark.parametrize("left", ["", '{"status": "fini', "[]"])
def test_a_run_whose_summary_was_cut_short_can_be_resumed(tmp_path: Path, left: str) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "summary.json").write_text(left)
    folder = RunFolder(tmp_path / "run", resume=True)
    assert status(folder) == {"status": "running"}


def test_a_finished_run_stays_finished(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    with folder.guard():
        folder.summarise("finished", {"success": 1.0})
    assert status(folder) == {"status": "finished", "success": 1.0}


def test_a_saved_model_is_a_plain_hugging_face_folder(
    tiny: tuple[Any, Any], tmp_path: Path, template: PromptTemplate
) -> None:
    model, tokenizer = tiny
    save_model(tmp_path / "checkpoint", model, tokenizer)
    with torch.no_grad():
        model.transformer.wpe.weight += 1.0
    save_model(tmp_path / "checkpoint", model, tokenizer)
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "checkpoint")
    words = AutoTokenizer.from_pretrained(tmp_path / "checkpoint")
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))
    text = " ".join(template.vocabulary)  # type: ignore[attr-defined]
    assert words(text).input_ids == tokenizer(text).input_ids == list(range(3, len(tokenizer)))
    loaded, _ = load_model(str(tmp_path / "checkpoint"), template)
    assert torch.equal(loaded.transformer.wpe.weight, model.transformer.wpe.weight)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_the_tiny_model_depends_on_its_seed_only(tiny: tuple[Any, Any]) -> None:
    tokenizer = word_tokenizer(["up", "down"])
    torch.manual_seed(1)
    state = torch.random.get_rng_state()
    first = tiny_model(tokenizer, seed=3)
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.manual_seed(2)
    same, other = tiny_model(tokenizer, seed=3), tiny_model(tokenizer, seed=4)
    assert torch.equal(first.transformer.wte.weight, same.transformer.wte.weight)
    assert not torch.equal(first.transformer.wte.weight, other.transformer.wte.weight)
    assert first.lm_head.weight is first.transformer.wte.weight
    assert 200_000 < sum(p.numel() for p in tiny[0].parameters()) < 300_000


@pytest.mark.parametrize("words", [["up", "up"], ["go up"], [""], ["<pad>"]])
def test_vocabularies_that_cannot_be_told_apart_are_refused(words: list[str]) -> None:
    with pytest.raises(BadSetting, match="vocabulary"):
        word_tokenizer(words)


def test_models_that_are_not_there_are_refused(
    template: PromptTemplate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(BadSetting, match="compact"):
        load_model("tiny", TextTemplate())
    with pytest.raises(BadSetting, match=r"^there is no folder .*nothing$"):
        load_model(str(tmp_path / "nothing"), template)
    with pytest.raises(BadSetting, match=r"^there is no folder nothing, and no downloaded model .*HF_HUB_OFFLINE"):
        load_model("nothing", template)
    (tmp_path / "config.json").write_text('{"model_type": "no_such_kind"}')
    with pytest.raises(BadSetting, match="no_such_kind"):
        load_model(str(tmp_path), template)
    with pytest.raises(BadSetting, match=r"^there is no folder no such name!$"):
        load_model("no such name!", template)


@pytest.mark.parametrize(("before", "within"), [(700, COLLECT_AFTER), (0, 0), (10**6, 10**6)])
def test_garbage_is_looked_for_less_often_while_a_policy_trains(before: int, within: int) -> None:
    usual = gc.get_threshold()
    gc.set_threshold(before, 10, 10)
    try:
        with suppress(KeyboardInterrupt), frozen_heap():
            assert gc.get_threshold() == (within, 10, 10)
            assert gc.get_freeze_count() > 100_000
            raise KeyboardInterrupt
        assert gc.get_threshold() == (before, 10, 10)
        assert gc.get_freeze_count() == 0
    finally:
        gc.set_threshold(*usual)
        gc.freeze()

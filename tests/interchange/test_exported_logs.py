"""Episodes in the formats of other tools, and back: the log is equal, line by line, and verifies."""

from __future__ import annotations

import gzip
import json
import re
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from foreign import inspect, play
from typer.testing import CliRunner

from agentgym_flow.cli import app
from agentgym_flow.core import make_text_env
from agentgym_flow.episodes import EpisodeRecorder, LoggedEpisode, PolicyOutput, read_log, write_log
from agentgym_flow.errors import BadLog, MissingExtra, UnknownOption
from agentgym_flow.interchange import export_log, import_log, read, restore_log
from agentgym_flow.play import evaluate
from agentgym_flow.policies import PolicyInput
from agentgym_flow.replay import verify_log

ALFWORLD, SOKOBAN = "agentgym_flow/ALFWorld-v0", "agentgym_flow/Sokoban-v0"
FORMS = ("atif", "dataset", "traces")


def command(*words: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, list(map(str, words)))
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of two environments: an expert, a model with a tool and thoughts, odd texts, one line twice."""
    lines = []
    for split, task in (("test", 3), ("valid", 1)):
        episode = play(make_text_env(ALFWORLD, split=split), task, wander=4).episode
        assert episode is not None
        episode.meta["policy"] = "expert"
        lines.append(LoggedEpisode.of(episode))
    recorder = EpisodeRecorder(make_text_env(SOKOBAN, split="test", max_steps=3))
    for attempt in range(2):
        episode = recorder.reset(seed=7, task=12, attempt=attempt)
        recorder.step(PolicyOutput("up", completion=""))
        recorder.step(PolicyOutput("caf\udce9 \u2028 😀", completion="<think>\udce9</think> caf"))
        recorder.step(PolicyOutput("down", completion="<action>down</action>"))
        called = [
            {"turn": turn, "calls": [{"id": "a", "name": "move", "arguments": text}]}
            for turn, text in enumerate(('{"direction": "up"}', '{"direction": "\\udce9"}', '{"direction": 1e999}'))
        ]
        episode.meta |= {"tool_calls": [*called, {"turn": 3, "bad": "no call"}, "?"]}
        episode.meta |= {"reasoning": [{"turn": 0, "text": "Up, I think."}], "policy": "openai:m/x"}
        episode.meta |= {"usage": {"prompt": 100, "cached": 60, "completion": 9, "cost": 0.25}}
        episode.meta |= {"logprobs": [[-0.5], [-0.25], []], "huge": 2**70, "tiny": 5e-324}
        lines.append(LoggedEpisode.of(episode))
    lines += [lines[2], lines[3].for_board()]
    path = tmp_path_factory.mktemp("export") / "log.jsonl.gz"
    write_log(path, lines)
    return path


@pytest.mark.parametrize("form", FORMS)
def test_there_and_back_nothing_is_lost(form: str, log: Path, tmp_path: Path) -> None:
    there, back = tmp_path / form, tmp_path / "back.jsonl.gz"
    code, said, noted = command("export", form, log, "--out", there)
    assert (code, said.strip()) == (0, str(there)), noted
    assert "6 episodes" in noted
    assert command("import", form, there, "--out", back)[0] == 0
    assert gzip.decompress(back.read_bytes()) == gzip.decompress(log.read_bytes())
    assert verify_log(back, jobs=0).matched == 6
    code, _, noted = command("export", form, log, "--out", there)
    assert code == 2
    assert "exists" in noted
    assert command("export", form, log, "--out", there, "--force")[0] == 0


def test_a_judged_import_gives_the_lines_back_too(log: Path, tmp_path: Path) -> None:
    """With `--env`, the episodes are counted against the split, and their lines stay as they were."""
    some = tmp_path / "some.jsonl"
    write_log(some, [one for one in read_log(log) if one.env_id == SOKOBAN][1::-1])
    export_log("traces", some, tmp_path / "traces")
    report = import_log("traces", tmp_path / "traces", SOKOBAN, out=tmp_path / "back.jsonl")
    assert report.ok, report
    assert (tmp_path / "back.jsonl").read_bytes() == some.read_bytes()


@pytest.mark.parametrize("form", FORMS)
def test_a_line_that_does_not_replay_is_refused(form: str, tmp_path: Path, log: Path) -> None:
    lines = list(read_log(log))
    lines[1].rewards[0] += 0.5
    write_log(tmp_path / "bad.jsonl", lines)
    code, _, noted = command("export", form, tmp_path / "bad.jsonl", "--out", tmp_path / "out")
    assert code == 2
    assert "line 2 does not replay, so it is not exported. step 1: reward" in " ".join(noted.split())
    assert [file.name for file in tmp_path.iterdir()] == ["bad.jsonl"]


def test_what_cannot_be_exported_or_taken_back_is_said(tmp_path: Path, log: Path) -> None:
    write_log(tmp_path / "empty.jsonl", [])
    with pytest.raises(BadLog, match="contains no episode"):
        export_log("atif", tmp_path / "empty.jsonl", tmp_path / "out")
    with pytest.raises(UnknownOption, match="atif"):
        export_log("atiff", log, tmp_path / "out")
    foreign = inspect(tmp_path, [play(make_text_env(SOKOBAN), 0)])
    with pytest.raises(BadLog, match="carries no line of an episode log: name its environment with --env"):
        restore_log("inspect", foreign, tmp_path / "out.jsonl")
    code, _, noted = command("export", "atif", log, "--out", log.parent, "--force")
    assert (code, "or holds it" in noted, log.exists()) == (2, True, True)
    code, _, noted = command("import", "inspect", foreign)
    assert code == 2
    assert "without it, --out is needed" in " ".join(noted.split())
    assert not (tmp_path / "out.jsonl").exists()


def test_prompts_are_those_of_the_template_and_files_say_so(tmp_path: Path, log: Path) -> None:
    command("export", "traces", log, "--out", tmp_path / "text")
    command("export", "traces", log, "--out", tmp_path / "choice", "--template", "choice")
    rows = {
        name: [json.loads(line) for line in (tmp_path / name / "1.jsonl").read_text("ascii").splitlines()]
        for name in ("text", "choice")
    }
    for name, found in rows.items():
        assert found[0]["template"] == name
        assert found[0]["prompts"].startswith("reconstructed")
        assert found[0]["layout"] == "conversation"
    assert "Actions to fill in" in rows["text"][1]["message"]["content"] or "Actions you can take" in str(rows["text"])
    assert "Actions you can choose from" in rows["choice"][1]["message"]["content"]


# ---------------------------------------------------------------- the formats
def test_trajectories_are_accepted_by_the_validator_and_read_by_ours(tmp_path: Path, log: Path) -> None:
    atif = pytest.importorskip("atif", reason="a package of the extra dev")
    export_log("atif", log, tmp_path / "atif")
    files = sorted((tmp_path / "atif").glob("*.json"))
    assert [file.name for file in files] == [f"{number}.json" for number in range(1, 7)]
    found = [json.loads(file.read_text("ascii")) for file in files]
    for file in files:
        assert atif.Trajectory.model_validate_json(file.read_text("ascii")).schema_version == "ATIF-v1.8"
    scripted, spoken = found[0], found[2]
    assert {step["llm_call_count"] for step in scripted["steps"] if step["source"] == "agent"} == {0}
    assert spoken["final_metrics"]["total_cached_tokens"] == 60
    assert [step.get("metrics", {}).get("logprobs") for step in spoken["steps"][1:]] == [[-0.5], [-0.25], []]
    first = spoken["steps"][1]
    assert first["tool_calls"][0]["function_name"] == "move"
    assert first["reasoning_content"] == "Up, I think."
    assert spoken["agent"]["model_name"] == "openai:m/x"
    assert {one["function"]["name"] for one in spoken["agent"]["tool_definitions"]} == {"step", "move"}
    for one in found:  # as another program would read them
        del one["extra"]["agentgym_flow"]
    (tmp_path / "foreign.json").write_text(json.dumps(found[:1]), "utf-8")
    (episode,) = read("atif", tmp_path / "foreign.json")
    assert not isinstance(episode, BadLog)
    assert (episode.success, episode.faults) == (scripted["final_metrics"]["extra"]["success"], [])


def test_traces_are_of_the_format_of_the_hub(tmp_path: Path, log: Path) -> None:
    export_log("traces", log, tmp_path / "traces")
    for file in (tmp_path / "traces").iterdir():
        head, *rest = [json.loads(line) for line in file.read_text("ascii").splitlines()]
        assert (head["type"], head["harness"]) == ("session", "agentgym_flow")
        assert {row["type"] for row in rest} == {"message"}
        asked = [call["id"] for row in rest for call in row["message"].get("toolCalls", ())]
        assert asked == [row["message"]["toolCallId"] for row in rest if row["message"]["role"] == "tool"]
        file.read_text("ascii").encode("utf-8").decode("utf-8")
        assert "\\udce9" not in json.dumps([row["message"] for row in rest])
    third = (tmp_path / "traces" / "3.jsonl").read_text("ascii")
    assert '"reasoningContent": "Up, I think."' in third
    assert json.loads(third.splitlines()[2])["message"]["toolCalls"][0]["function"]["name"] == "move"


def test_a_data_set_has_one_configuration_for_each_environment(tmp_path: Path, log: Path) -> None:
    yaml = pytest.importorskip("yaml", reason="it comes with the extras train and leaderboard")
    export_log("dataset", log, tmp_path / "set")
    card = (tmp_path / "set" / "README.md").read_text("utf-8")
    about = yaml.safe_load(card.split("---")[1])
    assert {
        one["config_name"]: {file["split"]: file["path"] for file in one["data_files"]} for one in about["configs"]
    } == {
        "alfworld": {"test": "alfworld/test.jsonl.gz", "valid": "alfworld/valid.jsonl.gz"},
        "sokoban": {"test": "sokoban/test.jsonl.gz"},
    }
    assert "| sokoban | test | 4 | 1 | 0.000 [0.000, " in card
    kinds: set[Any] = set()
    for file in (tmp_path / "set").rglob("*.gz"):
        for line in gzip.decompress(file.read_bytes()).splitlines():
            row = json.loads(line)
            kinds.add(tuple((name, type(value)) for name, value in row.items()))
            assert all(set(message) == {"role", "content"} for message in row["messages"])
    assert len(kinds) == 1  # columns of one type


@pytest.mark.heavy
def test_a_data_set_is_loaded_by_the_library(tmp_path: Path, log: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="it comes with the extra train")
    export_log("dataset", log, tmp_path / "set")
    loaded = datasets.load_dataset(str(tmp_path / "set"), "sokoban", cache_dir=str(tmp_path / "cache"))
    lines = [one.line() for one in read_log(log) if one.env_id == SOKOBAN]
    assert loaded["test"]["agentgym_flow"][:] == lines
    assert set(datasets.load_dataset(str(tmp_path / "set"), "alfworld", cache_dir=str(tmp_path / "cache"))) == {
        "test",
        "valid",
    }


def test_inspect_is_asked_for_only_when_it_is_needed(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "inspect_ai", None)
    monkeypatch.setitem(sys.modules, "inspect_ai.log", None)
    monkeypatch.delitem(sys.modules, "agentgym_flow.interchange.inspect_log", raising=False)
    with pytest.raises(MissingExtra, match=re.escape("pip install 'agentgym_flow[inspect]'")):
        export_log("inspect", log, tmp_path / "out")


def test_archives_of_inspect_need_a_package_before_python_3_14(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inspect compresses with Zstandard, which `zipfile` refuses with a message about nothing in particular."""
    with zipfile.ZipFile(tmp_path / "a.eval", "w") as archive:
        archive.writestr("samples/1_epoch_1.json", "{}")
    raw = bytearray((tmp_path / "a.eval").read_bytes())
    for signature, place in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        raw[raw.index(signature) + place] = 93
    (tmp_path / "a.eval").write_bytes(raw)
    for package in ("pyarrow", "zipfile_zstd"):
        monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delattr(zipfile, "ZIP_ZSTANDARD", raising=False)
    with pytest.raises(MissingExtra, match=re.escape("pip install 'agentgym_flow[inspect]'")):
        list(read("inspect", tmp_path / "a.eval"))


def test_an_evaluation_logs_the_template_of_its_prompts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, an export would render other prompts than the model was shown."""
    (tmp_path / "prompted.py").write_text(
        "class Prompted:\n"
        "    name, settings = 'prompted', {'template': 'choice', 'temperature': 0}\n"
        "    def act(self, inputs):\n"
        "        return ['up' for _ in inputs]\n"
        "ascii",
    )
    monkeypatch.chdir(tmp_path)
    words = ["evaluate", "Sokoban-v0", "--episodes", "1", "--log", "run.jsonl", "--policy", "prompted:Prompted"]
    assert command(*words)[0] == 0
    (line,) = read_log(tmp_path / "run.jsonl")
    assert (line.meta or {})["template"] == "choice"
    export_log("traces", tmp_path / "run.jsonl", tmp_path / "traces")
    head = (tmp_path / "traces" / "1.jsonl").read_text("ascii").splitlines()[0]
    assert json.loads(head)["template"] == "choice"


def test_prompts_are_rendered_with_the_settings_of_their_template(tmp_path: Path) -> None:
    class Terse:
        name = "terse"
        settings: ClassVar[dict[str, Any]] = {"template": "text", "template_settings": {"think": False}}

        def act(self, inputs: Sequence[PolicyInput]) -> list[PolicyOutput]:
            return [PolicyOutput("up", "<action>up</action>") for _ in inputs]

    log = tmp_path / "run.jsonl"
    evaluate(Terse(), "agentgym_flow/Sokoban-v0", num_episodes=1, env_kwargs={"max_steps": 2}, log=log)
    (line,) = read_log(log)
    assert (line.meta or {})["template_settings"] == {"think": False}
    for number, (settings, thinks) in enumerate([({"think": False}, False), ({"think": 3}, True), ([], True)]):
        write_log(log, [replace(line, meta={**(line.meta or {}), "template_settings": settings})])
        export_log("traces", log, tmp_path / str(number))
        assert ("<think>" in (tmp_path / str(number) / "1.jsonl").read_text("ascii")) == thinks


@pytest.mark.parametrize("form", ["dataset", "traces", "atif"])
@pytest.mark.parametrize("line", [None, 3, [], "", "x", "{}", {"schema": 1}, '{"schema": "agentgym_flow.episode/1"}'])
def test_damaged_lines_are_reported(form: str, line: Any, tmp_path: Path) -> None:
    row: dict[str, Any] = {"agentgym_flow": line, "agentgym_flow_line": "1", "type": "session"}
    if form == "atif":
        row = {"schema_version": "ATIF-v1.8", "steps": [], "extra": row}
    (tmp_path / "a.jsonl").write_text(json.dumps(row) + "\n[]\n", "utf-8")
    found = list(read(form, tmp_path / "a.jsonl"))
    assert len(found) == 2
    assert all(isinstance(one, BadLog) or one.logged is None for one in found)
    with pytest.raises(BadLog):
        restore_log(form, tmp_path / "a.jsonl", tmp_path / "out.jsonl")

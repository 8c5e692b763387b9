from __future__ import annotations

import gzip
import json
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentgym_flow._util.signals import sigterm_raises
from agentgym_flow.episodes import (
    BOARD_SCHEMA,
    Episode,
    EpisodeRecorder,
    LoggedEpisode,
    LogWriter,
    check_against,
    read_log,
    scan_log,
    write_log,
)
from agentgym_flow.episodes.log import MAX_DEPTH
from agentgym_flow.errors import BadLog
from agentgym_flow.testing.example import CaveEnv

FIELDS = [
    "schema",
    "env_id",
    "kwargs",
    "data",
    "split",
    "task",
    "task_key",
    "seed",
    "attempt",
    "max_steps",
    "actions",
    "rewards",
    "terminated",
    "truncated",
    "success",
    "score",
    "digests",
    "digest",
]


def play(seed: int, *actions: str) -> Episode:
    recorder = EpisodeRecorder(CaveEnv())
    episode = recorder.reset(seed=seed)
    for action in actions:
        recorder.step(action)
    return episode


def episodes() -> list[Episode]:
    return [play(seed, "left", "√ \ud800", "right") for seed in range(5)]


def edited(**changes: Any) -> str:
    row = json.loads(LoggedEpisode.of(play(0, "left", "right")).line())
    row.update(changes)
    return json.dumps({name: value for name, value in row.items() if value is not ...})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "episodes.jsonl"


def test_fields_come_in_the_order_of_the_format(path: Path) -> None:
    plain, spoken = play(0, "left"), play(1, "left", "right")
    spoken.turns[0].output.completion = ""
    spoken.meta["policy"] = "x"
    spoken.recording = {"answer": 1}
    write_log(path, [plain, spoken])
    first, second = (json.loads(line) for line in path.read_text().splitlines())
    assert list(first) == FIELDS
    assert list(second) == [*FIELDS, "recording", "completions", "meta"]
    assert second["completions"] == ["", "right"], "an empty completion is not the action"
    assert second["recording"] == [{"answer": 1}, None, None]
    assert [len(link) for link in first["digests"]] == [16, 16]
    assert first["digest"].startswith(first["digests"][-1])


def test_version_2_has_the_same_lines_without_the_digests_of_steps(path: Path) -> None:
    spoken = play(1, "left", "right")
    spoken.turns[0].output.completion = "go left"
    spoken.meta["policy"] = "x"
    logged = LoggedEpisode.of(spoken)
    write_log(path, [logged, logged.for_board()])
    first, second = (json.loads(line) for line in path.read_text().splitlines())
    assert list(second) == [name for name in [*FIELDS, "completions", "meta"] if name != "digests"]
    assert second == {name: value for name, value in first.items() if name != "digests"} | {"schema": BOARD_SCHEMA}
    assert [*read_log(path)] == [logged, logged.for_board()]
    assert logged.for_board().for_board() == logged.for_board()


@pytest.mark.parametrize(
    ("policy", "published"),
    [
        ("hf:/data/secret/checkpoint", "hf:checkpoint"),
        ("hf:runs/mine/checkpoint", "hf:runs/mine/checkpoint"),
        ("openai:m@http://localhost:8000/v1", "openai:m@http://localhost:8000/v1"),
        ("random", "random"),
        ([1], [1]),
    ],
)
def test_a_submitted_log_has_no_folder_of_this_machine(policy: object, published: object) -> None:
    logged = replace(
        LoggedEpisode.of(play(0, "left")), meta={"policy": policy, "template": "verl_agent:/data/a.py", "n": 1}
    )
    assert logged.for_board().meta == {"policy": published, "template": "verl_agent:a.py", "n": 1}
    assert logged.public().digests == logged.digests


def test_a_log_of_version_2_belongs_to_the_one_it_was_made_from(path: Path) -> None:
    played = [LoggedEpisode.of(episode) for episode in episodes()]
    other = path.with_name("other.jsonl.gz")
    write_log(path, played)
    write_log(other, (episode.for_board() for episode in played))
    check_against(other, path)
    for lines, why in (
        (played[:-1], "different numbers of episodes"),
        ([*played, played[0]], "different numbers of episodes"),
        ([*played[:3], replace(played[3], success=True), *played[4:]], f"task {played[3].task}, attempt 0, differs"),
    ):
        write_log(path, lines)
        with pytest.raises(BadLog, match=why):
            check_against(other, path)
    path.write_text("no log\n")
    with pytest.raises(BadLog, match="line 1: not JSON"):
        check_against(other, path)


def test_an_older_log_names_its_recording_tape(path: Path) -> None:
    spoken = play(1, "left")
    spoken.recording = {"answer": 1}
    line = LoggedEpisode.of(spoken).line()
    assert LoggedEpisode.parse(line.replace('"recording":', '"tape":')) == LoggedEpisode.parse(line)
    both = line.replace('"recording":', '"tape":[null,null],"recording":')
    with pytest.raises(BadLog, match="unknown field 'tape'"):
        LoggedEpisode.parse(both)


@pytest.mark.parametrize("name", ["e.jsonl", "e.jsonl.gz"])
def test_a_log_comes_back_as_it_was(name: str, tmp_path: Path) -> None:
    written = [LoggedEpisode.of(episode) for episode in episodes()]
    write_log(tmp_path / name, written)
    assert list(read_log(tmp_path / name)) == written
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_the_log_is_ascii_and_takes_any_text(path: Path) -> None:
    strange = ["\ud800", "\n\r\u2028", "x" * (1 << 20), "\0", "√" * 1000]
    write_log(path, [play(0, *strange)])
    assert path.read_bytes().isascii()
    assert path.read_bytes().count(b"\n") == 1
    [logged] = read_log(path)
    assert logged.actions == strange


def test_another_writer_may_write_utf8(path: Path) -> None:
    write_log(path, [play(0, "√")])
    path.write_text(path.read_text("ascii").replace("\\u221a", "√"), "utf-8")
    assert [logged.actions for logged in read_log(path)] == [["√"]]


def test_equal_episodes_are_written_as_equal_bytes(tmp_path: Path) -> None:
    for name in ("a.jsonl.gz", "b.jsonl.gz"):
        write_log(tmp_path / name, episodes())
    assert (tmp_path / "a.jsonl.gz").read_bytes() == (tmp_path / "b.jsonl.gz").read_bytes()
    write_log(tmp_path / "a.jsonl", episodes())
    assert gzip.decompress((tmp_path / "a.jsonl.gz").read_bytes()) == (tmp_path / "a.jsonl").read_bytes()


@pytest.mark.parametrize("name", ["e.jsonl", "e.jsonl.gz"])
def test_every_cut_is_noticed(name: str, tmp_path: Path) -> None:
    whole = tmp_path / name
    write_log(whole, episodes()[:2])
    content = whole.read_bytes()
    line_ends = {i + 1 for i, byte in enumerate(content) if byte == 10} if name == "e.jsonl" else set()
    for length in range(1, len(content), 7):
        if length not in line_ends:
            whole.write_bytes(content[:length])
            with pytest.raises(BadLog, match=name):
                list(read_log(whole))


def test_a_bad_line_does_not_hide_the_next(path: Path) -> None:
    write_log(path, episodes()[:3])
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], "{", lines[2]]) + "\n")
    found = list(scan_log(path))
    assert [number for number, _ in found] == [1, 2, 3]
    assert [isinstance(entry, BadLog) for _, entry in found] == [False, True, False]
    with pytest.raises(BadLog, match=r"episodes\.jsonl line 2: not JSON"):
        list(read_log(path))


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadLog, match="there is no log at"):
        list(read_log(tmp_path / "missing.jsonl"))
    with pytest.raises(BadLog, match="damaged"):
        list(read_log(tmp_path))
    (tmp_path / "x.jsonl.gz").write_bytes(b"plain text")
    with pytest.raises(BadLog, match="damaged"):
        list(read_log(tmp_path / "x.jsonl.gz"))
    (tmp_path / "x.jsonl").write_bytes(b"\xff\n")
    with pytest.raises(BadLog, match="not UTF-8"):
        list(read_log(tmp_path / "x.jsonl"))


def test_a_small_archive_cannot_unpack_to_all_memory(tmp_path: Path) -> None:
    (tmp_path / "bomb.jsonl.gz").write_bytes(gzip.compress(b" " * 30_000_000))
    found = list(scan_log(tmp_path / "bomb.jsonl.gz"))
    assert len(found) == 1
    assert "more bytes than max_line_bytes" in str(found[0][1])


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ("3", "an episode is a JSON object, found int"),
        ("{}", "schema is None"),
        (edited(schema="agentgym_flow.episode/3"), "schema is 'agentgym_flow.episode/3', this version reads"),
        (edited(schema=[]), "schema is [], this version reads"),
        (edited(schema="agentgym_flow.episode/2"), "digests are in every line of 'agentgym_flow.episode/1', and in no"),
        (edited(digests=...), "digests are in every line of 'agentgym_flow.episode/1'"),
        (edited(digests=None), "field 'digests' must be list, found null"),
        (edited(task=...), "field 'task' is missing"),
        (edited(task="3"), "field 'task' must be int, found '3'"),
        (edited(seed=True), "field 'seed' must be int"),
        (edited(score=10**400), "field 'score' must be a finite number"),
        (edited(success=1), "field 'success' must be bool"),
        (edited(actions="up"), "field 'actions' must be list"),
        (edited(actions=["left"]), "rewards must be a list of 1 for 1 actions, found 2"),
        (edited(actions=["left", None]), "field 'actions[1]' must be str, found None"),
        (edited(rewards=[0, "x"]), "field 'rewards[1]' must be float, found 'x'"),
        (edited(digests=[1, 2, 3]), "field 'digests[0]' must be str, found 1"),
        (edited(data={"boxoban": 3}), "field \"data['boxoban']\" must be str, found 3"),
        (edited(recording=[None]), "recording must be a list of 3"),
        (edited(recording={}), "field 'recording' must be list"),
        (edited(completions=["left"]), "completions must be a list of 2"),
        (edited(completions=["left", 3]), "field 'completions[1]' must be str, found 3"),
        (edited(meta=3), "field 'meta' must be object"),
        (edited(extra=1), "unknown field 'extra'"),
        (edited().replace("-0.1", "NaN"), "NaN is not a JSON number"),
        (edited().replace("-0.1", "1e999"), "number 1e999 is beyond the largest one"),
        (edited()[:-1] + ', "seed": 3}', "occurs twice"),
        (edited(kwargs=json.loads('{"a":' * (MAX_DEPTH + 1) + "1" + "}" * (MAX_DEPTH + 1))), "nested more than"),
    ],
)
def test_edited_lines_are_told_what_is_wrong(line: str, complaint: str) -> None:
    with pytest.raises(BadLog, match=r"^here: ") as caught:
        LoggedEpisode.parse(line, "here")
    assert complaint in str(caught.value)


def test_the_unedited_line_is_read() -> None:
    assert LoggedEpisode.parse(edited()) == LoggedEpisode.of(play(0, "left", "right"))


def test_cut_answers_come_back_whatever_else_the_remarks_hold() -> None:
    episode = play(0, "left", "right")
    episode.turns[1].output.cut = True
    logged = LoggedEpisode.of(episode)
    assert logged.meta == {"cut_turns": [1]}
    for remark in ([1], [[], {}, "1", -1, True, 1.0, 10**30, 1], [1] * 100_000):
        logged.meta = {"cut_turns": remark, "note": "x"}
        again = play(0, "left", "right")
        logged.add_remarks(again)
        assert [turn.output.cut for turn in again.turns] == [False, True]
        assert again.meta == {"note": "x"}
    logged.meta = {"cut_turns": {"1": 1}}
    logged.add_remarks(again := play(0, "left", "right"))
    assert not any(turn.output.cut for turn in again.turns)


def test_whole_numbers_may_stand_for_floats() -> None:
    assert LoggedEpisode.parse(edited(rewards=[1, 2], score=1)).rewards == [1.0, 2.0]


class TestHalfWritten:
    """Nothing half-written is left under any name, whatever goes wrong."""

    @staticmethod
    def test_an_error_leaves_nothing(path: Path) -> None:
        with pytest.raises(RuntimeError, match="the policy broke"):
            write_log(path, one_and_then(RuntimeError("the policy broke")))
        assert list(path.parent.iterdir()) == []

    @staticmethod
    def test_an_older_log_survives_an_error(path: Path) -> None:
        write_log(path, episodes())
        before = path.read_bytes()
        with pytest.raises(RuntimeError, match="the policy broke"):
            write_log(path, one_and_then(RuntimeError("the policy broke")))
        assert path.read_bytes() == before

    @staticmethod
    def test_the_log_appears_only_when_it_is_whole(path: Path) -> None:
        with LogWriter(path) as writer:
            writer.write(episodes()[0])
            assert not path.exists()
        assert path.exists()

    @staticmethod
    @pytest.mark.parametrize("name", ["e.jsonl", "e.jsonl.gz"])
    def test_ctrl_c_keeps_what_was_finished(name: str, tmp_path: Path) -> None:
        with pytest.raises(KeyboardInterrupt):
            write_log(tmp_path / name, one_and_then(KeyboardInterrupt()))
        assert len(list(read_log(tmp_path / name))) == 1

    @staticmethod
    def test_ctrl_c_before_anything_is_finished_leaves_the_older_log(path: Path) -> None:
        write_log(path, episodes())
        before = path.read_bytes()
        writer = LogWriter(path, keep_finished=True)
        with pytest.raises(KeyboardInterrupt), writer:
            raise KeyboardInterrupt
        assert path.read_bytes() == before
        assert [file.name for file in path.parent.iterdir()] == [path.name]

    @staticmethod
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_a_second_signal_takes_nothing(number: signal.Signals, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "fsync", lambda _: signal.raise_signal(number))
        with pytest.raises(KeyboardInterrupt) as caught, sigterm_raises():
            write_log(path, one_and_then(KeyboardInterrupt("the first")))
        assert str(caught.value) == "the first"
        assert len(list(read_log(path))) == 1

    @staticmethod
    @pytest.mark.parametrize("replace", [False, True])
    def test_two_processes_do_not_touch_each_others_lines(
        replace: bool, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def write_both() -> None:
            with LogWriter(path, replace=replace) as slow:
                slow.write(episodes()[0])
                with monkeypatch.context() as other:
                    other.setattr(os, "getpid", lambda: 1)
                    fast = LogWriter(path, replace=replace)
                    with fast:
                        fast.write(episodes()[0])
                        fast.write(episodes()[1])

        if replace:
            write_both()
            assert len(list(read_log(path))) == 1
        else:
            with pytest.raises(FileExistsError, match=f"{path.name}.{os.getpid()}.partial"):
                write_both()
            assert len(list(read_log(path))) == 2
            kept = path.with_name(f"{path.name}.{os.getpid()}.partial").rename(path.with_name("kept.jsonl"))
            assert len(list(read_log(kept))) == 1
        assert not list(path.parent.glob("*.partial"))

    @staticmethod
    @pytest.mark.parametrize("room", [0, 100, 4000])
    def test_what_is_finished_is_not_kept_on_a_full_disk(
        room: int, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Path, "open", small_disk(room, Path.open))
        writer = LogWriter(path, keep_finished=True)
        with pytest.raises(OSError, match="No space left"):
            fill(writer)
        assert list(path.parent.iterdir()) == []

    @staticmethod
    @pytest.mark.parametrize("name", ["e.jsonl", "e.jsonl.gz"])
    @pytest.mark.parametrize("room", [0, 100, 1000])
    def test_a_full_disk_leaves_no_file(name: str, room: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Path, "open", small_disk(room, Path.open))
        with pytest.raises(OSError, match="No space left"):
            write_log(tmp_path / name, episodes() * 20)
        assert list(tmp_path.iterdir()) == []

    @staticmethod
    def test_a_folder_of_that_name_is_left_alone(path: Path) -> None:
        path.mkdir()
        with pytest.raises(OSError):  # noqa: PT011 (its text differs between systems)
            write_log(path, episodes())
        assert [p.name for p in path.parent.iterdir()] == [path.name]


def fill(writer: LogWriter) -> None:
    with writer:
        for episode in episodes() * 20:
            writer.write(episode)


def one_and_then(error: BaseException) -> Iterator[Episode]:
    yield episodes()[0]
    raise error


def small_disk(room: int, true_open: Callable[..., Any]) -> Callable[..., Any]:
    """Return a `Path.open` whose files take `room` bytes and then fail as a full disk does."""

    def opened(file: Path, *mode: str) -> Any:
        stream = true_open(file, *mode, buffering=0)
        written = 0
        true_write = stream.write

        class Limited:
            closed = False
            fileno = staticmethod(stream.fileno)
            flush = staticmethod(stream.flush)
            close = staticmethod(stream.close)

            @staticmethod
            def write(content: bytes) -> int:
                nonlocal written
                written += len(content)
                if written > room:
                    raise OSError(28, "No space left on device")
                return int(true_write(content))

        return Limited()

    return opened

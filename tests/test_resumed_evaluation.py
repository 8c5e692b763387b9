"""An evaluation that stopped goes on: nothing that was played or paid for is lost, and its log is that of one run."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fault_server import FaultServer, Handler, faults, hanging_up
from typer.testing import CliRunner, Result

from agentgym_flow._util.openai_access import PROBE
from agentgym_flow.cli import app
from agentgym_flow.cli.player import seconds
from agentgym_flow.episodes import Episode, read_log
from agentgym_flow.errors import BadLog, BadResume, BadSetting, ServerDown
from agentgym_flow.play import evaluate, path_of
from agentgym_flow.policies import ExpertPolicy, Policy, PolicyInput, PolicyOutput, RandomPolicy, make_policy
from agentgym_flow.replay import verify_log
from agentgym_flow.testing.example import CaveEnv

CAVE = CaveEnv.env_id
SOKOBAN = "agentgym_flow/Sokoban-v0"


class Model(FaultServer):
    """A chat model whose answer is a function of the prompt, so that runs can be compared; at times it is down."""

    def reset(self) -> None:
        self.served: list[str] = []
        self.full = False
        self.down_after = 1 << 30
        self.down_until = 0.0
        self.way: Any = lambda handler: handler.reply(500, b"{}", retry_after_ms="1")

    def pop(self, _: int) -> Any:
        return self.answer

    def answer(self, handler: Handler) -> None:
        if len(self.served) >= self.down_after and time.monotonic() < self.down_until:
            self.way(handler)
            return
        prompt = handler.asked["messages"][-1]["content"]
        if prompt == PROBE:
            handler.reply(200, b'{"choices": [{"index": 0, "message": {"role": "assistant", "content": ""}}]}')
            return
        word = ("up", "down", "left", "right")[hashlib.sha256(prompt.encode()).digest()[0] % 4]
        message = {"role": "assistant", "content": f"<action>{word}</action>"}
        choice = {"index": 0, "message": message, "finish_reason": "length" if word == "up" else "stop"}
        with self.lock:
            self.served.append(prompt)
        time.sleep(0.005)
        if word == "down" and self.full:
            handler.reply(400, b'{"error": {"code": "context_length_exceeded"}}')
        else:
            handler.reply(200, json.dumps({"choices": [choice]}).encode())


@contextmanager
def model() -> Iterator[Model]:
    with faults() as server:
        server.__class__ = Model
        assert isinstance(server, Model)
        server.reset()
        server.script = server  # type: ignore[assignment]
        yield server


def player(server: Model, **settings: Any) -> Policy:
    quick = {"concurrency": 4, "max_retries": 0, "patience": 30.0}
    return make_policy(f"openai:m@{server.url}/v1", SOKOBAN, **{**quick, **settings})


def play(policy: Policy, log: Path, **more: Any) -> Sequence[Episode]:
    settings = {"num_episodes": 8, "num_envs": 4, "env_kwargs": {"max_steps": 6}, "log": log}
    return evaluate(policy, SOKOBAN, **{**settings, **more})[1]


def run(*arguments: object) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The log of the run that nothing stops."""
    log = tmp_path_factory.mktemp("whole") / "log.jsonl"
    with model() as server:
        play(player(server), log)
    return log.read_bytes()


# ---------------------------------------------------------------- outages
def test_a_spell_of_errors_is_waited_for(whole: bytes, tmp_path: Path) -> None:
    """All requests under way fail, several times over, and nothing is lost."""
    log = tmp_path / "log.jsonl"
    with model() as server:
        server.down_after, server.down_until = 10, time.monotonic() + 1.2
        play(player(server), log)
        failed = len(server.asked) - len(server.served)
    assert failed > 4
    assert log.read_bytes() == whole
    assert [file.name for file in tmp_path.iterdir()] == ["log.jsonl"]


@pytest.mark.parametrize("way", ["errors", "no connection"])
def test_when_patience_is_over_the_run_ends_and_goes_on_later(whole: bytes, way: str, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    with model() as server:
        if way == "no connection":
            server.way = hanging_up
        server.down_after, server.down_until = 17, float("inf")
        with pytest.raises(ServerDown, match="has not answered for"):
            play(player(server, patience=0.5), log)
        served = list(server.served)
        assert 17 <= len(served) <= 20
        assert path_of(log).exists()
        time.sleep(0.5)  # what was under way comes to its end
        server.down_until = 0.0
        episodes = play(player(server), log, resume=True)
        again = server.served[len(served) :]
    assert log.read_bytes() == whole
    assert len(served) + len(again) == len(json_actions(whole)), "no answer was asked for twice"
    assert len(episodes) == 8
    assert not path_of(log).exists()


def json_actions(log: bytes) -> list[str]:
    return [action for line in log.splitlines() for action in json.loads(line)["actions"]]


def test_a_request_that_fails_alone_is_data_while_others_are_answered(tmp_path: Path) -> None:
    with model() as server:
        answer, bad = server.answer, set[str]()

        def all_but_one(handler: Handler) -> None:
            prompt = handler.asked["messages"][-1]["content"]
            if len(server.served) == 6 and not bad:
                bad.add(prompt)
            if prompt in bad:
                handler.reply(500, b"{}", retry_after_ms="1")
            else:
                answer(handler)

        server.answer = all_but_one  # type: ignore[method-assign]
        episodes = play(player(server), tmp_path / "log.jsonl")
    failures = [failure for episode in episodes for failure in episode.meta.get("failed_requests", [])]
    assert {failure["failure"] for failure in failures} == {"InternalServerError (HTTP 500)"}


def test_cut_answers_and_full_contexts_are_recorded_too(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    with model() as server:
        server.full = True
        play(player(server), tmp_path / "whole.jsonl")
        answered = len(server.served)
        server.down_after, server.down_until = answered + 9, float("inf")
        with pytest.raises(ServerDown):
            play(player(server, patience=0.2), log)
        recorded = [json.loads(line)["output"] for line in path_of(log).read_text().splitlines() if '"output"' in line]
        assert {output[4] for output in recorded} == {True, False}, "some were cut"
        time.sleep(0.3)  # what was under way comes to its end
        server.down_until = 0.0
        episodes = play(player(server), log, resume=True)
        assert len(server.served) == 2 * answered
    assert log.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert any("truncated_by" in episode.meta for episode in episodes)
    assert any(turn.output.cut for episode in episodes for turn in episode.turns)


# ---------------------------------------------------------------- stops
COMMAND = "import sys; sys.argv[0] = 'agentgym-flow'; from agentgym_flow.cli import main; main()"


@pytest.mark.parametrize(
    "number",
    [signal.SIGKILL, signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.nightly)],
    ids=lambda one: one.name,
)
def test_a_run_that_was_stopped_goes_on(whole: bytes, number: signal.Signals, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    with model() as server:
        arguments = ["evaluate", "sokoban", "--policy", f"openai:m@{server.url}/v1", "--episodes", "8"]
        arguments += ["--num-envs", "4", "--env-arg", "max_steps=6", "--policy-arg", "concurrency=4"]
        arguments += ["--log", str(log)]
        server.down_after, server.down_until = 30, float("inf")  # it cannot come to its end before it is stopped
        process = subprocess.Popen([sys.executable, "-c", COMMAND, *arguments], stderr=subprocess.PIPE, text=True)
        while len(server.served) < 30 and process.poll() is None:
            time.sleep(0.02)
        time.sleep(0.2)  # the last answer is on its way
        process.send_signal(number)
        _, told = process.communicate(timeout=60)
        assert process.returncode == (-number if number == signal.SIGKILL else 128 + number), told
        if number != signal.SIGKILL:
            assert "--resume to continue" in told
            assert verify_log(log).ok
            finished = len(list(read_log(log)))
            assert 1 <= finished < 8
        assert path_of(log).exists()
        server.down_until = 0.0
        served = len(server.served)
        refused = run(*arguments)
        assert (refused.exit_code, len(server.served)) == (2, served)
        assert "already exists" in refused.stderr or "--resume" in refused.stderr
        result = run(*arguments, "--resume")
        assert result.exit_code == 0, result.stderr
        assert len(server.served) == len(json_actions(whole))
    assert log.read_bytes() == whole
    assert sorted(file.name for file in tmp_path.iterdir() if file.suffix != ".partial") == ["log.jsonl"]


def interrupt_after(count: int) -> Any:
    finished: list[Episode] = []

    def add(episode: Episode) -> None:
        finished.append(episode)
        if len(finished) == count:
            raise KeyboardInterrupt

    return add


@pytest.mark.parametrize("name", ["log.jsonl", "log.jsonl.gz"])
def test_policies_that_draw_play_unfinished_episodes_again(name: str, tmp_path: Path) -> None:
    log, other = tmp_path / name, tmp_path / f"whole_{name}"
    how: dict[str, Any] = {"attempts": 3, "num_envs": 4}
    whole = evaluate(RandomPolicy(), CAVE, log=other, **how)
    for count in (5, 9):  # stopped, resumed, and stopped again
        with pytest.raises(KeyboardInterrupt):
            evaluate(RandomPolicy(), CAVE, log=log, resume=True, on_episode=interrupt_after(count), **how)
        assert len(list(read_log(log))) == count
    seen: list[Episode] = []
    how["on_plan"] = lambda plan: known.append(plan.known)
    known: list[int] = []
    assert evaluate(RandomPolicy(), CAVE, log=log, resume=True, on_episode=seen.append, **how) == whole
    assert known == [9]  # the progress does not count them as played
    assert log.read_bytes() == other.read_bytes()
    assert len(seen) == 24


# ---------------------------------------------------------------- what is refused
def stopped(log: Path, **more: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        evaluate(ExpertPolicy(), CAVE, log=log, on_episode=interrupt_after(3), num_envs=1, **more)


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"seed": 1}, "seed=0, this one has 1"),
        ({"attempts": 2}, "attempts=1, this one has 2"),
        ({"num_episodes": 4}, "tasks=8, this one has 4"),
        ({"env_kwargs": {"rooms": 4}}, "arguments="),
        ({"env_kwargs": {"max_steps": 4}}, "max_steps=20, this one has 4"),
        ({"split": "valid"}, "split='test'"),
    ],
)
def test_other_settings_are_refused(settings: dict[str, Any], what: str, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    stopped(log)
    before = path_of(log).read_bytes()
    with pytest.raises(BadSetting, match=what):
        evaluate(ExpertPolicy(), CAVE, log=log, resume=True, **settings)
    with pytest.raises(BadSetting, match="policy='expert', this one has 'random'"):
        evaluate(RandomPolicy(), CAVE, log=log, resume=True)
    assert path_of(log).read_bytes() == before


def test_a_stopped_run_is_neither_replaced_nor_mixed_with_another_unasked(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    stopped(log)
    with pytest.raises(FileExistsError, match="already exists"):
        evaluate(ExpertPolicy(), CAVE, log=log)
    log.unlink()
    with pytest.raises(FileExistsError, match="a run was stopped there"):
        evaluate(ExpertPolicy(), CAVE, log=log)
    evaluate(ExpertPolicy(), CAVE, log=log, seed=5, replace=True)
    assert [logged.seed for logged in read_log(log)] == list(range(5, 13))
    assert [file.name for file in tmp_path.iterdir()] == ["log.jsonl"]
    with pytest.raises(FileExistsError, match="already exists"):  # it is complete
        evaluate(ExpertPolicy(), CAVE, log=log, seed=5, resume=True)
    with pytest.raises(BadSetting, match="resume needs the log"):
        evaluate(ExpertPolicy(), CAVE, resume=True)


def test_resume_and_replace_exclude_each_other(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    stopped(log)
    before = path_of(log).read_bytes()
    with pytest.raises(BadResume, match="choose one"):
        evaluate(ExpertPolicy(), CAVE, log=log, resume=True, replace=True)
    assert path_of(log).read_bytes() == before


def test_resuming_what_is_complete_is_no_error(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    command = ["evaluate", CAVE, "--policy", "expert", "--seed", 3, "--log", log, "--resume"]
    assert run(*command).exit_code == 0
    before = log.read_bytes()
    again = run(*command)
    assert (again.exit_code, again.stdout, "is complete" in again.stderr) == (0, "", True)
    for other, what in (
        (["--seed", 4], "seed=3, this one has 4"),
        (["--split", "valid"], "split='test', this one has 'valid'"),
        (["--policy", "random"], "policy='expert', this one has 'random'"),
        (["--episodes", 2], "episodes=8, this one has 2"),
        (["--attempts", 2], "attempts=1, this one has 2"),
        (["--env-arg", "rooms=4"], "arguments={"),
        (["--env-arg", "max_steps=4"], "max_steps=20, this one has 4"),
    ):
        refused = run(*command, *other)
        assert (refused.exit_code, refused.stderr.startswith(f"error: {log} had {what}")) == (2, True), refused.stderr
    collected = run("collect", *command[1:4], "--split", "test", "--seed", 4, "--out", log, "--resume")
    assert (collected.exit_code, "seed=3, this one has 4" in collected.stderr) == (2, True)
    assert log.read_bytes() == before
    log.write_text("notes\n")
    assert run(*command).exit_code == 2
    assert log.read_text() == "notes\n"


def test_a_refused_command_does_not_advise_itself(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    stopped(log)
    command = ["evaluate", CAVE, "--policy", "expert", "--log", log]
    for more, what in ((["--resume", "--seed", 1], "seed=0"), (["--resume", "--force"], "choose one")):
        refused = run(*command, *more)
        assert (refused.exit_code, what in refused.stderr) == (2, True)
        assert "the same command" not in refused.stderr


def test_episodes_in_which_the_environment_raised_are_played_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object) -> None:
        raise ServerDown("nobody answers")

    log, whole = tmp_path / "log.jsonl", tmp_path / "whole.jsonl"
    evaluate(ExpertPolicy(), CAVE, log=whole)
    with monkeypatch.context() as outage:
        outage.setattr(CaveEnv, "_apply", unreachable)
        stopped(log)
    assert ["error" in (logged.meta or {}) for logged in read_log(log)] == [True] * 3
    evaluate(ExpertPolicy(), CAVE, log=log, num_envs=1, resume=True)
    assert log.read_bytes() == whole.read_bytes()


def test_a_torn_line_is_played_again_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    stopped(log)
    journal = path_of(log)
    lines = journal.read_bytes().splitlines(keepends=True)
    for damage in (b'{"at":[1\n', b'{"asked":' + b"[" * 100_000 + b"\n"):
        journal.write_bytes(b"".join([lines[0], damage, *lines[2:]]))
        with pytest.raises(BadLog, match=r"log.jsonl.unfinished line 2 is damaged"):
            evaluate(ExpertPolicy(), CAVE, log=log, resume=True)
    journal.write_bytes(b"".join(lines)[:-9])
    seen: list[int] = []
    evaluate(ExpertPolicy(), CAVE, log=log, resume=True, on_episode=lambda episode: seen.append(episode.task))
    assert sorted(seen) == list(range(8))
    assert verify_log(log).ok


def test_an_episode_that_comes_out_otherwise_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log.jsonl"
    stopped(log)
    monkeypatch.setattr(CaveEnv, "score", lambda self: 0.5)
    with pytest.raises(BadLog, match="the package or the data has changed"):
        evaluate(ExpertPolicy(), CAVE, log=log, resume=True)


class Team:
    """Two policies that take turns; the server of both goes down after some answers."""

    name = "team"
    ignores_rng = True

    def __init__(self, answers: int = 1 << 30) -> None:
        self.left = answers

    async def respond(self, policy_input: PolicyInput) -> PolicyOutput:
        if not self.left:
            raise ServerDown("enough")
        self.left -= 1
        turn = len(policy_input.episode.turns)
        return PolicyOutput(("up", "left", "down")[turn % 3], policy=("planner", "solver")[turn % 2])


def test_turns_keep_the_names_of_their_policies(tmp_path: Path) -> None:
    whole, log = tmp_path / "whole.jsonl", tmp_path / "log.jsonl"
    how: dict[str, Any] = {"split": "valid", "num_episodes": 4, "env_kwargs": {"max_steps": 5}, "num_envs": 2}
    evaluate(Team(), SOKOBAN, log=whole, **how)
    with pytest.raises(ServerDown):
        evaluate(Team(13), SOKOBAN, log=log, **how)
    _, episodes = evaluate(Team(7), SOKOBAN, log=log, resume=True, **how)
    assert log.read_bytes() == whole.read_bytes()
    assert {turn.output.policy for turn in episodes[0].turns_by("solver")} == {"solver"}
    assert [len(episode.turns_by("solver")) for episode in episodes] == [2] * 4


def test_two_processes_are_not_at_one_evaluation(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    stopped(log)
    code = f"import fcntl, sys; f = open({os.fspath(path_of(log))!r}, 'rb'); fcntl.flock(f, fcntl.LOCK_EX); "
    with subprocess.Popen(
        [sys.executable, "-c", code + "print(flush=True); sys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        before = [(file.name, file.read_bytes()) for file in sorted(tmp_path.iterdir())]
        ways: list[dict[str, Any]] = [{"resume": True}, {"replace": True}]
        for how in ways:
            with pytest.raises(BadResume, match="another process is still at this run"):
                evaluate(ExpertPolicy(), CAVE, log=log, **how)
        assert [(file.name, file.read_bytes()) for file in sorted(tmp_path.iterdir())] == before
        other.communicate()


def test_durations_are_read_and_wrong_ones_refused() -> None:
    assert [seconds(text) for text in ("0", "90", "90s", "10m", "1.5h")] == [0, 90, 90, 600, 5400]
    for wrong in ("", "-1", "ten", "10 m", "1d"):
        with pytest.raises(BadSetting, match="a duration is"):
            seconds(wrong)

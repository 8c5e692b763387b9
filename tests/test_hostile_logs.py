"""Logs from strangers: what a line may not do to the machine that verifies it."""

from __future__ import annotations

import gzip
import json
import mmap
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from typer.testing import CliRunner

from agentgym_flow.cli import app
from agentgym_flow.cli.environments import check_command
from agentgym_flow.core import Transition
from agentgym_flow.envs import make_text_env
from agentgym_flow.envs.sokoban import generator
from agentgym_flow.episodes import Episode, EpisodeRecorder, LoggedEpisode, LogLimits, limits_beyond_default, write_log
from agentgym_flow.errors import SandboxUnavailable
from agentgym_flow.play import EpisodeSpec, rollout
from agentgym_flow.policies import ExpertPolicy, RandomPolicy
from agentgym_flow.replay import LogVerdict, verify, verify_log
from agentgym_flow.sandbox import Machine
from agentgym_flow.testing.example import CaveEnv

SOKOBAN, SEARCH, CANVAS = (f"agentgym_flow/{name}-v0" for name in ("Sokoban", "Search", "Canvas"))
TRAP = "example/Trap-v0"


def a_line(env_id: str, steps: int = 1) -> LoggedEpisode:
    """Return a true line, to be changed."""
    [episode] = rollout(
        RandomPolicy(),
        lambda: make_text_env(env_id),
        [EpisodeSpec(0, 0)],
        stop=lambda policy_input: len(policy_input.episode.turns) >= steps,
    )
    return LoggedEpisode.of(episode)


def cave(seed: int = 0) -> LoggedEpisode:
    [episode] = rollout(ExpertPolicy(), CaveEnv, [EpisodeSpec(seed)])
    return LoggedEpisode.of(episode)


def one_action(action: str, attempt: int = 0) -> Episode:
    recorder = EpisodeRecorder(make_text_env(SOKOBAN))
    episode = recorder.reset(seed=1, task=0, attempt=attempt)
    recorder.step(action)
    return episode


def with_settings(line: LoggedEpisode, **settings: Any) -> LoggedEpisode:
    return replace(line, kwargs={**line.kwargs, **settings})


@pytest.fixture
def server() -> Iterator[tuple[str, Callable[[], bool]]]:
    """An address, and whether anybody has connected to it."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)

        def visited() -> bool:
            try:
                listening.accept()[0].close()
            except BlockingIOError:
                return False
            return True

        yield f"http://127.0.0.1:{listening.getsockname()[1]}", visited


@pytest.mark.parametrize(
    ("env_id", "settings", "complaint"),
    [
        (SEARCH, {"retriever": "{server}"}, "Unknown option"),
        (SEARCH, {"retriever": "{server}", "remote": {"cache": "{path}/q.db"}}, "Unknown option"),
        (SEARCH, {"remote": {"cache": "{path}/q.db"}}, "Unknown option 'remote'"),
        (SEARCH, {"corpus": "/etc/passwd"}, "corpus must match"),
        (SEARCH, {"corpus": "{path}"}, "corpus must match"),
        (CANVAS, {"base_url": "{server}", "executor": "openai", "model": "x"}, "Unknown option 'base_url'"),
        (CANVAS, {"dataset": "gsm8k"}, "would be downloaded"),
        (SOKOBAN, {"level": "#" * 100_000}, "level must be a text of at most"),
        (SOKOBAN, {"boxes": 10**400}, "boxes must be an integer from 1"),
        (SOKOBAN, {"backend": ["native"]}, "backend must be one of"),
        (TRAP, {"rooms": "../../etc/passwd"}, "rooms must match"),
        (TRAP, {"rooms": {"a": 1}}, "declares it in its signature"),
    ],
)
def test_settings_from_a_log_are_only_those_that_an_environment_declares(
    env_id: str,
    settings: dict[str, Any],
    complaint: str,
    server: tuple[str, Callable[[], bool]],
    tmp_path: Path,
) -> None:
    address, visited = server
    path = tmp_path / "new" / "folder"
    filled = json.loads(json.dumps(settings).replace("{server}", address).replace("{path}", str(path)))
    divergence = verify(with_settings(replace(a_line(SOKOBAN), env_id=env_id, kwargs={}), **filled))
    assert divergence is not None
    assert divergence.step == 0
    assert complaint in divergence.what
    assert not (tmp_path / "new").exists()
    assert not visited()


def test_data_that_the_environment_does_not_use_is_a_verdict() -> None:
    for name in ("hub:gsm8k", "hub:nothing"):
        divergence = verify(replace(a_line(SOKOBAN), data={name: "0" * 64}))
        assert divergence is not None
        assert f"official data '{name}', which agentgym_flow/Sokoban-v0 with these settings does not use" in str(
            divergence
        )


class TrapEnv(CaveEnv):
    """A cave whose rooms are traps for whoever verifies, without a declaration of its settings."""

    env_id = TRAP
    logged_settings = None
    armed = False

    def _apply(self, action: str) -> Transition:
        if self.armed:
            TRAPS[self.rooms]()
        return super()._apply(action)


def _connect() -> None:
    socket.create_connection(("127.0.0.1", int(os.environ["TRAP_PORT"])), timeout=5)


def _nest(depth: int = 0) -> int:
    return 1 + _nest(depth + 1)


TRAPS: dict[int, Callable[[], object]] = {
    11: lambda: {}["no such key"],
    12: _nest,
    13: lambda: sys.exit(3),
    14: lambda: bytearray(1 << 34),
    15: lambda: sum(range(1 << 60)),  # in C, where no exception of Python's gets in
    16: lambda: os._exit(0),
    17: lambda: Path(os.environ["TRAP_FILE"]).write_text("written"),
    18: _connect,
}
gym.register(TrapEnv.env_id, entry_point=TrapEnv)


def trapped(rooms: int, seed: int = 0) -> LoggedEpisode:
    [episode] = rollout(ExpertPolicy(), lambda: TrapEnv(rooms=rooms, max_steps=200), [EpisodeSpec(seed)])
    return LoggedEpisode.of(episode)


def sentences(verdict: LogVerdict) -> dict[int, str]:
    found = {number: divergence.what for number, divergence in verdict.divergences}
    return found | dict(verdict.malformed)


def test_every_way_to_fail_is_a_verdict_for_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exceptions of all kinds, endless work in C, memory, writing and connecting: the lines between them stay true."""
    log, outside = tmp_path / "log.jsonl", tmp_path / "outside.txt"
    with socket.create_server(("127.0.0.1", 0)) as listening:
        monkeypatch.setenv("TRAP_PORT", str(listening.getsockname()[1]))
        monkeypatch.setenv("TRAP_FILE", str(outside))
        lines = [cave(0), *(line for rooms in TRAPS for line in (trapped(rooms, rooms), cave(rooms)))]
        write_log(log, lines)
        monkeypatch.setattr(TrapEnv, "armed", True)
        verdict = verify_log(log, limits=LogLimits(max_cpu_seconds=0.5), jobs=2)
    told = sentences(verdict)
    assert sorted(told) == [2 + 2 * number for number in range(len(TRAPS))]
    assert verdict.matched == len(TRAPS) + 1
    for number, complaint in enumerate(
        [
            "failed on replay: KeyError",
            "failed on replay: RecursionError",
            "failed on replay: SystemExit: 3",
            "failed on replay: MemoryError",
            "it takes more CPU time than max_cpu_seconds=0.5",
            "the process that checked it ended with status 0",
        ]
    ):
        assert complaint in told[2 + 2 * number]
    if "landlock" in verdict.walls:
        assert "PermissionError" in told[14]
        assert not outside.exists()
    if {"network", "seccomp"} & set(verdict.walls):
        assert "failed on replay: " in told[16]


NO_WALLS = Machine("none", (), {"landlock": "Function not implemented", "seccomp": "Operation not permitted"})


@pytest.mark.skipif(sys.platform != "linux", reason="the walls are those of Linux")
def test_nothing_is_replayed_without_the_sandbox_that_is_required(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, done = tmp_path / "log.jsonl", list[int]()
    write_log(log, [cave(rooms) for rooms in range(40)])
    missing = "landlock: Function not implemented; seccomp: Operation not permitted"
    for level in ("none", "limited"):
        monkeypatch.setattr(
            "agentgym_flow.replay.workers.confine", lambda _, level=level: replace(NO_WALLS, level=level)
        )
        with pytest.raises(SandboxUnavailable, match=rf"is {level} on this machine.*Missing: {missing}"):
            verify_log(log, jobs=2, on_line=done.append, require_sandbox=True)
        assert done == []
        assert verify_log(log, jobs=2).sandbox == level
        for command in (["verify", str(log), "--jobs", "1"], ["view", str(log)]):
            said = CliRunner().invoke(app, [*command, "--require-sandbox"])
            assert (said.exit_code, "verified" in said.output) == (2, False)
            assert missing in " ".join(said.output.split())
    for settings in ({"jobs": 0}, {"fetch": True}):
        with pytest.raises(SandboxUnavailable, match="The sandbox is required: leave out fetch"):
            verify_log(log, require_sandbox=True, **settings)
    assert verify_log(log, jobs=0).sandbox == "none"


@pytest.mark.skipif(sys.platform != "linux", reason="the walls are those of Linux")
def test_the_weakest_sandbox_of_the_processes_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, made = tmp_path / "log.jsonl", mmap.mmap(-1, 1)  # shared with the processes
    write_log(log, [cave(rooms) for rooms in range(200)])

    def confine(_: str) -> Machine:
        made[0] += 1
        return replace(NO_WALLS, level="strong" if made[0] > 1 else "limited")

    monkeypatch.setattr("agentgym_flow.replay.workers.confine", confine)
    assert verify_log(log, jobs=2).sandbox == "limited"


def test_what_goes_beyond_a_limit_is_told_by_its_name(tmp_path: Path) -> None:
    line = a_line(SOKOBAN, 3)
    spoken = replace(line, actions=[*line.actions[:-1], "up" * 600])
    rows = [line.line(), replace(line, meta={"x": "y" * 9000}).line(), spoken.line(), line.line(), "", "{", "[" * 5000]
    log = tmp_path / "log.jsonl"
    log.write_text("\n".join(rows) + "\n")
    limits = LogLimits(max_line_bytes=8000, max_action_length=1000)
    told = sentences(verify_log(log, limits=limits, jobs=1))
    assert "log.jsonl line 2: more bytes than max_line_bytes=8000" in told[2]
    assert "an action of 1200 characters is longer than max_action_length=1000" in told[3]
    assert all("not JSON" in told[number] for number in (5, 6))
    assert "line 7: lists and objects are nested too deeply" in told[7]
    assert "3 actions are more than max_actions=2" in sentences(verify_log(log, limits=LogLimits(max_actions=2)))[1]
    assert (
        "line 2: meta has characters 9,001, more than max_meta_characters=100"
        in sentences(verify_log(log, limits=LogLimits(max_meta_characters=100)))[2]
    )
    short = verify_log(log, limits=LogLimits(max_lines=3))
    assert (short.episodes, sentences(short)[4]) == (4, "log.jsonl: more lines than max_lines=3; not read further")
    short = verify_log(log, limits=LogLimits(max_bytes=2000))
    assert sentences(short)[2] == "log.jsonl: more bytes than max_bytes=2000; not read further"


def test_scores_that_cannot_be_are_refused_and_end_nothing(tmp_path: Path) -> None:
    """Two scores of 1.7e308 have no sum. msgspec raises an error of its own for half a character."""
    line = a_line(SOKOBAN)
    rows = [replace(line, score=score).line() for score in (1.7e308, 1.7e308, -0.5, 1.5, "\ud800")]  # type: ignore[arg-type]
    (tmp_path / "log.jsonl").write_text("\n".join([*rows, line.line()]) + "\n")
    verdict = verify_log(tmp_path / "log.jsonl", jobs=0)
    assert (verdict.matched, verdict.unreadable, verdict.claimed_score) == (1, 5, line.score)
    assert "field 'score' must be float <= 1.0" in sentences(verdict)[1]


BOMBS = """
import re, resource, sys
from pathlib import Path
from agentgym_flow.replay import verify_log

verdict = verify_log(sys.argv[1])
# What getrusage says of this process itself counts the one that started it.
own = int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
peaks = [own // 1024, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024]
print(verdict.episodes, verdict.matched, verdict.unreadable, *peaks)
"""


def checked_apart(log: Path) -> list[int]:
    """Return episodes, matched, unreadable, and the largest resident memory of the verifier and its processes in MB."""
    command = [sys.executable, "-c", BOMBS, str(log)]
    return [int(word) for word in subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()]


def test_an_honest_log_needs_no_options_however_long_a_policy_speaks(tmp_path: Path) -> None:
    """An action that the environment refuses unread, a completion with more commas than values are read, and both."""
    episodes = [one_action("x" * 70_000), one_action("[{," * (2 << 20), 1)]
    episodes[1].turns[0].output.completion = '"\\,[{' * (1 << 20)
    log = tmp_path / "log.jsonl"
    write_log(log, episodes)
    assert log.stat().st_size > 12 << 20
    assert verify_log(log, jobs=1).ok
    assert limits_beyond_default(log) == {}


def test_the_command_that_checks_a_log_raises_the_limits_that_it_goes_beyond(tmp_path: Path) -> None:
    line = a_line(SOKOBAN)
    many = replace(line, actions=["up"] * 10_001, rewards=[-0.1] * 10_001, digests=["0" * 16] * 10_002)
    remarked = replace(line, meta={"x": "y" * (17 << 20)})
    log = tmp_path / "log.jsonl"
    write_log(log, [many, remarked])
    raised = f"--max-line-bytes {len(remarked.line()) + 1} --max-actions 10001"
    assert check_command(log) == f"agentgym-flow verify {log} {raised}"
    assert check_command(tmp_path / "NUMBER-ID.jsonl").endswith("NUMBER-ID.jsonl")


@pytest.mark.heavy
def test_memory_stays_below_300_mb(tmp_path: Path) -> None:
    """Archives that unpack to newlines, to one endless line and to millions of values, between true episodes."""
    true = (a_line(SOKOBAN, 20).line() + "\n").encode()
    millions = b"[" + b"[]," * (4 << 18) + b"[]]\n"
    bombs = [b"\n" * 5000, b'{"meta": "' + b"x" * (30 << 20) + b'"}\n', millions, b"[" * (3 << 20) + b"\n"]
    bombs += [b'{"x":[' + b'{"":0},' * 500_000 + b"0]}\n", b'["' + b"x" * (15 << 20) + b'\\ud83d\\ude00"]\n'] * 2
    long = LoggedEpisode.of(one_action("\N{GRINNING FACE}" * (3 << 20), 500))
    bombs += [json.dumps(asdict(long), ensure_ascii=False).encode() + b"\n"] * 2
    more = b"".join(true.replace(b'"attempt":0', b'"attempt":%d' % number) for number in range(1, 500))
    log = tmp_path / "log.jsonl.gz"
    log.write_bytes(gzip.compress(true + b"".join(bombs) + more, 1))
    episodes, matched, unreadable, own, children = checked_apart(log)
    assert (episodes, matched, unreadable) == (5509, 502, 5007)
    assert max(own, children) < 300


def test_nothing_is_imported_that_a_log_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trap_module.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    for env_id in ("trap_module:Cave-v0", "trap_module", "trap_module:CaveEnv", "./trap_module.py:Cave-v0"):
        divergence = verify(replace(cave(), env_id=env_id))
        assert divergence is not None
        assert "Unknown environment" in divergence.what
    assert "trap_module" not in sys.modules


def test_an_id_that_others_registered_is_not_imported_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trap_module.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(
        gym.registry, "stranger/Cave-v0", gym.envs.registration.EnvSpec("stranger/Cave-v0", "trap_module:CaveEnv")
    )
    divergence = verify(replace(cave(), env_id="stranger/Cave-v0"))
    assert divergence is not None
    assert "is not imported because a log names it; if you trust it: --import trap_module" in divergence.what


def test_no_number_can_become_the_text_that_has_its_digest() -> None:
    """Digests write 0.5 as the text 0x1.0000000000000p-1."""
    line = with_settings(a_line(SOKOBAN), executor_settings={"temperature": (0.5).hex()})
    recorded = replace(a_line(SOKOBAN), recording=[None, [{"seconds": (-3.0).hex()}]])
    for edited in (line, recorded):
        assert "has the same digest as the number" in str(verify(edited))
    said = replace(cave(), meta={"noted": (0.5).hex()})
    assert verify(said) is None


def test_an_impossible_generator_setting_is_refused_after_little_work(monkeypatch: pytest.MonkeyPatch) -> None:
    rooms: list[int] = []
    build = generator.build_room
    monkeypatch.setattr(generator, "build_room", lambda *args: rooms.append(1) or build(*args))
    line = with_settings(a_line(SOKOBAN), size=[10, 10], boxes=4, min_pushes=150)
    rooms.clear()
    assert "no level of 10x10" in str(verify(replace(line, max_steps=200)))
    assert 10 < len(rooms) < 200

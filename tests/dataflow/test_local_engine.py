"""Workers beside the trainer: who dies is replaced, and nobody outlives the trainer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from flow_trace import manager, opened, slots
from little_worker import held, play
from rich.console import Console

from agentgym_flow.dataflow.bookkeeping.manager import Manager
from agentgym_flow.dataflow.config import FlowConfig
from agentgym_flow.dataflow.local_engine import Crew, LocalEngine
from agentgym_flow.dataflow.network.client import VARIABLE
from agentgym_flow.dataflow.network.server import serving
from agentgym_flow.dataflow.records import Arrival, Claim, Flow, Slot
from agentgym_flow.errors import NoWorkers

HERE = Path(__file__).parent


def collected(flow: Flow, claim: Claim, wanted: list[Slot]) -> dict[Slot, int]:
    """Wait for these slots; return how often each of them arrived."""
    found: dict[Slot, int] = {}
    after = 0
    while len(found) < len(wanted):
        arrivals: list[Arrival] = flow.arrivals(claim, after, 1.0)
        for one in arrivals:
            found[one.slot] = found.get(one.slot, 0) + 1
            after = one.number
    return found


def until(is_so: Callable[[], Any]) -> Any:
    while not (found := is_so()):
        time.sleep(0.02)
    return found


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and is not waited for yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def pids(engine: LocalEngine) -> list[int]:
    return [seat.member.pid for seat in engine.crew._seats if seat.member is not None]  # type: ignore[attr-defined]


def test_a_killed_process_is_replaced_and_nothing_is_lost() -> None:
    there = manager(lease_seconds=2.0)
    claim = opened(there)
    there.admit(claim, slots(0, groups=6))
    with LocalEngine(there, program=play, options=["--seconds", "0.2"]) as engine:
        engine.start(2)
        until(lambda: there.status()["streams"]["s"]["states"]["leased"])
        (victim, *_) = pids(engine)
        os.kill(victim, signal.SIGKILL)
        assert collected(engine.flow, claim, slots(0, groups=6)) == dict.fromkeys(slots(0, groups=6), 1)
        assert engine.crew.deaths == 1
        workers = until(lambda: len(pids(engine)) == 2 and pids(engine))
        assert victim not in workers
    assert not any(alive(pid) for pid in workers)


def test_workers_that_all_hang_end_in_an_error_within_the_deadline() -> None:
    there = manager(lease_seconds=0.5, deadline=1.0)
    claim = opened(there)
    there.admit(claim, slots(0, groups=50))
    with LocalEngine(there, program=play, options=["--seconds", "0.05"]) as engine:
        engine.start(1)
        # The trainer is alive meanwhile: on a busy machine a worker needs longer than the deadline to start.
        until(lambda: there.beat(claim) or there.status()["streams"]["s"]["states"]["committed"])
        (worker,) = pids(engine)
        os.kill(worker, signal.SIGSTOP)
        with pytest.raises(NoWorkers, match="no rollout worker has called for"):
            collected(engine.flow, claim, slots(0, groups=50))
        os.kill(worker, signal.SIGCONT)


def fail(options: Sequence[str]) -> None:
    sys.exit("no such data set")


def test_what_a_process_said_last_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentgym_flow.dataflow.local_engine.FIRST_PAUSE", 0.01)
    there = manager()
    claim = opened(there)
    with LocalEngine(there, program=fail, most_failures=2) as engine:
        engine.start(1)
        with pytest.raises(NoWorkers, match=r"status 1; no such data set"):
            collected(engine.flow, claim, slots(0))


def test_the_token_is_in_no_command_line() -> None:
    there = manager()
    claim = opened(there)
    with LocalEngine(there, program=play) as engine:
        engine.start(1)
        collected(engine.flow, claim, slots(0))
        (worker,) = pids(engine)
        parts = Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()
        for process in (worker, int(parts[1])):  # and the fork server
            assert engine._token not in Path(f"/proc/{process}/cmdline").read_text()
            assert engine._token not in Path(f"/proc/{process}/environ").read_text()


TRAINER = """
import sys, time
sys.path.insert(0, sys.argv[1])
from flow_trace import manager, opened
from little_worker import play
from agentgym_flow.dataflow.local_engine import LocalEngine
there = manager()
opened(there)
engine = LocalEngine(there, program=play)
engine.start(2)
while len(there.status()["workers"]) < 2:
    time.sleep(0.05)
print(*[seat.member.pid for seat in engine.crew._seats], flush=True)
time.sleep(600)
"""


def test_workers_end_when_their_trainer_is_killed() -> None:
    command = [sys.executable, "-c", TRAINER, str(HERE)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as trainer:
        assert trainer.stdout is not None
        workers = [int(pid) for pid in trainer.stdout.readline().split()]
        assert len(workers) == 2
        trainer.kill()
    until(lambda: not any(alive(pid) for pid in workers))


class Counted:
    """A member of a crew that ends when it is told to."""

    def __init__(self) -> None:
        self.why: str | None = None

    def ended(self) -> str | None:
        return self.why

    def leave(self) -> None:
        self.why = "it has left"

    def end(self) -> None:
        self.why = self.why or "it was ended"


def test_one_that_cannot_start_leaves_the_others_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentgym_flow.dataflow.local_engine.FIRST_PAUSE", 0.01)
    hired: list[int] = []

    def hire(number: int) -> Counted:
        hired.append(number)
        member = Counted()
        if number == 1:
            member.why = "it cannot start"
        return member

    crew = Crew(hire, most_failures=3)
    crew.start(2)
    until(lambda: len(crew) == 1)
    crew.check()
    assert sorted(hired) == [0, 1, 1, 1]
    crew.close()


def test_deaths_after_long_work_are_no_reason_to_give_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentgym_flow.dataflow.local_engine.FIRST_PAUSE", 0.01)
    members: list[Counted] = []

    def hire(number: int) -> Counted:
        members.append(Counted())
        return members[-1]

    crew = Crew(hire, quick=0.0, most_failures=1)
    crew.start(1)
    for turn in range(3):
        until(lambda turn=turn: len(members) > turn)  # type: ignore[misc]
        members[turn].why = "it was killed"
    until(lambda: len(members) == 4)
    crew.check()
    assert crew.deaths == 3
    crew.close()


@pytest.mark.parametrize(("sent", "status"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
@pytest.mark.heavy  # a process imports PyTorch
def test_the_command_leaves_when_it_is_asked_to(sent: signal.Signals, status: int) -> None:
    there: Manager = manager()
    opened(there)
    with serving(there, "token") as url:
        command = [sys.executable, "-m", "agentgym_flow", "worker", "--join", url]
        with subprocess.Popen(command, env={**os.environ, VARIABLE: "token"}, stderr=subprocess.PIPE) as worker:
            first = there.lease("another", 4)  # nothing is left to play
            until(lambda: len(there.status()["workers"]) == 2)
            worker.send_signal(sent)
            assert worker.wait() == status
    assert there.renew("another", [held(lease) for lease in first]) == []


@pytest.mark.heavy  # a process imports PyTorch
def test_the_command_ends_when_all_runs_are_finished() -> None:
    there: Manager = manager()
    there.finish(opened(there))
    with serving(there, "token") as url:
        command = [sys.executable, "-m", "agentgym_flow", "worker", "--join", url]
        with subprocess.Popen(command, env={**os.environ, VARIABLE: "token"}, stderr=subprocess.PIPE) as worker:
            assert worker.wait() == 0


def test_workers_start_before_the_trainer_clones_and_share_out_its_environments(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from agentgym_flow.dataflow import run  # imports TRL

    done: list[Any] = []

    class Recorded:
        """A recipe and an engine: each call is noted."""

        folder, processes, agent = (
            SimpleNamespace(path=tmp_path),
            SimpleNamespace(on_main_process=lambda call: call()),
            None,
        )

        def __getattr__(self, name: str) -> Callable[..., None]:
            return lambda *arguments: done.append((name, *arguments))

    @contextmanager
    def engine_of(name: str, config: FlowConfig, folder: Path, generators: list[str]) -> Iterator[Recorded]:
        done.append(config.num_envs)
        yield Recorded()

    monkeypatch.setattr(run, "open_run", lambda *_: nullcontext(Recorded()))
    monkeypatch.setattr(run, "engine_of", engine_of)
    monkeypatch.setattr(run, "_replace_rollout", lambda *_: None)
    configs: Any = (None, None, SimpleNamespace(generator="transformers", num_envs=25))
    run.train(configs, FlowConfig(workers=2), "local", "policy", Console())
    assert done[:4] == [13, ("start", 2), ("clone_behaviour", None), ("evaluate", "before")]
    assert ("close",) in done


@pytest.mark.heavy  # the fork server imports PyTorch and Transformers
def test_workers_are_forked_from_one_process_that_has_imported_what_they_need() -> None:
    script = TRAINER.replace("opened(there)", "").replace("(there, program=play)", "(there)")  # nothing to play
    with subprocess.Popen([sys.executable, "-c", script, str(HERE)], stdout=subprocess.PIPE, text=True) as trainer:
        assert trainer.stdout is not None
        workers = [int(pid) for pid in trainer.stdout.readline().split()]
        parents = {Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1] for pid in workers}
        libraries = [Path(f"/proc/{pid}/maps").read_text() for pid in parents]
        trainer.kill()
    assert len(workers) == 2
    assert len(parents) == 1
    assert "libtorch_cpu" in libraries[0]
    until(lambda: not any(alive(int(pid)) for pid in [*workers, *parents]))

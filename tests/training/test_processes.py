"""Processes that wait for each other: for as long as the other works, and no longer than that when it is gone."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from accelerate.state import AcceleratorState, PartialState

from agentgym_flow._util.signals import Terminated
from agentgym_flow.errors import TrainingFailed
from agentgym_flow.training.processes import Processes, isolated_state, naming_lost_process

TIMEOUT = 1.0
SLOW = 2.5
"""Seconds; a collective operation would have failed."""

Work = Callable[[Processes], Any]


def _become(rank: int, port: int, work: Work, ends: list[Any]) -> None:
    for other, end in enumerate(ends):
        if other != rank:
            end.close()  # else a process that is gone would still seem to hold its end
    for kind in (AcceleratorState, PartialState):
        kind._reset_state()
    places = {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": len(ends),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
    }
    os.environ |= {name: str(value) for name, value in places.items()}
    PartialState(cpu=True, backend="gloo")
    processes: Processes | None = None
    try:
        processes = Processes(TIMEOUT)  # kept until the end: the main process's serves those that come late
        ends[rank].send(work(processes))
    except BaseException as error:
        ends[rank].send(f"{type(error).__name__}: {error}")
    time.sleep(120)  # until `together` ends it: one that left now would be lost to those who still meet it
    os._exit(0)  # pytest is not this process's to end


def together(count: int, work: Work, stopped: int | None = None) -> list[Any]:
    """Do `work` in so many processes; return what each returned, or the error it raised; None for one that is gone.

    The process `stopped` is not waited for.
    """
    fork = multiprocessing.get_context("fork")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    pipes = [fork.Pipe(duplex=False) for _ in range(count)]
    ends = [end for _, end in pipes]
    started = [fork.Process(target=_become, args=(rank, port, work, ends)) for rank in range(count)]
    for process in started:
        process.start()
    for end in ends:
        end.close()
    found = []
    for rank, (hears, _) in enumerate(pipes):
        try:
            found.append(hears.recv() if hears.poll(0 if rank == stopped else 60) else "nothing")
        except EOFError:
            found.append(None)
    for process in started:
        process.kill()
        process.join()
    return found


def test_work_may_take_longer_than_a_collective_operation_waits() -> None:
    def work(processes: Processes) -> Any:
        def slowly() -> int:
            time.sleep(SLOW)
            return os.getpid()

        def share() -> int:
            time.sleep(SLOW if processes.rank == 1 else 0)
            return processes.rank * 10

        return processes.on_main_process(slowly), processes.gather(share), processes.on_main_process(lambda: "end")

    (main, gathered, end), *others = together(3, work)
    assert gathered == [0, 10, 20]
    assert others == [(main, None, end)] * 2


def test_the_first_to_fail_ends_all_and_says_why() -> None:
    def work(processes: Processes) -> Any:
        def share() -> None:
            if processes.rank == 2:
                raise TrainingFailed("no luck")
            if processes.rank == 1:
                time.sleep(20)

        return processes.gather(share)

    def begin(processes: Processes) -> Any:
        # What a launcher does to the others once the failed one has left; here the main process need not wait for that.
        return work(processes) if processes.rank != 1 else processes.rank

    assert together(3, begin) == [
        "OtherProcessFailed: process 2 failed: TrainingFailed: no luck",
        1,
        "TrainingFailed: no luck",
    ]


def test_a_signal_to_one_reaches_all() -> None:
    def work(processes: Processes) -> Any:
        def share() -> None:
            if processes.rank == 1:
                raise Terminated

        return processes.gather(share)

    assert together(2, work) == ["Terminated: ", "Terminated: "]


@pytest.mark.parametrize("gone", [signal.SIGKILL, signal.SIGSTOP])
def test_a_process_that_says_nothing_is_lost(gone: signal.Signals) -> None:
    def work(processes: Processes) -> Any:
        return processes.gather(lambda: os.kill(os.getpid(), gone) if processes.rank == 1 else None)

    main, _ = together(2, work, stopped=1)
    assert main.startswith("LostProcess: process 1 has sent no heartbeat for 1 seconds (ddp_timeout)")


def test_without_the_main_process_the_others_end() -> None:
    def work(processes: Processes) -> Any:
        return processes.on_main_process(lambda: os.kill(os.getpid(), signal.SIGKILL))

    assert together(2, work)[1].startswith("LostProcess: process 0 is gone or cannot be reached: see its last output")


def test_a_collective_operation_without_its_partner_names_it() -> None:
    def work(processes: Processes) -> Any:
        if processes.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        with naming_lost_process():
            torch.distributed.all_reduce(torch.zeros(1))

    main, _ = together(2, work)
    assert main.startswith("LostProcess: another process is gone, or later than ddp_timeout allows")


def test_one_process_waits_for_nobody() -> None:
    processes = Processes()
    assert (processes.on_main_process(lambda: 1), processes.gather(lambda: 2)) == (1, [2])


def test_settings_made_in_two_threads_leave_the_state_of_a_trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    trainers = {"device": "cpu"}
    monkeypatch.setattr(AcceleratorState, "_shared_state", trainers)
    monkeypatch.setattr(PartialState, "_shared_state", {"backend": None})
    one_is_in, other_is_in, one_is_out = threading.Event(), threading.Event(), threading.Event()

    def one() -> None:
        with isolated_state():
            one_is_in.set()
            other_is_in.wait(0.2)  # it has to wait
        one_is_out.set()

    def other() -> None:
        one_is_in.wait()
        with isolated_state():
            other_is_in.set()
            one_is_out.wait()
            AcceleratorState._reset_state(reset_partial_state=True)  # what TRL's arguments do

    threads = [threading.Thread(target=work) for work in (one, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert trainers == {"device": "cpu"}
    assert AcceleratorState._shared_state is trainers

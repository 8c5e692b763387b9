"""Runs that do not come to their end: what a backend raises, and Ctrl-C. Nothing is left of them, and nobody waits."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time

import pytest
from backend_calls import chat_server, says
from canvas_graphs import op, par
from fault_server import silent
from recording_backend import RecordingBackend

from agentgym_flow.envs.canvas.backends.replay import ReplayBackend, ResponseRecorder
from agentgym_flow.envs.canvas.operators.calls import OpCall, OpResult, Value, WorkflowProblem
from agentgym_flow.envs.canvas.workflow import Chain, Parallel
from agentgym_flow.envs.canvas.workflow.interpreter import Cache, Interpreter
from agentgym_flow.errors import ExecutorFailed

PROBLEM = WorkflowProblem("task", "How many?")


class Gone(ExecutorFailed):
    """Raised by the backends here."""


def failing(call: OpCall) -> OpResult:
    raise Gone("nobody is there")


# ---------------------------------------------------------------- what a backend raises
@pytest.mark.parametrize("concurrent", [False, True])
def test_what_a_backend_raises_passes_and_nothing_is_kept(concurrent: bool) -> None:
    cache = Cache()
    backend = RecordingBackend({"Programmer": failing})
    interpreter = Interpreter(backend, cache=cache, concurrent=concurrent)
    with pytest.raises(Gone):
        interpreter.run((op("Plan"), par("Custom", "Programmer")), PROBLEM)
    assert len(cache) == 0
    backend.answers.clear()
    before = len(backend.calls)
    run = interpreter.run((op("Plan"), par("Custom", "Programmer")), PROBLEM)
    assert len(backend.calls) == before + 3, "as if it had never run"
    assert not any(step.cached for step in run.steps)
    assert len(cache) == 3


def test_other_branches_stop_before_their_next_call() -> None:
    """Each later call would cost tokens for nothing."""
    raised = threading.Event()

    def fail(call: OpCall) -> OpResult:
        raised.set()
        raise Gone("nobody is there")

    def slow(call: OpCall) -> Value:
        assert raised.wait(10)
        time.sleep(0.2)  # the interpreter hears of it meanwhile
        return Value(text="late")

    backend = RecordingBackend({"Programmer": fail, "Plan": slow})
    nodes: Chain = (Parallel(((op("Programmer"),), (op("Plan"), op("Custom"), op("Format")))),)
    with pytest.raises(Gone):
        Interpreter(backend, concurrent=True).run(nodes, PROBLEM)
    assert not {"Custom", "Format"} & set(backend.operators)


def test_the_cause_is_raised_and_not_that_others_were_stopped() -> None:
    """An inner branch raises; the first outer branch, which is asked first, is merely stopped by it."""
    started, raised = threading.Event(), threading.Event()

    def fail(call: OpCall) -> OpResult:
        assert started.wait(10)
        raised.set()
        raise Gone("nobody is there")

    def slow(call: OpCall) -> Value:
        started.set()
        assert raised.wait(10)
        time.sleep(0.2)
        return Value(text="late")

    backend = RecordingBackend({"Programmer": fail, "Plan": slow})
    inner = Parallel(((op("Programmer"),), (op("Review"),)))
    nodes: Chain = (Parallel(((op("Plan"), op("Format")), (inner,))),)
    with pytest.raises(Gone):
        Interpreter(backend, concurrent=True).run(nodes, PROBLEM)
    assert "Format" not in backend.operators


def test_no_thread_is_left() -> None:
    before = threading.active_count()
    backend = RecordingBackend({"Programmer": failing})
    for _ in range(3):
        with pytest.raises(Gone):
            Interpreter(backend, concurrent=True).run((par("Custom", "Programmer", "Custom"),), PROBLEM)
    assert threading.active_count() == before


# ---------------------------------------------------------------- the recording
def test_a_run_that_is_tried_again_is_on_the_recording_once() -> None:
    """Its calls have the same digests as those of the run that was broken off, and are the first again."""
    troubles = iter([OpResult("error", None, "no answer")])

    def custom(call: OpCall) -> Value | OpResult:
        return next(troubles, Value(text="four"))

    backend = RecordingBackend({"Custom": custom, "Programmer": failing})
    recorder, cache = ResponseRecorder(backend), Cache()
    interpreter = Interpreter(recorder, cache=cache, concurrent=True)
    nodes: Chain = (op("Plan"), par("Custom", "Programmer"), op("Aggregate"))
    first = interpreter.run(nodes[:1], PROBLEM)
    recording = recorder.take()
    with pytest.raises(Gone):
        interpreter.run(nodes, PROBLEM)
    recorder.drop()
    del backend.answers["Programmer"]
    recorded = interpreter.run(nodes, PROBLEM)
    recording += recorder.take()
    assert [entry["time"] for entry in recording] == [0] * len(recording) == [0] * 4
    replay = ReplayBackend(recording)
    again = Interpreter(replay, cache=Cache())
    assert (again.run(nodes[:1], PROBLEM), again.run(nodes, PROBLEM)) == (first, recorded)
    assert replay.unused == 0


def test_a_recorder_has_its_backend_give_up() -> None:
    class Backend(RecordingBackend):
        cancelled = 0

        def cancel(self) -> None:
            self.cancelled += 1

    backend = Backend()
    ResponseRecorder(backend).cancel()
    ResponseRecorder(RecordingBackend()).cancel()  # one that cannot
    assert backend.cancelled == 1


# ---------------------------------------------------------------- Ctrl-C
_INTERRUPTED = """
import sys, threading, time
sys.path[:0] = sys.argv[2:]
from agentgym_flow.envs.canvas.backends.openai_compatible import OpenAIBackend
from agentgym_flow.envs.canvas.backends.replay import ResponseRecorder
from agentgym_flow.envs.canvas.operators.calls import WorkflowProblem
from agentgym_flow.envs.canvas.workflow.text import read
from agentgym_flow.envs.canvas.workflow.interpreter import Cache, Interpreter
backend = OpenAIBackend("tiny", sys.argv[1], timeout=500, deadline=600, concurrency=4)
interpreter = Interpreter(ResponseRecorder(backend), cache=Cache(), concurrent=True)
nodes = read("[Custom -> Format, Programmer, [Custom, Custom] -> ScEnsemble] -> Aggregate")
started = time.monotonic()
try:
    interpreter.run(nodes, WorkflowProblem("task", "How many?"))
except KeyboardInterrupt:
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("ThreadPool")]
    print("interrupted,", left, len(interpreter.cache), backend.usage.requests < 20)
    run = interpreter.run(read("Custom"), WorkflowProblem("task", "How many?"))
    print("again,", run.answer)
"""


def test_an_interrupt_ends_all_branches() -> None:
    """The server stays silent for longer than the test may take."""
    with chat_server(silent, silent, silent, silent, default=says("four")) as server:
        process = subprocess.Popen(
            [sys.executable, "-c", _INTERRUPTED, f"{server.url}/v1", *sys.path], stdout=subprocess.PIPE, text=True
        )
        while len(server.asked) < 4:
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=10)
    assert (said, process.returncode) == ("interrupted, [] 0 True\nagain, four\n", 0)

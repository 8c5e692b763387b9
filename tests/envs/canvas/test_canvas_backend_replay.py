"""Recordings: what was recorded comes back byte for byte, in any order of threads, and nothing else does."""

from __future__ import annotations

import copy
import json
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from backend_calls import CUSTOM, backend_at, call_of, chat_server, says
from canvas_graphs import op, par, workflows
from hypothesis import given, settings
from hypothesis import strategies as st
from recording_backend import RecordingBackend

from agentgym_flow.core import stable_hash
from agentgym_flow.envs.canvas.backends.replay import Entry, ReplayBackend, ResponseRecorder
from agentgym_flow.envs.canvas.operators.calls import OpCall, OpResult, Value, WorkflowProblem
from agentgym_flow.envs.canvas.workflow import Chain, Loop, statistics
from agentgym_flow.envs.canvas.workflow.interpreter import Cache, Interpreter
from agentgym_flow.errors import BadData, BadSetting

PROBLEM = WorkflowProblem("task", "How many?")

json_data = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
texts = st.text() | st.just("half \ud83d a pair")
values = st.builds(
    Value, texts, texts, st.lists(texts, max_size=3).map(tuple), st.none() | st.booleans(), texts, json_data
)
numbers = st.floats(0, allow_infinity=False)
results = st.builds(OpResult, st.just("ok"), values, texts, st.integers(0), numbers, numbers) | st.builds(
    OpResult, st.sampled_from(["error", "timeout"]), st.none(), texts, st.integers(0), numbers, numbers
)


def stored(recording: list[Entry]) -> list[Any]:
    """Return a recording as it comes back from a file."""
    read: list[Any] = json.loads(json.dumps(recording))
    return read


class Giving:
    """Gives results one after the other."""

    def __init__(self, *given: Any) -> None:
        self.given = list(given)

    def run(self, call: OpCall) -> OpResult:
        result: OpResult = self.given.pop(0)
        return result


@given(st.lists(results, min_size=1, max_size=4))
def test_results_come_back_byte_for_byte(given: list[OpResult]) -> None:
    recorder = ResponseRecorder(Giving(*given))
    recorded = [recorder.run(CUSTOM) for _ in given]
    assert recorded == given
    replay = ReplayBackend(stored(recorder.take()))
    again = [replay.run(CUSTOM) for _ in given]
    assert again == recorded
    assert repr(again) == repr(recorded)
    assert replay.unused == 0


@settings(max_examples=40)
@given(workflows)
def test_any_workflow_runs_again(nodes: Chain) -> None:
    if statistics(nodes).most_calls > 300:
        return
    recorder = ResponseRecorder(RecordingBackend())
    recorded = Interpreter(recorder, seed=3).run(nodes, PROBLEM)
    replay = ReplayBackend(stored(recorder.take()))
    assert Interpreter(replay, seed=3, concurrent=True).run(nodes, PROBLEM) == recorded
    assert replay.unused == 0


def test_an_entry_says_which_call_it_was() -> None:
    recorder = ResponseRecorder(Giving(OpResult("ok", Value(text="four"), "4.", 15, 0.25, 1.5)))
    recorder.run(CUSTOM)
    (entry,) = recorder.take()
    digest = entry.pop("digest")
    assert digest == stable_hash(entry)
    value = {"text": "four", "code": "", "items": [], "passed": None, "notes": "", "data": None}
    assert entry == {
        "call": CUSTOM.digest,
        "time": 0,
        "operator": "Custom",
        "place": "1",
        "attempt": 0,
        "result": {"status": "ok", "value": value, "text": "4.", "tokens": 15, "cost": 0.25, "latency": 1.5},
    }
    assert recorder.take() == []


def test_equal_calls_are_counted() -> None:
    recorder = ResponseRecorder(Giving(*(OpResult("ok", Value(text=text)) for text in "abc")))
    recorder.run(CUSTOM)
    first = recorder.take()
    recorder.run(CUSTOM)
    recorder.run(CUSTOM)
    recording = first + recorder.take()
    replay = ReplayBackend(reversed(stored(recording)))
    assert [replay.run(CUSTOM).value for _ in range(3)] == [Value(text=text) for text in "abc"]
    with pytest.raises(BadData, match=r"no call of Custom at 1, attempt 0, .* time 3"):
        replay.run(CUSTOM)
    other = ReplayBackend(recording)
    assert (other.unused, other.run(CUSTOM).value, other.unused) == (3, Value(text="a"), 2)


def test_another_call_is_not_on_the_recording() -> None:
    recorder = ResponseRecorder(RecordingBackend())
    recorder.run(CUSTOM)
    recording = recorder.take()
    for other in (call_of("Custom", "otherwise"), call_of("Custom", seed=1), call_of("Review")):
        replay = ReplayBackend(recording)
        with pytest.raises(BadData, match=f"no call of {other.operator}"):
            replay.run(other)
        assert replay.unused == 1


def resigned(entry: Entry, **changes: Any) -> Entry:
    """Return an entry that somebody changed and signed again."""
    changed = {**entry, **changes}
    return {**changed, "digest": stable_hash({key: value for key, value in changed.items() if key != "digest"})}


def result_with(entry: Entry, **changes: Any) -> dict[str, Any]:
    return {**entry["result"], **changes}


def value_with(entry: Entry, **changes: Any) -> dict[str, Any]:
    return result_with(entry, value={**entry["result"]["value"], **changes})


EDITS: dict[str, Callable[[Entry], Any]] = {
    "another text": lambda entry: {**entry, "result": value_with(entry, text="five")},
    "another digest": lambda entry: {**entry, "digest": "0" * 64},
    "another call": lambda entry: {**entry, "call": "0" * 64},
    "another time": lambda entry: {**entry, "time": 1},
    "a key less": lambda entry: {key: value for key, value in entry.items() if key != "place"},
    "a key more": lambda entry: {**entry, "more": 1},
    "no entry": lambda _: "Custom",
    "nothing": lambda _: None,
    "a result of another form": lambda entry: resigned(entry, result=[]),
    "another status": lambda entry: resigned(entry, result=result_with(entry, status="fine")),
    "no number of tokens": lambda entry: resigned(entry, result=result_with(entry, tokens=-1)),
    "no cost": lambda entry: resigned(entry, result=result_with(entry, cost="1")),
    "no text": lambda entry: resigned(entry, result=value_with(entry, text=7)),
    "no items": lambda entry: resigned(entry, result=value_with(entry, items="abc")),
    "no item": lambda entry: resigned(entry, result=value_with(entry, items=[1])),
    "no verdict": lambda entry: resigned(entry, result=value_with(entry, passed="yes")),
    "no time": lambda entry: resigned(entry, time="0"),
    "no call": lambda entry: resigned(entry, call=7),
}


@pytest.mark.parametrize("what", EDITS)
def test_an_edited_entry_is_named(what: str) -> None:
    recorder = ResponseRecorder(RecordingBackend())
    for place in ("1", "2"):
        recorder.run(call_of("Custom", place=place))
    good, bad = recorder.take()
    with pytest.raises(BadData, match="entry 1 of the recording") as raised:
        ReplayBackend(stored([good, EDITS[what](bad)]))
    if what.startswith(("another", "no t", "no v")):
        assert f"Custom at {bad['place']}" in str(raised.value)


def test_a_recording_with_an_entry_twice_is_refused() -> None:
    recorder = ResponseRecorder(RecordingBackend())
    recorder.run(CUSTOM)
    with pytest.raises(BadData, match="twice"):
        ReplayBackend(recorder.take() * 2)


def test_sizes_are_bounded() -> None:
    long = OpResult("ok", Value(text="x" * 2000), tokens=7, cost=0.5)
    recorder = ResponseRecorder(Giving(long, long), most_bytes=1000)
    kept = recorder.run(CUSTOM)
    assert (kept.status, kept.value, kept.tokens, kept.cost) == ("error", None, 7, 0.5)
    assert "up to 1000" in kept.text
    assert ReplayBackend(recorder.take()).run(CUSTOM) == kept
    roomy = ResponseRecorder(Giving(long, long))
    assert roomy.run(CUSTOM) == long
    with pytest.raises(BadData, match="up to 1000 are read"):
        ReplayBackend(roomy.take(), most_bytes=1000)
    with pytest.raises(BadData, match="more than 1 entries"):
        ReplayBackend([*recorder.take(), *_recorded(2)], most_entries=1)
    full = ResponseRecorder(RecordingBackend(), most_entries=1)
    full.run(CUSTOM)
    with pytest.raises(BadSetting, match="full"):
        full.run(CUSTOM)
    full.take()
    full.run(CUSTOM)
    for limit in ({"most_entries": 0}, {"most_bytes": True}):
        with pytest.raises(BadSetting):
            ResponseRecorder(RecordingBackend(), **limit)
        with pytest.raises(BadSetting):
            ReplayBackend([], **limit)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "returns an OpResult"),
        (OpResult("ok", "a text"), "an operator makes a Value, such as"),  # type: ignore[arg-type]
        (OpResult("ok", Value("a"), tokens=-5), "tokens of an OpResult"),
        (OpResult("ok", Value("a"), tokens=True), "tokens of an OpResult"),
        (OpResult("ok", Value("a"), cost="1"), "cost of an OpResult"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_result_is_named(given: Any, message: str) -> None:
    with pytest.raises(BadSetting, match=message):
        ResponseRecorder(Giving(given)).run(CUSTOM)


def _recorded(count: int) -> list[Entry]:
    recorder = ResponseRecorder(RecordingBackend())
    for number in range(count):
        recorder.run(call_of("Custom", seed=number))
    return recorder.take()


@pytest.mark.parametrize(
    "result",
    [
        OpResult("ok", Value(data={1, 2})),
        OpResult("ok", Value(data=float("nan"))),
        OpResult("ok", Value(text="x"), cost=float("inf")),
        OpResult("ok", Value(text=7)),  # type: ignore[arg-type]
    ],
)
def test_what_json_cannot_hold_is_an_error_for_both(result: OpResult) -> None:
    recorder = ResponseRecorder(Giving(result))
    kept = recorder.run(CUSTOM)
    assert (kept.status, kept.value) == ("error", None)
    assert ReplayBackend(stored(recorder.take())).run(CUSTOM) == kept


def test_what_json_changes_is_changed_at_once() -> None:
    recorder = ResponseRecorder(Giving(OpResult("ok", Value(text="x", data={"pair": (1, 2), 3: None}))))
    kept = recorder.run(CUSTOM)
    assert kept.value is not None
    assert kept.value.data == {"pair": [1, 2], "3": None}
    again = ReplayBackend(stored(recorder.take())).run(CUSTOM)
    assert again.value is not None
    assert again.value.identity == kept.value.identity


def test_failures_are_kept_and_exceptions_are_not() -> None:
    def raising(_: OpCall) -> OpResult:
        raise RuntimeError

    recorder = ResponseRecorder(RecordingBackend({"Custom": OpResult("timeout", text="slow"), "Plan": raising}))
    assert recorder.run(CUSTOM).status == "timeout"
    with pytest.raises(RuntimeError):
        recorder.run(call_of("Plan"))
    assert [entry["operator"] for entry in recorder.take()] == ["Custom"]


def test_threads_in_any_order_make_one_recording() -> None:
    calls = [call_of("Custom", seed=number % 40) for number in range(120)]

    def recording_of(order: list[OpCall]) -> list[Entry]:
        recorder = ResponseRecorder(RecordingBackend())
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(recorder.run, order))
        return recorder.take()

    recording = recording_of(calls)
    assert recording == recording_of(calls[::-1])
    assert len(recording) == 120
    replay, barrier = ReplayBackend(recording), threading.Barrier(8)

    def play(thread: int) -> list[OpResult]:
        barrier.wait()
        return [replay.run(call) for call in calls[thread::8]]

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(play, range(8)))
    assert replay.unused == 0


def test_a_run_with_a_model_is_played_again_without_it() -> None:
    nodes: Chain = (op("Plan"), par("Custom", "AnswerGenerate"), Loop((op("Aggregate"),), 2))
    spoken = ["1. Count.", *(f"<answer>{number}</answer>" for number in range(6))]
    with chat_server(*(says(text) for text in spoken)) as server:
        recorder = ResponseRecorder(backend_at(server))
        recorded = Interpreter(recorder, cache=Cache(), concurrent=True).run(nodes, PROBLEM)
    assert recorded.tokens == 75
    assert not recorded.failures
    assert min(step.result.latency for step in recorded.steps) > 0
    replay = ReplayBackend(stored(recorder.take()))
    assert Interpreter(replay, cache=Cache()).run(nodes, PROBLEM) == recorded
    assert replay.unused == 0


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_clones_go_their_own_way(clone: Callable[[Any], Any]) -> None:
    recorder = ResponseRecorder(RecordingBackend())
    recorder.run(CUSTOM)
    other = clone(recorder)
    other.run(CUSTOM)
    assert [entry["time"] for entry in other.take()] == [0, 1]
    recording = recorder.take()
    assert [entry["time"] for entry in recording] == [0]
    replay = ReplayBackend(recording)
    clone(replay).run(CUSTOM)
    assert replay.unused == 1
    replay.run(CUSTOM)

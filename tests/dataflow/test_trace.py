"""Traces of dataflows, real and simulated, and the pictures made of them."""

from __future__ import annotations

import json
import re
import threading
import xml.etree.ElementTree as ET
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from flow_parts import Clock, commit_of, held, make_manager, opened
from typer.testing import CliRunner

from agentgym_flow.cli.app import app
from agentgym_flow.dataflow.bookkeeping.callers import target_workers, wait_share
from agentgym_flow.dataflow.bookkeeping.journal import digest_of
from agentgym_flow.dataflow.records import PARTIAL, CommitVerdict, Flow, Slot, UsedWeights
from agentgym_flow.dataflow.simulator import simulate
from agentgym_flow.dataflow.simulator.scenario import Region, Scenario, WorkerChange
from agentgym_flow.dataflow.trace import (
    FETCH,
    LOST,
    PLAY,
    QUEUE,
    TRAIN,
    WAIT,
    Event,
    TimelineSpan,
    TracedFlow,
    TraceWriter,
    chrome_trace,
    lanes,
    read_trace,
    spans_of,
    staleness_of,
    staleness_summary,
    states_of,
    write_pictures,
)
from agentgym_flow.errors import BadData, BadSetting

REGIONS = (Region("near", 4, 2), Region("far", 3, 1, 0.5, 2.0, 0.3))


def simulated(**settings: Any) -> tuple[Scenario, Any, list[Event]]:
    scenario = Scenario(**{"updates": 5, "groups": 4, "size": 4, "regions": REGIONS, **settings})
    events: list[Event] = []
    outcome = simulate(scenario, 1, events.append)
    return scenario, outcome, sorted(events, key=lambda event: event["at"])


def test_a_trace_survives_a_kill_in_the_middle_of_a_line(tmp_path: Path) -> None:
    path = tmp_path / "run" / "trace.jsonl"
    writer = TraceWriter(path, clock=lambda: 3.0)
    writer.write("keep", stream="s", policy="p", batch=1)
    writer.write("states", 1.5, stream="s", states={"queued": 2})
    writer.close()
    with path.open("ab") as file:
        file.write(b'{"at":4.0,"what":"adm')
    again = TraceWriter(path, clock=lambda: 5.0)
    again.write("admit", stream="s", slots=4)
    again.close()
    assert read_trace(path) == [
        {"at": 1.5, "what": "states", "stream": "s", "states": {"queued": 2}},
        {"at": 3.0, "what": "keep", "stream": "s", "policy": "p", "batch": 1},
        {"at": 5.0, "what": "admit", "stream": "s", "slots": 4},
    ]


def test_threads_write_whole_lines(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path / "trace.jsonl")

    def write(name: str) -> None:
        for number in range(50):
            writer.write("lease", worker=name, stream="s" * 500, slots=[[number, 0, 0, 1]])

    threads = [threading.Thread(target=write, args=(f"w{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()
    assert len(read_trace(writer.path)) == 200


def test_a_trace_without_events_is_refused(tmp_path: Path) -> None:
    (tmp_path / "trace.jsonl").write_text("nothing\n[1]\n")
    with pytest.raises(BadData, match="no event"):
        read_trace(tmp_path / "trace.jsonl")
    with pytest.raises(FileNotFoundError):
        read_trace(tmp_path / "other.jsonl")


def test_the_versions_that_played_an_episode_are_shown(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path / "trace.jsonl", clock=iter(range(100)).__next__)
    flow: Flow = TracedFlow(make_manager(Clock()), writer, every=1e9)
    claim = opened(flow, "s", "p", 0, {"policies": ["p"], "order": "ready", PARTIAL: True})
    flow.publish(claim, 0, 0, b"one")
    flow.admit(claim, [Slot(0, 0, 0, 7, 7)])
    (lease,) = flow.lease("w", 1)
    flow.ack(claim, 0, [], [])
    flow.publish(claim, 1, 1, b"two")
    used = tuple(UsedWeights("p", number, digest_of(text)) for number, text in enumerate((b"one", b"two"), 1))
    assert flow.commit("w", [commit_of(lease, "zero")._replace(used=used)]) == [CommitVerdict.ACCEPTED]
    (span,) = (one for one in spans_of(read_trace(tmp_path / "trace.jsonl")) if one.what == PLAY)
    assert span.args["versions"] == "p 1, p 2"


def test_what_a_manager_is_asked_becomes_spans(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path / "trace.jsonl", clock=iter(range(100)).__next__)
    flow: Flow = TracedFlow(make_manager(Clock()), writer, every=0.0)
    claim = opened(flow, "s", "p", 0, {"policies": ["p"], "staleness": 1})
    flow.publish(claim, 0, 0, b"weights")
    flow.admit(claim, [Slot(0, 0, sample, 7, 7) for sample in range(2)])
    leases = flow.lease("w1", 2)
    flow.fail("w1", held(leases[1]), "out of memory")
    (other,) = flow.lease("w2", 1)
    assert flow.commit("w1", [commit_of(leases[0], "zero"), commit_of(leases[1], "late")]) == [
        CommitVerdict.ACCEPTED,
        CommitVerdict.LATE,
    ]
    flow.commit("w2", [commit_of(other, "one")])
    arrivals = flow.arrivals(claim, 0)
    assert len(arrivals) == 2
    flow.ack(claim, 0, [one.played for one in arrivals], [])
    flow.publish(claim, 1, 1, b"more")
    flow.keep(claim, 1)
    events = read_trace(tmp_path / "trace.jsonl")
    spans = spans_of(events)
    played = [(span.who, span.what, span.args["sample"], span.args["end"]) for span in spans if "end" in span.args]
    assert sorted(played) == [
        ("w1", LOST, 1, "failed"),
        ("w1", PLAY, 0, "accepted"),
        ("w2", PLAY, 1, "accepted"),
    ]
    trainer = [(span.what, span.args["batch"]) for span in spans if span.who == "trainer of p"]
    assert trainer == [(WAIT, 0), (WAIT, 0), (TRAIN, 0), (WAIT, 1)]  # opened, published, acknowledged, published
    assert staleness_of(events) == {0: 2}
    assert max(sum(counts.values()) for _, counts in states_of(events)) == 2


def test_a_slot_that_is_leased_again_was_lost_by_its_worker_before() -> None:
    events = [
        {"at": 10.0, "what": "lease", "worker": "a", "stream": "s", "slots": [[0, 0, 0, 1]]},
        {"at": 14.0, "what": "lease", "worker": "b", "stream": "s", "slots": [[0, 0, 0, 2]]},
        {"at": 15.0, "what": "commit", "worker": "a", "stream": "s", "slots": [[0, 0, 0, 1]], "verdicts": ["late"]},
        {"at": 16.0, "what": "commit", "worker": "b", "stream": "s", "slots": [[0, 0, 0, 2]], "verdicts": ["accepted"]},
    ]
    args = {"stream": "s", "batch": 0, "group": 0, "sample": 0}
    assert spans_of(events) == [
        TimelineSpan("a", LOST, 0.0, 4.0, {**args, "attempt": 1, "end": "expired"}),
        TimelineSpan("b", PLAY, 4.0, 6.0, {**args, "attempt": 2, "end": "accepted"}),
    ]


def test_the_spans_of_a_simulation_add_up_to_its_figures() -> None:
    _, outcome, events = simulated(changes=(WorkerChange(60, "kill", 2, "near"),))
    spans = spans_of(events)
    assert sum(span.what == PLAY and span.args["end"] == "accepted" for span in spans) == outcome.played
    assert sum(span.what == LOST for span in spans) == outcome.repeated > 0
    assert staleness_of(events) == outcome.staleness
    total = outcome.hours * 3600
    assert sum(span.end - span.start for span in spans if span.what == TRAIN) == pytest.approx(5 * 60)
    assert sum(span.end - span.start for span in spans if span.what == WAIT) == pytest.approx(outcome.wait * total)
    assert sum(span.args["bytes"] for span in spans if span.what == FETCH) == sum(outcome.crossed.values())
    assert all(0 <= span.start <= span.end for span in spans)


def test_policies_that_share_a_device_wait_for_it() -> None:
    _, _, events = simulated(train_seconds=(60.0, 60.0), one_device=True, regions=(Region("a", 32),))
    training = sorted((s.start, s.end) for s in spans_of(events) if s.what == TRAIN)
    assert any(span.what == QUEUE for span in spans_of(events))
    assert all(end <= start + 1e-6 for (_, end), (start, _) in pairwise(training))


def test_the_chrome_trace_can_be_read() -> None:
    _, _, events = simulated()
    spans = spans_of(events)
    trace = json.loads(json.dumps(chrome_trace(spans)))
    complete = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert len(complete) == len(spans)
    named = {event["pid"]: event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "process_name"}
    assert set(named.values()) == {span.who for span in spans}
    rows: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for event in complete:
        assert isinstance(event["ts"], int)
        assert event["dur"] >= 0
        rows.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    assert set(named) == {process for process, _ in rows}
    for times in rows.values():  # what overlaps in one row is drawn as one inside the other
        times.sort()
        assert all(end <= start for (_, end), (start, _) in pairwise(times))


def test_actors_come_in_the_order_of_their_names_and_numbers() -> None:
    spans = [TimelineSpan(who, PLAY, 0.0, 1.0, {}) for who in ("w10", "w2", "relay of x", "trainer of p")]
    assert list(lanes(spans)) == ["trainer of p", "relay of x", "w2", "w10"]


def test_pictures_are_xml_and_load_nothing(tmp_path: Path) -> None:
    _, _, events = simulated(train_seconds=(60.0, 40.0))
    for event in events:
        if event.get("worker") == "near-0":
            event["worker"] = "<script>&\x1b[31m"
    written = write_pictures(tmp_path, events, "A <run>")
    assert sorted(path.name for path in written) == sorted(path.name for path in tmp_path.iterdir())
    for name in ("trace.svg", "staleness.svg", "states.svg"):
        text = (tmp_path / name).read_text("utf-8")
        root = ET.fromstring(text)
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert not {element.tag.split("}")[1] for element in root.iter()} & {
            "script",
            "image",
            "use",
            "a",
            "foreignObject",
        }
        assert not re.search(r"url\(|href|@import|javascript", text)
        assert "prefers-color-scheme:dark" in text
        _, _, wide, high = map(float, root.attrib["viewBox"].split())
        for element in root.iter("{http://www.w3.org/2000/svg}text"):
            assert 0 <= float(element.attrib["x"]) <= wide
            assert 0 <= float(element.attrib["y"]) <= high
    page = (tmp_path / "trace.html").read_text("utf-8")
    assert page.count("<svg") == 3
    assert page.count("<style>") == 1  # the policy of the page allows one style sheet
    assert "<script" not in page
    assert "A &lt;run&gt;" in page


def test_pictures_of_almost_nothing_are_xml(tmp_path: Path) -> None:
    write_pictures(tmp_path, [{"at": 5.0, "what": "open", "stream": "s", "policy": "p", "batch": 0}])
    for name in ("trace.svg", "staleness.svg", "states.svg"):
        ET.fromstring((tmp_path / name).read_text("utf-8"))


def test_commands_give_the_simulators_figures_and_overwrite_nothing(tmp_path: Path) -> None:
    runner = CliRunner()
    small = [
        "--updates",
        "3",
        "--groups",
        "2",
        "--region",
        "a=4x2",
        "--region",
        "b=2,speed=0.5,gbit=1,delay=0.1,direct",
    ]
    shown = runner.invoke(app, ["dataflow", "simulate", "synchronous", "ready:2", *small, "--seeds", "2", "--json"])
    rows = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [(row["mode"], row["seed"]) for row in rows] == [
        ("synchronous", 0),
        ("synchronous", 1),
        ("ready S=2", 0),
        ("ready S=2", 1),
    ]
    regions = (Region("a", 4, 2), Region("b", 2, 1, 0.5, 1.0, 0.1, relay=False))
    expected = simulate(Scenario(mode="synchronous", updates=3, groups=2, regions=regions), 1)
    assert (rows[1]["hours"], rows[1]["composition"]) == (expected.hours, expected.composition)

    folder = str(tmp_path / "out")
    change = ["--change", "0.01:kill:2:a", "--trace", folder]
    assert runner.invoke(app, ["dataflow", "simulate", "fixed:1", *small, *change]).exit_code == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert set(before) == {"trace.jsonl", "trace.json", "trace.svg", "staleness.svg", "states.svg", "trace.html"}
    assert runner.invoke(app, ["dataflow", "trace", folder]).exit_code == 2  # nothing is overwritten unasked
    elsewhere = tmp_path / "else"
    assert runner.invoke(app, ["dataflow", "trace", folder, "--out", str(elsewhere)]).exit_code == 0
    assert (elsewhere / "trace.json").read_bytes() == before["trace.json"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fixd:2"], "fixed"),
        (["fixed:x"], "such as fixed:4"),
        (["overlap:2"], "staleness"),
        (["fixed", "--region", "a=many"], "such as far="),
        (["fixed", "--region", "a=1,light=3"], "light=3"),
        (["fixed", "--change", "1:join"], "hours, kind, workers and region"),
        (["fixed", "--change", "1:join:2:moon"], "moon"),
        (["fixed", "ready", "--trace", "x"], "one mode"),
    ],
)
def test_what_cannot_be_simulated_is_said(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["dataflow", "simulate", *arguments])
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


def test_waiting_trainers_want_more_workers_and_unused_episodes_fewer() -> None:
    assert target_workers(32, 0.20, 100, 100) == 40  # 32 / 0.8
    assert target_workers(32, 0.101, 100, 100) == 36
    assert target_workers(32, 0.10, 100, 100) == 32
    assert target_workers(32, 0.05, 50, 100) == 32
    assert target_workers(32, 0.02, 50, 100) == 18  # 1.1 x 32 x 0.5, rounded up
    assert target_workers(32, 0.02, 100, 100) == 32
    assert target_workers(32, 0.02, 0, 100) == 1
    assert target_workers(4, 0.0, 0, 0) == 4  # nothing is known
    assert target_workers(4, 1.0, 0, 0) == 20
    with pytest.raises(BadSetting):
        target_workers(0, 0.5, 1, 1)


def test_waiting_and_staleness_are_summed_up_right() -> None:
    assert wait_share(0, 0) == 0.0
    assert wait_share(1, 3) == 0.25
    assert staleness_summary({}) == {}
    assert staleness_summary({0: 1, 3: 2, 9: 0}) == {"mean": 2.0, "median": 3, "max": 3}

"""Workflows and runs as plain data: the same graph, JSON-able, and read back by reports."""

from __future__ import annotations

import json

import pytest
from canvas_graphs import ROOMY, ops, workflows
from hypothesis import given
from recording_backend import RecordingBackend

from agentgym_flow.envs.canvas.operators.calls import OpResult, Value, WorkflowProblem
from agentgym_flow.envs.canvas.workflow import Chain, Conditional, Loop, OperatorNode, Parallel, Workflow
from agentgym_flow.envs.canvas.workflow.interpreter import Interpreter
from agentgym_flow.envs.canvas.workflow.run import plain_graph, plain_run
from agentgym_flow.envs.canvas.workflow.text import read
from agentgym_flow.errors import BadSetting
from agentgym_flow.report.workflow_data import read_graph, read_run

PROBLEM = WorkflowProblem("task", "A problem.")


def chain_of(plain: list[dict]) -> Chain:
    """Return the chain that plain data was made from."""
    return tuple(map(node_of, plain))


def node_of(plain: dict):
    match plain["kind"]:
        case "operator":
            return OperatorNode(plain["name"], plain["instruction"])
        case "parallel":
            return Parallel(tuple(map(chain_of, plain["branches"])))
        case "conditional":
            return Conditional(node_of(plain["check"]), chain_of(plain["passed"]), chain_of(plain["failed"]))
        case "loop":
            return Loop(chain_of(plain["body"]), plain["count"])


def ids(plain: list[dict]) -> list[str]:
    found = []
    for node in plain:
        chains = node.get("branches") or [node[name] for name in ("passed", "failed", "body") if name in node]
        check = [node["check"]["id"]] if "check" in node else []
        found += [node["id"], *check, *(own for chain in chains for own in ids(chain))]
    return found


@given(workflows)
def test_the_graph_is_whole_and_has_the_ids_of_the_places(nodes):
    plain = plain_graph(nodes)
    assert chain_of(json.loads(json.dumps(plain))) == nodes
    assert ids(plain) == list(Workflow(nodes).places)


def test_the_plain_graph_holds_every_node_and_instruction():
    assert plain_graph(read('Plan "First things first." -> [Custom, Verify ? done : (Revise) * 2]', ROOMY)) == [
        {"kind": "operator", "id": "node_1", "name": "Plan", "role": "planner", "instruction": "First things first."},
        {
            "kind": "parallel",
            "id": "node_2",
            "branches": [
                [{"kind": "operator", "id": "node_2_p0", "name": "Custom", "role": "solver", "instruction": ""}],
                [
                    {
                        "kind": "conditional",
                        "id": "node_2_p1",
                        "check": {
                            "kind": "operator",
                            "id": "node_2_p1_cond",
                            "name": "Verify",
                            "role": "checker",
                            "instruction": "",
                        },
                        "passed": [],
                        "failed": [
                            {
                                "kind": "loop",
                                "id": "node_2_p1_fail",
                                "body": [
                                    {
                                        "kind": "operator",
                                        "id": "node_2_p1_fail_l0",
                                        "name": "Revise",
                                        "role": "reviser",
                                        "instruction": "",
                                    }
                                ],
                                "count": 2,
                            }
                        ],
                    }
                ],
            ],
        },
    ]


def test_the_plain_run_is_json_and_holds_every_step():
    nodes = ops("Custom", "Review", "Format")
    backend = RecordingBackend(
        {"Review": Value(passed=False, notes="two\nlines " * 40), "Format": OpResult("timeout", None, "too late")}
    )
    run = plain_run(Interpreter(backend).run(nodes, PROBLEM))
    assert json.loads(json.dumps(run)) == run
    notes = run[1].pop("notes")
    assert notes.startswith("two lines two")
    assert len(notes) == 150
    assert run == [
        {"place": "node_1", "attempt": 0, "status": "ok", "passed": None, "influential": True, "notes": ""},
        {"place": "node_2", "attempt": 0, "status": "ok", "passed": False, "influential": False},
        {
            "place": "node_3",
            "attempt": 0,
            "status": "timeout",
            "passed": None,
            "influential": False,
            "notes": "too late",
        },
    ]


@given(workflows)
def test_a_report_reads_what_canvas_says(nodes):
    plain = plain_graph(nodes)
    assert [node.id for node in read_graph(plain)] == [node["id"] for node in plain]
    run = plain_run(Interpreter(RecordingBackend()).run(nodes, PROBLEM))
    assert sum(map(len, read_run(run).values())) == len(run)


GOOD = {"kind": "operator", "id": "a", "name": "Plan", "role": "planner", "instruction": ""}


@pytest.mark.parametrize(
    "graph",
    [
        [["operator", "Plan", ""]],
        [{**GOOD, "kind": "circle"}],
        [{name: value for name, value in GOOD.items() if name != "role"}],
        [{**GOOD, "instruction": None}],
        [{"kind": "loop", "id": "a", "body": [GOOD], "count": "two"}],
        [{"kind": "conditional", "id": "a", "check": {"kind": "loop", "id": "b", "body": [], "count": 1}}],
    ],
)
def test_what_is_no_graph_is_refused_and_the_message_says_why(graph):
    with pytest.raises(BadSetting, match=r"plain data|kind of node|check of a conditional"):
        read_graph(graph)


def test_what_is_no_run_is_refused():
    with pytest.raises(BadSetting, match="'passed'"):
        read_run([{"place": "a", "status": "ok", "passed": "yes", "influential": True, "notes": ""}])

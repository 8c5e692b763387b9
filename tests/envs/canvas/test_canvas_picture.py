"""Pictures of workflows: everything is in them once, nothing covers anything else, and text stays text."""

from __future__ import annotations

import hashlib
import time
import xml.etree.ElementTree as ET
from itertools import combinations, pairwise

import pytest
from canvas_graphs import ROOMY, op, ops, par, workflows
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_flow.envs.canvas.operators import OPERATORS
from agentgym_flow.envs.canvas.operators.calls import OpCall, OpResult, Value, WorkflowProblem
from agentgym_flow.envs.canvas.workflow import Chain, Conditional, Loop, OperatorNode, Parallel, Workflow
from agentgym_flow.envs.canvas.workflow.interpreter import Interpreter
from agentgym_flow.envs.canvas.workflow.run import plain_graph, plain_run
from agentgym_flow.envs.canvas.workflow.text import read
from agentgym_flow.report import workflow_html, workflow_svg
from agentgym_flow.report.workflow import workflow_picture
from agentgym_flow.report.workflow_data import read_graph, read_run
from agentgym_flow.report.workflow_layout import (
    NAME_SIZE,
    SMALL_SIZE,
    Box,
    Frame,
    Knot,
    Mark,
    Polyline,
    Word,
    WorkflowLayout,
    shortened,
    width,
)

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "</text></svg><script>alert(1)</script><img src=x onerror=alert(1)> ]]> \x00\x1b[2J \u202e \"'&amp;"


class FickleBackend:
    """Every third place fails, and checks pass at odd times; `salt` moves that."""

    def __init__(self, salt: int = 0) -> None:
        self._salt = salt

    def run(self, call: OpCall) -> OpResult:
        fate = sum(map(ord, call.place)) + self._salt + call.attempt
        if fate % 3 == 0:
            return OpResult("error", None, "the server was away")
        outputs = OPERATORS[call.operator].outputs
        if "passed" in outputs:
            return OpResult("ok", Value(passed=fate % 2 == 1, notes="an <unclear> step"))
        return OpResult("ok", Value(f"{call.place} {call.attempt}", "x = 1", ("one", "two")))


def ran(nodes: Chain, salt: int = 0) -> list[dict]:
    return plain_run(Interpreter(FickleBackend(salt)).run(nodes, WorkflowProblem("task", "A problem.")))


def svg(nodes: Chain, run: list[dict] | None = None, **more) -> ET.Element:
    return ET.fromstring(workflow_svg(plain_graph(nodes), run, **more))


def texts(root: ET.Element, kind: str) -> list[str]:
    return [element.text or "" for element in root.iter(f"{SVG}text") if kind in element.get("class", "").split()]


def boxes(root: ET.Element, kind: str = "") -> list[ET.Element]:
    groups = (group for group in root.iter(f"{SVG}g") if {"box", kind or "box"} <= set(group.get("class", "").split()))
    return [group for group in groups if not {"legend", "end"} & set(group.get("class", "").split())]


def marks(nodes: Chain, run: list[dict] | None, direction: str) -> list[Mark]:
    block = WorkflowLayout(None if run is None else read_run(run), direction).all_of(read_graph(plain_graph(nodes)))
    return block.at(0.0, 0.0)


Rectangle = tuple[float, float, float, float]
"""From u and v to u and v."""


def extent(mark: Box | Frame) -> Rectangle:
    return mark.u, mark.v, mark.u + mark.length, mark.v + mark.breadth


def apart(one: Rectangle, other: Rectangle, gap: float = 0.0) -> bool:
    return any(one[at + 2] + gap < other[at] + 0.01 or other[at + 2] + gap < one[at] + 0.01 for at in (0, 1))


def within(inner: Rectangle, outer: Rectangle) -> bool:
    return inner[0] > outer[0] and inner[1] > outer[1] and inner[2] < outer[2] and inner[3] < outer[3]


def word_extent(word: Word, down: bool) -> Rectangle:
    long, high = width(word.text, SMALL_SIZE) / 2, SMALL_SIZE / 2
    along, across = (high, long) if down else (long, high)
    return word.u - along, word.v - across, word.u + along, word.v + across


# ---------------------------------------------------------------- everything is there
@given(workflows)
@settings(max_examples=60)
def test_every_operator_is_there_once_under_the_id_of_its_place(nodes):
    root = svg(nodes)
    places = [place for place in Workflow(nodes).places.values() if isinstance(place.node, OperatorNode)]
    drawn = {str(group.findtext(f"{SVG}title")).partition(":")[0]: group for group in boxes(root)}
    assert sorted(drawn) == sorted(place.id for place in places)
    assert len(boxes(root)) == len(places)
    for place in places:
        group = drawn[place.id]
        assert texts(group, "name") == [place.node.name]
        assert OPERATORS[place.node.name].role in group.get("class").split()
        assert bool(texts(group, "told")) == bool(place.node.instruction)
    assert str(root.findtext(f"{SVG}title")).startswith(f"Workflow of {len(places)} operator")


def test_the_words_say_the_same_as_the_picture():
    nodes = read("[Plan -> Custom, Programmer] -> Verify ? done : (Review -> Revise) * 2", ROOMY)
    words = svg(nodes).findtext(f"{SVG}desc")
    assert words == (
        "in parallel (Plan, then Custom; Programmer), then Verify (if it passes nothing; if it fails 2 times (Review,"
        " then Revise))"
    )
    assert svg(()).findtext(f"{SVG}desc") == "nothing"


def test_structures_have_their_signs():
    root = svg(read("[Custom, Programmer] -> (Verify ? done : Revise) * 1 -> (Review -> Revise) * 4", ROOMY))
    assert texts(root, "passed") == ["pass"]
    assert texts(root, "failed") == ["fail"]
    assert texts(root, "back") == ["once", "4 times"]
    kinds = [element.get("class", "").split()[0] for element in root.iter(f"{SVG}path")]
    assert kinds.count("choice") == 1
    assert len([element for element in root.iter(f"{SVG}rect") if "frame-of-loop" in element.get("class", "")]) == 2
    assert texts(root, "told")[:2] == ["problem", "answer"]


def test_the_legend_has_the_roles_and_states_that_occur():
    def legend(root: ET.Element) -> list[str]:
        groups = (group for group in root.iter(f"{SVG}g") if "legend" in group.get("class", ""))
        return [text for group in groups for text in texts(group, "told")]

    assert legend(svg(ops("Custom", "Plan"))) == ["planner", "solver"]
    assert legend(svg(ops("Custom"), [])) == ["solver", "did not run"]
    assert legend(svg(())) == []


# ---------------------------------------------------------------- what ran
def test_a_run_shows_what_ran_what_mattered_what_failed_and_the_verdicts():
    nodes = (
        op("Plan"),
        op("Custom"),
        Conditional(op("Verify"), ops("Format"), ops("Revise")),
        Loop((op("Review"),), 3),
        op("Programmer"),
    )
    verdicts = {"Verify": (False,), "Review": (False, True, True)}

    class Told:
        def run(self, call: OpCall) -> OpResult:
            if call.operator in verdicts:
                return OpResult("ok", Value(passed=verdicts[call.operator][call.attempt], notes="off by ten"))
            if call.operator == "Programmer":
                return OpResult("timeout", None, "no answer in time")
            return OpResult("ok", Value(call.operator, items=("one",)))

    root = svg(nodes, plain_run(Interpreter(Told()).run(nodes, WorkflowProblem("task", "A problem."))))
    states = {texts(group, "name")[0]: group.get("class").split()[-1] for group in boxes(root)}
    # The review changes nothing in the result that the reviser made.
    assert states == {
        "Plan": "used",
        "Custom": "used",
        "Verify": "used",
        "Format": "idle",
        "Revise": "used",
        "Review": "unused",
        "Programmer": "broken",
    }
    signs = {texts(group, "name")[0]: texts(group, "sign") for group in boxes(root) if texts(group, "sign")}
    assert signs == {"Verify": ["✗"], "Review": ["✗", "✓", "✓"], "Programmer": ["!"]}
    titles = {texts(group, "name")[0]: group.findtext(f"{SVG}title") for group in boxes(root)}
    assert titles["Verify"].endswith("did not pass: off by ten")
    assert "time 3, passed" in titles["Review"]
    assert titles["Programmer"].endswith("the call failed.\nfailed: no answer in time")
    # Of the two cases one is quiet.
    passed, failed = (
        element for element in root.iter(f"{SVG}text") if {"passed", "failed"} & set(element.get("class").split())
        and "word" in element.get("class").split()
    )  # fmt: skip
    assert "quiet" in passed.get("class").split()
    assert "quiet" not in failed.get("class").split()


def test_in_a_loop_one_time_that_matters_is_enough_and_the_last_failure_counts():
    nodes = (op("Custom"), Loop(ops("Revise", "Review", "Format"), 2))

    class Told:
        def run(self, call: OpCall) -> OpResult:
            if call.operator == "Format" and call.attempt == 0:
                return OpResult("error", None, "away")
            if call.operator == "Review":
                return OpResult("ok", Value(passed=True, notes="off by ten"))
            return OpResult("ok", Value(f"{call.operator} {call.attempt}"))

    run = plain_run(Interpreter(Told()).run(nodes, WorkflowProblem("task", "A problem.")))
    assert [call["influential"] for call in run if call["place"] == "node_2_l1"] == [True, False]
    states = {texts(group, "name")[0]: group.get("class").split()[-1] for group in boxes(svg(nodes, run))}
    assert states == {"Custom": "used", "Revise": "used", "Review": "used", "Format": "used"}
    [formatted] = [group for group in boxes(svg(nodes, run)) if texts(group, "name") == ["Format"]]
    assert texts(formatted, "sign") == ["!"]


def test_more_verdicts_than_there_is_room_for_are_cut():
    nodes = (Loop(ops("Review"), 10),)
    [group] = boxes(svg(nodes, ran(nodes)))
    assert len(texts(group, "sign")) == 4
    assert texts(group, "sign")[-1] == "…"


def test_without_a_run_nothing_is_quiet_and_nothing_is_marked():
    text = workflow_svg(plain_graph(read("Custom -> Verify ? done : Revise", ROOMY)))
    body = text[text.index("</style>") :]
    assert "quiet" not in body
    assert "sign" not in body


# ---------------------------------------------------------------- where things are
@given(workflows, st.sampled_from(["right", "down"]), st.integers(-1, 5))
@settings(max_examples=120, deadline=None)
def test_nothing_covers_anything_else(nodes, direction, salt):
    found = marks(nodes, None if salt < 0 else ran(nodes, salt), direction)
    solid = [extent(mark) for mark in found if isinstance(mark, Box)]
    frames = [extent(mark) for mark in found if isinstance(mark, Frame)]
    for one, other in combinations(solid, 2):
        assert apart(one, other, 15.0)
    for one, other in combinations(frames, 2):
        assert apart(one, other, 15.0) or within(one, other) or within(other, one)
    for frame in frames:
        assert all(apart(box, frame) or within(box, frame) for box in solid)
    for line in (mark for mark in found if isinstance(mark, Polyline)):
        for (u, v), (to_u, to_v) in pairwise(line.points):
            way = (min(u, to_u), min(v, to_v), max(u, to_u), max(v, to_v))
            assert all(apart(way, box) for box in solid)
    for word in (mark for mark in found if isinstance(mark, Word)):
        assert all(apart(word_extent(word, direction == "down"), box) for box in solid)


@given(workflows, st.sampled_from(["right", "down"]))
@settings(max_examples=60, deadline=None)
def test_everything_is_within_the_picture(nodes, direction):
    made = workflow_picture(plain_graph(nodes), direction=direction)
    for area in (*made.boxes, *made.frames, *made.legend):
        assert area.x >= 16
        assert area.y >= 16
        assert area.x + area.width <= made.width - 15.8
        assert area.y + area.height <= made.height - 15.8


def test_a_check_wider_than_its_cases_is_within_the_picture():
    nodes = (Conditional(op("Verify", "x" * 80), (), ops("Test")),)
    made = workflow_picture(plain_graph(nodes), direction="down")
    assert min(area.x for area in made.boxes) == 16
    assert min(mark.v for mark in marks(nodes, None, "down") if isinstance(mark, Box)) == 0


@given(workflows, st.sampled_from(["right", "down"]))
@settings(max_examples=60, deadline=None)
def test_text_is_within_its_box(nodes, direction):
    for area in workflow_picture(plain_graph(nodes), ran(nodes), direction=direction).boxes:
        signs = [x - 6 for _, _, x in area.signs]
        assert all(x + 12 <= area.x + area.width - 5 for x in signs)
        if area.title:
            name, *told = area.lines
            assert 11 + width(name, NAME_SIZE) <= min([area.width - 10, *(x - area.x for x in signs)])
            assert all(11 + width(line, SMALL_SIZE) <= area.width - 10 for line in told)


@given(workflows)
@settings(max_examples=40, deadline=None)
def test_the_flow_is_one_piece_and_knots_are_on_lines(nodes):
    found = marks(nodes, None, "right")
    points = {point for mark in found if isinstance(mark, Polyline) for point in mark.points}
    for knot in (mark for mark in found if isinstance(mark, Knot)):
        assert any(abs(u - knot.u) <= 13 and abs(v - knot.v) < 0.01 for u, v in points)
    for box in (mark for mark in found if isinstance(mark, Box)):
        middle = box.v + box.breadth / 2
        ends = [(box.u, middle), (box.u + box.length, middle)]
        touched = [any(abs(u - a) + abs(v - b) < 0.01 for a, b in points) for u, v in ends]
        # Only the two ends of the whole flow have a side without a line.
        assert sum(touched) == (1 if box.operator is None else 2)


def test_a_chain_grows_along_the_flow_and_branches_grow_across_it():
    def size(nodes: Chain, direction: str = "right") -> tuple[float, float]:
        block = WorkflowLayout(None, direction).all_of(read_graph(plain_graph(nodes)))
        return block.length, block.breadth

    three, four = size(ops("Custom", "Custom", "Custom")), size(ops("Custom", "Custom", "Custom", "Custom"))
    assert four[0] > three[0]
    assert four[1] == three[1]
    two, more = size((par("Custom", "Custom"),)), size((par("Custom", "Custom", "Custom"),))
    assert more[1] == pytest.approx(two[1] + 34 + 18)
    assert more[0] < two[0] + 30
    nested = size((Loop((Loop(ops("Custom"), 2),), 2),))
    assert nested[0] > size((Loop(ops("Custom"), 2),))[0]
    assert size(ops("Custom", "Custom"), "down")[0] < size(ops("Custom", "Custom"))[0]
    told = size((op("Custom", "Name the unknowns, then write one equation for each sentence of the story."),))
    assert told[1] == pytest.approx(34 + 2 * 15 - 1)
    assert told[0] <= size(())[0] + 22 + 158 + 28


def test_deep_and_large_workflows_are_drawn_in_time():
    nodes: Chain = ops("Custom")
    for level in range(50):
        nodes = (Loop(nodes, 2),) if level % 2 else (Conditional(op("Verify"), ops("Format"), nodes),)
    large = (*nodes, *(Parallel((ops("Custom", "Programmer"), ops("Custom"))) for _ in range(200)))
    started = time.perf_counter()
    root = svg(large)
    assert time.perf_counter() - started < 5
    assert len(boxes(root)) == len(
        [1 for place in Workflow(large).places.values() if isinstance(place.node, OperatorNode)]
    )


# ---------------------------------------------------------------- text stays text
def test_hostile_instructions_stay_text():
    nodes = (op("Custom", HOSTILE), Conditional(op("Verify", HOSTILE), (), ops("Revise")))
    for document in (workflow_svg(plain_graph(nodes)), workflow_html(plain_graph(nodes), title=HOSTILE)):
        assert "<script" not in document
        assert "<img" not in document
        assert "\x00" not in document
        assert "\x1b" not in document
        assert "alert(1)" in document
    root = svg(nodes)
    tags = {element.tag.removeprefix(SVG) for element in root.iter()}
    assert tags == {"svg", "title", "desc", "style", "rect", "path", "g", "text"}
    assert not any("\u202e" in line for line in texts(root, "told"))
    assert all(not name.startswith("on") for element in root.iter() for name in element.attrib)


@given(workflows, st.sampled_from(["right", "down"]))
@settings(max_examples=40, deadline=None)
def test_a_picture_is_valid_whatever_is_said(nodes, direction):
    graph = plain_graph(nodes)
    assert workflow_svg(graph, ran(nodes), direction=direction) == workflow_svg(graph, ran(nodes), direction=direction)
    root = svg(nodes, ran(nodes), direction=direction)
    assert root.tag == f"{SVG}svg"
    assert float(root.get("width")) > 0
    assert root.get("viewBox") == f"0 0 {root.get('width')} {root.get('height')}"


@given(st.text(max_size=400), st.floats(60, 300), st.integers(1, 3))
def test_shortened_text_fits_and_is_a_beginning(text, room, lines):
    found = shortened(text, SMALL_SIZE, room, lines)
    assert len(found) <= lines
    assert all(width(line, SMALL_SIZE) <= room for line in found)
    assert all(line.isprintable() for line in found)
    plain = "".join("\ufffd" if not mark.isprintable() else mark for mark in "".join(text.split()))
    said = "".join("".join(found).split())
    assert plain == said or plain.startswith(said.removesuffix("…"))
    if width(" ".join(text.split()), SMALL_SIZE) <= room and text.isprintable():
        assert "".join(found) == " ".join(text.split())


# ---------------------------------------------------------------- as it was
def digest(text: str) -> str:
    """Of the picture itself: colours may change."""
    return hashlib.sha256((text[: text.index("<style>")] + text[text.index("</style>") :]).encode()).hexdigest()[:16]


LINE = (
    'Plan "Name the unknowns first." -> [Custom, Programmer -> Test] -> ScEnsemble -> Verify ? done : Revise -> Format'
)


@pytest.mark.parametrize(
    ("text", "with_run", "direction", "expected"),
    [
        (LINE, False, "right", "709e245261cc5018"),
        (LINE, True, "down", "04953240440a8b67"),
        (
            "(Verify ? (Review ? Custom : (Plan -> Custom)) : [Custom, (Programmer) * 4, Custom]) * 9",
            False,
            "right",
            "668c554c93b8a221",
        ),
    ],
)
def test_pictures_are_as_they_were(text, with_run, direction, expected):
    nodes = read(text, ROOMY)
    made = workflow_svg(plain_graph(nodes), ran(nodes) if with_run else None, direction=direction)
    assert digest(made) == expected

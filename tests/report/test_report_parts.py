"""Curves, colours, layout and the graph picture."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow.errors import BadSetting
from agentgym_flow.report import Curve, graph_svg, rendering
from agentgym_flow.report.charts import charts, number
from agentgym_flow.report.graph import _spread, hop_distances, layered, picture, waypoint
from agentgym_flow.rewards import group_graph

SVG = "{http://www.w3.org/2000/svg}"


# ---------------------------------------------------------------- curves
def test_both_axes_start_at_zero():
    [chart] = charts([Curve("a", [256, 512], [0.8, 0.9]), Curve("below", [256, 512], [-0.1, 0.85])])
    assert chart.x_ticks[0].text == "0"
    assert chart.x_ticks[0].at == chart.left
    assert "0" in [tick.text for tick in chart.y_ticks]
    assert charts([Curve("a", [256, 512], [0.8, 0.9])])[0].y_ticks[0].text == "0"


def test_curves_with_equal_axes_share_a_chart():
    made = charts([Curve("a", [0, 1], [0, 1]), Curve("b", [0, 2], [1, 0]), Curve("c", [0], [3], y_label="length")])
    assert [[line.name for line in chart.lines] for chart in made] == [["a", "b"], ["c"]]
    assert made[0].rows == [["0", "0", "1"], ["1", "1", ""], ["2", "", "0"]]


def test_points_ticks_and_bands_are_where_the_values_say():
    [chart] = charts([Curve("a", [0, 100], [0.2, 0.8], [0.1, 0.7], [0.3, 0.9])])
    assert [tick.text for tick in chart.y_ticks] == ["0", "0.2", "0.4", "0.6", "0.8", "1"]
    assert [tick.text for tick in chart.x_ticks] == ["0", "20", "40", "60", "80", "100"]
    [line] = chart.lines
    assert line.points[0][:2] == (chart.left, pytest.approx(chart.bottom - 0.2 * (chart.bottom - chart.top)))
    assert line.points[1][:2] == (chart.right, pytest.approx(chart.bottom - 0.8 * (chart.bottom - chart.top)))
    assert line.band.startswith("M")
    assert line.band.endswith("Z")
    assert chart.rows == [["0", "0.2 (0.1 to 0.3)"], ["100", "0.8 (0.7 to 0.9)"]]


def test_a_missing_value_leaves_a_gap():
    [chart] = charts([Curve("a", [0, 1, 2, 3], [1, float("nan"), 2, 3])])
    assert chart.lines[0].path.count("M") == 2
    assert len(chart.lines[0].points) == 3
    assert chart.lines[0].last == "3"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0, 1], [1]), "one length"),
        (([0], [1], [0]), "both ends"),
        (([], []), "no finite point"),
        (([0], [float("nan")]), "no finite point"),
    ],
)
def test_a_curve_that_cannot_be_drawn_is_refused(arguments, message):
    with pytest.raises(BadSetting, match=message):
        Curve("a", *arguments)


@given(st.lists(st.floats(-1e9, 1e9, allow_subnormal=False), min_size=1, max_size=20))
def test_any_values_are_drawn_inside_the_frame(values):
    [chart] = charts([Curve("a", range(len(values)), values)])
    assert 2 <= len(chart.y_ticks) <= 14
    for x, y, _ in chart.lines[0].points:
        assert chart.left <= x <= chart.right
        assert chart.top - 0.5 <= y <= chart.bottom + 0.5


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (-2.0, "\u22122"),
        (0.12345, "0.1235"),
        (12345.6, "12,346"),
        (1e-7, "1e\u221207"),
        (float("nan"), "\u2013"),
    ],
)
def test_number_reads_well(value, text):
    assert number(value) == text


# ---------------------------------------------------------------- colours
def _luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_luminance_grows_with_the_value_and_ends_are_clipped():
    luminances = [_luminance(rendering.ramp(i / 50)) for i in range(51)]
    assert all(low < high for low, high in pairwise(luminances))
    assert rendering.ramp(-1) == rendering.ramp(0)
    assert rendering.ramp(2) == rendering.ramp(1)


def test_text_on_every_colour_has_a_contrast_of_at_least_four():
    for i in range(101):
        pair = sorted((_luminance(rendering.ramp(i / 100)), _luminance(rendering.ink_on(i / 100))))
        assert (pair[1] + 0.05) / (pair[0] + 0.05) >= 4


# ---------------------------------------------------------------- layout
edges = st.lists(st.tuples(st.integers(0, 14), st.integers(0, 14)), max_size=40)


@given(edges)
def test_columns_are_hop_distances_and_no_nodes_touch(pairs):
    links = [(str(a), str(b)) for a, b in pairs]
    nodes = sorted({"0", *(name for link in links for name in link)})
    place = layered(nodes, links, "0", gap=10)
    assert sorted(place) == nodes
    successors: dict[str, list[str]] = {}
    for a, b in links:
        successors.setdefault(a, []).append(b)
    hops = hop_distances("0", successors)
    lost = max(hops.values()) + 1
    assert {node: column for node, (column, _) in place.items()} == {node: hops.get(node, lost) for node in nodes}
    for column in {column for column, _ in place.values()}:
        heights = sorted(y for c, y in place.values() if c == column)
        assert all(high - low >= 10 - 1e-6 for low, high in pairwise(heights))


@given(edges, st.sets(st.integers(1, 14)))
def test_ends_come_after_all_that_leads_to_them(pairs, numbers):
    links = [(str(a), str(b)) for a, b in pairs if a not in numbers]
    ends = {str(b) for _, b in pairs if b in numbers}
    nodes = sorted({"0", *ends, *(name for link in links for name in link)})
    place = layered(nodes, links, "0", gap=10, ends=ends)
    column = {node: at for node, (at, _) in place.items()}
    lost = max(column.values())
    for end in ends:
        sources = [a for a, b in links if b == end and column[a] < lost]
        if column[end] < lost:
            assert column[end] == 1 + max(column[a] for a in sources)
            ways = {column[waypoint(end, at)] for at in range(lost) if waypoint(end, at) in column}
            assert ways == set(range(min(column[a] for a in sources) + 1, column[end]))
    for column_number in set(column.values()):
        heights = sorted(y for at, y in place.values() if at == column_number)
        assert all(high - low >= 10 - 1e-6 for low, high in pairwise(heights))


def test_crossings_that_can_be_avoided_are_avoided():
    links = [("s", "a"), ("s", "b"), ("s", "c"), ("a", "z"), ("b", "y"), ("c", "x")]
    place = layered(["s", "a", "b", "c", "x", "y", "z"], links, "s", gap=10)
    order = sorted("abc", key=lambda node: place[node][1])
    ends = {"a": "z", "b": "y", "c": "x"}
    assert sorted("xyz", key=lambda node: place[node][1]) == [ends[node] for node in order]
    assert all(place[node][1] == pytest.approx(place[ends[node]][1]) for node in "abc")


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=12))
def test_spread_keeps_the_gap_and_moves_nothing_without_need(wished):
    heights = _spread(wished, 5.0)
    assert all(high - low >= 5 - 1e-6 for low, high in pairwise(heights))
    assert sum(heights) == pytest.approx(sum(wished), abs=1e-6)
    if all(high - low >= 5 for low, high in pairwise(wished)):
        assert heights == pytest.approx(wished)


# ---------------------------------------------------------------- the graph
def test_the_picture_counts_marks_and_values_the_states(make_group):
    group = make_group(size=4, attempts=6, skill=0.7)
    graph = group_graph(group)
    drawn = picture(group, graph)
    assert {node.key: node.distance for node in drawn.nodes} == {node.key: node.distance for node in graph.nodes()}
    assert sum(node.visits for node in drawn.nodes) == len(group) + len(group.turns)
    assert [node.key for node in drawn.nodes if node.start] == [group.episodes[0].state_key]
    assert [node.key for node in drawn.nodes if node.success] == ["end:success:3-3"]
    on_path = sorted((node.distance for node in drawn.nodes if node.on_path), reverse=True)
    assert on_path == list(range(graph.distance(group.episodes[0].state_key), -1, -1))
    assert sum(edge.on_path for edge in drawn.edges) == len(on_path) - 1
    by_distance = sorted((node.distance, _luminance(node.fill)) for node in drawn.nodes if node.fill)
    assert all(near[1] > far[1] for near, far in pairwise(by_distance) if near[0] < far[0])
    assert by_distance[-1][1] == _luminance(rendering.ramp(0))
    assert all((node.fill is None) == (node.potential is None) == (node.distance is None) for node in drawn.nodes)


def test_a_group_without_success_has_no_path_and_no_colour(make_group):
    group = make_group(size=6, attempts=3, skill=0.0, max_steps=5)
    drawn = picture(group, group_graph(group))
    assert drawn.successes == 0
    assert not any(node.on_path or node.fill for node in drawn.nodes)
    assert "no attempt succeeded" in graph_svg(group)


def test_beyond_the_cap_the_states_nearest_the_success_path_are_kept(make_group):
    group = make_group(size=12, attempts=20, skill=0.5, max_steps=80)
    graph = group_graph(group)
    drawn = picture(group, graph, 30)
    assert len(drawn.nodes) == 30
    assert drawn.left_out == len(graph) - 30
    assert len([node for node in drawn.nodes if node.on_path]) == graph.distance("0-0") + 1
    assert f"{drawn.left_out} states farther from the path are not drawn" in graph_svg(group, max_nodes=30)


@pytest.mark.parametrize(("size", "attempts"), [(3, 1), (4, 6), (25, 60)])
def test_the_svg_is_well_formed_and_everything_lies_inside(make_group, size, attempts):
    group = make_group(size=size, attempts=attempts, skill=0.5, max_steps=90)
    root = ET.fromstring(graph_svg(group))
    width, height = float(root.get("width")), float(root.get("height"))
    nodes = [g for g in root.iter(f"{SVG}g") if g.get("data-key")]
    assert len(nodes) == len(picture(group, group_graph(group)).nodes) <= 300
    for node in nodes:
        x, y = map(float, node.get("transform")[len("translate(") : -1].split())
        assert 0 < x < width
        assert 0 < y < height
        assert node.find(f"{SVG}title").text.startswith(node.get("data-key"))


def test_states_that_look_alike_are_told_apart_by_what_led_there(make_group):
    group = make_group(size=4, attempts=6, skill=0.7)
    assert not any(node.way for node in picture(group, group_graph(group)).nodes)
    assert "first reached by" not in graph_svg(group)
    for episode in group:
        for turn in episode.turns:
            turn.observation = turn.next_observation = "a page"
    nodes = picture(group, group_graph(group)).nodes
    assert {node.text for node in nodes if not node.start} == {"a page"}
    drawn = {node.key: node.way for node in nodes}
    assert len(set(drawn.values())) == len(drawn)
    assert drawn["0-1"] == "right"
    assert drawn["0-0"] == ""
    assert "first reached by right\n\na page</title>" in graph_svg(group)


def spoken(group, words):
    """Let the same be done in other words."""
    for episode in group:
        for turn in episode.turns:
            turn.output.action = words(turn.action)
    return group


def test_states_are_named_by_what_led_there_where_actions_have_several_words(make_group):
    group = make_group(size=4, attempts=6, skill=0.7)
    assert not any(node.lines for node in picture(group, group_graph(group)).nodes)
    drawn = picture(spoken(group, "go {}".format), group_graph(group))
    lines = {node.key: node.lines for node in drawn.nodes}
    assert lines["0-0"] == ("start",) or lines["0-0"] == ()
    assert lines["0-1"][0] in ("go right", "go left", "go up")
    assert all(1 <= len(said) <= 2 for key, said in lines.items() if key != "0-0")
    into = {
        turn.action for episode in group for turn in episode.turns if turn.next_state_key == "0-1" != turn.state_key
    }
    more = {1: (), 2: ("and another",)}.get(len(into), (f"and {len(into) - 1} others",))
    assert lines["0-1"][1:] == more
    assert all(line in graph_svg(group) for said in lines.values() for line in said)


def test_long_and_hostile_actions_are_cut_and_escaped(make_group):
    hostile = "</text><script>x</script> " + "and so on " * 30
    group = spoken(make_group(size=3, attempts=2, skill=1.0), lambda action: hostile + action)
    drawn = picture(group, group_graph(group))
    lines = [node.lines for node in drawn.nodes if not node.start]
    assert all(said == ("</text><script>x</script>", "and so on and so on and \u2026") for said in lines)
    assert "<script" not in graph_svg(group)
    ET.fromstring(graph_svg(group))


def test_of_many_states_none_is_named(make_group):
    group = spoken(make_group(size=12, attempts=20, skill=0.5, max_steps=80), "go {}".format)
    assert not any(node.lines for node in picture(group, group_graph(group), 31).nodes)
    assert any(node.lines for node in picture(group, group_graph(group), 30).nodes)


def test_what_an_end_without_words_came_of_is_told(make_group):
    group = make_group(size=3, attempts=1, skill=1.0)
    assert not any(node.way for node in picture(group, group_graph(group)).nodes)
    last = group.episodes[0].turns[-1]
    last.next_observation = ""
    ways = {node.text: node.way for node in picture(group, group_graph(group)).nodes}
    assert ways[""] == ", ".join(turn.action for turn in group.episodes[0].turns)
    group.episodes[0].turns[0].output.action = "x" * 9999
    [way] = [node.way for node in picture(group, group_graph(group)).nodes if not node.text]
    assert way.startswith("xxx")
    assert len(way) < 200


def test_a_single_state_is_a_picture(make_episode):
    from agentgym_flow.episodes import Group

    drawn = picture(Group([make_episode([])]), group_graph(Group([make_episode([])])))
    assert (len(drawn.nodes), len(drawn.edges), drawn.nodes[0].start) == (1, 0, True)

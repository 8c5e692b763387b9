"""Workflows in a report: a picture for every step whose `info` was kept, each distinct one once."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import pytest

from agentgym_flow.errors import BadSetting
from agentgym_flow.report import render_report, workflow_html, workflow_svg


def operator(own: str, name: str = "Custom", role: str = "solver", instruction: str = "") -> dict[str, Any]:
    return {"kind": "operator", "id": own, "name": name, "role": role, "instruction": instruction}


def call(place: str, **more: Any) -> dict[str, Any]:
    return {"place": place, "status": "ok", "passed": None, "influential": True, "notes": "", **more}


def told(count: int) -> dict[str, Any]:
    """Return what an environment tells of a chain of so many operators."""
    places = [f"node_{number}" for number in range(1, count + 1)]
    return {"workflow": {"graph": list(map(operator, places)), "run": list(map(call, places))}}


@pytest.fixture
def designed(make_episode):
    """Return a maker of episodes in which step t has told a chain of `counts[t]` operators."""

    def build(*counts: int):
        episode = make_episode(["right"] * len(counts))
        for turn, count in zip(episode.turns, counts, strict=True):
            turn.info = told(count)
        return episode

    return build


def payload_of(page: str) -> Any:
    found = re.search(r'<script type="application/json" id="payload">(.*?)</script>', page)
    assert found is not None
    return json.loads(found[1])


def drawn(page: str) -> dict[str, int]:
    """Return the id of every picture in the page with the number of its operators."""
    found = re.findall(r'<figure[^>]* id="(workflow-\d+)">(.*?)</figure>', page, re.DOTALL)
    return {own: picture.count('class="name"') for own, picture in found}


def test_each_step_names_its_picture_and_each_picture_is_there_once(designed):
    page = render_report(title="A run", episodes=[designed(1, 2, 2), designed(1, 2, 3)])
    numbers = [[frame.get("w") for frame in episode["frames"]] for episode in payload_of(page)["episodes"]]
    pictures = drawn(page)
    assert sorted(pictures.values()) == [1, 2, 3]
    sizes = [[number if number is None else pictures[f"workflow-{number}"] for number in row] for row in numbers]
    assert sizes == [[None, 1, 2, 2], [None, 1, 2, 3]]
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def test_the_last_workflow_of_an_episode_is_there_for_readers_without_scripts(designed):
    page = render_report(title="A run", episodes=[designed(1, 2), designed(3, 2), designed(1, 4)])
    plain = page[page.index('id="plain"') :]
    shown = re.findall(r"<details[^>]*>(.*?)</details>", plain, re.DOTALL)
    assert [part.count('class="name"') for part in shown] == [2, 0, 4]
    assert 'href="#workflow-0">' in shown[1]


def test_ends_come_first_when_there_are_too_many_pictures(designed, monkeypatch):
    monkeypatch.setattr("agentgym_flow.report.page.MOST_PICTURES", 3)
    page = render_report(title="A run", episodes=[designed(1, 2, 3, 4), designed(1, 5)])
    assert sorted(drawn(page).values()) == [1, 4, 5]
    frames = payload_of(page)["episodes"][0]["frames"]
    assert [frame.get("w", "none") for frame in frames] == ["none", 2, None, None, 0]


def test_a_page_without_workflows_is_as_before(make_episode, designed):
    plain, kept = make_episode(["right", "down"]), make_episode(["right", "down"])
    for turn in kept.turns:
        turn.info = {"workflow": {"text": "no graph in it"}}
    page = render_report(title="A run", episodes=[plain])
    assert page == render_report(title="A run", episodes=[kept])
    assert "workflow-picture" not in page
    assert "workflow-picture" in render_report(title="A run", episodes=[designed(1)])


def test_a_workflow_without_a_run_has_a_picture(make_episode):
    episode = make_episode(["right"])
    episode.turns[0].info = {"workflow": {"graph": [operator("node_1")]}}
    assert "as it ran" not in render_report(title="A run", episodes=[episode])
    episode.turns[0].info = told(1)
    assert "as it ran" in render_report(title="A run", episodes=[episode])


def test_the_page_of_one_workflow_loads_nothing_and_has_every_instruction_whole():
    long = "Name the unknowns first, " * 20
    graph, run = [operator("node_1", instruction=long), operator("node_2", "Spell", "wizard")], [call("node_1")]
    page = workflow_html(graph, run, title="One workflow")
    assert page.count(long.strip()) >= 1
    assert "<script" not in page
    assert "script-src 'none'" in html.unescape(page)
    assert not re.search(r"url\(|@import|https?://(?!www\.w3\.org/)", page)
    rows = re.findall(r"<tr><td.*?</tr>", page, re.DOTALL)
    assert [("did not run" in row, "ran" in row) for row in rows] == [(False, True), (True, False)]
    assert "In this run" not in re.sub(r"<svg.*?</svg>", "", workflow_html(graph), flags=re.DOTALL)


def test_a_role_without_a_colour_is_drawn_and_a_wrong_direction_is_refused():
    assert 'class="box other plain"' in workflow_svg([operator("node_1", "Spell", "wizard")])
    with pytest.raises(BadSetting, match="'right' or 'down'"):
        workflow_svg([], direction="up")  # type: ignore[arg-type]

"""The report page: its sections, that it is self-contained, and that hostile text stays text."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import zipfile
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from agentgym_flow import report
from agentgym_flow._util.values import printable
from agentgym_flow.report import Curve, render_report, write_report
from agentgym_flow.report.page import CREDIT, PageTable
from agentgym_flow.rewards import relabel

HOSTILE = "</script><img src=x onerror=alert(1)><!--<script>\x1b[2J\x00\ud800'\"&amp;"
VOID = {"meta", "input", "br", "img", "link", "hr"}


class Page(HTMLParser):
    """The elements of a page; fails on tags that do not match."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts.setdefault(self._open[-1], []).append(data)

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def payload(self) -> dict:
        return json.loads(self.texts["script"][0])


@pytest.fixture
def full(make_group, make_episode):
    return render_report(
        title="A run",
        summary={"success": "81 %"},
        curves=[Curve("rewardflow", [0, 10, 20], [0.4, 0.6, 0.8], [0.3, 0.5, 0.7], [0.5, 0.7, 0.9])],
        groups=[make_group()],
        episodes=[make_episode(["right", "nonsense", "down"])],
        settings={"learning_rate": "0.001", HOSTILE: HOSTILE},
    )


def test_all_sections_are_there_and_well_formed(full):
    page = Page(full)
    assert [section["id"] for section in page.named("section")] == [
        "summary",
        "curves",
        "graphs",
        "episodes",
        "settings",
    ]
    links = [f"#{name}" for name in ("main", "summary", "curves", "graphs", "episodes", "settings", "player")]
    assert [a["href"] for a in page.named("a")] == links
    ids = [attributes["id"] for _, attributes in page.elements if attributes.get("id")]
    assert len(ids) == len(set(ids))


def test_steps_have_addresses_and_a_page_of_a_site_leads_back(make_episode):
    episodes = [make_episode(["right", "down"]), make_episode([])]
    back = [("<Back>", "index.html")]
    html = render_report(title="Part of a site", episodes=episodes, links=back, footer="Of a site.")
    page = Page(html)
    ids = {attributes["id"] for _, attributes in page.elements if attributes.get("id")}
    assert {f"episode-1{end}" for end in ("", "-step-0", "-step-1", "-step-2")} <= ids
    assert {"episode-2", "episode-2-step-0"} <= ids
    assert not {"episode-2-step-1", "episode-3"} & ids
    assert page.named("a")[1]["href"] == "index.html"
    assert "&lt;Back&gt;" in html
    assert any("Of a site." in text for text in page.texts["p"])
    assert not any("Made by" in text for text in page.texts["p"])


def test_a_section_without_content_is_left_out():
    page = Page(render_report(title="Empty"))
    assert page.named("section") == []
    assert page.named("script") == []


def test_nothing_is_loaded_and_only_our_script_and_style_may_run(full):
    page = Page(full)
    for _, attributes in page.elements:
        assert not {"src", "srcset", "style", "xlink:href"} & attributes.keys()
        assert not [name for name in attributes if name.startswith("on")]
        assert (attributes.get("href") or "#").startswith("#")
    [policy] = [m["content"] for m in page.named("meta") if m.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ")
    for tag in ("style", "script"):
        text = page.texts[tag][-1]
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"url\((?!#)|@import|https?://(?!www\.w3\.org/)", full)


def test_hostile_text_stays_text_everywhere(make_group, make_episode):
    episode = make_episode(["right", HOSTILE], goal=HOSTILE, completion=HOSTILE)
    episode.meta[HOSTILE] = HOSTILE
    episode.observation = episode.turns[0].next_observation = HOSTILE
    group = make_group(attempts=2)
    group.episodes[0].turns[-1].output.action = HOSTILE
    for turn in group.episodes[0].turns:
        turn.next_observation = HOSTILE
    html = render_report(
        title=HOSTILE,
        summary={HOSTILE: HOSTILE},
        curves=[Curve(HOSTILE, [0, 1], [0, 1], x_label=HOSTILE, y_label=HOSTILE)],
        groups=[group],
        episodes=[episode],
    )
    page = Page(html)
    assert page.named("img") == []
    assert len(page.named("script")) == 2
    assert page.texts["h1"] == [page.texts["title"][0]]
    shown = HOSTILE.replace("\x1b", "\ufffd").replace("\x00", "\ufffd").replace("\ud800", "\ufffd")
    assert page.texts["h1"] == [shown]
    assert shown in page.payload["texts"]
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]", html)


def test_a_step_shows_its_reasoning_its_policy_and_a_cut_answer(make_episode):
    episode = make_episode(["right", "right"], completion="<action>right</action>")
    episode.turns[1].output = replace(episode.turns[1].output, cut=True, policy="solver")
    notes = [{"turn": 1, "text": HOSTILE}, {"turn": [], "text": "?"}, "no note"]
    episode.meta |= {"reasoning": notes, "logprobs": [[-0.123], [-0.456]], "task_type": "walk"}
    found = Page(render_report(title="One", episodes=[episode])).payload
    first, second = found["episodes"][0]["frames"][1:]
    assert (first["flags"], second["flags"]) == ([], ["cut answer"])
    assert {"t", "p"} & first.keys() == set()
    assert found["texts"][second["t"]] == printable(HOSTILE)
    assert found["texts"][second["p"]] == "solver"
    assert found["episodes"][0]["meta"] == [[found["texts"].index(word) for word in ("task_type", "walk")]]


def test_payload_has_a_frame_per_state_with_rewards_flags_and_potentials(make_group):
    group = make_group()
    page = Page(render_report(title="Group", groups=[group]))
    texts, rows = page.payload["texts"], page.payload["episodes"]
    relabel(group)
    by_length = sorted(group, key=lambda episode: episode.success)
    for episode, row in zip(by_length, rows, strict=True):
        frames = row["frames"]
        assert [texts[frame["o"]] for frame in frames] == [
            episode.observation,
            *(turn.next_observation for turn in episode.turns),
        ]
        assert [texts[frame["a"]] for frame in frames[1:]] == [turn.action for turn in episode.turns]
        assert [frame["r"] for frame in frames[1:]] == [turn.reward for turn in episode.turns]
        assert [frame["phi"] for frame in frames[1:]] == [turn.phi_next for turn in episode.turns]
        assert frames[0]["phi"] == episode.turns[0].phi
        invalid = ["invalid action" in frame["flags"] for frame in frames[1:]]
        assert invalid == [not turn.action_valid for turn in episode.turns]
        assert ("success" in frames[-1]["flags"]) == episode.success
        assert frames[0]["k"] == texts.index(episode.state_key)


def test_episodes_outside_a_group_show_what_relabel_wrote_or_nothing(make_group):
    group = make_group(attempts=2)
    bare = Page(render_report(title="Bare", episodes=group.episodes)).payload
    assert {frame["phi"] for row in bare["episodes"] for frame in row["frames"]} == {None}
    relabel(group)
    valued = Page(render_report(title="Valued", episodes=group.episodes)).payload
    grouped = Page(render_report(title="Valued", groups=[group])).payload
    assert valued == grouped


def test_gamma_is_that_of_the_potentials(make_group):
    group = make_group(attempts=2, skill=1.0)
    frames = Page(render_report(title="Gamma", groups=[group], gamma=0.5)).payload["episodes"][0]["frames"]
    assert [frame["phi"] for frame in frames] == [0.5 ** (len(frames) - 1 - i) for i in range(len(frames))]


def test_failures_come_first_and_no_episode_twice(make_group):
    group = make_group(attempts=8, skill=0.4)
    outcomes = [episode.success for episode in group]
    assert len(set(outcomes)) == 2
    page = Page(render_report(title="Twice", groups=[group], episodes=group.episodes))
    rows = [row["data-outcome"] for row in page.named("tr") if "data-outcome" in row]
    assert rows == ["failure"] * outcomes.count(False) + ["success"] * outcomes.count(True)


def test_without_scripts_first_and_last_observation_and_actions_are_shown(make_episode):
    html = render_report(title="Plain", episodes=[make_episode(["right", "down"])])
    page = Page(html)
    assert [p for p in page.named("div") if p.get("id") == "player"] == [
        {"class": "player", "id": "player", "hidden": None}
    ]
    assert "P _ _ _" in page.texts["pre"][1 if page.texts["pre"][0] == "" else 0]
    assert page.texts["li"][-2:] == ["right", "down"]


def test_infinite_rewards_do_not_break_the_page(make_episode):
    episode = make_episode(["right", "down"])
    episode.turns[0].reward = float("inf")
    frames = Page(render_report(title="Inf", episodes=[episode])).payload["episodes"][0]["frames"]
    assert [frame.get("r") for frame in frames] == [None, None, 0.0]


def test_equal_input_gives_equal_bytes(full, make_group, tmp_path):
    first = write_report(tmp_path / "new" / "a.html", title="Same", groups=[make_group()])
    second = write_report(tmp_path / "b.html", title="Same", groups=[make_group()])
    assert first.read_bytes() == second.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.html", "new"]


def test_a_failed_write_leaves_the_old_page_and_nothing_else(tmp_path, monkeypatch):
    page = tmp_path / "page.html"
    page.write_text("old")

    def full_disk(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_report(page, title="New")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    assert page.read_text() == "old"


@pytest.mark.heavy
def test_templates_are_in_the_wheel(archives):
    with zipfile.ZipFile(archives.wheel) as wheel:
        packed = {Path(name).name for name in wheel.namelist() if name.startswith("agentgym_flow/report/templates/")}
    assert packed == {path.name for path in Path(report.__file__).with_name("templates").iterdir()}
    assert "page.html.j2" in packed


# ---------------------------------------------------------------- credit
def test_a_page_has_tables_scatter_plots_and_the_credit_of_turns(make_group) -> None:
    episode = make_group().episodes[0]
    turn = replace(episode.turns[0], info={CREDIT: {"grpo": 0.5, HOSTILE: math.nan}})
    episode = replace(episode, turns=[turn, *episode.turns[1:]])
    table = PageTable(HOSTILE, ["credit", "rank"], [["grpo", "0.3"], [HOSTILE, ""]])
    many = list(range(100))
    html = render_report(
        title="credit", tables=[table], curves=[Curve("dots", many, many, joined=False)], episodes=[episode]
    )
    page = Page(html)
    assert "grpo" in page.texts["th"]
    assert "onerror=alert(1)>" not in html
    circles = [circle for circle in page.named("circle") if circle.get("r") == "3"]
    assert len(circles) == 100 + 1  # with that of the legend
    assert not any(path.get("class") == "line" for path in page.named("path"))
    [data] = re.findall(r'<script type="application/json" id="payload">(.*?)</script>', html, re.DOTALL)
    told = json.loads(data)
    frames = told["episodes"][0]["frames"]
    (name, value), (_, unknown) = frames[1]["x"]
    assert (told["texts"][name], value, unknown) == ("grpo", 0.5, None)
    assert all("x" not in frame for frame in [frames[0], *frames[2:]])

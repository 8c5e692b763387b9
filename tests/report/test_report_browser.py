"""The report page in a real Chromium: the player plays, keys work, the policy holds, hostile text runs nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentgym_flow.envs.canvas.operators import OPERATORS
from agentgym_flow.report import Curve, workflow_html, write_report

pytestmark = pytest.mark.heavy

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the key of an element reference in the WebDriver protocol
KEYS = {"right": "\ue014", "left": "\ue012", "up": "\ue013", "down": "\ue015", "home": "\ue011", "end": "\ue010"}
OWN = "document.title='owned'"
HOSTILE = "</script><img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


class Browser:
    """Just enough of the WebDriver protocol, spoken to a chromedriver on the loopback interface."""

    def __init__(self, port: int, chromium: str) -> None:
        self._base = f"http://127.0.0.1:{port}/session"
        arguments = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        options = {"binary": chromium, "args": [*arguments, "--window-size=1200,900"]}
        capabilities = {"alwaysMatch": {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}}
        self._base += "/" + self._ask("POST", "", {"capabilities": capabilities})["sessionId"]

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._base + path, data, {"Content-Type": "application/json"}, method=method)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(json.load(error)["value"]["message"]) from None

    def open(self, page: Path) -> None:
        self._ask("POST", "/url", {"url": page.as_uri()})

    def run(self, script: str, *arguments: Any) -> Any:
        return self._ask("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def text(self, selector: str) -> str:
        return self.run("return document.querySelector(arguments[0]).innerText", selector)

    def _element(self, selector: str) -> str:
        return self._ask("POST", "/element", {"using": "css selector", "value": selector})[ELEMENT]

    def click(self, selector: str) -> None:
        self._ask("POST", f"/element/{self._element(selector)}/click", {})

    def press(self, *names: str) -> None:
        """Press keys where the focus is."""
        strokes = [stroke for name in names for stroke in ({"type": "keyDown"}, {"type": "keyUp"})]
        values = [KEYS.get(name, name) for name in names for _ in range(2)]
        actions = [{**stroke, "value": value} for stroke, value in zip(strokes, values, strict=True)]
        self._ask("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def complaints(self) -> list[str]:
        return [entry["message"] for entry in self._ask("POST", "/se/log", {"type": "browser"})]

    def close(self) -> None:
        self._ask("DELETE", "")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("needs chromium and chromedriver (Debian: apt-get install chromium chromium-driver)")
    process = subprocess.Popen([driver, "--port=0"], stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.stdout is not None
        port = next(int(m[1]) for line in process.stdout if (m := re.search(r"successfully on port (\d+)", line)))
        opened = Browser(port, chromium)
        yield opened
        opened.close()
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture
def page(browser, make_group, make_episode, tmp_path):
    """A page with a group of eight attempts (some fail) and one hostile episode, opened."""
    group = make_group(size=4, attempts=8, skill=0.4)
    hostile = make_episode(["right", HOSTILE], goal=HOSTILE, completion=HOSTILE)
    hostile.meta |= {"policy": HOSTILE, "reasoning": [{"turn": 1, "text": HOSTILE}]}
    hostile.observation = hostile.turns[0].observation = HOSTILE
    path = write_report(
        tmp_path / "page.html",
        title="Browser test",
        curves=[Curve(HOSTILE, [0, 1], [0.2, 0.8], [0.1, 0.7], [0.3, 0.9])],
        groups=[group],
        episodes=[hostile],
    )
    browser.complaints()
    browser.open(path)
    return group, hostile


def test_scripts_run_under_the_policy_and_nothing_else_does(browser, page):
    assert browser.run("return document.getElementById('player').hidden") is False
    assert browser.run("return document.querySelectorAll('img').length") == 0
    browser.run(
        "const s = document.createElement('script'); s.textContent = arguments[0]; document.body.append(s)", OWN
    )
    assert browser.run("return document.title") == "Browser test"
    refused = browser.complaints()
    assert len(refused) == 1
    assert "Content Security Policy" in refused[0]


def test_the_player_shows_every_frame_of_an_episode(browser, page):
    group, _ = page
    shown = next(episode for episode in group if not episode.success)
    assert browser.text("#observation") == shown.observation
    for turn in shown.turns:
        browser.click("[data-go=next]")
        assert browser.text("#observation") == turn.next_observation
    assert browser.text("#counter") == f"step {len(shown.turns)} of {len(shown.turns)}"
    browser.click("[data-go=next]")
    assert browser.text("#counter").startswith(f"step {len(shown.turns)} ")
    browser.click("[data-go=first]")
    assert browser.text("#facts tr:last-child td") == "start"


def test_episodes_without_workflows_have_no_place_for_them(browser, page):
    assert browser.run("return document.getElementById('workflow').hidden") is True


def test_keys_step_and_change_the_episode(browser, page):
    group, _ = page
    shown = next(episode for episode in group if not episode.success)
    browser.run("document.getElementById('observation').focus()")
    browser.press("right", "right", "left")
    assert browser.text("#counter") == f"step 1 of {len(shown.turns)}"
    assert browser.text("#facts td") == shown.turns[0].action
    browser.press("end")
    assert browser.text("#counter") == f"step {len(shown.turns)} of {len(shown.turns)}"
    browser.press("home")
    assert browser.text("#counter") == f"step 0 of {len(shown.turns)}"
    title = browser.text("#player-title")
    browser.run("document.querySelector('[data-go=next]').focus()")
    browser.press("down")
    assert browser.text("#player-title") != title
    browser.press("up")
    assert browser.text("#player-title") == title


def test_play_runs_to_the_end_and_pauses(browser, page):
    browser.click("[data-go=play]")
    assert browser.text("[data-go=play]") == "Pause"
    browser.click("[data-go=play]")
    assert browser.text("[data-go=play]") == "Play"
    browser.run("document.getElementById('slider').value = 1e6")
    browser.run("document.getElementById('slider').dispatchEvent(new Event('input'))")
    last = browser.text("#counter")
    assert last.split()[1] == last.split()[3]
    browser.click("[data-go=play]")  # at the end: starts again
    assert browser.text("#counter").startswith("step 0 ")


def test_the_filter_leaves_failures_or_successes(browser, page):
    group, _ = page
    wins = sum(episode.success for episode in group)
    visible = "return [...document.querySelectorAll('tr[data-episode]')].filter(r => !r.hidden).length"
    browser.click("[value=success]")
    assert browser.run(visible) == wins
    assert browser.text("#shown") == f"{wins} of 9 episodes"
    browser.click("[value=failure]")
    assert browser.run(visible) == 9 - wins
    browser.click("[value=all]")
    assert browser.run(visible) == 9


def test_hostile_text_is_shown_as_text(browser, page):
    _, hostile = page
    number = browser.run(
        "return [...document.querySelectorAll('tr[data-episode]')].findIndex(r => r.cells[4].innerText === '2')"
    )
    browser.click(f"tr[data-episode='{number}'] button")
    assert browser.text("#player-goal") == hostile.goal
    assert browser.text("#observation") == HOSTILE
    browser.click("[data-go=last]")
    assert HOSTILE in browser.text("#facts")
    assert HOSTILE in browser.text("#completion")
    assert HOSTILE in browser.text("#reasoning")
    browser.click("[data-go=back]")
    assert browser.run("return document.getElementById('reasoning').hidden")
    assert HOSTILE in browser.text("#steps")
    assert browser.run("return document.getElementById('meta').textContent.includes(arguments[0])", HOSTILE)
    assert browser.run("return document.title") == "Browser test"


def test_the_graph_shows_the_state_pointed_at_and_moves_by_arrow_keys(browser, page):
    group, _ = page
    assert group.episodes[0].state_key in browser.text(".state")
    browser.run("document.querySelector('.at[tabindex=\"0\"]').focus()")
    browser.press("right")
    key = browser.run("return document.activeElement.dataset.key")
    assert key in ("0-1", "1-0")
    assert browser.text(".state").startswith(key)
    assert browser.run("return document.querySelectorAll('.at[tabindex=\"0\"]').length") == 1
    label = "[...document.querySelectorAll('.phi')]"
    rgb = "getComputedStyle(t).fill.match(/\\d+/g).map(n => (+n).toString(16).padStart(2, '0')).join('')"
    assert browser.run(f"return {label}.length > 3 && {label}.every(t => '#' + {rgb} === t.getAttribute('fill'))")
    width = float(browser.run("return document.querySelector('.state-graph').getAttribute('width')"))
    browser.click("[data-zoom=in]")
    assert float(browser.run("return document.querySelector('.state-graph').getAttribute('width')")) > width
    browser.click("[data-zoom=reset]")
    assert float(browser.run("return document.querySelector('.state-graph').getAttribute('width')")) == width


def test_graphs_open_whole_and_folded_ones_when_they_are_unfolded(browser, make_group, tmp_path):
    """Wide ones are made smaller, small ones are not made larger, and buttons zoom from there."""
    groups = [make_group(size=12, attempts=6, max_steps=80), make_group(size=12, attempts=6, max_steps=80)]
    browser.open(write_report(tmp_path / "graphs.html", title="Graphs", groups=[*groups, make_group(size=3)]))
    shape = "const g = document.querySelectorAll('.graph')[arguments[0]], s = g.querySelector('svg');"
    shape += "return [s.clientWidth, s.viewBox.baseVal.width, g.querySelector('.graph-scroll').clientWidth, g.open]"
    width, natural, room, opened = browser.run(shape, 0)
    assert width <= room < natural
    assert opened
    assert browser.run(shape, 1)[3] is False
    for number in (1, 2):
        browser.click(f".graph:nth-of-type({number + 1}) > summary")
    assert browser.run("return new Promise(done => requestAnimationFrame(() => done(true)))")
    width, natural, room, _ = browser.run(shape, 1)
    assert width <= room < natural
    width, natural, room, _ = browser.run(shape, 2)
    assert width == natural < room
    browser.click("[data-zoom=reset]")
    width, natural, _, _ = browser.run(shape, 0)
    assert width == natural


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_training_report_has_no_barrier_and_needs_no_script(browse, make_group, tmp_path, scheme):
    from axe_playwright_python.sync_playwright import Axe

    names = ("entropy (nats)", "KL divergence (nats)", "share that was cut")
    path = write_report(
        tmp_path / "page.html",
        title="Training",
        summary={"Seed": "0"},
        curves=[Curve(name, [0, 1], [0.2, 0.8], y_label=name) for name in names],
        groups=[make_group(size=12, attempts=6, max_steps=80), make_group(size=3)],
        settings={f"setting_{number}": "value" * number for number in range(60)},
    )
    page = browse(path.as_uri(), path.parent.as_uri(), color_scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach((details) => { details.open = true; })")
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    plain = browse(path.as_uri(), path.parent.as_uri(), java_script_enabled=False)
    graph = plain.locator(".graph-scroll").first.bounding_box()
    assert plain.locator(".state-graph").first.bounding_box()["width"] <= graph["width"]


@pytest.mark.parametrize("width", [1200, 360])
def test_nothing_sticks_out_of_the_window(browser, page, width):
    browser._ask("POST", "/window/rect", {"width": width, "height": 800})
    try:
        inner, needed = browser.run("return [window.innerWidth, document.documentElement.scrollWidth]")
        assert needed <= inner
    finally:
        browser._ask("POST", "/window/rect", {"width": 1200, "height": 900})


def test_a_phone_breaks_no_word_of_a_table(browser, make_episode, tmp_path):
    words = "search[shock absorbing vinyl coated kettlebells for professional photographers]"
    path = write_report(
        tmp_path / "phone.html",
        title="Phone",
        summary={"environment": "agentgym_flow/WebShop-v0, test"},
        episodes=[make_episode([words, "x" * 3000])],
    )
    metrics = {"width": 360, "height": 700, "deviceScaleFactor": 1, "mobile": True}
    emulation = "/goog/cdp/execute"
    browser._ask("POST", emulation, {"cmd": "Emulation.setDeviceMetricsOverride", "params": metrics})
    try:
        browser.open(path)
        broken = browser.run(
            """
            const broken = [];
            const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
            for (let node = texts.nextNode(); node; node = texts.nextNode()) {
                if (!node.parentElement.closest("#summary td, #steps td, #steps th, #episode-list td")) continue;
                for (const word of node.data.matchAll(/\\S{1,40}(?!\\S)/g)) {
                    const range = document.createRange();
                    range.setStart(node, word.index);
                    range.setEnd(node, word.index + word[0].length);
                    const lines = new Set([...range.getClientRects()].map(box => Math.round(box.top)));
                    if (lines.size > 1 && !/^x+$/.test(word[0])) broken.push(word[0]);
                }
            }
            return broken;
            """
        )
        assert broken == []
        inner, needed = browser.run("return [window.innerWidth, document.documentElement.scrollWidth]")
        assert (inner, needed) == (360, 360)
    finally:
        browser._ask("POST", emulation, {"cmd": "Emulation.clearDeviceMetricsOverride", "params": {}})


def test_the_player_shows_the_workflow_of_each_step(browser, make_episode, tmp_path):
    def told(*instructions: str):
        places = [f"node_{number}" for number, _ in enumerate(instructions, 1)]
        graph = [
            {"kind": "operator", "id": place, "name": "Custom", "role": "solver", "instruction": instruction}
            for place, instruction in zip(places, instructions, strict=True)
        ]
        call = {"status": "ok", "passed": None, "influential": True, "notes": HOSTILE}
        return {"workflow": {"graph": graph, "run": [{"place": place, **call} for place in places]}}

    episode = make_episode(["right", "right", "down"])
    kept = [told(HOSTILE), told(HOSTILE, "Mind the units."), told()]
    for turn, info in zip(episode.turns, kept, strict=True):
        turn.info = info
    path = write_report(tmp_path / "workflows.html", title="Browser test", episodes=[episode])
    browser.complaints()
    browser.open(path)
    count = "return document.querySelectorAll('#workflow .name').length"
    assert browser.text("#workflow div") == "There is none yet."
    counts, heights = [], []
    for _ in kept:
        browser.click("[data-go=next]")
        counts.append(browser.run(count))
        heights.append(browser.run("return document.getElementById('workflow').clientHeight"))
    assert counts == [1, 2, 0]
    assert len(set(heights)) == 1  # nothing below it jumps
    browser.click("[data-go=back]")
    title = browser.run("return document.querySelector('#workflow .box title').textContent")
    assert HOSTILE in title
    assert browser.run("return document.title") == "Browser test"
    assert browser.complaints() == []
    # Whatever font there is, no text sticks out of its box.
    script = """
        return [...document.querySelectorAll('#workflow g.box:not(.legend)')].every((box) => {
          const around = box.querySelector('rect').getBBox();
          return [...box.querySelectorAll('text')].every((text) => {
            const own = text.getBBox();
            return own.width > 0 && own.x >= around.x && own.x + own.width <= around.x + around.width;
          });
        })"""
    assert browser.run(script) is True
    inner, needed = browser.run("return [window.innerWidth, document.documentElement.scrollWidth]")
    assert needed <= inner


@pytest.mark.parametrize("direction", ["right", "down"])
def test_the_names_of_all_operators_fit_into_their_boxes(browser, tmp_path, direction):
    graph = [
        {"kind": "operator", "id": f"node_{number}", "name": name, "role": spec.role.value, "instruction": told}
        for number, (name, spec) in enumerate(OPERATORS.items(), 1)
        for told in (spec.instruction, "WORDS IN CAPITALS \N{EM DASH} \u4e2d\u6587\u8f93\u5165\u6cd5\u548c\u5b57\u4f53")
    ]
    path = tmp_path / "page.html"
    path.write_text(workflow_html(graph, direction=direction), "utf-8")
    browser.open(path)
    script = """
        return [...document.querySelectorAll('g.box:not(.legend)')].filter((box) => {
          const around = box.querySelector('rect').getBBox();
          return [...box.querySelectorAll('text')].some((text) => {
            const own = text.getBBox();
            return own.x < around.x + 4 || own.x + own.width > around.x + around.width - 4;
          });
        }).map((box) => box.textContent)"""
    assert browser.run(script) == []

"""The site of the boards in a real Chromium: with and without JavaScript, on a phone, by keyboard, and for axe."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from entries import TRACK, add, board, packed, played, track

from agentgym_flow.leaderboard.publish import publish
from agentgym_flow.leaderboard.site import render
from agentgym_flow.leaderboard.track import make_track
from agentgym_flow.policies import RandomPolicy, make_policy

pytestmark = pytest.mark.heavy

HOSTILE = "<img src=x onerror=alert(1)>"
LARGE = "large"
TYPES = "types"
SCORES = "scores"
AWAITED = """
[official]
title = "A track on official data with a title that is longer than a phone is wide"
env_id = "agentgym_flow/Sokoban-v0"
data = "boxoban"
"""
ENTRY = f"{TRACK}/2026-11-23-random"
PAGES = (
    "index.html",
    f"{TRACK}/index.html",
    f"{ENTRY}/index.html",
    f"{ENTRY}/episodes.html",
    f"{TYPES}/2026-11-23-random/index.html",
    f"{TYPES}/2026-11-23-random/episodes.html",
    f"{SCORES}/2026-11-23-scripted/index.html",
    f"{SCORES}/2026-11-23-scripted/episodes.html",
    f"{LARGE}/2026-11-23-scripted/index.html",
    f"{LARGE}/2026-11-23-scripted/episodes.html",
    "empty/index.html",
)
WINDOWS = {"wide": {"width": 1200, "height": 900}, "phone": {"width": 390, "height": 844}}


@pytest.fixture(scope="session")
def site(made_once: Callable[..., Path]) -> Path:
    """A site with an empty board, one whose tasks have types, one of workflows, and an entry of 1,000 episodes."""
    return made_once("leaderboard-site", _make) / "site"


def _make(root: Path) -> None:
    board(root)
    kwargs = {"size": 6, "boxes": 1, "max_steps": 20}
    large = make_track("agentgym_flow/Sokoban-v0", LARGE, "Large", tasks=500, kwargs=kwargs, attempts=2)
    types = make_track("agentgym_flow/ALFWorld-v0", TYPES, "Rooms", tasks=20)
    scores = make_track("agentgym_flow/Canvas-v0", SCORES, "Workflows", tasks=4, metric="score")
    empty = make_track("agentgym_flow/Sokoban-v0", "empty", "Nobody", tasks=2, kwargs=kwargs)
    (root / "tracks.toml").write_text(AWAITED, "utf-8")
    for one in (large, types, scores, empty):
        one.write(root / "tracks" / f"{one.name}.json")
    add(root, "random", "2026-11-24", "Tried again", packed(played(RandomPolicy(), track())))
    add(root, "random", title="Random actions", log=packed(played(RandomPolicy(), track())))
    add(root, "mine", title=HOSTILE)
    add(root, "reference-expert", title="The expert")
    add(root, "random", title="Random actions", log=packed(played(RandomPolicy(), types)), to=TYPES)
    for one in (large, scores):
        script = make_policy("scripted", one.env_id)
        add(root, "scripted", title="A script", log=packed(played(script, one)), to=one.name)
    assert all(verdict.accepted for verdict in publish(root, jobs=0))
    render(root, jobs=0)


@pytest.fixture
def see(browse: Callable[..., Any], site: Path) -> Callable[..., Any]:
    """Return what opens a page of the site: `see(name, **settings of the browser)`. Nothing else may be loaded."""

    def open_page(name: str, **settings: Any) -> Any:
        return browse(f"{site.as_uri()}/{name}", f"{site.as_uri()}/", **settings)

    return open_page


@pytest.mark.parametrize(
    ("window", "scheme"),
    [
        ("wide", "light"),
        ("phone", "dark"),
        pytest.param("wide", "dark", marks=pytest.mark.nightly),
        pytest.param("phone", "light", marks=pytest.mark.nightly),
    ],
)
@pytest.mark.parametrize("name", PAGES)
def test_no_page_has_a_barrier_or_is_wider_than_the_window(see, name: str, window: str, scheme: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    page = see(name, viewport=WINDOWS[window], color_scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach((details) => { details.open = true; })")
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", paper)[:3])) > 384) == (scheme == "light")


@pytest.mark.parametrize("name", [name for name in PAGES if "episodes" not in name and name != "empty/index.html"])
def test_without_scripts_the_tables_are_the_same(see, name: str) -> None:
    plain, full = (see(name, java_script_enabled=scripts).locator("tr") for scripts in (False, True))
    assert plain.all_text_contents() == full.all_text_contents() != []


def test_without_scripts_every_episode_has_its_actions(see) -> None:
    page = see(f"{ENTRY}/episodes.html#episode-2-step-3", java_script_enabled=False)
    assert page.locator("#player").is_hidden()
    assert page.locator("#plain details").count() == page.locator("#episode-list tbody tr").count() == 12
    assert page.locator("#plain details:nth-of-type(2) li").nth(2).is_visible(), "an address opens its episode"
    assert page.locator("#plain details:nth-of-type(3) li").nth(2).is_hidden()


def test_hostile_titles_are_text(see) -> None:
    page = see(f"{TRACK}/index.html")
    assert page.get_by_role("link", name=HOSTILE, exact=True).is_visible()
    assert page.locator("img").count() == 0


def test_only_the_page_s_own_script_runs(see) -> None:
    page = see(f"{TRACK}/index.html")
    page.evaluate("document.body.append(Object.assign(document.createElement('script'), {textContent: 'alert(1)'}))")
    [refused] = page.seen.errors
    assert "Content Security Policy" in refused
    page.seen.errors.clear()


def column(page: Any, number: int, table: str = "table.sortable") -> list[str]:
    return page.locator(table).last.locator(f"tbody tr > :nth-child({number})").all_text_contents()


def test_columns_are_sorted_by_click_and_by_key(see) -> None:
    page = see(f"{LARGE}/2026-11-23-scripted/index.html")
    heads = page.locator("table.sortable").last.locator("th[aria-sort]")
    orders = lambda: [head.get_attribute("aria-sort") for head in heads.all()]  # noqa: E731
    before = column(page, 1)
    assert len(before) == 1_000
    assert orders() == ["none", "ascending", "none"]
    assert column(page, 2) == sorted(column(page, 2), key=lambda cell: "yes" in cell)
    steps = page.get_by_role("button", name="steps")
    steps.click()
    assert orders() == ["none", "none", "descending"]
    assert column(page, 3) == sorted(column(page, 3), key=int, reverse=True)
    page.keyboard.press("Enter")
    assert orders() == ["none", "none", "ascending"]
    assert column(page, 3) == sorted(column(page, 3), key=int)
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Space")
    assert orders() == ["ascending", "none", "none"]
    assert column(page, 1) == sorted(before, key=lambda name: [int(digits) for digits in re.findall(r"\d+", name)])
    assert page.evaluate("document.activeElement.textContent") == "episode", "the focus stays"


def test_letters_are_sorted_from_the_first(see) -> None:
    page = see(f"{TRACK}/index.html")
    page.get_by_role("button", name="entry").first.click()
    names = page.locator("table.sortable").first.locator("tbody th > a").all_text_contents()
    assert names == [HOSTILE, "Random actions"]
    assert page.locator("th[aria-sort=ascending]").count() == 1


def test_the_filter_hides_rows_and_empty_sections(see) -> None:
    page = see(f"{TRACK}/index.html")
    shown = lambda: page.locator("tr[data-prompts]:visible").count()  # noqa: E731
    assert shown() == 3
    page.get_by_role("searchbox", name="Filter").fill("random  ACTIONS")
    assert shown() == 1
    assert page.locator(".filter output").text_content() == "1 of 3 entries"
    assert page.get_by_role("heading", name="For reference").is_hidden()
    page.keyboard.press("Enter")
    assert page.url.endswith("index.html"), "nothing is sent"
    page.get_by_role("searchbox", name="Filter").fill("nothing like this")
    assert shown() == 0
    page.get_by_role("searchbox", name="Filter").fill("")
    page.get_by_role("combobox", name="Prompts").select_option("none")
    assert shown() == 3
    assert see(f"{TRACK}/index.html", java_script_enabled=False).locator(".filter").is_hidden()


def test_a_wide_table_scrolls_visibly_on_a_phone(see) -> None:
    page = see(f"{TRACK}/index.html", viewport=WINDOWS["phone"])
    table = page.get_by_role("region", name="Table of entries, replayed")
    assert table.evaluate("table => table.scrollWidth > table.clientWidth")
    assert "gradient" in table.evaluate("table => getComputedStyle(table).backgroundImage")
    assert table.get_attribute("tabindex") == "0", "the arrow keys scroll it"


def test_an_address_names_a_step_of_an_episode(see) -> None:
    page = see(f"{ENTRY}/episodes.html#episode-3-step-5")
    title = page.locator("#player-title")
    counter = page.locator("#counter")
    third = page.locator("#episode-list tbody th").nth(2).text_content()
    assert title.text_content() == third
    assert counter.text_content().startswith("step 5 of ")
    assert title.evaluate("title => title.getBoundingClientRect().top") < 900, "it is scrolled there"
    assert page.locator("#episode-list tr[aria-current=true]").text_content().strip().startswith(third)
    page.keyboard.press("Tab")
    page.get_by_role("button", name="One step on").click()
    here = page.get_by_role("link", name="Link to this step")
    assert here.get_attribute("href") == "#episode-3-step-6"
    here.click()
    assert page.url.endswith("#episode-3-step-6")
    page.get_by_role("button", name="First step").click()
    page.go_back()
    assert counter.text_content().startswith("step 5 of "), "the browser's own buttons go back and forth"
    page.evaluate("location.hash = '#episode-1'")
    page.wait_for_function("document.getElementById('counter').textContent.startsWith('step 0 ')")
    assert title.text_content() == page.locator("#episode-list tbody th").first.text_content()


@pytest.mark.parametrize("place", ["episode-0", "episode-99", "episode-1-step-", "episode-x", "%00", "episodes"])
def test_an_address_of_nothing_shows_the_first_episode(see, place: str) -> None:
    page = see(f"{ENTRY}/episodes.html#{place}")
    assert page.locator("#counter").text_content().startswith("step 0 of ")
    assert page.locator("#episode-list tr[aria-current=true]").get_attribute("data-episode") == "0"


def test_a_step_behind_the_end_is_the_last_one(see) -> None:
    page = see(f"{ENTRY}/episodes.html#episode-1-step-999999999999999999999")
    assert page.locator("#counter").text_content() == "step 20 of 20"


def test_an_entry_leads_to_its_failures_in_the_player_and_back(see) -> None:
    page = see(f"{ENTRY}/index.html")
    failure = page.locator("table.sortable tbody tr").first
    name = failure.locator("a").text_content()
    assert "no" in failure.text_content()
    failure.locator("a").click()
    page.wait_for_url("**/episodes.html#episode-1")
    task, attempt = re.findall(r"\d+", name)
    assert re.findall(r"\d+", page.locator("#player-title").text_content())[::2] == [task, attempt]
    page.get_by_role("link", name="Random actions").click()
    page.wait_for_url("**/index.html")


def test_the_curve_is_told_in_words_and_in_a_table(see) -> None:
    page = see(f"{ENTRY}/index.html", java_script_enabled=False)
    picture = page.locator("svg.plot")
    assert picture.get_attribute("role") == "img"
    assert re.search(
        r"Chart of success \(%\) over steps: all tasks ends at [0-9.]+", picture.get_attribute("aria-label")
    )
    page.get_by_text("The values of this chart").click()
    assert page.locator(".chart tbody tr").count() == 21
    assert page.locator(".chart tbody tr").last.is_visible()

"""The shop in a real Chromium: by keyboard only, without JavaScript, in the dark, on a phone."""

from __future__ import annotations

import re
from typing import Any

import pytest
from browsing import at_step, begin, focused, session_of, tab_to

from agentgym_flow.core import Stream
from agentgym_flow.envs.webshop.env import WebShopEnv
from agentgym_flow.envs.webshop.site.sessions import EPISODE
from agentgym_flow.replay import verify_log

pytestmark = pytest.mark.heavy

CLICKABLES = """() => {
  const forms = [...document.querySelectorAll("main > form:not(.again):not(.query), main > .options > form")];
  const all = (selector) => forms.flatMap((form) => [...form.querySelectorAll(selector)]);
  const names = (selector) => all(selector).map((element) => (element.value || element.textContent).toLowerCase());
  return [...new Set([".btn", ".product-link", "input[type=radio]"].flatMap(names))];
}"""


# ---------------------------------------------------------------- people
def test_a_whole_visit_works_by_keyboard_only(serve, visit) -> None:
    server = serve(split="valid", task=12)
    page = visit(server)
    page.keyboard.press("Enter")  # the button that starts has the focus
    at_step(page, 0)
    session = session_of(server, page)
    steps = 0
    while (action := session.env.expert_action()) is not None:
        steps += 1
        name = action[action.index("[") + 1 : -1]
        if action.startswith("search["):
            page.keyboard.type(name)  # the search bar has the focus
            page.keyboard.press("Enter")
        elif session.env.game.page == "search_results":
            place = session.env.game.clickables().index(name) - len(session.env.game.buttons())
            page.keyboard.press("n" if name == "next >" else "1234567890"[place])
        elif name in session.env.game.buttons():
            tab_to(page, lambda: focused(page) == name)  # noqa: B023 (called at once)
            page.keyboard.press("Enter")
        else:
            group = page.locator("form.option").filter(has=page.locator(f'input[value="{name}"]')).last
            first = group.locator("input[type=radio]").first.get_attribute("value")
            tab_to(page, lambda: focused(page) == first)  # noqa: B023
            page.keyboard.press("Space")
            while focused(page) != name:
                page.keyboard.press("ArrowDown")
            assert len(session.episode.turns) == steps - 1  # moving over the options chooses none
            page.keyboard.press("Enter")
        at_step(page, steps)
        if name in session.env.game.options.values():
            assert focused(page) == name  # where the person was
        if session.over:
            break
    assert server.shop.records()[0].score == 1.0
    assert page.locator(".score").inner_text() == "1.0"
    tab_to(page, lambda: focused(page) == "Shop again")
    page.keyboard.press("Enter")
    at_step(page, 0)
    page.wait_for_function("document.activeElement.id === 'search_input'")  # on a busy machine a little later
    page.keyboard.type("/")  # in the search bar it is a letter
    assert page.input_value("#search_input") == "/"
    page.keyboard.type(" steel bottle")
    page.keyboard.press("Enter")
    at_step(page, 1)
    page.keyboard.press("Control+1")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search_input"
    assert focused(page) == "/ steel bottle"
    page.keyboard.press("End")
    page.keyboard.type(" 1 large")  # a digit opens no result here
    page.keyboard.press("Enter")
    at_step(page, 2)
    assert session_of(server, page).episode.turns[-1].action == "search[/ steel bottle 1 large]"
    assert page.input_value("#search_input") == "/ steel bottle 1 large"
    prices = page.locator(".price").all_inner_texts()
    assert len(prices) == 10
    assert all(re.fullmatch(r"\$\d+\.\d\d( to \$\d+\.\d\d)?", price) for price in prices)


@pytest.mark.parametrize("javascript", [True, False])
def test_browser_and_environment_agree_along_random_walks(serve, visit, javascript) -> None:
    server = serve(max_steps=30)
    page = visit(server, java_script_enabled=javascript)
    for walk in range(3):
        page.goto(server.address)
        begin(page, 20 + walk)
        env = WebShopEnv(split="valid", max_steps=30)
        env.reset(seed=0, options={"task": 20 + walk})
        rng, steps, over, reward = Stream("test", "browser", walk, javascript), 0, False, 0.0
        while not over:
            if javascript:
                assert page.evaluate(CLICKABLES) == env.game.clickables()
            clicks = env.admissible_actions()
            if env.game.page == "index":
                action = f"search[{rng.choice(['steel bottle', 'power bank', 'shirt'])}]"
            elif steps > 10 and "click[buy now]" in clicks:
                action = "click[buy now]"
            else:
                action = rng.choice([click for click in clicks if click != "click[buy now]"])
            name = action[action.index("[") + 1 : -1]
            if action.startswith("search["):
                page.fill("#search_input", name)
                page.click("form.search button")
            elif page.locator(f'button[value="{name}"]').count():
                page.locator(f'button[value="{name}"]').click()
            else:
                radio = page.locator(f'form.option input[value="{name}"]').last
                repeated = radio.is_checked()
                radio.click()
                if not javascript or repeated:  # nothing changed, so no script would send it
                    radio.locator("xpath=ancestor::form").locator(".choose").click()
            _, reward, terminated, truncated, _ = env.step(action)
            over, steps = terminated or truncated, steps + 1
            at_step(page, steps)
        record = server.shop.records()[0]
        assert record.score == (reward if env.last_score else None)
        if env.last_score:
            assert page.locator(".score").inner_text() == str(reward)
    logs = sorted(server.shop.out.glob(f"*{EPISODE}"))
    assert len(logs) == 3
    assert all(verify_log(log).ok for log in logs)


def test_going_back_and_pressing_twice_do_no_harm(serve, visit) -> None:
    server = serve()
    page = visit(server)
    begin(page, 3)
    page.fill("#search_input", "steel bottle")
    page.dblclick("form.search button")
    at_step(page, 1)
    page.dblclick(".product-link >> nth=0")
    at_step(page, 2)
    assert len(session_of(server, page).episode.turns) == 2
    bought = page.locator("h1").inner_text()
    page.go_back()
    assert page.locator("h1").inner_text() == bought
    assert "That page was from before." in page.locator(".note").inner_text()
    assert len(session_of(server, page).episode.turns) == 2
    page.click("text=Features")
    at_step(page, 3)
    page.reload()
    assert page.locator(".note").count() == 0
    assert len(session_of(server, page).episode.turns) == 3


def test_two_tabs_of_one_visit_do_not_step_on_each_other(serve, visit) -> None:
    server = serve()
    page = visit(server)
    begin(page, 3)
    other = page.context.new_page()
    other.goto(page.url)
    page.fill("#search_input", "steel bottle")
    page.click("form.search button")
    at_step(page, 1)
    other.fill("#search_input", "shirt")
    other.click("form.search button")
    other.wait_for_selector(".note")
    assert "Page 1" in other.locator("h1").inner_text()
    assert session_of(server, page).env.game.query == "steel bottle"


# ---------------------------------------------------------------- looks
def contrast(page: Any, selector: str) -> float:
    """Return the contrast of an element's text with what is behind it, as WCAG 2 defines it."""
    return page.evaluate(
        """selector => {
          const light = (color) => {
            const [r, g, b] = color.match(/[\\d.]+/g).slice(0, 3).map(Number).map(c => c / 255)
              .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
          };
          const element = document.querySelector(selector);
          let back = element;
          const clear = (one) => /rgba\\(.*, 0\\)|transparent/.test(getComputedStyle(one).backgroundColor);
          while (clear(back)) back = back.parentElement;
          const behind = light(getComputedStyle(back).backgroundColor);
          const ink = light(getComputedStyle(element).color);
          return (Math.max(ink, behind) + 0.05) / (Math.min(ink, behind) + 0.05);
        }""",
        selector,
    )


def luminance(page: Any) -> int:
    return page.evaluate("Number(getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0])")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_schemes_are_readable(serve, visit, scheme) -> None:
    server = serve()
    page = visit(server, color_scheme=scheme)
    assert (luminance(page) > 128) == (scheme == "light")
    texts = ["h1", ".muted", ".primary", "footer p"]
    for selector in texts:
        assert contrast(page, selector) >= 4.5, (selector, scheme)
    begin(page, 3)
    for selector in (".instruction p", ".instruction h2", ".btn", ".place"):
        assert contrast(page, selector) >= 4.5, (selector, scheme)
    page.fill("#search_input", "steel bottle")
    page.keyboard.press("Enter")
    at_step(page, 1)
    for selector in (".product-link", ".price", ".picture", "kbd"):
        assert contrast(page, selector) >= 4.5, (selector, scheme)
    page.click(".product-link >> nth=0")
    at_step(page, 2)
    assert contrast(page, 'button[value="buy now"]') >= 4.5
    page.click("text=Buy Now")
    at_step(page, 3)
    for selector in ("td.no, td.yes", ".why", ".pair p", ".score"):
        assert contrast(page, selector) >= 4.5, (selector, scheme)


@pytest.mark.parametrize("width", [360, 1200])
def test_nothing_sticks_out_and_the_instruction_stays_in_sight(serve, visit, width, hostile_data) -> None:
    for settings, words in (({}, "steel bottle"), ({"data": str(hostile_data)}, "lamp bright")):
        server = serve(split="train", **settings)
        page = visit(server, viewport={"width": width, "height": 700})
        inside = "document.documentElement.scrollWidth <= window.innerWidth"
        assert page.evaluate(inside)
        page.click("text=Start shopping")
        at_step(page, 0)
        assert page.evaluate(inside)
        page.fill("#search_input", words)
        page.keyboard.press("Enter")
        at_step(page, 1)
        assert page.evaluate(inside)
        page.evaluate("scrollTo({top: 3000, behavior: 'instant'})")
        assert page.evaluate("scrollY > 0")
        box = page.locator(".instruction").bounding_box()
        assert 0 <= box["y"] < 40
        for number in range(page.locator(".product-link").count()):
            link = page.locator(".product-link").nth(number)
            link.focus()
            page.keyboard.press("Enter")
            page.wait_for_selector("main.item_page")
            page.wait_for_load_state()
            assert page.evaluate(inside)
            assert page.locator('button[value="buy now"]').bounding_box()["height"] >= 40
            page.locator('button[value="< prev"]').click()
            page.wait_for_selector("main.search_results")
        page.goto(f"{server.address}/admin")
        assert page.evaluate(inside)


def test_the_focus_can_be_seen_and_follows_the_page(serve, visit) -> None:
    page = visit(serve())
    begin(page, 3)
    page.fill("#search_input", "steel bottle")
    page.keyboard.press("Enter")
    at_step(page, 1)
    order = []
    for _ in range(8):
        page.keyboard.press("Tab")
        order.append(focused(page))
        width = page.evaluate("getComputedStyle(document.activeElement).outlineWidth")
        assert width == "3px", order
    assert order[:6] == ["Skip to the page", "WebShop", "steel bottle", "Search again", "back to search", "next >"]

"""The shop in a real Chromium: by keyboard only, without JavaScript, in the dark, on a phone, and under attack."""

from __future__ import annotations

import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn

from agentgym_flow.envs.webshop.env import WebShopEnv
from agentgym_flow.replay import verify_log
from agentgym_flow.seeding import Stream
from agentgym_flow.shop.app import create_app
from agentgym_flow.shop.sessions import EPISODE, Shop, State

pytestmark = pytest.mark.heavy

CLICKABLES = """() => {
  const forms = [...document.querySelectorAll("main > form:not(.again), main > .options > form")];
  const all = (selector) => forms.flatMap((form) => [...form.querySelectorAll(selector)]);
  const names = (selector) => all(selector).map((element) => (element.value || element.textContent).toLowerCase());
  return [...new Set([".btn", ".product-link", "input[type=radio]"].flatMap(names))];
}"""


class Server:
    """A shop that is served from a thread of the test, on a free port of the loopback interface."""

    def __init__(self, shop: Shop, token: str | None = None) -> None:
        self.shop = shop
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._server = uvicorn.Server(uvicorn.Config(create_app(shop, token), log_level="error", ws="none"))
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True)
        self._thread.start()
        for _ in range(500):
            if self._server.started:
                return
            time.sleep(0.01)
        raise AssertionError("the server did not start")

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(20)
        self._socket.close()
        assert not self._thread.is_alive()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Return what opens a shop: `serve(token=None, **settings)`; it is closed with the test."""
    servers: list[Server] = []

    def start(token: str | None = None, **settings: Any) -> Server:
        servers.append(Server(Shop(tmp_path / "logs", **settings), token))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("needs chromium (Debian: apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        )
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium) -> Iterator[Callable[..., Any]]:
    """Return what opens a page in a browser of its own: `visit(server, **settings of the browser)`.

    `page.seen` has the requests to elsewhere, the errors and the complaints; there must be none in the end.
    """
    opened: list[Any] = []

    def open_page(server: Server, **settings: Any) -> Any:
        context = chromium.new_context(**settings)
        context.set_default_timeout(15_000)
        page = context.new_page()
        page.seen = SimpleNamespace(elsewhere=[], errors=[], dialogs=[])
        context.on("request", lambda request: _note(page, server, request.url))
        page.on("pageerror", lambda error: page.seen.errors.append(str(error)))
        page.on("console", lambda line: page.seen.errors.append(line.text) if line.type == "error" else None)
        page.on("dialog", lambda dialog: (page.seen.dialogs.append(dialog.message), dialog.dismiss()))
        opened.append((context, page))
        page.goto(server.address)
        return page

    yield open_page
    for context, page in opened:
        seen = page.seen
        context.close()
        assert (seen.elsewhere, seen.errors, seen.dialogs) == ([], [], [])


def _note(page: Any, server: Server, url: str) -> None:
    if not url.startswith(f"{server.address}/"):
        page.seen.elsewhere.append(url)


def session_of(server: Server, page: Any) -> Any:
    return server.shop.session(page.url.split("/")[4])


def at_step(page: Any, number: int) -> None:
    page.wait_for_url(f"**/visits/*/{number}")


def begin(page: Any, task: int, split: str = "valid") -> None:
    page.check(f"input[value={split}]")
    page.fill("#task", str(task))
    page.click("text=Start shopping")
    at_step(page, 0)


def focused(page: Any) -> str:
    return page.evaluate("document.activeElement.value || document.activeElement.textContent || ''").strip()


def tab_to(page: Any, what: Callable[[], bool]) -> None:
    for _ in range(60):
        if what():
            return
        page.keyboard.press("Tab")
    raise AssertionError("the Tab key does not get there")


# ---------------------------------------------------------------- people
def test_a_whole_visit_by_keyboard_only(serve, visit) -> None:
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
        elif session.env.visit.page == "search_results":
            place = session.env.visit.clickables().index(name) - len(session.env.visit.buttons())
            page.keyboard.press("n" if name == "next >" else "1234567890"[place])
        elif name in session.env.visit.buttons():
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
        if name in session.env.visit.options.values():
            assert focused(page) == name  # where the person was
        if session.over:
            break
    assert server.shop.records()[0].score == 1.0
    assert page.locator(".score").inner_text() == "1.0"
    tab_to(page, lambda: focused(page) == "Shop again")
    page.keyboard.press("Enter")
    at_step(page, 0)
    page.keyboard.type("/")  # in the search bar it is a letter
    assert page.input_value("#search_input") == "/"
    page.keyboard.type(" steel bottle")
    page.keyboard.press("Enter")
    at_step(page, 1)
    page.keyboard.press("Control+1")
    page.keyboard.press("/")
    at_step(page, 2)
    assert focused(page) == ""
    assert page.evaluate("document.activeElement.id") == "search_input"


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
                assert page.evaluate(CLICKABLES) == env.visit.clickables()
            clicks = env.admissible_actions()
            if env.visit.page == "index":
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
    assert session_of(server, page).env.visit.query == "steel bottle"


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
        page.mouse.wheel(0, 3000)
        page.wait_for_function("scrollY > 0")
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
    for _ in range(6):
        page.keyboard.press("Tab")
        order.append(focused(page))
        width = page.evaluate("getComputedStyle(document.activeElement).outlineWidth")
        assert width == "3px", order
    assert order[:4] == ["Skip to the page", "WebShop", "back to search", "next >"]


# ---------------------------------------------------------------- attacks
def test_hostile_products_run_nothing(serve, visit, hostile_data) -> None:
    server = serve(data=str(hostile_data), split="train", show_attributes=True)
    page = visit(server)
    page.click("text=Start shopping")
    at_step(page, 0)
    session = session_of(server, page)
    page.fill("#search_input", "lamp bright")
    page.keyboard.press("Enter")
    at_step(page, 1)
    steps = 1
    for asin in [name for name in session.env.visit.clickables() if name.startswith("b0")]:
        for selector in (f'button[value="{asin}"]', *(f'button[value="{n}"]' for n in ("attributes", "< prev"))):
            page.locator(selector).click()
            steps += 1
            at_step(page, steps)
            assert "owned" not in page.title()
            assert page.locator("script").count() == 1
            assert page.locator("img, iframe, object, embed, style").count() == 0
        page.locator("form.option label").first.click()  # a name that attacks is sent back as it came
        steps += 1
        at_step(page, steps)
        assert [(*session.env.visit.options.items(),)] == [
            ((name, values[0]),) for name, values in session.env.visit.product.options.items()
        ]
        page.locator('button[value="< prev"]').click()
        steps += 1
        at_step(page, steps)
    page.locator(".product-link").first.click()
    page.wait_for_selector("main.item_page")
    page.click("text=Buy Now")
    page.wait_for_selector(".card")
    for address in ("/admin", f"/admin/visits/{session.record.id}", f"/admin/visits/{session.record.id}/page/2"):
        page.goto(server.address + address)
        assert "owned" not in page.title()
    assert server.shop.records()[0].state is State.BOUGHT


def test_the_policy_stops_scripts_styles_and_requests(serve, visit) -> None:
    page = visit(serve())
    begin(page, 1)
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
        page.evaluate(
            """async (picture) => {
              const add = (tag, fields) => document.body.append(Object.assign(document.createElement(tag), fields));
              add("script", {textContent: "document.title = 'owned'"});
              add("style", {textContent: "body{display:none}"});
              add("img", {src: picture});
              await fetch("/admin").then(() => { document.title = "owned"; }, () => {});
            }""",
            f"http://127.0.0.1:{elsewhere.getsockname()[1]}/a.png",
        )
        elsewhere.settimeout(0.5)
        with pytest.raises(TimeoutError):
            elsewhere.accept()
    assert "owned" not in page.title()
    assert page.is_visible("body")
    for directive in ("script-src", "style-src", "img-src", "default-src"):
        assert any("directive" in line and directive in line for line in page.seen.errors), directive
    page.seen.errors, page.seen.elsewhere = [], []  # what was tried is told, though it was refused


def test_another_page_in_the_browser_cannot_act(serve, chromium, tmp_path) -> None:
    server = serve()
    context = chromium.new_context()
    page = context.new_page()
    page.goto(server.address)
    begin(page, 1)
    evil = tmp_path / "evil.html"
    evil.write_text(
        f'<form method="post" action="{page.url}"><input name="search" value="shirt"></form>'
        f'<form method="post" action="{server.address}/visits"><input name="split" value="train"></form>'
        f'<iframe src="{page.url}"></iframe>'
    )
    for number in range(2):
        attack = context.new_page()
        attack.goto(evil.as_uri())
        with attack.expect_navigation() as answer:
            attack.evaluate(f"document.forms[{number}].submit()")
        assert answer.value.status == 403
    assert [record.steps for record in server.shop.records()] == [0]
    context.close()


def test_the_list_of_visits_asks_for_the_token(serve, visit) -> None:
    server = serve(token="swordfish")
    page = visit(server)
    begin(page, 1)
    page.goto(f"{server.address}/admin")
    page.keyboard.type("guess")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=That is not the token.")
    page.keyboard.type("swordfish")
    page.keyboard.press("Enter")
    page.wait_for_selector("table.visits")
    page.click("table.visits a")
    page.click("text=the start")
    page.wait_for_selector("text=Page 0 of a visit")
    page.seen.errors = [
        line for line in page.seen.errors if "status of 401" not in line and "status of 403" not in line
    ]

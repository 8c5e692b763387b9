"""The shop under attack in a real Chromium: hostile products, injected elements, other pages, guessed tokens."""

from __future__ import annotations

import socket

import pytest
from browsing import at_step, begin, session_of

from agentgym_flow.envs.webshop.site.sessions import SessionState

pytestmark = pytest.mark.heavy


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
    for asin in [name for name in session.env.game.clickables() if name.startswith("b0")]:
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
        assert [(*session.env.game.options.items(),)] == [
            ((name, values[0]),) for name, values in session.env.game.product.options.items()
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
    assert server.shop.records()[0].state is SessionState.BOUGHT


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
    page.wait_for_selector("input:focus")
    page.keyboard.type("guess")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=That is not the token.")
    page.wait_for_selector("input:focus")  # the text is there before the field has the focus
    page.keyboard.type("swordfish")
    page.keyboard.press("Enter")
    page.wait_for_selector("table.visits")
    page.click("table.visits a")
    page.click("text=the start")
    page.wait_for_selector("text=Page 0 of a visit")
    page.seen.errors = [
        line for line in page.seen.errors if "status of 401" not in line and "status of 403" not in line
    ]

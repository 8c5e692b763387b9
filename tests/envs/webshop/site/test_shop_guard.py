"""Strangers are refused: forged forms, other names of this machine, large bodies, and whoever lacks the token."""

from __future__ import annotations

import re

import pytest
from shopper import PageReader
from starlette.testclient import TestClient

from agentgym_flow.envs.webshop.site.app import STATIC, create_app
from agentgym_flow.envs.webshop.site.guard import FORM_KEY, HEADERS, MAX_BODY, MAX_FIELDS


def test_forms_are_taken_from_our_pages_in_the_same_browser_only(make_shop, enter) -> None:
    shop = make_shop()
    shopper, other = enter(shop), enter(shop)
    shopper.start("train", 1)
    form = shopper.page.forms[0]
    for key in ({}, {FORM_KEY: "0" * 64}, {FORM_KEY: "ü"}, other.page.forms[0].hidden):
        shopper.post(form.action, **key, search="shirt")
        assert shopper.status == 403
    shopper.post("/visits", split="train")
    assert shopper.status == 403
    for headers in (
        {"Origin": "http://evil.invalid"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9"},
        {"Origin": "http://["},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ):
        answer = shopper.client.post(form.action, data={**form.hidden, "search": "shirt"}, headers=headers)
        assert answer.status_code == 403, headers
    assert shop.records()[0].steps == 0
    good = {"Origin": "http://127.0.0.1:8000", "Sec-Fetch-Site": "same-origin"}
    assert shopper.client.post(form.action, data={**form.hidden, "search": "shirt"}, headers=good).status_code == 200
    assert shop.records()[0].steps == 1


@pytest.mark.parametrize("host", ["evil.invalid", "127.0.0.1.evil.invalid", "evil.invalid:8000", "0.0.0.0", "", "[::1"])
def test_other_names_for_this_machine_are_refused(make_shop, host) -> None:
    with TestClient(create_app(make_shop()), base_url="http://127.0.0.1:8000") as client:
        assert client.get("/", headers={"Host": host}).status_code == 421
        for own in ("127.0.0.1", "localhost:1234", "[::1]:8000", "LOCALHOST"):
            assert client.get("/", headers={"Host": own}).status_code == 200


def test_bodies_are_small_forms(make_shop, enter) -> None:
    shop = make_shop()
    shopper = enter(shop)
    shopper.start("train", 1)
    form = shopper.page.forms[0]
    shopper.post(form.action, **form.hidden, search="a" * MAX_BODY)
    assert shopper.status == 413
    shopper.post(form.action, **form.hidden, **{f"f{n}": "" for n in range(MAX_FIELDS)})
    assert shopper.status == 400
    client = shopper.client
    assert client.post(form.action, json={}).status_code == 415
    assert client.post(form.action, data=form.hidden, files={"file": b"x"}).status_code == 415
    urlencoded = {"Content-Type": "application/x-www-form-urlencoded"}
    assert client.post(form.action, content=b"search=\xff", headers=urlencoded).status_code == 400
    assert client.put(form.action, data=form.hidden).status_code == 405
    assert client.delete(form.action).status_code == 405
    assert shop.records()[0].steps == 0


def test_every_answer_has_the_headers_and_nothing_is_loaded_from_elsewhere(make_shop, enter) -> None:
    shop = make_shop()
    shopper = enter(shop)
    shopper.start("train", 1)
    visit = shopper.id
    shopper.search("shirt")
    shopper.click(shopper.page.clickables()[2])
    shopper.click("buy now")
    addresses = [
        "/",
        "/admin",
        "/nothing",
        f"/visits/{visit}/3",
        f"/admin/visits/{visit}",
        f"/admin/visits/{visit}/page/2",
    ]
    addresses += [f"/static/{name}" for name in STATIC] + [f"/admin/visits/{visit}/episode.jsonl"]
    for address in addresses:
        answer = shopper.client.get(address)
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS, address
        if answer.headers["content-type"].startswith("text/html"):
            page = PageReader(answer.text)
            assert all(re.fullmatch(r"/[\w/.-]*|#page", one) for one in page.addresses), page.addresses
            assert page.tags.count("script") == 1
            assert "style" not in page.attributes | set(page.tags)
            assert not [name for name in page.attributes if name.startswith("on")]
    assert shopper.client.get("http://evil.invalid/").headers["x-frame-options"] == "DENY"
    style = shopper.client.get("/static/shop.css").text
    assert "url(" not in style
    assert "@import" not in style


def test_the_cookie_is_for_this_site_and_not_for_scripts(make_shop) -> None:
    with TestClient(create_app(make_shop()), base_url="http://127.0.0.1:8000") as client:
        cookie = client.get("/").headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie


def test_the_token_guards_what_others_did(make_shop, enter) -> None:
    shop = make_shop()
    shopper = enter(shop, token="swordfish")
    shopper.start("train", 0)
    shopper.search("shirt")
    guarded = [
        "/admin",
        "/admin/episode.jsonl",
        *(f"/admin/visits/{shopper.id}{rest}" for rest in ("", "/page/0", "/pages.jsonl")),
    ]
    for address in guarded:
        assert shopper.client.get(address).status_code == 401, address
    shopper.get("/admin")
    (form,) = shopper.page.forms
    for wrong in ("", "swordfis", "swordfish ", "ü"):
        shopper.post("/admin", **form.hidden, token=wrong)
        assert shopper.status == 403
        assert "That is not the token." in shopper.text
    shopper.post("/admin", token="swordfish")
    assert shopper.status == 403  # without the key of a form of ours
    shopper.post("/admin", **form.hidden, token="swordfish")
    assert shopper.status == 200
    for address in guarded:
        assert shopper.client.get(address).status_code == 200, address
    assert "swordfish" not in str(shopper.client.cookies)
    open_shop = enter(shop)
    open_shop.post("/admin", **open_shop.page.forms[0].hidden, token="None")
    assert open_shop.status == 403

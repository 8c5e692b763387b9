"""The shop's server in one process: it is the environment, old pages change nothing, and strangers are refused."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
import weakref

import pytest
from hostile_products import EVIL
from shopper import PageReader, Shopper

from agentgym_flow.core import Stream
from agentgym_flow.envs.webshop.env import WebShopEnv
from agentgym_flow.envs.webshop.observation import text
from agentgym_flow.envs.webshop.site.app import create_app, with_cents
from agentgym_flow.envs.webshop.site.sessions import EPISODE, PAGES, SessionState
from agentgym_flow.errors import BadSetting, MissingExtra, UnknownSplit, UnknownTask
from agentgym_flow.replay import verify_log

PAST = "That page was from before."


def buy(shopper: Shopper, shop) -> None:
    """Do what the expert does until the visit is over."""
    session = shop.session(shopper.id)
    while not session.over:
        action = session.env.expert_action()
        assert action is not None
        if action.startswith("search[") and not any("search" in form.kind.split() for form in shopper.page.forms):
            shopper.click("back to search")
        shopper.act(action)


# ---------------------------------------------------------------- shopping
def test_the_start_page_tells_the_splits_and_proposes_what_was_asked_for(make_shop, enter) -> None:
    shopper = enter(make_shop(split="dev", task=7, max_steps=33))
    assert shopper.status == 200
    assert "There are 33 steps" in shopper.text
    for split in ("train", "valid", "test"):
        assert f"{WebShopEnv(split=split).num_tasks:,} tasks" in shopper.text
    (form,) = shopper.page.forms
    assert form.checked == ["valid"]
    assert 'value="7"' in shopper.source


def test_a_person_sees_the_query_and_changes_it_and_reads_prices_with_cents(make_shop, enter) -> None:
    shop = make_shop()
    shopper = enter(shop)
    shopper.start("valid", 3)
    shopper.search("Steel bottle <b>")
    (form,) = (form for form in shopper.page.forms if form.kind == "search query")
    assert form.inert is False
    assert 'id="search_input" name="search" value="steel bottle &lt;b&gt;"' in shopper.source
    shopper.search("shirt")
    session = shop.session(shopper.id)
    assert [turn.action for turn in session.episode.turns] == ["search[Steel bottle <b>]", "search[shirt]"]
    assert 'value="shirt"' in shopper.source
    for card in session.env.game.listed():
        assert all(f"${price:.2f}" in shopper.text for price in card.product.prices)
        assert card.product.price_tag in text(session.env.game)  # an agent reads the original's
    assert not any(re.search(r"\$\d+(\.\d)?(?!\d|\.\d)", told) for told in shopper.page.texts)
    shopper.get(f"/admin/visits/{shopper.id}/page/1")
    assert [form.inert for form in shopper.page.forms if form.kind == "search query"] == [True]


@pytest.mark.parametrize(
    ("tag", "read"),
    [("$23.99 to $49.0", "$23.99 to $49.00"), ("Price: $34.0", "Price: $34.00"), ("$1e+16", "$10000000000000000.00")],
)
def test_amounts_have_cents(tag: str, read: str) -> None:
    assert with_cents(tag) == read


@pytest.mark.parametrize("walk", range(6))
def test_pages_and_environment_agree_along_random_walks(make_shop, enter, walk) -> None:
    shop = make_shop(max_steps=40, show_attributes=walk % 2 == 1)
    shopper = enter(shop)
    shopper.start("valid", 40 + walk)
    env = WebShopEnv(split="valid", max_steps=40, show_attributes=walk % 2 == 1)
    env.reset(seed=0, options={"task": 40 + walk})
    rng = Stream("test", "shop", walk)
    reward, over, steps = 0.0, False, 0
    while not over:
        assert shopper.page.clickables() == env.game.clickables()
        expected = [with_cents(node) for node in text(env.game).split(" [SEP] ") if node.strip()]
        assert [node for node in shopper.page.texts if node in expected] == expected
        clicks = env.admissible_actions()
        buys = "click[buy now]" in clicks
        if env.game.page == "index":
            action = f"search[{rng.choice(['steel bottle', 'power bank', 'shirt'])}]"
        elif buys and steps > 12 and rng.below(4) == 0:
            action = "click[buy now]"
        else:
            action = rng.choice([click for click in clicks if click != "click[buy now]"])
        _, reward, terminated, truncated, _ = env.step(action)
        shopper.act(action)
        over, steps = terminated or truncated, steps + 1
        assert shopper.address.endswith(f"/{steps}")
        assert f"Step {steps} of 40" in shopper.source
    assert shop.record(shopper.id).score == (reward if env.last_score else None)
    if env.last_score:
        assert str(reward) in shopper.page.texts
    assert all(form.inert for form in shopper.page.forms if form.kind != "again")
    (logged,) = (path for path in shop.out.iterdir() if path.name.endswith(EPISODE))
    assert verify_log(logged).ok


def test_a_perfect_purchase_shows_all_parts_hit(make_shop, enter) -> None:
    shop = make_shop()
    shopper = enter(shop)
    shopper.start("test", 3)
    buy(shopper, shop)
    assert shop.record(shopper.id).state is SessionState.BOUGHT
    assert shop.record(shopper.id).score == 1.0
    goal = shop.session(shopper.id).env.game.goal
    assert "1.0" in shopper.page.texts
    assert "✗" not in shopper.text
    for wanted in goal.attributes:
        assert wanted in shopper.page.texts
    assert "Which is what the instruction was made from" in shopper.page.texts
    (again,) = (form for form in shopper.page.forms if form.kind == "again")
    shopper.post(again.action, **again.hidden, task="3")
    assert shopper.address.endswith("/0")
    assert goal.instruction in shopper.page.texts


def test_the_score_card_counts_what_the_score_counts(make_shop, enter) -> None:
    from agentgym_flow.envs.webshop.site.sessions import score_card

    shop, seen = make_shop(), set()
    shopper = enter(shop)
    for task in range(30):
        shopper.start("valid", task)
        shopper.search(shop.session(shopper.id).env.goal[:60])
        shopper.click(shopper.page.clickables()[2 + task % 5])
        for form in [form for form in shopper.page.forms if form.kind == "option"][: task % 3]:
            shopper.click(form.presses[0][1])
        shopper.click("buy now")
        env = shop.session(shopper.id).env
        card, score, goal = score_card(env.game, env.last_score), env.last_score, env.game.goal
        hits = {kind: sum(p.hit for p in card.parts if p.kind == kind) for kind in ("attribute", "option", "price")}
        assert hits["attribute"] == round(score.r_att * len(goal.attributes))
        assert hits["option"] == round((score.r_option or 0) * len(goal.options))
        assert hits["price"] == score.r_price
        assert score.total == pytest.approx(score.r_type * card.hits / len(card.parts))
        assert f"{card.hits} of {len(card.parts)}" in shopper.page.texts
        assert ("✗ no" in shopper.text) == (card.hits < len(card.parts))
        seen.add(score.total)
    assert len(seen) > 4


def test_running_out_of_steps_ends_the_visit_and_says_so(make_shop, enter) -> None:
    shop = make_shop(max_steps=2)
    shopper = enter(shop)
    shopper.start("train", 0)
    shopper.search("shirt")
    shopper.click("next >")
    assert "The 2 steps are used up" in shopper.source
    assert all(form.inert for form in shopper.page.forms if form.kind != "again")
    assert shop.record(shopper.id).state is SessionState.OUT_OF_STEPS
    address = shopper.address
    shopper.click("next >")
    assert shopper.address == address
    (logged,) = shop.out.glob(f"*{EPISODE}")
    assert verify_log(logged).unfinished == 0
    assert '"truncated":true' in logged.read_text()


# ---------------------------------------------------------------- old pages and odd requests
def test_an_old_page_changes_nothing_and_shows_the_present_one(make_shop, enter) -> None:
    shop = make_shop()
    shopper = enter(shop)
    shopper.start("train", 1)
    shopper.search("shirt")
    results = shopper.page
    shopper.click(results.clickables()[2])
    present = shop.session(shopper.id).env.game.product.asin
    old = next(form for form in results.forms if form.kind == "products")
    for name in (results.clickables()[3], results.clickables()[2], "buy now"):  # another, the same again, not there
        shopper.post(old.action, **old.hidden, click=name)
        assert shopper.status == 200
        assert PAST in shopper.source
        assert shop.session(shopper.id).env.game.product.asin == present
        assert len(shop.session(shopper.id).episode.turns) == 2
    shopper.get(f"/visits/{shopper.id}/0")
    assert PAST in shopper.source
    assert "Step 2 of 100" in shopper.source
    shopper.get(f"/visits/{shopper.id}/2")
    assert PAST not in shopper.source


def test_what_is_not_on_the_page_is_no_step(make_shop, enter) -> None:
    shop = make_shop()
    shopper = enter(shop)
    shopper.start("train", 1)
    form = shopper.page.forms[0]
    for fields in ({"click": "buy now"}, {"click": "search"}, {"click": ""}, {}, {"search": " [ ] "}, {"search": ""}):
        shopper.post(form.action, **form.hidden, **fields)
        assert shopper.status == 200
        assert 'role="status"' in shopper.source
        assert shop.session(shopper.id).episode.turns == []
    shopper.search("lamp] [set of 2] click[buy now]")
    assert [turn.action for turn in shop.session(shopper.id).episode.turns] == ["search[lamp set of 2 click buy now]"]
    assert shop.session(shopper.id).episode.turns[0].action_valid


@pytest.mark.parametrize(
    ("task", "reason"),
    [("x", "A task is a number."), ("²", "number"), ("9" * 5000, "number"), ("99999999", "not exist")],
)
def test_a_task_that_is_none_is_explained(make_shop, enter, task, reason) -> None:
    shop = make_shop()
    shopper = enter(shop)
    shopper.start("train", task)
    assert shopper.status == 400
    assert reason in shopper.text
    shopper.start("weekend", 0)
    assert shopper.status == 400
    assert "weekend" in shopper.text
    assert shop.records() == []


def test_addresses_that_lead_nowhere_are_explained(make_shop, enter) -> None:
    shopper = enter(make_shop())
    for address in (
        "/nothing",
        "/visits/00000-0/0",
        "/visits/x/y",
        "/static/app.py",
        "/static/..%2fapp.py",
        "/admin/x",
    ):
        shopper.get(address)
        assert shopper.status == 404, address
        assert "That did not work" in shopper.source
    shopper.start("train", 0)
    for odd in ("9" * 5000, "-1", "1e3", "²", "1/2", "+0"):
        for address in (f"/visits/{shopper.id}/", f"/admin/visits/{shopper.id}/page/"):
            assert shopper.client.get(address + odd).status_code == 404
        assert shopper.client.post(f"/visits/{shopper.id}/{odd}", data=shopper.page.forms[0].hidden).status_code == 404


# ---------------------------------------------------------------- memory
def test_idle_visits_make_room_and_are_kept_in_the_log(make_shop, enter) -> None:
    shop = make_shop(max_open=3)
    people = [enter(shop) for _ in range(7)]
    gone = []
    for number, shopper in enumerate(people):
        shopper.start("train", number)
        if number != 1:
            shopper.search("shirt")
        if number < 4:
            gone.append(weakref.ref(shop.session(shopper.id).env))
        people[0].get(people[0].address)  # this one is never idle
    assert shop.count_open == 3
    gc.collect()
    assert [env() is None for env in gone] == [False, True, True, True]
    for number, shopper in enumerate(people):
        shopper.get(shopper.address)
        assert shopper.status == (200 if number in (0, 5, 6) else 410)
    states = [record.state for record in reversed(shop.records())]
    assert states == [SessionState.SHOPPING, *[SessionState.PUT_AWAY] * 4, *[SessionState.SHOPPING] * 2]
    logs = sorted(shop.out.glob(f"*{EPISODE}"))
    assert [log.name[:5] for log in logs] == ["00002", "00003", "00004"]  # in number 1 nothing had happened
    for log in logs:
        assert verify_log(log).unfinished == 1
        assert '"left":"made room for a later visit"' in log.read_text()


def test_a_closed_shop_has_written_what_was_under_way(make_shop, enter) -> None:
    shop = make_shop()
    shopper = enter(shop)
    shopper.start("train", 0)
    shopper.search("shirt")
    shop.close()
    assert shop.count_open == 0
    (log,) = shop.out.glob(f"*{EPISODE}")
    assert '"left":"the shop was closed"' in log.read_text()
    assert verify_log(log).ok
    shop.close()
    assert shop.written == 1


# ---------------------------------------------------------------- looking back
def test_visits_are_listed_with_their_pages_as_they_were_seen(make_shop, enter) -> None:
    shop = make_shop(max_open=1)
    shopper, admin = enter(shop), enter(shop)
    shopper.start("valid", 5)
    seen = [shopper.page.texts]
    shopper.search("steel")
    seen.append(shopper.page.texts)
    shopper.click(shopper.page.clickables()[2])
    for form in [form for form in shopper.page.forms if form.kind == "option"]:
        seen.append(shopper.page.texts)
        shopper.click(form.presses[-1][1])
    seen.append(shopper.page.texts)
    shopper.click("buy now")
    visit, score = shopper.id, shop.record(shopper.id).score
    for gone in (False, True):
        if gone:
            shopper.start("valid", 6)
            assert shop.session(visit) is None
        admin.get("/admin")
        assert visit[:5] in admin.page.texts
        assert f"{score:.3f}" in admin.page.texts
        admin.get(f"/admin/visits/{visit}")
        assert "click[buy now]" in admin.page.texts
        for step, texts in enumerate(seen):
            admin.get(f"/admin/visits/{visit}/page/{step}")
            assert admin.page.texts == texts
            assert all(form.inert for form in admin.page.forms)
        admin.get(f"/admin/visits/{visit}/page/{len(seen)}")
        assert "How the score came about" in admin.page.texts
        admin.get(f"/admin/visits/{visit}/page/{len(seen) + 1}")
        assert admin.status == 404
        for ending in (EPISODE, PAGES):
            answer = admin.client.get(f"/admin/visits/{visit}/{ending[1:]}")
            assert answer.content == shop.file(shop.record(visit), ending).read_bytes()
    assert admin.client.get("/admin/episode.jsonl").text.count("\n") == 1
    assert admin.client.get("/admin/pages.jsonl").text.count("\n") == len(seen) + 1


# ---------------------------------------------------------------- hostile data
def test_hostile_products_are_text_on_every_page(make_shop, enter, hostile_data) -> None:
    shop = make_shop(data=str(hostile_data), show_attributes=True)
    shopper = enter(shop)
    shopper.start("train")
    env = shop.session(shopper.id).env
    shopper.search("lamp bright")
    assert len(env.game.found) == 5
    for asin in sorted(name for name in shopper.page.clickables() if name.startswith("b0")):
        shopper.click(asin)
        sources = [shopper.source]
        for name in ("description", "features", "attributes"):
            shopper.click(name)
            sources.append(shopper.source)
            shopper.click("< prev")
        odd = next(form for form in shopper.page.forms if form.kind == "option").presses[0][1]
        shopper.click(odd)
        assert len(env.game.options) == 1, asin
        sources.append(shopper.source)
        shopper.click("< prev")
        for source in sources:
            page = PageReader(source)
            assert page.tags.count("script") == 1
            assert "img" not in page.tags
            assert not [name for name in page.attributes if name.startswith("on")]
            assert "1337" not in source
    shopper.click("b0evil0001")
    shopper.click("buy now")
    shop.record(shopper.id)
    for address in ("/admin", f"/admin/visits/{shopper.id}", shopper.address):
        shopper.get(address)
        assert PageReader(shopper.source).tags.count("script") == 1
    shopper.get(f"/admin/visits/{shopper.id}")
    assert EVIL.lower() in " ".join(PageReader(shopper.source).texts)


def test_settings_that_cannot_work_are_told_at_once(make_shop, tmp_path) -> None:
    for error, settings in (
        (UnknownSplit, {"split": "weekend"}),
        (UnknownTask, {"task": 10**9}),
        (BadSetting, {"max_steps": 0}),
        (BadSetting, {"seed": -1}),
        (BadSetting, {"max_open": 0}),
    ):
        with pytest.raises(error):
            make_shop(**settings)
    assert not (tmp_path / "logs").exists()
    with pytest.raises(BadSetting, match="token"):
        create_app(make_shop(), token="")


@pytest.mark.parametrize("package", ["starlette", "uvicorn"])
def test_a_missing_extra_is_named(package) -> None:
    code = f"import sys; sys.modules[{package!r}] = None\nimport agentgym_flow.envs.webshop.site.app"
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert MissingExtra.__name__ in finished.stderr
    assert "agentgym_flow[serve]" in finished.stderr
    code = f"import sys; sys.modules[{package!r}] = None\nimport agentgym_flow.envs.webshop.site.sessions"
    subprocess.run([sys.executable, "-c", code], check=True)

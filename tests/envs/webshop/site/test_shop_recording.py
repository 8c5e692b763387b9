"""What a visit leaves behind: an episode that anyone can verify, and the pages as WebShop's own site logs them."""

from __future__ import annotations

import errno
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from agentgym_flow.cli import app
from agentgym_flow.core import Stream
from agentgym_flow.envs.webshop.site import sessions
from agentgym_flow.envs.webshop.site.original_log import PageView, address, read_session, write_session
from agentgym_flow.envs.webshop.site.sessions import EPISODE, PAGES, SessionState, ShopSession
from agentgym_flow.episodes import read_log
from agentgym_flow.errors import BadLog
from agentgym_flow.replay import verify_log

Kinds = dict[str, Any]


def stroll(shop, split: str = "train", task: int | None = None, steps: int = 8, buy: bool = True) -> ShopSession:
    """Visit a search, products, their texts and options at random, and buy in the end."""
    session = shop.start(split, task)
    rng = Stream("test", "stroll", session.record.seed)
    shop.step(session, "search[steel bottle]")
    for _ in range(steps):
        clicks = [c for c in session.env.admissible_actions() if c not in ("click[buy now]", "click[back to search]")]
        shop.step(session, rng.choice(clicks))
    if buy:
        shop.step(session, "search[steel bottle]")
        shop.step(session, session.env.admissible_actions()[-1])
        options = session.env.game.product.options
        for values in options.values():
            shop.step(session, f"click[{values[0]}]")
        shop.step(session, "click[features]")
        shop.step(session, "click[< prev]")
        shop.step(session, "click[buy now]")
    return session


# ---------------------------------------------------------------- the episode log
def test_a_visit_is_an_episode_that_verifies(make_shop, tmp_path) -> None:
    shop = make_shop()
    session = stroll(shop, "valid", 12)
    log = shop.file(session.record, EPISODE)
    assert sorted(path.name for path in shop.out.iterdir()) == sorted([log.name, shop.file(session.record, PAGES).name])
    finished = CliRunner().invoke(app, ["verify", str(log)])
    assert finished.exit_code == 0, finished.output
    assert "1 of 1 episodes match" in finished.stdout
    (episode,) = read_log(log)
    assert (episode.split, episode.task, episode.max_steps) == ("valid", 12, 100)
    assert episode.meta == {"task_type": "office", "policy": "human"}
    assert episode.score == session.record.score == session.env.last_score.total
    assert str(tmp_path) not in log.read_text()


def test_visits_of_one_folder_are_all_different_episodes(make_shop) -> None:
    for run in range(2):  # the shop is opened a second time
        shop = make_shop(seed=70)
        for _ in range(2):
            stroll(shop, "train", 3, steps=2)
        stroll(shop, "train", steps=2)
        shop.close()
        names = sorted(path.name for path in shop.out.glob(f"*{EPISODE}"))
        assert [name[:5] for name in names] == [f"{number:05d}" for number in range(3 * run + 3)]
    together = shop.out.parent / "all.jsonl"
    together.write_text("".join((shop.out / name).read_text() for name in names))
    verdict = verify_log(together)
    assert verdict.ok, verdict.problems()
    assert verdict.episodes == 6
    assert [episode.seed for episode in read_log(together)] == list(range(70, 76))


def test_official_data_are_verified_too(make_shop, sample_data) -> None:
    folder = sample_data / "webshop"
    shop = make_shop(data=str(folder))
    session = shop.start("test", 4)
    while not session.over:
        action = session.env.expert_action()
        shop.step(session, action or "click[buy now]")
    (episode,) = read_log(shop.file(session.record, EPISODE))
    assert list(episode.data) == ["webshop"]
    assert verify_log(shop.file(session.record, EPISODE), {"webshop": str(folder)}).ok


def test_a_full_disk_is_told_and_tried_again(make_shop, enter, monkeypatch) -> None:
    shop = make_shop()
    shopper = enter(shop)

    def full(path: Path, episodes: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(sessions, "write_log", full)
    shopper.start("train", 0)
    shopper.search("shirt")
    shopper.click(shopper.page.clickables()[2])
    shopper.click("buy now")
    assert shopper.status == 200
    assert "could not be saved: No space left on device" in shopper.source
    assert "How the score came about" in shopper.source
    shopper.get("/admin")
    assert "not written: No space left on device" in shopper.text
    assert list(shop.out.iterdir()) == []
    monkeypatch.undo()
    shop.close()
    (log,) = shop.out.glob(f"*{EPISODE}")
    assert verify_log(log).ok
    assert shop.records()[0].state is SessionState.BOUGHT


# ---------------------------------------------------------------- the original's log
def test_the_recorded_sessions_are_read_and_written_as_they_are(sample_data, tmp_path) -> None:
    files = sorted((sample_data / "webshop" / "human_sessions").glob("*.jsonl"))
    assert len(files) == 5
    for file in files:
        views = read_session(file)
        assert views[0].page == "index"
        assert views[-1].page == "done"
        assert views[-1].reward is not None
        for view in views:
            assert address(view.page, file.stem, view.content or {}) == view.url
        write_session(tmp_path / file.name, views)
        assert (tmp_path / file.name).read_bytes() == file.read_bytes()


def kinds_of(views: list[PageView]) -> dict[str, list[Kinds]]:
    """Return the keys and types of the lines, nested, by the kind of page."""

    def kind(value: Any, name: str = "") -> Any:
        if isinstance(value, dict) and name != "options":
            return {key: kind(item, key) for key, item in value.items()}
        return "number" if name in ("price_upper", "price", "reward") else type(value).__name__

    found: dict[str, list[Kinds]] = defaultdict(list)
    for view in views:
        found[view.page].append(kind(json.loads(view.line())))
    return found


def test_our_lines_have_the_keys_and_types_of_the_original(make_shop, sample_data) -> None:
    theirs: dict[str, list[Kinds]] = defaultdict(list)
    for file in sorted((sample_data / "webshop" / "human_sessions").glob("*.jsonl")):
        for page, kinds in kinds_of(read_session(file)).items():
            theirs[page] += kinds
    shop = make_shop(goals="human")
    seen = set()
    wanted = set()
    for task in range(40):
        session = stroll(shop, "valid", task, steps=6)
        wanted.add(bool(session.env.game.goal.options))
        views = read_session(shop.file(session.record, PAGES))
        assert views == session.views
        for page, kinds in kinds_of(views).items():
            seen.add(page)
            for one in kinds:
                assert one in theirs["item_page" if page == "item_sub_page" else page], page
    assert seen == {"index", "search_results", "item_page", "item_sub_page", "done"}
    assert wanted == {True, False}


def test_the_pages_say_what_happened(make_shop) -> None:
    shop = make_shop()
    session = shop.start("valid", 2)
    for action in ("search[Steel  Bottle]", "click[next >]", "click[nothing]", "click[back to search]"):
        shop.step(session, action)
    shop.step(session, "search[steel bottle]")
    asin = session.env.game.listed()[0].product.asin
    shop.step(session, f"click[{asin}]")
    shop.step(session, "click[description]")
    shop.step(session, "click[< prev]")
    shop.step(session, "click[buy now]")
    views = read_session(shop.file(session.record, PAGES))
    assert [view.page for view in views] == [
        *("index", "search_results", "search_results", "index", "search_results"),
        *("item_page", "item_sub_page", "item_page", "done"),
    ]
    name, words = session.record.id, "%5B%27steel%27%2C%20%27bottle%27%5D"
    assert views[1].content["keywords"] == ["steel", "", "bottle"]
    assert views[2].content["page"] == 2
    assert len(views[4].content["search_result_asins"]) == 10
    assert views[5].url == f"http://localhost:3000/item_page/{name}/{asin}/{words}/1/%7B%7D"
    assert views[6].url == f"http://localhost:3000/item_sub_page/{name}/{asin}/{words}/1/Description/%7B%7D"
    score = session.env.last_score
    assert views[-1].reward == score.total
    assert views[-1].reward_info["title_score"] == score.title_score
    assert ("r_option" in views[-1].reward_info) == (score.r_option is not None)
    assert views[-1].content == {"asin": asin, "options": {}, "price": session.env.game.product.price}
    assert views[-1].goal["instruction_text"] == session.record.goal
    assert all(view.reward is None for view in views[:-1])


def test_an_unfinished_visit_has_no_last_line(make_shop) -> None:
    shop = make_shop()
    session = stroll(shop, buy=False)
    shop.close()
    views = read_session(shop.file(session.record, PAGES))
    assert "done" not in [view.page for view in views]
    (episode,) = read_log(shop.file(session.record, EPISODE))
    assert not episode.terminated
    assert not episode.truncated


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda row: row.pop("url"), "'url' is missing"),
        (lambda row: row.update(extra=1), "'extra' is not known"),
        (lambda row: row.update(page="cart"), "not a page"),
        (lambda row: row.update(page=[]), "not a page"),
        (lambda row: row["goal"].pop("asin"), "goal: field 'asin' is missing"),
        (lambda row: row["goal"].update(weight="1"), "goal: field 'weight' has the wrong type"),
        (lambda row: row["goal"].update(price_upper=True), "goal: field 'price_upper' has the wrong type"),
        (lambda row: row["content"].update(options="{}"), "content: field 'options' has the wrong type"),
        (lambda row: row.pop("reward"), "'reward' is missing"),
        (lambda row: row["reward_info"].update(r_price=1), "reward_info: field 'r_price' has the wrong type"),
        (lambda row: row["reward_info"].pop("r_type"), "reward_info: field 'r_type' is missing"),
    ],
)
def test_a_line_that_is_no_page_is_named(make_shop, tmp_path, change, reason) -> None:
    shop = make_shop()
    session = stroll(shop)
    file = shop.file(session.record, PAGES)
    lines = file.read_text().splitlines()
    row = json.loads(lines[-1])
    change(row)
    file.write_text("\n".join([*lines[:-1], json.dumps(row)]) + "\n")
    with pytest.raises(BadLog, match=rf"line {len(lines)}") as caught:
        read_session(file)
    assert reason in str(caught.value)


@given(st.one_of(st.text(max_size=40), st.binary(max_size=40)))
def test_reading_anything_else_is_a_typed_error(tmp_path_factory, content) -> None:
    file = tmp_path_factory.mktemp("any") / "session.jsonl"
    file.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
    with pytest.raises(BadLog, match=r"session\.jsonl"):
        read_session(file)

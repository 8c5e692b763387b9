"""Session logs in the format of WebShop's own site: JSON lines, one per shown page; the last one has the reward.

Tools for the recorded human sessions of WebShop can read these logs; the verifiable record is the episode log. An index
page has no content, a goal without options has no `r_option`, and an unfinished visit has no line with a reward. As in
the original, the words of a query are a list on a page of results, and its string representation on a product page.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from agentgym_flow._util.files import LineWriter
from agentgym_flow.envs.webshop.game import Page, WebShopGame
from agentgym_flow.envs.webshop.goals import WebShopGoal
from agentgym_flow.envs.webshop.reward import Score
from agentgym_flow.errors import BadLog

ADDRESS = "http://localhost:3000"
"""The address of the original site in its logs; our logs use it, too."""

_Kinds = Mapping[str, type | tuple[type, ...]]

_GOAL: _Kinds = {
    "asin": str,
    "category": str,
    "query": str,
    "name": str,
    "product_category": str,
    "instruction_text": str,
    "attributes": list,
    "price_upper": (float, int),
    "goal_options": (list, dict),
    "weight": (int, float),
}
_SEARCH: _Kinds = {"keywords": list, "search_result_asins": list, "page": int}
_ITEM: _Kinds = {"keywords": str, "page": str, "asin": str, "options": dict}
_DONE: _Kinds = {"asin": str, "options": dict, "price": (float, int)}
_CONTENT: Mapping[str, _Kinds] = {
    Page.INDEX: {},
    Page.RESULTS: _SEARCH,
    Page.ITEM: _ITEM,
    Page.SUB_PAGE: _ITEM,
    Page.DONE: _DONE,
}
_REWARD_INFO: _Kinds = {
    "r_type": (float, int),
    "r_att": (float, int),
    "query_match": bool,
    "category_match": bool,
    "title_score": (float, int),
    "r_price": bool,
}


@dataclass(frozen=True, slots=True)
class PageView:
    """One line of the log: a shown page.

    Attributes:
        page: the kind of page, one of `game.Page`.
        url: the address in the format of the original, which includes the query, the product and the options.
        goal: the goal.
        content: the content of the page; None on the search page.
        reward: the score; only on the last page.
        reward_info: the parts of the score.
    """

    page: str
    url: str
    goal: dict[str, Any]
    content: dict[str, Any] | None = None
    reward: float | None = None
    reward_info: dict[str, Any] | None = None

    @classmethod
    def of(cls, game: WebShopGame, session: str, score: Score | None = None) -> Self:
        """Return the line for the current page of `game`; `score` is the score of the purchase, if any."""
        content = _content(game)
        return cls(
            page=game.page.value,
            url=address(game.page, session, content or {}, game.sub_page),
            goal=_goal(game.goal),
            content=content,
            reward=None if score is None else score.total,
            reward_info=None if score is None else _reward_info(score),
        )

    @classmethod
    def parse(cls, line: str, where: str = "line") -> Self:
        """Parse a line. Raises `BadLog` with a message that starts with `where`."""
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise BadLog(f"{where}: not JSON ({error})") from None
        if not isinstance(row, dict) or row.get("page") not in list(_CONTENT):
            raise BadLog(f"{where}: not a page of a shop; `page` must be one of {', '.join(_CONTENT)}")
        page = row["page"]
        content: _Kinds = {"content": dict} if _CONTENT[page] else {}
        end: _Kinds = {"reward": (float, int), "reward_info": dict} if page == Page.DONE else {}
        _check(row, {"page": str, "url": str, "goal": dict, **content, **end}, where)
        _check(row["goal"], _GOAL, f"{where}, goal")
        _check(row.get("content", {}), _CONTENT[page], f"{where}, content")
        if page == Page.DONE:
            option: _Kinds = {"r_option": (float, int)} if "r_option" in row["reward_info"] else {}
            _check(row["reward_info"], {**_REWARD_INFO, **option}, f"{where}, reward_info")
        return cls(**row)

    def line(self) -> str:
        """Return the line of JSON, without the newline."""
        row = {name: value for name in self.__slots__ if (value := getattr(self, name)) is not None}
        return json.dumps(row)


def write_session(path: str | os.PathLike[str], views: Iterable[PageView]) -> None:
    """Write the pages of a session to `path` atomically. Raises `OSError`."""
    with LineWriter(path) as writer:
        writer.write_lines(view.line() for view in views)


def read_session(path: str | os.PathLike[str]) -> list[PageView]:
    """Return the pages of a session, at least one. Raises `BadLog` with the number of a bad line, and `OSError`."""
    path = Path(path)
    with path.open(encoding="utf-8") as file:
        try:
            lines = file.read().removesuffix("\n").split("\n")
        except UnicodeDecodeError as error:
            raise BadLog(f"{path.name}: byte {error.start} is not UTF-8") from None
    if lines == [""]:
        raise BadLog(f"{path.name} is empty")
    return [PageView.parse(line, f"{path.name} line {number}") for number, line in enumerate(lines, 1)]


def address(page: str, session: str, content: Mapping[str, Any], sub_page: str = "") -> str:
    """Return the address of a page in the format of the original, with words and options in the format of `str`."""
    parts = [] if page == Page.INDEX else [page]
    parts.append(session)
    if "asin" in content:
        parts.append(content["asin"])
    if "keywords" in content:
        parts += [str(content["keywords"]), str(content["page"])]
    if page == Page.SUB_PAGE:
        parts.append(sub_page)
    if "options" in content:
        parts.append(str(content["options"]))
    return "/".join([ADDRESS, *(quote(part, safe=":/", errors="replace") for part in parts)])


def _goal(goal: WebShopGoal) -> dict[str, Any]:
    options = goal.options
    return {
        "asin": goal.asin,
        "category": goal.category,
        "query": goal.query,
        "name": goal.name,
        "product_category": goal.product_category,
        "instruction_text": goal.instruction,
        "attributes": list(goal.attributes),
        "price_upper": goal.price_upper,
        "goal_options": dict(options) if isinstance(options, Mapping) else list(options),
        "weight": goal.weight if isinstance(options, Mapping) else 1,
    }


def _content(game: WebShopGame) -> dict[str, Any] | None:
    words = list(game.keywords)
    if game.page is Page.INDEX:
        return None
    if game.page is Page.RESULTS:
        return {
            "keywords": words,
            "search_result_asins": [card.product.asin for card in game.listed()],
            "page": game.number,
        }
    assert game.product is not None  # all other pages have a product
    if game.page is Page.DONE:
        return {"asin": game.product.asin, "options": dict(game.options), "price": game.product.price}
    return {
        "keywords": str(words),
        "page": str(game.number),
        "asin": game.product.asin,
        "options": dict(game.options),
    }


def _reward_info(score: Score) -> dict[str, Any]:
    return {
        "r_type": score.r_type,
        "r_att": score.r_att,
        "query_match": score.query_match,
        "category_match": score.category_match,
        "title_score": score.title_score,
        **({} if score.r_option is None else {"r_option": score.r_option}),
        "r_price": score.r_price,
    }


def _check(row: Mapping[str, Any], kinds: _Kinds, where: str) -> None:
    """Raise `BadLog` if the keys of `row` or the types of its values differ from `kinds`."""
    if row.keys() != kinds.keys():
        odd = sorted(row.keys() ^ kinds.keys())[0]
        raise BadLog(f"{where}: field {odd!r} is {'not known' if odd in row else 'missing'}")
    for name, kind in kinds.items():
        truth = isinstance(row[name], bool)
        if not isinstance(row[name], kind) or (truth and kind is not bool):
            raise BadLog(f"{where}: field {name!r} has the wrong type, found {row[name]!r:.60}")
